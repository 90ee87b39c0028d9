"""The NumPy reference against plain formulas: all other backends are compared with it, and take over from it where
arrays are large."""

import importlib
import itertools
import math

import numpy as np
import pytest

from minigrad.backend import reference

updates = importlib.import_module("minigrad.backend.numpy.optim")
NAN, INF = math.nan, math.inf


def normal(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


# ------------------------------------------------------------------------------------------------- functions


POINTS = [0.0, -0.0, 0.46875, -0.46875, 0.4688, 4.0, -4.0, 4.0001, 1e-300, 26.0, -26.0, 27.5, INF, -INF, NAN]
X = np.concatenate([np.linspace(-6, 6, 2001), np.array(POINTS)])


def each(f):
    return np.array([f(x) for x in X])


def close(got, want, rtol=4e-15):
    np.testing.assert_allclose(got, want, rtol, 1e-300)


def test_error_functions():
    close(reference.erf(X), each(math.erf))
    close(reference.erfc(X), each(math.erfc), 2e-13)  # whose exp(-x²) loses digits for large x
    single = X.astype(np.float32)
    exact = np.array([math.erf(x) for x in single.astype(float)])
    np.testing.assert_allclose(reference.erf(single), exact, 0, 4e-7)
    assert reference.erf(single).dtype == reference.erfc(single).dtype == np.float32
    np.testing.assert_allclose(reference.erfc(single), [math.erfc(x) for x in single.astype(float)], 3e-7, 1e-40)
    assert reference.erf(np.array(0.5)).shape == () and reference.erfc(normal(2, 0, 3)).shape == (2, 0, 3)
    np.testing.assert_array_equal(reference.erf(normal(4, 5).T), reference.erf(normal(4, 5)).T)


def phi(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def tanh_form(x):
    return 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def test_gelu_and_its_slope():
    x = np.linspace(-5, 5, 401)
    for form, cdf in (("none", phi), ("tanh", tanh_form)):
        y, h = reference.gelu(x, form), 1e-5
        np.testing.assert_allclose(y, [v * cdf(v) for v in x], 1e-11, 1e-15)
        np.testing.assert_allclose(reference.gelu(x.astype(np.float32), form), y, 0, 1e-6)
        slope = [((v + h) * cdf(v + h) - (v - h) * cdf(v - h)) / (2 * h) for v in x]
        dy = normal(401)
        np.testing.assert_allclose(reference.gelu_backward(dy, x, y, form), dy * slope, 1e-8, 1e-9)
        assert reference.gelu_backward(np.ones(2), np.zeros(2), np.zeros(2), form).tolist() == [0.5, 0.5]
        assert reference.gelu(np.array([INF, -800.0, 0.0]), form).tolist() == [INF, 0, 0]
        assert reference.gelu(np.array(1.0), form).shape == ()
        half = reference.gelu(x.astype(np.float16), form)
        assert half.dtype == np.float16 and np.abs(half - y).max() < 4e-3


def test_sigmoid_neither_overflows_nor_loses_its_tail():
    x = np.array([-1000.0, -700, -40, -1, 0, 1, 40, 1000, INF, -INF, NAN])
    expected = [0, math.exp(-700), math.exp(-40), 1 / (1 + math.e), 0.5, math.e / (1 + math.e), 1, 1, 1, 0, NAN]
    np.testing.assert_allclose(reference.sigmoid(x), expected, 1e-15)
    np.testing.assert_allclose(reference.silu(x[:8]), x[:8] * expected[:8], 1e-15)
    for dtype in (np.float16, np.float32):
        assert reference.sigmoid(x.astype(dtype)).dtype == reference.silu(x.astype(dtype)).dtype == dtype
    assert reference.sigmoid(np.array(0.0)).shape == () == reference.silu(np.array(0.0)).shape


def test_powers_take_the_short_way_for_floats_only():
    x = np.array([0.25, 2.0, 9.0])
    for power in (0, 1, 2, 3, 0.5, -0.5, -1, 4, -2, 1.5, True):
        np.testing.assert_allclose(reference.pow(x, power), x ** float(power), 1e-15)
    for power, expected in ((2, [4, 9]), (0, [1, 1]), (1, [2, 3])):
        assert reference.pow(np.array([2, 3]), power).tolist() == expected
    assert reference.pow(2.0, x).tolist() == (2.0**x).tolist()
    assert reference.pow(np.array([NAN, INF]), 0).tolist() == [1, 1]


# ------------------------------------------------------------------------------------------------- by index, orders


def test_adjoints_of_reading_add_what_is_named_twice():
    dy = normal(4, 3)
    for index in ((np.array([2, 0, 2, 2]),), np.array([2, 0, 2, 2])):
        want = np.zeros((3, 3))
        np.add.at(want, np.array([2, 0, 2, 2]), dy)
        np.testing.assert_array_equal(reference.getitem_add((3, 3), index, dy), want)
    mask = np.array([True, False, True, True, True])
    for index in ((mask,), (slice(None, None, -1), slice(0, 3)), (0,), (None, ..., 1), (True,)):
        x = np.zeros((5, 3) if index[0] is not None else (2, 3))
        piece = normal(*x[index].shape)
        x[index] += piece
        got = reference.getitem_add(x.shape, index, piece)
        np.testing.assert_array_equal(got, x)
        assert reference.getitem_add(x.shape, index, piece.astype(np.float32)).dtype == np.float32
    where = np.array([[0, 1, 0], [0, 0, 1], [2, 0, 0], [2, 1, 0]])
    want = np.zeros((3, 3))
    for (i, j), v in np.ndenumerate(dy):
        want[where[i, j], j] += v
    np.testing.assert_allclose(reference.scatter_add((3, 3), 0, where, dy), want, 1e-15)
    np.testing.assert_allclose(reference.scatter_add((3, 3), 1, where.T, dy.T), want.T, 1e-15)
    for index in ([2, 0, 2, 2], [0, 0, 0, 0], [3, 2, 1, 0], []):
        want = np.zeros((5, 3))
        np.add.at(want, np.array(index, int), dy[: len(index)])
        got = reference.take_add(5, np.array(index, int), dy[: len(index)])
        np.testing.assert_allclose(got, want, 1e-15)
    np.testing.assert_array_equal(reference.take(dy, np.array([[3, 0]])), dy[[[3, 0]]])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "bool", "u1", "i4", "u4", "i8", "u8"])
