"""What the pictures of the forward and the backward pass share: boxes, edges, frames, caption and legend."""

import html
import math
import os
import re
import textwrap
from collections import Counter

from ..autograd import GraphError, Node, Value, reachable
from ..ops.derivatives import letters_of
from .fold import MIDDLE, common_place, fold, module_at, place, uses
from .gradients import has_hooks, norm, norms
from .labels import ACCENT, DARK, DIM, GREY, count, line, small

# Pictures must be readable on light and dark pages: the background is transparent, text and lines on it are mid-grey,
# and boxes are pale with dark text.
FONT = {"fontname": "Helvetica,Arial,sans-serif"}
STYLES = {
    "op": {"fillcolor": "#e6eef8", "color": "#7f9cc4"},
    "leaf": {"fillcolor": "#fbf0d5", "color": "#cfa74e", "style": "filled,rounded"},
    "module": {"fillcolor": "#e9e5f6", "color": "#9488c4", "shape": "folder"},
    "middle": {"fillcolor": "#eeeff1", "color": GREY, "style": "filled,dashed"},
    "dot": {"fillcolor": GREY, "color": GREY, "shape": "circle", "label": "", "width": "0.07"},
    "start": {"fillcolor": "#dff1e3", "color": "#6fae82", "shape": "circle", "margin": "0.02"},
    "plus": {"fillcolor": "#dff1e3", "color": "#6fae82", "shape": "circle", "margin": "0"},
    "frame": {"fillcolor": GREY + "14", "color": GREY + "80", "style": "filled,rounded", "labeljust": "l"},
}
FREED = "the graph was freed by backward: draw it before, or pass retain_graph=True"


def styled(graphviz, caption):
    """An empty graphviz.Digraph."""
    dot = graphviz.Digraph("minigrad", graph_attr={**FONT, "label": caption, "tooltip": " "})
    dot.attr("graph", bgcolor="transparent", ranksep="0.3", nodesep="0.22")
    dot.attr("node", **FONT, fontsize="11", fontcolor=DARK, shape="box", style="filled", height="0", width="0")
    dot.attr("edge", **FONT, fontsize="9", fontcolor=GREY, color=GREY, arrowsize="0.6", tooltip=" ")
    return dot


def boxed(title, lines):
    """The label of a box: a title, and [(text, colour)] below it."""
    rows = [f"<b>{html.escape(line(title))}</b>", *(small(text, colour) for text, colour in lines)]
    return f"<{'<br/>'.join(rows)}>"


