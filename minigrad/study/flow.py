"""Where a head's gradient comes from: from which later part, and through its Q, its K or its V.

    flow = study.flow(model, (x, y))
    print(flow)                       the largest edges
    print(flow.out_of("0.2"))         where the gradient of head 2 of layer 0 comes from
    flow.by_input("0.2")              the same, added up by Q, K, V and the logits

Every part of a model adds to a residual stream and reads from it. write_u is what node u adds: an embedding, a head,
an MLP, a bias. G_vp is the gradient at node v's own copy of the stream, for its input p: q, k or v of a head, the input
of an MLP, or the logits. The edge

    u → v.p = Σ ⟨write_u, G_vp⟩    over sequences and positions

says how the loss changes, to first order, when what u sends to v.p grows: by 1 % of the edge for 1 %. A negative edge
helps: the next step of training strengthens it. Two identities hold, as gradients are linear:

    Σ over v.p of edge(u → v.p) = ⟨write_u, dwrite_u⟩    for a head ⟨z, dz⟩, the gradient of a gate on it
    Σ over u of edge(u → v.p)   = ⟨stream, G_vp⟩

A norm removes the length of its input, so the edges into a reader behind a norm add up to about 0. Compare such edges
with each other. The edges that leave a part tell how much the part matters.

This takes one forward and one backward. Path patching and edge attribution (Syed et al. 2023) compare two inputs; an
edge here is about the gradient for one input.

The worth of an edge can be another matter: the loss can be flat where the model is, and steep on the way to a model
without the edge. method="cut" measures the worth: a forward for each edge, in which v's own copy of the stream lacks
what u writes."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.errors import UnknownName, unknown
from ..base.progress import busy, duration
from ..base.tables import columns
from ..nn.attention import force_impl
from ..tensor import Tensor
from ..typing import Array
from .cut import EdgeCut
from .importance import returned_loss, value_of
from .layers import undisturbed
from .names import Node, node_of
from .stream import Pass, Write, reading, stream_of

if TYPE_CHECKING:
    from ..nn.module import Module

log = logging.getLogger("minigrad")
RTOL = {8: 1e-10, 4: 1e-6, 2: 2e-2}  # itemsize of the model's dtype -> the error allowed in sums of edges
METHODS = {  # {method: the meaning of an edge}
    "first_order": "edge: what the source writes times the gradient where the target reads it",
    "cut": "edge: the loss with it minus the loss without it; first order: what its gradient says",
}
IN_TABLE = 20  # edges that a printed table shows
LONG = 60  # seconds that cutting may take before a warning says so


class Flow:
    """The edges between the parts of a model: what study.flow returns.

    sources: the Nodes that write. inputs: [(Node, "q", "k", "v", or "" for a part with one input)], what reads.
    edges: an array (sources, inputs), by `method`; 0 where the source comes later, nan where an edge was not cut.
    errors: the standard errors of `edges` over the sequences of the batch, nan where they are not known.
    first_order: the edges to first order, whatever the method. loss: a float.
    stopped: True if Ctrl-C ended the cutting early."""

    method = "first_order"
    stopped = False

    def __init__(
        self, sources: Sequence[Node], inputs: Sequence[tuple[Node, str]], edges: Array, errors: Array, known: Array,
        loss: float,
    ) -> None:  # fmt: skip
        self.sources, self.inputs, self.loss = list(sources), list(inputs), loss
        self.edges = self.first_order = edges
        self.errors = errors
        self._known = known  # like edges: True where there is an edge, and it has been measured
        self._heads: dict[str, list[int]] = {}  # {path of an attention layer: the numbers of its heads}
        for node in self.sources:
            if node.head is not None:
                self._heads.setdefault(node.path, []).append(node.head)

    def edge(self, source: Node | str, target: Node | str) -> dict[str, float]:
        """{input: edge} from a source to a target, such as "0.3" to "1.1". Raises KeyError for an unknown node."""
        u, v = self._node(source, self.sources), self._node(target, self._readers)
        i = self.sources.index(u)
        return {p: float(self.edges[i, j]) for j, (w, p) in enumerate(self.inputs) if w == v}

    def out_of(self, node: Node | str) -> "Edges":
        """The edges that leave a node: where its gradient comes from."""
        wanted = self._node(node, self.sources)
        return self._chosen(lambda u, v: u == wanted)

    def into(self, node: Node | str) -> "Edges":
        """The edges that lead to a node: what its inputs are made of, and how much each source matters."""
        wanted = self._node(node, self._readers)
        return self._chosen(lambda u, v: v == wanted)

    def around(self, node: Node | str) -> "Edges":
        """The edges that lead to a node, and those that leave it."""
        wanted = self._node(node, self.sources + self._readers)
        return self._chosen(lambda u, v: wanted in (u, v))

    @property
    def all(self) -> "Edges":
        """All edges."""
        return self._chosen(lambda u, v: True)

    def by_input(self, source: Node | str) -> dict[str, float]:
        """The edges that leave a node, to first order, added up by the input that reads them:
        {"q": …, "k": …, "v": …, "mlp": …, "logits": …, "total": …}, without "mlp" if no MLP reads the node.

        The total is the gradient of a gate on the node: for a head, gate_grad of a trace's table."""
        i = self.sources.index(self._node(source, self.sources))
        sums = dict.fromkeys("qkv", 0.0)
        for (v, p), edge in zip(self.inputs, self.first_order[i]):
            name = reading(v, p)
            if edge or name != "mlp":
                sums[name] = sums.get(name, 0.0) + float(edge)
        return sums | {"total": float(self.first_order[i].sum())}

    def _chosen(self, wanted):
        """The Edges for which wanted(source, target) is true."""
        found = [
            (u, v, p, i, j)
            for i, u in enumerate(self.sources)
            for j, (v, p) in enumerate(self.inputs)
            if wanted(u, v) and self._known[i, j] and self.edges[i, j]
        ]
        found.sort(key=lambda each: -abs(self.edges[each[-2:]]))
        at = tuple(np.array([each[-2:] for each in found], int).reshape(-1, 2).T)
        edges = self.edges[at].tolist()
        return Edges(
            [(*each[:3], edge) for each, edge in zip(found, edges)],
            self.method,
            self.first_order[at].tolist(),
            self.errors[at].tolist(),
            int(np.isnan(self.edges).sum()) if self.method == "cut" else 0,
        )

    @property
    def _readers(self):
        return [v for v, _ in self.inputs]

    def _node(self, name, known):
        node = node_of(name, self._heads)
        if node in known:
            return node
        raise UnknownName(unknown("node", str(node), dict.fromkeys(map(str, known))))

    def __str__(self) -> str:
        return str(self.all)

    def __repr__(self):
        return f"<Flow from {len(self.sources)} sources to {len(self.inputs)} inputs, loss {self.loss:.4f}>"


