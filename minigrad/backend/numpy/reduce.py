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

    def argsort(self, x, dim, descending, k=None):
        """The stable order of x along dim, int64, or its first k places. NaN is the largest number."""
        x = np.moveaxis(x, dim, -1)
        return np.moveaxis(_order(x, descending) if k is None else _first_places(x, descending, k), -1, dim)

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


def _first_places(x, descending, k):
    """The first k places of _order(x, descending). If they are few, and no other element equals the last of them, only
    these are sorted."""
    *outer, n = x.shape
    if not 0 < 4 * k <= n:
        return _order(x, descending)[..., :k]
    last = n - k if descending else k - 1
    bound = np.partition(x, last, axis=-1)[..., last : last + 1]
    at = np.flatnonzero(x >= bound if descending else x <= bound)
    if (np.bincount(at // n, minlength=x.size // n) != k).any():  # ties, or NaN
        return _order(x, descending)[..., :k]
    places = (at % n).reshape(*outer, k)
    order = _order(np.take_along_axis(x, places, -1), descending)
    return np.take_along_axis(places, order, -1)


def column_dots(x, y):
    """Σ x * y over the rows, (N, C) -> (C,)."""
    return rounded(np.add.reduce(x * y, axis=0, dtype=wide(x.dtype)), x.dtype)


def row_dots(x, y):
    """Σ x * y over the last dimension, (…, n) -> (…, 1)."""
    return rounded(np.sum(x * y, axis=-1, keepdims=True, dtype=wide(x.dtype)), x.dtype)


def row_sums(x):
    """(…, n) -> (…, 1)."""
    return rounded(np.sum(x, axis=-1, keepdims=True, dtype=wide(x.dtype)), x.dtype)
