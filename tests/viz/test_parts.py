"""The parts of a picture of a graph: short texts, norms, and which box an op is drawn in."""

import re
import types

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, viz
from minigrad.viz import fold, gradients, labels
from minigrad.viz.picture import STYLES


def test_texts_are_short_and_printable():
    assert labels.printable("a\n\x00é日") == "a\\n\\x00é日" and labels.printable(3) == "3"
    assert labels.line("") == "''" and labels.line("a\\N") == "a\\\\N" and labels.line("\t") == "\\\\t"
    assert labels.line("x" * 80) == "x" * 80 and labels.line("x" * 81) == "x" * 79 + "…"
    assert labels.small("<a>", "#123456") == '<font point-size="9" color="#123456">&lt;a&gt;</font>'
    counts = [(0, "op", "0 ops"), (1, "op", "1 op"), (2, "op", "2 ops"), (1234, "op", "1,234 ops"),
              (0, "leaf", "0 leaves"), (1, "leaf", "1 leaf"), (2, "leaf", "2 leaves")]  # fmt: skip
    assert [labels.count(n, noun) for n, noun, _ in counts] == [text for _, _, text in counts]


@pytest.mark.parametrize("value, text", [
    (0.1, "0.1"), (1 / 3, "0.3333"), (1e-9, "1e-09"), (3, "3"), (True, "True"), (None, "None"), ("mean", "mean"),
    ((), "()"), ((1,), "(1,)"), ([1, 2.0], "(1, 2)"), (((1, 2), 3), "((1, 2), 3)"), (..., "..."),
    (slice(None), ":"), (slice(1, None), "1:"), (slice(None, 2), ":2"), (slice(0, 3, 2), "0:3:2"),
    (np.arange(3), "array(3,)"), (np.zeros((2, 3)), "array(2, 3)"), (np.float64(0.5), "0.5"), (np.int64(3), "3"),
    (np.array(3), "3"), (object(), "object"), (len, "<built-in function len>"), (np.dtype("float32"), "float32"),
])  # fmt: skip
def test_parameters_of_ops(value, text):
    assert labels.parameter(value) == text


def test_norms_of_any_size():
    for x in ([], [0.0, 0.0], [3.0, 4.0], [-3e-200, 4e-200], [3e200, -4e200], [5e-324]):
        expected = 5.0 * {4e-200: 1e-200, -4e200: 1e200}.get(x[-1], 1.0) if len(x) == 2 and x[0] else sum(x)
        assert gradients.norm(mg.tensor(np.array(x))) == pytest.approx(expected, rel=1e-12)
    assert gradients.norm(mg.tensor([1.0, -np.inf])) == np.inf and np.isnan(gradients.norm(mg.tensor([1.0, np.nan])))
    assert gradients.norm(mg.full((4,), 200.0, dtype=mg.float16)) == 400


def op(scope):
    return types.SimpleNamespace(scope=scope)


def test_places_and_levels_of_modules():
    assert fold.place(op("")) == () == fold.place(fold.START) and fold.place(op("a.b.0")) == ("a", "b", "0")
    assert fold.place("a.b.c") == ("a", "b") and fold.place("a") == () == fold.place(fold.MIDDLE)
    for places, common in (
        ([], ()),
        ([("a", "b")], ("a", "b")),
        ([("a", "b"), ("a", "c")], ("a",)),
        ([("a",), ("b",)], ()),
        ([("a", "b"), ("a",), ("a", "b")], ("a",)),
        ([(), ("a",)], ()),
    ):
        assert fold.common_place(places) == common
    for scope, depth, path in (
        ("", 1, None), ("a", None, None), ("a", 1, "a"), ("a", 2, None), ("a.b", 1, "a"), ("a.b", 2, "a.b"),
        ("blocks.0", 1, "blocks.0"), ("blocks.0.attn", 1, "blocks.0"), ("blocks.0.attn", 2, "blocks.0.attn"),
        ("blocks.0.attn", 3, None), ("a.0.1.b", 1, "a.0.1"), ("a.0.1.b", 2, "a.0.1.b"), ("0.a", 1, "0"),
        ("a.0b.c", 1, "a"), ("a.0b.c", 2, "a.0b"),
    ):  # fmt: skip
        assert fold.module_at(op(scope), depth) == path, (scope, depth)


class Block(nn.Module):
    def __init__(self):
        self.first, self.inner = nn.Linear(2, 2), nn.Sequential(nn.Tanh(), nn.Linear(2, 2))

    def forward(self, x):
        return self.inner(self.first(x)) + 1.0


class Nested(nn.Module):
    def __init__(self, n=2):
        self.blocks = nn.ModuleList(Block() for _ in range(n))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.sum()


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    "depth, parts", [(None, {}), (1, {"": 4}), (2, {".first": 1, ".inner.0": 1, ".inner.1": 1}), (3, {})]
)
def test_what_depth_hides(direction, depth, parts):
    model = Nested()
    g = viz.graph(model(mg.ones(1, 2)), names=model, depth=depth, direction=direction)
    assert g.ops == 9 and g.leaves == 8
    assert g.hidden == {f"blocks.{i}{part}": n for i in (0, 1) for part, n in parts.items()}
    assert (f"depth={depth} hides what is in blocks.0" in g.source) == bool(parts)
    assert repr(g) == f"<Graph of 8 leaves and 9 ops, {2 * sum(parts.values())} of them hidden>"


