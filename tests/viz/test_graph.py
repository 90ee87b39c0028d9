"""The picture of a graph: what it says, that it says the same each time, and what it does when it cannot be drawn."""

import errno
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, viz
from minigrad.autograd import mode

from .pictures import boxes, leaf, needs_dot

pytest.importorskip("graphviz")


class Tiny(nn.Module):
    def __init__(self):
        self.first = nn.Linear(3, 4)
        self.act = nn.ReLU()
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        return self.second(self.act(self.first(x)))


class Deep(nn.Module):
    """`n` blocks, one after the other, the last of which is the first again."""

    def __init__(self, n):
        self.blocks = nn.ModuleList(Tiny() for _ in range(n))
        self.into = nn.Linear(4, 3)

    def forward(self, x):
        for block in self.blocks:
            x = self.into(block(x))
        return x.sum()


class Number:
    """Of an engine of one's own; a sum of two."""

    def __init__(self, data, parents=(), op="", grad=0.0, **more):
        self.data, self.parents, self.op, self.grad = data, parents, op, grad
        vars(self).update(more)

    def __add__(self, other):
        return Number(self.data + other.data, (self, other), "+")

    def backward(self):
        raise NotImplementedError


def test_an_engine_of_your_own_is_drawn():
    a, w = Number(2.0, grad=3.0), Number(np.array([3.0, 4.0]), grad=Number(np.zeros(2)))
    y = a + a
    drawn = viz.graph([y, w], names={"w": w}, notes={y: "twice"})
    found = {lines[0]: lines[1:] for _, lines in boxes(drawn).values()}
    assert found == {
        "+": ["data 4", "grad 0", "twice"], "leaf": ["data 2", "grad 3"],
        "w": ["data (2,), norm 5", "grad (2,), norm 0"],
    }  # fmt: skip
    assert len(edges(drawn)) == 2 and (drawn.ops, drawn.leaves) == (1, 2) and not drawn.hidden
    deep = y
    for _ in range(1000):
        deep = deep + w
    drawn = viz.graph(deep, max_nodes=5)
    assert drawn.hidden == {"…": 998} and "998 nodes further away left out" in drawn.source
    micrograd = Number(1.0, parents=None, op="", _prev={a}, _op="relu")
    assert "relu" in viz.graph(micrograd).source and viz.graph(micrograd).ops == 1
    with pytest.raises(ValueError, match="an engine of your own forward"):
        viz.graph(y, direction="backward")


def box(graph, title):
    (found,) = [lines for _, lines in boxes(graph).values() if title in lines]
    return found


def edges(graph):
    return re.findall(r"^\t(n\d+) -> (n\d+)", graph.source, re.M)


