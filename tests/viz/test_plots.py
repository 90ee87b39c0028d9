"""viz.loss_curve, viz.curves and the frame of viz.heads_grid: what is on the axes, to the number."""

import math

import numpy as np
import pytest

from minigrad import viz

from .pictures import pattern


@pytest.fixture
def drawn(monkeypatch):
    """The matplotlib figures, which are not written: that takes longer than all else."""
    from minigrad.viz import plots

    written = []
    monkeypatch.setattr(plots, "_write", lambda figure, path: written.append(figure))
    return written


ROWS = [
    dict(step=1, train=4.0, val=""),
    dict(step=2, train=2.0, val=3.5),
    dict(step=3, train=math.nan, val=None),
    dict(step=4, train=1.0, val=2.0625),
]


def smoothed(values):
    """Each the mean of those so far that are finite, with weights .95^age."""
    found = []
    for n, value in enumerate(values, 1):
        pairs = [(0.95**age, v) for age, v in enumerate(v for v in reversed(values[:n]) if math.isfinite(v))]
        found.append(sum(w * v for w, v in pairs) / sum(w for w, _ in pairs) if math.isfinite(value) else math.nan)
    return found


def pixels(path):
    """(width, height) of a PNG."""
    return tuple(np.frombuffer(path.read_bytes()[16:24], ">u4").tolist())


def test_a_loss_curve_shows_what_was_given(tmp_path, figures):
    viz.loss_curve(ROWS, tmp_path / "a.png")
    (axes,) = figures[0].axes
    raw, smooth, val = axes.lines
    assert raw.get_xdata().tolist() == smooth.get_xdata().tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(raw.get_ydata(), [4, 2, math.nan, 1])
    np.testing.assert_allclose(smooth.get_ydata(), smoothed([4.0, 2.0, math.nan, 1.0]), rtol=1e-12)
    assert val.get_xdata().tolist() == [2, 4] and val.get_ydata().tolist() == [3.5, 2.0625] and val.get_marker() == "o"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["training, smoothed", "validation"]
    assert axes.get_xlabel() == "step" and axes.get_ylabel() == "loss (nats per character)"
    (note,) = axes.texts
    assert note.get_text() == "2.062" and note.xy == (4, 2.0625)
    assert (
        raw.get_color() == smooth.get_color() == "tab:blue"
        and val.get_color() == "tab:orange"
        and raw.get_alpha() < 0.5
    )
    assert not axes.spines["top"].get_visible() and not axes.spines["right"].get_visible()
    assert axes.spines["left"].get_visible() and axes.xaxis.get_gridlines()[0].get_visible()
    assert pixels(tmp_path / "a.png") == (840, 504)


def test_a_loss_curve_of_a_file_and_without_validation(tmp_path, drawn):
    path = tmp_path / "losses.csv"
    path.write_text("step,train,val,lr\n1,4,,1\n2,2,3.5,1\n")
    for rows in (path, str(path)):
        viz.loss_curve(rows, tmp_path / "a.png")
        assert drawn[-1].axes[0].lines[0].get_ydata().tolist() == [4, 2]
        assert drawn[-1].axes[0].lines[2].get_xydata().tolist() == [[2, 3.5]]
    viz.loss_curve(iter(ROWS[:1]), tmp_path / "b.png")
    (axes,) = drawn[-1].axes
    assert len(axes.lines) == 2 and not axes.texts and len(axes.get_legend().get_texts()) == 1
    for nothing in ([], iter([])):
        with pytest.raises(ValueError, match="no losses to draw"):
            viz.loss_curve(nothing, tmp_path / "c.png")
    path.write_text("step,train,val\n")
    with pytest.raises(ValueError, match="no losses to draw"):
        viz.loss_curve(path, tmp_path / "c.png")
    assert not (tmp_path / "c.png").exists()


