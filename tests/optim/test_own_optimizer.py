"""A user's own optimizer is a class with options, buffers and a formula."""

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
    expected, s = p.detach().numpy(), np.zeros((3, 2))
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
    with pytest.raises(ValueError, match=r"Adagrad has no options \['momentum'\]"):
        Adagrad([{"params": [leaf(2)], "momentum": 0.9}])


def test_the_nearest_formula_counts():
    """An update() in a mixin replaces the kernel. A class with neither update() nor primitive inherits both."""
    heard = []

    class Listens:
        def __init_subclass__(cls, **kwargs):
            super().__init_subclass__(**kwargs)
            heard.append(cls.__name__)

    class Answer:
        def update(self, p, g, state, group):
            p.fill_(42)

    class First(Answer, optim.Adam):
        pass

    class Second(optim.Adam, Listens):
        decoupled = True

    for cls, expected in ((First, [42.0, 42.0]), (Second, [0.9, 0.9])):
        p = mg.ones(2, requires_grad=True)
        p.grad = mg.ones(2)
        cls([p], lr=0.1).step()
        np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-5)
    assert First.primitive is None and Second.primitive == "adam_" and heard == ["Second"]


@pytest.mark.parametrize("cls", [optim.SGD, optim.Adam, optim.AdamW])
def test_a_step_without_decay_leaves_infinity_alone(cls):
    p = mg.tensor([np.inf, 2.0], requires_grad=True)
    p.grad = mg.ones(2)
    cls([p], lr=0.1, weight_decay=0.0).step()
    assert np.isposinf(p.detach().numpy()[0])
