"""A picture of the graph that a Tensor recorded, through graphviz.

    loss = F.cross_entropy(model(x), y)
    viz.graph(loss, names=model).save("loss.svg")

Blue boxes are ops, with their parameters and the shape and dtype of what they return; sand-coloured ones are leaves;
frames are modules. Of an input without a gradient the graph keeps nothing, not even whether one was given: a dot.
"""

import html
import os
import re
import shutil
import subprocess
import warnings
from collections import Counter
from itertools import takewhile
from pathlib import Path

from ..autograd import GraphError, Node, Value, reachable

# For light and dark pages alike: the background is transparent, what lies on it is mid-grey, and boxes are pale with
# dark text whatever is behind them.
GREY, DARK, DIM, ACCENT = "#7d8590", "#1f2937", "#57606a", "#8250df"
FONT = {"fontname": "Helvetica,Arial,sans-serif"}
STYLES = {
    "op": {"fillcolor": "#e6eef8", "color": "#7f9cc4"},
    "leaf": {"fillcolor": "#fbf0d5", "color": "#cfa74e", "style": "filled,rounded"},
    "module": {"fillcolor": "#e9e5f6", "color": "#9488c4", "shape": "folder"},
    "middle": {"fillcolor": "#eeeff1", "color": GREY, "style": "filled,dashed"},
    "dot": {"fillcolor": GREY, "color": GREY, "shape": "circle", "label": "", "width": "0.07"},
    "frame": {"fillcolor": GREY + "14", "color": GREY + "80", "style": "filled,rounded", "labeljust": "l"},
}
MIDDLE = "…"  # the box for the middle of a graph which folding modules has not made small enough


class Graph:
    """What `graph` returns: `source` is the DOT text, `digraph` the graphviz.Digraph (restyle it before saving).

    ops, leaves: how many there are, drawn or not.
    hidden: {module path: how many of its ops are not drawn}; the key "…" stands for the middle of the graph."""

    def __init__(self, digraph, ops=0, leaves=0, hidden=None):
        self.digraph, self.ops, self.leaves, self.hidden = digraph, ops, leaves, hidden or {}

    @property
    def source(self):
        return self.digraph.source

    def __repr__(self):
        hidden = sum(self.hidden.values())
        return f"<Graph of {_count(self.leaves, 'leaf')} and {_count(self.ops, 'op')}, {hidden:,} of them hidden>"

    def save(self, path):
        """Write path.dot always, and path.svg or path.png, as the suffix says (none: SVG), if the program `dot` is
        found; where it is not, warn and say how to install it. Returns the list of the files written."""
        path = Path(path)
        if path.suffix not in ("", ".dot", ".svg", ".png"):
            raise ValueError(f"viz.graph saves .dot, .svg and .png, not {path.suffix!r} (in {str(path)!r})")
        path.parent.mkdir(parents=True, exist_ok=True)
        text, image = path.with_suffix(".dot"), path.with_suffix(path.suffix or ".svg")
        text.write_text(self.source, encoding="utf-8")
        if image == text:
            return [text]
        problem = "`dot` is not installed (Debian: apt install graphviz; macOS: brew install graphviz)"
        if program := shutil.which("dot"):
            sharp = ["-Gdpi=144"] if image.suffix == ".png" else []
            command = [program, f"-T{image.suffix[1:]}", *sharp, "-o", str(image), str(text)]
            run = subprocess.run(command, capture_output=True, text=True)
            problem = f"dot failed: {' '.join(run.stderr.split())}" if run.returncode else ""
        if problem:
            warnings.warn(f"wrote {text} but not {image.name}: {problem}", stacklevel=2)
            return [text]
        return [text, image]


