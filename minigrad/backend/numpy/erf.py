"""The error function, which NumPy lacks, on arrays of one dim."""

import math

import numpy as np

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
# In float32, as in backend/runners/native/native.h, which says how these were found: erf x = x + x P(x²) for
# |x| < 1.1; beyond, erfc |x| = Q(|x| - 2)^4.
_ERF_SINGLE = (7.23606863e-05, -0.000782473944, 0.00516773108, -0.026843518, 0.112833641, -0.376126111, 0.128379166)
_ERFC_ROOT = (-1.30057915e-05, -0.000179836847, 0.000750374747, 0.00152864959, -0.0122346748, 0.00690604467,
              0.0991374478, -0.288862288, 0.261522323)  # fmt: skip


def _horner(coefficients, x):
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y *= x
        y += c
    return y


def erf_single(x):
    a = np.minimum(np.abs(x), 4)
    y = _horner(_ERF_SINGLE, a * a)
    y *= x
    y += x
    tail = _horner(_ERFC_ROOT, a - 2)
    tail *= tail
    tail *= tail
    return np.where(a < 1.1, y, np.copysign(1 - tail, x))


def erf_double(x):
    small, y, tail = erf_parts(np.ravel(x))
    return np.copysign(np.where(small, y, 1 - tail), np.ravel(x)).reshape(np.shape(x))


def erf_parts(x):
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
