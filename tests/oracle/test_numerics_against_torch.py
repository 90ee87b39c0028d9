"""float32 beside PyTorch: functions at most a unit in the last place worse, long sums as exact."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.backend import reference
from minigrad.backend.runners.native import Native
from minigrad.nn import functional as F

from ..ops.ulps import EXACT, SLOPES, inputs, ulps

pytestmark = pytest.mark.oracle
DEVICES = {"numpy": reference, "native": Native()}


@pytest.fixture(params=DEVICES)
def on(request, monkeypatch):
    found = DEVICES[request.param]
    monkeypatch.setattr("minigrad.backend.cpu", lambda: found)
    return found


@pytest.mark.parametrize("name", EXACT)
def test_function(torch, on, name):
    x = inputs(1999)
    if name in ("sigmoid", "silu"):
        x = x[~(x < -87)]  # where torch's are 0
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.float64))
        ours, theirs = (ulps(y, exact).max() for y in (getattr(on, name)(x), function(torch.from_numpy(x)).numpy()))
    print(f"{name}: {ours:.2f} ulp, torch {theirs:.2f}")  # `pytest -m oracle -s -k function` prints the table
    assert ours <= theirs + 1


@pytest.mark.parametrize("approximate", SLOPES)
def test_gradient_of_gelu(torch, on, approximate):
    x = np.linspace(-12, 12, 1_000_001, dtype=np.float32)
    exact = SLOPES[approximate](x.astype(np.float64))
    worst = []
    for module, function in ((mg, F.gelu), (torch, torch.nn.functional.gelu)):
        leaf = module.tensor(x, requires_grad=True)
        function(leaf, approximate=approximate).sum().backward()
        worst.append(np.abs(leaf.grad.numpy() - exact).max())
    assert worst[0] <= worst[1]


def positive(*shape):
    return np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)


SUMS = {
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "sum of columns": (lambda x: x.reshape(-1, 5).sum(0), lambda x: x.reshape(-1, 5).sum(0)),
    "sum of rows": (lambda x: x.reshape(5, -1).sum(1), lambda x: x.reshape(5, -1).sum(1)),
    "mean": (lambda x: x.mean(), lambda x: x.mean()),
    "cumsum": (lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "cumsum of columns": (lambda x: x.reshape(-1, 5).cumsum(0), lambda x: x.reshape(-1, 5).cumsum(0)),
}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", SUMS)
def test_sum(torch, on, name, constant):
    x = np.full(10_000_000, 0.1, np.float32) if constant else positive(10_000_000)
    function, exactly = SUMS[name]
    exact = exactly(x.astype(np.float64))
    ours, theirs = (np.abs(function(m.tensor(x)).numpy() - exact).max() / exact.max() for m in (mg, torch))
    assert ours <= max(2e-7, theirs)


def test_gradients_that_are_long_sums(torch, on):
    n = 200_000
    dy, index = positive(n, 4), np.random.default_rng(0).integers(0, 3, n)
    exact = dy.astype(np.float64).sum(0)
    rows = np.zeros((3, 4))
    np.add.at(rows, index, dy.astype(np.float64))
    for module, functional in ((mg, F), (torch, torch.nn.functional)):
        bias = module.zeros(4, requires_grad=True)
        functional.linear(module.zeros(n, 2), module.zeros(4, 2), bias).backward(module.tensor(dy))
        table = module.zeros(3, 4, requires_grad=True)
        functional.embedding(module.tensor(index), table).backward(module.tensor(dy))
        if module is mg:
            np.testing.assert_allclose(bias.grad.numpy(), exact, 2e-7)
            np.testing.assert_allclose(table.grad.numpy(), rows, 2e-7)
