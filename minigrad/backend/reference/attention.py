"""Scaled dot-product attention, some queries at a time: no more than BLOCK scores are ever held."""

import functools

import numpy as np

from .elementwise import log
from .half import is_half
from .reduce import product, row_dots
from .rows import _finite_top, _row_sums

BLOCK = 1 << 22  # scores at a time


def attention_fits(dtype, D):
    """Does attention() take heads of this size? Kernels have limits, NumPy has none."""
    return True


def _wide(stored):
    """float16 is for storage: compute in float32, and give back the first `stored` results in float16."""

    def decorator(function):
        @functools.wraps(function)
        def wrapper(*args):
            if not is_half(args[0]):
                return function(*args)
            results = function(*[x.astype(np.float32) if is_half(x) else x for x in args])
            return *(x.astype(np.float16) for x in results[:stored]), *results[stored:]

        return wrapper

    return decorator


def _blocks(B, nh, T, S):
    """Slices of batches and of queries whose scores number about BLOCK."""
    rows = max(1, min(T, BLOCK // max(1, nh * S)))
    batches = max(1, min(B, BLOCK // max(1, nh * rows * S)))
    for b in range(0, B, batches):
        for t in range(0, T, rows):
            yield slice(b, b + batches), slice(t, min(t + rows, T))


def _grouped(x, nkv):
    """(B, nh, T, D) as (B, nkv, group, T, D): the heads that share keys and values side by side."""
    return x.reshape(x.shape[0], nkv, x.shape[1] // max(nkv, 1), *x.shape[2:])


def _scores(q, k, mask, bias, scale, is_causal, b, t):
    """scale q kᵀ + bias, -∞ where a query may not look: (b, nkv, group, t, S) of a block's queries."""
    nkv = k.shape[1]
    x = product(_grouped(q, nkv)[b, :, :, t], k[b, :, None].swapaxes(-1, -2))
    x *= x.dtype.type(scale)
    if bias is not None:
        x += _grouped(bias, nkv)[b, :, :, t]
    if mask is not None:
        np.copyto(x, -np.inf, where=~_grouped(mask, nkv)[b, :, :, t])
    if is_causal:
        np.copyto(x, -np.inf, where=~np.tri(t.stop - t.start, k.shape[2], t.start, dtype=bool))
    return x


@_wide(1)
def attention(q, k, v, mask, bias, scale, is_causal):
    """softmax(scale q kᵀ + bias) v -> o (B, nh, T, Dv), lse (B, nh, T, 2).

    lse is ln Σ exp of each row's scores in two parts, so that no digits are lost: the largest score, and the rest, ∞
    for a row that sees nothing. q (B, nh, T, D), k (B, nkv, S, D), v (B, nkv, S, Dv), nh a multiple of nkv. mask
    (bool, True: attend) and bias are (B, nh, T, S), broadcast by strides of 0, or None. A query that sees nothing gives
    zeros."""
    (B, nh, T, _), (S, Dv) = q.shape, v.shape[2:]
    o = np.empty((B, T, nh, Dv), q.dtype).transpose(0, 2, 1, 3)
    lse = np.empty((B, nh, T, 2), q.dtype)
    all_seen = mask is None and bias is None and not is_causal
    for b, t in _blocks(B, nh, T, S):
        p = _scores(q, k, mask, bias, scale, is_causal, b, t)
        if S == 0:
            top = np.zeros((*p.shape[:-1], 1), p.dtype)
        else:
            top = p.max(-1, keepdims=True) if all_seen else _finite_top(p)
        p -= top
        np.exp(p, out=p)
        total = _row_sums(p)
        p /= np.maximum(total, 1)  # the largest score alone makes it 1, unless the query sees nothing
        part = o[b, :, t]
        part[...] = product(p, v[b, :, None]).reshape(part.shape)
        total[total == 0] = np.inf  # so that exp(scores - lse) is 0
        both = lse[b, :, t]
        both[..., :1] = top.reshape(*both.shape[:-1], 1)
        both[..., 1:] = log(total).reshape(*both.shape[:-1], 1)
    return o, lse


@_wide(3)
def attention_backward(do, q, k, v, mask, bias, o, lse, scale, is_causal):
    """dq, dk, dv. The pattern is computed again from the scores and lse."""
    (B, nh, T, _), (nkv, S) = q.shape, k.shape[1:3]
    dq, dk, dv = np.zeros(q.shape, q.dtype), np.zeros(k.shape, q.dtype), np.zeros(v.shape, q.dtype)
    for b, t in _blocks(B, nh, T, S):
        p = _scores(q, k, mask, bias, scale, is_causal, b, t)
        top, rest = (_grouped(lse[..., i : i + 1], nkv)[b, :, :, t] for i in (0, 1))
        p -= top
        p -= rest
        np.exp(p, out=p)
        dob = _grouped(do, nkv)[b, :, :, t]
        ds = product(dob, v[b, :, None].swapaxes(-1, -2))
        ds -= row_dots(ds, p)  # = do · o, but exactly 0 less for a query that sees one key
        ds *= p
        ds *= ds.dtype.type(scale)
        dq[b, :, t] = product(ds, k[b, :, None]).reshape(dq[b, :, t].shape)
        dk[b] += product(ds.swapaxes(-1, -2), _grouped(q, nkv)[b, :, :, t]).sum(2)
        dv[b] += product(p.swapaxes(-1, -2), dob).sum(2)
    return dq, dk, dv
