"""Matrix products, computed by NumPy's BLAS."""

import math

import numpy as np

from .precision import in_float32
from .reduce import column_sums


class Matmul:
    @in_float32
    def matmul(self, a, b):
        """(…, n, k) @ (…, k, m) -> (…, n, m); batch dims broadcast."""
        return np.matmul(a, b)

    @in_float32
    def linear(self, x, weight, bias):
        """x (…, k), weight (m, k), bias (m,) or None -> (…, m)."""
        y = np.matmul(as_matrix(x), weight.T)
        y = y if bias is None else y + bias
        return y.reshape(x.shape[:-1] + y.shape[1:])

    @in_float32
    def linear_backward(self, dy, x, weight, wanted):
        """dy (…, m), x (…, k), weight (m, k) -> dx, dweight, dbias, those that are wanted."""
        rows = as_matrix(dy)
        dx = np.matmul(rows, weight).reshape(dy.shape[:-1] + weight.shape[1:]) if wanted[0] else None
        dweight = np.matmul(rows.T, as_matrix(x)) if wanted[1] else None
        dbias = column_sums(rows) if wanted[2] else None
        return dx, dweight, dbias


def as_matrix(x):
    """x (…, n) as (N, n)."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
