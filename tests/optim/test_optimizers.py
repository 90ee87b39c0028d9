"""Optimizers against a few lines of NumPy; groups, state and clipping."""

import copy
import math
import subprocess
import sys

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn.utils import clip_grad_norm_

from .. import ROOT
from .leaves import gradients, leaf


def sgd(p, grads, lr, momentum=0.0, weight_decay=0.0, nesterov=False):
    b = np.zeros_like(p)
    for g in grads:
        g = g + weight_decay * p
        b = momentum * b + g
        p = p - lr * (g + momentum * b if nesterov else b)
    return p


def adam(p, grads, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        if decoupled:
            p = p - lr * weight_decay * p
        else:
            g = g + weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        p = p - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    return p


def adamw(p, grads, **options):
    return adam(p, grads, decoupled=True, **{"weight_decay": 1e-2, **options})


RECIPES = [
    (optim.SGD, sgd, dict(lr=0.1)),
    (optim.SGD, sgd, dict(lr=0.1, weight_decay=0.3)),
    (optim.SGD, sgd, dict(lr=0.1, momentum=0.9)),
    (optim.SGD, sgd, dict(lr=0.1, momentum=0.9, weight_decay=0.3, nesterov=True)),
    (optim.Adam, adam, dict(lr=0.1)),
    (optim.Adam, adam, dict(lr=0.1, betas=(0.5, 0.9), eps=1e-2, weight_decay=0.3)),
    (optim.AdamW, adamw, dict(lr=0.1)),
    (optim.AdamW, adamw, dict(lr=0.1, betas=(0.9, 0.99), weight_decay=0.3)),
]
IDS = [f"{cls.__name__}-{i}" for i, (cls, _, _) in enumerate(RECIPES)]


@pytest.mark.parametrize("shape", [(3, 2), (), (0, 2), (40_000,)], ids=str)  # the last is longer than one chunk
@pytest.mark.parametrize("cls, formula, options", RECIPES, ids=IDS)
def test_against_numpy(cls, formula, options, shape):
    p = leaf(*shape)
    start, grads = p.detach().numpy(), gradients(7, shape)
    optimizer = cls([p], **options)
    for g in grads:
        p.grad = mg.tensor(g)
        optimizer.step()
        np.testing.assert_array_equal(p.grad.numpy(), g)  # a step does not change the gradient
    np.testing.assert_allclose(p.detach().numpy(), formula(start, grads, **options), rtol=1e-11, atol=1e-13)


def test_defaults_are_those_of_pytorch():
    assert (
        optim.SGD([leaf(1)]).param_groups[0].items()
        >= {"lr": 1e-3, "momentum": 0, "weight_decay": 0, "nesterov": False}.items()
    )
    assert (
        optim.Adam([leaf(1)]).param_groups[0].items()
        >= {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0}.items()
    )
    assert optim.AdamW([leaf(1)]).param_groups[0]["weight_decay"] == 1e-2


@pytest.mark.parametrize("dtype", [mg.float32, mg.float64], ids=str)
def test_steps_keep_the_dtype_and_the_memory(dtype):
    p = leaf(3, dtype=dtype)
    array = p.array
    optimizer = optim.AdamW([p], lr=np.float64(0.1))
    p.grad = mg.ones(3, dtype=dtype)
    optimizer.step()
    assert p.dtype == dtype and p.array is array and p.is_leaf and p.requires_grad
    assert all(x.dtype == dtype for name, x in optimizer.state[p].items() if name != "step")


@pytest.mark.parametrize("cls, formula, options", RECIPES, ids=IDS)
def test_state_goes_on_bit_for_bit(cls, formula, options):
    def run(p, optimizer, grads):
        for g in grads:
            p.grad = mg.tensor(g)
            optimizer.step()

    grads = gradients(8, (3, 2))
    p = leaf(3, 2)
    optimizer = cls([p], **options)
    run(p, optimizer, grads[:4])
    saved, values = copy.deepcopy(optimizer.state_dict()), p.detach().numpy()
    run(p, optimizer, grads[4:])
    q = mg.tensor(values, requires_grad=True)
    other = cls([q], lr=123.0)
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == options["lr"]
    run(q, other, grads[4:])
    np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())
    for (_, a), (_, b) in zip(sorted(optimizer.state[p].items()), sorted(other.state[q].items())):
        np.testing.assert_array_equal(a, b)


