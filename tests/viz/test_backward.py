"""Pictures of gradients: norms on edges, the backward pass as a graph, folding by depth, and the legend."""

import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, viz
from minigrad.autograd import Op

from .pictures import boxes, leaf, needs_dot


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


def caption(graph):
    table = re.search(r"label=<(<table.*</table>)>", graph.source)[1]
    return re.sub(r"(<[^>]*>)+", "\n", table)


def three(x):
    return f"{float(np.linalg.norm(x.numpy().astype(np.float64))):.3g}"


def gpt(**changes):
    config = dict(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=8) | changes
    model = nn.GPT(nn.GPTConfig(**config))
    tokens = mg.randint(0, 11, (2, 8))
    return model, model(tokens, tokens)[1]


# -- gradient norms


def test_edges_show_the_norms_that_grad_gives():
    x, w = leaf(3, 4), leaf(4, 5)
    y = x @ w
    z = y.tanh()
    loss = (y * z).sum()
    gy, gz, gx, gw = mg.grad(loss, [y, z, x, w], retain_graph=True)
    g = viz.graph(loss, names={"x": x, "w": w}, show="grad_norm")
    assert sorted(arrows(g)) == sorted([
        ("x", "matmul", [three(gx)]), ("w", "matmul", [three(gw)]), ("matmul", "tanh", [three(gy)]),
        ("matmul", "mul", [three(gy)]), ("tanh", "mul", [three(gz)]), ("mul", "sum", [f"{15**0.5:.3g}"]),
    ])  # fmt: skip
    assert box(g, "matmul") == ["matmul"] and box(g, "x") == ["x", "no grad yet"]  # no shapes
    both = viz.graph(loss, show=("shape", "grad_norm"))
    assert box(both, "matmul")[-1] == "(3, 5) float32" and arrows(both)[0][2] == [three(gx)]


def test_a_leaf_shows_its_own_grad():
    x = leaf(3)
    (x * x).sum().backward()
    x.grad = mg.tensor([3.0, 0.0, 4.0])
    loss = (2 * x).sum()
    assert box(viz.graph(loss, names={"x": x}, show="grad_norm"), "x") == ["x", "|grad| 5"]
    x.grad = mg.zeros(3)
    assert box(viz.graph(loss, names={"x": x}, show="grad_norm"), "x") == ["x", "|grad| 0"]
    x.grad = None
    assert box(viz.graph(loss, names={"x": x}, show="grad_norm"), "x") == ["x", "no grad yet"]


class Half(Op, abstract=True):
    """y = a;   da = dy, and db is nothing"""

    def forward(self, a, b):
        return self.backend.mul(a, 1.0)

    def backward(self, dy):
        return dy, None


def test_zero_none_and_not_finite_are_told_apart():
    x, b = leaf(2), leaf(2)
    for direction in ("forward", "backward"):
        labels = [label for *_, label in arrows(viz.graph((x * 0).sum(), show="grad_norm", direction=direction))]
        assert ["0"] in labels and ["no grad"] not in labels
        g = viz.graph(Half.apply(x, b.exp()).sum(), names={"x": x, "b": b}, show="grad_norm", direction=direction)
        by_tail_or_head = {name: label for *ends, label in arrows(g) for name in ends}
        assert by_tail_or_head["exp" if direction == "forward" else "exp backward"] == ["no grad"]
        assert by_tail_or_head["b" if direction == "forward" else "b.grad"] == ["no grad"]
        for factor, shown in ((float("nan"), "nan"), (float("inf"), "inf")):
            assert [shown] in [label for *_, label in arrows(viz.graph((x * factor).sum(), show="grad_norm"))]


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_a_norm_whose_square_is_out_of_range(size):
    x = leaf(2, dtype=mg.float64)
    assert arrows(viz.graph((x * (3 * size)).sum(), show="grad_norm"))[0][2] == [f"{3 * size * 2**0.5:.3g}"]


