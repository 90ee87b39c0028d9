"""An optimizer of one's own: a class with its options, its buffers and its formula, and nothing else."""

import copy

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim
from minigrad.autograd import GraphError

from .leaves import gradients, leaf


class Adagrad(optim.Optimizer):
    """s += g²;   p -= lr · g / (√s + eps). Source: Duchi, Hazan and Singer 2011."""

    buffers = ("s",)
    squares = ("s",)

    def __init__(self, params, lr=1e-2, eps=1e-10):
        super().__init__(params, {"lr": lr, "eps": eps})

    def update(self, p, g, state, group):
        state["s"].add_(g * g)
        p -= group["lr"] * g / (state["s"].sqrt() + group["eps"])


def test_an_optimizer_of_ones_own_needs_its_formula_only():
    def run(p, optimizer, grads):
        for g in grads:
            p.grad = mg.tensor(g)
            optimizer.step()
            np.testing.assert_array_equal(p.grad.numpy(), g)

    grads, p = gradients(6, (3, 2)), leaf(3, 2)
    expected, s = p.detach().numpy().copy(), np.zeros((3, 2))
    for g in grads:
        s += g * g
        expected -= 0.1 * g / (np.sqrt(s) + 1e-10)
    optimizer = Adagrad([{"params": [p], "lr": 0.1}])
    y = p * p
    run(p, optimizer, grads[:3])
    with pytest.raises(GraphError, match="in-place"):
        y.sum().backward()
    saved = copy.deepcopy(optimizer.state_dict())
    q = p.detach().clone().requires_grad_()
    other = Adagrad([q])
    other.load_state_dict(saved)
    run(q, other, grads[3:])
    np.testing.assert_allclose(q.detach().numpy(), expected, rtol=1e-12)
    assert other.state[q]["step"] == 6 and other.param_groups[0]["lr"] == 0.1 and q.is_leaf and q.requires_grad

    for name, wrong in (("lr", -0.1), ("eps", "0")):
        with pytest.raises(ValueError, match=f"Adagrad: {name} cannot be"):
            Adagrad([leaf(2)], **{name: wrong})
    with pytest.raises(ValueError, match=r"Adagrad: unknown options \['momentum'\]"):
        Adagrad([{"params": [leaf(2)], "momentum": 0.9}])
    saved["state"][0]["s"] = -saved["state"][0]["s"]
    with pytest.raises(ValueError, match="negative numbers in s"):
        other.load_state_dict(saved)


def test_a_formula_of_its_own_goes_before_an_inherited_kernel():
    class Still(optim.Adam):
        def update(self, p, g, state, group):
            state["m"].add_(g)

    p = leaf(2)
    before, p.grad = p.detach().numpy().copy(), mg.ones(2, dtype=p.dtype)
    (optimizer := Still([p])).step()
    np.testing.assert_array_equal(p.detach().numpy(), before)
    assert optimizer.state[p]["m"].tolist() == [1, 1] and optimizer.state[p]["v"].tolist() == [0, 0]