def test_frozen_parameters_wait_and_named_ones_are_taken():
    layer = mg.nn.Linear(2, 1)
    layer.weight.requires_grad_(False)
    optimizer = optim.Adam(layer.named_parameters(), lr=0.5)
    before = layer.weight.numpy()
    layer(mg.ones(3, 2)).sum().backward()
    optimizer.step()
    assert (layer.weight.numpy() == before).all() and len(optimizer.state[layer.bias]) > 0
    assert len(optimizer.state[layer.weight]) == 0  # as in PyTorch, for a step of one's own
    layer.weight.requires_grad_(True)
    layer(mg.ones(3, 2)).sum().backward()
    optimizer.step()
    assert (layer.weight.detach().numpy() != before).all()


def test_nesterovs_groups_and_steps_are_their_own():
    """Groups may differ in every option, also in launch options. Each parameter counts its own steps."""
    starts = [mg.randn(2, dtype=mg.float64) for _ in range(3)]
    ps = [x.clone().requires_grad_() for x in starts]
    grads = gradients(4, (2,))
    groups = [
        {"params": [ps[0]], "momentum": 0.9},
        {"params": [ps[1]], "nesterov": True, "momentum": 0.5},
        {"params": [ps[2]], "weight_decay": 0.3, "lr": 0.2},
    ]
    optimizer = optim.SGD(groups, lr=0.1)
    for g in grads:
        for p in ps:
            p.grad = mg.tensor(g)
        optimizer.step()
    for p, x, options in zip(
        ps,
        starts,
        (dict(lr=0.1, momentum=0.9), dict(lr=0.1, momentum=0.5, nesterov=True), dict(lr=0.2, weight_decay=0.3)),
    ):
        np.testing.assert_allclose(p.detach().numpy(), sgd(x.numpy(), grads, **options), rtol=1e-12)

    ps = [x.clone().requires_grad_() for x in starts]
    groups = [{"params": [ps[0]], "betas": (0.5, 0.9)}, {"params": [ps[1]], "eps": 0.1}, {"params": [ps[2]]}]
    optimizer, came = optim.AdamW(groups, lr=0.1), [[], [], []]
    for i, g in enumerate(grads):
        optimizer.zero_grad()
        for k, p in enumerate(ps):
            if i % 3 != k:  # each misses another step, which does not count for it
                p.grad = mg.tensor(g)
                came[k].append(g)
        optimizer.step()
    for p, x, seen, options in zip(ps, starts, came, (dict(betas=(0.5, 0.9)), dict(eps=0.1), {})):
        np.testing.assert_allclose(p.detach().numpy(), adamw(x.numpy(), seen, lr=0.1, **options), rtol=1e-11)
        assert optimizer.state[p]["step"] == len(seen)


@pytest.mark.parametrize("cls", [optim.SGD, optim.AdamW])
def test_wrong_parameters_raise(cls):
    p = leaf(2)
    for bad, words in [
        ([], "got no parameters"),
        ([{"params": []}], "got no parameters"),
        ([1.0], r"optimizes Tensors, got 1\.0"),
        ([p, p], ".*twice"),
        ([{"params": [p]}, {"params": [p]}], ".*twice"),
        ([mg.ones(2)], r"optimizes leaves that require a gradient, not shape \(2,\)"),
        ([p * 2], "optimizes leaves"),
        ([mg.randn(3, 2).T.requires_grad_()], ".*not contiguous"),
    ]:
        with pytest.raises(ValueError, match=f"^{cls.__name__}:? {words}"):
            cls(bad)
    with pytest.warns(UserWarning, match=r"has no options \['learning_rate'\], and ignores them; it has .*'lr'"):
        cls([{"params": [p], "learning_rate": 1}])
    for wrong in (p, nn.Linear(2, 2), None):
        with pytest.raises(TypeError, match=rf"{cls.__name__} needs Tensors, such as model.parameters\(\)"):
            cls(wrong)
    p.grad = mg.ones(2, dtype=mg.float64)
    with pytest.raises(TypeError, match="an Optimizer must define update"):
        optim.Optimizer([p], {}).step()


# ------------------------------------------------------------------------------------------------------------- clipping


