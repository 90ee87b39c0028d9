"""The commands of `minigrad` that study a model: each does what the arguments say, and returns the exit status."""

import os
import shlex
import warnings
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from ..base import cli
from ..base.errors import UnknownName
from ..nn import GPT
from ..nn.heads import known_heads
from ..study.flow import flow
from ..study.importance import METHODS, head_importance, returned_loss
from ..study.layers import attention_layers, undisturbed
from ..study.ledger import ledger
from ..study.scores import head_scores
from ..study.stats import RANK, HeadTable
from ..study.trace import trace_heads
from ..tensor import Tensor, tensor
from ..training.runs import load_char_model, model_file
from ..training.text import CharVocab, read_corpus, split
from ..viz.labels import count

SEQUENCES = 16  # of the run's validation text, where means over it are what counts
SHOWN = 4  # sequences of it in a report
MOST_CUT = 500  # edges that are cut, a forward each


@dataclass(eq=False)
class Reading:
    """A text as the model reads it: in B sequences, of which number b begins at starts[b] and has the characters
    tokens[b]. loss(model, *batch) is differentiated; `value` is its value, `title` its description."""

    model: GPT
    vocab: CharVocab
    batch: tuple[Tensor, ...]
    loss: Callable
    title: str
    of: str  # what is differentiated, in the words of the report
    starts: list[int]
    tokens: list[list[str]]
    validated: bool = False  # is the text the run's own, of its validation split?

    @property
    def value(self):
        with undisturbed(self.model):
            return self.loss(self.model, *self.batch).item()

    def __str__(self):
        return "\n".join([f"{self.title}: {self.value:.4f}", *self.how])

    @property
    def how(self):
        """Lines that explain how a long text is read."""
        B, T, lines = len(self.starts), len(self.tokens[0]), []
        if self.validated and B == 1:
            return [f"the beginning of the run's validation text: {''.join(self.tokens[0])!r}"]
        if self.validated:
            return [f"{B} sequences of {T} characters, spread over the run's validation text"]
        if B == 1 and self.starts[0]:
            lines.append(f"the model reads the last {T} characters, no more at once")
        if B > 1:
            lines.append(f"the text is read in {B} sequences of {T} characters, no more at once")
            if overlap := self.starts[-2] + T - self.starts[-1]:
                lines.append(f"the last one begins with {overlap} characters of the one before; none counts twice")
        return lines


def read(args, sequences=1):
    """A Reading of --text, or of `sequences` of the run's validation text.

    The loss is the mean over all characters but the first. With --right and --wrong, it is the difference of two logits
    after the last character. Raises CommandError for what the model cannot read."""
    text, compared = args.text, args.right is not None or args.wrong is not None
    if text is None and compared:
        raise cli.CommandError("--right and --wrong need a text, after which they come")
    if text is not None and os.path.isfile(text):
        cli.note(f'{text!r} is read as a text: for what is in that file, give "$(cat {shlex.quote(text)})"')
    model, vocab, meta = _loaded(args)
    model.eval()
    T = model.config.block_size
    ids = _validation_split(args, vocab, meta, T + 1) if text is None else vocab.encode(text)  # (n,)
    asked = _compared(args, vocab, len(ids), T) if compared else _predicted(ids, T, sequences if text is None else None)
    at, rest, loss, title, of = asked
    batch = tuple(tensor(array, device=args.device) for array in (ids[at], *rest))
    tokens = [list(vocab.decode(row)) for row in ids[at]]
    return Reading(model, vocab, batch, loss, title, of, at[:, 0].tolist(), tokens, text is None)


def _validation_split(args, vocab, meta, least):
    """The run's validation text, encoded. Raises CommandError if it is missing, or shorter than `least`."""
    settings = meta.get("settings")
    texts = settings.get("text", []) if isinstance(settings, dict) else None
    if not isinstance(texts, list):
        raise cli.CommandError(f"{args.checkpoint} does not say what it was trained on: give a text")
    try:
        corpus = read_corpus(map(str, texts))
    except OSError as error:
        raise cli.CommandError(f"the run's text is gone ({cli.said(error)}): give a text") from None
    if zlib.crc32(corpus.encode()) != meta.get("crc"):
        cli.note("the run's text has changed since: what is read now may have been trained on")
    kept = split(vocab.encode(corpus))[1]
    if len(kept) < least:
        raise cli.CommandError(f"the run's validation text has {len(kept)} characters, too few: give a text")
    return kept


