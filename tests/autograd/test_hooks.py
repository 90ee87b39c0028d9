"""Hooks on tensors, retain_grad, and the forward and backward hooks of modules."""

import numpy as np
import pytest

import minigrad as mg


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


def test_gradients_that_a_hook_keeps_do_not_share_memory_with_grad():
    x, kept = leaf(3), []
    x.register_hook(lambda g: kept.extend([g, g * 2]) or kept[1])
    (x * 1).sum().backward()
    assert x.grad.tolist() == [2, 2, 2] and not any(np.shares_memory(g.array, x.grad.array) for g in kept)
