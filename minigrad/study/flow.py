"""Where a head's gradient comes from: from which later part, and through its Q, its K or its V.

    flow = study.flow(model, (x, y))
    print(flow)                       the largest edges
    print(flow.out_of("0.2"))         where the gradient of head 2 of layer 0 comes from
    flow.by_input("0.2")              the same, added up by Q, K, V and the logits

Every part of a model adds to a residual stream and reads from it. write_u is what part u adds: an embedding, a head,
an MLP or a bias. G_vp is the gradient of part v's own copy of the stream, for its input p: q, k or v of a head, the
input of an MLP, or the logits. The edge is

    u → v.p = Σ ⟨write_u, G_vp⟩    over sequences and positions

If what u sends to v.p is scaled by 1.01, the loss changes by 0.01 of the edge, to first order. A negative edge lowers
the loss: the next training step makes it stronger. Two identities hold, since gradients are linear:

    Σ over v.p of edge(u → v.p) = ⟨write_u, dwrite_u⟩    for a head ⟨z, dz⟩, the gradient of a gate on it
    Σ over u of edge(u → v.p)   = ⟨stream, G_vp⟩

A norm removes the length of its input, so the edges into an input behind a norm add up to about 0. Compare such edges
with each other. The sum of the edges that leave a part tells how much the part matters.

All edges take one forward and one backward. Path patching and edge attribution (Syed et al. 2023) compare two inputs of
the model; an edge here belongs to one input.

The first-order value may differ from the effect of removing the edge: where the model is sure of its answers, the loss
is flat near the full edge and rises only when most of it is gone. method="cut" measures that effect, by one forward for
each edge, in which v's own copy of the stream lacks what u writes."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.errors import UnknownName, unknown
from ..base.progress import counted
from ..base.tables import columns
from ..nn.attention import force_impl
from ..tensor import Tensor
from ..typing import Array
from .cut import EdgeCut
from .importance import loss_of, prediction_losses, returned_loss
from .layers import alone, undisturbed
from .names import Part, part_of
from .rerun import Rerun
from .stream import RTOL, Pass, Write, kind_of_input, not_a_stream_error, stream_of

if TYPE_CHECKING:
    from ..nn.module import Module

log = logging.getLogger("minigrad")
METHODS = {  # {method: what an edge is, for the printed table}
    "first_order": "edge: what the source writes times the gradient where the target reads it",
    "cut": "edge: the loss with it minus the loss without it; first order: what its gradient says",
}
MAX_ROWS = 20  # rows of a printed table


class Flow:
    """The edges between the parts of a model: the result of study.flow.

    sources: the Parts that write. inputs: [(Part, "q", "k", "v", or "" for a part with one input)], the readers.
    edges: an array (sources, inputs), by `method`; 0 where the source comes after the reader, nan where an edge was not
    cut. errors: the standard errors of `edges` over the sequences of the batch, nan if unknown. first_order: the edges
    to first order, whatever the method. loss: a float. stopped: True if Ctrl-C ended the cutting early. predictions:
    with by_prediction=True, a Flow of each prediction, whose edges and losses add up to these."""

    method = "first_order"
    stopped = False

    def __init__(
        self, sources: Sequence[Part], inputs: Sequence[tuple[Part, str]], edges: Array, errors: Array, known: Array,
        loss: float,
    ) -> None:  # fmt: skip
        self.sources, self.inputs, self.loss = list(sources), list(inputs), loss
        self.edges = self.first_order = edges
        self.errors = errors
        self.predictions: list[Flow] = []
        self._known = known  # (sources, inputs) bool: True where there is an edge and it has been measured
        self._heads: dict[str, list[int]] = {}  # {path of an attention layer: the numbers of its heads}
        for part in self.sources:
            if part.head is not None:
                self._heads.setdefault(part.path, []).append(part.head)

    def edge(self, source: Part | str, target: Part | str) -> dict[str, float]:
        """Return {input: edge} from a source to a target, such as "0.3" to "1.1". Raises KeyError for an unknown
        part."""
        u, v = self._find(source, self.sources), self._find(target, self._readers)
        i = self.sources.index(u)
        return {p: float(self.edges[i, j]) for j, (w, p) in enumerate(self.inputs) if w == v}

    def out_of(self, part: Part | str) -> "Edges":
        """Return the edges that leave a part. They show where its gradient comes from."""
        wanted = self._find(part, self.sources)
        return self._chosen(lambda u, v: u == wanted)

    def into(self, part: Part | str) -> "Edges":
        """Return the edges that lead to a part. They show which sources its inputs consist of, and which matter."""
        wanted = self._find(part, self._readers)
        return self._chosen(lambda u, v: v == wanted)

    def around(self, part: Part | str) -> "Edges":
        """Return the edges that lead to a part, and those that leave it."""
        wanted = self._find(part, self.sources + self._readers)
        return self._chosen(lambda u, v: wanted in (u, v))

    @property
    def all(self) -> "Edges":
        """All edges."""
        return self._chosen(lambda u, v: True)

    def by_input(self, source: Part | str) -> dict[str, float]:
        """Return the sums of the edges that leave a part, to first order, by the kind of the input that reads it:
        {"q": …, "k": …, "v": …, "mlp": …, "logits": …, "total": …}, without "mlp" if no MLP reads it.

        The total is the gradient of a gate on the part: for a head, gate_grad of a trace's table."""
        i = self.sources.index(self._find(source, self.sources))
        sums = dict.fromkeys("qkv", 0.0)
        for (v, p), edge in zip(self.inputs, self.first_order[i]):
            name = kind_of_input(v, p)
            if edge or name != "mlp":
                sums[name] = sums.get(name, 0.0) + float(edge)
        return sums | {"total": float(self.first_order[i].sum())}

    def _chosen(self, wanted):
        """The Edges for which wanted(source, target) is true."""
        places = [
            (i, j)
            for i, u in enumerate(self.sources)
            for j, (v, _) in enumerate(self.inputs)
            if wanted(u, v) and self._known[i, j] and self.edges[i, j]
        ]
        places.sort(key=lambda place: -abs(self.edges[place]))
        return Edges(
            [(self.sources[i], *self.inputs[j], float(self.edges[i, j])) for i, j in places],
            self.method,
            [float(self.first_order[place]) for place in places],
            [float(self.errors[place]) for place in places],
            int(np.isnan(self.edges).sum()) if self.method == "cut" else 0,
        )

    @property
    def _readers(self):
        return [v for v, _ in self.inputs]

    def _find(self, name, known):
        """The Part with a name. Raises UnknownName unless it is one of the `known`."""
        part = part_of(name, self._heads)
        if part in known:
            return part
        raise UnknownName(unknown("part", str(part), dict.fromkeys(map(str, known))))

    def __str__(self) -> str:
        return str(self.all)

    def __repr__(self):
        return f"<Flow from {len(self.sources)} sources to {len(self.inputs)} inputs, loss {self.loss:.4f}>"


