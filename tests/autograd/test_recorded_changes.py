"""Changes in place that the graph records: the values and gradients are those of the op that makes a new tensor."""

import numpy as np
import pytest

import minigrad as mg

MASK = np.array([[True, False, True], [False, True, False]])
LAST = mg.tensor([[1, 0, 1], [0, 1, 1]])

CHANGES = {  # name: (change of x in place by values of w, the same as a new tensor); both (2, 3)
    "add_": (lambda x, w: x.add_(w, alpha=2), lambda x, w: x + 2 * w),
    "sub_": (lambda x, w: x.sub_(w), lambda x, w: x - w),
    "mul_": (lambda x, w: x.mul_(w), lambda x, w: x * w),
    "mul_ by itself": (lambda x, w: x.mul_(x), lambda x, w: x * x),
    "div_": (lambda x, w: x.div_(w), lambda x, w: x / w),
    "div_ by a number": (lambda x, w: x.div_(3), lambda x, w: x / 3),
    "exp_": (lambda x, w: x.exp_(), lambda x, w: x.exp()),
    "pow_": (lambda x, w: x.pow_(3), lambda x, w: x**3),
    "clamp_": (lambda x, w: x.clamp_(-0.5, 0.5), lambda x, w: x.clamp(-0.5, 0.5)),
    "lerp_": (lambda x, w: x.lerp_(w, 0.3), lambda x, w: x + 0.3 * (w - x)),
    "addcmul_": (lambda x, w: x.addcmul_(w, x, value=0.5), lambda x, w: x + 0.5 * w * x),
    "addcdiv_": (lambda x, w: x.addcdiv_(x, w), lambda x, w: x + x / w),
    "masked_fill_": (
        lambda x, w: x.masked_fill_(mg.tensor(MASK), -9.0),
        lambda x, w: mg.where(mg.tensor(MASK), -9.0, x),
    ),
    "scatter_": (lambda x, w: x.scatter_(1, LAST[:, :1], w[:, 1:2]), lambda x, w: x.scatter(1, LAST[:, :1], w[:, 1:2])),
    "copy_": (lambda x, w: x.copy_(w), lambda x, w: w * 1),
    "copy_ of a row": (lambda x, w: x.copy_(w[0]), lambda x, w: w[0].expand(2, 3)),
    "copy_ of another dtype": (lambda x, w: x.copy_(w.to(mg.float32)), lambda x, w: w.to(mg.float32).to(mg.float64)),
    "zero_": (lambda x, w: x.zero_(), lambda x, w: x * 0),
    "fill_": (lambda x, w: x.fill_(2.5), lambda x, w: x * 0 + 2.5),
    "x[:, 1] = w": (
        lambda x, w: x.__setitem__((slice(None), 1), w[:, 0]),
        lambda x, w: mg.cat([x[:, :1], w[:, :1], x[:, 2:]], 1),
    ),
    "x[1] = number": (lambda x, w: x.__setitem__(1, 4.0), lambda x, w: mg.stack([x[0], x[1] * 0 + 4])),
    "x[0] = array": (lambda x, w: x.__setitem__(0, np.ones(3)), lambda x, w: mg.stack([x[0] * 0 + 1, x[1]])),
    "x[…] = (1, 3)": (lambda x, w: x.__setitem__(..., w[:1]), lambda x, w: w[:1].expand(2, 3)),
    "x[0] = (1, 1, 3)": (lambda x, w: x.__setitem__(0, w[:1][None]), lambda x, w: mg.stack([w[0], x[1]])),
    "x[mask] = w": (
        lambda x, w: x.__setitem__(MASK, w.reshape(6)[:3]),
        lambda x, w: mg.stack([mg.stack([w[0, 0], x[0, 1], w[0, 1]]), mg.stack([x[1, 0], w[0, 2], x[1, 2]])]),
    ),
    "x[mask] = number": (lambda x, w: x.__setitem__(x > 0, 0.0), lambda x, w: mg.where(x > 0, 0.0, x)),
    "x[repeated rows] = w": (lambda x, w: x.__setitem__([1, 1], w), lambda x, w: mg.stack([x[0], w[1]])),
    "x[0, places] = w": (
        lambda x, w: x.__setitem__((0, [2, 0]), w[1, :2]),
        lambda x, w: mg.stack([mg.stack([w[1, 1], x[0, 1], w[1, 0]]), x[1]]),
    ),
    "x[0] += w": (lambda x, w: x.__setitem__(0, x[0].__iadd__(w[0])), lambda x, w: mg.stack([x[0] + w[0], x[1]])),
    "+=": (lambda x, w: x.__iadd__(w), lambda x, w: x + w),
    "*=": (lambda x, w: x.__imul__(w), lambda x, w: x * w),
    "two changes": (lambda x, w: x.mul_(w).exp_(), lambda x, w: (x * w).exp()),
}
ORIGINS = {  # what x is, and what of it is in the graph before the change
    "a result": lambda w, data: w.tanh() + data,
    "data": lambda w, data: data * 1,
    "a view": lambda w, data: (w * 2).T.contiguous().T,
}
HOW = ["plain", pytest.param("captured", marks=pytest.mark.needs("g++"))]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("origin", ORIGINS.values(), ids=ORIGINS)
@pytest.mark.parametrize("change, function", CHANGES.values(), ids=CHANGES)
def test_a_recorded_change(change, function, origin, how):
    rng = np.random.default_rng(0)
    data, weights = mg.tensor(rng.standard_normal((2, 3))), mg.tensor(rng.standard_normal((2, 3)))

    def run(w, function):
        x = origin(w, data)
        before = x.exp()  # an op that saves the old values
        y = function(x, w)
        y = x if y is None else y
        loss = (y * y * weights).sum() + before.sum()
        if loss.requires_grad:
            loss.backward()
        return y.detach(), loss.detach(), x.shape

    values = [rng.standard_normal((2, 3)) for _ in range(3)]
    step = mg.capture(run) if how == "captured" else run
    for value in values:
        w, same = (mg.tensor(value, requires_grad=True) for _ in range(2))
        (y, loss, shape), expected = step(w, change), run(same, function)
        assert shape == (2, 3) and y.dtype == mg.float64
        np.testing.assert_allclose(y.numpy(), expected[0].numpy(), rtol=1e-13)
        np.testing.assert_allclose(loss.item(), expected[1].item(), rtol=1e-13)
        assert (w.grad is None) == (same.grad is None)
        if w.grad is not None:
            np.testing.assert_allclose(w.grad.numpy(), same.grad.numpy(), rtol=1e-12, atol=1e-13)