class Edges(list):
    """[(source, target, input, edge)], the largest first. str() is a table of the first twenty, and says what an edge
    is.

    method: that of the Flow. first_order, errors: for each edge, its value to first order, and its standard error or
    nan. uncut: how many edges of the model were not cut."""

    def __init__(
        self, found: Iterable[tuple[Node, Node, str, float]] = (), method: str = "first_order",
        first_order: Sequence[float] = (), errors: Sequence[float] = (), uncut: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(found)
        self.method, self.first_order, self.errors, self.uncut = method, first_order, errors, uncut

    def __str__(self) -> str:
        has_errors, cut = bool(np.isfinite(self.errors).any()), self.method == "cut"
        rows = [["from", "to", "by", "edge", *["±"] * has_errors, *["first order"] * cut]]
        for (u, v, p, edge), error, first in [*zip(self, self.errors, self.first_order)][:IN_TABLE]:
            row = [str(u), str(v), p, f"{edge:+.4g}"]
            row += [f"{error:.2g}"] if has_errors else []
            row += [f"{first:+.4g}"] if cut else []
            rows.append(row)
        lines = columns(rows)
        if len(self) > IN_TABLE:
            lines.append(f"… and {len(self) - IN_TABLE} smaller ones")
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
    between: Iterable[Node | str] | None = None,
    errors: bool = False,
) -> Flow:
    """Return the Flow of gradients between the parts of a model, for loss(model, *batch).

        first_order  ⟨write, gradient⟩: one forward and one backward for all edges. The default, also of
                     `minigrad flow` and `minigrad report`
        cut          L - L(u → v.p cut): one forward for each edge, in which v's own copy of the stream, for its input
                     p, lacks what u writes, and everything after v follows from that. Exact but for the rounding of L,
                     which shows in small edges of a float32 model

    Both are negative where an edge helps. In a model that has learned its task, the first order can be far from the
    worth of an edge, and have the wrong sign.

    top, between, errors are for method="cut". top: cut only the N edges that are largest to first order. between: cut
    only edges whose source and target are both among these nodes, such as ["0.3", "1.1", "logits"]. errors=True: give
    standard errors too, by a forward of each sequence alone, so B + 1 forwards for an edge. (To first order they cost
    nothing, and are always there if B > 1.) Standard errors are those of a mean or sum over sequences; each of the
    batch's arguments must then be a Tensor (B, …).

    Cutting shows its progress on a terminal, and warns if it will take more than a minute. Ctrl-C stops it, and the
    Flow has the edges that were cut by then.

    The model sees the batch in eval mode; no .grad is touched. Its stream must be known: nn.GPT, AttentionOnly, or a
    model of blocks that declare their parts (stream.py). Keys may be shared by heads. Raises TypeError for a model that
    is not known; ValueError for one whose parts do not all run, or run more than once, or if the edges do not add up:
    where a part is not x + part(norm(x)), or where the loss reads the stream before its end."""
    if method not in METHODS:
        raise ValueError(unknown("method", method, METHODS))
    if top is not None and (not isinstance(top, (int, np.integer)) or top < 1):
        raise ValueError(f"top must be at least 1, or None, got {top!r}")
    stream = stream_of(model)
    result = _first_order(Pass(model, stream, batch, loss))
    if method == "cut":
        ends = None if between is None else {result._node(n, result.sources + result._readers) for n in between}
        _cut(result, model, stream, batch, loss, _largest(result, top, ends), errors)
    return result


