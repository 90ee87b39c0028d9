"""Elementwise primitives."""

import functools
import math

import numpy as np

from ..table import POWERS, numpy_functions
from .half import in_single


def _by_steps(function):
    """For a formula computed step by step in place: float16 in float32, and 0-d arrays, which NumPy would turn into
    scalars, as arrays of one element."""
    function = in_single(function)

    @functools.wraps(function)
    def wrapper(*args):
        if np.ndim(args[0]):
            return function(*args)
        return function(*[np.reshape(a, 1) if isinstance(a, np.ndarray) else a for a in args]).reshape(())

    return wrapper


add, sub, mul, div, neg, abs, sign, floor = numpy_functions("add", "sub", "mul", "div", "neg", "abs", "sign", "floor")
sqrt, rsqrt = numpy_functions("sqrt", "rsqrt")
sin, cos, tanh, relu = numpy_functions("sin", "cos", "tanh", "relu")
maximum, minimum, where, clamp = numpy_functions("maximum", "minimum", "where", "clamp")
eq, ne, lt, le, gt, ge = numpy_functions("eq", "ne", "lt", "le", "gt", "ge")
logical_and, logical_or, logical_xor, logical_not = numpy_functions(
    "logical_and", "logical_or", "logical_xor", "logical_not"
)
isnan, isinf, isfinite = numpy_functions("isnan", "isinf", "isfinite")


def _exactly(function):
    """NumPy's exp and log are off by 3 units in the last place of float32: so in float64, and rounded."""

    @functools.wraps(function)
    def wrapper(x):
        return function(x, dtype=np.float64).astype(np.float32) if x.dtype == np.float32 else function(x)

    return wrapper


exp, log = map(_exactly, numpy_functions("exp", "log"))


def pow(x, y):
    if isinstance(y, (int, float)) and y in POWERS and x.dtype.kind == "f":
        (power,) = numpy_functions(POWERS[y])  # NumPy's pow is 60 times slower than two products
        return power(x)
    return np.power(x, y)


@_by_steps
def sigmoid(x):
    e = exp(-np.abs(x))  # 1 / (1 + e^-x) for x ≥ 0, e^x / (1 + e^x) below: neither overflows
    return np.where(x >= 0, x.dtype.type(1), e) / (1 + e)


@_by_steps
def silu(x):
    e = exp(-np.abs(x))
    return np.where(x >= 0, x, x * e) / (1 + e)  # x e^x keeps the digits that e^x alone has no room for


# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969), 631-637.
_ERF_SMALL = (
    (
        1.85777706184603153e-1,
        3.16112374387056560e00,
        1.13864154151050156e02,
        3.77485237685302021e02,
        3.20937758913846947e03,
    ),
    (1.0, 2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03),
)
_ERF_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01,
     2.98635138197400131e02, 8.81952221241769090e02, 1.71204761263407058e03, 2.05107837782607147e03,
     1.23033935479799725e03),
    (1.0, 1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02, 1.62138957456669019e03,
     3.29079923573345963e03, 4.36261909014324716e03, 3.43936767414372164e03, 1.23033935480374942e03),
)  # fmt: skip
_ERF_LARGE = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
     1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242e00, 1.87295284992346725e00, 5.27905102951428412e-1, 6.05183413124413191e-2,
     2.33520497626869185e-3),
)  # fmt: skip
# In float32, as in backend/host/native.h, which says how these were found: erf x = x + x P(x²) for |x| < 1.1; beyond,
# erfc |x| = Q(|x| - 2)^4.
_ERF_SINGLE = (7.23606863e-05, -0.000782473944, 0.00516773108, -0.026843518, 0.112833641, -0.376126111, 0.128379166)
_ERFC_ROOT = (-1.30057915e-05, -0.000179836847, 0.000750374747, 0.00152864959, -0.0122346748, 0.00690604467,
              0.0991374478, -0.288862288, 0.261522323)  # fmt: skip


def _horner(coefficients, x):
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y *= x
        y += c
    return y


_CHUNK = 1 << 14  # elements that a core's cache holds, with what is computed on the way


@_by_steps
def erf(x):
    if x.dtype != np.float32:
        return _erf_double(x)
    flat = np.ravel(x)
    y = np.empty_like(flat)
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        y[part] = _erf_single(flat[part])
    return y.reshape(x.shape)


