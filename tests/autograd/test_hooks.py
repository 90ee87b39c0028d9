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
