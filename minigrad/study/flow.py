"""Where a head's gradient comes from: from which later head, and by way of its Q, its K or its V.

    flow = study.flow(model, (x, y))
    print(flow)                                   the largest edges, in words
    print(flow.out_of("blocks.0.attn", 2))        where the gradient of head 2 of the first layer comes from

Every part of a model adds to a residual stream and reads from it. write_u is what node u adds: an embedding, a head,
an MLP, a bias. G_vp is the gradient at node v's own copy of the stream, for its input p: q, k or v of a head, the input
of an MLP, or the logits. The edge

    u → v.p = Σ ⟨write_u, G_vp⟩    over sequences and positions

says how the loss changes, to first order, when what u sends to v.p grows: by 1 % of the edge for 1 %. A negative edge
helps: the next step of training strengthens it. Two identities hold, as gradients are linear:

    Σ over v.p of edge(u → v.p) = ⟨write_u, dwrite_u⟩    for a head ⟨z, dz⟩, the gradient of a gate on it
    Σ over u of edge(u → v.p)   = ⟨stream, G_vp⟩

A norm removes the length of its input, so the edges into a reader behind a norm add up to about 0. Compare such edges
with each other; the edges that leave a part tell how much the part matters.

It takes one forward and one backward. Path patching and edge attribution (Syed et al. 2023) compare two inputs; this is
about the gradient of one.

What an edge is worth may be another matter: the loss can be flat where the model is, and steep on the way to a model
without the edge. method="cut" measures that: a forward for each edge, in which v's own copy of the stream lacks what u
writes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..base.errors import UnknownName, unknown
from ..gradcheck.report import columns
from ..nn.attention import all_take
from ..tensor import Tensor
from .cut import Scissors
from .importance import returned_loss, value_of
from .layers import as_float64, undisturbed
from .stream import Node, Pass, back_at_most, back_through_norm, node_of, stream_of

if TYPE_CHECKING:
    from ..nn.module import Module

Name: TypeAlias = str | int | tuple[str | int, int | None]  # a node's name: see Flow.edge
RTOL = {8: 1e-10, 4: 1e-6, 2: 2e-2}  # itemsize of the model's dtype -> the error allowed
METHODS = {  # {method: the meaning of an edge}
    "first_order": "edge: what the source writes times the gradient where the target reads it",
    "cut": "edge: the loss with it minus the loss without it; first order: what its gradient says",
}


class Flow:
    """What study.flow returns.

    sources: Nodes that write. inputs: [(Node, "q", "k" or "v", or "" for what has one input)], what reads.
    edges: an array (sources, inputs), by `method`; 0 where the source comes later, nan where an edge was not cut.
    first_order: the same to first order, whatever the method. loss: a float."""

    method = "first_order"

    def __init__(self, sources: Any, inputs: Any, edges: Any, known: Any, loss: Any) -> None:
        self.sources, self.inputs, self.loss = sources, inputs, loss
        self.edges = self.first_order = edges
        self._known = known

    def edge(self, source: Name, target: Name) -> dict[str, float]:
        """{input: edge} from a source to a target. A node is named as in the tables, "blocks.0.mlp" or "blocks.0.attn
        head 2", as "0.2" (head 2 of attention layer 0), or as (path, head), where an attention layer may be given by
        its number. Raises KeyError for an unknown one."""
        u, v = self._node(source, self.sources), self._node(target, self._readers)
        i = self.sources.index(u)
        return {p: float(self.edges[i, j]) for j, (w, p) in enumerate(self.inputs) if w == v}

    def out_of(self, path: Name, head: int | None = None) -> "Edges":
        """The edges that leave a node, as an Edges: where its gradient comes from."""
        node = self._node((path, head), self.sources)
        return self._chosen(lambda u, v: u == node)

    def into(self, path: Name, head: int | None = None) -> "Edges":
        """The edges that lead to a node: the sources of its input, and how much each matters."""
        node = self._node((path, head), self._readers)
        return self._chosen(lambda u, v: v == node)

    def around(self, path: Name, head: int | None = None) -> "Edges":
        """The edges that lead to a node, and those that leave it, as an Edges."""
        node = self._node((path, head), self.sources + self._readers)
        return self._chosen(lambda u, v: node in (u, v))

    @property
    def all(self) -> "Edges":
        """All edges, as an Edges."""
        return self._chosen(lambda u, v: True)

    def _chosen(self, wanted):
        found = [
            ((u, v, p, float(self.edges[i, j])), float(self.first_order[i, j]))
            for i, u in enumerate(self.sources)
            for j, (v, p) in enumerate(self.inputs)
            if wanted(u, v) and self._known[i, j] and self.edges[i, j]
        ]
        uncut = int(np.isnan(self.edges).sum()) if self.method == "cut" else 0
        found.sort(key=lambda each: -abs(each[0][-1]))
        return Edges([edge for edge, _ in found], self.method, [first for _, first in found], uncut)

    @property
    def _readers(self):
        return [v for v, _ in self.inputs]

    def _node(self, name, known):
        node = node_of(name, dict.fromkeys(node.path for node in known if node.head is not None))
        if node in known:
            return node
        raise UnknownName(unknown("node", str(node), dict.fromkeys(map(str, known))))

    def __str__(self) -> str:
        return str(self.all)

    def __repr__(self):
        return f"<Flow from {len(self.sources)} sources to {len(self.inputs)} inputs, loss {self.loss:.4f}>"


class Edges(list):
    """[(source, target, input, edge)], the largest first. str() shows the first twenty, and what an edge is."""

    def __init__(self, found: Any = (), method: str = "first_order", first_order: Any = (), uncut: int = 0) -> None:
        super().__init__(found)
        self.method, self.first_order, self.uncut = method, first_order, uncut

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("from", "to", "by", "edge")]
        rows += [(str(u), str(v), p, f"{edge:+.4g}") for u, v, p, edge in self[:20]]
        if self.method != "first_order":
            beside = ["first order", *(f"{first:+.4g}" for first in self.first_order[:20])]
            rows = [(*row, first) for row, first in zip(rows, beside)]
        more = [f"… and {len(self) - 20} smaller ones"] if len(self) > 20 else []
        if self.uncut:
            more.append(f"edges of the model, smaller to first order, that were not cut: {self.uncut:,}")
        return "\n".join([*columns(rows), *more, "", METHODS[self.method]])


def flow(
    model: "Module",
    batch: Sequence[Any],
    loss: Callable[..., Tensor] = returned_loss,
    method: str = "first_order",
    most: int | None = None,
) -> Flow:
    """The Flow of gradients between the parts of a model, for loss(model, *batch).

        first_order  ⟨write, gradient⟩, one forward and one backward for all edges
        cut          L - L(u → v.p cut), one forward for each edge, in which v's own copy of the stream, for its input
                     p, lacks what u writes; all that follows from that follows. Exact but for the rounding of L, which
                     shows in small edges of a float32 model

    Both are negative where an edge helps. most: cut only that many edges, the largest to first order (None: all). To
    first order, edges of a model that has learned its task can be far from what they are worth, with wrong signs too.

    The model sees the batch in eval mode; no .grad is touched. It may be any whose stream is known: nn.GPT,
    AttentionOnly, or one of blocks that declare their parts (stream.py). Keys may be shared by heads. Raises TypeError
    for a model that is not known; ValueError for one whose parts do not all run, or run more than once, or if the edges
    do not add up, as where a part is not x + part(norm(x)), or where the loss reads the stream before its end."""
    if method not in METHODS:
        raise ValueError(unknown("method", method, METHODS))
    if most is not None and (not isinstance(most, (int, np.integer)) or most < 1):
        raise ValueError(f"most must be at least 1, or None, got {most!r}")
    stream = stream_of(model)
    result = _flow(Pass(model, stream, batch, loss))
    if method == "cut":
        _cut(result, model, stream, batch, loss, most)
    return result


def _cut(flow, model, stream, batch, loss, most):
    """Replace the `most` largest edges of a first-order Flow by what each is worth, and the others by nan."""
    at = np.argwhere(flow._known)
    at = at[np.argsort(-np.abs(flow.first_order[tuple(at.T)]), kind="stable")][:most]
    edges, flow.method = np.where(flow._known, np.nan, 0.0), "cut"
    with undisturbed(model), all_take("batched"):
        whole = value_of(loss, model, batch).item()
        for i, j in at:
            (v, p), u = flow.inputs[j], flow.sources[i]
            with Scissors(stream, u, v, p or None, lambda write: write).hooked(model):
                edges[i, j] = whole - value_of(loss, model, batch).item()
    flow._known = np.zeros_like(flow._known)
    flow._known[tuple(at.T)] = True
    flow.edges = edges


def _flow(run):
    """The first-order Flow of a Pass."""
    found = _Sums(run)
    if np.isfinite(found.edges).all():  # a loss that is not finite has no edges to add up
        found.check(RTOL[run.dtype.itemsize])
    return Flow(found.sources, found.inputs, found.edges, found.known, run.loss)


class _Sums:
    """The edges of a Pass: what each source writes times the gradient at each reader's copy, summed up over
    sequences, as only one of them is held at a time.

    sources: [Node]. inputs: [(Node, input)]. edges (sources, inputs). known: has the source written by then?"""

    def __init__(self, run):
        sums: Any = None
        self.run = run
        for b in range(len(run.x[run.stream.body[0], "in"])):
            found = self._of_sequence(b)
            sums = found if sums is None else [[x + y for x, y in zip(*pair)] for pair in zip(sums, found)]
        *reads, (self.written,) = sums
        self.edges, self.sizes = np.zeros((2, len(self.sources), len(self.inputs)))
        self.known, j = np.zeros(self.edges.shape, bool), 0
        for edges, sizes, _ in reads:
            at = np.s_[: len(edges), j : (j := j + edges.shape[1])]
            self.edges[at], self.sizes[at], self.known[at] = edges, sizes, True
        self.read = np.concatenate([whole for *_, whole in reads])

    def _of_sequence(self, b):
        """For each read [edges (sources so far, inputs), Σ |write| |G| over positions, ⟨stream, G⟩ (inputs,)]; and last
        [⟨write, dwrite⟩ (sources,)]."""
        self.sources, self.inputs, reads, written = [], [], [], []
        T, C = self.run.x[self.run.stream.body[0], "in"].shape[1:]
        U, U_size = np.empty((0, T, C)), np.empty((0, T))  # writes so far, and the norm of each
        for event in _events(self.run, b):
            if isinstance(event, _Write):
                self.sources += event.nodes
                written += list(event.totals)
                U = np.concatenate([U, event.rows])
                U_size = np.concatenate([U_size, np.linalg.norm(event.rows, axis=-1)])
            else:
                inputs, norm, x, G = event
                self.inputs += inputs
                size = np.linalg.norm(G, axis=-1) if norm is None else back_at_most(norm, x, G, self.run.dtype)
                G = G if norm is None else back_through_norm(norm, x, G, self.run.dtype)
                edges = U.reshape(len(U), -1) @ G.reshape(len(G), -1).T
                reads.append([edges, U_size @ size.T, G.reshape(len(G), -1) @ x.ravel()])
        return [*reads, [np.array(written)]]

    def check(self, rtol):
        """Raise ValueError where the edges of a source, or to an input, do not add up to what the backward gave. Errors
        are relative to Σ |write| |G|, since the edges themselves may be small because what they add up cancels."""
        errors = {f"edges from {u}": self._error(np.s_[i], self.written[i]) for i, u in enumerate(self.sources)}
        for j, (v, p) in enumerate(self.inputs):
            errors[f"edges to {v} {p}".strip()] = self._error(np.s_[:, j], self.read[j])
        wrong = {what: error for what, error in errors.items() if not error <= rtol}  # NaN is wrong
        if wrong:
            worst = max(wrong, key=lambda what: wrong[what])
            raise ValueError(
                f"the {worst} do not add up to its gradient, they are off by {wrong[worst]:.1e}: a part is not "
                "x + part(norm(x)) as it is declared, or the loss reads the stream before its end"
            )

    def _error(self, at, expected):
        """Gradients whose squares vanish count as none: of their last digits nothing is left."""
        return float(
            abs(self.edges[at].sum() - expected) / max(self.sizes[at].sum(), np.finfo(self.run.dtype).tiny ** 0.5)
        )


class _Write(NamedTuple):
    """Nodes add to the stream: rows (nodes, T, C), and totals, ⟨write, dwrite⟩ of each."""

    nodes: list
    rows: Any
    totals: Any


class _Read(NamedTuple):
    """(Node, input)s read the stream x (T, C), through a norm or None; G (inputs, T, C): the gradients behind it."""

    inputs: list
    norm: Any
    x: Any
    G: Any


def _events(run, b):
    """What happens to the stream in sequence b, in order: _Write and _Read."""
    stream, dx = run.stream, run.dx[run.stream.body[0], "in"][b]
    for name, y in run.put_in().items():
        yield _Write([Node(name)], y[b][None], [(y[b] * dx).sum()])
    for part in stream.parts:
        if not part.is_attention:
            x, G = run.x[part.reads_at, "in"][b], run.dx[part.module, "in"][b]
            yield _Read([(Node(part.path), "")], part.norm, x, G[None])
            y, dy = run.x[part.module, "out"][b], run.dx[part.module, "out"][b]
            yield _Write([Node(part.path)], y[None], [(y * dy).sum()])
        else:
            yield from _reads(part, run, run.x[part.reads_at, "in"][b], b)
            yield from _writes(part, run, b)
    end = stream.body[-1], "out"
    yield _Read([(Node("logits"), "")], None, run.x[end][b], run.dx[end][b][None])


def _reads(part, run, x, b):
    """Yield the reads of an attention layer's heads; none if this loss does not depend on what comes after it."""
    call = run.call(part)
    for p in "qkv" if call.has_grads else "":
        W = getattr(call, f"W_{p.upper()}")  # (n, C, d)
        G = call.projection_grad(p)[b] @ W.swapaxes(1, 2)  # (n, T, C)
        yield _Read([(Node(part.path, h), p) for h in call.heads], part.norm, x, G)


def _writes(part, run, b):
    """Yield the writes of an attention layer's heads, and of its bias."""
    call, bias, dy = run.call(part), part.module.out_proj.bias, run.dx[part.module, "out"][b]
    z, dz = as_float64(call.z[b]), call.z_grad[b] if call.has_grads else 0.0
    yield _Write([Node(part.path, h) for h in call.heads], z @ call.W_O, (z * dz).sum((1, 2)))
    if bias is not None:
        y = np.broadcast_to(as_float64(bias), dy.shape)
        yield _Write([Node(f"{part.path}.bias")], y[None], [(y * dy).sum()])
