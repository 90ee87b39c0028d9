"""The commands of `minigrad` that study a model: each does what the arguments say, and returns the exit status."""

import contextlib
import dataclasses
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
from ..gradcheck.report import aligned
from ..nn import GPT
from ..nn.heads import known_heads
from ..study.effects.cells import attention_attribution, what_if
from ..study.effects.importance import METHODS, grouped, head_importance, prune, returned_loss
from ..study.effects.patching import patch
from ..study.layers import attention_layers, path_of, undisturbed
from ..study.residual.flow import flow
from ..study.scores import head_scores
from ..study.stats import listed
from ..study.steps.ledger import ledger
from ..study.table import RANK, HeadTable
from ..study.trace import trace_heads
from ..tensor import Tensor, tensor
from ..training import checkpoint
from ..training.runs import load_char_model, model_file
from ..training.text import CharVocab, read_corpus, split
from ..viz.labels import count

MOST = 20  # cells that are listed
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
    meta: dict  # of the checkpoint
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


def read(args, *texts, sequences=1):
    """A Reading of each text, all with the same model and the targets of the first. None: `sequences` of the run's
    validation text.

    The loss is the mean over all characters but the first. With --right and --wrong, it is the difference of two logits
    after the last character. Raises CommandError for what the model cannot read."""
    validated = texts[0] is None
    if validated and not args.right is args.wrong is None:
        raise cli.CommandError("--right and --wrong need a text, after which they come")
    for text in () if validated else filter(os.path.isfile, texts):
        cli.note(f'{text!r} is read as a text: for what is in that file, give "$(cat {shlex.quote(text)})"')
    model, vocab, meta = _loaded(args)
    model.eval()
    T, predicts = model.config.block_size, args.right is None and args.wrong is None
    if validated:
        ids = _validation_split(args, vocab, meta, len(texts) * T + 1)
        encoded = [ids[i * T :] for i in range(len(texts))]
        asked = _predicted(ids, T, sequences)
    else:
        encoded = [vocab.encode(text) for text in texts]  # (n,) each
        asked = _predicted(encoded[0], T) if predicts else _compared(args, vocab, len(encoded[0]), T)
    at, rest, loss, title, of = asked
    rest = [tensor(array, device=args.device) for array in rest]
    readings = []
    for ids in encoded:
        x, tokens = tensor(ids[at], device=args.device), [list(vocab.decode(row)) for row in ids[at]]
        readings.append(Reading(model, vocab, (x, *rest), loss, title, of, at[:, 0].tolist(), tokens, meta, validated))
    return readings


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


def _layer_of(args, model):
    """The path of --layer. Raises CommandError if --head is not one of its heads."""
    layers = attention_layers(model)
    path = path_of(args.layer, layers)
    _check_head(args.head, layers[path])
    return path


def _check_head(head, layer):
    with cli.refusing(ValueError):
        known_heads([head], layer.num_heads)


# ------------------------------------------------------------------------------------------------------- the commands


def report(args):
    """Trace the loss on the text, write the report and print its table."""
    (text,) = read(args, args.text, sequences=SHOWN)
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
    (text,) = read(args, args.text)
    layers = attention_layers(text.model)
    if args.head is not None:
        if args.scope not in layers:
            raise cli.CommandError(f"--head needs the --scope of one attention layer: {', '.join(layers)}")
        _check_head(args.head, layers[args.scope])
    with cli.refusing(ValueError):  # a form without values that heads divide
        book = ledger(
            lambda: text.loss(text.model, *text.batch), args.scope, args.head, args.values, args.check,
            names=text.model, impl=args.impl,
        )  # fmt: skip
    for entry in book.entries:
        entry.made = ""  # a line of this program means nothing to the user
    print(f"{text}\n{book}")
    return 1 if book.failed else 0


def write_flow(args):
    """Print what edges between the parts are worth to the loss on the text, the largest first, and draw them."""
    (text,) = read(args, args.text, sequences=SEQUENCES)
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
    (text,) = read(args, args.text, sequences=SEQUENCES)
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


