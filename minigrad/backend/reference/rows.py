"""Softmax, losses and norms: what works on rows."""

import numpy as np

from ...locks import multiplying
from .elementwise import log
from .half import in_single, rounded, wide
from .reduce import BLAS_RUN, column_dots, column_sums, row_dots, rows, sum

_ones_cache: dict = {}


def _ones(n, dtype):
    """A shared vector of ones. Row sums as x @ ones go through BLAS, 3 times as fast as NumPy's over short rows."""
    if (n, dtype) not in _ones_cache:
        _ones_cache[n, dtype] = np.ones(n, dtype)
        _ones_cache[n, dtype].flags.writeable = False
    return _ones_cache[n, dtype]


def _row_sums(x):
    """(…, n) -> (…, 1)."""
    if not x.flags.c_contiguous or x.size == 0:
        return sum(x, (-1,), True)
    n = x.shape[-1]
    if n <= BLAS_RUN:
        with multiplying.mine.lock:
            return (x.reshape(-1, n) @ _ones(n, x.dtype)).reshape(x.shape[:-1] + (1,))
    whole = n // BLAS_RUN * BLAS_RUN
    with multiplying.mine.lock:
        runs = x[..., :whole].reshape(*x.shape[:-1], -1, BLAS_RUN) @ _ones(BLAS_RUN, x.dtype)
    y = np.add.reduce(runs, axis=-1, dtype=wide(x.dtype), keepdims=True)
    if whole < n:
        y += _row_sums(x[..., whole:])
    return rounded(y, x.dtype)


def _finite_top(x):
    """The largest of each row, (…, n) -> (…, 1); 0 where all are -inf, so that subtracting it gives -inf, not NaN."""
    top = x.max(-1, keepdims=True)
    top[top == -np.inf] = 0
    return top


def _softmax_(x):
    """Softmax over the last dimension, in place. A row that is all -inf becomes zeros, not NaN."""
    if x.shape[-1] == 0:
        return x
    x -= _finite_top(x)
    np.exp(x, out=x)
    total = _row_sums(x)
    total[total == 0] = 1
    x /= total
    return x


def _rows_last(x, dim):
    """A fresh contiguous copy with `dim` last, and how to move it back."""
    return np.moveaxis(x, dim, -1).copy(order="C"), lambda y: np.moveaxis(y, -1, dim)


@in_single
def softmax(x, dim):
    y, back = _rows_last(x, dim)
    return back(_softmax_(y))


@in_single
def softmax_backward(dy, y, dim):
    dy, y = np.moveaxis(dy, dim, -1), np.moveaxis(y, dim, -1)
    dx = dy - row_dots(dy, y)
    dx *= y
    return np.moveaxis(dx, -1, dim)


@in_single
def log_softmax(x, dim):
    y, back = _rows_last(x, dim)
    if y.size:
        y -= _finite_top(y)
        total = _row_sums(np.exp(y))
        total[total == 0] = 1  # a row that is all -inf stays so
        y -= log(total)
    return back(y)


def _logsumexp_rows(x):
    top = x.max(-1, keepdims=True, initial=-np.inf)
    safe = np.where(np.isfinite(top), top, 0)
    total = log(_row_sums(np.exp(x - safe))) + safe  # ln 0 = -inf is right for a row of -inf
    return np.where(top == np.inf, np.inf, total).astype(x.dtype)


@in_single
def logsumexp(x, dim):
    """Over one dimension, kept with size 1."""
    y, back = _rows_last(x, dim)
    return back(_logsumexp_rows(y))


@in_single
def attention_pattern(scores, scale, mask, is_causal):
    """softmax(scale * scores) over the last dimension, exactly 0 where the mask is False or where causality forbids.

    mask: bool (True = attend) or None; broadcast to scores. Causal: query i of T sees keys up to i, as in PyTorch
    (aligned at the top left). A row with nothing to see is zeros."""
    x = np.multiply(scores, scale, dtype=scores.dtype)
    if mask is not None:
        np.copyto(x, -np.inf, where=~mask)
    if is_causal:
        np.copyto(x, -np.inf, where=_hidden(*x.shape[-2:]))
    return _softmax_(x)