@pytest.mark.parametrize("max_norm, factor", [(1.0, 1 / 13), (13.0, 1), (100.0, 1)])
def test_clipping(max_norm, factor):
    a, b, c = leaf(2), leaf(1), leaf(1)
    a.grad, b.grad = mg.tensor([3.0, 4.0]).double(), mg.tensor([-12.0]).double()
    norm = clip_grad_norm_(iter([a, b, c]), max_norm)
    assert norm.item() == pytest.approx(13) and (norm.shape, norm.dtype, norm.requires_grad) == ((), mg.float64, False)
    np.testing.assert_allclose(a.grad.numpy(), np.array([3, 4]) * factor, rtol=1e-6)
    np.testing.assert_allclose(b.grad.numpy(), [-12 * factor], rtol=1e-6)
    assert c.grad is None
    assert math.hypot(*a.grad.tolist(), *b.grad.tolist()) <= max(max_norm, 0) + 1e-9


def test_clipping_of_what_is_not_finite():
    p = leaf(2)
    p.grad = mg.tensor([1.0, np.nan]).double()
    with pytest.raises(ArithmeticError, match="nan"):
        clip_grad_norm_(p, 1.0, error_if_nonfinite=True)
    assert p.grad[0] == 1
    assert clip_grad_norm_(p, 1.0).isnan() and p.grad.isnan().all()
    p.grad = None
    assert clip_grad_norm_([p], 1.0) == 0.0


def test_clipping_float16_does_not_overflow():
    p = leaf(100, dtype=mg.float16)
    p.grad = mg.full((100,), 100.0, dtype=mg.float16)
    assert clip_grad_norm_([p], 1.0).item() == pytest.approx(1000)
    np.testing.assert_allclose(p.grad.numpy(), np.full(100, 0.1), rtol=2e-3)


@pytest.mark.parametrize("n", [4, 5000])
def test_clipping_a_gradient_whose_elements_share_memory(n):
    p = mg.ones(n, requires_grad=True)
    p.grad = mg.tensor([3.0]).expand(n)
    assert clip_grad_norm_(p, 1.0).item() == pytest.approx(3 * n**0.5, rel=1e-6)
    np.testing.assert_allclose(p.grad.numpy(), np.full(n, n**-0.5), rtol=1e-5)


@pytest.mark.parametrize("option", [dict(lr=-0.1), dict(lr="0.1"), dict(lr=float("nan")), dict(lr=True),
                                    dict(eps=-1e-8), dict(weight_decay=-1e-2), dict(betas=(0.9, 1.0)),
                                    dict(betas=(-0.1, 0.9)), dict(betas=0.9), dict(betas=(0.9,))],
                         ids=repr)  # fmt: skip
def test_options_that_cannot_be(option):
    (name,) = option
    with pytest.raises(ValueError, match=f"AdamW: {name} cannot be"):
        optim.AdamW([leaf(2)], **option)
    with pytest.raises(ValueError, match=f"AdamW: {name} cannot be"):
        optim.AdamW([{"params": [leaf(2)], **option}])


INTERRUPTED = """
import os, signal, subprocess, sys
import minigrad as mg
signal.signal(signal.SIGINT, signal.default_int_handler)
p = mg.zeros(2, requires_grad=True)
optimizer = mg.optim.AdamW([p], lr=2**-10, weight_decay=0.0, eps=0.0)  # each step subtracts lr, for gradients of 1
p.grad = mg.ones(2)
optimizer.step()
send = "import os, random, sys, time\\nfor _ in sys.stdin: time.sleep(random.uniform(1e-3, 2e-3)); os.kill({}, 2)"
sender = subprocess.Popen([sys.executable, "-c", send.format(os.getpid())], stdin=subprocess.PIPE, text=True)
interrupts = torn = 0
while interrupts < 100:
    try:
        print(file=sender.stdin, flush=True)  # asks for the next interrupt
        for _ in range(10_000):
            optimizer.step()
    except KeyboardInterrupt:
        interrupts += 1
    torn += optimizer.state[p]["step"] != round(-p[0].item() * 2**10)
sender.stdin.close()
print(interrupts, torn, mg.is_grad_enabled())
"""


def test_an_interrupted_step_is_counted_and_done_or_neither():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "100 0 True\n", done.stderr
