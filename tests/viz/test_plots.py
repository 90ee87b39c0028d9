"""Curves and grids of heads: what is on the axes, to the number."""

import math
import sys

import numpy as np
import pytest

from minigrad import viz
from minigrad.viz.plots import smooth

from .pictures import leaf, pattern

BLUE, ORANGE = "#0072b2", "#d55e00"
ROWS = [
    dict(step=1, train=4.0, val=""),
    dict(step=2, train=2.0, val=2.0625),
    dict(step=3, train=math.nan, val=None),
    dict(step=4, train=1.0, val=3.5),
    dict(step=5, train=1.0, val=math.nan),
]


@pytest.fixture
def drawn(monkeypatch):
    """The matplotlib figures, which are not written: that takes longer than all else."""
    pytest.importorskip("matplotlib")
    from minigrad.viz import canvas

    written = []
    monkeypatch.setattr(canvas, "save", lambda figure, path: written.append(figure))
    return written


def texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


# --------------------------------------------------------------------------------------------------------------- curves


def test_a_loss_curve_shows_what_was_given(tmp_path, figures):
    viz.loss_curve(ROWS, tmp_path / "a.png")
    (axes,) = figures[0].axes
    raw, smoothed, val, best = axes.lines
    assert raw.get_xdata().tolist() == smoothed.get_xdata().tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(raw.get_ydata(), [4, 2, math.nan, 1, 1])
    np.testing.assert_array_equal(val.get_xydata(), [[2, 2.0625], [4, 3.5], [5, math.nan]])
    assert best.get_xydata().tolist() == [[2, 2.0625]] and best.get_markersize() > 2 * val.get_markersize()
    assert texts(axes) == ["training, each step", "training, smoothed", "validation", "lowest: 2.062 at step 2"]
    assert axes.get_xlabel() == "step" and axes.get_ylabel() == "loss (nats per character)"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    below = axes.get_legend().get_window_extent().y0
    assert below >= axes.get_window_extent().y1 - 1  # no data is hidden by the legend


def test_a_loss_curve_of_a_file_and_without_validation(tmp_path, drawn):
    path = tmp_path / "losses.csv"
    path.write_text("step,train,val,lr\n1,4,,1\n2,2,3.5,1\n")
    viz.loss_curve(path, tmp_path / "a.png")
    assert drawn[-1].axes[0].lines[0].get_ydata().tolist() == [4, 2]
    assert drawn[-1].axes[0].lines[2].get_xydata().tolist() == [[2, 3.5]]
    viz.loss_curve(iter(ROWS[:1]), tmp_path / "b.png")
    (axes,) = drawn[-1].axes
    assert len(texts(axes)) == len(axes.lines) == 2 and axes.lines[0].get_marker() == "."  # a point is no line
    path.write_text("step,train,val\n")
    for nothing in ([], path):
        with pytest.raises(ValueError, match="no losses to draw"):
            viz.loss_curve(nothing, tmp_path / "c.png")
    assert len(drawn) == 2


def test_smoothing_is_a_mean_that_looks_ahead_as_far_as_back():
    ys = np.random.default_rng(0).normal(size=200)
    ys[[50, 51, 90]] = math.nan, math.inf, -math.inf
    at, found = smooth(ys)
    assert at.tolist() == [*range(200)]
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(ys))
    for i in (0, 1, 2, 5, 15, 49, 52, 120, 195, 199):
        reach = min(10, i, 199 - i)
        around = ys[i - reach : i + reach + 1]
        assert found[i] == pytest.approx(around[np.isfinite(around)].mean(), rel=1e-9), i
    line = 7 - 0.003 * np.arange(2001)
    at, found = smooth(line)
    assert len(at) == 500 and at[0] == 0 and at[-1] == 2000
    np.testing.assert_allclose(found, line[at], rtol=1e-12)
    assert smooth([])[1].tolist() == [] and smooth([7.0, 5.0])[1].tolist() == [7, 5]
    ys = np.full(200, 2.0)
    ys[50] = 1e20  # is not felt further off
    assert smooth(ys)[1][[30, 70, 199]].tolist() == [2, 2, 2]


