"""Derivatives where a formula gives 0·∞: powers with 0, the loser of a maximum, NaN and infinite cotangents."""

import itertools
import math

import numpy as np
import pytest

import minigrad as mg

INF, NAN = math.inf, math.nan
BASES = [0.5, 1.0, 2.0, 3.5]
EXPONENTS = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]


def leaf(*values):
    return mg.tensor(list(values), dtype=mg.float64, requires_grad=True)


def derivative(a, b, orders):
    """Return a derivative of a^b by autograd: "aab" is twice by a, then by b. NaN if nothing depends on it any more."""
    a, b = leaf(a), leaf(b)
    y = a**b
    for which in orders:
        (y,) = mg.grad(y, a if which == "a" else b, mg.ones(1, dtype=mg.float64), create_graph=True)
    return y.item()


def log_terms(n, m, b):
    """(polynomial in L = ln a) so that d^n/da^n d^m/db^m a^b = a^(b-n) × it: Σ_k C(m, k) L^(m-k) d^k/db^k (b)_n."""
    falling = np.poly1d([1.0])
    for i in range(n):
        falling *= np.poly1d([1.0, -i])
    return [math.comb(m, k) * falling.deriv(k)(b) if k else falling(b) for k in range(m + 1)]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_all_derivatives_of_powers_are_the_true_ones(order):
    """Every order of differentiation gives the formula a^(b-n) Σ …, at b = 0 too."""
    for orders in itertools.product("ab", repeat=order):
        n, m = orders.count("a"), orders.count("b")
        for a, b in itertools.product(BASES, EXPONENTS):
            terms = log_terms(n, m, b)
            want = a ** (b - n) * sum(t * math.log(a) ** (m - k) for k, t in enumerate(terms))
            got = derivative(a, b, orders)
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13, err_msg=f"{orders} at {a}, {b}")


def test_the_mixed_derivative_where_the_exponent_is_0():
    assert derivative(4.0, 0.0, "ab") == derivative(4.0, 0.0, "ba") == 0.25
    assert derivative(-4.0, 2.0, "aa") == 2.0 and derivative(-4.0, 3.0, "aaa") == 6.0


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4])
def test_whole_powers_of_0(exponent):
    """With a number or a tensor as the exponent, all derivatives by a are those of the polynomial."""
    for b in (exponent, leaf(exponent).detach()):
        x = leaf(0.0, -2.0)
        y, polynomial = x**b, np.poly1d([1.0] + [0.0] * exponent)
        for _ in range(4):
            np.testing.assert_array_equal(y.detach().numpy(), polynomial(x.detach().numpy()) + 0.0)
            if not y.requires_grad:
                break
            (y,) = mg.grad(y.sum(), x, create_graph=True, allow_unused=True)
            if y is None:
                break
            polynomial = polynomial.deriv()


def first(a, b, dy=1.0):
    """Return (da, db) of a^b, as numbers."""
    a, b = leaf(a), leaf(b)
    with np.errstate(all="ignore"):
        return tuple(g.item() for g in mg.grad(a**b, [a, b], mg.tensor([dy], dtype=mg.float64)))


def test_powers_of_0():
    """The values are PyTorch's; a larger table is compared with it in tests/oracle."""
    assert first(0.0, -1.0) == (-INF, -INF) and first(0.0, -0.5) == (-INF, -INF)
    assert first(-0.0, -1.0) == (-INF, INF)  # 1 / -0 is -∞
    assert first(0.0, 0.0) == (0, 0) and first(0.0, 0.0, INF)[0] == first(0.0, 0.0, NAN)[0] == 0
    assert first(2.0, 0.0, INF)[0] == first(NAN, 0.0)[0] == 0
    assert first(0.0, 0.5) == (INF, 0) and first(0.0, 1.0) == (1, 0) and first(0.0, 2.0) == (0, 0)
    b = leaf(-1.0, 0.0, 1.0)
    with np.errstate(all="ignore"):
        (0.0**b).sum().backward()  # a number as the base
    assert b.grad.tolist() == [-INF, 0, 0]


def test_masks_do_not_reach_the_other_elements_or_derivatives():
    a, b = leaf(0.0, NAN, 2.0), leaf(0.0, 0.0, 0.0)
    with np.errstate(all="ignore"):
        da, db = mg.grad((a**b).sum(), [a, b], create_graph=True)
        for g in (da, db):
            found = mg.grad(g[::2].sum(), [a, b], retain_graph=True)
            assert all(np.isfinite(f.numpy()[::2]).all() for f in found)
    assert mg.grad(da[2], b)[0].tolist() == [0, 0, 0.5]