class Edges(list):
    """A list of (source, target, input, edge), the largest edge first. str() is a table of the first MAX_ROWS.

    method: of the Flow. first_order, errors: for each edge, its value to first order, and its standard error or nan.
    uncut: how many edges of the model were not cut."""

    def __init__(
        self, edges: Iterable[tuple[Part, Part, str, float]] = (), method: str = "first_order",
        first_order: Sequence[float] = (), errors: Sequence[float] = (), uncut: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(edges)
        self.method, self.first_order, self.errors, self.uncut = method, first_order, errors, uncut

    def __str__(self) -> str:
        has_errors, cut = bool(np.isfinite(self.errors).any()), self.method == "cut"
        rows = [["from", "to", "by", "edge", *["±"] * has_errors, *["first order"] * cut]]
        for (u, v, p, edge), error, first in [*zip(self, self.errors, self.first_order)][:MAX_ROWS]:
            row = [str(u), str(v), p, f"{edge:+.4g}"]
            row += [f"{error:.2g}"] if has_errors else []
            row += [f"{first:+.4g}"] if cut else []
            rows.append(row)
        lines = columns(rows)
        if len(self) > MAX_ROWS:
            lines.append(f"… and {len(self) - MAX_ROWS} smaller ones")
        if self.uncut:
            lines.append(f"edges of the model, smaller to first order, that were not cut: {self.uncut:,}")
        lines += ["", METHODS[self.method]]
        if has_errors:
            lines.append("±: standard error over the sequences")
        return "\n".join(lines)


def flow(
    model: "Module",
    batch: Sequence[Any],
    loss: Callable[..., Tensor] = returned_loss,
    method: str = "first_order",
    top: int | None = None,
    between: Iterable[Part | str] | None = None,
    errors: bool = False,
    by_prediction: bool = False,
) -> Flow:
    """Return the Flow of gradients between the parts of a model, for loss(model, *batch).

    method, how an edge u → v.p is measured:

        first_order  ⟨write, gradient⟩, by one forward and one backward for all edges. The default, also of
                     `minigrad flow` and `minigrad report`
        cut          L - L(u → v.p cut), by one forward for each edge, in which v's own copy of the stream, for its
                     input p, lacks what u writes. Exact up to the rounding of L, which is visible in small edges of a
                     float32 model

    Both are negative if the edge lowers the loss. In a model that has learned its task, the two can differ much, and in
    sign.

    Options of method="cut":

        top      cut only the N edges that are largest to first order
        between  cut only edges whose source and target are both in this list, such as ["0.3", "1.1", "logits"]
        errors   True: give standard errors too, by one more forward for each edge and sequence. They are errors of a
                 mean or sum over sequences, so each argument of the batch must be a Tensor (B, …). To first order
                 they cost nothing, and are always given if B > 1

    by_prediction: True: give in flow.predictions a Flow for each prediction, of its loss alone. loss then returns
    (B, P), the losses of P predictions in each sequence, whose sum is differentiated; by default prediction_losses.
    To first order only, by a backward for each prediction.

    Cutting shows its progress on a terminal, and warns if it will take more than a minute. After Ctrl-C, the Flow has
    the edges that were cut until then.

    The model runs in eval mode, and no .grad changes. Models: nn.GPT, AttentionOnly, and models whose blocks declare
    their sublayers (see stream.py); heads may share keys. Errors:

        TypeError   the residual stream of the model is not known
        ValueError  a sublayer does not run, or runs twice
        ValueError  the edges do not add up: a sublayer is not x + sublayer(norm(x)), or the loss reads the stream
                    before its end
    """
    if method not in METHODS:
        raise ValueError(unknown("method", method, METHODS))
    if top is not None and (not isinstance(top, (int, np.integer)) or top < 1):
        raise ValueError(f"top must be at least 1, or None, got {top!r}")
    if by_prediction and method != "first_order":
        raise ValueError("by_prediction=True is to first order only")
    stream = stream_of(model)
    if by_prediction:
        measured = Pass(model, stream, batch, prediction_losses if loss is returned_loss else loss, by_prediction)
        result = _first_order(measured)
        result.predictions = [_first_order(of_one) for of_one in measured.predictions()]
        return result
    result = _first_order(Pass(model, stream, batch, loss))
    if method == "cut":
        ends = None if between is None else {result._find(name, result.sources + result._readers) for name in between}
        _cut(result, model, stream, batch, loss, _largest_edges(result, top, ends), errors)
    return result


# -------------------------------------------------------------------------------------------------------- cutting edges


def _largest_edges(result, top, ends):
    """The places (n, 2) of the `top` edges of a Flow that are largest to first order, between the Parts `ends`. A place
    is the index of the source and the index of the input."""
    is_wanted = result._known.copy()
    if ends is not None:
        from_ends = np.array([u in ends for u in result.sources])
        to_ends = np.array([v in ends for v in result._readers])
        is_wanted &= from_ends[:, None] & to_ends
    places = np.argwhere(is_wanted)
    return places[np.argsort(-np.abs(result.first_order[tuple(places.T)]), kind="stable")][:top]


def _cut(result, model, stream, batch, loss, places, errors):
    """Replace the edges of a first-order Flow at some places by the effect of a cut on the loss, all others by nan."""
    result.method = "cut"
    result.edges, result.errors = np.where(result._known, np.nan, 0.0), np.full(result.edges.shape, np.nan)
    result._known = np.zeros_like(result._known)
    batches = [batch, *(_sequences(batch) if errors else [])]
    advice = "top=50 or between=[…] takes less, and Ctrl-C keeps what is done"
    with alone(model), undisturbed(model), force_impl("batched"):
        forwards = [Rerun(stream.blocks, partial(loss_of, model, each, loss)) for each in batches]
        try:
            for i, j in counted(places, "cutting", "edges", "study.flow", advice):
                (v, p), u = result.inputs[j], result.sources[i]
                cut = EdgeCut(stream, u, v, p or None, lambda write: write)
                writer = None if cut.writer is None else cut.writer.module
                with cut.hooked(model):
                    effects = [each.value - each.value_from(each.block_with(writer)) for each in forwards]
                result.edges[i, j], result._known[i, j] = effects[0], True
                if len(effects) > 2:
                    result.errors[i, j] = np.std(effects[1:], ddof=1) / np.sqrt(len(effects) - 1)
        except KeyboardInterrupt:
            done = int(result._known.sum())
            if not done:
                raise
            result.stopped = True
            log.warning("study.flow: stopped after cutting %s of %s edges", f"{done:,}", f"{len(places):,}")


def _sequences(batch):
    """[a batch of one sequence, for each sequence of a batch], empty if there is only one."""
    sizes = {x.shape[0] if isinstance(x, Tensor) and x.ndim else 0 for x in batch}
    B = sizes.pop()
    if sizes or not B:
        raise ValueError("errors=True needs a batch whose arguments are all Tensors (B, …): leave it out")
    return [tuple(x[b : b + 1] for x in batch) for b in range(B)] if B > 1 else []


# ---------------------------------------------------------------------------------------------------- first-order edges


class _EdgeSums(NamedTuple):
    """Sums over one sequence or several: the edges, and the numbers that check them.

    edges (sources, inputs). sizes (sources, inputs): Σ |write| |G| over positions. known (sources, inputs) bool: True
    where the source writes before the input reads. written (sources,): ⟨write, dwrite⟩. read (inputs,): ⟨stream, G⟩."""

    edges: np.ndarray
    sizes: np.ndarray
    known: np.ndarray
    written: np.ndarray
    read: np.ndarray


def _first_order(measured):
    """The first-order Flow of a Pass. Sequences are treated one by one, to save memory."""
    B = len(measured.x[measured.stream.start])
    sources, inputs, total = _of_sequence(measured, 0)
    squares = total.edges**2
    for b in range(1, B):
        _, _, one = _of_sequence(measured, b)
        squares += one.edges**2
        total = _EdgeSums(*(x + y for x, y in zip(total, one)))  # known: a sum of bools is their "or"
    if np.isfinite(total.edges).all():  # the identities cannot be checked if the loss is not finite
        _check(measured, sources, inputs, total)
    errors = np.full(total.edges.shape, np.nan)
    if B > 1:  # an edge is a sum over B sequences, whose standard error is √B times their standard deviation
        variance = (squares - total.edges**2 / B) / (B - 1)
        errors = np.sqrt(B * np.maximum(variance, 0.0))
    return Flow(sources, inputs, total.edges, errors, total.known, measured.loss)


def _of_sequence(measured, b):
    """(sources, inputs, _EdgeSums) of sequence b of a Pass."""
    sources, inputs, written, reads = [], [], [], []
    T, C = measured.x[measured.stream.start].shape[1:]
    writes, lengths = np.empty((0, T, C)), np.empty((0, T))  # everything written so far, and its norm at each position
    for event in measured.events(b):
        if isinstance(event, Write):
            sources += event.parts
            written += list(event.totals)
            writes = np.concatenate([writes, event.rows])
            lengths = np.concatenate([lengths, np.linalg.norm(event.rows, axis=-1)])
        else:
            inputs += event.inputs
            G = event.G.reshape(len(event.G), T * C)
            reads.append((writes.reshape(-1, T * C) @ G.T, lengths @ event.sizes.T, G @ event.x.ravel()))
    edges, sizes = np.zeros((2, len(sources), len(inputs)))
    known, column = np.zeros(edges.shape, bool), 0
    for edges_of_read, sizes_of_read, _ in reads:
        before, n = edges_of_read.shape  # the numbers of sources that wrote before, and of inputs
        block = np.s_[:before, column : column + n]
        edges[block], sizes[block], known[block] = edges_of_read, sizes_of_read, True
        column += n
    return sources, inputs, _EdgeSums(edges, sizes, known, np.array(written), np.concatenate([x for *_, x in reads]))


def _check(measured, sources, inputs, total):
    """Raise ValueError unless the two identities at the top of this file hold, for each source and for each input.

    Errors are relative to Σ |write| |G|, since the terms of an edge may cancel. A Σ |write| |G| below the square root
    of the smallest normal number counts as that root: gradients so small have lost their last digits."""
    smallest = np.finfo(measured.dtype).tiny ** 0.5

    def error(edges, sizes, expected):
        return float(abs(edges.sum() - expected) / max(sizes.sum(), smallest))

    errors = {}
    for i, u in enumerate(sources):
        errors[f"edges from {u}"] = error(total.edges[i], total.sizes[i], total.written[i])
    for j, (v, p) in enumerate(inputs):
        errors[f"edges to {v} {p}".strip()] = error(total.edges[:, j], total.sizes[:, j], total.read[j])
    wrong = {name: e for name, e in errors.items() if not e <= RTOL[measured.dtype.itemsize]}  # nan is wrong
    if wrong:
        worst = max(wrong, key=lambda name: wrong[name])
        raise not_a_stream_error(worst, wrong[worst])
