"""viz.heads_grid: patterns of heads as one PNG."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from minigrad import study, viz

from .pictures import leaf, pattern


def test_heads_grid_draws_a_row_per_layer_and_a_column_per_head(tmp_path, figures):
    a, b = pattern(3, 4, 4).numpy(), np.linspace(-1, 0.5, 32).reshape(2, 4, 4)
    path = tmp_path / "heads.png"
    assert viz.heads_grid({"blocks.0.attn": a, "blocks.1.attn": b}, path, title="$x") is None
    assert path.read_bytes().startswith(b"\x89PNG")
    axes = figures[0].axes
    assert [ax.get_title() for ax in axes[:5]] == [
        *(f"blocks.0.attn · {h}" for h in range(3)),
        "blocks.1.attn · 0",
        "blocks.1.attn · 1",
    ]
    for ax, heads in zip(axes[:5], [*a, *b], strict=True):
        (image,) = ax.images
        np.testing.assert_array_equal(image.get_array(), heads)
        low = -abs(heads).max() if heads.min() < 0 else 0
        assert image.get_clim() == (pytest.approx(low), pytest.approx(abs(heads).max()))
    assert axes[0].images[0].cmap.name != axes[3].images[0].cmap.name and not axes[5].images
    assert len(axes) == 7 and all("share of each head's largest" in ax.get_xlabel() for ax in axes[5:])
    assert [ax.get_xlabel() for ax in axes[2:5]] == [f"0 … {a[2].max():.3g}", "±1", "±0.5"]


def test_heads_grid_takes_one_array_a_list_and_tensors_with_gradients(tmp_path, figures):
    x = pattern(2, 3, 5)
    viz.heads_grid(x, tmp_path / "a.png")
    viz.heads_grid([x, leaf(1, 3, 5)], tmp_path / "b.png")
    viz.heads_grid(np.full((1, 2, 2), [[np.nan, np.inf], [0, 0]]), tmp_path / "c.png")  # no warnings
    assert figures[-1].axes[0].images[0].get_clim() == (0, 1)
    titles = [[ax.get_title() for ax in figure.axes if ax.images] for figure in figures]
    assert titles == [["head 0", "head 1"], ["layer 0 · 0", "layer 0 · 1", "layer 1 · 0"], ["head 0"]]


def texts(axis):
    """The labels along an axis, in the order of their places."""
    labels = axis.get_ticklabels() + axis.get_ticklabels(minor=True)
    places = [*axis.get_majorticklocs(), *axis.get_minorticklocs()]
    return [label.get_text() for _, label in sorted(zip(places, labels, strict=True), key=lambda each: each[0])]


def test_tokens_are_written_so_that_they_can_be_seen(tmp_path, figures):
    keys = ["$a$", "\n", "\x00", "日", " the", ""]
    viz.heads_grid(pattern(1, 3, 6), tmp_path / "a.png", tokens=keys)
    viz.heads_grid(pattern(1, 3, 5), tmp_path / "b.png", tokens=["q", "r", "s"])
    viz.heads_grid(pattern(1, 65, 65), tmp_path / "c.png", tokens=["x"] * 65)  # too many to write
    viz.heads_grid(pattern(1, 3, 3), tmp_path / "d.png", tokens=(["q", "r", "s"], ["k", "l", "m"]))
    across, down, neither, both = (figure.axes[0] for figure in figures)
    assert texts(both.yaxis) == ["q", "r", "s"] and texts(both.xaxis) == ["k", "l", "m"]
    assert texts(across.xaxis) == ["$a$", "⏎", "\\x00", "日", "␣the", "∅"] and texts(across.yaxis) == ["0", "2"]
    assert not any(tick.get_parse_math() for tick in across.xaxis.get_ticklabels())
    assert texts(down.yaxis) == ["q", "r", "s"] and texts(down.xaxis) == ["0", "4"]
    assert texts(neither.xaxis) == texts(neither.yaxis) == ["0", "64"]
    assert {tick.get_rotation() for tick in across.xaxis.get_ticklabels()} == {90}
    assert {tick.get_rotation() for tick in across.yaxis.get_ticklabels()} == {0}


@pytest.mark.slow
def test_many_short_tokens_take_turns_and_none_overlap(tmp_path, figures):
    text = "The statement is the same as the other statement"
    viz.heads_grid(pattern(1, 48, 48), tmp_path / "a.png", tokens=text, title=text * 3)
    viz.heads_grid(pattern(1, 16, 16), tmp_path / "b.png", tokens=text[:16])
    viz.heads_grid(pattern(1, 20, 20), tmp_path / "c.png", tokens=["word"] * 20)
    axes = [figure.axes[0] for figure in figures]
    assert [len(ax.get_xticklabels(minor=True)) for ax in axes] == [24, 0, 0]
    assert texts(axes[0].xaxis) == texts(axes[0].yaxis) == list(text.replace(" ", "␣"))
    for figure, ax in zip(figures, axes):
        (width, height), boxes = figure.bbox.size, []
        for axis in (ax.xaxis, ax.yaxis):
            labels = axis.get_ticklabels() + axis.get_ticklabels(minor=True)
            boxes += [label.get_window_extent() for label in labels]
        boxes.append(ax.title.get_window_extent())
        if figure._suptitle:
            boxes.append(figure._suptitle.get_window_extent())
        for i, box in enumerate(boxes):
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
            for other in boxes[:i]:  # a pixel of the font's own margin may be shared
                apart = max(box.x0 - other.x1, other.x0 - box.x1, box.y0 - other.y1, other.y0 - box.y1)
                assert apart > -1.5


def test_the_colours_are_those_of_the_report(tmp_path, figures):
    from minigrad.viz import heads

    page = Path(study.__file__).parent / "report" / "page"
    script, style = ((page / name).read_text(encoding="utf-8") for name in ("numbers.js", "style.css"))
    light = re.search(r"light: \[(.*?)\],\n  dark", script, re.S)[1]
    pattern_stops, gradient_stops = (re.findall("#[0-9a-f]{6}", row) for row in light.split("],\n")[:2])
    assert [*heads.PATTERN] == pattern_stops and [*heads.GRADIENT] == gradient_stops
    bad = [int(n) for n in re.search(r"\[(\d+), (\d+), (\d+)\]$", light).groups()]
    assert "#" + bytes(bad).hex() == heads.NOT_FINITE
    for name, value in ("raised", heads.HIDDEN), ("line", heads.LINE), ("muted", heads.MUTED):
        assert f"--{name}: {value};" in style.partition("@media")[0]

    x = np.tril(np.array([[[1.0, 0, 0], [0.25, 0.75, 0], [0, 0.04, 0.96]], [[1, 0, 0], [1, 0, 0], [1, np.nan, 0]]]))
    viz.heads_grid({"pattern": x, "gradient": -x}, tmp_path / "a.png")
    one, other, negative = figures[0].axes[:3]
    image = one.images[0]
    assert image.get_array().mask.tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    third, fourth, last = (list(bytes.fromhex(heads.PATTERN[i][1:])) for i in (2, 3, 5))
    half = np.add(third, fourth) / 2  # a quarter of the largest is half way
    for image, value, rgb in (
        (one.images[0], 0.25, half),
        (one.images[0], 1.0, last),
        (negative.images[0], 0.0, [255] * 3),
        (negative.images[0], -1.0, list(bytes.fromhex(heads.GRADIENT[0][1:]))),
    ):
        np.testing.assert_allclose(255 * np.array(image.cmap(image.norm(value)))[:3], rgb, atol=2)
    assert len(one.images) == 1 and other.images[1].get_array()[2, 1].tolist() == pytest.approx([1, 0, 200 / 255, 1])
    assert (other.images[1].get_array()[..., 3] > 0).sum() == 1


def test_a_panel_has_room_for_its_cells_and_its_name(tmp_path, monkeypatch):
    from minigrad.viz import canvas, heads

    drawn = []
    monkeypatch.setattr(canvas, "save", lambda figure, path: drawn.append(figure))
    pytest.importorskip("matplotlib")
    viz.heads_grid([pattern(3, 4, 4)] * 2, tmp_path / "a.png")
    width, height = drawn[-1].get_size_inches()
    assert 3.8 < width < 4.8 and 3.2 < height < 4.6 and drawn[-1]._suptitle is None
    viz.heads_grid([pattern(3, 4, 4)] * 2, tmp_path / "a.png", title="Heads")
    assert drawn[-1].get_size_inches()[1] > height and drawn[-1].get_suptitle() == "Heads"
    viz.heads_grid({"encoder.layers.0.self_attn": pattern(2, 300, 300)}, tmp_path / "a.png")
    axes = drawn[-1].axes[0]
    assert axes.get_window_extent().width >= 300 and axes.title.get_fontsize() <= 8
    viz.heads_grid({"encoder.layers.0.self_attn": pattern(2, 3, 3)}, tmp_path / "a.png")
    names = [ax.title.get_window_extent() for ax in drawn[-1].axes[:2]]
    assert names[0].x0 >= 0 and names[0].x1 < names[1].x0 and drawn[-1].axes[0].title.get_fontsize() < 8
    monkeypatch.setattr(heads, "PANELS", 4)
    viz.heads_grid([pattern(2, 1, 1)] * 2, tmp_path / "a.png")  # as many as fit
    assert texts(drawn[-1].axes[0].xaxis) == ["0"]
    with pytest.raises(ValueError, match="2 layers × 3 heads are too many: 4 panels fit into one picture"):
        viz.heads_grid([pattern(3, 1, 1), pattern(1, 1, 1)], tmp_path / "a.png")
    monkeypatch.setattr(heads, "WIDEST", 600)
    viz.heads_grid(pattern(3, 300, 300), tmp_path / "a.png")
    assert drawn[-1].get_size_inches()[0] * drawn[-1].dpi <= 601
    viz.heads_grid(pattern(3, 60, 60), tmp_path / "a.png", tokens=["word"] * 60)
    assert texts(drawn[-1].axes[0].xaxis) == ["0", "59"]  # no room for them
    assert drawn[-1].get_size_inches()[0] * drawn[-1].dpi <= 601


def test_a_large_grid_has_tokens_at_its_edges(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from minigrad.viz import canvas, heads

    drawn = []
    monkeypatch.setattr(canvas, "save", lambda figure, path: drawn.append(figure))
    monkeypatch.setattr(heads, "CROWDED", 3)
    viz.heads_grid([pattern(2, 3, 3), pattern(2, 3, 2)], tmp_path / "a.png", tokens="abc")
    abc = ["a", "b", "c"]
    found = [(texts(axes.yaxis), texts(axes.xaxis)) for axes in drawn[0].axes[:4]]
    assert found == [(abc, abc), ([], abc), (abc, ["0", "1"]), ([], ["0", "1"])]


def test_what_cannot_be_drawn_is_an_error_that_says_why(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    for patterns, tokens, message in (
        (np.ones((3, 3)), None, r"a pattern must be \(heads, queries, keys\).* got \(3, 3\)"),
        ({"attn": np.ones((2, 4, 3, 3))}, None, r"attn must be .* got \(2, 4, 3, 3\): choose one of the batch"),
        (np.ones((0, 3, 3)), None, r"none of them 0, got \(0, 3, 3\)"),
        ({}, None, "no patterns to draw"),
        (np.ones((145, 1, 1)), None, "1 layers × 145 heads are too many: 144 panels fit"),
        (np.ones((2, 3, 5)), ["a"] * 4, "4 tokens do not fit a pattern of 3 queries and 5 keys"),
        (np.ones((2, 3, 5)), (["a"] * 3, ["b"] * 3), "3 and 3 tokens do not fit a pattern of 3 queries and 5 keys"),
    ):
        with pytest.raises(ValueError, match=message):
            viz.heads_grid(patterns, path, tokens=tokens)
    assert not path.exists()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="needs matplotlib: pip install"):
        viz.heads_grid(np.ones((1, 2, 2)), path)
