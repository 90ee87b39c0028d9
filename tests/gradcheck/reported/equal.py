"""Wrong where numbers are equal, missing or infinite."""

import numpy as np

from minigrad import case

from .report import mistake


def std_right(dy, x):
    d = x - x.mean(-1, keepdims=True)
    s = np.sqrt((d * d).mean(-1, keepdims=True))
    return dy[..., None] * d / (np.where(s == 0, 1, s) * x.shape[-1])


def std_bad(dy, x):
    d = x - x.mean(-1, keepdims=True)
    return dy[..., None] * d / (np.sqrt((d * d).mean(-1, keepdims=True)) * x.shape[-1])


def distance(x, y):
    return np.sqrt(((x - y) ** 2).sum())


def distance_squared_slope(dy, x, y, safe):
    d = distance(x, y)
    g = 2 * dy * d * (x - y) / (d if d or not safe else 1)
    return g, -g


def matrix_function(x):
    """The exponential of the symmetric part, by its eigenvectors."""
    w, v = np.linalg.eigh((x + x.T) / 2)
    return (v * np.exp(w)) @ v.T


def eigh_backward(dy, x, masked):
    """dA = V ((V^T dy V) * F) V^T with the divided differences F_ij = (f_i - f_j) / (w_i - w_j)."""
    w, v = np.linalg.eigh((x + x.T) / 2)
    gap, rise = np.subtract.outer(w, w), np.subtract.outer(np.exp(w), np.exp(w))
    near = np.abs(gap) < 1e-9 if masked else np.eye(len(w), dtype=bool)
    F = np.where(near, np.exp(w), rise / np.where(near, 1, gap))
    g = v @ ((v.T @ dy @ v) * F) @ v.T
    return (g + g.T) / 2


def max_ties(dy, x, share):
    mask = x == x.max(-1, keepdims=True)
    return dy[..., None] * mask / (mask.sum(-1, keepdims=True) if share else 1)


def slack_ties(dy, x):
    return dy[..., None] * np.isclose(x, x.max(-1, keepdims=True), rtol=0, atol=1e-2)


REPORTS = [
    mistake("standard deviation of a constant", "pytorch/pytorch#4320",
            "(x - mean) / std is 0/0 where all elements are equal", lambda x: x.std(-1), std_bad, std_right,
            case((3, 4))),
    mistake("distance of equal points, squared", "pytorch/pytorch#37154", "(x - y) / d where d is 0, in a loss of d²",
            lambda x, y: distance(x, y) ** 2, lambda dy, x, y: distance_squared_slope(dy, x, y, safe=False),
            lambda dy, x, y: distance_squared_slope(dy, x, y, safe=True), case((3, 4), (3, 4))),
    mistake("maximum of close numbers", "mni-ml/framework#22",
            "the mask is is_close(x, max) with a tolerance of 1e-2: runners-up get a gradient too",
            lambda x: x.max(-1), slack_ties, lambda dy, x: max_ties(dy, x, share=True), case((3, 4))),
    mistake("function of a matrix with equal eigenvalues", "jax-ml/jax#2311",
            "1 / (w_i - w_j) where two eigenvalues are equal", matrix_function,
            lambda dy, x: eigh_backward(dy, x, masked=False), lambda dy, x: eigh_backward(dy, x, masked=True),
            case((3, 3))),
]  # fmt: skip