# --------------------------------------------------------------------------------------------------------------- to cut


def _largest(flow, top, ends):
    """The (source, input) index pairs of the `top` edges that are largest to first order, between the nodes `ends`."""
    known = flow._known.copy()
    if ends is not None:
        from_ends = np.array([u in ends for u in flow.sources])
        to_ends = np.array([v in ends for v in flow._readers])
        known &= from_ends[:, None] & to_ends
    at = np.argwhere(known)
    return at[np.argsort(-np.abs(flow.first_order[tuple(at.T)]), kind="stable")][:top]


def _cut(flow, model, stream, batch, loss, wanted, errors):
    """Replace the `wanted` edges of a first-order Flow by their worth to the loss, and all others by nan."""
    flow.method = "cut"
    flow.edges, flow.errors = np.where(flow._known, np.nan, 0.0), np.full(flow.edges.shape, np.nan)
    flow._known = np.zeros_like(flow._known)
    batches = [batch, *(_sequences(batch) if errors else [])]
    with undisturbed(model), force_impl("batched"), busy("cutting edges") as say:
        whole = [value_of(loss, model, each).item() for each in batches]
        pace = _Pace(len(wanted), say)
        try:
            for i, j in wanted:
                (v, p), u = flow.inputs[j], flow.sources[i]
                with EdgeCut(stream, u, v, p or None, lambda write: write).hooked(model):
                    found = [before - value_of(loss, model, each).item() for before, each in zip(whole, batches)]
                flow.edges[i, j], flow._known[i, j] = found[0], True
                if len(found) > 2:
                    flow.errors[i, j] = np.std(found[1:], ddof=1) / np.sqrt(len(found) - 1)
                pace.step()
        except KeyboardInterrupt:
            if not pace.done:
                raise
            flow.stopped = True
            log.warning("study.flow: stopped after cutting %s of %s edges", f"{pace.done:,}", f"{len(wanted):,}")


class _Pace:
    """Says how many edges are cut, how many are to be cut, and how long that takes."""

    def __init__(self, wanted, say):
        self.wanted, self.say, self.done = wanted, say, 0
        self.began, self.said, self.has_warned = time.monotonic(), 0.0, False

    def step(self):
        self.done += 1
        now = time.monotonic()
        left = (now - self.began) / self.done * (self.wanted - self.done)
        if now - self.said > 0.2:
            self.said = now
            self.say(f"cutting edges: {self.done:,} of {self.wanted:,}, {duration(left)} to go")
        if self.done > 2 and left > LONG and not self.has_warned:
            self.has_warned = True
            log.warning(
                "study.flow: cutting %s edges will take about %s; top=50 or between=[…] takes less, and Ctrl-C keeps "
                "what is done", f"{self.wanted:,}", duration(left),
            )  # fmt: skip


