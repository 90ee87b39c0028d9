"""A picture of the graph that a Tensor recorded, by graphviz.

    loss = F.cross_entropy(model(x), y)
    viz.graph(loss, names=model).save("loss.svg")

Blue boxes are ops, with their parameters and the shape and dtype of their results. Sand-coloured boxes are leaves, and
frames are modules. A dot is an input without a gradient, of which the graph keeps nothing. The backward pass can be
drawn too, with each op's derivative and the norms of the gradients. Where a value was used several times, a + adds its
gradients up:

    viz.graph(loss, names=model, direction="backward", show=["shape", "grad_norm"]).save("backward.svg")
"""

import os
import re
import shutil
import subprocess
import textwrap
import warnings
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import GraphError, Value, backward, reachable
from ..base.errors import unknown
from ..base.files import atomic_write
from ..ops.derivatives import derivative, letters_of
from ..tensor import ones
from ..typing import FilePath
from .labels import DARK, DIM, FONT, GREY, STYLES, boxed, count, line, parameter, small

if TYPE_CHECKING:
    from ..nn.module import Module

DIRECTIONS, SHOWN = ("forward", "backward"), ("shape", "grad_norm")
START = "*"  # stands for the caller, who uses the results
LARGEST = 500  # boxes of ops and leaves: a larger picture cannot be read


class Graph:
    """A picture of a graph, returned by `graph`. source: the DOT text. digraph: the graphviz.Digraph, which may be
    restyled before it is saved. ops, leaves: their numbers."""

    def __init__(self, digraph: Any, ops: int = 0, leaves: int = 0) -> None:
        self.digraph, self.ops, self.leaves = digraph, ops, leaves

    @property
    def source(self) -> str:
        """The graph in DOT, the language of Graphviz."""
        return self.digraph.source

    def __repr__(self):
        return f"<Graph of {count(self.leaves, 'leaf')} and {count(self.ops, 'op')}>"

    def save(self, path: FilePath) -> list[Path]:
        """Write path.dot, and path.svg or path.png, as the suffix says (none: SVG). Return the list of files written.

        The picture needs the program `dot`. Without it only path.dot is written, and a warning says how to get it."""
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
        program = shutil.which("dot")
        if program:
            resolution = ["-Gdpi=144"] if image.suffix == ".png" else []
            run = subprocess.run([program, f"-T{image.suffix[1:]}", *resolution], input=source, capture_output=True)
            problem = f"dot failed: {' '.join(run.stderr.decode(errors='replace').split())}"
            if not run.returncode:
                atomic_write(image, run.stdout)
                return [text, image]
        warnings.warn(f"wrote {text} but not {image.name}: {problem}", stacklevel=2)
        return [text]


def graph(
    tensors: Any,
    *,
    names: "Module | Mapping[str, Value] | None" = None,
    direction: str = "forward",
    show: Iterable[str] = ("shape",),
) -> Graph:
    """Return the graph behind one or several Tensors, as a Graph to save. It can be drawn before and after backward.

    names: a Module, for the names of its parameters and submodules, or a dict {name: Tensor}.
    direction: "forward", or "backward": the derivative of each op, with arrows from the loss to the leaves that carry
        gradients, and a "+" where the gradients of several uses of a value are added.
    show: any of "shape", which includes the dtype, and "grad_norm": the Euclidean norm of gradients, on the edges. They
        are gradients of the tensors' sum, from a backward walk that changes no .grad and runs no hooks.
    Of a large model draw a part, such as viz.graph(model.blocks[0](x)): more than 500 boxes cannot be read.
    Raises GraphError if a Tensor has no graph, or with grad_norm if backward has freed it. Raises ImportError if the
    Python package graphviz is missing, and ValueError for an unknown direction or `show`, and for too large a graph."""
    try:
        import graphviz
    except ImportError as error:
        raise ImportError("viz.graph needs the Python package graphviz: pip install graphviz") from error
    tensors = [tensors] if isinstance(tensors, Value) else list(tensors)
    if not tensors:
        raise ValueError("viz.graph needs at least one Tensor, got none")
    if direction not in DIRECTIONS:
        raise ValueError(unknown("direction", direction, DIRECTIONS))
    show = [show] if isinstance(show, str) else list(show)
    for each in show:
        if each not in SHOWN:
            raise ValueError(unknown("thing to show", each, SHOWN))
    for x in tensors:
        if not isinstance(x, Value):
            raise TypeError(f"viz.graph draws Tensors, not {type(x).__name__}")
        if x.node is None:
            raise GraphError(
                f"no graph was recorded for this tensor of shape {x.shape}: it was made under no_grad(), or "
                f"nothing that it was made from has requires_grad=True"
            )
    roots = list(dict.fromkeys(x.node for x in tensors))
    drawing = _Drawing(roots, names, show)
    ops, leaves = len(drawing.ops), len(drawing.leaves)
    if ops + leaves > LARGEST:
        raise ValueError(f"the graph has {ops + leaves} boxes, more than {LARGEST}: draw a part of the model")
    drawing.draw(direction == "backward")
    caption = f"{count(leaves, 'leaf')}, {count(ops, 'op')}"
    return Graph(drawing.picture.digraph(graphviz, caption, drawing.module_title), ops, leaves)


