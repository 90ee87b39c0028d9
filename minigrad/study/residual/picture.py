"""A Flow as a picture: parts of the model in rows from bottom to top, and edges as wide as they are large.

Places are computed here and not by Graphviz, which only draws: so a part is in the same place whatever edges are
shown, and pictures of two steps of a training can be compared."""

import html
import math

from ...viz import canvas
from ...viz.labels import DARK, GREY, line
from ...viz.picture import FONT, STYLES

# Told apart with any colour vision, and from light and dark backgrounds.
COLOURS = {**dict(zip("qkv", canvas.COLOURS)), "": GREY}
READS = {"q": "Q of a head", "k": "its K", "v": "its V", "": "an MLP, or the end"}
MEANINGS = {  # method -> lines of the legend
    "first_order": (
        "edge u → v: what u adds to the residual stream times the gradient where v reads it",
        "solid: more of it lowers the loss, so a step of training makes it stronger; dashed: it raises the loss",
    ),
    "cut": (
        "edge u → v: the loss with it minus the loss when v's copy of the residual stream lacks what u adds",
        "solid: the edge lowers the loss; dashed: it raises it",
    ),
}
KINDS = {"head": "op", "first": "leaf", "last": "start", "other": "module"}  # of nodes -> which box of viz.graph
WIDTH, PITCH = 500, (52, 84)  # points: of the rows; from row to row, at least and at most
NAMES = 5.8, 250  # points: of a letter of a layer's name, and the most for all of it
WIDEST = 8.0  # points
PORTS = {"q": -14, "k": 0, "v": 14, "": 0}  # points from the middle of a head, where its Q, K and V are read
LABELLED = 8  # how many edges, the largest, are labelled with their values
CHIP = 40, 13  # points: the size of such a label


def digraph(flow, edges, least):
    """A graphviz.Digraph of `edges`, an Edges of `flow`. Left out are those below `least` of the largest."""
    try:
        import graphviz
    except ImportError as error:
        raise ImportError("a picture needs the Python package graphviz: pip install graphviz") from error
    largest = max((abs(edge) for *_, edge in edges if math.isfinite(edge)), default=0.0)
    shown = [each for each in edges if least * largest <= abs(each[-1]) < math.inf and each[-1]]
    picture = graphviz.Digraph("flow", graph_attr={"layout": "nop2", "bgcolor": "transparent", "tooltip": " "})
    picture.attr("graph", outputorder="edgesfirst", pad="0.05", **FONT)
    picture.attr("node", **FONT, fontsize="11", fontcolor=DARK, shape="box", fixedsize="true", margin="0.08,0")
    rows = rows_of(flow)
    ids = {node: f"n{i}" for i, node in enumerate(node for row in rows for node in row)}
    at, sizes, room, pitch = _boxes(picture, rows, ids, {node for u, v, *_ in shown for node in (u, v)})
    chips = [(x, y, *sizes[node]) for node, (x, y) in at.items()]  # what labels must not lie on
    ways = _ways(shown, at, sizes)
    lines = []
    for i, (u, v, p, edge) in enumerate(shown):
        width = max(0.5, WIDEST * abs(edge) / largest)
        head = max(4.5, 1.2 * width)  # the length of the arrow's head
        start, end = ways[i]
        points = _curve(start, end, head, pitch, abs(at[u][0] - at[v][0]) < 60)
        place = {"pos": f"e,{_text(end)} {' '.join(map(_text, points))}", "arrowsize": f"{head / 10:.2f}"}
        look = {"penwidth": f"{width:.2f}", "color": COLOURS[p], "style": "solid" if edge < 0 else "dashed"}
        told = f"{line(str(u))} → {line(str(v))} {p}".strip() + f": {edge:+.4g}"
        lines.append((ids[u], ids[v], {**look, **place, "tooltip": told}))
        if i < LABELLED:  # a node, so that no edge lies on it
            x, y = _free(points, chips)
            free = {"shape": "plaintext", "fixedsize": "false", "fontsize": "9", "margin": "0"}
            picture.node(f"label {i}", _chip(edge, COLOURS[p]), pos=f"{x:.1f},{y:.1f}!", **free, tooltip=told)
    for u, v, look in reversed(lines):  # the largest are drawn last, above the others
        picture.edge(u, v, **look)
    legend = _legend(flow.method, shown, len(edges), largest)
    picture.node("legend", legend, shape="plaintext", fixedsize="false", pos=f"{room / 2:.1f},-44!", tooltip=" ")
    return picture


def rows_of(flow):
    """Lists of Nodes, from the bottom up: what the streams begin with, then each part in the model's order. The
    bias of an attention layer is beside its heads."""
    readers = dict.fromkeys(node for node, _ in flow.inputs)
    parts = {node.path for node in readers}
    first, rows = [], {}
    for node in dict.fromkeys([*flow.sources, *readers]):  # in the order in which they write, and then the ends
        part = node.path.removesuffix(".bias")
        (rows.setdefault(part, []) if part in parts else first).append(node)
    return [first, *rows.values()]


