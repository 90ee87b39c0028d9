"""The NumPy reference against plain formulas. All other backends are compared with it, and compute where arrays are
large."""

import itertools
import math

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.numpy import reduce

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


def test_powers_take_the_short_way_for_floats_only():
    x = np.array([0.25, 2.0, 9.0])
    for power in (0, 1, 2, 3, 0.5, -0.5, -1, 4, -2, 1.5, True):
        np.testing.assert_allclose(reference.pow(x, power), x ** float(power), 1e-15)
    for power, expected in ((2, [4, 9]), (0, [1, 1]), (1, [2, 3])):
        assert reference.pow(np.array([2, 3]), power).tolist() == expected
    assert reference.pow(2.0, x).tolist() == (2.0**x).tolist()
    assert reference.pow(np.array([NAN, INF]), 0).tolist() == [1, 1]


# ------------------------------------------------------------------------------------------------- by index, orders


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "bool", "u1", "i4", "u4", "i8", "u8"])
def test_the_order_is_numpys_stable_one(dtype):
    """The rows are long or short, and have equal elements, NaN and ±∞."""
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


# ------------------------------------------------------------------------------------------------- updates


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
    """In float16, eps = 1e-8 would be 0, and a gradient of 0 would give 0 / 0."""
    p, g, m, v = (np.array(x, np.float16) for x in ([1, 2], [0, 1e-4], [0, 0], [0, 0]))
    reference.adam_([(p, g, m, v, 0)], lambda: [(1e-3, 0.0, 1)], 0.9, 0.999, 1e-8, False)
    np.testing.assert_array_equal(p, np.array([1, 2 - 1e-3], np.float16))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint64", "int8", "bool"])
def test_the_first_places_are_those_of_the_whole_order(dtype):
    """The values have ties or not, and NaN, infinities and both zeros."""
    rng = np.random.default_rng(0)
    distinct = rng.permutation(np.arange(300)).reshape(3, 100)
    tied = rng.integers(0, 7, (3, 100))
    for values in (distinct, tied):
        x = (values - 3).astype(dtype)
        variants = [x]
        if x.dtype.kind == "f":
            special = x.copy()
            special[:, ::30] = np.nan, -np.inf, np.inf, -0.0
            variants += [special, special[:, ::-1]]
        for y in variants:
            for k, descending in itertools.product((0, 1, 5, 25, 26, 100), (False, True)):
                for z, dim in ((y, 1), (y, -1), (y.T, 0)):
                    expected = reference.argsort(z, dim, descending)
                    expected = expected[:, :k] if dim else expected[:k]
                    np.testing.assert_array_equal(reference.argsort(z, dim, descending, k), expected)


def test_few_of_many_are_found_without_sorting_all(monkeypatch):
    sorted_sizes = []
    whole = reduce._order
    monkeypatch.setattr(reduce, "_order", lambda x, descending: sorted_sizes.append(x.shape) or whole(x, descending))
    reference.argsort(np.random.default_rng(0).permutation(4000).reshape(4, 1000), 1, True, 5)
    assert sorted_sizes == [(4, 5)]
