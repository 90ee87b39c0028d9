"""Curves and heat maps, by matplotlib: an optional dependency that is imported only when something is drawn."""

import csv
import io
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..autograd import Value
from ..files import atomic_write
from ..typing import FilePath
from .labels import printable

SMOOTHING = 0.95  # of the training loss, which is noisy since each value comes from a single batch
PANELS = 144  # the most that `heads_grid` draws, 12 layers of 12 heads
LABELLED = 32  # the most tokens that fit along an axis


def loss_curve(rows: FilePath | Iterable[Mapping[str, Any]], path: FilePath) -> None:
    """Draw training and validation loss against the step, as a PNG at `path`.

    rows: the path of a CSV file, or dicts, with the columns step, train and val; an empty val was not measured.
    Raises ImportError, which tells how to install it, if matplotlib is missing, and ValueError if there are no rows."""
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


def curves(series: Mapping[str, tuple[Any, Any]], path: FilePath, xlabel: str, ylabel: str, log: str = "") -> None:
    """Draw {label: (xs, ys)} as lines with dots, a PNG at `path`. log: the logarithmic axes: "", "x", "y" or "xy".

    Raises ImportError, which tells how to install it, if matplotlib is missing."""
    figure, axes = _axes("a plot", xlabel, ylabel)
    for label, (xs, ys) in series.items():
        axes.plot(xs, ys, "o-", markersize=4, label=label)
    if "x" in log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if "y" in log:
        axes.set_yscale("log")
    _save(figure, axes, path)


def heads_grid(patterns: Any, path: FilePath, tokens: Sequence[str] | None = None, title: str | None = None) -> None:
    """Draw what each head attends to, a PNG at `path`: a row per layer, a column per head, keys from left to right.

    patterns: {label: array (nh, T, S)}, such as {"blocks.1.attn": pattern}, or a list of arrays, or a single one.
    tokens: T or S strings, written along the axes of that length if there are at most 32.
    Each head has its own scale of colours, from 0 to its largest value; or, if it has negative values as gradients do,
    from blue over white, which is 0, to red. NaN and infinity are grey.
    Raises ValueError for wrong shapes and for more than 144 panels, and ImportError, which tells how to install it, if
    matplotlib is missing."""
    layers = _layers(patterns)
    rows, columns = len(layers), max(map(len, layers.values()))
    if rows * columns > PANELS:
        raise ValueError(f"{rows} layers × {columns} heads are too many: {PANELS} panels fit into one picture")
    tokens = None if tokens is None else [printable(token) for token in tokens]
    for label, heads in layers.items():
        _, T, S = heads.shape
        if tokens is not None and len(tokens) not in (T, S):
            raise ValueError(f"{len(tokens)} tokens do not fit {label or 'a pattern'} of {T} queries and {S} keys")

    side = 1.6 if tokens is None or len(tokens) > LABELLED else 1.6 + 0.1 * len(tokens)  # inches
    figure = _figure("a grid of heads", (side * columns, side * rows + 0.3 * (title is not None)))
    if title is not None:
        figure.suptitle(title, parse_math=False)  # no mathtext anywhere, since a $ is a token like any other
    grid = figure.subplots(rows, columns, squeeze=False)
    for row, (label, heads) in zip(grid, layers.items()):
        for h, axes in enumerate(row):
            if h < len(heads):
                _heat_map(axes, heads[h], f"{label} · {h}" if label else f"head {h}", tokens)
            else:
                axes.set_axis_off()
    _write(figure, path)


def _layers(patterns):
    """{label: array (nh, T, S)} from what `heads_grid` takes."""
    if isinstance(patterns, (list, tuple)):
        patterns = {f"layer {i}": heads for i, heads in enumerate(patterns)}
    elif not isinstance(patterns, dict):
        patterns = {"": patterns}
    if not patterns:
        raise ValueError("no patterns to draw")
    layers = {}
    for label, heads in patterns.items():
        array = np.asarray(heads.detach().cpu() if isinstance(heads, Value) else heads, dtype=np.float64)
        if array.ndim != 3 or not array.size:
            raise ValueError(
                f"{label or 'a pattern'} must be (heads, queries, keys), none of them 0, got {array.shape}"
                + (": choose one of the batch" if array.ndim == 4 else "")
            )
        layers[str(label)] = array
    return layers


def _heat_map(axes, pattern, title, tokens):
    pattern = np.where(np.isfinite(pattern), pattern, np.nan)
    signed, top = bool((pattern < 0).any()), np.abs(np.nan_to_num(pattern)).max() or 1.0
    axes.imshow(
        pattern, cmap="RdBu_r" if signed else "viridis", vmin=-top if signed else 0, vmax=top, interpolation="nearest"
    )
    axes.set_facecolor("0.8")
    axes.set_title(title, fontsize=8, parse_math=False)
    axes.tick_params(labelsize=6)
    for n, set_ticks, upright in ((pattern.shape[0], axes.set_yticks, 0), (pattern.shape[1], axes.set_xticks, 90)):
        if tokens is not None and len(tokens) == n <= LABELLED:
            rotation = upright if max(map(len, tokens)) > 1 else 0
            set_ticks(range(n), tokens, rotation=rotation, parse_math=False)
        else:
            set_ticks(sorted({0, n - 1}))


def _axes(what, xlabel, ylabel):
    figure = _figure(what, (7, 4.2))
    return figure, figure.add_subplot(xlabel=xlabel, ylabel=ylabel)


def _figure(what, size):
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(f"{what} needs matplotlib: pip install '.[viz]'") from None
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure, axes, path):
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    _write(figure, path)


def _write(figure, path):
    image = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # characters that the font lacks are drawn as boxes
        figure.savefig(image, format="png")
    atomic_write(path, image.getvalue())


def _read(rows):
    if not isinstance(rows, str) and not hasattr(rows, "__fspath__"):
        return rows
    with open(rows, newline="") as file:
        return list(csv.DictReader(file))


def _smooth(values):
    """An exponential moving average, corrected for starting at 0. A NaN leaves a gap, and does not count further."""
    average, weight, result = 0.0, 0.0, []
    for value in values:
        if math.isfinite(value):
            average = SMOOTHING * average + (1 - SMOOTHING) * value
            weight = SMOOTHING * weight + (1 - SMOOTHING)
        result.append(average / weight if weight and math.isfinite(value) else math.nan)
    return result
