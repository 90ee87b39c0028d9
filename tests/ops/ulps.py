"""Errors of float32 functions in units in the last place, for test_functions_ulp.py and tests/oracle."""

import math

import numpy as np


def _each(function):
    return lambda x: np.fromiter(map(function, x.tolist()), np.float64, x.size)


def _sigmoid(x):
    return np.where(x >= 0, 1.0, np.exp(-np.abs(x))) / (1 + np.exp(-np.abs(x)))


def _gelu_tanh_slope(x):
    a, b = math.sqrt(2 / math.pi), 0.044715
    x = np.clip(x, -30, 30)
    u = 2 * a * (x + b * x**3)
    return _sigmoid(u) + x * _sigmoid(u) * _sigmoid(-u) * 2 * a * (1 + 3 * b * x * x)


def _gelu_none_slope(x):
    x = np.clip(x, -30, 30)
    return 0.5 * _each(math.erfc)(x * -math.sqrt(0.5)) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


# In float64, whose own errors are a billionth of a unit in float32's last place.
EXACT = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sigmoid": _sigmoid, "erf": _each(math.erf), "sin": np.sin,
    "erfc": _each(math.erfc), "silu": lambda x: x * _sigmoid(x), "rsqrt": lambda x: 1 / np.sqrt(x), "cos": np.cos,
}  # fmt: skip
SLOPES = {"tanh": _gelu_tanh_slope, "none": _gelu_none_slope}

# Where a polynomial, a table or a formula takes over from another, and where results become 0, subnormal, 1 or ∞.
_BREAKS = [0.0, 1e-38, 0.25, 0.46875, 0.5, 0.625, 2 / 3, 0.84375, 1.0, 1.1, 1.25, 4 / 3, 2.0, math.pi, 4.0, 5.0, 9.0102,
           9.2, 10.0, 10.06, 11.0, 16.6, 87.34, 88.7228, 89.0, 103.97, 104.0]  # fmt: skip


def inputs(step):
    """Every `step`-th float32, ±0, ±∞ and NaN, and some hundred neighbours of each place where a formula ends."""
    dense = np.arange(0, 1 << 32, step, dtype=np.int64)
    breaks = np.array(_BREAKS + [-b for b in _BREAKS], np.float32).view(np.uint32).astype(np.int64)
    near = (breaks[:, None] + np.arange(-200, 201)).reshape(-1)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32).view(np.uint32)
    bits = np.unique(np.concatenate([dense, near[(near >= 0) & (near < 1 << 32)], special]))
    return bits.astype(np.uint32).view(np.float32)


def ulps(y, exact):
    """Return the error of each y in units in the last place of `exact`. NaN and ∞ must be at the same places."""
    assert y.dtype == np.float32
    limit = 2.0**128  # what ∞ stands for, if the exact value only rounds to it
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.isnan(y), np.isnan(exact))
        infinite = np.isinf(exact)
        np.testing.assert_array_equal(y[infinite], exact[infinite])
        y, exact = (np.clip(np.nan_to_num(v.astype(np.float64)), -limit, limit) for v in (y, exact))
        unit = 2.0 ** (np.clip(np.frexp(exact)[1], -125, 128) - 24)
        return np.abs(y - exact) / unit