class _Picture:
    """Boxes in frames, and edges. Boxes are numbered in the order in which they are added, so that equal graphs give
    equal text."""

    def __init__(self):
        self.ids: dict = {}  # {op or leaf: its name in the DOT text}
        self.boxes: dict = {}  # {path of the module whose frame they lie in, as a tuple: [(id, attributes)]}
        self.edges: list = []  # (id, id, label)

    def add(self, key, kind, frame, tooltip, title=None, lines=(), **attributes):
        self.ids[key] = f"n{len(self.ids)}"
        label = {} if title is None else {"label": boxed(title, lines)}
        attributes = {**STYLES[kind], **label, "tooltip": line(tooltip), **attributes}
        self.boxes.setdefault(frame, []).append((self.ids[key], attributes))

    def edge(self, tail, head, *label):
        """Add an edge. Each part of the label is a line; \\l ends a line and aligns it to the left."""
        text = "\\l".join(f"\u00a0{part}\u00a0" for part in label if part)  # SVG drops spaces that break
        self.edges.append((self.ids[tail], self.ids[head], text + "\\l" * ("\\l" in text)))

    def digraph(self, graphviz, caption, module_title):
        """Return a graphviz.Digraph. module_title(path): the title of a module's frame."""
        dot = graphviz.Digraph("minigrad", graph_attr={**FONT, "label": f"<{small(caption, GREY)}>", "tooltip": " "})
        dot.attr("graph", bgcolor="transparent", ranksep="0.3", nodesep="0.22")
        dot.attr("node", **FONT, fontsize="11", fontcolor=DARK, shape="box", style="filled", height="0", width="0")
        dot.attr("edge", **FONT, fontsize="9", fontcolor=GREY, color=GREY, arrowsize="0.6", tooltip=" ")
        paths = list(dict.fromkeys(path[:n] for path in self.boxes for n in range(len(path) + 1)))

        def fill(frame, path):
            """Add the boxes of the module at `path`, and the frames of the modules in it."""
            for id, attributes in self.boxes.get(path, []):
                frame.node(id, **attributes)
            for i, inner in enumerate(paths):
                if inner and inner[:-1] == path:
                    name = ".".join(inner)
                    look = {"label": f"<{small(module_title(name), GREY)}>", "tooltip": f"module: {line(name)}"}
                    with frame.subgraph(name=f"cluster_{i}", graph_attr={**STYLES["frame"], **look}) as inside:
                        fill(inside, inner)

        fill(dot, ())
        for tail, head, text in self.edges:
            dot.edge(tail, head, text or None)
        return dot


