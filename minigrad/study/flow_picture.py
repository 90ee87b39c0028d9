"""A Flow as a picture: parts of the model in rows from bottom to top, and edges as wide as they are large."""

import html
import math

from ..viz import canvas
from ..viz.labels import DARK, FONT, GREY, STYLES, line, small

COLOURS = {**dict(zip("qkv", canvas.COLOURS)), "": GREY}  # told apart with any colour vision, on light and on dark
READS = {"q": "Q of a head", "k": "its K", "v": "its V", "": "an MLP, or the end"}
MEANINGS = {  # method -> lines of the legend
    "first_order": (
        "edge u → v: what u adds to the residual stream times the gradient where v reads it",
        "solid: more of it lowers the loss, so a step of training makes it stronger",
        "dashed: more of it raises the loss",
    ),
    "cut": (
        "edge u → v: the loss with it minus the loss where v's copy of the stream lacks what u adds",
        "solid: the edge lowers the loss; dashed: it raises it",
    ),
}
WIDEST = 8.0  # points
LABELLED = 8  # how many edges, the largest, are labelled with their values
PITCH = 88, 96  # points from head to head, and from row to row


def digraph(flow, edges, least):
    """A graphviz.Digraph of `edges`, an Edges of `flow`. Left out are those below `least` of the largest. Places are
    given, so that a part is in the same place whatever edges are shown."""
    try:
        import graphviz
    except ImportError as error:
        raise ImportError("a picture needs the Python package graphviz: pip install graphviz") from error
    largest = max((abs(edge) for *_, edge in edges if math.isfinite(edge)), default=0.0)
    shown = [each for each in edges if least * largest <= abs(each[-1]) < math.inf and each[-1]]
    picture = graphviz.Digraph("flow", graph_attr={"layout": "nop", "splines": "curved", "bgcolor": "transparent"})
    picture.attr("graph", **FONT, outputorder="edgesfirst", tooltip=" ", pad="0.1")
    picture.attr("node", **FONT, fontsize="11", fontcolor=DARK, shape="box", style="filled,rounded", height="0.3")
    picture.attr("edge", **FONT, fontsize="10", arrowsize="0.7")
    ids = _boxes(picture, rows_of(flow), {node for u, v, *_ in shown for node in (u, v)})
    for i, (u, v, p, edge) in reversed(list(enumerate(shown))):  # the largest are drawn last, above the others
        told = f"{line(str(u))} → {line(str(v))} {p}".strip() + f": {edge:+.4g}"
        look = {"penwidth": f"{max(0.5, WIDEST * abs(edge) / largest):.2f}", "style": "solid" if edge < 0 else "dashed"}
        text = f"{edge:+.2g}" if i < LABELLED else None
        picture.edge(ids[u], ids[v], text, color=COLOURS[p], fontcolor=COLOURS[p], tooltip=told, **look)
    legend = _legend(flow.method, shown, len(edges), largest)
    picture.node("legend", legend, shape="plaintext", style="", pos=f"0,{-0.7 * PITCH[1]:.0f}!", tooltip=" ")
    return picture


def _boxes(picture, rows, used):
    """Add a box for each Node, in rows from the bottom up; {Node: its id}. Those not `used` are grey."""
    wide, high = PITCH
    room, ids = wide * max(map(len, rows)), {}
    for y, row in enumerate(rows):
        of_heads = row[0].head is not None
        if of_heads:
            name = {"xlabel": f"<{small(row[0].path, GREY)}>", "fillcolor": GREY + "14", "color": GREY + "80"}
            size = {"width": f"{room / 72:.2f}", "height": "0.5"}
            picture.node(f"row {y}", "", pos=f"0,{y * high}!", **size, **name, tooltip=line(row[0].path))
        for x, node in enumerate(row):
            label = f"head {node.head}" if node.head is not None else "bias" if of_heads else str(node)
            kind = "leaf" if y == 0 else "start" if y == len(rows) - 1 else "op" if of_heads else "module"
            look = {name: STYLES[kind][name] for name in ("fillcolor", "color")}
            look |= {} if node in used else {"fillcolor": GREY + "14", "fontcolor": GREY}
            place = f"{((x + 0.5) / len(row) - 0.5) * room:.0f},{y * high}!"
            ids[node] = f"n{len(ids)}"
            picture.node(ids[node], line(label), pos=place, tooltip=line(str(node)), **look)
    return ids


def rows_of(flow):
    """Lists of Nodes, from the bottom up: what the streams begin with, then each part in the model's order. The
    bias of an attention layer is beside its heads."""
    readers = dict.fromkeys(node for node, _ in flow.inputs)
    parts = {node.path for node in readers}
    first, rows = [], {}
    for node in dict.fromkeys([*flow.sources, *readers]):  # writers come in their order, then the ends
        part = node.path.removesuffix(".bias")
        (rows.setdefault(part, []) if part in parts else first).append(node)
    return [first, *rows.values()]


def _legend(method, shown, of, largest):
    found = [p for p in COLOURS if any(p == each[2] for each in shown)]
    samples = "&#160;&#160;&#160;".join(f'<font color="{COLOURS[p]}"><b>→ {READS[p]}</b></font>' for p in found)
    rows = (*MEANINGS[method], f"the {len(shown)} largest of {of} edges; the widest is {largest:.3g}")
    text = "".join(f'<br/><font color="{GREY}" point-size="10">{html.escape(row)}</font>' for row in rows)
    return f"<{samples}{text}>"
