"""Reductions, orderings and matrix products."""

import math

import numpy as np


def sum(x, dims, keepdim):
    dtype = np.int64 if x.dtype.kind in "bi" else np.float32 if x.dtype == np.float16 else None
    y = np.sum(x, axis=dims, keepdims=keepdim, dtype=dtype)
    return y.astype(x.dtype) if x.dtype == np.float16 else y


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
        return np.flip(np.cumsum(np.flip(x, dim), axis=dim, dtype=None if x.dtype.kind != "b" else np.int64), dim)
    return np.cumsum(x, axis=dim, dtype=None if x.dtype.kind != "b" else np.int64)


def dot(x, y):
    """Sum of x * y over everything, as a Python float."""
    return float(np.vdot(x, y))


def rows(x):
    """(…, n) as (N, n); a view where the layout allows."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def matmul(a, b):
    """(…, n, k) @ (…, k, m) -> (…, n, m), batch dimensions broadcast."""
    if a.dtype == np.float16:  # NumPy has no BLAS for it
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    return np.matmul(a, b)


def linear(x, weight, bias):
    """x (…, k), weight (m, k), bias (m,) or None -> (…, m)."""
    y = matmul(rows(x), weight.T)
    if bias is not None:
        y += bias
    return y.reshape(x.shape[:-1] + y.shape[1:])


def linear_backward(dy, x, weight, wanted):
    """dy (…, m), x (…, k), weight (m, k); wanted: (dx, dweight, dbias)? -> the three, None where not."""
    flat = rows(dy)
    dx = matmul(flat, weight).reshape(dy.shape[:-1] + weight.shape[1:]) if wanted[0] else None
    dweight = matmul(flat.T, rows(x)) if wanted[1] else None
    return dx, dweight, flat.sum(0) if wanted[2] else None