def test_drawing_changes_no_grad_runs_no_hook_and_frees_nothing():
    model, _ = gpt(n_layer=1, impl="batched")
    tokens, ran = mg.randint(0, 11, (2, 8)), []
    model.blocks[0].attn.register_full_backward_hook(lambda module, gx, gy: ran.append("module"))
    model.wpe.weight.register_hook(lambda g: ran.append("leaf"))
    logits, loss = model(tokens, tokens)
    logits.register_hook(lambda g: ran.append("value") or g * 2)
    logits.retain_grad()
    model.norm.weight.grad = mg.ones(8)
    hooks = dict(logits.node.hooks)
    for direction in ("forward", "backward"):
        with mg.autograd.detect_anomaly(), mg.no_grad():
            g = viz.graph(loss, direction=direction, show="grad_norm")
        assert "without hooks" in caption(g)
    assert not ran and logits.grad is None and logits.node.hooks == hooks
    assert (model.norm.weight.grad.numpy() == 1).all()
    assert all(p.grad is None for name, p in model.named_parameters() if name != "norm.weight")
    loss.backward()  # not freed, and its hooks are back
    assert sorted(ran) == ["leaf", "module", "value"] and logits.grad is not None
    assert "hooks" not in caption(viz.graph(leaf(2).sum(), show="grad_norm"))


def test_nan_is_drawn_within_detect_anomaly_and_nothing_watches():
    x, seen = mg.tensor([-1.0, 4.0], requires_grad=True), []
    loss = x.sqrt().sum()
    with mg.autograd.watch(lambda *about: seen.append(about)), mg.autograd.detect_anomaly():
        assert ["nan"] in [label for *_, label in arrows(viz.graph(loss, show="grad_norm"))]
    assert not seen


def test_a_freed_graph_shows_what_grad_holds_and_says_why():
    x = leaf(3)
    y = x.exp()
    y.retain_grad()
    loss = (y.tanh() * 2).sum()
    loss.backward()
    for direction, shown in (
        ("forward", {("x", "exp"): x.grad, ("exp", "tanh"): y.grad}),
        ("backward", {("exp backward", "x.grad"): x.grad, ("tanh backward", "exp backward"): y.grad}),
    ):
        g = viz.graph(loss, names={"x": x}, direction=direction, show="grad_norm")
        assert "the graph was freed by backward: draw it before, or pass retain_graph=True" in caption(g)
        for tail, head, label in arrows(g):
            assert label == ([three(shown[tail, head])] if (tail, head) in shown else [])


def test_what_is_not_a_scalar_says_so():
    x = leaf(3)
    for direction in ("forward", "backward"):
        g = viz.graph([x.exp(), x.sum()], direction=direction, show="grad_norm")
        assert "a tensor of shape (3,) is not a scalar" in caption(g)
        assert not any(label for *_, label in arrows(g))
    assert "not a scalar" not in caption(viz.graph(x.sum(0, keepdim=True), show="grad_norm"))


def test_an_array_that_was_changed_since_is_told():
    x = leaf(3)
    loss = (x * x).sum()
    with mg.no_grad():
        x += 1
    said = caption(viz.graph(loss, show="grad_norm"))  # three lines: of the reason as much as the path leaves room for
    assert "edges show only the gradients that a .grad holds:" in said and "mul, made at" in said


def test_several_scalars_give_the_gradient_of_their_sum():
    x = leaf(3)
    a, b = (x * x).sum(), x.exp().sum()
    (gx,) = mg.grad(a + b, [x], retain_graph=True)
    g = viz.graph([a, b, a], names={"x": x}, direction="backward", show="grad_norm")
    assert ("+", "x.grad", [three(gx)]) in arrows(g)
    assert {head for tail, head, _ in arrows(g) if tail == "1"} == {"sum backward"}
    c = a * b  # a root that another root uses: its gradient is b + 1
    g = viz.graph([a, c], direction="backward", show="grad_norm")
    assert ("+", "sum backward", [f"{b.item() + 1:.3g}"]) in arrows(g)


# -- the backward pass


def test_backward_runs_from_the_loss_to_the_leaves():
    x, w, data = leaf(2, 3), leaf(3, 3), mg.randn(2, 3)
    y = x @ w + data
    loss = y.tanh().sum()
    g = viz.graph(loss, names={"x": x, "w": w}, direction="backward")
    assert arrows(g) == [
        ("1", "sum backward", ["()"]),
        ("sum backward", "tanh backward", ["(2, 3)"]),
        ("tanh backward", "add backward", ["(2, 3)"]),
        ("add backward", "matmul backward", ["(2, 3)"]),
        ("matmul backward", "w.grad", ["(3, 3)"]),
        ("matmul backward", "x.grad", ["(2, 3)"]),
    ]
    assert box(g, "tanh backward") == ["tanh backward", "dx = dy (1 - y²)"]
    assert box(g, "matmul backward") == ["matmul backward", "da = dy bᵀ, db = aᵀ dy"]
    assert box(g, "x.grad") == ["x.grad", "(2, 3) float32"]
    assert len(boxes(g)) == len(titles(g)) == 7  # no dots: data has no gradient
    assert "dy" in titles(viz.graph(y, direction="backward"))
    assert arrows(viz.graph(leaf(), direction="backward", show=())) == [("1", "leaf.grad", [])]


