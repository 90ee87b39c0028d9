"""viz.heads_grid: patterns of heads as one PNG."""

import sys

import numpy as np
import pytest

from minigrad import viz

from .pictures import leaf, pattern


def test_heads_grid_draws_a_row_per_layer_and_a_column_per_head(tmp_path, figures):
    a, b = pattern(3, 4, 4).numpy(), np.linspace(-1, 0.5, 32).reshape(2, 4, 4)
    path = tmp_path / "heads.png"
    assert viz.heads_grid({"blocks.0.attn": a, "blocks.1.attn": b}, path, title="$x") is None
    assert path.read_bytes().startswith(b"\x89PNG")
    axes = figures[0].axes
    assert [ax.get_title() for ax in axes] == [
        *(f"blocks.0.attn · {h}" for h in range(3)),
        "blocks.1.attn · 0",
        "blocks.1.attn · 1",
        "",
    ]
    for ax, heads in zip(axes, [*a, *b]):
        (image,) = ax.images
        np.testing.assert_array_equal(image.get_array(), heads)
        low = -abs(heads).max() if heads.min() < 0 else 0
        assert image.get_clim() == (pytest.approx(low), pytest.approx(abs(heads).max()))
    assert axes[0].images[0].cmap.name != axes[3].images[0].cmap.name and not axes[5].images
    assert [ax.axison for ax in axes] == [True] * 5 + [False]


def test_heads_grid_takes_one_array_a_list_and_tensors_with_gradients(tmp_path, figures):
    x = pattern(2, 3, 5)
    viz.heads_grid(x, tmp_path / "a.png")
    viz.heads_grid([x, leaf(1, 3, 5)], tmp_path / "b.png")
    viz.heads_grid(np.full((1, 2, 2), [[np.nan, np.inf], [0, 0]]), tmp_path / "c.png")  # no warnings
    assert figures[-1].axes[0].images[0].get_clim() == (0, 1)
    titles = [[ax.get_title() for ax in figure.axes] for figure in figures]
    assert titles == [["head 0", "head 1"], ["layer 0 · 0", "layer 0 · 1", "layer 1 · 0", ""], ["head 0"]]


def test_tokens_are_written_as_they_are(tmp_path, figures):
    keys = ["$a$", "\n", "\x00", "日", " the"]
    viz.heads_grid(pattern(1, 3, 5), tmp_path / "a.png", tokens=keys)
    viz.heads_grid(pattern(1, 3, 5), tmp_path / "b.png", tokens=["q", "r", "s"])
    viz.heads_grid(pattern(1, 33, 33), tmp_path / "c.png", tokens=["x"] * 33)  # too many to write
    (across,), (down,), (neither,) = (figure.axes for figure in figures)

    def texts(axis):
        return [tick.get_text() for tick in axis.get_ticklabels()]

    assert texts(across.xaxis) == ["$a$", "\\n", "\\x00", "日", " the"] and texts(across.yaxis) == ["0", "2"]
    assert not any(tick.get_parse_math() for tick in across.xaxis.get_ticklabels())
    assert texts(down.yaxis) == ["q", "r", "s"] and texts(down.xaxis) == ["0", "4"]
    assert texts(neither.xaxis) == texts(neither.yaxis) == ["0", "32"]


def test_what_cannot_be_drawn_is_an_error_that_says_why(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    for patterns, tokens, message in (
        (np.ones((3, 3)), None, r"a pattern must be \(heads, queries, keys\).* got \(3, 3\)"),
        ({"attn": np.ones((2, 4, 3, 3))}, None, r"attn must be .* got \(2, 4, 3, 3\): choose one of the batch"),
        (np.ones((0, 3, 3)), None, r"none of them 0, got \(0, 3, 3\)"),
        ({}, None, "no patterns to draw"),
        (np.ones((145, 1, 1)), None, "1 layers × 145 heads are too many: 144 panels fit"),
        (np.ones((2, 3, 5)), ["a"] * 4, "4 tokens do not fit a pattern of 3 queries and 5 keys"),
    ):
        with pytest.raises(ValueError, match=message):
            viz.heads_grid(patterns, path, tokens=tokens)
    assert not path.exists()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="needs matplotlib: pip install"):
        viz.heads_grid(np.ones((1, 2, 2)), path)