def _erf_single(x):
    a = np.minimum(np.abs(x), 4)
    y = _horner(_ERF_SINGLE, a * a)
    y *= x
    y += x
    tail = _horner(_ERFC_ROOT, a - 2)
    tail *= tail
    tail *= tail
    return np.where(a < 1.1, y, np.copysign(1 - tail, x))


def _erf_double(x):
    small, y, tail = _erf_parts(np.ravel(x))
    return np.copysign(np.where(small, y, 1 - tail), np.ravel(x)).reshape(np.shape(x))


def _erf_parts(x):
    """(where |x| is small, erf |x| there, erfc |x| elsewhere)"""
    a = np.abs(x)
    small, large = a <= 0.46875, a > 4
    middle = ~small & ~large
    y, tail = np.zeros_like(a), np.zeros_like(a)
    s = a[small]
    y[small] = s * _horner(_ERF_SMALL[0], s * s) / _horner(_ERF_SMALL[1], s * s)
    m = a[middle]
    tail[middle] = np.exp(-m * m) * _horner(_ERF_MIDDLE[0], m) / _horner(_ERF_MIDDLE[1], m)
    b = a[large]
    w = 1 / (b * b)
    poly = 1 / math.sqrt(math.pi) - w * _horner(_ERF_LARGE[0], w) / _horner(_ERF_LARGE[1], w)
    tail[large] = np.exp(-b * b) * poly / b
    tail[np.isnan(a)] = np.nan
    return small, y, tail


@_by_steps
def erfc(x):
    """1 - erf(x), as accurate where that is tiny. Computed in float64: no model's speed hangs on it."""
    wide = np.ravel(x).astype(np.float64)
    small, y, tail = _erf_parts(wide)
    positive = np.where(small, 1 - y, tail)
    y = np.where(wide >= 0, positive, np.where(small, 1 + y, 2 - tail))
    return y.reshape(np.shape(x)).astype(x.dtype)


_GELU_A, _GELU_B = math.sqrt(2 / math.pi), 0.044715


def _gelu_odd(x):
    """2 A (x + B x³): the tanh form's Φ is the sigmoid of it, and an exp is half the work of a tanh."""
    u = x * x
    u *= 2 * _GELU_A * _GELU_B
    u += 2 * _GELU_A
    u *= x
    return u


@_by_steps
def gelu(x, approximate):
    if approximate == "tanh":
        y = np.negative(u := _gelu_odd(x), out=u)
        np.exp(y, out=y)  # where this overflows, ∞ gives the right 0
        y += 1
        return np.divide(x, y, out=y)
    if x.dtype == np.float64:
        return x * (0.5 * erfc(x * -math.sqrt(0.5)))
    y = erf(x * math.sqrt(0.5))  # faster, and off by 1e-7 of 1 where Φ is tiny
    y += 1
    y *= 0.5
    y *= x
    return y


@_by_steps
def gelu_backward(dy, x, y, approximate):
    """dy/dx = Φ(x) + x Φ'(x)."""
    if approximate == "tanh":  # Φ = σ(u) = 1 / (1 + e^-u), so Φ' = Φ (1 - Φ) u' with u' = 2 A (1 + 3 B x²)
        most = 21 if x.dtype == np.float64 else 10  # the slope is 0 or 1 beyond, where e^-u would be ∞
        below = x < -most
        x = np.clip(x, -most, most)
        e = np.negative(u := _gelu_odd(x), out=u)
        np.exp(e, out=e)
        cdf = 1 / (1 + e)
        dx = x * x
        dx *= 6 * _GELU_A * _GELU_B
        dx += 2 * _GELU_A
        dx *= x
        dx *= cdf
        e *= cdf  # 1 - Φ, which would have lost its digits where Φ is nearly 1
        dx *= e
        np.copyto(cdf, 0, where=below)
        np.copyto(dx, 0, where=below)
    else:  # Φ' = exp(-x²/2) / √(2π), and Φ(x) = y / x need not be computed again
        cdf = y / x
        np.copyto(cdf, 0.5, where=np.abs(x) < 1e-30)  # a subnormal y has lost digits
        dx = x * x
        dx *= -0.5
        np.exp(dx, out=dx)
        dx *= x
        dx *= 1 / math.sqrt(2 * math.pi)
    dx += cdf
    dx *= dy
    return dx