def _sequences(batch):
    """The sequences of a batch, each a batch of its own; none if there is only one."""
    sizes = {x.shape[0] if isinstance(x, Tensor) and x.ndim else 0 for x in batch}
    B = sizes.pop()
    if sizes or not B:
        raise ValueError("errors=True needs a batch whose arguments are all Tensors (B, …): leave it out")
    return [tuple(x[b : b + 1] for x in batch) for b in range(B)] if B > 1 else []


# ------------------------------------------------------------------------------------------------------- to first order


class _Edges(NamedTuple):
    """The edges of one sequence, or their sums over several, and what is needed to check them.

    edges (sources, inputs). sizes, like edges: Σ |write| |G| over positions. known, like edges: True where the source
    writes before the input reads. written (sources,): ⟨write, dwrite⟩. read (inputs,): ⟨stream, G⟩."""

    edges: np.ndarray
    sizes: np.ndarray
    known: np.ndarray
    written: np.ndarray
    read: np.ndarray


def _first_order(run):
    """The first-order Flow of a Pass. The edges of one sequence after the other are added up, to save memory."""
    B = len(run.x[run.stream.start])
    sources, inputs, total = _of_sequence(run, 0)
    squares = total.edges**2
    for b in range(1, B):
        _, _, one = _of_sequence(run, b)
        squares += one.edges**2
        total = _Edges(*(x + y for x, y in zip(total, one)))  # known: a sum of bools is their "or"
    if np.isfinite(total.edges).all():  # a loss that is not finite has no edges to add up
        _check(run, sources, inputs, total)
    errors = np.full(total.edges.shape, np.nan)
    if B > 1:  # the edge is a sum over B sequences, and the error of such a sum is √B times their standard deviation
        variance = (squares - total.edges**2 / B) / (B - 1)
        errors = np.sqrt(B * np.maximum(variance, 0.0))
    return Flow(sources, inputs, total.edges, errors, total.known, run.loss)


def _of_sequence(run, b):
    """(sources, inputs, _Edges) of sequence b."""
    sources, inputs, written, reads = [], [], [], []
    T, C = run.x[run.stream.start].shape[1:]
    writes, lengths = np.empty((0, T, C)), np.empty((0, T))  # everything written so far, and its norm at each position
    for event in run.events(b):
        if isinstance(event, Write):
            sources += event.nodes
            written += list(event.totals)
            writes = np.concatenate([writes, event.rows])
            lengths = np.concatenate([lengths, np.linalg.norm(event.rows, axis=-1)])
        else:
            inputs += event.inputs
            G = event.G.reshape(len(event.G), T * C)
            reads.append((writes.reshape(-1, T * C) @ G.T, lengths @ event.sizes.T, G @ event.x.ravel()))
    edges, sizes = np.zeros((2, len(sources), len(inputs)))
    known, column = np.zeros(edges.shape, bool), 0
    for of_read, of_sizes, _ in reads:
        before, n = of_read.shape  # the sources that have written by then, and the inputs
        at = np.s_[:before, column : column + n]
        edges[at], sizes[at], known[at] = of_read, of_sizes, True
        column += n
    return sources, inputs, _Edges(edges, sizes, known, np.array(written), np.concatenate([x for *_, x in reads]))


def _check(run, sources, inputs, total):
    """Raise ValueError where the edges of a source, or to an input, do not add up to what the backward gave.

    Errors are relative to Σ |write| |G|, since the edges themselves may be small where their terms cancel. Gradients
    so small that their squares vanish count as 0: nothing is left of their last digits."""
    least = np.finfo(run.dtype).tiny ** 0.5

    def error(edges, sizes, expected):
        return float(abs(edges.sum() - expected) / max(sizes.sum(), least))

    found = {}
    for i, u in enumerate(sources):
        found[f"edges from {u}"] = error(total.edges[i], total.sizes[i], total.written[i])
    for j, (v, p) in enumerate(inputs):
        found[f"edges to {v} {p}".strip()] = error(total.edges[:, j], total.sizes[:, j], total.read[j])
    wrong = {what: off for what, off in found.items() if not off <= RTOL[run.dtype.itemsize]}  # nan is wrong
    if wrong:
        worst = max(wrong, key=lambda what: wrong[what])
        raise ValueError(
            f"the {worst} do not add up to its gradient, they are off by {wrong[worst]:.1e}: a part is not "
            "x + part(norm(x)) as it is declared, or the loss reads the stream before its end"
        )
