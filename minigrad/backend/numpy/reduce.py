"""Reductions, cumulative sums and orderings."""

import numpy as np

from .precision import cast_sum, sum_dtype


def _primitive(function):
    """The primitive (self, x, dims, keepdim) that calls a function of NumPy."""
    return lambda self, x, dims, keepdim: function(x, axis=dims, keepdims=keepdim)


def _arg_primitive(function):
    """The primitive (self, x, dim, keepdim) that calls np.argmax or np.argmin."""
    return lambda self, x, dim, keepdim: function(x, axis=dim, keepdims=keepdim)


class Reduce:
    """dims: a tuple of numbers in [0, ndim); dim: one number. Sums of integers and bools are int64.

    argmax and argmin give int64, the first of equals."""

    def sum(self, x, dims, keepdim):
        return cast_sum(np.sum(x, axis=dims, keepdims=keepdim, dtype=sum_dtype(x.dtype)), x.dtype)

    max, min, any, all = map(_primitive, (np.max, np.min, np.any, np.all))
    argmax, argmin = map(_arg_primitive, (np.argmax, np.argmin))

    def argsort(self, x, dim, descending, k=None):
        """Return the stable order of x along dim, int64, or its first k places. NaN is the largest number."""
        x = np.moveaxis(x, dim, -1)
        return np.moveaxis(_order(x, descending) if k is None else _first_places(x, descending, k), -1, dim)

    def cumsum(self, x, dim, reverse):
        """Cumulative sums along dim. reverse: from the end."""
        if reverse:
            return np.flip(self.cumsum(np.flip(x, dim), dim, False), dim)
        y = x.astype(sum_dtype(x.dtype))
        return cast_sum(np.cumsum(y, axis=dim, out=y), x.dtype)

    def dot(self, x, y):
        """Σ x * y over everything, a float."""
        return float(np.sum(np.multiply(x, y, dtype=np.float64)))


def column_sums(x):
    """Σ x over the rows, (N, C) -> (C,)."""
    return cast_sum(np.add.reduce(x, axis=0, dtype=sum_dtype(x.dtype)), x.dtype)


def _order(x, descending):
    """The indices that sort x along its last dim, stably.

    With NumPy alone this is np.argsort(x, kind="stable"), and the reverse for descending. Sorting integers instead
    takes a tenth of the time for (64, 50257) float32 (a 2-core EPYC), and the C++ backend sorts by this function."""
    keys, n = _sort_keys(x, descending), x.shape[-1]
    if x.itemsize == 8 or x.dtype == np.uint32 or n >> 32:
        return np.argsort(keys, axis=-1, kind="stable")
    keys <<= 32  # the index in the lower half makes all keys differ, so that an unstable sort keeps the order of equals
    keys |= np.arange(n)
    keys.sort(axis=-1)
    keys &= 0xFFFFFFFF
    return keys


def _sort_keys(x, descending):
    """Integers in the order of x, int64. NaN is the largest, and -0 equals 0."""
    if x.dtype.kind == "f":
        x = x.astype(np.float32 if x.itemsize < 4 else x.dtype) + 0.0  # -0 + 0 is 0
        bits = x.view(f"i{x.itemsize}")  # their order is that of x where x ≥ 0; below, all bits but the sign flip
        most = np.iinfo(bits.dtype).max
        keys = np.where(np.isnan(x), most, bits ^ (bits >> bits.itemsize * 8 - 1 & most)).astype(np.int64)
    else:
        keys = (x ^ x.dtype.type(1 << 63)).view(np.int64) if x.dtype == np.uint64 else x.astype(np.int64)
    return ~keys if descending else keys


def _first_places(x, descending, k):
    """The first k places of _order(x, descending). If k is at most a quarter of the row, and no other element equals
    the k-th, only k elements are sorted."""
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
    return cast_sum(np.add.reduce(x * y, axis=0, dtype=sum_dtype(x.dtype)), x.dtype)


def row_dots(x, y):
    """Σ x * y over the last dim, (…, n) -> (…, 1)."""
    return cast_sum(np.sum(x * y, axis=-1, keepdims=True, dtype=sum_dtype(x.dtype)), x.dtype)


def row_sums(x):
    """Σ x over the last dim, (…, n) -> (…, 1)."""
    return cast_sum(np.sum(x, axis=-1, keepdims=True, dtype=sum_dtype(x.dtype)), x.dtype)
