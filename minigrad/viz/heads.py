"""Patterns of heads as heat maps, by matplotlib."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autograd import Value
from ..typing import FilePath
from . import canvas
from .labels import visible

LABELLED = 64  # the most tokens that are written along an axis
SIDES = 1.7, 4.0  # inches of a map, at least and at most; where there are more cells, each pixel is a mean of some
MASKED, NOT_FINITE = "#e3e6ea", "#ff00c8"


def heads_grid(
    patterns: Any,
    path: FilePath,
    tokens: Sequence[str] | tuple[Sequence[str], Sequence[str]] | None = None,
    title: str | None = None,
) -> None:
    """Draw what each head attends to, a PNG at `path`: a row per layer, a column per head, queries from top to bottom
    and keys from left to right.

    patterns: {label: array (nh, T, S)}, such as {"blocks.1.attn": pattern}, or a list of arrays, or a single one.
    tokens: T or S strings, written along the axes of that length if there are at most 64. For cross-attention a pair,
        T of the queries and S of the keys.
    Each head has its own scale, from white, which is 0, to its largest value, written below; if its layer has negative
    values, as gradients do, from green over white to brown. A colour goes with the square root of a value, so that
    small ones can be seen too. Cells that are 0 in all heads of a layer, as those that a mask hides, are grey; NaN and
    infinity are magenta.
    Raises ValueError for wrong shapes, and ImportError, which tells how to install it, if matplotlib is missing."""
    layers = _layers(patterns)
    rows, columns = len(layers), max(map(len, layers.values()))
    queries, keys = (None, None) if tokens is None else _along_both(tokens, layers)
    longest = max(max(heads.shape[1:]) for heads in layers.values())
    wanted = longest / canvas.DPI if tokens is None or longest > LABELLED else 0.1 * longest  # a token needs 0.1
    side = min(max(wanted, SIDES[0]), SIDES[1])
    figure = canvas.new_figure("a grid of heads", (max(side * columns, 3.4), side * rows + 0.3))
    if title is not None:  # no mathtext anywhere, since a $ is a token like any other
        figure.suptitle(title, fontsize=min(12, 110 * figure.get_figwidth() / max(len(title), 1)), parse_math=False)
    panels = figure.subplots(rows, columns, squeeze=False)
    for row, (label, heads) in zip(panels, layers.items()):
        for h, axes in enumerate(row):
            if h >= len(heads):
                axes.set_axis_off()
                continue
            _heat_map(axes, heads[h], (heads == 0).all(0), bool((heads < 0).any()))
            axes.set_title(f"{label} · {h}" if label else f"head {h}", fontsize=7, parse_math=False)
            axes.xaxis.tick_top()
            _label(axes.yaxis, heads.shape[1], queries, upright=True)
            _label(axes.xaxis, heads.shape[2], keys, upright=keys is not None and max(map(len, keys)) == 1)
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


def _heat_map(axes, pattern, masked, signed):
    from matplotlib import colormaps
    from matplotlib.colors import FuncNorm

    finite = np.isfinite(pattern)
    top = abs(pattern[finite]).max(initial=0) or 1.0
    roots = (lambda x: np.sign(x) * np.sqrt(abs(x))), (lambda x: np.sign(x) * x**2)
    axes.imshow(
        np.ma.masked_array(np.where(finite, pattern, 4 * top), masked),
        cmap=colormaps["BrBG_r" if signed else "Blues"].with_extremes(bad=MASKED, over=NOT_FINITE),
        norm=FuncNorm(roots, -top if signed else 0, top),
        interpolation="antialiased",
    )
    axes.tick_params(length=0, pad=2, labelsize=5.5)
    axes.set_xlabel(f"±{top:.3g}" if signed else f"0 … {top:.3g}", fontsize=6, labelpad=2)


def _label(axis, n, tokens, upright):
    """Write the tokens along an axis, if there are as many, or else the first position and the last."""
    if tokens is not None and len(tokens) == n <= LABELLED:
        axis.set_ticks(range(n), tokens, rotation=0 if upright else 90, parse_math=False)
    else:
        axis.set_ticks(sorted({0, n - 1}))
