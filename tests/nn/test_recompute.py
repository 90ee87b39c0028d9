"""nn.recompute: the same gradients, of less memory."""

import tracemalloc
import weakref

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.gradcheck import gradcheck
from minigrad.nn import recompute


def data(*shape):
    return mg.randn(*shape, dtype=mg.float64, requires_grad=True)


def test_gradients_of_arguments_parameters_and_what_a_closure_holds():
    layer, outer, x, mask = nn.Linear(4, 3).double(), data(3), data(2, 4), mg.tensor([[True], [False]])

    def function(x, mask, scale):
        y = layer(x) * inner * scale + outer
        return mg.where(mask, y, y * y), y.sum()

    found = []
    for call in (function, lambda *args: recompute(function, *args)):
        inner = outer * 2  # not a leaf
        y, total = call(x, mask, 3.0)
        leaves = [x, outer, *layer.parameters()]
        found.append([y, total, *mg.grad((y * y).sum() + total, leaves)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_second_derivatives_and_gradcheck():
    layer, x = nn.Linear(3, 3).double(), data(2, 3)
    gradcheck(lambda layer, x: recompute(lambda x: layer(x).tanh(), x), layer, x, order=2)


def test_nested_and_twice():
    x = data(3)

    def inner(x):
        return x.exp() * x

    def outer(x):
        return recompute(inner, x) + x

    (plain,) = mg.grad((inner(x) + x).sum(), [x])
    y = recompute(outer, x)
    (first,) = mg.grad(y.sum(), [x], retain_graph=True)
    (again,) = mg.grad(y.sum(), [x])
    np.testing.assert_allclose(first.numpy(), plain.numpy(), rtol=1e-15)  # summed in another order
    np.testing.assert_array_equal(again.numpy(), first.numpy())


def test_hooks_on_parameters_run_once_and_modes_are_put_back():
    layer, calls = nn.Linear(3, 3), []
    layer.weight.register_hook(lambda g: calls.append(g.shape))
    recompute(lambda x: layer(x).tanh(), mg.randn(2, 3)).sum().backward()
    assert calls == [(3, 3)] and layer.weight.grad is not None and mg.is_grad_enabled()


def test_without_gradients_it_is_a_plain_call():
    layer, x = nn.Linear(3, 3), mg.randn(2, 3)
    with mg.no_grad():
        assert recompute(layer, x).node is None
    layer.requires_grad_(False)
    assert recompute(layer, x).node is None


def test_an_input_changed_in_place_is_noticed():
    layer, x = nn.Linear(3, 3), mg.randn(2, 3, requires_grad=True)
    y = recompute(layer, x * 1)
    with mg.no_grad():
        layer.weight.mul_(2)
    with pytest.raises(mg.GraphError, match="in-place"):
        y.sum().backward()


def test_what_is_changed_between_forward_and_backward_is_noticed():
    a, factor = data(3), mg.randn(3, dtype=mg.float64)
    y = recompute(lambda a: a * a * factor, a)
    factor.mul_(5)
    with pytest.raises(mg.GraphError, match="changed in-place since its forward"):
        y.sum().backward()


def test_results_that_are_inputs_or_depend_on_nothing():
    a, w = data(3), data(3)
    y, z = recompute(lambda a: (a * 2, w), a)
    (y + z).sum().backward()
    assert (w.grad == 1).all() and (a.grad == 2).all()
    a.grad = None
    (recompute(lambda a: a.detach() * 2, a).sum() + a.sum()).backward()
    assert (a.grad == 1).all()
    with pytest.raises(TypeError, match="must return a Tensor or a tuple of Tensors, not list"):
        recompute(lambda a: [a], a)


def test_nothing_is_kept_after_backward():
    a = data(3)
    inside = a * 2
    kept = weakref.ref(inside)
    loss = recompute(lambda x: x.exp(), inside).sum()
    del inside
    assert kept() is not None
    loss.backward()
    assert kept() is None


def test_dropout_drops_the_same_and_draws_no_more():
    x = data(50)
    mg.manual_seed(3)
    y = recompute(lambda x: nn.functional.dropout(x, 0.5), x)
    mg.rand(3)  # drawn in between, so that backward has to come back from where forward was
    state = mg.default_generator.state
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy() != 0, y.detach().numpy() != 0)
    assert mg.default_generator.state == state


def held(recompute):
    """Bytes that a forward of eight blocks keeps for backward."""
    config = nn.GPTConfig(11, 64, n_layer=8, n_head=4, n_embd=64, recompute=recompute)
    m, idx = nn.GPT(config), mg.randint(0, 11, (8, 64))
    m(idx, idx)[1].backward()  # what is made once is made
    tracemalloc.start()
    _, loss = m(idx, idx)
    kept = tracemalloc.get_traced_memory()[0]
    loss.backward()
    tracemalloc.stop()
    return kept


def test_less_is_kept():
    assert held(True) < held(False) / 5
