"""viz.loss_curve, viz.curves and the frame of viz.heads_grid: what is on the axes, to the number."""

import math

import numpy as np
import pytest

from minigrad import viz

BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"


@pytest.fixture
def drawn(monkeypatch):
    """The matplotlib figures, which are not written: that takes longer than all else."""
    pytest.importorskip("matplotlib")
    from minigrad.viz import canvas

    written = []
    monkeypatch.setattr(canvas, "save", lambda figure, path: written.append(figure))
    return written


ROWS = [
    dict(step=1, train=4.0, val=""),
    dict(step=2, train=2.0, val=2.0625),
    dict(step=3, train=math.nan, val=None),
    dict(step=4, train=1.0, val=3.5),
    dict(step=5, train=1.0, val=math.nan),
]


def header(path):
    """(width, height, bits of a channel, colour type) of a PNG."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    return *np.frombuffer(data[16:24], ">u4").tolist(), data[24], data[25]


def texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_loss_curve_shows_what_was_given(tmp_path, figures):
    viz.loss_curve(ROWS, tmp_path / "a.png")
    (axes,) = figures[0].axes
    raw, smooth, val, best = axes.lines
    assert raw.get_xdata().tolist() == smooth.get_xdata().tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(raw.get_ydata(), [4, 2, math.nan, 1, 1])
    assert np.isfinite(smooth.get_ydata()).tolist() == [True, True, False, True, True]
    np.testing.assert_array_equal(val.get_xydata(), [[2, 2.0625], [4, 3.5], [5, math.nan]])
    assert val.get_marker() == best.get_marker() == "o" and best.get_markersize() > 2 * val.get_markersize()
    assert best.get_xydata().tolist() == [[2, 2.0625]] and best.get_markerfacecolor() == "none"
    assert texts(axes) == ["training, each step", "training, smoothed", "validation", "lowest: 2.062 at step 2"]
    assert axes.get_xlabel() == "step" and axes.get_ylabel() == "loss (nats per character)" and not axes.texts
    assert raw.get_color() == smooth.get_color() == BLUE and raw.get_alpha() < 0.5
    assert val.get_color() == best.get_color() == ORANGE
    assert not axes.spines["top"].get_visible() and not axes.spines["right"].get_visible()
    assert axes.spines["left"].get_visible() and axes.xaxis.get_gridlines()[0].get_visible()
    assert header(tmp_path / "a.png") == (840, 528, 8, 6)  # true colour, with alpha
    below = axes.get_legend().get_window_extent().y0
    assert below >= axes.get_window_extent().y1 - 1  # no data is hidden by the legend


def test_a_loss_curve_of_a_file_and_without_validation(tmp_path, drawn):
    path = tmp_path / "losses.csv"
    path.write_text("step,train,val,lr\n1,4,,1\n2,2,3.5,1\n")
    for rows in (path, str(path)):
        viz.loss_curve(rows, tmp_path / "a.png")
        assert drawn[-1].axes[0].lines[0].get_ydata().tolist() == [4, 2]
        assert drawn[-1].axes[0].lines[2].get_xydata().tolist() == [[2, 3.5]]
        assert texts(drawn[-1].axes[0])[-1] == "lowest: 3.500 at step 2"
    viz.loss_curve(iter(ROWS[:1]), tmp_path / "b.png")
    (axes,) = drawn[-1].axes
    assert len(texts(axes)) == len(axes.lines) == 2 and axes.lines[0].get_marker() == "."  # a point is no line
    for nothing in ([], iter([])):
        with pytest.raises(ValueError, match="no losses to draw"):
            viz.loss_curve(nothing, tmp_path / "c.png")
    path.write_text("step,train,val\n")
    with pytest.raises(ValueError, match="no losses to draw"):
        viz.loss_curve(path, tmp_path / "c.png")
    assert not (tmp_path / "c.png").exists()


def fitted(xs, ys, i, reach):
    """At xs[i], the line fitted to the neighbours by NumPy, weighted by the tricube of their distance."""
    there = [j for j in range(max(i - reach, 0), min(i + reach + 1, len(xs))) if math.isfinite(ys[j])]
    x = np.array([xs[j] - xs[i] for j in there], float)
    weights = (1 - (abs(x) / (1.001 * abs(x).max())) ** 3) ** 3
    return np.polyfit(x, [ys[j] for j in there], 1, w=np.sqrt(weights))[1]


def test_smoothing_is_a_local_regression():
    from minigrad.viz.plots import smooth

    rng = np.random.default_rng(0)
    xs, ys = np.arange(1, 201) * 10.0, rng.normal(size=200)
    ys[[50, 51, 90]] = math.nan, math.inf, -math.inf
    at, found = smooth(xs, ys)
    assert at.tolist() == xs.tolist()
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(ys))
    for i in (0, 1, 2, 5, 15, 49, 52, 120, 195, 199):
        assert found[i] == pytest.approx(fitted(xs, ys, i, int(min(10, 2 + i / 2))), rel=1e-9), i


def test_smoothing_does_not_trail():
    from minigrad.viz.plots import POINTS, smooth

    steps = np.arange(2001)
    at, found = smooth(steps, 7 - 0.003 * steps)
    assert len(at) == POINTS and at[0] == 0 and at[-1] == 2000  # up to both ends
    np.testing.assert_allclose(found, 7 - 0.003 * at, rtol=1e-12)
    loss = 1.5 + 2 * np.exp(-steps / 15) + np.exp(-steps / 500)
    at, found = smooth(steps, loss)
    assert abs(found - loss[at.astype(int)]).max() < 0.05
    trailing, average = 0.0, loss[0]
    for each in loss:  # what it replaces: an exponential moving average
        average += 0.05 * (each - average)
        trailing = max(trailing, average - each)
    assert trailing > 0.5
    noise = np.random.default_rng(0).normal(size=2001)
    assert smooth(steps, noise)[1][50:].std() < 0.15


def test_smoothing_of_next_to_nothing():
    from minigrad.viz.plots import smooth

    for xs, ys in (([], []), ([3], [7.0]), ([3, 4], [7.0, 5.0]), ([3, 3], [7.0, 5.0]), ([1, 2], [math.nan, 2.0])):
        at, found = smooth(xs, ys)
        assert len(at) == len(found) == len(xs)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(ys))
    assert smooth([3], [7.0])[1].tolist() == [7] and smooth([3, 3], [7.0, 5.0])[1].tolist() == [6, 6]


@pytest.mark.parametrize("log", ["", "x", "y", "xy"])
def test_curves(tmp_path, drawn, log):
    series = {"one": ([1, 2, 4], [3.0, 2.0, 1.0]), "two": ([1, 4], [0.5, 0.25])}
    viz.curves(series, tmp_path / "a.png", "size", "error", log)
    (axes,) = drawn[0].axes
    looks = ("o", BLUE), ("s", ORANGE)  # told apart without colours too
    for line, (label, (xs, ys)), look in zip(axes.lines, series.items(), looks, strict=True):
        assert line.get_label() == label and (line.get_marker(), line.get_color()) == look
        assert line.get_linestyle() == "-"
        assert line.get_xdata().tolist() == xs and line.get_ydata().tolist() == ys
    assert axes.get_xlabel() == "size" and axes.get_ylabel() == "error"
    assert [axes.get_xscale(), axes.get_yscale()] == ["log" if each in log else "linear" for each in "xy"]
    assert texts(axes) == ["one", "two"]
    if "x" in log:
        assert axes.xaxis.get_transform().base == 2 and axes.xaxis.get_major_formatter()(4) == "4"


def test_curves_that_lie_on_one_another_are_all_seen(tmp_path, drawn):
    xs = [0, 1, 2, 3]
    series = {"a": (xs, [0, 1, 2, 9]), "b": (xs, [0, 1, 2, 0]), "c": (xs, [9, 1, 2, 9]), "d": (xs, [5, 5, 5, 5])}
    viz.curves(series, tmp_path / "a.png", "x", "y")
    (axes,) = drawn[0].axes
    a, b, c, d = axes.lines[:4]
    assert [line.get_linestyle() for line in (a, b, c, d)] == ["None", "None", "None", "-"]  # d is alone
    parts = [list(zip(each.get_segments(), each.get_linestyle())) for each in axes.collections]
    assert [[path.tolist() for path, _ in each] for each in parts] == [
        [[[0, 0], [1, 1]], [[1, 1], [2, 2]], [[2, 2], [3, 9]]],  # with b, with b and c, with c
        [[[0, 0], [1, 1]], [[1, 1], [2, 2]], [[2, 2], [3, 0]]],  # with a, with a and c, alone
        [[[0, 9], [1, 1]], [[1, 1], [2, 2]], [[2, 2], [3, 9]]],  # alone, with a and b, with a
    ]
    gaps = [[dashes and dashes[1] / dashes[0] for _, (_, dashes) in each] for each in parts]
    assert gaps == [[1, 2, 1], [1, 2, None], [None, 2, 1]]  # of as many as there are, each is seen in its turn
    turns = [offset / dashes[0] for each in parts for _, (offset, dashes) in each if dashes and sum(dashes) > 20]
    assert turns == [0, 2, 1]  # how far into its dash and gap each begins: a paints first, then b, then c
    under = [(line.get_color(), line.get_markersize() - a.get_markersize(), line.get_xdata().tolist())
             for line in axes.lines[4:]]  # fmt: skip
    assert under == [(BLUE, 3, [0, 3]), (BLUE, 6, [1, 2]), (ORANGE, 3, [1, 2])]  # dots around those that hide them
    assert [handle.get_linestyle() for handle in axes.get_legend().legend_handles] == ["-"] * 4
    viz.curves({"a": (xs, xs), "b": ([0, 2, 3], [0, 2, 3])}, tmp_path / "a.png", "x", "y")  # not at the same places
    assert [len(each.get_segments()) for each in drawn[1].axes[0].collections] == [2, 1]


def test_curves_of_several_runs_show_each(tmp_path, drawn):
    viz.curves({"mean": ([1, 2], [[1.0, 2.0], [3.0, 6.0]])}, tmp_path / "a.png", "x", "y")
    first, second, mean = drawn[0].axes[0].lines
    assert [each.get_ydata().tolist() for each in (first, second, mean)] == [[1, 2], [3, 6], [2, 4]]
    assert first.get_linestyle() == "None" and first.get_alpha() < 0.5 and texts(drawn[0].axes[0]) == ["mean"]


def test_curves_of_many_points_have_no_dots_and_zero_is_marked(tmp_path, drawn):
    xs = range(100)
    viz.curves({"a": (xs, [x - 50 for x in xs]), "b": ([0, 1], [1, 2])}, tmp_path / "a.png", "x", "y")
    a, b, zero = drawn[0].axes[0].lines
    assert a.get_marker() in ("", "None") and b.get_marker() == "s" and list(zero.get_ydata()) == [0, 0]
    viz.curves({"a": (xs, xs)}, tmp_path / "a.png", "x", "y")
    assert len(drawn[1].axes[0].lines) == 1
    viz.curves({}, tmp_path / "a.png", "x", "y")
    assert drawn[2].axes[0].get_legend() is None


def test_small_multiples(tmp_path, drawn):
    xs, runs = [1, 2, 3], np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]])
    series = {name: (xs, runs + i) for i, name in enumerate(["nothing", "$K", "V", "Q", "all"])}
    viz.small_multiples(series, tmp_path / "a.png", "step", "score")
    panels = drawn[0].axes
    assert [axes.get_title("left") for axes in panels[:5]] == list(series) and not any(
        a.get_visible() for a in panels[5:]
    )
    assert len({(*axes.get_xlim(), *axes.get_ylim()) for axes in panels[:5]}) == 1
    for i, axes in enumerate(panels[:5]):
        grey, lines = axes.lines[: i > 0], axes.lines[i > 0 :]
        assert [line.get_ydata().tolist() for line in grey] == [[2, 3, 4]] * (i > 0)  # the mean of the first
        assert [line.get_ydata().tolist() for line in lines] == [*(runs + i).tolist(), (runs + i).mean(0).tolist()]
