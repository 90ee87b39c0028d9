"""Pictures of the forward and the backward pass: boxes, edges and labels, the same each time."""

import re
import subprocess
import sys
import xml.etree.ElementTree as xml

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, viz
from minigrad.autograd import Op, current_modes

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


def arrows(graph):
    """(title of the tail, title of the head, lines of the label) of every edge."""
    titles = {id: lines[0] if lines else "dot" for id, (_, lines) in boxes(graph).items()}
    found = re.findall(r'^\t(n\d+) -> (n\d+)(?: \[label="(.*?)"\])?$', graph.source, re.M)
    return [(titles[a], titles[b], [part.strip() for part in label.split("\\l") if part]) for a, b, label in found]


def titles(graph):
    return [lines[0] for _, lines in boxes(graph).values() if lines]


def box(graph, title):
    (found,) = [lines for _, lines in boxes(graph).values() if lines[:1] == [title]]
    return found


def three(x):
    return f"{float(np.linalg.norm(x.numpy().astype(np.float64))):.3g}"


def gpt(**changes):
    config = dict(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=8) | changes
    model = nn.GPT(nn.GPTConfig(**config))
    tokens = mg.randint(0, 11, (2, 8))
    return model, model(tokens, tokens)[1]


def edges(graph):
    return re.findall(r"^\t(n\d+) -> (n\d+)", graph.source, re.M)


def texts(svg):
    return ["".join(e.itertext()) for e in xml.parse(svg).iter("{http://www.w3.org/2000/svg}text")]


# --------------------------------------------------------------------------------------------------------- forward


def test_an_op_shows_its_parameters_and_what_it_returns():
    y = leaf(2, 3, dtype=mg.float64).softmax(dim=1)
    g = viz.graph(y)
    assert box(g, y.op.name) == [y.op.name, "dim=1", "(2, 3) float64"]
    assert box(g, "leaf") == ["leaf", "(2, 3) float64"]
    assert (g.ops, g.leaves) == (1, 1)
    assert len(edges(g)) == 1


def test_indices_are_short_and_hold_no_values():
    y = leaf(5, 4, 3)[1:, ..., mg.tensor([2, 0])]
    assert box(viz.graph(y), y.op.name)[1] == "index=(1:, ..., array(2,))"


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


def test_a_leaf_alone_is_drawn():
    x, y = leaf(3), leaf(4)
    g = viz.graph([x, y], names={"x": x})
    assert [lines for _, lines in boxes(g).values()] == [["x", "(3,) float32"], ["leaf", "(4,) float32"]]
    assert g.ops == 0


def test_nothing_recorded_is_an_error_that_says_why():
    with mg.no_grad():
        y = leaf(3) * 2
    for x in (y, mg.randn(3)):
        with pytest.raises(mg.GraphError, match=r"no graph was recorded .* shape \(3,\).*requires_grad=True"):
            viz.graph(x)
    with pytest.raises(TypeError, match="draws Tensors, not float"):
        viz.graph([1.0])
    with pytest.raises(ValueError, match="at least one Tensor, got none"):
        viz.graph([])


# -------------------------------------------------------------------------------------------------------- gradients


def test_edges_show_the_norms_of_what_comes_back_along_them():
    x, w = leaf(3, 4), leaf(4, 5)
    y = x @ w
    z = y.tanh()
    loss = (y * z).sum()
    gz, gx, gw = mg.grad(loss, [z, x, w], retain_graph=True)
    by_tanh = mg.grad(z, y, gz, retain_graph=True)[0]
    g = viz.graph(loss, names={"x": x, "w": w}, show="grad_norm")
    assert sorted(arrows(g)) == sorted([
        ("x", "matmul", [three(gx)]), ("w", "matmul", [three(gw)]), ("matmul", "tanh", [three(by_tanh)]),
        ("matmul", "mul", [three(z.detach())]), ("tanh", "mul", [three(gz)]), ("mul", "sum", [f"{15**0.5:.3g}"]),
    ])  # fmt: skip
    assert box(g, "matmul") == ["matmul"] and box(g, "x") == ["x"]  # no shapes
    both = viz.graph(loss, show=("shape", "grad_norm"))
    assert box(both, "matmul")[-1] == "(3, 5) float32"


class Half(Op, abstract=True):
    """y = a;   da = dy, and db is nothing"""

    def forward(self, a, b):
        return self.backend.mul(a, 1.0)

    def backward(self, dy):
        return dy, None


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_a_norm_whose_square_is_out_of_range(size):
    x = leaf(2, dtype=mg.float64)
    labels = [label for *_, label in arrows(viz.graph((x * (3 * size)).sum(), show="grad_norm"))]
    assert [f"{3 * size * 2**0.5:.3g}"] in labels


def test_drawing_changes_no_grad_runs_no_hook_and_frees_nothing():
    model, _ = gpt(n_layer=1, impl="batched")
    tokens, ran = mg.randint(0, 11, (2, 8)), []
    model.wpe.weight.register_hook(lambda g: ran.append("leaf"))
    logits, loss = model(tokens, tokens)
    logits.register_hook(lambda g: ran.append("value") or g * 2)
    logits.retain_grad()
    model.norm.weight.grad = mg.ones(8)
    hooks = dict(logits.node.hooks)
    for direction in ("forward", "backward"):
        with mg.autograd.detect_anomaly(), mg.no_grad():
            viz.graph(loss, direction=direction, show="grad_norm")
    assert not ran and logits.grad is None and logits.node.hooks == hooks
    assert (model.norm.weight.grad.numpy() == 1).all()
    assert all(p.grad is None for name, p in model.named_parameters() if name != "norm.weight")
    loss.backward()  # not freed, and its hooks are back
    assert sorted(ran) == ["leaf", "value"] and logits.grad is not None
    with pytest.raises(mg.GraphError, match="freed"):
        viz.graph(loss, show="grad_norm")
    assert viz.graph(loss).ops


