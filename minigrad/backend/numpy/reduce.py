"""Reductions, running sums and orderings."""

import numpy as np

from .precision import rounded, wide


def _reducing(function):
    """The primitive (self, x, dims, keepdim) of a function of NumPy's."""
    return lambda self, x, dims, keepdim: function(x, axis=dims, keepdims=keepdim)


def _placing(function):
    """The primitive (self, x, dim, keepdim) of one that finds a place, int64; of equals the first."""
    return lambda self, x, dim, keepdim: function(x, axis=dim, keepdims=keepdim)


class Reduce:
    """dims: a tuple of numbers in [0, ndim). Sums of integers and bools are int64."""

    def sum(self, x, dims, keepdim):
        return rounded(np.sum(x, axis=dims, keepdims=keepdim, dtype=wide(x.dtype)), x.dtype)

    max, min, any, all = map(_reducing, (np.max, np.min, np.any, np.all))
    argmax, argmin = map(_placing, (np.argmax, np.argmin))

    def argsort(self, x, dim, descending):
        """int64, stable; NaN is the largest number."""
        return np.moveaxis(_order(np.moveaxis(x, dim, -1), descending), -1, dim)

    def cumsum(self, x, dim, reverse):
        """reverse: from the end."""
        if reverse:
            return np.flip(self.cumsum(np.flip(x, dim), dim, False), dim)
        y = x.astype(wide(x.dtype))
        return rounded(np.cumsum(y, axis=dim, out=y), x.dtype)

    def dot(self, x, y):
        """Σ x * y over everything, a float."""
        return float(np.sum(np.multiply(x, y, dtype=np.float64)))


def column_sums(x):
    """(N, C) -> (C,)."""
    return rounded(np.add.reduce(x, axis=0, dtype=wide(x.dtype)), x.dtype)


def _keys(x, descending):
    """Whole numbers in the order of x, of which NaN is the largest: int64."""
    if x.dtype.kind == "f":
        x = x.astype(np.float32 if x.itemsize < 4 else x.dtype) + 0.0  # -0 is 0
        bits = x.view(f"i{x.itemsize}")  # they sort as x does where x ≥ 0; elsewhere all bits but the sign must change
        most = np.iinfo(bits.dtype).max
        keys = np.where(np.isnan(x), most, bits ^ (bits >> bits.itemsize * 8 - 1 & most)).astype(np.int64)
    else:
        keys = (x ^ x.dtype.type(1 << 63)).view(np.int64) if x.dtype == np.uint64 else x.astype(np.int64)
    return ~keys if descending else keys


def _order(x, descending):
    """The stable order of x along its last dim."""
    keys, n = _keys(x, descending), x.shape[-1]
    if x.itemsize == 8 or x.dtype == np.uint32 or n >> 32:
        return np.argsort(keys, axis=-1, kind="stable")
    keys <<= 32  # the place in the lower half makes all keys differ, and sorting takes a third of the time
    keys |= np.arange(n)
    keys.sort(axis=-1)
    keys &= 0xFFFFFFFF
    return keys


def column_dots(x, y):
    """Σ x * y over the rows, (N, C) -> (C,)."""
    return rounded(np.add.reduce(x * y, axis=0, dtype=wide(x.dtype)), x.dtype)


def row_dots(x, y):
    """Σ x * y over the last dimension, (…, n) -> (…, 1)."""
    return rounded(np.sum(x * y, axis=-1, keepdims=True, dtype=wide(x.dtype)), x.dtype)


def row_sums(x):
    """(…, n) -> (…, 1)."""
    return rounded(np.sum(x, axis=-1, keepdims=True, dtype=wide(x.dtype)), x.dtype)
