"""Where a head's gradient comes from: from which later head, and by way of its Q, its K or its V.

    flow = study.flow(model, (x, y))
    print(flow)                                   the largest edges, in words
    print(flow.out_of("blocks.0.attn", 2))        what pulls at head 2 of the first layer
    flow.graph().save("flow.svg")                 the same as a picture

Every part of a model adds to a residual stream and reads from it. write_u is what node u adds: an embedding, a head,
an MLP, a bias. G_vp is the gradient at node v's own copy of the stream, for its input p: q, k or v of a head, the input
of an MLP, or the logits. The edge

    u → v.p = Σ ⟨write_u, G_vp⟩    over sequences and positions

says how the loss changes, to first order, when what u sends to v.p grows: by 1 % of the edge for 1 %. A negative edge
helps: the next step of training strengthens it. Two identities hold, as gradients are linear:

    Σ over v.p of edge(u → v.p) = ⟨write_u, dwrite_u⟩    for a head ⟨z, dz⟩, the gradient of a gate on it
    Σ over u of edge(u → v.p)   = ⟨stream, G_vp⟩          if no norm lies on the stream itself

It takes one forward and one backward. Path patching and edge attribution (Syed et al. 2023) compare two inputs; this is
about the gradient of one."""

from dataclasses import dataclass

import numpy as np

from ..autograd import enable_grad
from ..dtypes import float64
from ..errors import UnknownName, unknown
from ..gradcheck.report import aligned
from ..nn.positions import rotary
from ..nn.utils import evaluating
from ..tensor import Tensor, grad, tensor, zeros
from ..viz.graph import Graph
from . import flow_picture
from .identities import RTOL, IdentityError, IdentityReport
from .importance import returned_loss
from .layers import as_float64, attention_layers, head_weights
from .streams import Seen, back_through_norm, streams, through_norm, watching
from .trace import HeadTrace, trace_heads

ROWS = 2.0**23  # numbers of all writes or reads that are held at a time


@dataclass(frozen=True)
class Node:
    """What writes into the stream or reads it. head: its number, or None for what is no head."""

    path: str
    head: int | None = None

    def __str__(self):
        return self.path if self.head is None else f"{self.path} head {self.head}"


class Flow:
    """What study.flow returns.

    sources: Nodes that write. inputs: [(Node, "q", "k" or "v", or "" for what has one input)], what reads.
    edges: an array (sources, inputs); 0 where the source comes later. total: {source: ⟨write, dwrite⟩}.
    loss: a float."""

    def __init__(self, sources, inputs, edges, loss, rows, rtol):
        self.sources, self.inputs, self.edges, self.loss = sources, inputs, edges, loss
        self._rows, self._rtol = rows, rtol

    def edge(self, source, target):
        """{input: edge} from a source to a target, each a Node, a path such as "blocks.0.mlp", or (path, head)."""
        u, v = self.sources.index(self._node(source, self.sources)), self._node(target, [v for v, _ in self.inputs])
        return {p: float(self.edges[u, i]) for i, (w, p) in enumerate(self.inputs) if w == v}

    def out_of(self, *source):
        """The edges that leave a source, (path, head) or a path, as an Edges: what pulls at it."""
        u = self._node(source, self.sources)
        return self._chosen(lambda source, target: source == u)

    def into(self, *target):
        """The edges that lead to a target: where what it reads comes from, and how much each part matters to it."""
        v = self._node(target, [v for v, _ in self.inputs])
        return self._chosen(lambda source, target: target == v)

    @property
    def all(self):
        """All edges, as an Edges."""
        return self._chosen(lambda source, target: True)

    def _chosen(self, wanted):
        found = [
            (u, v, p, float(self.edges[i, j]))
            for i, u in enumerate(self.sources)
            for j, (v, p) in enumerate(self.inputs)
            if wanted(u, v) and self.edges[i, j]
        ]
        return Edges(sorted(found, key=lambda edge: -abs(edge[-1])))

    def _node(self, name, known):
        name = name[0] if isinstance(name, tuple) and len(name) == 1 else name
        node = name if isinstance(name, Node) else Node(*name) if isinstance(name, tuple) else Node(name)
        if node not in known:
            raise UnknownName(unknown("node", str(node), dict.fromkeys(map(str, known))))
        return node

    def graph(self, edges=None, least=0.05):
        """A picture of these Edges (None: all), but for those below `least` of the largest: a viz.Graph, to
        .save("flow.svg"). The model's parts stand in rows, from the bottom up; edges are as wide as they are large,
        coloured by the input that reads, and dashed where they are negative. Raises ImportError without the Python
        package graphviz."""
        edges = self.all if edges is None else edges
        return Graph(flow_picture.digraph(self, edges, least))

    def check(self, rtol=None):
        """Test both identities, each sum against what the backward gave. Returns an IdentityReport, whose errors are
        relative to the sum of absolute values; raises IdentityError if one is above rtol (None: 1e-10 in float64, 1e-5
        in float32)."""
        rtol = self._rtol if rtol is None else rtol
        report = IdentityReport(self._rows, [], dict.fromkeys((row[0] for row in self._rows), rtol))
        if report.failed:
            raise IdentityError(report)
        return report

    def __str__(self):
        return str(self.all)

    def __repr__(self):
        return f"<Flow from {len(self.sources)} sources to {len(self.inputs)} inputs, loss {self.loss:.4f}>"


