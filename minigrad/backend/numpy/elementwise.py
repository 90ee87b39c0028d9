"""Elementwise primitives."""

import math

import numpy as np

from .precision import in_float32

GELU_A, GELU_B = math.sqrt(2 / math.pi), 0.044715


def rounded_once(function):
    """Compute float32 in float64, and round: NumPy's exp and log of float32 are off by up to 3 units in the last
    place, too much for the definition of a primitive."""

    def wrapper(x):
        return function(x, dtype=np.float64).astype(np.float32) if x.dtype == np.float32 else function(x)

    return wrapper


exp, log, log1p = rounded_once(np.exp), rounded_once(np.log), rounded_once(np.log1p)


class Elementwise:
    """Operands are arrays or Python numbers. The functions of two operands up to `minimum` take `out=` too."""

    add, sub, mul, div = np.add, np.subtract, np.multiply, np.true_divide
    maximum, minimum = np.maximum, np.minimum  # NaN if either is
    floor_divide, remainder = np.floor_divide, np.remainder  # like Python's // and %; integers divided by 0 give 0
    where, clamp = staticmethod(np.where), staticmethod(np.clip)  # clamp takes numbers or None
    neg, abs, sign, floor, sqrt = np.negative, np.abs, np.sign, np.floor, np.sqrt
    sin, cos, tanh = np.sin, np.cos, np.tanh
    exp, log, log1p = staticmethod(exp), staticmethod(log), staticmethod(log1p)

    eq, ne, lt, le, gt, ge = np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal
    logical_and, logical_or, logical_not = np.logical_and, np.logical_or, np.logical_not
    bitwise_and, bitwise_or, bitwise_xor = np.bitwise_and, np.bitwise_or, np.bitwise_xor
    bitwise_not = np.invert
    isnan, isinf, isfinite = np.isnan, np.isinf, np.isfinite

    def cast(self, x, dtype):
        """Always a copy."""
        return x.astype(dtype)

    def round(self, x):
        """The nearest integer, of two the even one."""
        return np.rint(x) if x.dtype.kind == "f" else x.copy()

    def rsqrt(self, x):
        """1 / √x."""
        return 1 / np.sqrt(x)

    def relu(self, x):
        return np.maximum(x, 0)

    def pow(self, x, y):
        """xʸ. With the numbers 0.5 and -0.5 it is √x and 1 / √x, which are NaN at -∞."""
        if isinstance(y, (int, float)) and x.dtype.kind == "f":
            return np.sqrt(x) if y == 0.5 else 1 / np.sqrt(x) if y == -0.5 else x**y
        return np.power(x, y)

    @in_float32
    def sigmoid(self, x):
        """1 / (1 + e⁻ˣ). Below 0 it is eˣ / (1 + eˣ), so that e^|x| does not overflow."""
        e = exp(-np.abs(x))
        return np.where(x >= 0, 1, e) / (1 + e)

    @in_float32
    def silu(self, x):
        """x σ(x). Below 0 it is x eˣ / (1 + eˣ): x eˣ has more digits than eˣ alone where that is tiny."""
        e = exp(-np.abs(x))
        return np.where(x >= 0, x, x * e) / (1 + e)

    @in_float32
    def gelu(self, x, approximate):
        """x Φ(x); approximate: "none" or "tanh"."""
        if approximate == "tanh":
            return x / (1 + np.exp(-_two_u(x)))  # Φ = σ(2u); where e^-2u is ∞, this is the right 0
        if x.dtype == np.float64:
            return x * (0.5 * self.erfc(x * -math.sqrt(0.5)))
        return x * (0.5 * (1 + self.erf(x * math.sqrt(0.5))))  # erf_float32 is off by 1e-7 of 1 where Φ is tiny

    @in_float32
    def gelu_backward(self, dy, x, y, approximate):
        """dx = dy (Φ(x) + x Φ'(x)); y = gelu(x)."""
        if approximate == "tanh":  # Φ = σ(2u), so Φ' = Φ (1 - Φ) 2u' with 2u' = 2 A (1 + 3 B x²)
            limit = 21 if x.dtype == np.float64 else 10  # beyond, the slope is 0 or 1, and e^-2u might be ∞
            near = np.clip(x, -limit, limit)
            e = np.exp(-_two_u(near))
            cdf = 1 / (1 + e)
            pdf = cdf * (e * cdf) * (2 * GELU_A + 6 * GELU_A * GELU_B * near * near)  # e Φ is 1 - Φ with all its digits
            return dy * np.where(x < -limit, 0, cdf + near * pdf)
        cdf = np.where(np.abs(x) < 1e-30, 0.5, y / x)  # a y that is subnormal has lost digits
        return dy * (cdf + x * np.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi)))  # Φ' = exp(-x²/2) / √(2π)

    @in_float32
    def erf(self, x):
        return erf_float32(x) if x.dtype == np.float32 else elementwise_math(math.erf, x)

    @in_float32
    def erfc(self, x):
        """1 - erf(x), as accurate where that is tiny."""
        return elementwise_math(math.erfc, x)


def elementwise_math(function, x):
    """Apply a function of Python's module math, which NumPy lacks, to each element: exact, and 0.1 µs for each."""
    return np.asarray(np.frompyfunc(function, 1, 1)(x), x.dtype)


# The coefficients of backend/runners/native/native.h, which says how they were found: erf x = x + x P(x²) for
# |x| < 1.1; beyond, erfc |x| = Q(|x| - 2)^4.
_ERF = (7.23606863e-05, -0.000782473944, 0.00516773108, -0.026843518, 0.112833641, -0.376126111, 0.128379166)
_ERFC_ROOT = (-1.30057915e-05, -0.000179836847, 0.000750374747, 0.00152864959, -0.0122346748, 0.00690604467,
              0.0991374478, -0.288862288, 0.261522323)  # fmt: skip


def erf_float32(x):
    """erf of float32 by polynomials. With elementwise_math, a GPT's training step with GELU would take twice as
    long."""
    a = np.minimum(np.abs(x), 4)
    near = x + x * _polynomial(_ERF, a * a)
    far = np.copysign(1 - _polynomial(_ERFC_ROOT, a - 2) ** 4, x)
    return np.where(a < 1.1, near, far)


def _polynomial(coefficients, x):
    """The value at x of a polynomial, its highest power first."""
    y = x * 0 + x.dtype.type(coefficients[0])
    for c in coefficients[1:]:
        y = y * x + x.dtype.type(c)
    return y


def _two_u(x):
    """2u = 2 A (x + B x³): the tanh form's Φ, (1 + tanh u) / 2, is σ(2u), and an exp is half the work of a tanh."""
    return x * (2 * GELU_A + 2 * GELU_A * GELU_B * (x * x))
