"""Random numbers and dropout by kernels: those of the reference, with the same bits unless a transcendental function is
used."""

import math

import numpy as np
import pytest

from minigrad import random
from minigrad.backend import reference
from minigrad.backend.philox import Draw
from minigrad.backend.runners.native import NativeKernels

from .calls import FLOATS, call, on_each

pytestmark = [pytest.mark.needs("g++"), pytest.mark.usefixtures("quiet")]
SEEDS = [(0, 0), (2**63 + 12345, 7), (1, 2**32 - 1), (99, 2**40)]


@on_each(["key", "offset", "dtype"], [(*seed, dtype) for seed in SEEDS for dtype in FLOATS])
def test_random_numbers_are_the_same_everywhere(on, key, offset, dtype):
    draw = Draw(key, offset)
    for n in (0, 1, 4, 7, 130):
        if dtype == np.float32:
            words = call(on, "random_words", draw, n)
            np.testing.assert_array_equal(words, reference.random_words(draw, n))
        for shape in ((n,), (n, 3)):
            y = call(on, "random_uniform", draw, shape, dtype)
            want = reference.random_uniform(draw, shape, dtype)
            np.testing.assert_array_equal(y, want)
            assert y.dtype == want.dtype == dtype and y.shape == want.shape == shape
            y = call(on, "random_normal", draw, shape, dtype)
            want = reference.random_normal(draw, shape, dtype)
            assert y.dtype == want.dtype == dtype and y.shape == want.shape == shape
            np.testing.assert_allclose(y, want, rtol=4 * np.finfo(dtype).eps, atol=1e-15)


@on_each(["n", "dtype"], [(200_001, np.dtype(np.float64))])
def test_many_normal_numbers(on, n, dtype):
    draw, n = Draw(7, 1), n if isinstance(on, NativeKernels) else 2001
    want = reference.random_normal(draw, (n,), dtype)
    y = call(on, "random_normal", draw, (n,), dtype)
    np.testing.assert_allclose(y, want, rtol=4 * np.finfo(dtype).eps, atol=1e-15)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reference_draws_what_the_generator_draws(dtype):
    made = random.Generator(5)
    made.offset = 3
    np.testing.assert_array_equal(reference.random_uniform(Draw(5, 3), (3, 5), dtype), made.uniform((3, 5), dtype))
    made.offset = 3
    np.testing.assert_array_equal(reference.random_normal(Draw(5, 3), (3, 5), dtype), made.normal((3, 5), dtype))


@on_each(["p", "dtype"], [(p, dtype) for p in (0.0, 0.1, 0.5, 1.0) for dtype in FLOATS])
def test_dropout(on, p, dtype):
    x = np.concatenate([[math.nan, math.inf, -math.inf, -0.0], np.random.default_rng(0).normal(size=62)]).astype(dtype)
    for view in (x, x.reshape(6, 11).T, x[::-3], x[:0], x[7:8].reshape(())):
        y, mask = (on.to_numpy(v) for v in on.dropout(on.from_numpy(view), p, Draw(11, 5)))
        want, kept = reference.dropout(view, p, Draw(11, 5))
        np.testing.assert_array_equal(mask, kept)
        np.testing.assert_array_equal(y, want)
        assert y.dtype == mask.dtype == kept.dtype == dtype and y.shape == mask.shape == view.shape
    keep = reference.random_words(Draw(11, 5), 66) >= int(p * 2**32)
    np.testing.assert_array_equal(
        reference.dropout(x, p, Draw(11, 5))[1], keep * dtype.type(1 / (1 - p) if p < 1 else 0)
    )


@on_each(["dtype"], [(dtype,) for dtype in FLOATS])
def test_a_stream_may_begin_where_memory_says(on, dtype, monkeypatch):
    """A launch that is repeated with the same arguments then draws other numbers."""
    draw, x = Draw(2**63 + 5, 2**33 + 9), np.ones(37, dtype)
    draws = [
        lambda: [on.random_normal(draw, (37,), dtype), on.random_uniform(draw, (37,), dtype)],
        lambda: [on.random_words(draw, 37), *on.dropout(on.from_numpy(x), 0.5, draw)],
    ]
    usual = [on.to_numpy(y) for each in draws for y in each()]
    words = on.from_numpy(np.array([draw.key, draw.offset - 7], np.uint64))
    monkeypatch.setattr(on, "random_stream", lambda draw: (words, 1, 7))
    again = [on.to_numpy(y) for each in draws for y in each()]
    for mine, right in zip(again, usual, strict=True):
        np.testing.assert_array_equal(mine, right)
