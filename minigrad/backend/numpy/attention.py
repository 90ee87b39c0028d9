"""Attention: the pattern alone, and in one go, some queries at a time, so that no more than BLOCK scores are held."""

import functools

import numpy as np

from .elementwise import log
from .precision import in_single, is_half
from .reduce import row_dots, row_sums
from .softmax import finite_top, softmax_

BLOCK = 1 << 22  # scores at a time


def _wide(stored):
    """float16 is for storage: compute in float32, and give back the first `stored` results in float16."""

    def decorator(function):
        @functools.wraps(function)
        def wrapper(self, first, *args):
            if not is_half(first):
                return function(self, first, *args)
            results = function(self, *[x.astype(np.float32) if is_half(x) else x for x in (first, *args)])
            return *(x.astype(np.float16) for x in results[:stored]), *results[stored:]

        return wrapper

    return decorator


class Attention:
    @_wide(1)
    def attention(self, q, k, v, mask, bias, scale, is_causal, keep=None, kept=1.0):
        """softmax(scale q kᵀ + bias) v -> o (B, nh, T, Dv), lse (B, nh, T, 2), without T × S scores at a time.

        q (B, nh, T, D), k (B, nkv, S, D), v (B, nkv, S, Dv), nh a multiple of nkv. mask (bool, True: attend) and bias
        (of q's dtype) are (B, nh, T, S), broadcast by strides of 0, or None. Causal: query i sees keys up to i. A query
        that sees nothing gives zeros. lse is ln Σ exp of each row's scores in two parts, so that no digits are lost:
        the largest score, and the rest, ∞ for a row that sees nothing. o lies in memory as (B, T, nh, Dv), as the
        projection that follows wants it. keep (B, nh, T, S), bool, or None: dropout's, which multiplies the pattern by
        `kept`, or by 0, before it meets v; only for attention_fits(dropout=True)."""
        (B, nh, T, _), (S, Dv) = q.shape, v.shape[2:]
        o = np.empty((B, T, nh, Dv), q.dtype).transpose(0, 2, 1, 3)
        lse = np.empty((B, nh, T, 2), q.dtype)
        all_seen = mask is None and bias is None and not is_causal
        for b, t in _blocks(B, nh, T, S):
            p = _scores(q, k, mask, bias, scale, is_causal, b, t)
            if S == 0:
                top = np.zeros((*p.shape[:-1], 1), p.dtype)
            else:
                top = p.max(-1, keepdims=True) if all_seen else finite_top(p)
            p -= top
            np.exp(p, out=p)
            total = row_sums(p)
            p /= np.maximum(total, 1)  # the largest score alone makes it 1, unless the query sees nothing
            if keep is not None:
                p *= _grouped(keep, k.shape[1])[b, :, :, t] * p.dtype.type(kept)
            part = o[b, :, t]
            part[...] = np.matmul(p, v[b, :, None]).reshape(part.shape)
            total[total == 0] = np.inf  # so that exp(scores - lse) is 0
            both = lse[b, :, t]
            both[..., :1] = top.reshape(*both.shape[:-1], 1)
            both[..., 1:] = log(total).reshape(*both.shape[:-1], 1)
        return o, lse

    @_wide(3)
    def attention_backward(self, do, q, k, v, mask, bias, o, lse, scale, is_causal, keep=None, kept=1.0):
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
            ds = np.matmul(dob, v[b, :, None].swapaxes(-1, -2))
            dropped = p
            if keep is not None:
                factor = _grouped(keep, nkv)[b, :, :, t] * p.dtype.type(kept)
                ds *= factor
                dropped = p * factor
            ds -= row_dots(ds, p)  # = do · o, but exactly 0 less for a query that sees one key
            ds *= p
            ds *= ds.dtype.type(scale)
            dq[b, :, t] = np.matmul(ds, k[b, :, None]).reshape(dq[b, :, t].shape)
            dk[b] += np.matmul(ds.swapaxes(-1, -2), _grouped(q, nkv)[b, :, :, t]).sum(2)
            dv[b] += np.matmul(dropped.swapaxes(-1, -2), dob).sum(2)
        return dq, dk, dv

    def attention_fits(self, dtype, D, dropout=False):
        """Do attention() and its backward support heads of this size, and dropout, which takes a CPU less time with the
        pattern held? Kernels have limits, NumPy has none."""
        return not dropout

    @in_single
    def attention_pattern(self, scores, scale, mask, is_causal):
        """softmax(scale * scores) over the last dim, exactly 0 where the mask is False or where causality forbids.

        scores (…, T, S); mask: bool (True: attend), broadcast to scores, or None. Causal: query i of T sees keys up to
        i, as in PyTorch (aligned at the top left). A row with nothing to see is zeros."""
        x = np.multiply(scores, scale, dtype=scores.dtype)
        if mask is not None:
            np.copyto(x, -np.inf, where=~mask)
        if is_causal:
            np.copyto(x, -np.inf, where=np.tri(*x.shape[-2:]) == 0)
        return softmax_(x)

    @in_single
    def attention_pattern_backward(self, dy, y, scale):
        dx = dy - row_dots(dy, y)
        dx *= y
        dx *= scale
        return dx


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
    x = np.matmul(_grouped(q, nkv)[b, :, :, t], k[b, :, None].swapaxes(-1, -2))
    x *= x.dtype.type(scale)
    if bias is not None:
        x += _grouped(bias, nkv)[b, :, :, t]
    if mask is not None:
        np.copyto(x, -np.inf, where=~_grouped(mask, nkv)[b, :, :, t])
    if is_causal:
        np.copyto(x, -np.inf, where=~np.tri(t.stop - t.start, k.shape[2], t.start, dtype=bool))
    return x
