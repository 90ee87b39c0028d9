"""Pictures for the steps: graphs as SVG, curves and maps by matplotlib."""

import sys
from html import escape
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure


def stop_if_unfinished():
    """End the program in one line if this step, or one that it imports, still has a line of dots."""
    for name, module in sorted(sys.modules.items()):
        if name == "__main__" or name.startswith("step"):
            file = Path(module.__file__)
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                if line.strip() == "...":
                    sys.exit(f"{file.name}:{number} waits for your code; `minigrad learn` says what is next")


def draw(end, path, orders=()):
    """Draw the graph behind a Value as an SVG: parents below, `end` at the top, with data and grad in each box.

    orders: lists of all its nodes. The place of each node in each list is written into its box."""
    rows, edges = layers_of(end)
    width, height, gap = 130, 64, 100
    at = {}  # the centre of each box, and of each bend of an edge that passes a row
    widest = max(map(len, rows))
    for row, nodes in enumerate(rows):
        for i, node in enumerate(nodes):
            at[id(node)] = (widest / 2 + i - (len(nodes) - 1) / 2) * (width + 20), (len(rows) - row - 0.5) * gap
    parts = []
    for points in edges:
        (x0, y0), *bends, (x1, y1) = (at[id(node)] for node in points)
        line = [(x0, y0 - height / 2), *bends, (x1, y1 + height / 2)]
        parts.append(f'<polyline points="{" ".join(f"{x:.0f},{y:.0f}" for x, y in line)}"/>')
    for node in (node for row in rows for node in row if not isinstance(node, Bend)):
        x, y = at[id(node)]
        places = "   ".join(f"no. {order.index(node) + 1}" for order in orders)
        lines = [node.op or "leaf", f"data {node.data:.4g}", f"grad {node.grad:.4g}", *[places] * bool(places)]
        parts.append(f'<rect x="{x - width / 2}" y="{y - height / 2}" width="{width}" height="{height}"/>')
        for i, text in enumerate(lines):
            baseline = y + 4 + 14 * (i - (len(lines) - 1) / 2)
            parts.append(f'<text x="{x}" y="{baseline}">{escape(text)}</text>')
    Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{widest * (width + 20) + 20}" height="{len(rows) * gap}">\n'
        '<style>svg{background:white} rect{fill:#f4f1ea;stroke:#444} polyline{fill:none;stroke:#444;'
        'marker-end:url(#arrow)} text{font:12px sans-serif;text-anchor:middle;white-space:pre}</style>\n'
        '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#444"/></marker>\n' + "\n".join(parts) + "\n</svg>\n",
        encoding="utf-8",
    )  # fmt: skip
    print("wrote", path)


class Bend:
    """A place in a row of the picture that an edge passes between two other rows."""


def layers_of(end):
    """Return (rows, edges) of the graph behind a Value. Each row lists nodes whose parents are all in earlier rows, and
    a Bend for each edge that passes it; an edge lists the parent, its Bends, and the node."""
    depth, nodes = {}, []

    def visit(node):
        if id(node) not in depth:
            depth[id(node)] = 0
            depth[id(node)] = 1 + max(map(visit, node.parents), default=-1)
            nodes.append(node)
        return depth[id(node)]

    rows = [[] for _ in range(visit(end) + 1)]
    for node in nodes:
        rows[depth[id(node)]].append(node)
    edges = []
    for node in nodes:
        for parent in node.parents:
            bends = [Bend() for _ in range(depth[id(parent)] + 1, depth[id(node)])]
            for row, bend in enumerate(bends, depth[id(parent)] + 1):
                rows[row].append(bend)
            edges.append([parent, *bends, node])
    return rows, edges


def panels(n, side, path):
    """Yield the axes of n panels, four in a row, each `side` inches wide; then write the picture."""
    rows, columns = -(-n // 4), min(n, 4)
    figure = Figure(figsize=(side * columns, (side + 0.2) * rows), dpi=120, layout="constrained")
    yield from figure.subplots(rows, columns, squeeze=False).ravel()[:n]
    figure.savefig(path)
    print("wrote", path)


def curves(series, path, xlabel, ylabel, log=False):
    """Draw {label: ys} against 1, 2, …, with a logarithmic axis of ys if `log`. Later curves are thin and dashed, so
    that a curve below another one shows."""
    for axes in panels(1, 5, path):
        for i, (label, ys) in enumerate(series.items()):
            style = dict(linewidth=2.5) if i == 0 else dict(linewidth=1.2, linestyle=(0, (4, 1 + i)))
            axes.plot(range(1, len(ys) + 1), ys, label=label, **style)
        axes.set(xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
        axes.legend()


def maps(arrays, path, top=None, names=None):
    """Draw {title: matrix} as maps: orange above 0 and purple below. The scale of a matrix without negative numbers
    begins at 0.

    top: the number of the darkest orange (None: the matrix's largest). names: labels of rows and columns, instead of
    their numbers."""
    for axes, (title, a) in zip(panels(len(arrays), max(3, 0.12 * len(names or ())), path), arrays.items()):
        most = top or abs(a).max() or 1
        signed = np.min(a) < 0
        image = axes.imshow(a, cmap="PuOr_r" if signed else "Oranges", vmin=-most if signed else 0, vmax=most)
        axes.figure.colorbar(image, ax=axes, shrink=0.7)
        every = 1 if names else -(-max(a.shape) // 12)  # at most twelve numbers fit
        axes.set(title=title, xticks=range(0, a.shape[1], every), yticks=range(0, a.shape[0], every))
        for axis in (axes.xaxis, axes.yaxis) if names else ():
            shown = [repr(name)[1:-1] if name.isspace() else name for name in names]
            axis.set_ticklabels(shown, fontsize=7, parse_math=False)


def boundary(outputs, points, labels, reach, path):
    """Draw {title: outputs on a grid from -reach to reach} side by side, with the points in black and white."""
    for axes, (title, grid) in zip(panels(len(outputs), 3, path), outputs.items()):
        axes.imshow(grid, cmap="PuOr_r", vmin=-1, vmax=1, origin="lower", extent=[-reach, reach, -reach, reach])
        axes.scatter(*zip(*points), c=labels, cmap="gray", edgecolors="black", s=35)
        axes.set(title=title)
