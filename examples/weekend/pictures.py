"""Pictures for the steps: graphs by Graphviz, maps by matplotlib."""

import graphviz

from minigrad.viz import Graph, canvas


def draw(end, path, places=()):
    """The graph behind a Value, with data and grad. places: orders, whose numbers are written into each node."""
    dot, found = graphviz.Digraph(node_attr={"shape": "box"}), [end]
    for x in found:  # the list grows meanwhile
        place = " | ".join(str(order.index(x) + 1) for order in places)
        dot.node(str(id(x)), f"{x.op or 'leaf'}\ndata {x.data:.4g}\ngrad {x.grad:.4g}\n{place}")
        dot.edges((str(id(parent)), str(id(x))) for parent in x.parents)
        found += [parent for parent in x.parents if parent not in found]
    print("wrote", *Graph(dot).save(path))


def maps(arrays, path, top=None, names=None):
    """{title: matrix} as maps side by side, purple below 0 and orange above. top: the number of the darkest orange.
    names: of rows and columns, instead of their numbers."""
    size = max(3, 0.12 * len(names or ()))
    figure = canvas.new_figure("maps", (size * len(arrays), size + 0.2))
    for axes, (title, a) in zip(figure.subplots(1, len(arrays), squeeze=False)[0], arrays.items()):
        most = top or abs(a).max() or 1
        figure.colorbar(axes.imshow(a, cmap="PuOr_r", vmin=-most, vmax=most), ax=axes, shrink=0.7)
        axes.set(title=title, xticks=range(a.shape[1]), yticks=range(a.shape[0]))
        for axis in (axes.xaxis, axes.yaxis) if names else ():
            shown = [repr(name)[1:-1] if name.isspace() else name for name in names]
            axis.set_ticklabels(shown, fontsize=7, parse_math=False)
    canvas.save(figure, path)
    print("wrote", path)


def boundary(outputs, points, labels, reach, path):
    """{title: outputs on a grid from -reach to reach} with the points, side by side."""
    figure = canvas.new_figure("maps", (3 * len(outputs), 3.2))
    for axes, (title, grid) in zip(figure.subplots(1, len(outputs), squeeze=False)[0], outputs.items()):
        axes.imshow(grid, cmap="PuOr_r", vmin=-1, vmax=1, origin="lower", extent=[-reach, reach, -reach, reach])
        axes.scatter(*zip(*points), c=labels, cmap="PuOr_r", edgecolors="black", s=15)
        axes.set(title=title)
    canvas.save(figure, path)
    print("wrote", path)