def test_only_a_derivative_is_taken_from_the_docstring():
    x = leaf(2, 4)
    for y, lines in (
        (x.clamp(0, 1), ["dx = dy where min ≤ x ≤ max, else 0"]),
        (mg.stack([x]), ["each dx is its slice of dy"]),
        (x.softmax(1), ["dx = y (dy - Σ dy y)"]),  # and not the next paragraph
        (nn.functional.gelu(x), []),  # has a ";", and no derivative after it
        (mg.maximum(x, x), ["dy goes to the larger, half to each", "where they tie"]),
    ):
        assert box(viz.graph(y, direction="backward"), f"{y.op.name} backward")[1:] == lines


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
    assert "used more than once" in caption(g)
    once = viz.graph(y.sum(), direction="backward")
    assert "+" not in titles(once) and "used more than once" not in caption(once)


def test_what_broadcasting_repeated_is_summed_before_it_is_measured():
    bias = leaf(4)
    loss = ((mg.randn(5, 4) + bias) * bias).sum()
    (g,) = mg.grad(loss, [bias], retain_graph=True)
    picture = viz.graph(loss, names={"b": bias}, direction="backward", show="grad_norm")
    assert ("+", "b.grad", [three(g)]) in arrows(picture)
    assert ("add backward", "+", [three(5 * bias.detach())]) in arrows(picture)


def test_outputs_of_one_op_are_told_apart():
    q, k = leaf(2, 6).split(3, dim=1)
    g = viz.graph((k - q).sum(), direction="backward", show="grad_norm")
    root = f"{6**0.5:.3g}"
    into = [label for _, head, label in arrows(g) if head == f"{q.op.name} backward"]
    assert sorted(into) == [["[0]", root], ["[1]", root]] and "which output of the op" in caption(g)
    unused, _ = leaf(4).split(2)
    assert arrows(viz.graph(unused.sum(), direction="backward"))[1][2] == ["[0]", "(2,)"]


# -- folding


def test_depth_folds_modules_and_counts_a_list_index_to_its_name():
    model, loss = gpt()
    for direction in ("forward", "backward"):
        g = viz.graph(loss, names=model, depth=1, direction=direction)
        assert set(g.hidden) == {"wte", "wpe", "blocks.0", "blocks.1", "norm"}
        assert "depth=1 hides what is in" in caption(g) and "max_nodes" not in caption(g)
        g = viz.graph(loss, names=model, depth=2, direction=direction)
        parts = {f"blocks.{i}.{part}" for i in (0, 1) for part in ("norm1", "attn", "norm2", "mlp")}
        assert set(g.hidden) == parts
        drawn = sum('tooltip="op: ' in each for each in g.source.splitlines())
        assert drawn + sum(g.hidden.values()) == g.ops
        assert not viz.graph(loss, names=model, depth=9, direction=direction, max_nodes=10**6).hidden
    folded = viz.graph(loss, names=model, depth=1, direction="backward")
    assert box(folded, "blocks.1 · Block backward")[1:] == ["12 ops, 6 leaves"]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("max_nodes", [200, 25, 12, 5, 2])
def test_max_nodes_folds_further_and_the_caption_says_which_did(direction, max_nodes):
    model, loss = gpt()
    g = viz.graph(loss, names=model, depth=2, direction=direction, max_nodes=max_nodes)
    assert len(boxes(g)) <= max_nodes
    told, why = {}, ""
    for word in caption(g).replace(",", "").split():
        if word.startswith(("depth=", "max_nodes=")):
            why = word
        elif word in g.hidden:
            told[word] = why
    at_depth = {key for key in g.hidden if re.fullmatch(r"blocks\.\d\.\w+", key)}
    assert told == {key: "depth=2" if key in at_depth else f"max_nodes={max_nodes}" for key in g.hidden}
    assert (told.keys() == at_depth) == (max_nodes == 200)
    assert (told.keys() == {"blocks.0", "blocks.1"}) == (max_nodes == 25)
    drawn = sum('tooltip="op: ' in line for line in g.source.splitlines())
    assert drawn + sum(g.hidden.values()) == g.ops