def write_patch(args):
    """Print how the loss on the corrupt text changes as each head gets what it has in the clean one."""
    if (args.clean is None) != (args.corrupt is None):
        raise cli.CommandError("--clean and --corrupt need each other")
    if args.clean is not None and len(args.clean) != len(args.corrupt):
        lengths = f"{len(args.clean)} and {len(args.corrupt)}"
        raise cli.CommandError(f"--clean and --corrupt must be of one length, not of {lengths} characters")
    clean, corrupt = read(args, args.clean, args.corrupt)
    if clean.tokens == corrupt.tokens:
        last = " (the last character is not read: it is what the model predicts)" if args.right is None else ""
        raise cli.CommandError(f"--clean and --corrupt do not differ in what the model reads{last}")
    if args.positions and len(clean.starts) > 1:
        raise cli.CommandError("--positions needs texts that the model reads at once: these are several sequences")
    if args.positions:
        first, last = clean.starts[0], clean.starts[0] + len(clean.tokens[0]) - 1
        if wrong := [at for at in args.positions if not first <= at <= last]:
            raise cli.CommandError(f"--positions must be from {first} to {last}, which are read, not {wrong[0]}")
        args.positions = [at - first for at in args.positions]
    where = dict(point=args.point, method=args.method, positions=args.positions)
    with cli.refusing(ValueError), cli.busy("giving each head values of the clean text"):
        found = patch(clean.model, clean.batch, corrupt.batch, clean.loss, **where)
    what = "" if args.right else ", of what follows in the clean text"
    corrupted = [f"the corrupt one is what follows it: {''.join(corrupt.tokens[0])!r}"] if clean.validated else []
    print(
        f"{clean.title}{what}: {clean.value:.4f} on the clean text, {corrupt.value:.4f} on the corrupt one",
        *clean.how,
        *corrupted,
        sep="\n",
    )
    print(f"how the latter changes with a head's {args.point} of the clean text:\n\n{HeadTable({args.method: found})}")
    return 0


def write_cells(args):
    """Print what the weights of one head's pattern add to the loss."""
    (text,) = read(args, args.text)
    path = _layer_of(args, text.model)
    with cli.busy("integrating over the pattern"):
        cells = attention_attribution(text.model, text.batch, path, args.head, args.steps, text.loss)
    order = np.argsort(-np.abs(cells), axis=None)[: min(MOST, np.count_nonzero(cells))]
    rows = [("query", "", "key", "", "adds")]
    for b, i, j in zip(*np.unravel_index(order, cells.shape)):
        at, chars = text.starts[b], text.tokens[b]
        rows.append((str(at + i), repr(chars[i]), str(at + j), repr(chars[j]), f"{cells[b, i, j]:+.4g}"))
    print(f"{text}\n\nall weights of {path} head {args.head} add {cells.sum():+.4g}; the largest parts of that:\n")
    print(*aligned(rows), sep="\n")
    return 0


def write_what_if(args):
    """Print what the loss would be, had one query of a head looked at another key."""
    (text,) = read(args, args.text)
    path, T = _layer_of(args, text.model), len(text.tokens[0])
    inside = [b for b, start in enumerate(text.starts) if args.query in range(start, start + T)]
    if not inside:
        last = text.starts[-1] + T - 1
        raise cli.CommandError(f"--query must be from {text.starts[0]} to {last}, a character that is read")
    b = inside[0]  # where sequences overlap, the one in which it counts
    found = what_if(text.model, text.batch, path, args.head, args.query - text.starts[b], b, loss=text.loss)
    print(f"{text}\n\nif {path} head {args.head} looked from {text.tokens[b][args.query - text.starts[b]]!r},", end=" ")
    print(f"number {args.query}, at one key alone:\n\n{found.text(text.tokens[b], text.starts[b])}")
    return 0


def write_pruned(args):
    """Remove the heads that matter least for the text, and save the model as a checkpoint."""
    (text,) = read(args, args.text, sequences=SEQUENCES)
    cli.file_to_write(args.out, "--out", "pruned.safetensors", ".safetensors")
    _refuse_a_run(args.out, args.checkpoint)
    before = {path: layer.num_heads for path, layer in attention_layers(text.model).items()}
    with cli.refusing(ValueError), cli.busy("removing each head in turn"):  # ValueError: more heads than there are
        done = prune(text.model, [text.batch], args.remove, loss=text.loss)
    config = dataclasses.asdict(text.model.config)
    checkpoint.save(args.out, *checkpoint.pack(text.model, config=config, chars=text.vocab.chars))
    print(text.title, *text.how, str(done), "", sep="\n")
    for path, heads in grouped(done.removed).items():
        kept = [h for h in range(before[path]) if h not in heads]
        print(f"heads {', '.join(map(str, kept))} of {path} are now called {', '.join(map(str, range(len(kept))))}"
              if kept else f"no heads are left in {path}")  # fmt: skip
    print(f"\nwrote {args.out}")
    return 0


def _refuse_a_run(out, read):
    """Raise CommandError if `out` is a run, which --resume needs whole, or the file that is read."""
    with contextlib.suppress(checkpoint.CheckpointError):  # there is none, or it is something else
        if os.path.exists(out) and (os.path.samefile(out, read) or "settings" in checkpoint.load(out)[1]):
            raise cli.CommandError(f"--out {out} holds a run, or the model that is read: choose another file")


def list_stats(args):
    """Print what the columns of the table and the bars of the report are."""
    print(listed())
    return 0