def test_broadcast_powers():
    a, b = leaf(0.0, 2.0), mg.tensor([[0.0], [1.0], [2.0]], dtype=mg.float64, requires_grad=True)
    (a**b).sum().backward()
    assert a.grad.tolist() == [0 + 1 + 0, 0 + 1 + 4]
    np.testing.assert_allclose(b.grad.numpy()[:, 0], np.array([1, 2, 4]) * math.log(2))


# --------------------------------------------------------------------------------------------- 0 where nothing was used


DYS = [INF, -INF, NAN]
CHOICES = {  # name: (function, the input, which elements get dy or a part of it)
    "maximum": (lambda x: mg.maximum(x, mg.zeros(3, dtype=mg.float64)), [-1, 2, 3], [0, 1, 1]),
    "maximum of a number": (lambda x: mg.maximum(x, 0.0), [-1, 2, 3], [0, 1, 1]),
    "minimum": (lambda x: mg.minimum(mg.zeros(3, dtype=mg.float64), x), [-1, 2, 3], [1, 0, 0]),
    "amax": (lambda x: x.amax(), [1, 3, 2], [0, 1, 0]),
    "amax, tied": (lambda x: x.amax(0, keepdim=True), [3, 1, 3], [1, 0, 1]),
    "amin": (lambda x: x.amin(), [1, 3, 2], [1, 0, 0]),
    "max": (lambda x: x.max(), [1, 3, 2], [0, 1, 0]),
    "max along dim": (lambda x: x.max(0)[0], [1, 3, 2], [0, 1, 0]),
    "min along dim": (lambda x: x.min(0)[0], [1, 3, 2], [1, 0, 0]),
    "relu": (lambda x: x.relu(), [-1, 0, 2], [0, 0, 1]),
    "clamp": (lambda x: x.clamp(0, 1), [-1, 0.5, 2], [0, 1, 0]),
    "where": (lambda x: mg.where(x > 1, x, 0.0), [1, 3, 2], [0, 1, 1]),
    "masked_fill": (lambda x: x.masked_fill(x > 1, 0.0), [1, 3, 2], [1, 0, 0]),
    "tril": (lambda x: x.expand(3, 3).tril()[0], [1, 3, 2], [1, 0, 0]),
    "topk": (lambda x: x.topk(1)[0], [1, 3, 2], [0, 1, 0]),
    "sort": (lambda x: x.sort()[0][:1], [1, 3, 2], [1, 0, 0]),
    "getitem": (lambda x: x[1:], [1, 3, 2], [0, 1, 1]),
    "std of equals": (lambda x: x.std(), [1, 1, 1], [0, 0, 0]),
}


@pytest.mark.parametrize("dy", DYS)
@pytest.mark.parametrize("name", CHOICES)
def test_elements_that_were_not_chosen_get_a_gradient_of_0(name, dy):
    function, values, chosen = CHOICES[name]
    x = leaf(*values)
    y = function(x)
    with np.errstate(all="ignore"):
        y.backward(mg.full(y.shape, dy, dtype=mg.float64))
    got = x.grad.numpy()
    np.testing.assert_array_equal(got, np.where(chosen, dy, 0.0))


def test_both_sides_of_a_maximum():
    for function, win in ((mg.maximum, [0, 1, 0.5, 1]), (mg.minimum, [1, 0, 0.5, 1])):
        a, b = leaf(1, 3, 2, NAN), leaf(2, 2, 2, 2)
        function(a, b).sum().backward()
        assert a.grad.tolist() == win and b.grad.tolist() == [
            1 - w if w != 1 or i < 3 else 1 for i, w in enumerate(win)
        ]
        a = leaf(1, 3, 2)
        (da,) = mg.grad((function(a, a.detach()) ** 2).sum(), a, create_graph=True)
        da.sum().backward()  # d²(y²) = 2 (dy/da)²
        assert a.grad.tolist() == [0.5, 0.5, 0.5]


def test_nan_is_passed_on_not_dropped():
    x = leaf(NAN, 1.0)
    x.relu().sum().backward()
    assert x.grad.tolist() == [1, 1]
    x = leaf(NAN, 1.0)
    with np.errstate(all="ignore"):
        x.amax().backward()
    assert np.isnan(x.grad.numpy()).all()