def graph(tensors, *, names=None, notes=None, max_nodes=200):
    """The graph behind a Tensor, or behind several, as a Graph to save. Works before and after backward.

    names: a Module, which lends the names of its parameters and submodules, or a dict {name: Tensor}.
    notes: {op: text}, lines to add to the box of an op (x.op for a Tensor x).
    max_nodes: in a larger graph, modules are folded into one box each, the deepest first, and then the middle of the
        graph is. The picture says what was hidden, and so does `hidden` of the Graph.
    Raises GraphError if a Tensor has no graph, ImportError if the Python package graphviz is missing."""
    try:
        import graphviz
    except ImportError as error:
        raise ImportError("viz.graph needs the Python package graphviz: pip install '.[viz]'") from error
    tensors = [tensors] if isinstance(tensors, Value) else list(tensors)
    for x in tensors:
        if not isinstance(x, Value):
            raise TypeError(f"viz.graph draws Tensors, not {type(x).__name__}")
        if x.node is None:
            raise GraphError(
                f"no graph was recorded for this tensor of shape {x.shape}: it was made under no_grad() or "
                f"inference(), or nothing that it was made from has requires_grad=True"
            )
    if not tensors or max_nodes < 1:
        raise ValueError(f"viz.graph needs at least one Tensor and max_nodes ≥ 1, got {len(tensors)} and {max_nodes}")
    return _Picture(graphviz, [x.node for x in tensors], names, notes or {}, max_nodes).draw()