def test_the_order_is_numpys_stable_one(dtype):
    """Of long rows, short ones, rows of equals, of NaN and ±∞ among them."""
    rng = np.random.default_rng(0)
    for rows, n, many in itertools.product((1, 3), (1, 7, 900), (2, 1000)):
        x = rng.integers(0, many, (rows, n)).astype(dtype)
        x = x if dtype == "bool" else x - x.dtype.type(1)  # the least number of all, or a negative one
        if dtype in ("f2", "f4", "f8"):
            x = np.where(rng.random(x.shape) < 0.02, rng.choice(np.array([NAN, np.inf, -np.inf, -0.0], dtype), n), x)
        flipped = n - 1 - np.flip(np.argsort(np.flip(x, 1), axis=1, kind="stable"), 1)
        for descending, want in ((False, np.argsort(x, axis=1, kind="stable")), (True, flipped)):
            np.testing.assert_array_equal(reference.argsort(x, 1, descending), want)
            np.testing.assert_array_equal(reference.argsort(x.T, 0, descending), want.T)


def test_orders_are_stable_both_ways():
    x = np.array([[2.0, 1, 2, NAN, 1], [0, 0, 0, 0, 0]])
    assert reference.argsort(x, 1, False).tolist() == [[1, 4, 0, 2, 3], [0, 1, 2, 3, 4]]
    assert reference.argsort(x, 1, True).tolist() == [[3, 0, 2, 1, 4], [0, 1, 2, 3, 4]]
    assert reference.argsort(x, 0, True)[:, 0].tolist() == [0, 1]
    np.testing.assert_array_equal(reference.cumsum(x[1:] + 1, 1, True), [[5, 4, 3, 2, 1]])
    assert reference.cumsum(np.ones((2, 3), np.float16), 0, True).dtype == np.float16
    assert reference.cumsum(np.full(400, 1, np.uint8), 0, False)[-1] == 400