def texts(svg):
    return ["".join(e.itertext()) for e in xml.parse(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_an_op_shows_its_parameters_and_what_it_returns():
    y = leaf(2, 3, dtype=mg.float64).softmax(dim=1)
    g = viz.graph(y)
    assert box(g, y.op.name) == [y.op.name, "dim=1", "(2, 3) float64"]
    assert box(g, "leaf") == ["leaf", "(2, 3) float64"]
    assert (g.ops, g.leaves, g.hidden) == (1, 1, {})
    assert len(edges(g)) == 1


def test_parameters_that_tell_nothing_are_left_out():
    x = leaf(2, 6)
    for y, lines in (
        (x.reshape(3, 4), ["(3, 4) float32"]),
        (x.sum(1), ["dims=(1,)", "(2,) float32"]),
        (x.sum(1, keepdim=True), ["dims=(1,), keepdim=True", "(2, 1) float32"]),
    ):
        assert box(viz.graph(y), y.op.name) == [y.op.name, *lines]


def test_indices_are_short_and_hold_no_values():
    y = leaf(5, 4, 3)[1:, ..., mg.tensor([2, 0])]
    assert box(viz.graph(y), y.op.name)[1] == "index=(1:, ..., array(2,))"


def test_a_parameter_that_is_an_object_is_shown_by_its_type():
    layer = nn.Linear(3, 3)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    assert "show=function" in viz.graph(layer(leaf(2, 3))).source


def test_two_uses_of_one_value_are_two_edges():
    x = leaf(3)
    g = viz.graph(x * x)
    assert len(boxes(g)) == 2 and len(edges(g)) == 2


def test_an_input_without_a_gradient_is_a_dot():
    x, data = leaf(3), mg.randn(3)
    for y in (x * data, x * 2.0):
        g = viz.graph(y)
        assert sum("shape=circle" in attributes for attributes, _ in boxes(g).values()) == 1
        assert "a dot is an input without a gradient" in g.source
    assert "a dot" not in viz.graph(x * x).source


def test_outputs_of_one_op_are_told_apart():
    q, k = leaf(2, 6).split(3, dim=1)
    g = viz.graph((k - q).sum())
    assert box(g, q.op.name)[-2:] == ["[0] (2, 3) float32", "[1] (2, 3) float32"]
    (source,) = [id for id, (_, lines) in boxes(g).items() if q.op.name in lines]
    assert re.findall(rf'{source} -> n\d+ \[label="\xa0(.*?)\xa0"', g.source) == ["[1]", "[0]"]


def test_names_from_a_dict_go_to_leaves_and_to_results():
    x = leaf(3)
    loss = (x * x).sum()
    g = viz.graph(loss, names={"x": x, "loss": loss, "data": mg.randn(3)})
    assert box(g, "x") == ["x", "(3,) float32"]
    assert box(g, loss.op.name)[-1] == "loss: () float32"
    with pytest.raises(TypeError, match="'x' must be a Tensor, got int"):
        viz.graph(loss, names={"x": 3})


def test_modules_are_nested_frames_and_lend_their_names():
    model = Deep(2)
    g = viz.graph(model(mg.randn(2, 3)), names=model)
    path, parents = [None], {}
    for line in g.source.splitlines():
        if found := re.search(r'tooltip="module: (.*?)"', line):
            parents[found[1]] = path[-1]
            path.append(found[1])
        elif line.strip() == "}":
            path.pop()
    assert parents["blocks.0.first"] == "blocks.0" and parents["blocks.0"] == "blocks"
    assert parents["blocks"] is None and parents["into"] is None
    assert "blocks.1 · Tiny" in g.source and "first · Linear" in g.source
    labels = [lines[0] for _, lines in boxes(g).values() if lines]
    assert labels.count("weight") == labels.count("bias") == 5  # 2 · 2 in blocks and 1 shared by both calls of `into`
    assert 'tooltip="leaf: blocks.0.first.weight"' in g.source


def test_a_module_with_one_op_is_a_line_in_its_box():
    model = Tiny()
    g = viz.graph(model(mg.randn(2, 3)), names=model)
    assert box(g, "act · ReLU") == ["act · ReLU", leaf(1).relu().op.name, "(2, 4) float32"]
    assert "module: first" in g.source and "module: act" not in g.source


def test_a_leaf_of_two_modules_lies_outside_both():
    class Tied(nn.Module):
        def __init__(self):
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    model = Tied()
    g = viz.graph(model(mg.randn(2, 3)), names=model)
    assert re.search(r"^\tn\d+ \[label=<<b>a\.weight</b>", g.source, re.M)
    folded = viz.graph(model(mg.randn(2, 3)), names=model, max_nodes=3)
    assert [lines[:2] for _, lines in boxes(folded).values()] == [
        ["a · Linear", "1 op, 1 leaf"],
        ["a.weight", "(3, 3) float32"],
        ["b · Linear", "1 op, 1 leaf"],
    ]


def test_notes_are_added_to_the_box():
    y = leaf(3).exp()
    assert box(viz.graph(y, notes={y.op: "first\nsecond"}), y.op.name)[-2:] == ["first", "second"]


def test_several_tensors_share_one_picture():
    x = leaf(3)
    y = x.exp()
    g = viz.graph([y.sum(), y.mean(), x])
    assert g.leaves == 1 and sum(y.op.name in lines for _, lines in boxes(g).values()) == 1
    assert sum("penwidth=2" in attributes for attributes, _ in boxes(g).values()) == 2


def test_a_leaf_alone_is_drawn():
    x, y = leaf(3), leaf(4)
    g = viz.graph([x, y], names={"x": x})
    assert [lines for _, lines in boxes(g).values()] == [["x", "(3,) float32"], ["leaf", "(4,) float32"]]
    assert g.ops == 0


def test_it_is_the_same_after_backward():
    model = Tiny()
    loss = model(mg.randn(2, 3)).sum()
    before = viz.graph(loss, names=model).source
    loss.backward()
    assert viz.graph(loss, names=model).source == before


def test_equal_graphs_give_equal_text():
    def picture(max_nodes):
        model = Deep(3)
        return viz.graph(model(mg.randn(2, 3)), names=model, max_nodes=max_nodes).source

    for max_nodes in (200, 30, 10, 3):
        assert len({picture(max_nodes) for _ in range(3)}) == 1


def test_nothing_recorded_is_an_error_that_says_why():
    with mg.no_grad():
        y = leaf(3) * 2
    for x in (y, mg.randn(3)):
        with pytest.raises(mg.GraphError, match=r"no graph was recorded .* shape \(3,\).*requires_grad=True"):
            viz.graph(x)
    with pytest.raises(TypeError, match="draws Tensors, not float"):
        viz.graph([1.0])
    with pytest.raises(ValueError, match="at least one Tensor and max_nodes ≥ 1, got 0"):
        viz.graph([])
    with pytest.raises(ValueError, match="max_nodes ≥ 1, got 1 and 0"):
        viz.graph(leaf(3), max_nodes=0)


HOSTILE = [
    '"quoted"', "<b>&amp;", "<all>", "back\\slash \\N \\G \\n", "\\", "{a|b}", "n:e", "", "−é", "a\n\x00\x1b", "x" * 500
]  # fmt: skip


@needs_dot
@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_shown_as_it_is(name, tmp_path, monkeypatch):
    x = leaf(3)
    monkeypatch.setattr(mode, "scope", f"module {name}")
    z = -x.abs()
    monkeypatch.setattr(mode, "scope", f"folded {name}.inner")
    for _ in range(20):
        z = -z
    monkeypatch.setattr(mode, "scope", "")
    y = z.sum()
    g = viz.graph(y, names={name: x, f"y{name}": y}, notes={y.op: name}, max_nodes=10)
    shown = texts(g.save(tmp_path / "graph.svg")[1])
    for text in (name, f"module {name}", f"folded {name}", f"y{name}: () float32"):  # leaf, frame, box, result
        text = text.replace("\n", "\\n").replace("\x00", "\\x00").replace("\x1b", "\\x1b") or "''"
        assert (text if len(text) <= 80 else text[:79] + "…") in shown


@pytest.mark.parametrize("max_nodes", [200, 60, 30, 20, 10, 4, 1])
def test_a_large_graph_is_folded_to_fit(max_nodes):
    model = Deep(4)
    loss = model(mg.randn(2, 3))
    everything = viz.graph(loss, names=model, max_nodes=10**6)
    g = viz.graph(loss, names=model, max_nodes=max_nodes)
    assert len(boxes(g)) <= max_nodes
    assert (g.ops, g.leaves) == (everything.ops, everything.leaves) and not everything.hidden
    drawn = sum('tooltip="op: ' in attributes for attributes, _ in boxes(g).values())
    assert drawn + sum(g.hidden.values()) == g.ops
    for path, ops in g.hidden.items():
        assert any(f"{ops} op" in " ".join(lines) for _, lines in boxes(g).values()), path
    if g.hidden:
        assert f"max_nodes={max_nodes} hides what is in {next(iter(g.hidden))}" in g.source
    ids = set(boxes(g))
    assert all(a in ids and b in ids and a != b for a, b in edges(g))


def test_the_deepest_modules_are_folded_first():
    model = Deep(4)
    loss = model(mg.randn(2, 3))
    linears = {f"blocks.{i}.{name}" for i in range(4) for name in ("first", "second")}
    assert linears <= set(viz.graph(loss, names=model, max_nodes=30).hidden)
    blocks = viz.graph(loss, names=model, max_nodes=15)
    assert {f"blocks.{i}" for i in range(4)} <= set(blocks.hidden)
    assert box(blocks, "blocks.2 · Tiny")[1].endswith("4 leaves")


@pytest.mark.slow
def test_a_chain_of_100_000_ops_is_drawn():
    y = leaf(2)
    for _ in range(100_000):
        y = y.alias()
    g = viz.graph(y)
    assert g.ops == 100_000 and sum(g.hidden.values()) > 99_000 and list(g.hidden) == ["…"]
    assert 100 < len(boxes(g)) <= 200
    assert edges(g)[-1][1] == list(boxes(g))[-1]  # the end is drawn


@needs_dot
def test_svg_and_png_are_written(tmp_path):
    x = leaf(3)
    y = x * x
    g = viz.graph(y, names={"x": x})
    assert g.save(tmp_path / "new" / "a.svg") == [tmp_path / "new" / "a.dot", tmp_path / "new" / "a.svg"]
    assert {"x", y.op.name, "(3,) float32"} <= set(texts(tmp_path / "new" / "a.svg"))
    assert (tmp_path / "new" / "a.dot").read_text(encoding="utf-8") == g.source
    assert g.save(str(tmp_path / "b.png"))[1].read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in g.save(tmp_path / "c")] == ["c.dot", "c.svg"]
    assert [p.name for p in g.save(tmp_path / "d.dot")] == ["d.dot"]
    with pytest.raises(ValueError, match=r"\.dot, \.svg or \.png, not '\.pdf'"):
        g.save(tmp_path / "e.pdf")


@needs_dot
def test_a_file_may_be_called_like_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert viz.graph(leaf(3).sum()).save("-v.svg") == [Path("-v.dot"), Path("-v.svg")]
    assert "<svg" in (tmp_path / "-v.svg").read_text(encoding="utf-8")


@needs_dot
def test_an_old_picture_outlives_a_full_disk(tmp_path, monkeypatch):
    def full(*names):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.svg"
    viz.graph(leaf(3).sum()).save(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        viz.graph(leaf(3).exp().sum()).save(path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_without_dot_the_text_is_written_and_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    g = viz.graph(leaf(3).sum())
    with pytest.warns(UserWarning, match="apt install graphviz") as caught:
        files = g.save(tmp_path / "a.svg")
    assert len(caught) == 1 and "\n" not in str(caught[0].message) and caught[0].filename == __file__
    assert files == [tmp_path / "a.dot"] and files[0].read_text(encoding="utf-8") == g.source
    assert g.save(tmp_path / "b.dot") == [tmp_path / "b.dot"]  # needs no program, so no warning


@needs_dot
def test_what_dot_refuses_is_a_warning_too(tmp_path):
    g = viz.graph(leaf(3).sum())
    g.digraph.body.append("not DOT {")
    with pytest.warns(UserWarning, match="dot failed: .*syntax error"):
        assert g.save(tmp_path / "a.svg") == [tmp_path / "a.dot"]


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(ImportError, match="pip install graphviz"):
        viz.graph(leaf(3).sum())


def test_viz_and_its_packages_are_imported_only_when_used():
    code = """
import sys, minigrad
assert "minigrad.viz" not in sys.modules
import minigrad.viz.graph
from minigrad import viz
assert callable(viz.graph) and not {"graphviz", "matplotlib"} & set(sys.modules)
assert callable(viz.loss_curve)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(
        AttributeError, match="no attribute 'grph'; it has Graph, curves, graph, heads_grid, loss_curve"
    ):
        viz.grph  # noqa: B018
