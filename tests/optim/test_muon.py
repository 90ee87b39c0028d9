"""Muon against its formula by singular values; its groups and options."""

import json
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim
from minigrad.backend.numpy.optim import orthogonal
from minigrad.optim.muon import JORDAN

from .leaves import leaf

STEPS = (JORDAN,) * 5
POLYNOMIALS = {"Jordan's": (JORDAN, 5), "another": ((2.0, -1.5, 0.5), 3)}  # ns_coefficients, ns_steps


def by_singular_values(x, steps, eps=1e-7):
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    s = s / max(math.sqrt((s * s).sum()), eps)
    for a, b, c in steps:
        s = a * s + b * s**3 + c * s**5
    return u * s @ vt


def muon(p, grads, rates, steps, matrices=1, weight_decay=0.1, nesterov=True, scale=None):
    m = np.zeros_like(p)
    for g, (lr, momentum) in zip(grads, rates):
        m = m + (1 - momentum) * (g - m)
        x = g + momentum * (m - g) if nesterov else m
        each = [by_singular_values(part, steps) for part in np.split(x, matrices)]
        n, k = each[0].shape
        factor = 0.2 * max(n, k) ** 0.5 if scale else max(1, n / k) ** 0.5
        p = p * (1 - lr * weight_decay) - lr * factor * np.concatenate(each)
    return p


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_thirty_steps_against_singular_values(name, nesterov):
    """Two groups of matrices, with rates and momenta that change, captured or not, follow the formula."""
    coefficients, ns_steps = POLYNOMIALS[name]
    each = (coefficients,) * ns_steps
    rng = np.random.default_rng(0)
    shapes, matrices = [(12, 4), (9, 9), (6, 5), (3, 11), (17, 3)], [3, 3, 1, 1, 1]
    start = [rng.standard_normal(shape) for shape in shapes]
    grads = [[rng.standard_normal(shape) for shape in shapes] for _ in range(30)]
    rates = [(0.02 / (1 + i), 0.85 + 0.004 * i) for i in range(30)]
    options = dict(ns_coefficients=coefficients, ns_steps=ns_steps, nesterov=nesterov)
    for how in (mg.capture, lambda function: function):
        ps = [mg.tensor(x, requires_grad=True) for x in start]
        groups = [{"params": ps[:2], "matrices": 3}, {"params": ps[2:]}]
        optimizer = optim.Muon(groups, **options)

        def step(*gs, ps=ps, optimizer=optimizer):
            optimizer.zero_grad()
            sum((p * g).sum() for p, g in zip(ps, gs)).backward()
            optimizer.step()

        step = how(step)
        for gs, (lr, momentum) in zip(grads, rates):
            for group in optimizer.param_groups:
                group |= {"lr": lr, "momentum": momentum}
            step(*map(mg.tensor, gs))
        for i, p in enumerate(ps):
            right = muon(start[i], [gs[i] for gs in grads], rates, each, matrices[i], nesterov=nesterov)
            np.testing.assert_allclose(p.detach().numpy(), right, rtol=1e-10, atol=1e-10)


def test_singular_values_come_near_one_and_vectors_stay():
    rng = np.random.default_rng(0)
    for shape in ((20, 30), (30, 20), (8, 8)):
        x = rng.standard_normal((3, *shape))
        y = orthogonal(x, STEPS, 1e-7)
        for a, b in zip(x, y):
            np.testing.assert_allclose(b, by_singular_values(a, STEPS), atol=1e-12)
            s = np.linalg.svd(b, compute_uv=False)
            assert s[:-2].min() > 0.6 and s.max() < 1.3
    assert (orthogonal(np.zeros((2, 3, 3)), STEPS, 1e-7) == 0).all()
    tiny = orthogonal(np.full((1, 2, 2), 1e-30), STEPS, 1e-7)  # below eps, nothing is blown up
    assert 0 < tiny.max() < 1e-20