class _Picture:
    """Gathers what to draw. All is numbered in the order in which ops ran, so that equal graphs give equal text."""

    def __init__(self, graphviz, roots, names, notes, max_nodes):
        self.graphviz, self.roots, self.notes, self.max_nodes = graphviz, roots, notes, max_nodes
        self.names, self.classes = _names(names)
        self.ops = sorted(reachable(roots, 0), key=lambda op: op.serial)
        self.box = _fold(self.ops, max_nodes)  # op or leaf -> itself, or what hides it: a module's path, or MIDDLE
        self.box |= {node: node for node in roots if node.op is None and node not in self.box}
        self.leaves = Counter(key for node, key in self.box.items() if isinstance(node, Node))  # box -> how many in it
        self.sizes = Counter(self.box[op] for op in self.ops)  # box -> how many ops are in it
        self.hidden = {key: n for key, n in self.sizes.items() if isinstance(key, str)}
        self.leaving = {key: set() for key in self.sizes}  # box -> the values in it that are used outside
        self.users = {n: [] for n, key in self.box.items() if n is key and isinstance(n, Node)}  # drawn leaf -> places
        uses = [(self.box[op], node) for op in self.ops for node in op.parents]
        for key, node in [*uses, *(("", node) for node in roots)]:
            if node in self.users:
                self.users[node].append(_place(key))
            elif node is not None and node.op is not None and self.box[node.op] != key:
                self.leaving[self.box[node.op]].add(node)
        self.ids = {}  # what is drawn -> its name in the DOT text
        self.members = {}  # path of a module, as a tuple -> [(id, attributes)] right inside its frame
        self.edges = {}  # (id, id, what keeps two apart) -> label

    def draw(self):
        for op in self.ops:
            key = self.box[op]
            if key not in self.ids:
                self._op(op) if key is op else self._folded(key)
            for i, node in enumerate(op.parents):
                tail = (op, i) if node is None else self.box[node.op or node]
                if node is None and key is op:
                    self._add(tail, "dot", _place(op), "an input without a gradient")
                elif tail in self.users and tail not in self.ids:
                    self._leaf(tail)
                if tail in self.ids and tail != key:
                    label = _number(node, tail)
                    port = i if key is op else label  # edges into an op are kept apart: x * x has two
                    self.edges[self.ids[tail], self.ids[key], port] = label
        for node in [node for node in self.users if node not in self.ids]:  # asked for, and used by no op
            self._leaf(node)
        return Graph(self._assembled(), len(self.ops), sum(self.leaves.values()), self.hidden)

    def _add(self, key, kind, place, tooltip, title=None, lines=(), **attributes):
        self.ids[key] = id = f"n{len(self.ids)}"
        attributes = {**STYLES[kind], "tooltip": _text(tooltip), **attributes}
        if title is not None:
            rows = [f"<b>{html.escape(_text(title))}</b>", *(_small(text, colour) for text, colour in lines)]
            attributes["label"] = f"<{'<br/>'.join(rows)}>"
        self.members.setdefault(place, []).append((id, attributes))

    def _leaf(self, node):
        place = tuple(level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*self.users[node])))
        name = self.names.get(node, "leaf")
        short = name.removeprefix(".".join(place) + ".")  # the frame says the rest
        self._add(node, "leaf", place, f"leaf: {name}", short, [(f"{node.shape} {node.dtype}", DIM)])

    def _op(self, op):
        dull = ["None", "False", *(str(node.shape) for node in self.leaving[op])]
        shown = [f"{key}={_show(value)}" for key, value in op.params.items() if _show(value) not in dull]
        lines = [(", ".join(shown), DARK)] if shown else []
        lines += self._outputs(op) + [(line, ACCENT) for line in self.notes.get(op, "").splitlines()]
        made = op.describe().replace(os.path.dirname(op.line[0]) + os.sep, "")  # no folders: it may be published
        border = {"penwidth": "2"} if any(node.op is op for node in self.roots) else {}
        self._add(op, "op", _place(op), f"op: {made}", op.name, lines, **border)

    def _folded(self, key):
        held = _count(self.sizes[key], "op") + (f", {_count(self.leaves[key], 'leaf')}" if self.leaves[key] else "")
        kind, lines = "middle" if key == MIDDLE else "module", [(held, DARK), *self._outputs(key)]
        self._add(key, kind, _place(key), f"folded: {key}", self._module(key), lines)

    def _outputs(self, key):
        """A line for each value that leaves the box."""
        nodes = sorted(self.leaving[key], key=lambda node: (node.op.serial, node.index))
        names = [f"{self.names[node]}: " if node in self.names else "" for node in nodes]
        lines = [(f"{_number(n, key)} {name}{n.shape} {n.dtype}".strip(), DIM) for n, name in zip(nodes[:5], names)]
        return lines + [(f"and {len(nodes) - 5} more", DIM)] * (len(nodes) > 5)

    def _module(self, path):
        """The last part of a module's path (but blocks.0, not 0) and its class: the frames around it say the rest."""
        return re.sub(r"^.*\.(?=[^.]*[^.\d])", "", path) + self.classes.get(path, "")

    def _assembled(self):
        dot = self.graphviz.Digraph("minigrad", graph_attr={**FONT, "label": self._caption(), "tooltip": " "})
        dot.attr("graph", bgcolor="transparent", ranksep="0.3", nodesep="0.22")
        dot.attr("node", **FONT, fontsize="11", fontcolor=DARK, shape="box", style="filled", height="0", width="0")
        dot.attr("edge", **FONT, fontsize="9", fontcolor=GREY, color=GREY, arrowsize="0.6", tooltip=" ")
        frames = {}  # path -> the finished frames right inside it; built from the deepest up
        paths = dict.fromkeys(path[:n] for path in self.members for n in range(len(path) + 1))
        for i, path in enumerate(sorted(paths, key=len, reverse=True)):
            name, members, inner = ".".join(path), self.members.get(path, []), frames.get(path, [])
            label = _small(self._module(name), GREY)
            if path and len(members) == 1 and not inner:  # too small for a frame: the name goes into the box
                ((id, attributes),) = members
                attributes["label"] = f"<{label}<br/>{attributes['label'][1:]}"
                self.members.setdefault(path[:-1], []).append((id, attributes))
                continue
            style = {**STYLES["frame"], "label": f"<{label}>", "tooltip": f"module: {_text(name)}"}
            frame = self.graphviz.Digraph(f"cluster_{i}", graph_attr=style) if path else dot
            for id, attributes in members:
                frame.node(id, **attributes)
            for one in inner:
                frame.subgraph(one)
            frames.setdefault(path[:-1], []).append(frame)
        for (tail, head, _), label in self.edges.items():
            dot.edge(tail, head, f" {label} " if label else None)
        return dot

    def _caption(self):
        lines = [f"{_count(sum(self.leaves.values()), 'leaf')}, {_count(len(self.ops), 'op')}"]
        if any(isinstance(key, tuple) for key in self.ids):
            lines.append("a dot is an input without a gradient: data, a number, or none given")
        if self.hidden:
            lines.append(f"max_nodes={self.max_nodes} hides what is in {', '.join(self.hidden)}")
        return f"<{'<br/>'.join(_small(line, GREY) for line in lines)}>"


