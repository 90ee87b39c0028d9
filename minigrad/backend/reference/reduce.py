"""Reductions, orderings and matrix products."""

import math

import numpy as np

from ...locks import multiplying
from .half import in_single, is_half

_SUMS = {"b": np.int64, "i": np.int64, "u": np.int64}  # what integers add up in


@in_single
def sum(x, dims, keepdim):
    return np.sum(x, axis=dims, keepdims=keepdim, dtype=_SUMS.get(x.dtype.kind))


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


@in_single
def cumsum(x, dim, reverse):
    dtype = _SUMS.get(x.dtype.kind)
    if reverse:
        return np.flip(np.cumsum(np.flip(x, dim), axis=dim, dtype=dtype), dim)
    return np.cumsum(x, axis=dim, dtype=dtype)


def dot(x, y):
    """Sum of x * y over everything, as a Python float."""
    if is_half(x):
        x, y = x.astype(np.float32), y.astype(np.float32)
    with multiplying.mine.lock:
        return float(np.vdot(x, y))


def rows(x):
    """(…, n) as (N, n); a view where the layout allows."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def product(a, b):
    """np.matmul. What goes to BLAS goes through here, or takes the lock itself."""
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
    return dx, dweight, flat.sum(0) if wanted[2] else None
