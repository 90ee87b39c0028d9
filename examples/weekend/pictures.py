"""Pictures for the steps: graphs by Graphviz, curves and maps by matplotlib."""

import graphviz
from matplotlib.figure import Figure

from minigrad.viz import Graph


def draw(end, path, places=()):
    """The graph behind a Value, with data and grad. places: orders, whose numbers are written into each node."""
    dot, found = graphviz.Digraph(node_attr={"shape": "box"}), [end]
    for x in found:  # the list grows meanwhile
        place = " | ".join(str(order.index(x) + 1) for order in places)
        dot.node(str(id(x)), f"{x.op or 'leaf'}\ndata {x.data:.4g}\ngrad {x.grad:.4g}\n{place}")
        dot.edges((str(id(parent)), str(id(x))) for parent in x.parents)
        found += [parent for parent in x.parents if parent not in found]
    print("wrote", *Graph(dot).save(path))


def panels(n, side, path):
    """The axes of n panels, four in a row, each this many inches wide; then the picture is written."""
    rows, columns = -(-n // 4), min(n, 4)
    figure = Figure(figsize=(side * columns, (side + 0.2) * rows), dpi=120, layout="constrained")
    yield from figure.subplots(rows, columns, squeeze=False).ravel()[:n]
    figure.savefig(path)
    print("wrote", path)


def curves(series, path, xlabel, ylabel, log=False):
    """{label: ys}, against 1, 2, … log: is the axis of ys logarithmic?"""
    for axes in panels(1, 5, path):
        for label, ys in series.items():
            axes.plot(range(1, len(ys) + 1), ys, label=label)
        axes.set(xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
        axes.legend()


def maps(arrays, path, top=None, names=None):
    """{title: matrix} as maps, purple below 0 and orange above. top: the number of the darkest orange. names: of rows
    and columns, instead of their numbers."""
    for axes, (title, a) in zip(panels(len(arrays), max(3, 0.12 * len(names or ())), path), arrays.items()):
        most = top or abs(a).max() or 1
        axes.figure.colorbar(axes.imshow(a, cmap="PuOr_r", vmin=-most, vmax=most), ax=axes, shrink=0.7)
        axes.set(title=title, xticks=range(a.shape[1]), yticks=range(a.shape[0]))
        for axis in (axes.xaxis, axes.yaxis) if names else ():
            shown = [repr(name)[1:-1] if name.isspace() else name for name in names]
            axis.set_ticklabels(shown, fontsize=7, parse_math=False)


def boundary(outputs, points, labels, reach, path):
    """{title: outputs on a grid from -reach to reach} with the points, side by side."""
    for axes, (title, grid) in zip(panels(len(outputs), 3, path), outputs.items()):
        axes.imshow(grid, cmap="PuOr_r", vmin=-1, vmax=1, origin="lower", extent=[-reach, reach, -reach, reach])
        axes.scatter(*zip(*points), c=labels, cmap="PuOr_r", edgecolors="black", s=15)
        axes.set(title=title)
