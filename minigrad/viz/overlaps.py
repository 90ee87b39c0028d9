"""Coinciding curves, drawn so that each is visible: with alternating dashes, and dots within dots."""

import itertools

import numpy as np

CLOSE = 0.006  # of the axes' height, about a line's width: curves nearer than that hide each other
DASH = 5  # times the width of a line
RING = 3  # points: how much larger a dot is than the one on top of it


def unhide(axes, lines):
    """Redraw these matplotlib lines where one hides another. Call it last: nothing may change afterwards."""
    from matplotlib.collections import LineCollection

    axes.autoscale_view()
    to_axes = axes.transScale + axes.transLimits  # from 0 to 1, whatever the scale
    heights = []
    for line in lines:
        points = to_axes.transform(line.get_xydata().astype(float))
        heights.append(dict(zip(line.get_xdata().tolist(), points[:, 1].tolist())))
    for number, line in enumerate(lines):
        xs = line.get_xdata().tolist()
        there = [_sharing(heights, number, [x]) for x in xs]
        along = [_sharing(heights, number, pair) for pair in itertools.pairwise(xs)]
        if all(group == [number] for group in there):
            continue
        for deep in range(1, len(lines)):  # how many dots lie on this one
            under = [i for i, group in enumerate(there) if len(group) - 1 - group.index(number) == deep]
            if under and line.get_marker():
                size = line.get_markersize() + RING * deep
                look = {"color": line.get_color(), "marker": line.get_marker(), "markersize": size}
                axes.plot(*line.get_xydata()[under].T, linestyle="none", zorder=2 - 0.01 * deep, **look)
        paths, dashes = [], []
        for i, group in enumerate(along):
            if i == 0 or group != along[i - 1]:  # else the dashes go on
                paths.append([line.get_xydata()[i]])
                turn, of = group.index(number), len(group)
                dashes.append((-DASH * turn, (DASH, DASH * (of - 1))) if of > 1 else "-")
            paths[-1].append(line.get_xydata()[i + 1])
        look = {"colors": line.get_color(), "linewidths": line.get_linewidth(), "zorder": 1.95}
        axes.add_collection(LineCollection([np.array(path) for path in paths], linestyles=dashes, **look))
        line.set_linestyle("none")  # its dots stay


def _sharing(heights, number, xs):
    """The numbers of the lines that are as high as this one at all of these xs, itself among them."""
    own = heights[number]
    return [
        other
        for other, each in enumerate(heights)
        if other == number or all(x in each and abs(each[x] - own[x]) < CLOSE for x in xs)
    ]
