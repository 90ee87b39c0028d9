"""Curves, by matplotlib."""

import csv
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..typing import FilePath
from . import canvas

WINDOW = 1 / 20  # part of all steps that smoothing looks to either side
POINTS = 500  # most points of a smoothed curve: a picture of this width shows no more
MARKERS = "o", "s", "^", "D", "v", "P", "X"
DOTTED = 60  # the most points that get dots: more would run into one another


def loss_curve(rows: FilePath | Iterable[Mapping[str, Any]], path: FilePath) -> None:
    """Draw training and validation loss against the step, as a PNG at `path`. The lowest validation loss is marked.

    rows: the path of a CSV file, or dicts, with the columns step, train and val; an empty val was not measured.
    Raises ImportError, which tells how to install it, if matplotlib is missing, and ValueError if there are no rows."""
    rows = list(_read(rows))
    if not rows:
        raise ValueError("no losses to draw")
    steps, train = [int(r["step"]) for r in rows], [float(r["train"]) for r in rows]
    val = [(int(r["step"]), float(r["val"])) for r in rows if r["val"] not in ("", None)]

    figure, axes = _axes("a loss curve", "step", "loss (nats per character)")
    blue, orange, *_ = canvas.COLOURS
    alone = "." if len(rows) < 3 else ""  # a line through a single point cannot be seen
    axes.plot(steps, train, color=blue, alpha=0.3, linewidth=0.8, marker=alone, label="training, each step")
    at, means = smooth(train)
    axes.plot(np.array(steps)[at], means, color=blue, label="training, smoothed")
    if val:
        axes.plot(*zip(*val, strict=True), "o-", color=orange, markersize=4, label="validation")
    if finite := [point for point in val if math.isfinite(point[1])]:
        step, best = min(finite, key=lambda point: point[1])
        ring = {"markersize": 11, "markerfacecolor": "none", "markeredgewidth": 1.6, "linestyle": "none"}
        axes.plot(step, best, "o", color=orange, **ring, label=f"lowest: {best:.3f} at step {step:,}")
    _furnish(axes)
    canvas.save(figure, path)


def smooth(ys):
    """(at, means): the mean around each of at most POINTS places, of a tenth of all numbers. Near both ends it is of
    fewer, as many after it as before. So the curve does not trail, and a straight line stays as it is.

    A NaN or infinity leaves a gap, and does not count."""
    ys = np.asarray(ys, np.float64)
    at = np.unique(np.linspace(0, len(ys) - 1, min(len(ys), POINTS)).astype(int))
    means = np.full(len(at), np.nan)
    for n, i in enumerate(at):
        if np.isfinite(ys[i]):
            reach = min(i, len(ys) - 1 - i, int(len(ys) * WINDOW))
            around = ys[i - reach : i + reach + 1]
            means[n] = around[np.isfinite(around)].mean()
    return at, means


def curves(series: Mapping[str, tuple[Any, Any]], path: FilePath, xlabel: str, ylabel: str, log: str = "") -> None:
    """Draw {label: (xs, ys)} as lines, a PNG at `path`; up to 60 points get dots. log: the logarithmic axes: "", "x",
    "y" or "xy".

    ys: numbers, or of several runs an array (runs, len(xs)): then the line is their mean, with a pale dot for each run.
    Raises ImportError, which tells how to install it, if matplotlib is missing."""
    figure, axes = _axes("a plot", xlabel, ylabel)
    for i, (label, (xs, ys)) in enumerate(series.items()):
        marker = MARKERS[i % len(MARKERS)] if len(xs) <= DOTTED else ""
        look = {"color": canvas.COLOURS[i % len(canvas.COLOURS)], "marker": marker}
        if np.ndim(ys) == 2:
            for run in ys:
                axes.plot(xs, run, **look, markersize=4, linestyle="none", alpha=0.35, markeredgewidth=0)
            ys = np.mean(ys, axis=0)
        axes.plot(xs, ys, **look, markersize=4.5, label=label)
    if "x" in log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if "y" in log:
        axes.set_yscale("log")
    elif axes.dataLim.y0 < 0 < axes.dataLim.y1:
        axes.axhline(0, color="0.4", linewidth=0.8, zorder=1)
    _furnish(axes)
    canvas.save(figure, path)


def small_multiples(series: Mapping[str, tuple[Any, Any]], path: FilePath, xlabel: str, ylabel: str) -> None:
    """Draw {label: (xs, runs)}, runs (n, len(xs)), as a PNG at `path`: a panel for each label, on one scale, with a
    thin line for each run and a thick one for their mean. The first label's mean is in the others too, in grey.

    Raises ImportError, which tells how to install it, if matplotlib is missing."""
    columns = min(len(series), 4)
    rows = -(-len(series) // columns)
    figure = canvas.new_figure("a plot", (2.2 * columns, 1.8 * rows + 0.4))
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    first = next(iter(series.values()))
    for axes, (label, (xs, runs)) in zip(panels, series.items()):
        if runs is not first[1]:
            axes.plot(first[0], np.mean(first[1], axis=0), color="0.6", linewidth=1)
        axes.plot(xs, np.transpose(runs), color=canvas.COLOURS[0], linewidth=0.6, alpha=0.5)
        axes.plot(xs, np.mean(runs, axis=0), color=canvas.COLOURS[0], linewidth=2)
        axes.set_title(label, fontsize=9, loc="left", parse_math=False)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(series) :]:
        axes.set_visible(False)
    figure.supxlabel(xlabel, fontsize=10)
    figure.supylabel(ylabel, fontsize=10)
    canvas.save(figure, path)


def _axes(what, xlabel, ylabel):
    figure = canvas.new_figure(what, (7, 4.4))
    return figure, figure.add_subplot(xlabel=xlabel, ylabel=ylabel)


def _furnish(axes):
    """The grid, and the legend: above the axes, where it hides no data."""
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if labels := axes.get_legend_handles_labels()[1]:
        longest = max(map(len, labels))
        fit = {"ncols": min(len(labels), max(1, 88 // (longest + 7))), "fontsize": min(10, 600 / max(longest, 1))}
        legend = axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, **fit)
        for text in legend.get_texts():
            text.set_parse_math(False)  # a $ is a character like any other


def _read(rows):
    if not isinstance(rows, str) and not hasattr(rows, "__fspath__"):
        return rows
    with open(rows, newline="") as file:
        return list(csv.DictReader(file))