def _place(box):
    """The path of the module in whose frame a box lies."""
    scope = box.rpartition(".")[0] if isinstance(box, str) else box.scope
    return tuple(scope.split(".")) if scope else ()


def _fold(ops, max_nodes):
    """{op or leaf: the box to draw it in}: itself, the path of a module that is folded, or MIDDLE."""

    def size():  # how many nodes the picture will have
        return len(set(_with_leaves(ops, box).values())) + sum(op.parents.count(None) for op in ops if box[op] is op)

    box = {op: op for op in ops}
    depth = max((len(_place(op)) for op in ops), default=0)
    while size() > max_nodes and depth:
        paths = ((op, _place(op)) for op in ops)
        box = {op: ".".join(path[:depth]) if len(path) >= depth else op for op, path in paths}
        depth -= 1
    boxes, n = list(dict.fromkeys(box.values())), max_nodes
    while size() > max_nodes:
        n = n * 7 // 8  # keep the first n // 2 boxes and the last n - n // 2
        middle = set(boxes[n // 2 : len(boxes) - (n - n // 2)])
        box = {op: MIDDLE if key in middle else key for op, key in box.items()}
    return _with_leaves(ops, box)


def _with_leaves(ops, box):
    """box for the leaves too: one that only a single folded box uses lies in there, any other is drawn itself."""
    box = dict(box)
    for op in ops:
        for node in op.parents:
            if node is not None and node.op is None:
                key = box[op] if isinstance(box[op], str) else node
                box[node] = key if box.get(node, key) == key else node
    return box


def _number(node, box):
    """Which output of a drawn op a value is, as a label, if there are several."""
    return f"[{node.index}]" if node is not None and node.op is box and box.outputs else ""


def _names(names):
    """({node: name}, {module path: class name}) from a Module or a dict."""
    classes = {}
    if hasattr(names, "named_parameters"):
        classes = {path: f" · {type(module).__name__}" for path, module in names.named_modules()}
        names = dict(names.named_parameters())
    for name, x in (names or {}).items():
        if not isinstance(x, Value):
            raise TypeError(f"names: {name!r} must be a Tensor, got {type(x).__name__}")
    return {x.node: str(name) for name, x in (names or {}).items()}, classes


def _show(value):
    """A parameter, short, and without anything that differs from run to run, such as an address."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_show, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, slice):
        return ":".join("" if v is None else str(v) for v in (value.start, value.stop, value.step)).removesuffix(":")
    if getattr(value, "shape", ()):
        return f"array{tuple(value.shape)}"
    text = "..." if value is ... else str(value)
    return type(value).__name__ if " at 0x" in text else text


def _text(text):
    """One short printable line: DOT and XML allow no control characters, and graphviz reads \\N even in HTML labels."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)) or "''"
    return (text if len(text) <= 80 else text[:79] + "…").replace("\\", "\\\\")


def _small(text, colour):
    return f'<font point-size="9" color="{colour}">{html.escape(_text(text))}</font>'


def _count(n, noun):
    return f"{n:,} {noun}" if n == 1 else f"{n:,} leaves" if noun == "leaf" else f"{n:,} {noun}s"