@pytest.mark.parametrize(
    "group, words",
    [
        (dict(params=[(3,)]), r"shape \(3,\) is not a matrix; optimize it with AdamW"),
        (dict(params=[(4, 4)], matrices=3), r"shape \(4, 4\) is not 3 matrices, one below the other"),
        (dict(params=[(4, 4)], matrices=0), "matrices cannot be 0"),
        (dict(params=[(4, 4)], ns_steps=100), "ns_steps cannot be 100"),
        (dict(params=[(4, 4)], ns_steps=True), "ns_steps cannot be True"),
        (dict(params=[(4, 4)], ns_coefficients=(1.0, 2.0)), "ns_coefficients cannot be"),
        (dict(params=[(4, 4)], ns_coefficients=()), "ns_coefficients cannot be"),
        (dict(params=[(4, 4)], ns_coefficients=7), "ns_coefficients cannot be 7"),
        (dict(params=[(4, 4)], ns_coefficients=(1.0, 2.0, "3")), "ns_coefficients cannot be"),
        (dict(params=[(4, 4)], adjust_lr_fn="adam"), "adjust_lr_fn cannot be 'adam'"),
        (dict(params=[(4, 4)], momentum=-0.1), "momentum cannot be"),
    ],
)
def test_parameters_that_are_no_matrices_raise(group, words):
    group["params"] = [leaf(*shape) for shape in group["params"]]
    with pytest.raises(ValueError, match=words):
        optim.Muon([group])
    optimizer = optim.Muon([good := leaf(2, 2)])
    with pytest.raises(ValueError, match=words):
        optimizer.add_param_group(group)
    assert [g["params"] for g in optimizer.param_groups] == [[good]]  # as if nothing had been tried


def test_a_saved_state_goes_on_to_the_same_bits():
    def made():
        mg.manual_seed(0)
        p, q = leaf(6, 4), leaf(4, 5)
        coefficients = POLYNOMIALS["another"][0]
        return p, q, optim.Muon([{"params": [p], "matrices": 2, "ns_coefficients": coefficients}, {"params": [q]}])

    def steps(p, q, optimizer, first, last):
        for i in range(first, last):
            rng = np.random.default_rng(i)
            p.grad, q.grad = (mg.tensor(rng.standard_normal(x.shape)) for x in (p, q))
            optimizer.step()
        return np.concatenate([p.detach().numpy().ravel(), q.detach().numpy().ravel()])

    right = steps(*made(), 0, 6)
    p, q, optimizer = made()
    steps(p, q, optimizer, 0, 3)
    saved = optimizer.state_dict()
    groups = json.loads(json.dumps(saved["param_groups"]))  # tuples come back as lists
    with pytest.raises(ValueError, match=r"does not fit: a parameter of shape \(6, 4\) is not 5 matrices"):
        optimizer.load_state_dict(saved | {"param_groups": [groups[0] | {"matrices": 5}, groups[1]]})
    again = *(x.detach().clone().requires_grad_() for x in (p, q)), None
    other = optim.Muon([{"params": [again[0]], "matrices": 2}, {"params": [again[1]]}])
    other.load_state_dict({"state": saved["state"], "param_groups": groups})
    assert (steps(*again[:2], other, 3, 6) == right).all()


def test_several_optimizers_are_saved_and_restored_as_one():
    def made():
        mg.manual_seed(0)
        p, q = leaf(3, 4), leaf(4)
        return p, q, optim.Optimizers(optim.Muon([p], lr=0.1), optim.AdamW([q], lr=0.2))

    def stepped(p, q, both, first, last):
        for i in range(first, last):
            both.zero_grad()
            ((p * p).sum() * (i + 1) + (q**3).sum()).backward()
            both.step()
        return np.concatenate([p.detach().numpy().ravel(), q.detach().numpy()])

    right = stepped(*made(), 0, 5)
    p, q, both = made()
    stepped(p, q, both, 0, 2)
    assert [group["lr"] for group in both.param_groups] == [0.1, 0.2]
    saved = both.state_dict()
    x, y, other = made()
    x.data, y.data = p.detach().clone(), q.detach().clone()
    other.load_state_dict(saved)
    assert (stepped(x, y, other, 2, 5) == right).all()
    for wrong in ({}, [], {"optimizers": saved["optimizers"][:1]}, {"optimizers": saved["optimizers"][::-1]},
                  {"optimizers": [saved["optimizers"][0], {}]}):  # fmt: skip
        before = other.state_dict()
        with pytest.raises(ValueError, match="does not fit"):
            other.load_state_dict(wrong)
        after = other.state_dict()
        for a, b in zip(before["optimizers"], after["optimizers"]):
            assert a["param_groups"] == b["param_groups"] and a["state"].keys() == b["state"].keys()
            for i in a["state"]:
                assert all(a["state"][i][k] is b["state"][i][k] for k in a["state"][i] if k != "step")
