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


def test_options_are_those_of_the_class():
    """Any values, and any further keys of a group, unless the class says which are allowed."""
    optimizer = Adagrad([{"params": [leaf(2)], "lr": None, "use_muon": True}, {"params": [leaf(2)]}], eps=(0, 0.9, 1))
    assert [group.get("use_muon") for group in optimizer.param_groups] == [True, None]
    assert optimizer.param_groups[0]["lr"] is None and optimizer.param_groups[1]["eps"] == (0, 0.9, 1)
    other = Adagrad([{"params": [leaf(2)]}, {"params": [leaf(2)]}])
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["use_muon"] and other.param_groups[1]["eps"] == (0, 0.9, 1)

    class Strict(Adagrad):
        allowed = {"lr": lambda value: value > 0}

    with pytest.raises(ValueError, match=r"Strict: lr cannot be -0\.1"):
        Strict([leaf(2)], lr=-0.1)
    with pytest.warns(UserWarning, match=r"Strict has no options \['momentum'\], and ignores them; it has"):
        Strict([{"params": [leaf(2)], "momentum": 0.9}])


def test_a_step_of_ones_own_keeps_its_own_state():
    class Momentum(optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, dict(lr=lr))

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["exp_avg"], state["count"] = mg.zeros_like(p), 0
                    state["count"] += 1
                    state["exp_avg"].mul_(0.9).add_(p.grad)
                    p.data.add_(state["exp_avg"], alpha=-group["lr"])

    def run(p, optimizer, steps):
        for _ in range(steps):
            p.grad = mg.ones_like(p)
            optimizer.step()

    p = leaf(2)
    optimizer = Momentum([p])
    run(p, optimizer, 2)
    q = p.detach().clone().requires_grad_()
    other = Momentum([q])
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    run(p, optimizer, 2)
    run(q, other, 2)
    assert p.tolist() == q.tolist() and other.state[q]["count"] == 4


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