def w_and_x():
    w = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    return w, w * 2


def test_the_tensor_stays_the_same_object():
    _, x = w_and_x()
    kept = x
    assert x.add_(1) is kept
    x *= 2
    assert x is kept and kept.tolist() == [6, 10, 14] and kept.op.name == "mul"


OUTDATED = {
    "a view": lambda x: x[:1],
    "the same shape": lambda x: x.view(3),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "another part": lambda x: x[2:],
}
USES = {
    "op": lambda v: v + 1,
    "second operand": lambda v: mg.ones(1, dtype=v.dtype) + v,
    "cat": lambda v: mg.cat([mg.ones(1), v]),
    "value": lambda v: v.detach().numpy(),
    "change": lambda v: v.add_(1),
    "assignment": lambda v: mg.zeros(3).__setitem__(slice(len(v)), v),
    "repr": repr,
    "device": lambda v: v.device,
    "backward": lambda v: v.sum().backward(),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("view", OUTDATED.values(), ids=OUTDATED)
def test_a_view_made_before_is_outdated(view, use, how):
    message = r"changed in place by mul_ at .*test_recorded_changes.py:\d+.*make the view again after"

    def step():
        _, x = w_and_x()
        v = view(x)
        x.mul_(3)
        with pytest.raises(mg.GraphError, match=message):
            use(v)
        assert v.shape == v.array.shape
        return v, x.detach()

    step = mg.capture(step) if how == "captured" else step
    for _ in range(3):
        v, x = step()
        with pytest.raises(mg.GraphError, match=message):
            use(v)
        assert x.tolist() == [6, 12, 18]


@pytest.mark.parametrize("how", HOW)
def test_the_base_of_a_changed_view_is_outdated(how):
    def step(w):
        x = w * 2
        v = x[:2]
        v[0] = w[2]
        with pytest.raises(mg.GraphError, match="changed in place by assignment to an index at"):
            x.sum()
        v.sum().backward()
        return v.detach()

    step = mg.capture(step) if how == "captured" else step
    for _ in range(3):
        w, _ = w_and_x()
        assert step(w).tolist() == [3, 4] and w.grad.tolist() == [0, 2, 1]


@pytest.mark.needs("g++")
def test_a_call_that_changes_is_not_one_that_makes_a_new_tensor():
    """Both calls run the same ops. Only in one of them is the view outdated."""

    @mg.capture
    def step(w, in_place):
        x = w * 2
        v = x[:1]
        y = x.exp_() if in_place else x.exp()
        return (v * 3).detach(), y.detach()

    w, _ = w_and_x()
    assert step(w, False)[0].tolist() == [6]
    with pytest.raises(mg.GraphError, match="changed in place by exp_"):
        step(w, True)
    assert step(w, False)[0].tolist() == [6] and step.calls["replayed"] == 1


REFUSED = {
    "add_": lambda w: w.add_(1.0),
    "assignment": lambda w: w.__setitem__(0, 1.0),
    "+=": lambda w: w.__iadd__(1.0),
    "a view": lambda w: w[:1].mul_(2.0),
    "a view of a view": lambda w: w.view(3, 1).T.zero_(),
    "detach": lambda w: w.detach().add_(w),
    "normal_": lambda w: w.normal_(),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_leaves_are_refused(change, how):
    def step(w):
        with pytest.raises(mg.GraphError, match=r"changes a leaf that requires a gradient, or a view of one.*no_grad"):
            change(w)
        (w * w).sum().backward()

    w, _ = w_and_x()
    (mg.capture(step) if how == "captured" else step)(w)
    assert w.tolist() == [1, 2, 3] and w.grad.tolist() == [2, 4, 6]


def test_a_leaf_that_no_longer_requires_a_gradient_may_be_changed():
    w, x = w_and_x()
    frozen = mg.ones(3, requires_grad=True).requires_grad_(False)
    frozen[:2] = x[:2]
    frozen.sum().backward()
    assert frozen.tolist() == [2, 4, 1] and w.grad.tolist() == [2, 2, 0]


def test_a_change_that_does_not_fit_is_none():
    w, x = w_and_x()
    node, v = x.node, x[:1]
    for change in (lambda: x.add_(mg.ones(2, 3)), lambda: x.copy_(mg.ones(7)), lambda: x.__setitem__(9, w[0])):
        with pytest.raises((ValueError, IndexError)):
            change()
    assert x.node is node and v.tolist() == [2]
    with pytest.raises(mg.GraphError, match=r"read-only.*clone"):
        w[:1].expand(3).add_(1.0)


def test_integers_and_bools_take_values_without_a_gradient():
    w, _ = w_and_x()
    counts, mask = mg.zeros(3, dtype=mg.int64), mg.zeros(3, dtype=mg.bool_)
    counts[:] = w * 1.5
    mask.copy_(w - 1)
    assert counts.tolist() == [1, 3, 4] and mask.tolist() == [False, True, True] and not counts.requires_grad


def test_attributes_of_the_graph():
    w, x = w_and_x()
    x.retain_grad()
    x.mul_(x)
    (2 * x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2] and w.grad.tolist() == [16, 32, 48]


def test_derivatives_of_a_change():
    w = mg.tensor([1.0, 2.0], dtype=mg.float64, requires_grad=True)

    def f(w):
        x = w * w
        x[0] = w[1] ** 3
        x.mul_(w)
        return x.sum()  # w1³ w0 + w1³

    (dw,) = mg.grad(f(w), w, create_graph=True)
    assert dw.tolist() == [8, 3 * 4 * 1 + 3 * 4]
    (ddw,) = mg.grad(dw[0], w)
    assert ddw.tolist() == [0, 12]
    assert mg.gradcheck(f, w)


def test_the_backward_of_a_formula_makes_no_leaf_of_its_inputs():
    w, _ = w_and_x()
    for create_graph in (False, True):
        x = w * 2
        y = mg.nn.functional.layer_norm(x, (3,))
        (dx,) = mg.grad((y**3).sum(), x, create_graph=create_graph, retain_graph=True)
        if create_graph:
            dx.square().sum().backward(retain_graph=True)
        x.mul_(2)
        assert x.tolist() == [4, 8, 12]


def test_under_no_grad_the_memory_is_written():
    w, x = w_and_x()
    v = x[:1]
    with mg.no_grad():
        x.add_(1)
    assert v.tolist() == [3] and x.op.name == "mul"
    x.sum().backward()
    assert w.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("how", HOW)
def test_parts_that_are_augmented_leave_the_other_parts(how):
    """q *= scale, of a part of qk, makes a new tensor, so that k can still be used."""

    def step(leaf):
        qk = leaf * 2
        q, k = qk[0], qk[1].view(3, 1).T[0]
        q *= 0.5
        k += 1
        (q * k).sum().backward()
        return q.detach(), k.detach()

    step = mg.capture(step) if how == "captured" else step
    leaf = mg.ones(2, 3, requires_grad=True)
    for _ in range(3):
        leaf.grad = None
        q, k = step(leaf)
        assert q.tolist() == [1, 1, 1] and k.tolist() == [3, 3, 3] and leaf.grad.tolist() == [[3] * 3, [2] * 3]


@pytest.mark.parametrize("how", HOW)
def test_whole_views_that_are_augmented_outdate_the_base(how):
    def step(w):
        x = w * 2
        v = x.view(3, 1).T
        v += 1
        with pytest.raises(mg.GraphError, match="changed in place by add_"):
            x.sum()
        return v.detach()

    step = mg.capture(step) if how == "captured" else step
    w, _ = w_and_x()
    for _ in range(3):
        assert step(w).tolist() == [[3, 5, 7]]
