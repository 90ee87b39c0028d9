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

import numpy as np

from ..errors import UnknownName, unknown
from ..gradcheck.report import aligned
from ..viz.graph import Graph
from . import flow_picture
from .identities import RTOL, IdentityError, IdentityReport
from .importance import returned_loss
from .stream_edges import Node, StreamEdges, run_once
from .streams import streams


class Flow:
    """What study.flow returns.

    sources: Nodes that write. inputs: [(Node, "q", "k" or "v", or "" for what has one input)], what reads.
    edges: an array (sources, inputs); 0 where the source comes later. loss: a float."""

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
    return _flow(streams(model), run_once(model, batch, loss))


def edge_patch(model, clean, corrupt, metric=returned_loss):
    """A Flow whose edges are Σ ⟨write_u in the clean run - write_u in the corrupt one, G_vp in the corrupt one⟩: to
    first order, how metric(model, *corrupt) changes when v.p gets from u what it gets in the clean run, and nothing
    else changes (edge attribution patching, Syed et al. 2023). Two forwards and two backwards for all edges; those of a
    head add up to study.patch's "first_order". clean and corrupt are batches of the same shapes; else as flow()."""
    found = streams(model)
    own, other = (run_once(model, batch, metric) for batch in (corrupt, clean))
    shapes = [[run.seen.into[stream.body[0]].shape for stream in found] for run in (other, own)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the streams of the clean run are {shapes[0]}, but {shapes[1]} in the corrupt one")
    return _flow(found, own, other)


def _flow(found, run, clean=None):
    value, sources, inputs, blocks, rows = run.loss, [], [], [], []
    for stream in found:
        of_stream = StreamEdges(stream, run, clean)
        block, errors = of_stream.edges()
        blocks.append((len(sources), len(inputs), block))
        rows += errors
        sources += of_stream.sources
        inputs += of_stream.inputs
    edges = np.zeros((len(sources), len(inputs)))
    for i, j, block in blocks:
        edges[i : i + block.shape[0], j : j + block.shape[1]] = block
    return Flow(sources, inputs, edges, value.item(), rows, RTOL[value.dtype.itemsize])
