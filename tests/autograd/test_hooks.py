"""Hooks on tensors, retain_grad, and the forward and backward hooks of modules."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn


def leaf(*shape):
    return mg.randn(*shape, dtype=mg.float64, requires_grad=True)


# ------------------------------------------------------------------------------------------------------------- tensors


def test_a_hook_sees_the_whole_gradient_once():
    x = leaf(3)
    h = x * 2
    seen = []
    h.register_hook(lambda g: seen.append(g.tolist()))
    (h + h * 3).sum().backward()
    assert seen == [[4, 4, 4]]


def test_hooks_replace_in_order_and_are_removed_one_by_one():
    x = leaf(2)
    h = x * 1
    order = []

    def times(k):
        def hook(g):
            order.append((k, g.tolist()))
            return g * k

        return hook

    first, second = h.register_hook(times(2)), h.register_hook(times(5))
    h.sum().backward(retain_graph=True)
    assert order == [(2, [1, 1]), (5, [2, 2])] and x.grad.tolist() == [10, 10]
    first.remove()
    first.remove()  # twice does no harm
    order.clear()
    y = h.sum()
    y.backward()
    assert order == [(5, [1, 1])] and x.grad.tolist() == [15, 15]
    second.remove()


def test_a_hook_may_remove_itself():
    x = leaf(2)
    calls = []
    handle = x.register_hook(lambda g: (calls.append(1), handle.remove())[0])
    for _ in range(2):
        (x * 2).sum().backward()
    assert calls == [1]


def test_hooks_on_leaves_roots_and_within_grad():
    x = leaf(2)
    y = (x * 3).sum()
    x.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: g * 2)
    assert mg.grad(y, x, retain_graph=True)[0].tolist() == [7, 7]
    y.backward()
    assert x.grad.tolist() == [7, 7]


@pytest.mark.parametrize("answer", [lambda g: g.sum(), lambda g: g.float(), lambda g: g.numpy(), lambda g: 0.0])
def test_a_wrong_replacement_raises_and_names_the_hook(answer):
    def my_hook(g):
        return answer(g)

    x = leaf(2)
    x.register_hook(my_hook)
    with pytest.raises(RuntimeError, match=r"my_hook.*\(2,\).*float64"):
        (x * 2).sum().backward()


def test_an_exception_in_a_hook_leaves_the_modes_and_the_grads_alone():
    x = leaf(2)
    h = x * 2

    def fail(g):
        raise KeyError("mine")

    handle = h.register_hook(fail)
    with pytest.raises(KeyError, match="mine"):
        h.sum().backward(retain_graph=True)
    assert mg.is_grad_enabled() and x.grad is None
    handle.remove()
    h.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_what_a_hook_holds_does_not_change_later():
    x, w, v = leaf(3), leaf(3), leaf(3)
    held = []

    def hold(g):
        held.append(g)

    def replace(g):
        held.append(g * 2)
        return held[-1]

    x.register_hook(hold)
    w.register_hook(hold)
    w.register_hook(replace)
    (x + w + x + w + x).sum().backward()
    ((w + v) * 2.0).sum().backward()  # v's gradient is the one that w's hooks were shown
    before = [g.numpy().copy() for g in held]
    with mg.no_grad():
        for leaf_ in (x, w, v):
            leaf_.grad.mul_(100)
    (x * 5 + w).sum().backward()
    for g, values in zip(held, before):
        np.testing.assert_array_equal(g.numpy(), values)


def test_a_hook_that_computes_with_parameters_records_nothing_unless_asked():
    x, w = leaf(3), leaf(3)
    x.register_hook(lambda g: g * w)
    for _ in range(2):
        (x * 2).sum().backward()
    assert not x.grad.requires_grad
    np.testing.assert_allclose(x.grad.numpy(), 4 * w.detach().numpy())
    (g,) = mg.grad((x * 2).sum(), x, create_graph=True)
    assert mg.grad(g.sum(), w)[0].tolist() == [2, 2, 2]


def test_a_cotangent_that_requires_a_gradient():
    x, c = leaf(3), leaf(3)
    for _ in range(2):
        (x * 2).backward(c)
    assert not x.grad.requires_grad
    (g,) = mg.grad(x * 2, x, c, create_graph=True)
    assert mg.grad(g.sum(), c)[0].tolist() == [2, 2, 2]


def test_retain_grad():
    x = leaf(3)
    h = x * 2
    h.retain_grad()
    (h * h).sum().backward(retain_graph=True)
    np.testing.assert_allclose(h.grad.numpy(), 2 * h.detach().numpy())
    held = h.grad
    (h * 1).sum().backward()
    np.testing.assert_allclose(h.grad.numpy(), held.numpy() + 1)
    assert not np.shares_memory(h.grad.array, x.grad.array)


# -------------------------------------------------------------------------------------------------------------- modules


class Scale(nn.Module):
    def __init__(self, factor):
        self.factor = nn.Parameter(mg.tensor(factor, dtype=mg.float64))

    def forward(self, x, *, plus=0.0):
        return x * self.factor + plus


def test_forward_hooks_see_and_replace():
    m, x = Scale(3.0), leaf(2)
    log = []
    pre = m.register_forward_pre_hook(lambda module, args: log.append((module is m, args)))
    post = m.register_forward_hook(lambda module, args, y: log.append((module is m, args, y)))
    y = m(x, plus=1.0)
    assert log == [(True, (x,)), (True, (x,), y)]
    pre.remove()
    post.remove()
    m.register_forward_pre_hook(lambda module, args: args[0] * 10)  # one value instead of a tuple
    m.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    m.register_forward_hook(lambda module, args, y: y * 2)
    m.register_forward_hook(lambda module, args, y: (y, "extra"))
    y, extra = m(x)
    assert extra == "extra"
    np.testing.assert_allclose(y.detach().numpy(), (x.detach().numpy() * 10 + 1) * 3 * 2)


def test_hooks_belong_to_one_module():
    a, b = Scale(1.0), Scale(1.0)
    a.register_forward_hook(lambda *_: mg.zeros(1))
    assert b(mg.ones(2, dtype=mg.float64)).tolist() == [1, 1]


def test_backward_hooks_see_both_sides():
    m, x = Scale(3.0), leaf(2)
    log = []
    handle = m.register_full_backward_hook(lambda module, dx, dy: log.append((module, dx, dy)))
    (m(x) * 5).sum().backward()
    ((module, dx, dy),) = log
    assert module is m and dx[0].tolist() == [15, 15] and dy[0].tolist() == [5, 5]
    assert x.grad.tolist() == [15, 15]
    np.testing.assert_allclose(m.factor.grad.item(), 5 * x.detach().numpy().sum())
    handle.remove()
    m(x).sum().backward()
    assert len(log) == 1


def test_backward_hooks_replace_in_order():
    m, x = Scale(3.0), leaf(2)
    m.register_full_backward_hook(lambda module, dx, dy: (dx[0] * 2,))
    m.register_full_backward_hook(lambda module, dx, dy: (dx[0] + 1,))
    m(x).sum().backward()
    assert x.grad.tolist() == [7, 7]
    assert m.factor.grad.item() == pytest.approx(x.detach().numpy().sum())  # what lies inside is not touched


def test_a_wrong_replacement_of_a_module_hook_raises():
    m, x = Scale(3.0), leaf(2)
    m.register_full_backward_hook(lambda module, dx, dy: dx[0].sum())
    with pytest.raises(RuntimeError, match="Scale"):
        m(x).sum().backward()


class Two(nn.Module):
    def forward(self, a, k, b):
        self.kept = (a * a).sum()
        return a * b * k, a + b, "text"


def test_backward_hooks_of_a_module_with_several_arguments_and_outputs():
    m, a, b = Two(), leaf(2), leaf(2)
    log = []
    m.register_full_backward_hook(lambda module, dx, dy: log.append((dx, dy)))
    product, total, text = m(a, 3, b)
    assert text == "text"
    product.sum().backward(retain_graph=True)  # total is not used: its gradient is 0
    ((dx, dy),) = log
    assert dx[1] is None and len(dx) == 3
    np.testing.assert_allclose(dx[0].numpy(), 3 * b.detach().numpy())
    np.testing.assert_allclose(dx[2].numpy(), 3 * a.detach().numpy())
    assert dy[0].tolist() == [1, 1] and dy[1].tolist() == [0, 0]
    total.sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), 3 * b.detach().numpy() + 1)


def test_a_backward_hook_and_a_loss_on_something_the_module_kept():
    m, a, b = Two(), leaf(2), leaf(2)
    log = []
    m.register_full_backward_hook(lambda module, dx, dy: log.append(dx))
    m(a, 1, b)
    m.kept.backward()
    np.testing.assert_allclose(a.grad.numpy(), 2 * a.detach().numpy())


def test_a_backward_hook_where_no_input_requires_a_gradient():
    m = Scale(3.0)
    log = []
    m.register_full_backward_hook(lambda module, dx, dy: log.append((dx, dy)))
    x = mg.ones(2, dtype=mg.float64)
    m(x).sum().backward()
    assert log[0][0] == (None,) and log[0][1][0].tolist() == [1, 1] and m.factor.grad.item() == 2
    with mg.no_grad():
        assert m(x).tolist() == [3, 3]
    assert len(log) == 1


def test_backward_hooks_and_second_derivatives():
    m, x = Scale(3.0), leaf(2)
    m.register_full_backward_hook(lambda module, dx, dy: (dx[0] * 2,))
    (g,) = mg.grad((m(x) ** 3).sum(), x, create_graph=True)
    values = x.detach().numpy()
    np.testing.assert_allclose(g.detach().numpy(), 2 * 3 * 3 * (3 * values) ** 2)
    (second,) = mg.grad(g.sum(), x)
    np.testing.assert_allclose(second.numpy(), 2 * 2 * 27 * 3 * 2 * values)


def test_what_a_module_hook_holds_does_not_change_later():
    m, x = Scale(3.0), leaf(2)
    held = []
    m.register_full_backward_hook(lambda module, dx, dy: held.extend((*dx, *dy)))
    m(x).sum().backward()
    before = [g.numpy().copy() for g in held]
    with mg.no_grad():
        x.grad.mul_(100)
    for g, values in zip(held, before):
        np.testing.assert_array_equal(g.numpy(), values)


def test_hooks_on_nodes_are_those_of_tensors():
    x = leaf(2)
    y = x * 2.0
    seen = []
    handle = y.node.add_hook(lambda g: seen.append("node"))
    y.register_hook(lambda g: seen.append("tensor"))
    y.sum().backward(retain_graph=True)
    handle.remove()
    handle.remove()  # it is gone already
    y.sum().backward()
    assert seen == ["node", "tensor", "tensor"]
