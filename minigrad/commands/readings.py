"""The commands of `minigrad` that study a model: each does what the arguments say, and returns the exit status."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .. import study
from ..base import cli
from ..nn import GPT
from ..tensor import Tensor, tensor
from ..training.runs import load_char_model
from ..training.text import CharVocab, read_corpus, split

SEQUENCES = 16  # sequences of validation text, for means over them
SHOWN = 4  # sequences of it in a report
MOST_CUT = 500  # edges that are cut, a forward each


@dataclass(eq=False)
class Reading:
    """A text as the model reads it: B sequences of T characters. loss(model, *batch) is differentiated; `of` are the
    words for it, `title` those with its value, and how many sequences there are."""

    model: GPT
    vocab: CharVocab
    batch: tuple[Tensor, ...]
    loss: Callable
    of: str
    tokens: list[list[str]]

    def __str__(self):
        first, *more = self.tokens
        what = f"{1 + len(more)} sequences of {len(first)} characters" if more else repr("".join(first))
        return f"{self.title}\n{what}"

    @property
    def title(self):
        return f"{self.of}: {self.loss(self.model, *self.batch).item():.4f}"


def read(args, sequences=1):
    """A Reading of --text, or of `sequences` spread over the run's validation text.

    The loss is the mean over all characters but the first. With --right and --wrong, it is the difference of two logits
    after the last character."""
    model, vocab, saved = load_char_model(args.checkpoint, args.device)
    model.eval()
    own = args.text is None
    ids = _validation_split(args.checkpoint, vocab, saved) if own else vocab.encode(args.text)  # (n,)
    compared = args.right is not None or args.wrong is not None
    if own and compared:
        raise cli.CommandError("--right and --wrong need a --text, after which they come")
    T = min(model.config.block_size, len(ids) - (not compared))
    if T < 1:
        raise cli.CommandError("the text is too short: the model reads one character at least, and predicts one")
    if compared:
        at = np.arange(len(ids) - T, len(ids))[None]  # the last T characters
        rest = []
        loss, of = _difference(vocab, args.right, args.wrong)
    else:
        starts = np.arange(0, len(ids) - T, T)  # side by side; what is left at the end is shorter, and is not read
        if own:
            starts = starts[np.linspace(0, len(starts) - 1, min(sequences, len(starts))).astype(int)]
        at = starts[:, None] + np.arange(T)
        rest = [ids[at + 1]]  # the targets
        loss, of = _loss, "loss in nats per character"
    batch = tuple(tensor(array, device=args.device) for array in (ids[at], *rest))
    return Reading(model, vocab, batch, loss, of, [list(vocab.decode(row)) for row in ids[at]])


def _loss(model, x, y):
    return model(x, y)[1]


def _difference(vocab, right, wrong):
    """(loss(model, x), the words for it): logit(wrong) - logit(right) after the last character."""
    if right == wrong or not all(char in vocab.chars and len(char) == 1 for char in (right or "", wrong or "")):
        raise cli.CommandError("--right and --wrong must be two different characters that the model knows")
    r, w = vocab.encode(right + wrong).tolist()

    def loss(model, x):
        last = model(x)[0][:, -1]  # (B, V)
        return (last[:, w] - last[:, r]).mean()

    return loss, f"logit({wrong!r}) - logit({right!r}) after the last character; {right!r} is right"


def _validation_split(checkpoint, vocab, saved):
    """The run's validation text, encoded."""
    if "settings" not in saved:
        raise cli.CommandError(f"{checkpoint} does not say what it was trained on: give a --text")
    corpus = read_corpus(saved["settings"]["text"])
    if zlib.crc32(corpus.encode()) != saved["crc"]:
        cli.note("the run's text has changed since: what is read now may have been trained on")
    return split(vocab.encode(corpus))[1]


# ------------------------------------------------------------------------------------------------------- the commands


def report(args):
    """Trace the loss on the text, write the report and print its table."""
    text = read(args, SHOWN)
    cli.file_to_write(args.out, "--out", "heads.html", ".html", ".htm")
    with cli.refusing(ValueError), cli.busy() as say:  # unknown heads; larger than --limit
        say("tracing")
        with study.trace_heads(text.model, layers=args.layers, heads=args.heads) as trace:
            text.loss(text.model, *text.batch).backward()
        say("removing each head in turn")
        importance = {"ablate": study.head_importance(text.model, [text.batch], "ablate", loss=text.loss)}
        say("cutting each edge between heads")
        flows = study.flow(text.model, text.batch, text.loss, "cut", MOST_CUT)
        say(f"writing {args.out}")
        shown = dict(importance=importance, flow=flows, vocab=text.vocab, of=text.of, limit=int(args.limit * 1e6))
        path = trace.to_html(args.out, text.tokens, title=f"{args.checkpoint}: {text.title}", **shown)
    print(f"{text}\n\n{trace.table()}\n\nwrote {path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def write_ledger(args):
    """Print the ledger of the loss on the text."""
    text = read(args)
    with cli.refusing(ValueError):  # --head without a layer, or a form without values that heads divide
        book = study.ledger(
            lambda: text.loss(text.model, *text.batch), args.scope, args.head, args.values, names=text.model
        )
    for entry in book.entries:
        entry.made = ""  # a line of this program means nothing to the user
    print(f"{text}\n{book}")
    return 0


def write_flow(args):
    """Print what edges between the parts are worth to the loss on the text, the largest first."""
    text = read(args, SEQUENCES)
    with cli.busy("cutting each edge in turn"):
        found = study.flow(text.model, text.batch, text.loss, args.method, args.most)
    edges = found.all if args.of is None else found.around(args.of)
    print(f"{text}\n\n{edges}")
    return 0


def write_importance(args):
    """Print how much each head matters, by all methods: of several sequences the mean and its standard error."""
    text = read(args, SEQUENCES)
    batches = [tuple(x[b : b + 1] for x in text.batch) for b in range(len(text.tokens))]
    columns = {}
    for method in study.METHODS:
        with cli.busy(f"importance by {method}"):
            found = [study.head_importance(text.model, [one], method, args.steps, text.loss) for one in batches]
        each = {path: np.stack([of[path] for of in found]) for path in found[0]}  # (sequences, nh)
        columns[method] = {path: x.mean(0) for path, x in each.items()}
        if len(batches) > 1:
            columns[f"± {method}"] = {path: x.std(0, ddof=1) / len(x) ** 0.5 for path, x in each.items()}
    print(f"{text}\n\n{study.HeadTable(columns).sorted('ablate')}")
    if len(batches) > 1:
        print("\n±: standard error of the mean over the sequences")
    return 0


def write_scores(args):
    """Print what kind of head each one is."""
    model, _, _ = load_char_model(args.checkpoint, args.device)
    with cli.refusing(ValueError), cli.busy(f"reading {args.sequences} random texts of each period"):
        found = study.head_scores(model, periods=args.periods, n=args.sequences, seed=args.seed)
    print(found)
    return 0
