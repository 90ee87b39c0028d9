"""minigrad beside PyTorch where numbers end: powers of 0, ties, NaN, infinite inputs and infinite cotangents."""

import itertools
import math

import numpy as np
import pytest

import minigrad as mg

pytestmark = pytest.mark.oracle

INF, NAN = math.inf, math.nan
BASES = [-2.0, -0.0, 0.0, 1.0, 0.5, INF, -INF, NAN]
EXPONENTS = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, INF, -INF, NAN]
DYS = [1.0, 0.0, -0.0, INF, -INF, NAN]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def derivatives(m, function, arrays, dy):
    """y, the gradients against dy, and the gradients of each of those, as arrays; zeros where nothing depends."""
    grad = mg.grad if m is mg else m.autograd.grad
    leaves = [m.tensor(x, requires_grad=True) for x in arrays]
    y = function(m, *leaves)
    firsts = grad(y, leaves, m.tensor(np.full(tuple(y.shape), dy, arrays[0].dtype)), create_graph=True)
    found = {"y": y} | {f"dx{i}": g for i, g in enumerate(firsts)}
    for i, g in enumerate(firsts):
        seconds = [None] * len(leaves)
        if g.requires_grad:
            seconds = grad(g.sum(), leaves, retain_graph=True, allow_unused=True)
        found |= {
            f"d(dx{i})/dx{j}": 0 * x.detach() if h is None else h for (j, h), x in zip(enumerate(seconds), leaves)
        }
    force = {} if m is mg else {"force": True}  # torch may answer with a lazy zero
    return {what: x.detach().numpy(**force) for what, x in found.items()}


def differences(ours, theirs):
    """{what: (ours, theirs)} where they differ, NaN being equal to NaN."""

    def same(a, b):
        return np.allclose(a, b, rtol=1e-12, atol=0, equal_nan=True)

    return {what: (ours[what][0], b[0]) for what, b in theirs.items() if not same(ours[what], b)}


POWERS = {
    "tensors": (lambda a, b: [a, b], lambda a, b: lambda m, x, y: x**y),
    "a number as exponent": (lambda a, b: [a], lambda a, b: lambda m, x: x**b),
    "a number as base": (lambda a, b: [b], lambda a, b: lambda m, y: a**y),
}


@pytest.mark.parametrize("kind", POWERS)
def test_powers(torch, kind):
    """Values and gradients are PyTorch's at every corner; second derivatives are too, or are right where it is not."""
    leaves, functions = POWERS[kind]
    for a, b in itertools.product(BASES, EXPONENTS):
        for dy in DYS:
            function, arrays = functions(a, b), [np.full(3, v) for v in leaves(a, b)]
            found = differences(*(derivatives(m, function, arrays, dy) for m in (mg, torch)))
            where = f"{a}^{b}, dy {dy}: {found}"
            assert all(what.startswith("d(") for what in found), where
            for what, (ours, theirs) in found.items():
                if math.isnan(theirs):  # PyTorch has 0·NaN or 0·∞ there: ours may say more
                    continue
                assert what == "d(dx0)/dx1" and b == 0 and ours == dy / a, where  # the truth; PyTorch masks it to 0


SPECIAL = np.array([-INF, -1.0, -0.0, 0.0, 1.0, INF, NAN])
UNARY = ["abs", "sqrt", "rsqrt", "log", "exp", "tanh", "sigmoid", "relu", "erf", "erfc", "sin", "cos", "neg"]


@pytest.mark.parametrize("name", UNARY)
def test_elementwise(torch, name):
    x = SPECIAL[:-1] if name == "abs" else SPECIAL  # torch's sign of NaN is 0; ours, as NumPy's, is NaN
    for dy in DYS:
        ours, theirs = (derivatives(m, lambda m, x: getattr(m, name)(x), [x], dy) for m in (mg, torch))
        for what in ("y", "dx0"):
            np.testing.assert_array_equal(np.isnan(ours[what]), np.isnan(theirs[what]), err_msg=f"{what}, dy {dy}")
            np.testing.assert_allclose(ours[what], theirs[what], rtol=1e-12, err_msg=f"{what}, dy {dy}")


PAIRS = [np.array(v) for v in zip(*itertools.product(SPECIAL, SPECIAL))]
CHOICES = {
    "maximum": lambda m, a, b: m.maximum(a, b),
    "minimum": lambda m, a, b: m.minimum(a, b),
    "where": lambda m, a, b: m.where(a > b, a, b),
    "add": lambda m, a, b: a + b,
    "sub": lambda m, a, b: a - b,
    "mul": lambda m, a, b: a * b,
    "clamp": lambda m, a, b: a.clamp(-1.0, 0.5) + b.clamp(min=0.0),
    "masked_fill": lambda m, a, b: a.masked_fill(a > b, 2.0) * 1.0 + b,
}


@pytest.mark.parametrize("name", CHOICES)
def test_pairs(torch, name):
    for dy in DYS:
        ours, theirs = (derivatives(m, CHOICES[name], PAIRS, dy) for m in (mg, torch))
        assert not differences(ours, theirs), dy


ROWS = np.array(list(itertools.product([-INF, 0.0, 1.0, INF, NAN], repeat=3)))
ROWWISE = {
    "amax": lambda m, x: m.amax(x, -1),
    "amin": lambda m, x: m.amin(x, -1),
    "max": lambda m, x: m.max(x, -1)[0],
    "min": lambda m, x: m.min(x, -1)[0],
    "sum": lambda m, x: m.sum(x, -1),
    "cumsum": lambda m, x: m.cumsum(x, -1),
    "sort": lambda m, x: m.sort(x, -1)[0],
    "topk": lambda m, x: m.topk(x, 2, -1)[0],
}
# Where PyTorch multiplies an infinite or NaN dy by 0, and 0 is right: amax and amin of what is not the largest.
MASKED = {"amax", "amin"}


@pytest.mark.parametrize("name", ROWWISE)
def test_rows(torch, name):
    for dy in DYS:
        ours, theirs = (derivatives(m, ROWWISE[name], [ROWS], dy) for m in (mg, torch))
        for what in ("y", "dx0"):
            a, b = ours[what], theirs[what]
            if what == "dx0" and name in MASKED and not math.isfinite(dy):
                loses = ours["y"][:, None] != ROWS
                loses &= ~np.isnan(ours["y"])[:, None]
                assert not a[loses].any() and np.isnan(b[loses]).all()
                a, b = a[~loses], b[~loses]
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=f"{what}, dy {dy}")
