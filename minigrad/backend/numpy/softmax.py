"""Softmax and its relatives."""

import numpy as np

from .elementwise import log
from .precision import in_single
from .reduce import row_dots, row_sums


class Softmax:
    @in_single
    def softmax(self, x, dim):
        """A slice along dim that is all -∞ gives zeros."""
        if dim in (-1, x.ndim - 1):
            return softmax_(x.copy(order="C"))
        return np.moveaxis(softmax_(np.moveaxis(x, dim, -1).copy(order="C")), -1, dim)

    @in_single
    def softmax_backward(self, dy, y, dim):
        """y = softmax(x)."""
        dy, y = np.moveaxis(dy, dim, -1), np.moveaxis(y, dim, -1)
        dx = dy - row_dots(dy, y)
        dx *= y
        return np.moveaxis(dx, -1, dim)

    @in_single
    def log_softmax(self, x, dim):
        y = np.moveaxis(x, dim, -1).copy(order="C")
        if y.size:
            y -= finite_top(y)
            total = row_sums(np.exp(y))
            total += total == 0  # a row that is all -inf stays so
            y -= log(total)
        return np.moveaxis(y, -1, dim)

    @in_single
    def logsumexp(self, x, dim):
        """dim stays, with size 1."""
        x = np.moveaxis(x, dim, -1).copy(order="C")
        top = x.max(-1, keepdims=True, initial=-np.inf)
        safe = np.where(np.isfinite(top), top, 0)
        total = log(row_sums(np.exp(x - safe))) + safe  # ln 0 = -inf is right for a row of -inf
        return np.moveaxis(np.where(top == np.inf, np.inf, total).astype(x.dtype), -1, dim)


def finite_top(x):
    """The largest of each row, (…, n) -> (…, 1); 0 for a row of -inf, as -inf - (-inf) would be NaN."""
    top = np.maximum.reduce(x, axis=-1, keepdims=True)
    np.copyto(top, 0, where=top == -np.inf)
    return top


def softmax_(x):
    """Softmax over the last dimension, in place. A row that is all -inf becomes zeros, not NaN."""
    if x.shape[-1] == 0:
        return x
    x -= finite_top(x)
    np.exp(x, out=x)
    total = row_sums(x)
    total += total == 0
    x /= total
    return x