def _boxes(picture, rows, ids, used):
    """Add all nodes, and a frame around the heads of a layer. Returns ({node: its middle}, {node: (width, height)},
    the width of it all, from row to row), in points."""
    letter, most = NAMES
    names = {i: row[0].path for i, row in enumerate(rows) if row[0].head is not None}
    left = min(most, letter * max(map(len, names.values()), default=0)) + 12
    room = max(WIDTH, 28 * max(map(len, rows)))
    pitch = min(max(560 / len(rows), PITCH[0]), PITCH[1])
    at, sizes = {}, {}
    for i, row in enumerate(rows):
        y = i * pitch
        if i in names:
            name = names[i] if len(names[i]) <= most / letter else "…" + names[i][-int(most / letter) + 1 :]
            look = {**STYLES["frame"], "label": f"{line(name)}\\l", "tooltip": line(names[i])}
            look |= {"fontcolor": GREY, "fontsize": "10", "labeljust": ""}
            picture.node(f"frame {i}", pos=f"{(left + room) / 2:.1f},{y:.1f}!", **_inches(left + room, 36), **look)
        for n, node in enumerate(row):
            at[node] = left + room * (n + 0.5) / len(row), y
            is_head, beside = node.head is not None, node.head is None and i in names
            label = f"head {node.head}" if is_head else "bias" if beside else str(node)
            width = min(max(7 * len(label) + 14, 44 if is_head else 84), room / len(row) - 4)
            if is_head and width < 44:
                label = str(node.head)
            sizes[node] = width, 22
            kind = "head" if is_head else "first" if i == 0 else "last" if i == len(rows) - 1 else "other"
            look = {name: STYLES[KINDS[kind]][name] for name in ("fillcolor", "color")}
            if node not in used:
                look = {"fillcolor": STYLES["middle"]["fillcolor"], "color": GREY + "80", "fontcolor": GREY}
            place = f"{at[node][0]:.1f},{y:.1f}!"
            picture.node(ids[node], line(label), pos=place, style="filled,rounded", tooltip=line(str(node)), **look,
                         **_inches(*sizes[node]))  # fmt: skip
    return at, sizes, left + room, pitch


def _ways(shown, at, sizes):
    """[(start, end)] of the edges, in points. Those that leave a node are spread over its width, in the order of where
    they lead to, and so are those that come to one which is no head."""
    starts, ends = {}, {}
    for i, (u, v, p, _) in enumerate(shown):
        starts.setdefault(u, []).append((at[v][0] + PORTS[p], i))
        if not p:
            ends.setdefault(v, []).append((at[u][0], i))
    shift = [{}, {}]
    for side, found in enumerate((starts, ends)):
        for node, each in found.items():
            for n, (_, i) in enumerate(sorted(each)):
                shift[side][i] = ((n + 0.5) / len(each) - 0.5) * 0.8 * sizes[node][0]
    ways = []
    for i, (u, v, p, _) in enumerate(shown):
        (x0, y0), (x1, y1), narrow = at[u], at[v], min(1, sizes[v][0] / 44)
        end = shift[1].get(i, PORTS[p] * narrow)
        ways.append(((x0 + shift[0][i], y0 + sizes[u][1] / 2), (x1 + end, y1 - sizes[v][1] / 2)))
    return ways


def _curve(start, end, head, pitch, upright):
    """The four points of a Bézier curve that ends where the arrow's head begins. One that goes straight up past other
    parts makes a bow around them, or it would be hidden behind their boxes."""
    (x0, y0), (x1, y1), rise = start, end, max(end[1] - start[1], 1)
    past, side = upright and rise > pitch, 1 if x1 >= x0 else -1
    bow = side * min(0.5 * rise, WIDTH * 0.6) * past
    below = x1 + bow, y1 - head - rise / (6 if past else 4)
    far = ((x1 - below[0]) ** 2 + (y1 - below[1]) ** 2) ** 0.5
    tip = tuple(b + (a - b) * head / far for a, b in zip(below, end))
    return start, (x0 + bow, y0 + rise / (6 if past else 2)), below, tip


def _free(points, chips):
    """A point of a Bézier curve where a label lies on no other, or else the middle. It is added to the chips."""
    width, height = CHIP
    for t in (0.5, 0.6, 0.4, 0.7, 0.3, 0.8, 0.2, 0.5):
        weights = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
        x, y = (sum(w * point[i] for w, point in zip(weights, points)) for i in (0, 1))
        if all(abs(x - a) > (width + w) / 2 or abs(y - b) > (height + h) / 2 for a, b, w, h in chips):
            break
    chips.append((x, y, width, height))
    return x, y


def _text(point):
    return f"{point[0]:.1f},{point[1]:.1f}"


def _inches(width, height):
    return {"width": f"{width / 72:.3f}", "height": f"{height / 72:.3f}"}


def _chip(edge, colour):
    text = f'<font color="{colour}">{f"{edge:+.2g}".replace("-", "−")}</font>'
    return f'<<table border="0" cellpadding="1" bgcolor="#ffffff" style="rounded"><tr><td>{text}</td></tr></table>>'


def _legend(method, shown, of, largest):
    found = [p for p in COLOURS if any(p == each[2] for each in shown)]
    samples = "&#160;&#160;&#160;".join(f'<font color="{COLOURS[p]}"><b>→ {READS[p]}</b></font>' for p in found)
    rows = (*MEANINGS[method], f"the {len(shown)} largest of {of} edges; the widest is {largest:.3g}")
    text = "".join(f'<br/><font color="{GREY}" point-size="10">{html.escape(row)}</font>' for row in rows)
    return f"<{samples}{text}>"
