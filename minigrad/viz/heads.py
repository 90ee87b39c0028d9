"""Patterns of heads as heat maps, by matplotlib, in the colours of the HTML report."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autograd import Value
from ..typing import FilePath
from . import canvas
from .labels import visible

# Those of the report's page on a light background: minigrad/study/report/page/numbers.js and style.css.
PATTERN = "#ffffff", "#c9dcf2", "#7fb0de", "#3a78ba", "#17457f", "#0a2347"
GRADIENT = "#075049", "#35978f", "#a5d6cf", "#ffffff", "#f0c9a0", "#cf7a2c", "#6f3806"
NOT_FINITE, HIDDEN, LINE, MUTED = "#ff00c8", "#f5f6f8", "#d9dee6", "#5b6675"
PANELS = 144  # the most that are drawn, 12 layers of 12 heads
LABELLED = 64  # the most tokens that are written along an axis
LANES = 16  # more short tokens than that take turns in two rows, or columns, so that cells need not be as wide as text
WIDEST = 8000  # pixels of a picture: programs refuse larger ones
SIDE = 1.25  # inches of a map at least
LARGEST = 1500  # pixels of a map at most; where there are more cells, each pixel is a mean of some
CROWDED = 32  # panels: in a larger grid only those at its edges have tokens, which are those of the others too
NAME, SMALL = 8, 5.5  # points: the size of a head's name, and of tokens
LETTER, LINE_HEIGHT = 0.62 * SMALL / 72, 1.35 * SMALL / 72  # inches, of a token
FOOT = 0.2  # inches below a map, for its largest value
BAR = 0.6  # inches that the scale of the colours takes


def heads_grid(
    patterns: Any,
    path: FilePath,
    tokens: Sequence[str] | tuple[Sequence[str], Sequence[str]] | None = None,
    title: str | None = None,
) -> None:
    """Draw what each head attends to, a PNG at `path`: a row per layer, a column per head, queries from top to bottom
    and keys from left to right.

    patterns: {label: array (nh, T, S)}, such as {"blocks.1.attn": pattern}, or a list of arrays, or a single one.
    tokens: T or S strings, written along the axes of that length if there are at most 64; in a grid of more than 32
        panels only along its left and upper edges. For cross-attention a pair, T of the queries and S of the keys.
    Colours are those of the HTML report: each head has its own scale, from white, which is 0, to its largest value; or,
    if its layer has negative values as gradients do, from green over white to orange. As there, a colour goes with the
    square root of a value, so that small ones can be seen too. Cells that are 0 in all heads of a layer, as those that
    a mask hides, are hatched; NaN and infinity are magenta.
    Raises ValueError for wrong shapes and for more than 144 panels, and ImportError, which tells how to install it, if
    matplotlib is missing."""
    layers = _layers(patterns)
    rows, columns = len(layers), max(map(len, layers.values()))
    if rows * columns > PANELS:
        raise ValueError(f"{rows} layers × {columns} heads are too many: {PANELS} panels fit into one picture")
    written = None if tokens is None else _along_both(tokens, layers)
    signed = {label: bool((heads < 0).any()) for label, heads in layers.items()}
    kinds = list(dict.fromkeys(signed.values()))
    if written is not None and max(map(len, written)) > LABELLED:
        written = None
    left, above = _margins(layers, written)
    room = (WIDEST / canvas.DPI - 0.5) / max(rows, columns) - left - above - FOOT
    if room < _side(layers, written):
        written = None
    side = min(_side(layers, written), room)
    queries, keys = written or (None, None)
    wide, high, head = left + side + 0.08, above + side + FOOT, 0.05 if title is None else 0.35
    width, height = max(wide * columns + 0.05, 3.4), high * rows + BAR * len(kinds) + head
    figure = canvas.new_figure("a grid of heads", (width, height), layout=None)
    if title is not None:  # no mathtext anywhere, since a $ is a token like any other
        size = _fitting(title, width, 12)
        figure.suptitle(title, fontsize=size, y=1 - 0.1 / height, va="top", parse_math=False)
    scales = {}
    for row, (label, heads) in enumerate(layers.items()):
        unseen = (heads == 0).all(0)  # (T, S)
        each = side * canvas.DPI / max(unseen.shape)  # pixels of a cell: whole ones, so that all look alike
        tall, broad = (n * (each if each < 1 else int(each)) / canvas.DPI for n in unseen.shape)
        for h, pattern in enumerate(heads):
            x = (width - wide * columns) / 2 + wide * h + left + (side - broad) / 2
            y = height - head - high * row - above - tall
            axes = figure.add_axes((x / width, y / height, broad / width, tall / height))
            scales[signed[label]] = _heat_map(axes, pattern, unseen, signed[label])
            everywhere = rows * columns <= CROWDED
            _label(axes.yaxis, len(pattern), queries, everywhere or h == 0)
            _label(axes.xaxis, len(pattern[0]), keys, everywhere or row == 0)
            name = f"{label} · {h}" if label else f"head {h}"
            axes.set_title(name, fontsize=_fitting(name, wide, NAME), parse_math=False, pad=3)
    for n, kind in enumerate(kinds):
        shown = min(2.4, width - 0.8)
        place = (width - shown) / 2 / width, (BAR * (len(kinds) - n) - 0.2) / height, shown / width, 0.1 / height
        _scale(figure, scales[kind], kind, place)
    canvas.save(figure, path)


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


def _along_both(tokens, layers):
    """[tokens of the queries, tokens of the keys], from what `heads_grid` takes."""
    pair = isinstance(tokens, tuple) and len(tokens) == 2 and not isinstance(tokens[0], str)
    written = [[visible(token) for token in axis] for axis in (tokens if pair else (tokens, tokens))]
    for label, heads in layers.items():
        fits = [len(axis) == n for axis, n in zip(written, heads.shape[1:])]
        if not (all(fits) if pair else any(fits)):
            numbers, (_, T, S) = " and ".join(str(len(axis)) for axis in written[: 1 + pair]), heads.shape
            raise ValueError(f"{numbers} tokens do not fit {label or 'a pattern'} of {T} queries and {S} keys")
    return written


def _side(layers, tokens):
    """How many inches the longer side of a map needs: a pixel for each cell, and room for the tokens."""
    longest = max(max(heads.shape[1:]) for heads in layers.values())
    side = max(SIDE, min(longest, LARGEST) / canvas.DPI)
    if tokens is not None:
        side = max(side, *(len(axis) * (0.059 if _in_lanes(axis) else 0.1) for axis in tokens))
    each = side * canvas.DPI / longest  # pixels of a cell, a whole number if it may be
    return max(SIDE, (math.ceil(each - 1e-9) if each >= 1 else each) * longest / canvas.DPI)


def _margins(layers, tokens):
    """(left of a map, above it), in inches: what its labels take."""
    numbers = max(len(str(heads.shape[1] - 1)) for heads in layers.values()) * LETTER
    if tokens is None:
        return numbers + 0.06, 0.28
    queries, keys = ((_in_lanes(axis), max(map(len, axis)) * LETTER) for axis in tokens)
    left = 2 * queries[1] + 0.1 if queries[0] else max(queries[1], numbers) + 0.06
    return left, 0.2 + (2 * LINE_HEIGHT if keys[0] else max(LINE_HEIGHT, keys[1]))


def _fitting(text, width, size):
    """The font size in points, at most `size`, at which a line of text is at most `width` inches wide."""
    return min(size, 72 * width / (0.62 * max(len(text), 1)))


def _in_lanes(tokens):
    return len(tokens) > LANES and max(map(len, tokens)) <= 2


def _heat_map(axes, pattern, unseen, signed):
    """Draw one head. Returns the image, for the scale of its kind."""
    from matplotlib.colors import FuncNorm, LinearSegmentedColormap

    finite = np.isfinite(pattern)
    top = abs(pattern[finite]).max(initial=0) or 1.0
    roots = (lambda x: np.sign(x) * np.sqrt(abs(x))), (lambda x: np.sign(x) * x**2)
    axes.patch.set(facecolor=HIDDEN, hatch="//////", edgecolor=LINE, linewidth=0)  # what shows where no cell is drawn
    image = axes.imshow(
        np.ma.masked_array(pattern, unseen | ~finite),
        cmap=LinearSegmentedColormap.from_list("gradient" if signed else "pattern", GRADIENT if signed else PATTERN),
        norm=FuncNorm(roots, -top if signed else 0, top),
        interpolation="nearest" if pattern.shape[1] <= axes.bbox.width + 1 else "antialiased",
    )
    if not finite.all():
        rgba = np.where(finite[..., None], 0.0, [int(NOT_FINITE[i : i + 2], 16) / 255 for i in (1, 3, 5)] + [1.0])
        axes.imshow(rgba, interpolation="nearest")
    axes.spines[:].set(color=LINE)
    axes.xaxis.tick_top()
    axes.tick_params(which="both", length=0, pad=2, labelsize=SMALL, labelcolor=MUTED, labelfontfamily="monospace")
    axes.set_xlabel(f"±{top:.3g}" if signed else f"0 … {top:.3g}", fontsize=6, color=MUTED, labelpad=2)
    return image


def _label(axis, n, tokens, here):
    """Write the tokens along an axis, if there are as many, or else the first position and the last."""
    if tokens is None or len(tokens) != n:
        axis.set_ticks(sorted({0, n - 1}))
        return
    if not here:
        axis.set_ticks([])
        return
    lanes = 2 if _in_lanes(tokens) else 1
    upright = axis.axis_name == "y" or lanes > 1 or max(map(len, tokens)) == 1
    for lane in range(lanes):
        places = range(lane, len(tokens), lanes)
        rotation = 0 if upright else 90
        axis.set_ticks(
            places, [tokens[i] for i in places], minor=lane > 0, rotation=rotation, rotation_mode="anchor",
            parse_math=False, **({} if upright else {"ha": "left", "va": "center"}),
        )  # fmt: skip
    if lanes > 1:
        wide = LETTER * max(map(len, tokens)) if axis.axis_name == "y" else LINE_HEIGHT
        axis.set_tick_params(which="minor", pad=3 + 72 * wide)


def _scale(figure, image, signed, place):
    """What the colours mean."""
    bar = figure.colorbar(image, cax=figure.add_axes(place), orientation="horizontal")
    shares = (-1, -0.5, -0.1, 0, 0.1, 0.5, 1) if signed else (0, 0.1, 0.25, 0.5, 1)
    bar.set_ticks([share * image.norm.vmax for share in shares], labels=[f"{share:g}" for share in shares])
    bar.ax.tick_params(length=2, labelsize=6, labelcolor=MUTED)
    bar.set_label("query ↓  key →   share of each head's largest, given below it", fontsize=6, color=MUTED, labelpad=2)
    bar.outline.set(edgecolor=LINE)
