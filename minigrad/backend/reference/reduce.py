"""Reductions, orderings and matrix products."""

import builtins
import math

import numpy as np

from ...locks import multiplying
from .half import in_single, is_half, rounded, wide

CHUNK = 1 << 15  # numbers that a core's cache holds
RUN = 8  # numbers that may be added up in float32: few enough that no more than the last digit is lost
BLAS_RUN = 128  # the same for BLAS, which adds them in several lanes


def sum(x, dims, keepdim):
    if dims == (0,) and x.ndim == 2 and len(x) > RUN and x.flags.c_contiguous:
        y = column_sums(x)
        return y[None] if keepdim else y
    return rounded(np.sum(x, axis=dims, keepdims=keepdim, dtype=wide(x.dtype)), x.dtype)


def column_sums(x):
    """(N, C) -> (C,): sum, but faster, as most of it happens in x's dtype (float32 for float16)."""
    return rounded(_column_totals(x), x.dtype)


def _column_totals(x):
    whole = len(x) // RUN * RUN
    runs = x[:whole].reshape(len(x) // RUN, RUN, x.shape[1])
    runs = np.add.reduce(runs, axis=1, dtype=np.float32 if x.dtype == np.float16 else None)
    totals = np.add.reduce(runs, axis=0, dtype=wide(x.dtype))
    return totals + np.add.reduce(x[whole:], axis=0, dtype=wide(x.dtype))


def column_dots(x, y):
    """Σ x * y over the rows, (N, C) -> (C,)."""
    rows = builtins.max(1, CHUNK // builtins.max(1, x.shape[1]))
    parts = [_column_totals(x[i : i + rows] * y[i : i + rows]) for i in range(0, len(x), rows)]
    return rounded(np.add.reduce(parts, axis=0) if parts else np.zeros(x.shape[1]), x.dtype)


def row_dots(x, y):
    """Σ x * y over the last dimension, (…, n) -> (…, 1)."""
    if x.dtype.kind == "c":  # gradcheck's complex step: without a conjugate
        return np.einsum("...i,...i->...", x, y)[..., None]
    return rounded(_row_totals(x, y), x.dtype)


def _row_totals(x, y):
    # No lock: BLAS never hands products as short as these to threads of its own.
    whole = x.shape[-1] // BLAS_RUN * BLAS_RUN
    rest = np.vecdot(x[..., whole:], y[..., whole:])[..., None]
    if not whole:
        return rest
    a, b = (z[..., :whole].reshape(*z.shape[:-1], -1, BLAS_RUN) for z in (x, y))
    return np.add.reduce(np.vecdot(a, b), axis=-1, dtype=wide(x.dtype), keepdims=True) + rest


def max(x, dims, keepdim):
    return np.max(x, axis=dims, keepdims=keepdim)


def min(x, dims, keepdim):
    return np.min(x, axis=dims, keepdims=keepdim)


def argmax(x, dim, keepdim):
    return np.argmax(x, axis=dim, keepdims=keepdim)


def argmin(x, dim, keepdim):
    return np.argmin(x, axis=dim, keepdims=keepdim)


def argsort(x, dim, descending):
    """Stable order along dim; NaN counts as the largest number."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim)


def any(x, dims, keepdim):
    return np.any(x, axis=dims, keepdims=keepdim)


def all(x, dims, keepdim):
    return np.all(x, axis=dims, keepdims=keepdim)


def cumsum(x, dim, reverse):
    if reverse:
        return np.flip(cumsum(np.flip(x, dim), dim, False), dim)
    y = x.astype(wide(x.dtype))
    return rounded(np.cumsum(y, axis=dim, out=y), x.dtype)


def dot(x, y):
    """Sum of x * y over everything, as a Python float."""
    if is_half(x):
        x, y = x.astype(np.float32), y.astype(np.float32)
    return _row_totals(np.ravel(x), np.ravel(y)).item()


def rows(x):
    """(…, n) as (N, n); a view where the layout allows."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def product(a, b):
    """np.matmul. What primitives hand to BLAS goes through here, or takes the lock itself."""
    with multiplying.mine.lock:
        return np.matmul(a, b)


@in_single
def matmul(a, b):
    """(…, n, k) @ (…, k, m) -> (…, n, m), batch dimensions broadcast."""
    return product(a, b)


@in_single
def linear(x, weight, bias):
    """x (…, k), weight (m, k), bias (m,) or None -> (…, m)."""
    y = product(rows(x), weight.T)
    if bias is not None:
        y += bias
    return y.reshape(x.shape[:-1] + y.shape[1:])


@in_single
def linear_backward(dy, x, weight, wanted):
    """dy (…, m), x (…, k), weight (m, k); wanted: (dx, dweight, dbias)? -> the three, None where not."""
    flat = rows(dy)
    dx = product(flat, weight).reshape(dy.shape[:-1] + weight.shape[1:]) if wanted[0] else None
    dweight = product(flat.T, rows(x)) if wanted[1] else None
    return dx, dweight, column_sums(flat) if wanted[2] else None