class Edges(list):
    """[(source, target, input, edge)], the largest first. str() shows the first twenty."""

    def __str__(self):
        rows = [("from", "to", "by", "edge")]
        rows += [(str(u), str(v), p, f"{edge:+.4g}") for u, v, p, edge in self[:20]]
        more = [f"… and {len(self) - 20} smaller ones"] if len(self) > 20 else []
        return "\n".join([*aligned(rows), *more])


def flow(model, batch, loss=returned_loss):
    """The Flow of gradients between the parts of a model, for loss(model, *batch).

    The model sees the batch in eval mode; no .grad is touched. It may be any that study.streams knows: nn.GPT,
    AttentionOnly, or one with an nn.TransformerEncoder, nn.TransformerDecoder or nn.Transformer in it. Norms may come
    before the parts or after, keys may be shared by heads, and heads may be pruned. Raises TypeError for a model that
    is not known, ValueError for one whose layers run more than once (recompute), or whose loss needs no gradient."""
    return _flow(streams(model), _run(model, batch, loss))


def edge_patch(model, clean, corrupt, metric=returned_loss):
    """A Flow whose edges are Σ ⟨write_u in the clean run - write_u in the corrupt one, G_vp in the corrupt one⟩: to
    first order, how metric(model, *corrupt) changes when v.p gets from u what it gets in the clean run, and nothing
    else changes (edge attribution patching, Syed et al. 2023). Two forwards and two backwards for all edges; those of a
    head add up to study.patch's "first_order". clean and corrupt are batches of the same shapes; else as flow()."""
    found = streams(model)
    own, other = (_run(model, batch, metric) for batch in (corrupt, clean))
    shapes = [[run.seen.into[stream.body[0]].shape for stream in found] for run in (other, own)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the streams of the clean run are {shapes[0]}, but {shapes[1]} in the corrupt one")
    return _flow(found, own, other)


@dataclass(eq=False)
class _Run:
    """What a forward and a backward left."""

    seen: Seen
    trace: HeadTrace
    loss: Tensor


def _run(model, batch, loss):
    if all(layer.num_heads == 0 for layer in attention_layers(model).values()):
        raise ValueError("all heads are pruned")
    with evaluating(model), trace_heads(model) as trace, watching(streams(model)) as seen, enable_grad():
        value = loss(model, *batch)
        if not value.requires_grad:
            raise ValueError("the loss requires no gradient")
        grad(value, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
    return _Run(seen, trace, value.detach())


def _flow(found, run, clean=None):
    value, sources, inputs, blocks, rows = run.loss, [], [], [], []
    for stream in found:
        steps = _Steps(stream, run, clean)
        block, whole = steps.edges()
        blocks.append((len(sources), len(inputs), block))
        rows += _errors(steps, block, whole)
        sources += steps.sources
        inputs += steps.inputs
    edges = np.zeros((len(sources), len(inputs)))
    for i, j, block in blocks:
        edges[i : i + block.shape[0], j : j + block.shape[1]] = block
    return Flow(sources, inputs, edges, value.item(), rows, RTOL[value.dtype.itemsize])


def _errors(steps, edges, whole):
    """[(path, head, identity, error)] of one stream. The error is relative to the sum of absolute values."""
    rows = []
    for node, what, of_source, i, total in steps.identities:
        terms, total = (edges[i], total) if of_source else (edges[:, i], whole[i])
        size = np.abs(terms).sum() + abs(total)
        rows.append((node.path, node.head, what, float(abs(terms.sum() - total) / size) if size else 0.0))
    return rows


class _Steps:
    """One stream: its writes, reads and norms in order, each as a function of rows (positions of all sequences). With a
    `clean` run, what is written is the difference between the two."""

    def __init__(self, stream, run, clean):
        self.stream, self.run, self.clean = stream, run, clean
        seen = run.seen
        self.sources, self.inputs, self.steps = [], [], []
        self.identities = []  # (name, what, is it about a source?, its number, the sum that the edges have to give)
        self.has_norms = False  # on the stream itself, so far
        self._begin()
        for part in stream.parts:
            if part.is_attention:
                self._read_heads(part, "q" if part.path.endswith("multihead_attn") else "qkv", part.before)
                self._write_heads(part)
            else:
                self._read(Node(part.path), part.before, part.first, seen.d_into.get(part.first))
                self._write(Node(part.path), lambda run, part=part: run.seen.out[part.last], seen.d_out.get(part.last))
            if part.after is not None:
                self._pass(part.after)
        end = stream.norm if stream.norm is not None else stream.body[-1]
        for part in stream.readers:
            self._read_heads(part, "kv", stream.norm, end)
        if not stream.readers:
            self._read(Node(stream.end), stream.norm, end, seen.d_out.get(end))

    # -- what is written

    def _begin(self):
        first, embedding, seen = self.stream.body[0], self.stream.embedding, self.run.seen
        x, dx, tokens = seen.into[first], seen.d_out.get((first, "in")), seen.out.get(embedding)
        if tokens is None or tokens.shape != x.shape:
            self._write(self._named("input"), lambda run: run.seen.into[first], dx)
            return
        self._write(self._named("tokens"), lambda run: run.seen.out[embedding], dx)
        if not np.array_equal(tokens, x):
            self._write(self._named("positions"), lambda run: run.seen.into[first] - run.seen.out[embedding], dx)

    def _written(self, of_run):
        """of_run(run), or the difference between the clean run and this one."""
        return of_run(self.run) if self.clean is None else of_run(self.clean) - of_run(self.run)

    def _named(self, name):
        return Node(f"{self.stream.name}.{name}" if self.stream.name else name)

    def _write(self, node, of_run, dy):
        y = self._written(of_run)
        rows = _rows(y)
        total = None if dy is None else float((y * dy).sum())
        self._add([node], [total], lambda at: rows[None, at])

    def _write_heads(self, part):
        layer = part.last
        dy = self.run.seen.d_out.get(layer)
        if layer.num_heads:
            call = _call(self.run, part)
            z, dz = self._written(lambda run: as_float64(_call(run, part).z)), as_float64(call.z_grad)
            W_O, rows = np.array(call.W_O), _rows_of_heads(z)
            nodes = [Node(part.path, h) for h in call.heads]
            self._add(nodes, (z * dz).sum((0, 2, 3)).tolist(), lambda at: rows[:, at] @ W_O)
        if layer.out_proj.bias is not None and self.clean is None:
            b = as_float64(layer.out_proj.bias)
            self._write(Node(f"{part.path}.bias"), lambda run: np.broadcast_to(b, run.seen.out[layer].shape), dy)

    def _add(self, nodes, totals, rows):
        for i, (node, total) in enumerate(zip(nodes, totals), len(self.sources)):
            if total is not None:
                self.identities.append((node, "Σ edges from it = ⟨write, dwrite⟩", True, i, total))
        self.sources += nodes
        self.steps.append(("write", rows))

    # -- what reads

    def _read(self, node, norm, module, dx):
        """A reader with one input, of which dx is the gradient behind the norm, if there is one."""
        if dx is None:
            return
        dx = _rows(dx)
        self._ask([(node, "")], norm, module, lambda at: dx[None, at])

    def _read_heads(self, part, inputs, norm, module=None):
        layer = part.first
        if not layer.num_heads:
            return
        call = _call(self.run, part)
        of = {p: np.array([head_weights(layer, h)["qkv".index(p)] for h in call.heads]) for p in inputs}
        for p in inputs:
            dx = getattr(call, f"{p}_grad")
            dx = _rows_of_heads(_turned_back(dx) if layer.positions == "rotary" and p != "v" else as_float64(dx))
            names, W = [(Node(part.path, h), p) for h in call.heads], of[p].swapaxes(-1, -2)  # W (n, d, C)
            self._ask(names, norm, module or layer, lambda at, dx=dx, W=W: dx[:, at] @ W)

    def _ask(self, names, norm, module, rows):
        def stream(run):
            known = run.seen.into if norm is not None or module in run.seen.into else run.seen.out
            return _rows(known[module if norm is None else norm])

        x, dtype = stream(self.run), self.run.seen.dtype
        if not self.has_norms:
            for i, (node, p) in enumerate(names, len(self.inputs)):
                self.identities.append((node, f"Σ edges to its {p or 'input'} = ⟨stream, G⟩", False, i, None))
        before = len(self.inputs)
        self.inputs += names
        back = rows if norm is None else lambda at: back_through_norm(norm, x[at], rows(at), dtype)
        self.steps.append(("read", before, len(self.inputs), self._written(stream), back))

    def _pass(self, norm):
        x, dtype = _rows(self.run.seen.into[norm]), self.run.seen.dtype
        self.has_norms = True
        self.steps.append(("norm", lambda at, U: through_norm(norm, x[at], U, dtype)))

    # -- the edges

    def edges(self):
        """(edges (sources, inputs), ⟨stream, G⟩ of each input)"""
        E, whole = np.zeros((len(self.sources), len(self.inputs))), np.zeros(len(self.inputs))
        n, C = _rows(self.run.seen.into[self.stream.body[0]]).shape
        some = max(1, int(ROWS // (C * max(E.shape))))
        for start in range(0, n, some):
            at, U = slice(start, start + some), np.zeros((0, min(some, n - start), C))
            for kind, *step in self.steps:
                if kind == "write":
                    U = np.concatenate([U, step[0](at)])
                elif kind == "norm":
                    U = step[0](at, U)
                else:
                    i, j, x, rows = step
                    G = rows(at)
                    E[: len(U), i:j] += U.reshape(len(U), -1) @ G.reshape(j - i, -1).T
                    whole[i:j] += np.tensordot(G, x[at], 2)
        return E, whole


def _call(run, part):
    calls = run.trace.calls(part.path)
    if len(calls) != 1:
        raise ValueError(f"{part.path} ran {len(calls)} times: once is needed, and recompute off")
    return calls[0]


def _rows(x):
    """(B, T, C) -> (B T, C)"""
    return x.reshape(-1, x.shape[-1])


def _rows_of_heads(x):
    """(B, n, T, d) -> (n, B T, d)"""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1, x.shape[-1])


def _turned_back(dx):
    """The gradient of what rotary positions have turned, from that of the result: (B, n, T, d), float64."""
    x = zeros(*dx.shape, dtype=float64, requires_grad=True)
    with enable_grad():
        y = rotary(x)
    return grad(y, x, tensor(dx, dtype=float64))[0].numpy()