class Picture:
    """Gathers what to draw. Boxes are numbered in the order in which ops ran, so that equal graphs give equal text.

    A subclass defines draw(), which adds boxes and edges, others(box), see `fold`, and two attributes. between_boxes:
    are the gradients on edges those that boxes exchange, or those of each value? meanings: {kind: text}, the legend in
    its order."""

    between_boxes: bool
    meanings: dict

    def __init__(self, graphviz, roots, names, notes, depth, max_nodes, show):
        self.graphviz, self.roots, self.notes, self.depth, self.max_nodes = graphviz, roots, notes, depth, max_nodes
        self.shapes, self.grad_norm = "shape" in show, "grad_norm" in show
        self.found = reachable(roots, 0)
        self.letters = letters_of(self.found)
        names, self.classes = _names(names)
        self.names = self.letters | names
        self.ops = sorted(self.found, key=lambda op: op.serial)
        self.box = fold(self.ops, depth, max_nodes, self.others)
        self.box |= {node: node for node in roots if node.op is None and node not in self.box}
        self.leaves = Counter(key for node, key in self.box.items() if isinstance(node, Node))  # box -> how many in it
        self.sizes = Counter(self.box[op] for op in self.ops)  # box -> how many ops are in it
        self.hidden = {key: n for key, n in self.sizes.items() if isinstance(key, str)}
        self.uses = uses(self.ops, roots, self.box)
        self.missing = ""  # why edges have no norms, except for values with a .grad
        self.norms = self._norms() if self.grad_norm else {}
        self.ids = {}  # what is drawn -> its name in the DOT text
        self.kinds = set()  # what the legend has to explain
        self.members = {}  # path of a module, as a tuple -> [(id, attributes)] right inside its frame
        self.edges = {}  # (id, id, port, label), as an ordered set: two edges differ if their ports do

    def others(self, box):
        raise NotImplementedError

    def draw(self):
        raise NotImplementedError

    def digraph(self):
        """All of it, as a graphviz.Digraph."""
        self.draw()
        dot = styled(self.graphviz, self._caption())
        frames = {}  # path -> the finished frames right inside it; built from the deepest up
        paths = dict.fromkeys(path[:n] for path in self.members for n in range(len(path) + 1))
        for i, path in enumerate(sorted(paths, key=len, reverse=True)):
            name, members, inner = ".".join(path), self.members.get(path, []), frames.get(path, [])
            label = small(self.module(name), GREY)
            if path and len(members) == 1 and not inner:  # too small for a frame: the name goes into the box
                ((id, attributes),) = members
                attributes["label"] = f"<{label}<br/>{attributes['label'][1:]}"
                self.members.setdefault(path[:-1], []).append((id, attributes))
                continue
            style = {**STYLES["frame"], "label": f"<{label}>", "tooltip": f"module: {line(name)}"}
            frame = self.graphviz.Digraph(f"cluster_{i}", graph_attr=style) if path else dot
            for id, attributes in members:
                frame.node(id, **attributes)
            for one in inner:
                frame.subgraph(one)
            frames.setdefault(path[:-1], []).append(frame)
        for tail, head, _, label in self.edges:
            dot.edge(tail, head, label or None)
        return dot

    # -- boxes and edges

    def add(self, key, kind, frame, tooltip, title=None, lines=(), **attributes):
        """A box of some kind. frame: the path of the module in whose frame it lies, as a tuple."""
        self.ids[key] = id = f"n{len(self.ids)}"
        self.kinds.add(kind)
        attributes = {**STYLES[kind], "tooltip": line(tooltip), **attributes}
        if title is not None:
            attributes["label"] = boxed(title, lines)
        self.members.setdefault(frame, []).append((id, attributes))

    def add_op(self, op, title, lines):
        notes = [(note, ACCENT) for note in self.notes.get(op, "").splitlines()]
        made = op.describe().replace(os.path.dirname(op.line[0]) + os.sep, "")  # pictures may be published: no folders
        border = {"penwidth": "2"} if any(node.op is op for node in self.roots) else {}
        self.add(op, "op", place(op), f"op: {made}", title, [*lines, *notes], **border)

    def add_folded(self, key, title, lines=()):
        held = count(self.sizes[key], "op") + (f", {count(self.leaves[key], 'leaf')}" if self.leaves[key] else "")
        kind = "middle" if key == MIDDLE else "module"
        self.add(key, kind, place(key), f"folded: {key}", title, [(held, DARK), *lines])

    def add_leaf(self, node, suffix=""):
        inside = common_place([place(key) for key, _ in self.uses[node]])
        name = self.names.get(node, "leaf")
        short = name.removeprefix(".".join(inside) + ".")  # the frame says the rest
        lines = [(f"{node.shape} {node.dtype}", DIM)] if self.shapes else []
        if self.grad_norm:
            lines.append(("no grad yet" if node.grad is None else f"|grad| {norm(node.grad):.3g}", DIM))
        self.add(node, "leaf", inside, f"leaf: {name}", short + suffix, lines)

    def add_edge(self, tail, head, port, *label):
        """Edges between two boxes with equal ports and labels are drawn as one. Each part of the label is a line."""
        # \l ends a line, and puts it at the left. Spaces that do not break keep it off the edge: SVG drops others.
        text = "\\l".join(f"\u00a0{part}\u00a0" for part in label if part)
        self.edges[self.ids[tail], self.ids[head], port, text + "\\l" * ("\\l" in text)] = None

    def output_of(self, node):
        """Which output of its op a value is, if there are several and the op has a box of its own."""
        if node.op is None or not node.op.outputs or self.box[node.op] is not node.op:
            return ""
        self.kinds.add("output")
        return f"[{node.index}]"

    def norm_of(self, gradient):
        """An edge's label: the gradient of a value, or of a (value, use). See `norms`."""
        if gradient in self.norms:
            self.kinds.add("number")
            return f"{self.norms[gradient]:.3g}"
        return "no grad" if self.grad_norm and not self.missing else ""

    def _norms(self):
        if any(op.spent for op in self.ops):
            self.missing = FREED
        elif wide := [root.shape for root in self.roots if math.prod(root.shape) != 1]:
            self.missing = f"a tensor of shape {wide[0]} is not a scalar"
        else:
            try:
                return norms(self.roots, self.found, self.box if self.between_boxes else {x: x for x in self.box})
            except GraphError as error:  # what an op saved was changed in place
                self.missing = str(error)
        values = {node for op in self.ops for node in op.parents if node is not None} | set(self.roots)
        return {node: norm(node.grad) for node in values if node.grad is not None}

    # -- text

    def module(self, path):
        """The last part of a module's path (but blocks.0, not 0) and its class. The frames around it say the rest."""
        return re.sub(r"^.*\.(?=[^.]*[^.\d])", "", path) + self.classes.get(path, "")

    def _caption(self):
        """A table of what the picture shows, hides and lacks, and a legend."""
        by_depth = {module_at(op, self.depth) for op in self.ops}
        lines = [f"{count(sum(self.leaves.values()), 'leaf')}, {count(len(self.ops), 'op')}"]
        for why, keys in (
            (f"depth={self.depth}", [key for key in self.hidden if key in by_depth]),
            (f"max_nodes={self.max_nodes}", [key for key in self.hidden if key not in by_depth]),
        ):
            if keys:
                lines.append(f"{why} hides what is in {', '.join(keys)}")
        if self.missing:
            lines += ["edges show only the gradients that a .grad holds:", self.missing]
        elif self.grad_norm and has_hooks(self.found):
            lines.append("gradients are those without hooks, which drawing does not run")
        lines = [row for text in lines for row in textwrap.wrap(text, 80, max_lines=3, placeholder=" …")]
        rows = [f'<tr><td colspan="2">{small(row, GREY)}</td></tr>' for row in lines]
        for kind, meaning in self.meanings.items():
            if kind in self.kinds:
                rows.append(f'<tr>{_sample(kind)}<td align="left">{small(meaning, GREY)}</td></tr>')
        return f'<<table border="0" cellborder="0" cellspacing="3" cellpadding="0">{"".join(rows)}</table>>'


def _sample(kind):
    """A cell of the legend that looks like a kind of box, or like the text on an edge."""
    text = {"dot": "●", "start": "1", "plus": "+", "number": "0.12", "shape": "(2, 3)", "output": "[0]"}.get(kind, " ")
    if kind not in STYLES or kind == "dot":
        return f'<td width="26">{small(text, GREY)}</td>'
    look = {"color": STYLES[kind]["color"], "bgcolor": STYLES[kind]["fillcolor"], "border": "1", "width": "26"}
    style = {"leaf": "rounded", "start": "rounded", "plus": "rounded", "middle": "dashed"}.get(kind)
    attributes = " ".join(f'{key}="{value}"' for key, value in {**look, **({"style": style} if style else {})}.items())
    return f"<td {attributes}>{small(text, DARK)}</td>"


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