def test_smoothing_forgets_what_is_not_finite():
    from minigrad.viz.plots import _smooth

    values = [math.inf, 3.0, math.nan, -1.0, 5.0, 5.0, -math.inf, 2.0] * 3
    np.testing.assert_allclose(
        _smooth(values),
        smoothed(values[:]) if math.isfinite(values[0]) else [math.nan, *smoothed(values[1:])],
        rtol=1e-12,
    )
    assert _smooth([]) == [] and _smooth([7.0]) == [pytest.approx(7.0)]


@pytest.mark.parametrize("log", ["", "x", "y", "xy"])
def test_curves(tmp_path, drawn, log):
    series = {"one": ([1, 2, 4], [3.0, 2.0, 1.0]), "two": ([1, 4], [0.5, 0.25])}
    viz.curves(series, tmp_path / "a.png", "size", "error", log)
    (axes,) = drawn[0].axes
    for line, (label, (xs, ys)) in zip(axes.lines, series.items(), strict=True):
        assert line.get_label() == label and line.get_marker() == "o" and line.get_linestyle() == "-"
        assert line.get_xdata().tolist() == xs and line.get_ydata().tolist() == ys
    assert axes.get_xlabel() == "size" and axes.get_ylabel() == "error"
    assert [axes.get_xscale(), axes.get_yscale()] == ["log" if each in log else "linear" for each in "xy"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]
    if "x" in log:
        assert axes.xaxis.get_transform().base == 2 and axes.xaxis.get_major_formatter()(4) == "4"


def test_the_size_of_a_grid_of_heads(tmp_path, drawn, monkeypatch):
    viz.heads_grid([pattern(3, 4, 4)] * 2, tmp_path / "a.png")
    assert drawn[-1].get_size_inches().tolist() == pytest.approx([4.8, 3.2]) and drawn[-1]._suptitle is None
    viz.heads_grid([pattern(3, 4, 4)] * 2, tmp_path / "a.png", title="Heads")
    assert drawn[-1].get_size_inches().tolist() == pytest.approx([4.8, 3.5])
    assert drawn[-1].get_suptitle() == "Heads"
    viz.heads_grid(pattern(1, 2, 10), tmp_path / "a.png", tokens=["a"] * 10)
    assert drawn[-1].get_size_inches().tolist() == pytest.approx([2.6, 2.6])
    viz.heads_grid(pattern(1, 32, 32), tmp_path / "a.png", tokens=["ab"] * 32)  # the most that are written
    assert drawn[-1].get_size_inches().tolist() == pytest.approx([4.8, 4.8])
    across, down = drawn[-1].axes[0].xaxis, drawn[-1].axes[0].yaxis
    assert [len(axis.get_ticklabels()) for axis in (across, down)] == [32, 32]
    assert across.get_ticklabels()[0].get_rotation() == 90 and down.get_ticklabels()[0].get_rotation() == 0
    viz.heads_grid(pattern(1, 33, 33), tmp_path / "a.png", tokens=["ab"] * 33)
    assert drawn[-1].get_size_inches().tolist() == pytest.approx([1.6, 1.6])
    monkeypatch.setattr("minigrad.viz.plots.PANELS", 4)
    viz.heads_grid([pattern(2, 1, 1)] * 2, tmp_path / "a.png")  # as many as fit
    assert [tick.get_text() for tick in drawn[-1].axes[0].get_xticklabels()] == ["0"]
    with pytest.raises(ValueError, match="2 layers × 3 heads are too many: 4 panels fit into one picture"):
        viz.heads_grid([pattern(3, 1, 1), pattern(1, 1, 1)], tmp_path / "a.png")


def test_one_character_tokens_stand_upright(tmp_path, drawn):
    viz.heads_grid(pattern(1, 3, 3), tmp_path / "a.png", tokens="abc")
    axes = drawn[-1].axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b", "c"]
    assert {tick.get_rotation() for tick in axes.get_xticklabels()} == {0}
    viz.heads_grid(pattern(1, 3, 3), tmp_path / "a.png", tokens=["a", "bc", "d"])
    assert {tick.get_rotation() for tick in drawn[-1].axes[0].get_xticklabels()} == {90}