def _loaded(args):
    args.checkpoint = model_file(args.checkpoint, train=cli.typed("train"))
    return load_char_model(args.checkpoint, args.device)


def _predicted(ids, block_size, sequences=None):
    """(which characters the model reads (B, T), [the targets], the loss, its title, what it is called in a sentence).
    sequences: only that many, spread over the text (None: all of it)."""
    n = len(ids) - 1  # characters to predict
    if n < 1:
        raise cli.CommandError("the text needs two characters at least: one to read, one to predict")
    T = min(block_size, n)
    starts = [*range(0, n - T, T), n - T]  # the last sequence is as long as the others, so that it may overlap
    if sequences is not None:
        starts = starts[:: max(1, len(starts) // sequences)][:sequences]
    at = np.reshape(starts, (-1, 1)) + np.arange(T)
    targets = ids[at + 1]
    if len(starts) > 1 and sequences is None:
        targets[-1, : starts[-2] + T - starts[-1]] = -100  # they count in the sequence before
    return at, [targets], returned_loss, "loss in nats per character", "the loss"


def _compared(args, vocab, n, block_size):
    """The same for the difference of two logits after the last of n characters."""
    for option, char in ("--right", args.right), ("--wrong", args.wrong):
        if char is None:
            raise cli.CommandError(f"--right and --wrong need each other: {option} is missing")
        if len(char) != 1:
            raise cli.CommandError(f"{option} must be one character, not {char!r}")
    if args.right == args.wrong:
        raise cli.CommandError(f"--right and --wrong must differ: both are {args.right!r}")
    if n < 1:
        raise cli.CommandError("the text needs one character at least")
    for option, char in ("--right", args.right), ("--wrong", args.wrong):
        if char not in vocab.chars:
            raise cli.CommandError(f"the vocabulary lacks {char!r}, given as {option}")
    right, wrong = vocab.encode(args.right + args.wrong).tolist()

    def loss(model, x):
        last = model(x)[0][:, -1]  # (B, V)
        return (last[:, wrong] - last[:, right]).mean()

    at = np.arange(max(0, n - block_size), n)[None]
    difference = f"logit({args.wrong!r}) - logit({args.right!r})"
    return at, [], loss, f"{difference} after the last character; {args.right!r} is right", difference


def _check_head(head, layer):
    with cli.refusing(ValueError):
        known_heads([head], layer.num_heads)


# ------------------------------------------------------------------------------------------------------- the commands


def report(args):
    """Trace the loss on the text, write the report and print its table."""
    text = read(args, SHOWN)
    with ExitStack() as stack, cli.busy() as say:
        with cli.refusing(ValueError):  # unknown heads
            trace = stack.enter_context(trace_heads(text.model, layers=args.layers, heads=args.heads))
        cli.file_to_write(args.out, "--out", "heads.html", ".html", ".htm")
        say(f"tracing {count(len(text.starts), 'sequence')} of {count(len(text.tokens[0]), 'character')}")
        loss = text.loss(text.model, *text.batch)
        loss.backward()
        stack.close()
        say("removing each head in turn")
        importance = {"ablate": head_importance(text.model, [text.batch], "ablate", loss=text.loss)}
        say("cutting each edge between heads")
        with cli.refusing(ValueError):  # all heads are pruned
            flows = flow(text.model, text.batch, text.loss, "cut", MOST_CUT)
        say(f"writing {args.out}")
        title = f"{os.path.basename(args.checkpoint)}: {text.title}: {loss.item():.4f}"
        path = _report(trace, args, text, title=title, importance=importance, flow=flows)
    print(f"{text}\n\n{trace.table()}\n\nwrote {path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _report(trace, args, text, **shown):
    shown |= dict(vocab=text.vocab, of=text.of, limit=int(args.limit * 1e6))
    try:
        return trace.to_html(args.out, text.tokens, **shown)
    except ValueError as error:  # larger than --limit
        raise cli.CommandError(f"{error} (--layers, --heads, --limit)") from None


def write_ledger(args):
    """Print the ledger of the loss on the text."""
    text = read(args)
    layers = attention_layers(text.model)
    if args.head is not None:
        if args.scope not in layers:
            raise cli.CommandError(f"--head needs the --scope of one attention layer: {', '.join(layers)}")
        _check_head(args.head, layers[args.scope])
    loss = lambda: text.loss(text.model, *text.batch)  # noqa: E731
    book = ledger(loss, args.scope, args.head, args.values, args.check, names=text.model)
    for entry in book.entries:
        entry.made = ""  # a line of this program means nothing to the user
    print(f"{text}\n{book}")
    return 1 if book.failed else 0


def write_flow(args):
    """Print what edges between the parts are worth to the loss on the text, the largest first, and draw them."""
    text = read(args, SEQUENCES)
    if args.out is not None:
        cli.file_to_write(args.out, "--out", "flow.svg", ".svg", ".png", ".dot", "")
    with cli.refusing(ValueError), cli.busy("cutting each edge in turn"):  # ValueError: all heads are pruned
        found = flow(text.model, text.batch, text.loss, args.method, args.most)
    try:
        edges, wrote = found.all if args.of is None else found.around(*args.of), []
    except UnknownName as error:
        raise cli.CommandError(f"--of: {error}".replace(" head ", ":")) from None  # as it is typed
    if args.out is not None:
        with cli.refusing(ValueError, ImportError):
            wrote = _drawn(found.graph(edges, args.least), args.out)
    print(f"{text}\n\n{edges}" + f"\n\nwrote {', '.join(map(str, wrote))}" * bool(wrote))
    return 0


def _drawn(picture, path):
    """Save a picture, or raise CommandError: graphviz warns where it cannot draw one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            return picture.save(path)
        except (UserWarning, OSError) as error:
            why = cli.said(error) if isinstance(error, OSError) else error
            raise cli.CommandError(f"no picture: {why}") from None


def write_importance(args):
    """Print how much each head matters, by all methods: of several sequences the mean and its standard error."""
    text = read(args, SEQUENCES)
    whole = len(text.starts) == 1 or not text.validated  # sequences of a long text may overlap, and some count less
    batches = [text.batch] if whole else [tuple(x[b : b + 1] for x in text.batch) for b in range(len(text.starts))]
    columns, each = {}, {}
    with cli.busy() as say:
        for method in METHODS:
            say(f"importance by {method}")
            found = [head_importance(text.model, [one], method, args.steps, text.loss) for one in batches]
            each[method] = {path: np.stack([of[path] for of in found]) for path in found[0]}  # (sequences, nh)
            columns[method] = {path: x.mean(0) for path, x in each[method].items()}
            if not whole:
                columns[f"± {method}"] = {path: _error(x) for path, x in each[method].items()}
    if not whole:
        columns = {RANK: _ranks(each["ablate"]), **columns}
    print(f"{text}\n\n{HeadTable(columns).sorted('ablate')}")
    if not whole:
        print(
            "\n±: standard error of the mean. rank: by ablation; heads share the rank of the first that has it if their"
        )
        print("mean differences from that are below two standard errors")
    return 0


def _error(x):
    """The standard error of the mean over the first dim."""
    return x.std(0, ddof=1) / len(x) ** 0.5


def _ranks(each):
    """{path: (nh,)}: places from 1, by the mean of {path: (sequences, nh)}. Heads share one with the first that has it
    if they cannot be told from that."""
    heads = [(path, h) for path, x in each.items() for h in range(x.shape[1])]
    heads.sort(key=lambda head: -each[head[0]][:, head[1]].mean())
    ranks, first, rank = {path: np.zeros(x.shape[1]) for path, x in each.items()}, None, 0
    for place, (path, h) in enumerate(heads, 1):
        x = each[path][:, h]
        if first is None or (first - x).mean() >= 2 * _error(first - x):
            first, rank = x, place
        ranks[path][h] = rank
    return ranks


def write_scores(args):
    """Print what kind of head each one is."""
    model, _, _ = _loaded(args)
    with cli.refusing(ValueError), cli.busy(f"reading {args.sequences} random texts of each period"):
        found = head_scores(model, periods=args.periods, n=args.sequences, seed=args.seed)  # ValueError: do not fit
    print(found)
    return 0
