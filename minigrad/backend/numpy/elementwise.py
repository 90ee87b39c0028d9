"""Elementwise primitives."""

import functools
import math
from typing import Any

import numpy as np

from .precision import in_single

POWERS: dict[float, Any] = {
    0: np.ones_like,
    1: np.positive,
    2: np.square,
    3: lambda x: x * x * x,
    0.5: np.sqrt,
    -0.5: lambda x: 1 / np.sqrt(x),
    -1: lambda x: 1 / x,
}
GELU_A, GELU_B = math.sqrt(2 / math.pi), 0.044715


def stepwise(function):
    """For a formula that is computed step by step in place: float16 in float32, and 0-d arrays, which NumPy would turn
    into scalars, as arrays of one element."""
    function = in_single(function)

    @functools.wraps(function)
    def wrapper(self, *args):
        if np.ndim(args[0]):
            return function(self, *args)
        return function(self, *[np.reshape(a, 1) if isinstance(a, np.ndarray) else a for a in args]).reshape(())

    return wrapper


def exactly(function):
    """NumPy's exp and log are off by 3 units in the last place of float32: so in float64, and rounded."""

    def wrapper(x):
        return function(x, dtype=np.float64).astype(np.float32) if x.dtype == np.float32 else function(x)

    return wrapper


exp, log, log1p = exactly(np.exp), exactly(np.log), exactly(np.log1p)


class Elementwise:
    """Operands are arrays or Python numbers. Those of two operands up to `minimum` take `out=` too."""

    add, sub, mul, div = np.add, np.subtract, np.multiply, np.true_divide
    maximum, minimum = np.maximum, np.minimum  # NaN if either is
    floor_divide, remainder = np.floor_divide, np.remainder  # like Python's // and %; integers divided by 0 give 0
    where, clamp = staticmethod(np.where), staticmethod(np.clip)  # clamp takes numbers or None
    neg, abs, sign, floor, sqrt = np.negative, np.abs, np.sign, np.floor, np.sqrt
    sin, cos, tanh = np.sin, np.cos, np.tanh
    exp, log, log1p = staticmethod(exp), staticmethod(log), staticmethod(log1p)

    eq, ne, lt, le, gt, ge = np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal
    logical_and, logical_or, logical_not = np.logical_and, np.logical_or, np.logical_not
    isnan, isinf, isfinite = np.isnan, np.isinf, np.isfinite

    def cast(self, x, dtype):
        """Always a copy."""
        return x.astype(dtype)

    def rsqrt(self, x):
        """1 / √x."""
        return 1 / np.sqrt(x)

    def relu(self, x):
        return np.maximum(x, 0)

    def pow(self, x, y):
        if isinstance(y, (int, float)) and y in POWERS and x.dtype.kind == "f":
            return POWERS[y](x)  # NumPy's pow is 60 times slower than two products
        return np.power(x, y)

    @stepwise
    def sigmoid(self, x):
        """1 / (1 + e⁻ˣ), without overflow."""
        e = exp(-np.abs(x))  # 1 / (1 + e^-x) for x ≥ 0, e^x / (1 + e^x) below: neither overflows
        return np.where(x >= 0, x.dtype.type(1), e) / (1 + e)

    @stepwise
    def silu(self, x):
        """x σ(x)."""
        e = exp(-np.abs(x))
        return np.where(x >= 0, x, x * e) / (1 + e)  # x e^x keeps the digits that e^x alone has no room for

    @stepwise
    def gelu(self, x, approximate):
        """x Φ(x); approximate: "none" or "tanh"."""
        if approximate == "tanh":
            return x / (1 + np.exp(-_gelu_odd(x)))  # where this overflows, ∞ gives the right 0
        if x.dtype == np.float64:
            return x * (0.5 * self.erfc(x * -math.sqrt(0.5)))
        return x * (0.5 * (1 + self.erf(x * math.sqrt(0.5))))  # faster, and off by 1e-7 of 1 where Φ is tiny

    @stepwise
    def gelu_backward(self, dy, x, y, approximate):
        """dy/dx = Φ(x) + x Φ'(x)."""
        if approximate == "tanh":  # Φ = σ(u) = 1 / (1 + e^-u), so Φ' = Φ (1 - Φ) u' with u' = 2 A (1 + 3 B x²)
            most = 21 if x.dtype == np.float64 else 10  # the slope is 0 or 1 beyond, where e^-u would be ∞
            near = np.clip(x, -most, most)
            e = np.exp(-_gelu_odd(near))
            cdf = 1 / (1 + e)
            slope = 2 * GELU_A + 6 * GELU_A * GELU_B * (near * near)
            # e Φ is 1 - Φ, which would have lost its digits where Φ is nearly 1
            return dy * np.where(x < -most, 0, cdf + near * cdf * (e * cdf) * slope)
        cdf = y / x  # Φ need not be computed again
        np.copyto(cdf, 0.5, where=np.abs(x) < 1e-30)  # a subnormal y has lost digits
        return dy * (cdf + x * np.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi)))  # Φ' = exp(-x²/2) / √(2π)

    @stepwise
    def erf(self, x):
        return erf_single(x) if x.dtype == np.float32 else pythons(math.erf, x)

    @stepwise
    def erfc(self, x):
        """1 - erf(x), as accurate where that is tiny."""
        return pythons(math.erfc, x)


def pythons(function, x):
    """A function of Python's module math, which NumPy lacks, of each element: exact, and 0.1 µs for each."""
    return np.frompyfunc(function, 1, 1)(x).astype(x.dtype)


# As in backend/runners/native/native.h, which says how these were found: erf x = x + x P(x²) for |x| < 1.1; beyond,
# erfc |x| = Q(|x| - 2)^4.
_ERF = (7.23606863e-05, -0.000782473944, 0.00516773108, -0.026843518, 0.112833641, -0.376126111, 0.128379166)
_ERFC_ROOT = (-1.30057915e-05, -0.000179836847, 0.000750374747, 0.00152864959, -0.0122346748, 0.00690604467,
              0.0991374478, -0.288862288, 0.261522323)  # fmt: skip


def erf_single(x):
    """erf of float32, in NumPy's arithmetic: a GELU computes a million of them."""
    a = np.minimum(np.abs(x), 4)
    y = _horner(_ERF, a * a)
    y *= x
    y += x
    tail = _horner(_ERFC_ROOT, a - 2)
    tail *= tail
    tail *= tail
    return np.where(a < 1.1, y, np.copysign(1 - tail, x))


def _horner(coefficients, x):
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y *= x
        y += c
    return y


def _gelu_odd(x):
    """2 A (x + B x³): the tanh form's Φ is the sigmoid of it, and an exp is half the work of a tanh."""
    return x * (2 * GELU_A + 2 * GELU_A * GELU_B * (x * x))