_hidden_cache: dict = {}


def _hidden(T, S):
    """(T, S) bool, True above the diagonal."""
    mask = _hidden_cache.get((T, S))
    if mask is None:
        mask = ~np.tri(T, S, dtype=bool)
        _hidden_cache.clear()  # one shape at a time: a mask of 8192² is 64 MB
        _hidden_cache[T, S] = mask
    return mask


@in_single
def attention_pattern_backward(dy, y, scale):
    dx = dy - row_dots(dy, y)
    dx *= y
    dx *= scale
    return dx


@in_single
def layer_norm(x, weight, bias, eps):
    """x (…, C); weight, bias (C,) or None -> y (…, C), mean (…, 1), rstd (…, 1)."""
    C = x.shape[-1]
    mean = _row_sums(x) / C
    y = x - mean
    rstd = 1 / np.sqrt(row_dots(y, y) / C + x.dtype.type(eps))
    y *= rstd
    if weight is not None:
        y *= weight
    if bias is not None:
        y += bias
    return y, mean, rstd


@in_single
def layer_norm_backward(dy, x, weight, mean, rstd, wanted):
    """wanted: (dx, dweight, dbias)? -> the three, None where not."""
    C = x.shape[-1]
    xhat = x - mean
    xhat *= rstd
    dbias = column_sums(rows(dy)) if wanted[2] else None
    dweight = column_dots(rows(dy), rows(xhat)) if wanted[1] else None
    if not wanted[0]:
        return None, dweight, dbias
    # y = xhat w + b, and xhat has mean 0 and variance 1: dx is dxhat less its parts along 1 and along xhat
    dx = dy * weight if weight is not None else dy.copy()
    along_one, along_xhat = _row_sums(dx) / C, row_dots(dx, xhat) / C
    xhat *= along_xhat
    dx -= along_one
    dx -= xhat
    dx *= rstd
    return dx, dweight, dbias


@in_single
def rms_norm(x, weight, eps):
    """x (…, C), weight (C,) or None -> y (…, C), rstd (…, 1)."""
    rstd = 1 / np.sqrt(row_dots(x, x) / x.shape[-1] + x.dtype.type(eps))
    y = x * rstd
    if weight is not None:
        y *= weight
    return y, rstd


@in_single
def rms_norm_backward(dy, x, weight, rstd, wanted):
    """wanted: (dx, dweight)? -> both, None where not."""
    xhat = x * rstd
    dweight = column_dots(rows(dy), rows(xhat)) if wanted[1] else None
    if not wanted[0]:
        return None, dweight
    dx = dy * weight if weight is not None else dy.copy()
    xhat *= row_dots(dx, xhat) / x.shape[-1]
    dx -= xhat
    dx *= rstd
    return dx, dweight


@in_single
def cross_entropy(logits, target, ignore_index, smoothing):
    """logits (N, V), target (N,) -> loss of each row (N,), and softmax(logits) (N, V) for the backward.

    loss = -Σ q log p with q = (1 - smoothing) onehot(target) + smoothing / V; 0 for a row to be ignored."""
    p = logits - _finite_top(logits)  # a row that is all -inf has p = 0 and a loss of inf
    rows = np.arange(len(target))
    kept = target != ignore_index
    safe = np.where(kept, target, 0)
    loss = -(1 - smoothing) * p[rows, safe]
    if smoothing:
        loss -= smoothing * sum(p, (-1,), False) / p.shape[1]
    np.exp(p, out=p)
    total = _row_sums(p)
    total[total == 0] = 1
    p /= total
    loss += log(total[:, 0])  # Σ q = 1, so the normaliser enters once
    loss[~kept] = 0
    return loss.astype(logits.dtype), p


@in_single
def cross_entropy_backward(dloss, p, target, ignore_index, smoothing):
    """dlogits = (p - q) * dloss, row by row."""
    kept = target != ignore_index
    dlogits = p - p.dtype.type(smoothing / p.shape[1]) if smoothing else p.copy()
    dlogits[np.arange(len(target)), np.where(kept, target, 0)] -= p.dtype.type(1 - smoothing)
    dlogits *= dloss[:, None]
    dlogits[~kept] = 0
    return dlogits