def test_memory_of_ones_own():
    x = np.zeros((3, 4))
    assert reference.is_compact(x) and not reference.is_compact(x.T) and not reference.is_compact(x[:, :2])
    assert reference.is_writeable(x[:, ::2]) and not reference.is_writeable(np.broadcast_to(x, (2, 3, 4)))
    frozen = x.copy()
    frozen.flags.writeable = False
    assert not reference.is_compact(frozen)
    assert reference.copy(x.T).flags.c_contiguous and reference.pad(x, (), 0) is not x


# ------------------------------------------------------------------------------------------------- rows and products


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_softmax_and_its_kin_along_any_dim(dim):
    x, dy = normal(3, 4, 5), normal(3, 4, 5, seed=1)
    e = np.exp(x)
    p = e / e.sum(dim, keepdims=True)
    np.testing.assert_allclose(reference.softmax(x, dim), p, 1e-13)
    np.testing.assert_allclose(reference.log_softmax(x, dim), np.log(p), 1e-13)
    np.testing.assert_allclose(reference.logsumexp(x, dim), np.log(e.sum(dim, keepdims=True)), 1e-13)
    want = p * (dy - (dy * p).sum(dim, keepdims=True))
    np.testing.assert_allclose(reference.softmax_backward(dy, p, dim), want, 1e-12, 1e-15)
    assert x[0, 0, 0] == normal(3, 4, 5)[0, 0, 0] and reference.softmax(x[:, :0], 1).shape == (3, 0, 5)


def test_causal_patterns_of_several_shapes():
    for T, S in ((3, 3), (2, 5), (5, 2), (3, 3), (1, 4)):
        x = normal(2, T, S)
        seen = np.tri(T, S, dtype=bool)
        e = np.where(seen, np.exp(0.5 * x), 0)
        got = reference.attention_pattern(x, 0.5, None, True)
        np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), 1e-13)
        assert (got[:, ~seen] == 0).all()
        dy, p = normal(2, T, S, seed=1), got
        want = 0.5 * p * (dy - (dy * p).sum(-1, keepdims=True))
        np.testing.assert_allclose(reference.attention_pattern_backward(dy, p, 0.5), want, 1e-12, 1e-15)


