"""Wrong where a number is zero or close to it: quotients 0/0, and rules that forget the case."""

import numpy as np

from minigrad import case
from minigrad.autograd.cases import positive

from .report import mistake


def without(x, i, axis=-1):
    """The product of all elements but i along the axis."""
    return np.delete(x, i, axis).prod(axis)


def cumprod_right(dy, x):
    dx = np.zeros_like(x)
    for i in range(x.shape[-1]):
        for j in range(i, x.shape[-1]):
            dx[..., i] += dy[..., j] * without(x[..., : j + 1], i)
    return dx


def reverse_cumsum(x):
    return np.cumsum(x[..., ::-1], -1)[..., ::-1]


def norm(x):
    return np.sqrt((x * x).sum(-1))


def squared_norm_bad(dy, x):
    n = norm(x)[..., None]
    return dy[..., None] * 2 * n * (x / n)


def pow_right(dy, x, p):
    return np.where(p == 0, 0, dy * p * x ** (p - 1)), dy * x**p * np.log(np.where(x > 0, x, 1))


def det_bad(dy, x):
    try:
        return dy * np.linalg.det(x) * np.linalg.inv(x).T
    except np.linalg.LinAlgError:
        return np.full(x.shape, np.nan)


def cofactors(dy, x):
    n = len(x)
    minor = [[np.linalg.det(np.delete(np.delete(x, i, 0), j, 1)) for j in range(n)] for i in range(n)]
    signs = (-1.0) ** np.add.outer(np.arange(n), np.arange(n))
    return dy * signs * np.array(minor)


def cosine(x, y):
    nx, ny = np.maximum(np.linalg.norm(x), 1e-8), np.maximum(np.linalg.norm(y), 1e-8)
    return (x * y).sum() / (nx * ny)


def cosine_bad(dy, x, y):
    n, m = np.linalg.norm(x), np.linalg.norm(y)
    c = (x * y).sum() / (n * m)
    return dy * (y / (n * m) - c * x / n**2), dy * (x / (n * m) - c * y / m**2)


def cosine_right(dy, x, y):
    def one(x, y):
        n, m = np.linalg.norm(x), np.maximum(np.linalg.norm(y), 1e-8)
        if n < 1e-8:
            return dy * y / (1e-8 * m)
        return dy * (y / (n * m) - (x * y).sum() * x / (n**3 * m))

    return one(x, y), one(y, x)


REPORTS = [
    mistake("cumprod divided by x", "tensorflow/tensorflow#3862",
            "reverse cumsum of dy y, divided by x: 0/0 where x is 0", lambda x: np.cumprod(x, -1),
            lambda dy, x: reverse_cumsum(dy * np.cumprod(x, -1)) / x, cumprod_right, case((3, 4))),
    mistake("cumprod, NaN replaced by 0", "tensorflow/tensorflow#119430",
            "the same quotient, whose NaN are replaced by 0: finite and wrong", lambda x: np.cumprod(x, -1),
            lambda dy, x: np.nan_to_num(reverse_cumsum(dy * np.cumprod(x, -1)) / x, posinf=0, neginf=0),
            cumprod_right, case((3, 4))),
    mistake("square of a norm", "jax-ml/jax#21723",
            "2 |x| times x / |x|: NaN at a row of zeros, where the gradient is 2x", lambda x: norm(x) ** 2,
            squared_norm_bad, lambda dy, x: 2 * dy[..., None] * x, case((2, 3))),
    mistake("pow at a base of zero", "roystgnr/MetaPhysicL#49", "p y / x, to save a pow: 0/0 at x = 0",
            lambda x, p: x**p, lambda dy, x, p: (dy * p * x**p / x, pow_right(dy, x, p)[1]), pow_right,
            case(positive((2, 3)), positive((2, 3)))),
    mistake("determinant of a singular matrix", "tensorflow/tensorflow#122823",
            "dy det(A) A^-T, where there is no inverse", np.linalg.det, det_bad, cofactors, case((3, 3))),
    mistake("cosine similarity with a vector of zeros", "google-deepmind/optax#946",
            "the value is protected from 0/0 by a floor under each norm; the gradient is not", cosine, cosine_bad,
            cosine_right, case((4,), (4,))),
]  # fmt: skip