@pytest.mark.parametrize("log", ["", "x", "y", "xy"])
def test_curves(tmp_path, drawn, log):
    series = {"one": ([1, 2, 4], [3.0, 2.0, 1.0]), "two": ([1, 4], [0.5, 0.25])}
    viz.curves(series, tmp_path / "a.png", "size", "error", log)
    (axes,) = drawn[0].axes
    looks = ("o", BLUE), ("s", ORANGE)  # told apart without colours too
    for line, (label, (xs, ys)), look in zip(axes.lines, series.items(), looks, strict=True):
        assert line.get_label() == label and (line.get_marker(), line.get_color()) == look
        assert line.get_xdata().tolist() == xs and line.get_ydata().tolist() == ys
    assert axes.get_xlabel() == "size" and axes.get_ylabel() == "error" and texts(axes) == ["one", "two"]
    assert [axes.get_xscale(), axes.get_yscale()] == ["log" if each in log else "linear" for each in "xy"]
    if "x" in log:
        assert axes.xaxis.get_transform().base == 2 and axes.xaxis.get_major_formatter()(4) == "4"


def test_curves_of_several_runs_of_many_points_and_of_none(tmp_path, drawn):
    viz.curves({"mean": ([1, 2], [[1.0, 2.0], [3.0, 6.0]])}, tmp_path / "a.png", "x", "y")
    first, second, mean = drawn[0].axes[0].lines
    assert [each.get_ydata().tolist() for each in (first, second, mean)] == [[1, 2], [3, 6], [2, 4]]
    assert first.get_linestyle() == "None" and first.get_alpha() < 0.5 and texts(drawn[0].axes[0]) == ["mean"]
    xs = range(100)
    viz.curves({"a": (xs, [x - 50 for x in xs]), "b": ([0, 1], [1, 2])}, tmp_path / "a.png", "x", "y")
    a, b, zero = drawn[1].axes[0].lines
    assert a.get_marker() in ("", "None") and b.get_marker() == "s" and list(zero.get_ydata()) == [0, 0]
    viz.curves({}, tmp_path / "a.png", "x", "y")
    assert drawn[2].axes[0].get_legend() is None


def test_small_multiples(tmp_path, drawn):
    xs, runs = [1, 2, 3], np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]])
    series = {name: (xs, runs + i) for i, name in enumerate(["nothing", "$K", "V", "Q", "all"])}
    viz.small_multiples(series, tmp_path / "a.png", "step", "score")
    panels, unused = drawn[0].axes[:5], drawn[0].axes[5:]
    assert [axes.get_title("left") for axes in panels] == list(series)
    assert not any(axes.get_visible() for axes in unused)
    assert len({(*axes.get_xlim(), *axes.get_ylim()) for axes in panels}) == 1
    for i, axes in enumerate(panels):
        grey, lines = axes.lines[: i > 0], axes.lines[i > 0 :]
        assert [line.get_ydata().tolist() for line in grey] == [[2, 3, 4]] * (i > 0)  # the mean of the first
        assert [line.get_ydata().tolist() for line in lines] == [*(runs + i).tolist(), (runs + i).mean(0).tolist()]


