"""Exact masks, rows in which all is masked, and accuracy where a careless formula would lose digits."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F

INF = float("inf")


def gradient_of_sum(f, x, weights=None):
    y = f(x)
    w = mg.randn(*y.shape, dtype=y.dtype) if weights is None else weights
    (y * w).sum().backward()
    return y.detach().numpy(), x.grad.numpy()


# ------------------------------------------------------------------------------------------------------- masked rows


def test_softmax_of_a_row_of_minus_infinity_is_zero():
    x = mg.tensor([[-INF, -INF, -INF], [0.0, -INF, 1.0]], requires_grad=True)
    y, dx = gradient_of_sum(lambda x: x.softmax(-1), x)
    assert (y[0] == 0).all() and (dx[0] == 0).all() and y[1, 1] == dx[1, 1] == 0
    assert y[1].sum() == pytest.approx(1) and np.isfinite(dx).all()


@pytest.mark.parametrize("dtype", [mg.float16, mg.float32, mg.float64])
def test_logarithms_of_such_a_row_are_no_nan(dtype):
    x = mg.tensor([[-INF, -INF, -INF], [0.0, -INF, 1.0]], dtype=dtype, requires_grad=True)
    y = x.log_softmax(-1)
    assert not y.isnan().any() and y[0].tolist() == [-INF] * 3 and y[1, 1].item() == -INF
    y[1, 2].backward()
    assert not x.grad.isnan().any() and x.grad[0].tolist() == [0, 0, 0] and x.grad[1, 1] == 0
    x.grad = None
    z = x.logsumexp(-1)
    assert z[0].item() == -INF
    z[1].backward()
    assert x.grad[0].tolist() == [0, 0, 0] and x.grad[1, 1] == 0 and x.grad.sum().item() == pytest.approx(1, 1e-3)
    x.grad = None
    loss = F.cross_entropy(x, mg.tensor([0, 2]), reduction="none")
    assert not loss.isnan().any()
    loss[1].backward()
    assert not x.grad.isnan().any()


def composed(q, k, v, allowed):
    """Return attention computed in NumPy, row by row."""
    z = np.zeros((q.shape[0], v.shape[1]))
    for i in range(q.shape[0]):
        seen = np.flatnonzero(allowed[i])
        if seen.size:
            e = np.exp(k[seen] @ q[i] / math.sqrt(q.shape[1]))
            z[i] = e / e.sum() @ v[seen]
    return z


@pytest.mark.parametrize("kind", ["bool", "float", "causal", "causal and bool"])
def test_attention_masks_are_exact(kind):
    q, k, v = (mg.randn(5, 4, dtype=mg.float64, requires_grad=True) for _ in range(3))
    allowed = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [1, 1, 0, 0, 1]], bool)
    if kind == "causal":
        allowed = np.tri(5, dtype=bool)
    mask = {
        "bool": mg.tensor(allowed),
        "float": mg.tensor(np.where(allowed, 0.0, -INF)),
        "causal": None,
        "causal and bool": mg.tensor(allowed),
    }[kind]
    if kind == "causal and bool":
        allowed = allowed & np.tri(5, dtype=bool)
    z = F.scaled_dot_product_attention(q, k, v, mask, is_causal="causal" in kind)
    np.testing.assert_allclose(
        z.detach().numpy(), composed(*(x.detach().numpy() for x in (q, k, v)), allowed), atol=1e-14
    )
    (z * mg.randn(5, 4, dtype=mg.float64)).sum().backward()
    empty, unread = ~allowed.any(1), ~allowed.any(0)
    assert (z.detach().numpy()[empty] == 0).all() and (q.grad.numpy()[empty] == 0).all()
    assert (k.grad.numpy()[unread] == 0).all() and (v.grad.numpy()[unread] == 0).all()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    pattern = F.attention_pattern(q @ k.mT, mask, "causal" in kind)
    assert (pattern.detach().numpy()[~allowed] == 0).all()


def test_a_fully_masked_row_survives_a_second_derivative():
    x = mg.randn(2, 3, dtype=mg.float64, requires_grad=True)
    mask = mg.tensor([[False] * 3, [True, False, True]])
    (g,) = mg.grad((F.attention_pattern(x, mask) ** 2).sum(), x, create_graph=True)
    (h,) = mg.grad((g * g).sum(), x)
    assert h.isfinite().all() and (h[0] == 0).all() and h[1, 1] == 0 and h[1, 0] != 0


def test_values_under_a_mask_do_not_matter_even_if_infinite():
    x = mg.tensor([[1.0, np.nan, 2.0], [INF, 0.5, 0.5]], requires_grad=True)
    mask = mg.tensor([[True, False, True], [False, True, True]])
    y = F.attention_pattern(x, mask)
    y[:, 2].sum().backward()
    assert y.isfinite().all() and x.grad[0, 1] == 0 and x.grad[1, 0] == 0 and y[1].tolist() == [0, 0.5, 0.5]
    x = mg.tensor([1.0, np.nan, INF], requires_grad=True)
    y, dx = gradient_of_sum(lambda x: x.masked_fill(mg.tensor([False, True, True]), 0.0), x, mg.ones(3))
    assert y.tolist() == [1, 0, 0] and dx.tolist() == [1, 0, 0]
    x = mg.tensor([[1.0, np.nan], [2.0, 3.0]], requires_grad=True)
    y, dx = gradient_of_sum(lambda x: x.tril(), x, mg.ones(2, 2))
    assert y.tolist() == [[1, 0], [2, 3]] and dx.tolist() == [[1, 0], [1, 1]]


def test_nan_of_the_other_branch_of_where_does_not_reach_the_gradient():
    x = mg.tensor([0.0, 4.0], requires_grad=True)
    safe = mg.where(x > 0, x, 1.0)
    mg.where(x > 0, safe.sqrt(), 0.0).sum().backward()
    assert x.grad.tolist() == [0, 0.25]


def test_ignored_targets():
    x = mg.randn(3, 4, dtype=mg.float64, requires_grad=True)
    with mg.no_grad():
        x[1] = np.nan  # an ignored row may hold anything
    loss = F.cross_entropy(x, mg.tensor([2, -100, 0]), label_smoothing=0.1)
    loss.backward()
    kept = F.cross_entropy(x.detach()[[0, 2]], mg.tensor([2, 0]), label_smoothing=0.1)
    assert loss.item() == pytest.approx(kept.item(), rel=1e-14) and x.grad[1].tolist() == [0] * 4
    nothing = F.cross_entropy(x.detach(), mg.tensor([-100] * 3))
    assert math.isnan(nothing.item())
    assert F.cross_entropy(x.detach(), mg.tensor([-100] * 3), reduction="sum").item() == 0


def test_label_smoothing_from_none_to_all():
    x, target = mg.randn(3, 4, dtype=mg.float64), mg.tensor([2, 0, 3])
    logp = x.log_softmax(1).numpy()
    at_target, mean = logp[np.arange(3), target.numpy()], logp.mean(1)
    for smoothing in (0, 0.0, 0.25, 1, 1.0):
        loss = F.cross_entropy(x, target, label_smoothing=smoothing, reduction="none")
        np.testing.assert_allclose(loss.numpy(), -(1 - smoothing) * at_target - smoothing * mean, rtol=1e-12)
    for smoothing in (-1e-3, 1.001, float("nan")):
        with pytest.raises(ValueError, match=r"label_smoothing must lie in \[0, 1\]"):
            F.cross_entropy(x, target, label_smoothing=smoothing)


def test_an_anomaly_is_no_mask():
    """NaN never equals NaN, and the gradient of a maximum that is NaN is NaN."""
    x = mg.tensor([1.0, np.nan])
    assert (x == x).tolist() == [True, False] and (x != x).tolist() == [False, True]
    assert x.isnan().tolist() == [False, True]


# ------------------------------------------------------------------------------------------------------------ accuracy


@pytest.mark.parametrize("dtype, rtol", [(mg.float64, 1e-15), (mg.float32, 5e-7)], ids=str)
def test_functions_are_accurate_to_the_last_bits(dtype, rtol):
    def check(f, exact, values):
        x = mg.tensor(values, dtype=dtype)
        expected = np.array([exact(float(v)) for v in x.numpy()])
        np.testing.assert_allclose(f(x).numpy(), expected, rtol=4 * rtol, atol=0)

    wide = np.concatenate([np.linspace(-80, 80, 161), np.logspace(-6, 0, 50), -np.logspace(-6, 0, 50)])
    check(mg.sigmoid, lambda v: 1 / (1 + math.exp(-v)), wide)
    check(F.silu, lambda v: v / (1 + math.exp(-v)), wide)
    check(mg.tanh, math.tanh, wide)
    check(mg.erf, math.erf, np.concatenate([np.linspace(-7, 7, 701), np.logspace(-6, 0, 50)]))
    if dtype == mg.float64:  # in float32 the last bit of x moves erfc(x) by 2 x² bits
        tolerance = 2e-13  # and so does that of x² here: exp(-x²) is off by x² bits
        values = np.linspace(-7, 26, 1001)
        np.testing.assert_allclose(mg.erfc(mg.tensor(values)).numpy(), [math.erfc(v) for v in values], rtol=tolerance)
    check(lambda x: x.rsqrt(), lambda v: 1 / math.sqrt(v), np.logspace(-8, 8, 50))


def test_gelu_against_its_definition():
    values = np.linspace(-30, 10, 401)
    exact = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in values])
    np.testing.assert_allclose(F.gelu(mg.tensor(values)).numpy(), exact, rtol=2e-13)
    a = math.sqrt(2 / math.pi)
    with np.errstate(over="ignore"):  # (1 + tanh u) / 2 = 1 / (1 + exp(-2u)), which does not cancel
        approximate = values / (1 + np.exp(-2 * a * (values + 0.044715 * values**3)))
    np.testing.assert_allclose(F.gelu(mg.tensor(values), "tanh").numpy(), approximate, rtol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_softmax_and_its_relatives_neither_overflow_nor_underflow(shift):
    values = np.array([[0.0, 1.0, 2.0], [-300.0, 0.0, 300.0]])
    x = mg.tensor(values + shift)
    e = np.exp(values - values.max(1, keepdims=True))
    lse = values.max(1) + np.log(e.sum(1))
    np.testing.assert_allclose(x.softmax(1).numpy(), e / e.sum(1, keepdims=True), rtol=1e-11)
    np.testing.assert_allclose(x.log_softmax(1).numpy(), values - lse[:, None], rtol=1e-11)
    np.testing.assert_allclose(x.logsumexp(1).numpy(), lse + shift, rtol=1e-11)
    loss = F.cross_entropy(x, mg.tensor([0, 0]), reduction="none").numpy()
    np.testing.assert_allclose(loss, lse - values[:, 0], rtol=1e-11)


def test_variance_and_norms_far_from_zero():
    values = np.random.default_rng(0).standard_normal((4, 64))
    x = mg.tensor(values + 1e6)
    np.testing.assert_allclose(x.var(1).numpy(), values.var(1, ddof=1), rtol=1e-8)
    centred = (values - values.mean(1, keepdims=True)) / np.sqrt(values.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(F.layer_norm(x, 64).numpy(), centred, rtol=1e-7, atol=1e-8)


def test_infinite_logsumexp():
    x = mg.tensor([[INF, 0.0], [-INF, -INF], [5.0, -INF]])
    assert x.logsumexp(1).tolist() == [INF, -INF, 5.0]
    x.requires_grad_().logsumexp(1).sum().backward()
    assert x.grad.tolist() == [[1, 0], [0, 0], [1, 0]]


# ---------------------------------------------------------------------------------------------------- kinks and corners


def test_ties_share_or_go_to_the_first():
    x = mg.tensor([3.0, 1.0, 3.0], requires_grad=True)
    for f, expected in ((mg.amax, [0.5, 0, 0.5]), (lambda x: mg.max(x, 0).values, [1, 0, 0]), (mg.amin, [0, 1, 0])):
        assert mg.grad(f(x), x)[0].tolist() == expected
    a, b = mg.ones(1, requires_grad=True), mg.ones(1, requires_grad=True)
    for f in (mg.maximum, mg.minimum):
        assert [g.item() for g in mg.grad(f(a, b), [a, b])] == [0.5, 0.5]


def test_clamp_passes_the_gradient_at_its_bounds_and_between():
    x = mg.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], requires_grad=True)
    for bounds, expected in (((-1, 1), [0, 1, 1, 1, 0]), ((-1, None), [0, 1, 1, 1, 1]), ((None, 1), [1, 1, 1, 1, 0])):
        assert mg.grad(x.clamp(*bounds).sum(), x)[0].tolist() == expected
    assert x.clamp(2, -2).tolist() == [-2] * 5 and mg.grad(x.clamp(2, -2).sum(), x)[0].tolist() == [0] * 5


def test_gradients_at_zero():
    def slope(f, at=0.0):
        x = mg.tensor(at, dtype=mg.float64, requires_grad=True)
        return mg.grad(f(x), x)[0].item()

    assert slope(lambda x: x.abs()) == slope(lambda x: x.relu()) == slope(lambda x: x.sign() * x) == 0
    assert slope(lambda x: x**2) == slope(lambda x: x**0) == slope(lambda x: x**3) == 0
    assert slope(lambda x: x**1) == 1 and slope(lambda x: x.clamp(0, 1)) == 1 and slope(lambda x: x.clamp(0.1, 1)) == 0


def test_powers_of_zero_and_of_negative_numbers():
    a = mg.tensor([0.0, 0.0, 0.0, 2.0], dtype=mg.float64, requires_grad=True)
    b = mg.tensor([0.0, 1.0, 2.0, 0.0], dtype=mg.float64, requires_grad=True)
    (a**b).sum().backward()
    assert a.grad.tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(b.grad.numpy(), [0, 0, 0, math.log(2)])
    (second,) = mg.grad(mg.grad((a**b).sum(), a, create_graph=True)[0].sum(), a)
    assert second.tolist() == [0, 0, 2, 0]
    b.grad = None
    (0.0**b).sum().backward()
    assert b.grad.tolist() == [0, 0, 0, 0]
    x = mg.tensor([-2.0, 3.0], dtype=mg.float64, requires_grad=True)
    (x**3 + x**-1 + x**2.0).sum().backward()
    v = x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), 3 * v**2 - v**-2 + 2 * v)
    with np.errstate(invalid="ignore"):
        (g,) = mg.grad(((-2.0) ** x).sum(), x)
    assert g.isnan().all()  # no real number is the derivative of (-2)^x


@pytest.mark.parametrize("dtype", [mg.float32, mg.float64], ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_far_from_zero_has_slope_0_or_1(dtype, approximate):
    x = mg.tensor([-1e30, -1e3, -45.0, 45.0, 1e3, 1e30], dtype=dtype, requires_grad=True)
    mg.nn.functional.gelu(x, approximate).sum().backward()
    assert x.grad.tolist() == [0, 0, 0, 1, 1, 1]


def test_many_ties_of_float16():
    x = mg.ones(70_000, dtype=mg.float16, requires_grad=True)
    x.amax().backward()
    assert x.grad.dtype == mg.float16 and (x.grad.numpy() == np.float16(1 / 70_000)).all()