@pytest.mark.parametrize(
    "wanted", [(True, True, True), (True, False, False), (False, True, False), (False, False, True)]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_backward_of_norms_and_linear(wanted, weighted):
    x, dy, w = normal(2, 3, 5), normal(2, 3, 5, seed=1), normal(5, seed=2) if weighted else None
    g = dy * (1 if w is None else w)
    for centred in (True, False):
        mu = x.mean(-1, keepdims=True) if centred else 0.0
        r = 1 / np.sqrt(((x - mu) ** 2).mean(-1, keepdims=True) + 0.1)
        xhat = (x - mu) * r
        dx = (g - centred * g.mean(-1, keepdims=True) - xhat * (g * xhat).mean(-1, keepdims=True)) * r
        want = dx, (dy * xhat).sum((0, 1)), dy.sum((0, 1))
        if centred:
            y, mean, rstd = reference.layer_norm(x, w, None, 0.1)
            got = reference.layer_norm_backward(dy, x, w, mean, rstd, wanted)
        else:
            y, rstd = reference.rms_norm(x, w, 0.1)
            got = (*reference.rms_norm_backward(dy, x, w, rstd, wanted[:2]), want[2] if wanted[2] else None)
        np.testing.assert_allclose(y, xhat * (1 if w is None else w), 1e-12)
        for mine, right, asked in zip(got, want, wanted, strict=True):
            assert (mine is None) != asked
            if asked:
                np.testing.assert_allclose(mine, right, 1e-12, 1e-14)
    weight = normal(4, 5, seed=3)
    dy = normal(2, 3, 4, seed=4)
    want = dy @ weight, np.einsum("bti,btj->ij", dy, x), dy.sum((0, 1))
    for mine, right, asked in zip(reference.linear_backward(dy, x, weight, wanted), want, wanted, strict=True):
        assert (mine is None) != asked
        if asked:
            np.testing.assert_allclose(mine, right, 1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
def test_cross_entropy_and_its_backward(smoothing):
    x, target, dloss = normal(4, 5), np.array([0, 9, 4, 2]), normal(4, seed=1)
    for ignored in (9, 2):
        t = np.where(target == 9, 9 if ignored == 9 else 1, target)
        loss, p = reference.cross_entropy(x, t, ignored, smoothing)
        np.testing.assert_allclose(p, np.exp(x) / np.exp(x).sum(1, keepdims=True), 1e-13)
        kept = t != ignored
        q = (1 - smoothing) * np.eye(5)[np.where(kept, t, 0)] + smoothing / 5
        np.testing.assert_allclose(loss, np.where(kept, -(q * np.log(p)).sum(1), 0), 1e-12)
        got = reference.cross_entropy_backward(dloss, p, t, ignored, smoothing)
        np.testing.assert_allclose(got, np.where(kept[:, None], (p - q) * dloss[:, None], 0), 1e-12, 1e-16)


# ------------------------------------------------------------------------------------------------- updates


@pytest.mark.parametrize("size", [0, 1, 400])
@pytest.mark.parametrize("weight_decay, decoupled", [(0.0, True), (0.3, True), (0.3, False)])
def test_adam(size, weight_decay, decoupled):
    p, g, m = (normal(size, seed=i) for i in range(3))
    v, before = normal(size, seed=3) ** 2, g.copy()
    decayed = p * (1 - 0.1 * weight_decay) if decoupled else p
    slope = g if decoupled else g + weight_decay * p
    want_m, want_v = 0.9 * m + 0.1 * slope, 0.99 * v + 0.01 * slope**2
    want_p = decayed - 0.1 * (want_m / (1 - 0.9**3)) / (np.sqrt(want_v / (1 - 0.99**3)) + 1e-3)
    other = np.ones(2), np.ones(2), np.zeros(2), np.zeros(2), 1
    options = [(0.1, weight_decay, 3), (0.5, 0.0, 1)]
    reference.adam_([(p, g, m, v, 0), other], lambda: options, 0.9, 0.99, 1e-3, decoupled)
    for mine, right in ((p, want_p), (m, want_m), (v, want_v), (g, before)):
        np.testing.assert_allclose(mine, right, 1e-12, 1e-14)
    np.testing.assert_allclose(other[0], 0.5, 2e-3)


def test_norm_and_clipping_of_several_arrays():
    arrays = [normal(3, 4).T, normal(5, seed=1).astype(np.float32), np.full(300, 300, np.float16), np.empty(0)]
    want = math.sqrt(sum((x.astype(np.float64) ** 2).sum() for x in arrays))
    assert reference.global_norm(arrays) == pytest.approx(want, rel=1e-6) and reference.global_norm([]) == 0
    before = [x.copy() for x in arrays]
    reference.clip_(arrays, np.array(2.0), 3.0)
    for x, y in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, y)
    reference.clip_(arrays, np.array(6.0 - 1e-6), 3.0)
    for x, y in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, y * x.dtype.type(0.5))


def test_adam_of_halves_is_computed_in_single():
    """In float16 its eps of 1e-8 would be 0, and a gradient of 0 would give 0 / 0."""
    p, g, m, v = (np.array(x, np.float16) for x in ([1, 2], [0, 1e-4], [0, 0], [0, 0]))
    reference.adam_([(p, g, m, v, 0)], lambda: [(1e-3, 0.0, 1)], 0.9, 0.999, 1e-8, False)
    np.testing.assert_array_equal(p, np.array([1, 2 - 1e-3], np.float16))
