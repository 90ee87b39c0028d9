"""Reductions, orderings and matrix products."""

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


def matmul(a, b):
    """(…, n, k) @ (…, k, m) -> (…, n, m), batch dimensions broadcast."""
    if a.dtype == np.float16:  # NumPy has no BLAS for it
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    return np.matmul(a, b)


def linear(x, weight, bias):
    """x (N, k), weight (m, k), bias (m,) or None -> (N, m)."""
    y = matmul(x, weight.T)
    if bias is not None:
        y += bias
    return y
