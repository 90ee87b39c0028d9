"""Attention: the pattern alone, and all of attention, for some queries at a time so that only BLOCK scores are held."""

import functools

import numpy as np

from .elementwise import log
from .precision import as_float32, in_float32, is_float16
from .reduce import row_dots, row_sums
from .softmax import finite_max, softmax_rows

BLOCK = 1 << 22  # scores at a time


def _in_float32(stored):
    """Decorate a primitive: it computes float16 in float32, and returns only its first `stored` results in float16."""

    def decorator(function):
        @functools.wraps(function)
        def wrapper(self, first, *args):
            results = function(self, as_float32(first), *map(as_float32, args))
            if not is_float16(first):
                return results
            return *(x.astype(np.float16) for x in results[:stored]), *results[stored:]

        return wrapper

    return decorator


class Attention:
    @_in_float32(stored=1)
    def attention(self, q, k, v, mask, bias, scale, is_causal, keep=None, kept=1.0):
        """softmax(scale q kᵀ + bias) v -> o (B, nh, T, Dv), lse (B, nh, T, 2).

        q (B, nh, T, D), k (B, nkv, S, D), v (B, nkv, S, Dv), nh a multiple of nkv. mask (bool, True: attend) and bias
        (of q's dtype) are (B, nh, T, S), broadcast by strides of 0, or None. Causal: query i sees keys up to i. A query
        that sees nothing gives zeros.

        lse is ln Σ exp of each row's scores in two parts, so that no digits are lost: the largest score, and the rest,
        which is ∞ for a row that sees nothing. o lies in memory as (B, T, nh, Dv), as the projection that follows wants
        it. keep: None or dropout's mask, bool (B, nh, T, S): it multiplies the pattern by `kept` or by 0 before it
        meets v."""
        (B, nh, T, _), (S, Dv), nkv = q.shape, v.shape[2:], k.shape[1]
        o = np.empty((B, T, nh, Dv), q.dtype).transpose(0, 2, 1, 3)
        lse = np.empty((B, nh, T, 2), q.dtype)
        for b, t in _blocks(B, nh, T, S):
            scores = _scores(q, k, mask, bias, scale, is_causal, b, t)
            top = finite_max(scores) if S else np.zeros((*scores.shape[:-1], 1), scores.dtype)
            e = np.exp(scores - top)
            total = row_sums(e)
            pattern = e / np.maximum(total, 1)  # the largest score alone makes it 1, unless the query sees nothing
            if keep is not None:
                pattern = pattern * _grouped(keep, nkv)[b, :, :, t] * pattern.dtype.type(kept)
            rest = log(np.where(total == 0, total.dtype.type(np.inf), total))  # ∞ makes exp(scores - lse) 0
            o[b, :, t] = _heads(np.matmul(pattern, v[b, :, None]))
            lse[b, :, t] = _heads(np.concatenate([top, rest], -1))
        return o, lse

    @_in_float32(stored=3)
    def attention_backward(self, do, q, k, v, mask, bias, o, lse, scale, is_causal, keep=None, kept=1.0):
        """dq, dk, dv. The pattern is computed again from the scores and lse."""
        (B, nh, T, _), (nkv, S) = q.shape, k.shape[1:3]
        dq, dk, dv = np.zeros(q.shape, q.dtype), np.zeros(k.shape, q.dtype), np.zeros(v.shape, q.dtype)
        for b, t in _blocks(B, nh, T, S):
            q_block, do_block = _grouped(q, nkv)[b, :, :, t], _grouped(do, nkv)[b, :, :, t]
            top, rest = (_grouped(lse[..., i : i + 1], nkv)[b, :, :, t] for i in (0, 1))
            pattern = np.exp(_scores(q, k, mask, bias, scale, is_causal, b, t) - top - rest)
            dpattern = np.matmul(do_block, v[b, :, None].swapaxes(-1, -2))
            dropped = pattern
            if keep is not None:
                factor = _grouped(keep, nkv)[b, :, :, t] * pattern.dtype.type(kept)
                dpattern, dropped = dpattern * factor, pattern * factor
            # The sum is do · o. Computed like this, it equals dpattern exactly for a query that sees one key, and ds is
            # 0.
            ds = (dpattern - row_dots(dpattern, pattern)) * pattern * pattern.dtype.type(scale)
            dq[b, :, t] = _heads(np.matmul(ds, k[b, :, None]))
            dk[b] += np.matmul(ds.swapaxes(-1, -2), q_block).sum(2)
            dv[b] += np.matmul(dropped.swapaxes(-1, -2), do_block).sum(2)
        return dq, dk, dv

    def attention_fits(self, dtype, D, dropout=False):
        """True if attention() handles heads of size D, and dropout. Kernels have limits; NumPy takes any size. (On a
        CPU the unfused form is faster with dropout.)"""
        return not dropout

    @in_float32
    def attention_pattern(self, scores, scale, mask, is_causal):
        """softmax(scale * scores) over the last dim, exactly 0 where the mask is False or where causality forbids.

        scores (…, T, S); mask: bool (True: attend), broadcast to scores, or None. Causal: query i of T sees keys up to
        i, as in PyTorch (aligned at the top left). A row with nothing to see is zeros."""
        x = scores * scores.dtype.type(scale)
        if mask is not None:
            x = np.where(mask, x, -np.inf)
        if is_causal:
            x = np.where(np.tri(*x.shape[-2:], dtype=np.bool_), x, -np.inf)
        return softmax_rows(x)

    @in_float32
    def attention_pattern_backward(self, dy, y, scale):
        """dscores; y = attention_pattern(scores)."""
        return (dy - row_dots(dy, y)) * y * y.dtype.type(scale)


def _blocks(B, nh, T, S):
    """Yield slices of batches and of queries with about BLOCK scores together."""
    rows = max(1, min(T, BLOCK // max(1, nh * S)))
    batches = max(1, min(B, BLOCK // max(1, nh * rows * S)))
    for b in range(0, B, batches):
        for t in range(0, T, rows):
            yield slice(b, b + batches), slice(t, min(t + rows, T))


def _grouped(x, nkv):
    """(B, nh, T, D) as (B, nkv, group, T, D): the heads of a group share their keys and values."""
    return x.reshape(x.shape[0], nkv, x.shape[1] // max(nkv, 1), *x.shape[2:])


def _heads(x):
    """(B, nkv, group, T, D) as (B, nh, T, D): the inverse of _grouped."""
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])


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
