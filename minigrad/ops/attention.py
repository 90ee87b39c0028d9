"""Scaled dot-product attention: qk = q kᵀ, scores = scale · qk, pattern = the masked softmax of the scores, and
z = pattern v. Attention and AttentionBackward compute all of it in one primitive each, without storing the pattern."""

import math
from typing import overload

import numpy as np

from ..autograd import FormulaOp, Op, Value, composite
from ..autograd.arguments import check_arguments
from ..autograd.cases import Fixed, case
from ..backend.numpy.random import dropout_numbers
from ..random import default_generator
from ..typing import T
from .args import require_float
from .dropout import check_probability, dropout
from .movement import expand_if_needed

__all__ = ["attention_pattern", "merge_heads", "scaled_dot_product_attention", "split_heads"]


class SplitHeads(Op):
    """y_0, y_1, … = parts of x as heads, (B, T, Σ n d) -> (B, n, T, d) for each n of `heads`;   dx = dy_0, … merged"""

    cases = [case((2, 3, 8), heads=(2, 1, 1), d=2), case((2, 3, 4), heads=(2,), d=2)]

    def forward(self, x, heads, d):
        (B, T, _), start, parts = x.shape, 0, []
        x = self.backend.permute(self.backend.reshape(x, (B, T, sum(heads), d)), (0, 2, 1, 3))
        for size in heads:
            parts.append(self.backend.getitem(x, (slice(None), slice(start, start + size))))
            start += size
        return tuple(parts)

    def backward(self, *dys: Value):
        return MergeHeads.apply(*dys)


@overload
def split_heads(input: T, heads: int, /) -> T: ...


@overload
def split_heads(input: T, *heads: int) -> tuple[T, ...]: ...