def test_max_nodes_is_kept_to_the_node_and_no_more_is_hidden_than_needed():
    """A smaller bound never shows more, and what is folded first is what lies deepest."""
    model = Nested(4)
    loss = model(mg.ones(1, 2))
    sizes = {}
    for max_nodes in range(1, 60):
        g = viz.graph(loss, names=model, max_nodes=max_nodes)
        nodes = (
            g.source.count('tooltip="op: ') + g.source.count('tooltip="leaf: ') + g.source.count('tooltip="folded: ')
        )
        nodes += g.source.count('tooltip="an input without a gradient')
        assert nodes <= max_nodes
        sizes[max_nodes] = sum(g.hidden.values())
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)
    whole = max(n for n in sizes if sizes[n])  # the largest bound that hides anything is one below the whole
    everything = viz.graph(loss, names=model)
    assert whole + 1 == 17 + 16 + 5 and not everything.hidden


def test_what_graph_refuses():
    x = mg.ones(2, requires_grad=True)
    for options, error, words in (
        (dict(depth=0), ValueError, "depth must be at least 1, or None, got 0"),
        (dict(depth=-1), ValueError, "depth must be at least 1, or None, got -1"),
        (dict(max_nodes=0), ValueError, "max_nodes ≥ 1, got 1 and 0"),
        (dict(direction="back"), ValueError, "no direction 'back'"),
        (dict(show="shapes"), ValueError, "no thing to show 'shapes'"),
        (dict(show=["shape", "norm"]), ValueError, "no thing to show 'norm'"),
        (dict(names={"x": np.ones(2)}), TypeError, "names: 'x' must be a Tensor, got ndarray"),
    ):
        with pytest.raises(error, match=words):
            viz.graph(x.sum(), **options)
    assert viz.graph(x.sum(), depth=1, max_nodes=1).hidden in ({"…": 1}, {})
    shown = [viz.graph(x.sum(), show=show).source for show in ("shape", ["shape"], ("shape",), [])]
    assert shown[0] == shown[1] == shown[2] != shown[3] and "(2,)" not in shown[3]


def test_how_pictures_look():
    """What holds for all boxes and edges is said once, at the head; each kind of box has a colour of its own."""
    model = Nested(3)
    source = viz.graph(model(mg.ones(1, 2)), names=model, depth=1, show=["shape", "grad_norm"]).source
    font = 'fontname="Helvetica,Arial,sans-serif"'
    (node,), (edge,) = (
        [row for row in source.splitlines() if row.startswith(f"\t{kind} [")] for kind in ("node", "edge")
    )
    for part in (font, 'fontcolor="#1f2937"', "fontsize=11", "height=0", "shape=box", "style=filled", "width=0"):
        assert part in node
    for part in ("arrowsize=0.6", 'color="#7d8590"', 'fontcolor="#7d8590"', font, "fontsize=9", 'tooltip=" "'):
        assert part in edge
    assert "bgcolor=transparent" in source and "nodesep=0.22" in source and "ranksep=0.3" in source
    kinds = {style["fillcolor"]: kind for kind, style in STYLES.items() if kind in ("op", "leaf", "module", "middle")}
    assert len(kinds) == 4
    for colour, kind in kinds.items():
        assert (colour in source) == (kind in ("op", "module")), kind
    chain = mg.ones(2, requires_grad=True)
    for _ in range(9):
        chain = chain.exp()
    folded = viz.graph(chain, max_nodes=4, direction="backward").source
    assert STYLES["middle"]["fillcolor"] in folded and STYLES["start"]["fillcolor"] in folded


class Halves(nn.Module):
    def forward(self, x):
        return x.split(2, dim=1)


class Joined(nn.Module):
    def __init__(self):
        self.halves = Halves()

    def forward(self, x):
        a, b = self.halves(x)
        return (a * b).sum()


def test_outputs_are_told_apart_only_where_their_op_is_drawn():
    model, x = Joined(), mg.ones(1, 4, requires_grad=True)
    for direction in ("forward", "backward"):
        whole, folded = (
            viz.graph(model(x), names=model, direction=direction, show=[], **options).source
            for options in ({}, dict(depth=1))
        )
        assert "[0]" in whole and "[1]" in whole
        assert "[0]" not in folded and "[1]" not in folded and "halves · Halves" in folded


def test_names_of_results_and_lines_without_folders():
    x = mg.ones(3, requires_grad=True)
    h = x.exp()
    loss = (h * h).sum()
    backward = viz.graph(loss, names={"x": x, "hidden": h}, direction="backward").source
    assert "dhidden" in backward and "x.grad" in backward
    for picture in (backward, viz.graph(loss, names={"hidden": h}).source):
        tooltips = re.findall(r'tooltip="op: (.*?)"', picture)
        assert len(tooltips) == 3 and all("test_parts.py:" in each and "/" not in each for each in tooltips)
    assert "hidden: (3,) float32" in viz.graph(loss, names={"hidden": h}).source


def test_the_first_and_the_last_of_a_long_chain_are_drawn():
    y = mg.ones(2, requires_grad=True)
    for _ in range(100):
        y = y.exp()
    g = viz.graph(y, max_nodes=20)
    assert 80 < g.hidden["…"] < 90 and list(g.hidden) == ["…"]
    assert g.source.count('tooltip="op: ') == 100 - g.hidden["…"] and g.source.count('tooltip="folded: ') == 1
    rows = [row for row in g.source.splitlines() if "tooltip=" in row and "->" not in row and "[label" in row]
    assert "leaf: " in rows[0] or "leaf: " in rows[1]
    at = next(i for i, row in enumerate(rows) if "folded: " in row)
    assert 6 <= at <= 10 and 6 <= len(rows) - at <= 11