def test_contributions_within_a_folded_module_need_no_plus():
    class Square(nn.Module):
        def forward(self, x):
            return x * x

    class Model(nn.Module):
        def __init__(self):
            self.a, self.b = Square(), Square()

        def forward(self, x):
            y = self.a(x)
            return (self.b(y) + y).sum()

    model, x = Model(), leaf(3, dtype=mg.float64)
    y = x * x
    g = viz.graph(model(x), names=model, depth=1, direction="backward", show="grad_norm")
    assert sorted(arrows(g)) == sorted(
        [
            ("1", "sum backward", ["1"]),
            ("sum backward", "add backward", [f"{3**0.5:.3g}"]),
            ("add backward", "b · Square backward", [f"{3**0.5:.3g}"]),
            ("b · Square backward", "+", [three(2 * y.detach())]),
            ("add backward", "+", [f"{3**0.5:.3g}"]),
            ("+", "a · Square backward", [three((2 * y + 1).detach())]),
        ]
    )


def test_a_gradient_that_a_folded_box_gives_itself_is_not_on_its_edge():
    class Inner(nn.Module):
        def forward(self, x):
            y = x.exp()
            return y.sum(), y

    class Model(nn.Module):
        def __init__(self):
            self.inner = Inner()

        def forward(self, x):
            total, y = self.inner(x)
            return total + (y * 3).sum()

    loss = Model()(leaf(4))
    backward = arrows(viz.graph(loss, depth=1, direction="backward", show="grad_norm"))
    assert ("mul backward", "inner backward", ["6"]) in backward  # |(3, 3, 3, 3)|, without the (1, 1, 1, 1) inside
    assert ("inner", "mul", ["8"]) in arrows(viz.graph(loss, depth=1, show="grad_norm"))  # of the value: |(4, 4, 4, 4)|


# -- text


def test_equal_graphs_give_equal_text():
    for kwargs in (dict(depth=1), dict(depth=2, max_nodes=20), dict(max_nodes=7), {}):
        found = set()
        for _ in range(3):
            mg.manual_seed(0)
            model, loss = gpt()
            found.add(viz.graph(loss, names=model, direction="backward", show=["shape", "grad_norm"], **kwargs).source)
        assert len(found) == 1


def test_the_legend_explains_what_is_there_and_nothing_else():
    x = leaf(3)
    plain = caption(viz.graph((x * x).sum(), show=()))
    assert "an op" in plain and "a leaf" in plain
    for absent in ("a dot", "folded", "the middle", "|gradient|", "which output"):
        assert absent not in plain
    model, loss = gpt()
    folded = caption(viz.graph(loss, names=model, depth=1, show="grad_norm"))
    for present in ("a dot", "folded into one box", "|gradient|"):
        assert present in folded
    assert "the middle" in caption(viz.graph(loss, names=model, max_nodes=4))
    backward = caption(viz.graph(loss, direction="backward"))
    assert "where backward starts" in backward and "a dot" not in backward and "|gradient|" not in backward


def test_unknown_names_are_told():
    loss = leaf(3).sum()
    with pytest.raises(ValueError, match=r"no thing to show 'grad_nrm'; did you mean grad_norm\?$"):
        viz.graph(loss, show=["grad_nrm"])
    with pytest.raises(ValueError, match=r"no direction 'back'; did you mean backward\?"):
        viz.graph(loss, direction="back")
    with pytest.raises(ValueError, match="no direction 7; there are forward, backward"):
        viz.graph(loss, direction=7)
    with pytest.raises(ValueError, match="depth must be at least 1, or None, got 0"):
        viz.graph(loss, depth=0)


@needs_dot
def test_dot_draws_the_backward_pass(tmp_path):
    model, loss = gpt(n_layer=1, impl="batched")
    for depth in (None, 1, 2):
        g = viz.graph(loss, names=model, depth=depth, direction="backward", show=["shape", "grad_norm"])
        assert g.save(tmp_path / "a.svg")[1].read_text(encoding="utf-8").count('<g id="node') == len(boxes(g))
