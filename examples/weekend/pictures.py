"""Pictures for the steps: graphs by Graphviz, maps by matplotlib."""

from minigrad.viz import canvas, graph


def draw(end, path, places=()):
    """The graph behind a Value, with data and grad. places: orders, whose numbers are written into each node."""
    notes = {node: " | ".join(str(order.index(node) + 1) for order in places) for node in (places[0] if places else ())}
    print("wrote", *graph(end, notes=notes).save(path))


def maps(arrays, path, top=None, names=None):
    """{title: matrix} as maps side by side, purple below 0 and orange above. top: the number of the darkest orange.
    names: of rows and columns, instead of their numbers."""
    size = max(3, 0.12 * len(names or ()))
    figure = canvas.new_figure("maps", (size * len(arrays), size + 0.2))
    for axes, (title, a) in zip(figure.subplots(1, len(arrays), squeeze=False)[0], arrays.items()):
        most = top or abs(a).max() or 1
        figure.colorbar(axes.imshow(a, cmap="PuOr_r", vmin=-most, vmax=most), ax=axes, shrink=0.7)
        axes.set(title=title, xticks=range(a.shape[1]), yticks=range(a.shape[0]))
        if names:
            shown = [repr(name)[1:-1] if name.isspace() else name for name in names]
            axes.set_xticklabels(shown, fontsize=7, parse_math=False)
            axes.set_yticklabels(shown, fontsize=7, parse_math=False)
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