@check_arguments
def split_heads(input: T, *heads: int) -> T | tuple[T, ...]:
    """Return x (B, T, n·d) as n heads, a view (B, n, T, d): x.reshape(B, T, n, d).transpose(1, 2). Any dtype.

    With several numbers of heads, x holds such parts side by side: (B, T, (n_0 + n_1 + …)·d) -> a tuple of
    (B, n_0, T, d), (B, n_1, T, d), … Raises ValueError if x cannot be divided so."""
    if input.ndim != 3 or min(heads, default=0) < 1 or input.shape[2] % sum(heads):
        raise ValueError(f"split_heads: {input.shape} is not (B, T, n·d) for n = {' + '.join(map(str, heads))} heads")
    parts = SplitHeads.apply(input, heads=heads, d=input.shape[2] // sum(heads))
    return parts if len(heads) > 1 else parts[0]


class MergeHeads(Op):
    """y = the heads of all inputs side by side, (B, n, T, d), … -> (B, T, Σ n d);   dx_0, dx_1, … = dy split"""

    cases = [case((2, 2, 3, 4)), case((2, 2, 3, 2), (2, 1, 3, 2))]

    def forward(self, *xs):
        self.heads = tuple([x.shape[1] for x in xs])
        rows = [self.backend.permute(x, (0, 2, 1, 3)) for x in xs]  # (B, T, n, d)
        x = rows[0] if len(rows) == 1 else self.backend.cat(rows, 2)
        B, T, n, self.d = x.shape
        return self.backend.reshape(x, (B, T, n * self.d))

    def backward(self, dy: Value):
        return SplitHeads.apply(dy, heads=self.heads, d=self.d)


@check_arguments
def merge_heads(input: T) -> T:
    """Return heads (B, n, T, d) side by side, (B, T, n·d): x.transpose(1, 2).reshape(B, T, n·d). Any dtype.

    Raises ValueError for another number of dims."""
    if input.ndim != 4:
        raise ValueError(f"merge_heads: shape {input.shape} is not (B, n, T, d)")
    return MergeHeads.apply(input)


class AttentionPattern(Op):
    """pattern = softmax(scores), 0 where masked, scores = scale · qk;
    dscores = pattern (dpattern - Σ dpattern pattern), dqk = scale · dscores

    qk (…, T, S). mask: bool (True: attend) or None, broadcast to qk; is_causal: query i sees keys up to i.
    A query that sees nothing has a pattern of zeros, and zero gradients."""

    cases = [
        case((2, 3, 3), None, scale=0.5, is_causal=True),
        case((4, 2), None, scale=1.0, is_causal=True),
        case((2, 2, 3), Fixed([[True, False, True], [False, False, False]]), scale=0.5, is_causal=False),
    ]
    scale: float

    def forward(self, qk, mask, scale, is_causal):
        return self.save_output(self.backend.attention_pattern(qk, scale, mask, is_causal))

    def backward(self, dy: Value):
        return AttentionPatternBackward.apply(dy, self.saved_output(), scale=self.scale), None


class AttentionPatternBackward(FormulaOp):
    """dqk = scale · dscores, dscores = pattern (dpattern - Σ dpattern pattern)"""

    cases = [case((2, 3, 4), (2, 3, 4), scale=0.5)]

    @staticmethod
    def formula(dy, pattern, scale):
        return pattern * (dy - (dy * pattern).sum(-1, keepdim=True)) * scale


@check_arguments
def attention_pattern(qk: T, mask: T | None = None, is_causal: bool = False, scale: float = 1.0) -> T:
    """Return softmax(scale · qk + mask) over the last dim of qk (…, T, S): how much each query reads of each key.

    Of qk's shape. mask, broadcast to qk: a bool Tensor (True: attend), a Tensor of qk's dtype (added), or None.
    is_causal: query i sees keys up to i. Raises TypeError for other dtypes, and ValueError for fewer than two dims or a
    mask that does not broadcast."""
    require_float("attention_pattern", qk)
    if qk.ndim < 2:
        raise ValueError(f"attention_pattern: qk must be (…, T, S), got shape {qk.shape}")
    if mask is not None:
        try:
            expand_if_needed(mask, qk.shape)
        except ValueError:
            raise ValueError(f"attention: mask {mask.shape} does not broadcast to scores {qk.shape}") from None
        if mask.dtype == qk.dtype:
            qk, scale, mask = qk * scale + mask, 1.0, None
        elif mask.dtype.kind != "b":
            raise TypeError(f"attention: mask must be bool or {qk.dtype} like q, k and v, got {mask.dtype}")
    return AttentionPattern.apply(qk, mask, scale=float(scale), is_causal=bool(is_causal))


class Attention(Op):
    """z = softmax(scale q kᵀ + bias) v, masked, without storing the pattern;   dq, dk, dv from the same pattern again

    q (B, nh, T, d_k), k (B, nkv, S, d_k), v (B, nkv, S, d_v); nkv divides nh. mask (bool) and bias (float) are
    (B, nh, T, S) or None. With dropout_p, elements of the pattern are dropped as Dropout does with that `draw`. Rabe
    and Staats 2021; Dao et al., "FlashAttention", 2022."""

    cases = [
        case((1, 2, 3, 3), (1, 2, 3, 3), (1, 2, 3, 2), None, None, scale=0.5, is_causal=True),
        case((1, 4, 2, 3), (1, 2, 5, 3), (1, 2, 5, 2), None, None, scale=0.3, is_causal=False),
        case((1, 1, 2, 3), (1, 1, 3, 3), (1, 1, 3, 2), Fixed([[[[True, False, True], [False, False, False]]]]), None,
             scale=0.5, is_causal=False),
    ]  # fmt: skip
    rounds_inside = True

    def forward(self, q, k, v, mask, bias, scale, is_causal, dropout_p=0.0, draw=None):
        _check_groups(q, k)
        keep = None
        if dropout_p:
            shape = (*q.shape[:3], k.shape[2])
            keep = self.backend.dropout_mask(shape, dropout_p, draw)
        z, lse = self.backend.attention(q, k, v, mask, bias, scale, is_causal, keep, dropout_numbers(dropout_p)[1])
        self.save_inputs(q, k, v, mask, bias)
        self.save(lse, keep)
        return self.save_output(z)

    def backward(self, dz: Value):
        inputs = (*self.saved_inputs(), self.saved_output().detach(), *self.saved())
        params = {name: value for name, value in self.params.items() if name != "draw"}
        return (*AttentionBackward.apply(dz, *inputs, **params), None, None)


class AttentionBackward(FormulaOp):
    """dv = patternᵀ dz, dpattern = dz vᵀ, dqk as in AttentionPatternBackward, dq = dqk k, dk = dqkᵀ q

    z (B, nh, T, d_v) and lse (B, nh, T, 2), the logarithm of Σ e^score of each row in two parts, come from the forward.
    If lse is None, both are computed again. keep: the mask of dropout, or None."""

    cases = [
        case((1, 2, 3, 2), (1, 2, 3, 3), (1, 2, 3, 3), (1, 2, 3, 2), *5 * [None], scale=0.5, is_causal=True),
        case((2, 2, 2, 2), (2, 2, 2, 3), (2, 1, 3, 3), (2, 1, 3, 2), *5 * [None], scale=0.3, is_causal=False),
    ]
    from_forward = (6, 7)
    rounds_inside = True

    def forward(self, dz, q, k, v, mask, bias, z, lse, keep, scale, is_causal, dropout_p=0.0):
        _check_groups(q, k)
        self.save_inputs(dz, q, k, v, mask, bias, z, lse, keep)
        dropout = keep, dropout_numbers(dropout_p)[1]
        if lse is None:
            z, lse = self.backend.attention(q, k, v, mask, bias, scale, is_causal, *dropout)
        return self.backend.attention_backward(dz, q, k, v, mask, bias, z, lse, scale, is_causal, *dropout)

    @staticmethod
    def formula(dz, q, k, v, mask, bias, z, lse, keep, scale, is_causal, dropout_p=0.0):
        nkv = k.shape[1]
        k, v = _for_each_head(k, q), _for_each_head(v, q)
        scores = q @ k.mT * scale  # (B, nh, T, S)
        pattern = attention_pattern(scores if bias is None else scores + bias, mask, is_causal)  # (B, nh, T, S)
        dpattern, dropped = dz @ v.mT, pattern  # (B, nh, T, S)
        if keep is not None:
            factor = keep.to(q.dtype) * dropout_numbers(dropout_p)[1]  # (B, nh, T, S)
            dpattern, dropped = dpattern * factor, pattern * factor
        dqk = AttentionPatternBackward.formula(dpattern, pattern, scale)  # (B, nh, T, S)
        return dqk @ k, _over_groups(dqk.mT @ q, nkv), _over_groups(dropped.mT @ dz, nkv)


def _check_groups(q, k):
    nh, nkv = q.shape[1], k.shape[1]
    if nh != nkv and (nkv == 0 or nh % nkv):
        raise ValueError(f"attention: {nkv} heads of keys do not divide {nh} heads of queries")


def _for_each_head(x, q):
    """Return keys or values x (B, nkv, S, d) repeated for the heads of q that share them: (B, nh, S, d)."""
    _check_groups(q, x)
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _over_groups(dx, nkv):
    """The adjoint of _for_each_head: sum (B, nh, S, d) over the heads that share, to (B, nkv, S, d)."""
    B, nh, S, d = dx.shape
    return dx if nh == nkv else dx.reshape(B, nkv, nh // nkv, S, d).sum(2)


def _batches(query, key, value, enable_gqa):
    """Return (batch dims of attention's result, batch dims of its keys) for three shapes. The heads are the last of
    them.

    Raises ValueError if the shapes do not fit each other."""
    n = 3 if enable_gqa else 2  # the number of last dims that do not broadcast: with groups, the heads are one
    if min(len(query), len(key), len(value)) < n or query[-1] != key[-1] or key[-n:-1] != value[-n:-1]:
        raise ValueError
    batch = query[:-n]
    if not batch == key[:-n] == value[:-n]:
        batch = np.broadcast_shapes(batch, key[:-n], value[:-n])
    return batch + query[-n:-2], batch + key[-n:-2]


def _to_heads(query, key, value, enable_gqa):
    """Return query, key and value as (B, heads, positions, size), and the batch dims of the result.

    Raises ValueError, which names all three shapes, if they do not fit each other."""
    shapes = query.shape, key.shape, value.shape
    try:
        batch, of_keys = _batches(*shapes, enable_gqa)
    except ValueError:
        raise ValueError(
            f"attention: query {shapes[0]}, key {shapes[1]}, value {shapes[2]} are not (…, T, d_k), (…, S, d_k), "
            f"(…, S, d_v)" + (" with heads in dim -3, those of key dividing those of query" if enable_gqa else "")
        ) from None
    return _four_dims(query, batch), _four_dims(key, of_keys), _four_dims(value, of_keys), batch


def _four_dims(x, batch):
    """Return x (…, n, m) with its first dims broadcast to `batch`, then reshaped to two: (B, heads, n, m)."""
    x = expand_if_needed(x, (*batch, *x.shape[-2:]))
    return x if len(batch) == 2 else x.reshape(math.prod(batch[:-1]), *(batch[-1:] or (1,)), *x.shape[-2:])


def _mask_of_heads(mask, batch, T, S, dtype):
    """Return a mask that broadcasts to scores of shape (*batch, T, S) as (B, nh, T, S). Raises if it does not."""
    if mask.dtype.kind != "b" and mask.dtype != dtype:
        raise TypeError(f"attention: mask must be bool or {dtype} like q, k and v, got {mask.dtype}")
    try:
        return _four_dims(expand_if_needed(mask, (*batch, T, S)), batch)
    except ValueError:
        raise ValueError(f"attention: mask {mask.shape} does not broadcast to scores {(*batch, T, S)}") from None


@composite(
    case((2, 3, 4), (2, 3, 4), (2, 3, 4), is_causal=True),
    case((2, 3, 4), (2, 5, 4), (2, 5, 2), scale=0.3),
    case((4, 3, 2), (2, 3, 2), (2, 3, 2), enable_gqa=True),
)
def scaled_dot_product_attention(
    query: T, key: T, value: T, attn_mask: T | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> T:  # fmt: skip
    """z = softmax(q kᵀ / √d_k + mask) v   (Vaswani et al. 2017, eq. 1)

    query (…, T, d_k), key (…, S, d_k), value (…, S, d_v) -> (…, T, d_v). attn_mask, broadcast to (…, T, S): bool (True:
    attend) or float (added to the scores). scale replaces 1/√d_k. dropout_p applies to the pattern, whether the model
    trains or not: pass 0 to evaluate. enable_gqa: key and value may have fewer heads (dim -3), a divisor of query's.
    Unlike in PyTorch, attn_mask and is_causal may be given together, and a query that sees no key gives zeros.

    The pattern is stored whole in three cases only: attn_mask requires a gradient; heads are larger than the kernels
    take (512 on a CPU; 128 or 256 on a GPU, as its shared memory allows); or there is dropout_p on a CPU. A GPU with
    dropout_p stores a byte per element. Raises ValueError for shapes or a dropout_p that do not fit, and TypeError for
    dtypes that do not."""
    require_float("scaled_dot_product_attention", query, key, value)
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(f"attention: query is {query.dtype}, key {key.dtype}, value {value.dtype}; use .to()")
    q, k, v, batch = _to_heads(query, key, value, enable_gqa)
    scale = float((q.shape[-1] or 1) ** -0.5 if scale is None else scale)
    mask = None if attn_mask is None else _mask_of_heads(attn_mask, batch, q.shape[-2], k.shape[-2], query.dtype)
    fits = q.storage.backend.attention_fits(q.dtype, max(q.shape[-1], v.shape[-1]), bool(dropout_p))
    if not fits or (mask is not None and mask.requires_grad):
        qk = q @ _for_each_head(k, q).mT  # (B, nh, T, S)
        pattern = dropout(attention_pattern(qk, mask, is_causal, scale), dropout_p)  # (B, nh, T, S)
        z = pattern @ _for_each_head(v, q)  # (B, nh, T, d_v)
    else:
        masks = (mask, None) if mask is None or mask.dtype.kind == "b" else (None, mask)
        dropped = {}
        if dropout_p:
            draw = default_generator.reserve(math.prod(q.shape[:3]) * k.shape[2])
            dropped = dict(dropout_p=check_probability(dropout_p), draw=draw)
        z = Attention.apply(q, k, v, *masks, scale=scale, is_causal=bool(is_causal), **dropped)
    return z if len(batch) == 2 else z.reshape(*batch, *z.shape[-2:])