class _Drawing:
    """Draws the graph behind the nodes `roots` into a _Picture.

    uses: {node: its uses}. A use is (op, number of the input), or (START, None) for a root."""

    def __init__(self, roots, names, show):
        self.roots, self.picture = roots, _Picture()
        self.shapes = "shape" in show
        self.reached = reachable(roots, 0)
        self.ops = sorted(self.reached, key=lambda op: op.serial)
        names, self.classes = _names(names)
        self.letters = letters_of(self.reached)
        self.names = self.letters | names
        self.uses: dict = {}
        for op in self.ops:
            for i, node in enumerate(op.parents):
                if node is not None:
                    self.uses.setdefault(node, []).append((op, i))
        for root in roots:
            self.uses.setdefault(root, []).append((START, None))
        self.leaves = [node for node in self.uses if node.op is None]
        self.norms = self._norms() if "grad_norm" in show else None

    def _norms(self):
        """Return the norms of the gradients of the roots' sum: {node: norm, (node, use): norm of the part from that
        use}."""
        parts: dict = {}

        def inspect(op, dys, dxs):
            for i, g in enumerate(dxs):
                if g is not None:
                    parts.setdefault(op.parents[i], {})[op, i] = g

        cotangents = [ones(root.shape, dtype=root.dtype, device=root.device) for root in self.roots]
        for root, g in zip(self.roots, cotangents):
            parts.setdefault(root, {})[START, None] = g
        backward(self.roots, cotangents, inspect=inspect)
        by_use = {(node, use): norm(g) for node, of in parts.items() for use, g in of.items()}
        return by_use | {node: norm(sum(of.values())) for node, of in parts.items()}

    def draw(self, backward):
        """Draw the boxes and arrows: forward from leaves to results; backward from the loss to the leaves."""
        if backward:
            scalar = all(root.shape in ((), (1,)) for root in self.roots)
            self.picture.add(START, "start", (), "the gradient of the result", "1" if scalar else "dy")
        for op in reversed(self.ops) if backward else self.ops:
            self._add_op(op, backward)
        for node, uses in self.uses.items():
            if node.op is None:
                self._add_leaf(node, ".grad" if backward else "")
            home = node.op or node
            if not backward:
                for op, i in uses:
                    if op != START:
                        parts = self._output_of(node), self._norm_of((node, (op, i)))
                        self.picture.edge(home, op, " ".join(filter(None, parts)))
                continue
            name = f"d{self.names[node]}" if node.op is not None and node in self.names else self._output_of(node)
            label = name, str(node.shape) if self.shapes else "", self._norm_of(node)
            if len(uses) == 1:
                self.picture.edge(uses[0][0], home, *label)
                continue
            plus = ("+", node)
            self.picture.add(plus, "plus", _common([_place(op) for op, _ in uses]), "a sum of gradients", "+")
            for op, i in uses:
                self.picture.edge(op, plus, self._norm_of((node, (op, i))))
            self.picture.edge(plus, home, *label)

    # -- boxes and texts

    def _add_op(self, op, backward):
        """Add the box of an op. Forward it has the op's parameters and results, and a dot for each input without a
        gradient; backward it has the derivative."""
        if backward:
            title, text, results = f"{op.name} backward", self._derivative(op), []
        else:
            title, text, results = op.name, self._parameters(op), self._outputs(op)
        description = op.describe().replace(os.path.dirname(op.line[0]) + os.sep, "")  # no folders of this machine
        border = {"penwidth": "2"} if any(node.op is op for node in self.roots) else {}
        lines = [*((row, DARK) for row in text), *results]
        self.picture.add(op, "op", _place(op), f"op: {description}", title, lines, **border)
        for i, node in enumerate(() if backward else op.parents):
            if node is None:
                self.picture.add((op, i), "dot", _place(op), "an input without a gradient")
                self.picture.edge((op, i), op)

    def _derivative(self, op):
        """The derivative of an op, in lines of at most 40 characters."""
        return textwrap.wrap(derivative(op, self.reached[op], self.letters), 40)

    def _add_leaf(self, node, suffix):
        """Add the box of a leaf, in the innermost frame that contains all its uses."""
        inside = _common([_place(key) for key, _ in self.uses[node]])
        name = self.names.get(node, "leaf")
        short = name.removeprefix(".".join(inside) + ".")  # the frame's title has the rest
        lines = [(f"{node.shape} {node.dtype}", DIM)] if self.shapes else []
        self.picture.add(node, "leaf", inside, f"leaf: {name}", short + suffix, lines)

    def _parameters(self, op):
        """The parameters of an op as one line in a list; an empty list without parameters worth showing."""
        left_out = ["None", "False", *(str(node.shape) for node in self.reached[op].values() if self.shapes)]
        shown = [f"{key}={parameter(value)}" for key, value in op.params.items() if parameter(value) not in left_out]
        return [", ".join(shown)] if shown else []

    def _outputs(self, op):
        """A line for each result of an op that has a name, or whose shape is shown."""
        lines = []
        for _, node in sorted(self.reached[op].items()):
            shape = f"{node.shape} {node.dtype}" if self.shapes else ""
            text = ": ".join(filter(None, (self.names.get(node), shape)))
            if text:
                lines.append((f"{self._output_of(node)} {text}".strip(), DIM))
        return lines[:5] + [(f"and {len(lines) - 5} more", DIM)] * (len(lines) > 5)

    def _output_of(self, node):
        """ "[1]" for output 1 of an op with several outputs, or "" of an op with one."""
        return f"[{node.index}]" if node.op is not None and node.op.outputs else ""

    def _norm_of(self, gradient):
        """The label of an edge: the norm of a gradient, for a value or a (value, use)."""
        if self.norms is None:
            return ""
        return f"{self.norms[gradient]:.3g}" if gradient in self.norms else "no grad"

    def module_title(self, path):
        """The title of a module's frame: the end of its path, such as attn or blocks.0, and its class. The rest of the
        path is in the frames around it."""
        return re.sub(r"^.*\.(?=[^.]*[^.\d])", "", path) + self.classes.get(path, "")


def norm(x):
    """The Euclidean norm of a Tensor, as a float. It is scaled first, so that squares neither overflow nor vanish."""
    array = np.abs(x.numpy(force=True).astype(np.float64))
    top = float(array.max(initial=0.0))
    return top * float(np.linalg.norm(array / top)) if 0 < top < np.inf else top


def _names(names):
    """Return ({node: name}, {module path: class name}) for a Module, or for a dict {name: Tensor}."""
    classes = {}
    if hasattr(names, "named_parameters"):
        classes = {path: f" · {type(module).__name__}" for path, module in names.named_modules()}
        names = dict(names.named_parameters())
    for name, x in (names or {}).items():
        if not isinstance(x, Value):
            raise TypeError(f"names: {name!r} must be a Tensor, got {type(x).__name__}")
    return {x.node: str(name) for name, x in (names or {}).items()}, classes


def _place(op):
    """The path of the module in whose frame the box of an op is drawn, as a tuple."""
    return () if op == START or not op.scope else tuple(op.scope.split("."))


def _common(places):
    """The path of the innermost module that contains all of these places."""
    return tuple(level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*places)))