def test_backward_runs_from_the_loss_to_the_leaves():
    x, w, data = leaf(2, 3), leaf(3, 3), mg.randn(2, 3)
    y = x @ w + data
    loss = y.tanh().sum()
    g = viz.graph(loss, names={"x": x, "w": w}, direction="backward")
    assert sorted(arrows(g)) == [
        ("1", "sum backward", ["()"]),
        ("add backward", "matmul backward", ["(2, 3)"]),
        ("matmul backward", "w.grad", ["(3, 3)"]),
        ("matmul backward", "x.grad", ["(2, 3)"]),
        ("sum backward", "tanh backward", ["(2, 3)"]),
        ("tanh backward", "add backward", ["(2, 3)"]),
    ]
    assert box(g, "tanh backward") == ["tanh backward", "dx = dy (1 - y²)"]
    assert box(g, "matmul backward") == ["matmul backward", "da = dy bᵀ, db = aᵀ dy"]
    assert box(g, "x.grad") == ["x.grad", "(2, 3) float32"]
    assert len(boxes(g)) == len(titles(g)) == 7  # no dots: data has no gradient
    assert "dy" in titles(viz.graph(y, direction="backward"))
    assert arrows(viz.graph(leaf(), direction="backward", show=())) == [("1", "leaf.grad", [])]


def test_contributions_meet_in_a_plus():
    x = leaf(3, dtype=mg.float64)
    y = x.exp()
    loss = (y * y + y).sum()
    (gy,) = mg.grad(loss, [y], retain_graph=True)
    g = viz.graph(loss, direction="backward", show=["shape", "grad_norm"])
    half = three(y.detach())  # of the gradient of y * y, to each factor
    assert sorted(arrow for arrow in arrows(g) if "+" in arrow[:2]) == sorted(
        [
            ("mul backward", "+", [half]),
            ("mul backward", "+", [half]),
            ("add backward", "+", [f"{3**0.5:.3g}"]),
            ("+", "exp backward", ["(3,)", three(gy)]),
        ]
    )
    once = viz.graph(y.sum(), direction="backward")
    assert "+" not in titles(once)


def test_norms_are_of_gradients_summed_over_broadcast_dims():
    bias = leaf(4)
    loss = ((mg.randn(5, 4) + bias) * bias).sum()
    (g,) = mg.grad(loss, [bias], retain_graph=True)
    picture = viz.graph(loss, names={"b": bias}, direction="backward", show="grad_norm")
    assert ("+", "b.grad", [three(g)]) in arrows(picture)
    assert ("add backward", "+", [three(5 * bias.detach())]) in arrows(picture)


# ------------------------------------------------------------------------------------------------- text and files


def test_unknown_names_are_told():
    loss = leaf(3).sum()
    with pytest.raises(ValueError, match=r"no thing to show 'grad_nrm'; did you mean grad_norm\?$"):
        viz.graph(loss, show=["grad_nrm"])
    with pytest.raises(ValueError, match=r"no direction 'back'; did you mean backward\?"):
        viz.graph(loss, direction="back")
    with pytest.raises(ValueError, match="no direction 7; there are forward, backward"):
        viz.graph(loss, direction=7)
    for _ in range(499):
        loss = loss * 2
    with pytest.raises(ValueError, match="the graph has 501 boxes, more than 500: draw a part of the model"):
        viz.graph(loss)


HOSTILE = [
    '"quoted"', "<b>&amp;", "<all>", "back\\slash \\N \\G \\n", "\\", "{a|b}", "n:e", "", "−é", "a\n\x00\x1b", "x" * 500
]  # fmt: skip


@needs_dot
@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_shown_as_it_is(name, tmp_path, monkeypatch):
    x = leaf(3)
    monkeypatch.setitem(current_modes(), "scope", f"module {name}")
    z = -x.abs()
    monkeypatch.setitem(current_modes(), "scope", "")
    y = z.sum()
    g = viz.graph(y, names={name: x, f"y{name}": y})
    shown = texts(g.save(tmp_path / "graph.svg")[1])
    for text in (name, f"module {name}", f"y{name}: () float32"):  # leaf, frame, result
        text = text.replace("\n", "\\n").replace("\x00", "\\x00").replace("\x1b", "\\x1b") or "''"
        assert (text if len(text) <= 80 else text[:79] + "…") in shown


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


def test_without_dot_the_text_is_written_and_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    g = viz.graph(leaf(3).sum())
    with pytest.warns(UserWarning, match="apt install graphviz") as caught:
        files = g.save(tmp_path / "a.svg")
    assert len(caught) == 1 and "\n" not in str(caught[0].message) and caught[0].filename == __file__
    assert files == [tmp_path / "a.dot"] and files[0].read_text(encoding="utf-8") == g.source
    assert g.save(tmp_path / "b.dot") == [tmp_path / "b.dot"]  # needs no program, so no warning


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(ImportError, match="pip install graphviz"):
        viz.graph(leaf(3).sum())


def test_viz_and_its_packages_are_imported_only_when_used():
    code = """
import sys, minigrad
assert "minigrad.viz" not in sys.modules
import minigrad.viz.picture
from minigrad import viz
assert callable(viz.graph) and "graphviz" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
