"""A picture of the graph that a Tensor recorded, through graphviz.

    loss = F.cross_entropy(model(x), y)
    viz.graph(loss, names=model).save("loss.svg")

Blue boxes are ops, with their parameters and the shape and dtype of what they return. Sand-coloured boxes are leaves,
and frames are modules. A dot is an input without a gradient, of which the graph keeps nothing. This draws the backward
pass, with each op's derivative and the size of the gradients:

    viz.graph(loss, names=model, direction="backward", depth=2, show=["shape", "grad_norm"]).save("backward.svg")
"""

import shutil
import subprocess
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..autograd import GraphError, Value
from ..base.engines import Own
from ..base.errors import unknown
from ..base.files import atomic_write
from ..typing import FilePath
from . import own
from .backward import Backward
from .fold import MIDDLE
from .forward import Forward
from .labels import count

PICTURES = {"forward": Forward, "backward": Backward}
SHOWN = "shape", "grad_norm"


class Graph:
    """What `graph` returns: `source` is the DOT text, `digraph` the graphviz.Digraph (restyle it before saving).

    ops, leaves: how many there are, drawn or not.
    hidden: {module path: how many of its ops are not drawn}; the key "…" is the middle of the graph."""

    def __init__(self, digraph: Any, ops: int = 0, leaves: int = 0, hidden: Any = None) -> None:
        self.digraph, self.ops, self.leaves, self.hidden = digraph, ops, leaves, hidden or {}

    @property
    def source(self) -> str:
        """The graph in DOT, the language of Graphviz."""
        return self.digraph.source

    def __repr__(self):
        hidden = sum(self.hidden.values())
        return f"<Graph of {count(self.leaves, 'leaf')} and {count(self.ops, 'op')}, {hidden:,} of them hidden>"

    def save(self, path: FilePath) -> list[Path]:
        """Write path.dot, and path.svg or path.png as the suffix says (none: SVG), for which the program `dot` is
        needed; a warning says how to install it. Returns the list of the files written."""
        path = Path(path)
        if path.suffix not in ("", ".dot", ".svg", ".png"):
            raise ValueError(f"a graph is saved as .dot, .svg or .png, not {path.suffix!r} (in {str(path)!r})")
        path.parent.mkdir(parents=True, exist_ok=True)
        text, image = path.with_suffix(".dot"), path.with_suffix(path.suffix or ".svg")
        source = self.source.encode()
        atomic_write(text, source)
        if image == text:
            return [text]
        problem = "`dot` is not installed (Debian: apt install graphviz; macOS: brew install graphviz)"
        if program := shutil.which("dot"):
            sharp = ["-Gdpi=144"] if image.suffix == ".png" else []
            run = subprocess.run([program, f"-T{image.suffix[1:]}", *sharp], input=source, capture_output=True)
            problem = f"dot failed: {' '.join(run.stderr.decode(errors='replace').split())}"
            if not run.returncode:
                atomic_write(image, run.stdout)
                return [text, image]
        warnings.warn(f"wrote {text} but not {image.name}: {problem}", stacklevel=2)
        return [text]


def graph(
    tensors: Any,
    *,
    names: Any = None,
    notes: Mapping[Any, Any] | None = None,
    depth: int | None = None,
    direction: str = "forward",
    show: Iterable[str] = ("shape",),
    max_nodes: int = 200,
) -> Graph:
    """The graph behind one or several Tensors, as a Graph to save. It can be drawn before and after backward.

    tensors: also those of your own engine, objects with .data, .grad, .backward() and .parents (or micrograd's _prev),
        and .op for a name: drawn are data and gradients, with `names`, a dict, and `notes`, {tensor: text}.
    names: a Module, which lends the names of its parameters and submodules, or a dict {name: Tensor}.
    notes: {op: text}, lines to add to the box of an op (x.op for a Tensor x).
    depth: fold modules into one box each at this level: 1 shows wte, blocks.0, blocks.1, …; 2 blocks.0.attn, …
    direction: "forward", or "backward": the derivative of each op, with arrows from the loss to the leaves that carry
        gradients, and a "+" where those of several uses of a value are added.
    show: any of "shape", which includes the dtype, and "grad_norm": the Euclidean norm of gradients on the edges, and
        of .grad in the leaves. If all tensors have one element and backward has not freed the graph, the norms come
        from a backward walk of their sum, which changes no .grad and runs no hooks; otherwise from what .grad holds.
    max_nodes: in a larger graph, modules are folded into one box each, the deepest first, and then the middle of the
        graph is hidden. The picture says what was hidden, and so does `hidden` of the Graph.
    Raises GraphError if a Tensor has no graph, ImportError if the Python package graphviz is missing, ValueError for an
    unknown direction or thing to show."""
    try:
        import graphviz
    except ImportError as error:
        raise ImportError("viz.graph needs the Python package graphviz: pip install graphviz") from error
    tensors = [tensors] if isinstance(tensors, (Value, Own)) else list(tensors)
    if not tensors or max_nodes < 1:
        raise ValueError(f"viz.graph needs at least one Tensor and max_nodes ≥ 1, got {len(tensors)} and {max_nodes}")
    if not isinstance(tensors[0], Value) and all(isinstance(x, Own) for x in tensors):
        if depth is not None or direction != "forward":
            raise ValueError("viz.graph draws an engine of your own forward, and without depth")
        dot, ops, leaves, left_out = own.digraph(graphviz, tensors, names, notes, max_nodes)
        return Graph(dot, ops, leaves, {MIDDLE: left_out} if left_out else {})
    for x in tensors:
        if not isinstance(x, Value):
            raise TypeError(f"viz.graph draws Tensors, not {type(x).__name__}")
        if x.node is None:
            raise GraphError(
                f"no graph was recorded for this tensor of shape {x.shape}: it was made under no_grad() or "
                f"inference_mode(), or nothing that it was made from has requires_grad=True"
            )
    if depth is not None and depth < 1:
        raise ValueError(f"depth must be at least 1, or None, got {depth}")
    if direction not in PICTURES:
        raise ValueError(unknown("direction", direction, PICTURES))
    show = [show] if isinstance(show, str) else list(show)
    if wrong := [each for each in show if each not in SHOWN]:
        raise ValueError(unknown("thing to show", wrong[0], SHOWN))
    roots = list(dict.fromkeys(x.node for x in tensors))
    picture = PICTURES[direction](graphviz, roots, names, notes or {}, depth, max_nodes, show)
    return Graph(picture.digraph(), len(picture.ops), sum(picture.leaves.values()), picture.hidden)
