"""Curves, by matplotlib: an optional dependency, imported only when something is drawn."""

import csv
import io
import math

from ..checkpoint import atomic_write

SMOOTHING = 0.95  # of the training loss, whose single batches are noisy


def loss_curve(rows, path):
    """Draw training and validation loss against the step, as a PNG at `path`.

    rows: the path of a CSV file, or dicts, with the columns step, train and val; an empty val was not evaluated.
    Raises ImportError, saying how to get it, where matplotlib is missing, and ValueError when there is nothing to draw.
    """
    rows = list(_read(rows))
    if not rows:
        raise ValueError("no losses to draw")
    steps, train = [int(r["step"]) for r in rows], [float(r["train"]) for r in rows]
    val = [(int(r["step"]), float(r["val"])) for r in rows if r["val"] not in ("", None)]

    figure, axes = _axes("a loss curve", "step", "loss (nats per character)")
    axes.plot(steps, train, color="tab:blue", alpha=0.25, linewidth=0.8)
    axes.plot(steps, _smooth(train), color="tab:blue", label="training, smoothed")
    if val:
        axes.plot(*zip(*val, strict=True), "o-", color="tab:orange", markersize=4, label="validation")
        axes.annotate(f"{val[-1][1]:.3f}", val[-1], textcoords="offset points", xytext=(-4, 8), ha="right")
    _save(figure, axes, path)


def curves(series, path, xlabel, ylabel, log=""):
    """Draw {label: (xs, ys)} as lines with dots, a PNG at `path`. log: which axes are logarithmic: "", "x", "y", "xy".

    Raises ImportError, saying how to get it, where matplotlib is missing."""
    figure, axes = _axes("a plot", xlabel, ylabel)
    for label, (xs, ys) in series.items():
        axes.plot(xs, ys, "o-", markersize=4, label=label)
    if "x" in log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if "y" in log:
        axes.set_yscale("log")
    _save(figure, axes, path)


def _axes(what, xlabel, ylabel):
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(f"{what} needs matplotlib: pip install '.[viz]'") from None
    figure = Figure(figsize=(7, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot(xlabel=xlabel, ylabel=ylabel)


def _save(figure, axes, path):
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    atomic_write(path, image.getvalue())


def _read(rows):
    if not isinstance(rows, str) and not hasattr(rows, "__fspath__"):
        return rows
    with open(rows, newline="") as file:
        return list(csv.DictReader(file))


def _smooth(values):
    """An exponential moving average, corrected for starting at 0; a NaN is drawn as a gap and then forgotten."""
    average, weight, result = 0.0, 0.0, []
    for value in values:
        if math.isfinite(value):
            average = SMOOTHING * average + (1 - SMOOTHING) * value
            weight = SMOOTHING * weight + (1 - SMOOTHING)
        result.append(average / weight if weight and math.isfinite(value) else math.nan)
    return result
