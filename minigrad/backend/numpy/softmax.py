"""Softmax and its relatives."""

import numpy as np

from .elementwise import log
from .precision import in_float32
from .reduce import row_dots, row_sums


class Softmax:
    @in_float32
    def softmax(self, x, dim):
        """A slice along dim that is all -∞ gives zeros."""
        return np.moveaxis(softmax_rows(np.moveaxis(x, dim, -1)), -1, dim)

    @in_float32
    def softmax_backward(self, dy, y, dim):
        """dx = y (dy - Σ dy y); y = softmax(x)."""
        dy, y = np.moveaxis(dy, dim, -1), np.moveaxis(y, dim, -1)
        return np.moveaxis((dy - row_dots(dy, y)) * y, -1, dim)

    @in_float32
    def log_softmax(self, x, dim):
        """A slice along dim that is all -∞ stays so."""
        x = np.moveaxis(x, dim, -1)
        if x.size == 0:
            return np.moveaxis(x.copy(), -1, dim)
        y = x - finite_max(x)
        return np.moveaxis(y - log(_or_one(row_sums(np.exp(y)))), -1, dim)

    @in_float32
    def logsumexp(self, x, dim):
        """dim stays, with size 1. A slice that is all -∞, or empty, gives -∞."""
        x = np.moveaxis(x, dim, -1)
        top = x.max(-1, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(top), top, 0).astype(x.dtype)
        y = log(row_sums(np.exp(x - shift))) + shift
        return np.moveaxis(np.where(top == np.inf, top, y).astype(x.dtype), -1, dim)


def finite_max(x):
    """The largest of each row, (…, n) -> (…, 1); 0 for a row of -∞, as -∞ - (-∞) would be NaN."""
    top = x.max(-1, keepdims=True)
    return np.where(top == -np.inf, 0, top).astype(x.dtype)


def softmax_rows(x):
    """Softmax over the last dim. A row that is all -∞ becomes zeros, not NaN."""
    if x.shape[-1] == 0:
        return x.copy()
    y = np.exp(x - finite_max(x))
    return y / _or_one(row_sums(y))


def _or_one(total):
    """total, with 1 in place of 0, so that a row of zeros stays zeros when it is divided by its sum."""
    return total + (total == 0)