# ------------------------------------------------------------------------------------------------------- grids of heads


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_a_grid_has_a_row_per_layer_and_a_column_per_head(tmp_path, figures):
    a, b = pattern(3, 4, 4).numpy(), np.linspace(-1, 0.5, 32).reshape(2, 4, 4)
    viz.heads_grid({"blocks.0.attn": a, "blocks.1.attn": b}, tmp_path / "a.png", title="$x")
    viz.heads_grid([leaf(2, 3, 5), pattern(1, 6, 6)], tmp_path / "a.png")
    viz.heads_grid(pattern(1, 3, 3), tmp_path / "a.png")
    titles = [[axes.get_title() for axes in figure.axes] for figure in figures]
    assert titles[0] == [f"blocks.{layer}.attn · {h}" for layer, n in ((0, 3), (1, 2)) for h in range(n)] + [""]
    assert titles[1:] == [["layer 0 · 0", "layer 0 · 1", "layer 1 · 0", ""], ["head 0"]]
    panels = figures[0].axes[:5]
    for axes, heads in zip(panels, [*a, *b], strict=True):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), heads)
        low = -abs(heads).max() if heads.min() < 0 else 0
        assert image.get_clim() == (pytest.approx(low), pytest.approx(abs(heads).max()))
    assert panels[0].images[0].cmap.name != panels[3].images[0].cmap.name
    assert [axes.get_xlabel() for axes in panels[2:]] == [f"0 … {a[2].max():.3g}", "±1", "±0.5"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_tokens_of_a_grid_can_be_seen(tmp_path, figures):
    keys = ["$a$", "\n", "\x00", "日", " the", ""]
    viz.heads_grid(pattern(1, 3, 6), tmp_path / "a.png", tokens=keys)
    viz.heads_grid(pattern(1, 3, 3), tmp_path / "a.png", tokens=(["q", "r", "s"], ["k", "l", "m"]))
    viz.heads_grid(pattern(1, 65, 65), tmp_path / "a.png", tokens=["x"] * 65)  # too many to write
    across, both, neither = (figure.axes[0] for figure in figures)
    assert labels(across.xaxis) == ["$a$", "⏎", "\\x00", "日", "␣the", "∅"] and labels(across.yaxis) == ["0", "2"]
    assert labels(both.yaxis) == ["q", "r", "s"] and labels(both.xaxis) == ["k", "l", "m"]
    assert labels(neither.xaxis) == labels(neither.yaxis) == ["0", "64"]
    assert {tick.get_rotation() for tick in across.xaxis.get_ticklabels()} == {90}
    for axis in (both.xaxis, both.yaxis, across.yaxis):
        assert {tick.get_rotation() for tick in axis.get_ticklabels()} == {0}


def test_the_colours_of_a_grid(tmp_path, drawn):
    x = np.tril(np.array([[[1.0, 0, 0], [0.25, 0.75, 0], [0, 0.04, 0.96]], [[1, 0, 0], [1, 0, 0], [1, np.nan, 0]]]))
    viz.heads_grid({"pattern": x, "gradient": -x}, tmp_path / "a.png")
    one, other, negative = (axes.images[0] for axes in drawn[0].axes[:3])

    def rgb(image, value):
        return (255 * np.array(image.cmap(image.norm(value)))[..., :3]).round().tolist()

    assert one.get_array().mask.tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    assert rgb(one, 0.25) == pytest.approx((255 * np.array(one.cmap(0.5))[:3]).tolist(), abs=1)  # by its root
    assert rgb(other, other.get_array())[2][1] == [255, 0, 200] and min(rgb(one, 0)) > 245  # magenta; white
    assert rgb(negative, 0.0) == pytest.approx([245] * 3, abs=1) and rgb(negative, -1.0)[1] > rgb(negative, -1.0)[0]


def test_what_cannot_be_drawn_is_an_error_that_says_why(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    for patterns, tokens, message in (
        (np.ones((3, 3)), None, r"a pattern must be \(heads, queries, keys\).* got \(3, 3\)"),
        ({"attn": np.ones((2, 4, 3, 3))}, None, r"attn must be .* got \(2, 4, 3, 3\): choose one of the batch"),
        (np.ones((0, 3, 3)), None, r"none of them 0, got \(0, 3, 3\)"),
        ({}, None, "no patterns to draw"),
        (np.ones((2, 3, 5)), ["a"] * 4, "4 tokens do not fit a pattern of 3 queries and 5 keys"),
        (np.ones((2, 3, 5)), (["a"] * 3, ["b"] * 3), "3 and 3 tokens do not fit a pattern of 3 queries and 5 keys"),
    ):
        with pytest.raises(ValueError, match=message):
            viz.heads_grid(patterns, path, tokens=tokens)
    assert not path.exists()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="needs matplotlib: pip install"):
        viz.heads_grid(np.ones((1, 2, 2)), path)
