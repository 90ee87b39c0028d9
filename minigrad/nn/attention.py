"""Multi-head attention (Vaswani et al. 2017, section 3.2.2), in three forms that compute the same."""

import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..dtypes import DEFAULT_FLOAT
from ..ops.public import cat, stack
from ..tensor import Tensor, empty, tensor
from ..typing import DTypeLike
from . import functional as F
from . import init
from .cache import KVCache
from .heads import INPUTS, OUTPUT, Headed
from .layers import Linear
from .masks import as_one
from .module import Parameter, factory
from .positions import rotary

FORMS = "per_head", "batched", "fused"
_taken: ContextVar[str | None] = ContextVar("the form that all layers take", default=None)


@contextmanager
def all_take(impl):
    """Within a with-block, all MultiheadAttention layers that this thread runs take the form `impl`, whatever their own
    impl says (None: each its own). Those with head hooks take the batched one still. Raises ValueError if there is no
    such form."""
    if impl is not None:
        _check_form(impl)
    before = _taken.set(impl)
    try:
        yield
    finally:
        _taken.reset(before)


def _check_form(impl):
    if impl not in FORMS:
        raise ValueError(f"impl must be one of {', '.join(FORMS)}, got {impl!r}")


class MultiheadAttention(Headed):
    """MultiHead(q, k, v) = Concat(head_1 … head_nh) W_O,   head_i = softmax(Q_i K_iᵀ / √d_k + mask) V_i

    with Q_i = query W_Q^i, K_i = key W_K^i, V_i = value W_V^i. `impl` names the form, and may be changed at any time:

        "per_head"  the definition: a loop over heads, each with matrices of its own
        "batched"   one product for all heads, then reshape and transpose
        "fused"     as batched, but F.scaled_dot_product_attention never holds a whole pattern (T, S)

    All three have the same parameters and give the same outputs and gradients. The parameters are PyTorch's:
    in_proj_weight (3C, C), which is W_q, W_k and W_v one below the other, in_proj_bias (3C,) and out_proj. `head(i)`
    gives the matrices of a single head: rows i d_k … (i + 1) d_k of W_q are W_Q^i transposed.

    num_kv_heads: a divisor of num_heads. Groups of heads then share keys and values (Ainslie et al. 2023); with 1, all
    heads share them (Shazeer 2019). scale: replaces 1/√d_k. positions: "rotary", see nn.positions, or None. dropout:
    of the pattern.

    batch_first=True has to be said, since PyTorch's default is (T, B, C): inputs and output are (B, T, C) here. Raises
    TypeError without it, and ValueError for sizes and options that do not fit.

    head_gates, a Tensor (nh,) or None: factors of the heads' outputs. Set it to ones that require a gradient, and that
    gradient says how the loss changes with each head. It is not part of state_dict()."""

    head_gates: Tensor | None

    def __init__(self, embed_dim: int, num_heads: int, *, num_kv_heads: int | None = None, bias: bool = True,
                 dropout: float = 0.0, scale: float | None = None, impl: str = "fused", positions: str | None = None,
                 batch_first: bool | None = None, device: str | None = None,
                 dtype: DTypeLike = DEFAULT_FLOAT):  # fmt: skip
        if not batch_first:
            raise TypeError("attention takes inputs (B, T, C): say batch_first=True, and transpose (T, B, C)")
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(f"num_heads {num_heads} is not divisible by num_kv_heads {num_kv_heads}")
        if positions not in (None, "rotary"):
            raise ValueError(f"positions must be None or 'rotary', got {positions!r}")
        if positions == "rotary" and embed_dim // num_heads % 2:
            raise ValueError(f"rotary positions need an even head size, got {embed_dim // num_heads}")
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be between 0 and 1, got {dropout}")
        self.embed_dim = embed_dim
        self.d_k = self.d_v = embed_dim // num_heads
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.impl, self.scale, self.dropout, self.positions = impl, scale, dropout, positions
        self.register_buffer("head_gates", None, persistent=False)
        _check_form(impl)
        self.in_proj_weight = Parameter(empty(sum(self._weight_rows), embed_dim, **factory(device, dtype)))
        self.in_proj_bias = Parameter(empty(sum(self._weight_rows), **factory(device, dtype))) if bias else None
        self.out_proj = Linear(num_heads * self.d_v, embed_dim, bias=bias, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial weights, as PyTorch does: Xavier's uniform for the projections in, 0 for the biases."""
        init.xavier_uniform_(self.in_proj_weight)
        self.out_proj.reset_parameters()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)

    @property
    def kv_of_head(self) -> tuple[int, ...]:
        """Whose keys and values each head reads: those of a group are side by side."""
        return tuple(i * self.num_kv_heads // self.num_heads for i in range(self.num_heads))

    # -------------------------------------------------------------------------------------------------------- forward

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
                key_padding_mask: Tensor | None = None, need_weights: bool = False, attn_mask: Tensor | None = None,
                average_attn_weights: bool = True, is_causal: bool = False, *,
                cache: KVCache | None = None) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """(output (B, T, C), pattern or None) of query (B, T, C), key and value (B, S, C).

        key defaults to query, value to key. Masks are those of torch.nn.MultiheadAttention: True in a bool mask means
        *not* to attend, a float mask is added to the scores; key_padding_mask is (B, S), attn_mask (T, S) or
        (B·nh, T, S). A query that sees nothing gives out_proj's bias, and no gradient. The pattern comes with
        need_weights: the mean over heads (B, T, S), or (B, nh, T, S) without average_attn_weights. Unlike in PyTorch,
        need_weights is False by default, and is_causal needs no attn_mask beside it.

        cache: a KVCache. The new keys and values are added to it, and the queries see all S that it then holds: masks
        must cover them, and is_causal counts the queries' positions from the cache's length before the call."""
        key = query if key is None else key
        value = key if value is None else value
        self._check(query, key, value)
        start = 0 if cache is None else cache.length
        mask, is_causal = as_one(query, key, attn_mask, key_padding_mask, is_causal, start, self.num_heads)
        form = self._form(need_weights)
        z, pattern = form(query, key, value, mask, is_causal, cache)  # (B, T, nh·d_v)
        y = self.out_proj(z)  # (B, T, C)
        if self._head_hooks:
            y = self._hooked(OUTPUT, y)  # (B, T, C)
        if not need_weights:
            return y, None
        return y, pattern.mean(1) if average_attn_weights else pattern

    def _per_head(self, query, key, value, mask, is_causal, cache):
        if cache is not None:
            raise ValueError("a cache needs impl 'batched' or 'fused'")
        W_q, W_k, W_v = (W.split(d) for W, (_, d) in zip(self.weights(), self.sizes))  # a piece for each head
        b_q, b_k, b_v = (None if b is None else b.split(d) for b, (_, d) in zip(self.biases(), self.sizes))
        zs, patterns = [], []
        for i, j in enumerate(self.kv_of_head):
            q = F.linear(query, W_q[i], b_q and b_q[i])  # (B, T, C) -> (B, T, d_k)
            k = F.linear(key, W_k[j], b_k and b_k[j])  # (B, S, C) -> (B, S, d_k)
            v = F.linear(value, W_v[j], b_v and b_v[j])  # (B, S, C) -> (B, S, d_v)
            if self.positions == "rotary":
                q, k = rotary(q), rotary(k)
            own_mask = None if mask is None else mask[:, min(i, mask.shape[1] - 1)]  # (B or 1, T, S)
            pattern = F.attention_pattern(q @ k.mT, own_mask, is_causal, self.score_scale)  # (B, T, S)
            z = F.dropout(pattern, self.dropout, self.training) @ v  # (B, T, d_v)
            zs.append(z if self.head_gates is None else z * self.head_gates[i])
            patterns.append(pattern)
        return cat(zs, dim=-1), stack(patterns, dim=1)  # (B, T, nh·d_v), (B, nh, T, S)

    def _batched(self, query, key, value, mask, is_causal, cache):
        query, key, value = map(self._hooked, INPUTS, (query, key, value))  # (B, T, C), (B, S, C) twice
        q, k, v = self._with_past(query, key, value, cache)
        q = self._hooked("q", q)  # (B, nh, T, d_k)
        k = self._hooked("k", self._for_each_head(k))  # (B, nh, S, d_k)
        v = self._hooked("v", self._for_each_head(v))  # (B, nh, S, d_v)
        qk = self._hooked("qk", q @ k.mT)  # (B, nh, T, S)
        pattern = self._hooked("pattern", F.attention_pattern(qk, mask, is_causal, self.score_scale))  # (B, nh, T, S)
        z = self._hooked("z", F.dropout(pattern, self.dropout, self.training) @ v)  # (B, nh, T, d_v)
        return self._side_by_side(z), pattern  # (B, T, nh·d_v), (B, nh, T, S)

    def _fused(self, query, key, value, mask, is_causal, cache):
        q, k, v = self._with_past(query, key, value, cache)  # (B, nh, T, d_k), (B, nkv, S, d_k), (B, nkv, S, d_v)
        dropout = self.dropout if self.training else 0.0
        z = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, self.score_scale, enable_gqa=True)
        return self._side_by_side(z), None  # (B, T, nh·d_v)

    def _with_past(self, query, key, value, cache):
        """q, k and v as _projected gives them, where k and v are all that the cache then holds."""
        if cache is None:
            return self._projected(query, key, value, 0)
        q, k, v = self._projected(query, key, value, cache.length)
        return q, *cache.append(k, v)

    def _projected(self, query, key, value, start):
        """q (B, nh, T, d_k), k (B, nkv, S, d_k) and v (B, nkv, S, d_v) of positions from `start` on."""
        nh, nkv = self.num_heads, self.num_kv_heads
        if query is key and key is value and self.d_k == self.d_v:
            qkv = F.linear(query, self.in_proj_weight, self.in_proj_bias)  # (B, T, (nh + 2 nkv)·d_k)
            q, k, v = F.split_heads(qkv, nh, nkv, nkv)  # (B, nh, T, d_k), (B, nkv, T, d_k), (B, nkv, T, d_k)
        else:
            inputs = zip((query, key, value), self.weights(), self.biases(), (nh, nkv, nkv))
            q, k, v = (F.split_heads(F.linear(x, W, b), n) for x, W, b, n in inputs)
        return (rotary(q, start), rotary(k, start), v) if self.positions == "rotary" else (q, k, v)

    def _for_each_head(self, x):
        """Keys or values (B, nkv, S, d), repeated for each head that reads them: (B, nh, S, d)."""
        if self.num_heads == self.num_kv_heads:
            return x
        return x[:, tensor(self.kv_of_head, device=x.device)]

    def _side_by_side(self, z):
        """(B, nh, T, d_v) -> (B, T, nh·d_v), each head multiplied by its gate."""
        if self.head_gates is not None:
            z = z * self.head_gates.reshape(-1, 1, 1)
        return F.merge_heads(z)

    # ------------------------------------------------------------------------------------------------- sizes

    @property
    def score_scale(self) -> float:
        """What the scores are multiplied by: `scale`, or 1/√d_k."""
        return (self.d_k or 1) ** -0.5 if self.scale is None else self.scale

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """(heads that it holds, rows of a head) of W_q, W_k and W_v."""
        return (self.num_heads, self.d_k), (self.num_kv_heads, self.d_k), (self.num_kv_heads, self.d_v)

    @property
    def _weight_rows(self):
        return [n * d for n, d in self.sizes]

    def weights(self) -> tuple[Any, ...]:
        """W_q (nh·d_k, C), W_k (nkv·d_k, C), W_v (nkv·d_v, C)."""
        return self.in_proj_weight.split(self._weight_rows)

    def biases(self) -> tuple[Any, ...]:
        """b_q (nh·d_k,), b_k (nkv·d_k,) and b_v (nkv·d_v,); None three times for a layer without."""
        return (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.split(self._weight_rows)

    def _form(self, need_weights):
        if self._head_hooks:
            return self._batched
        _check_form(self.impl)
        impl = _taken.get() or self.impl
        if need_weights and impl == "fused":
            warnings.warn("the fused form never holds the pattern: need_weights takes the batched one", stacklevel=4)
            return self._batched
        return getattr(self, f"_{impl}")

    def _check(self, query, key, value):
        for name, x, length in ("query", query, "T"), ("key", key, "S"), ("value", value, "S"):
            if x.ndim != 3 or x.shape[2] != self.embed_dim:
                raise ValueError(f"{name} must be (B, {length}, {self.embed_dim}), got shape {x.shape}")
        if query.shape[0] != key.shape[0] or key.shape[:2] != value.shape[:2]:
            raise ValueError(f"query {query.shape}, key {key.shape} and value {value.shape} do not fit each other")
        gates, shape = self.head_gates, (self.num_heads,)
        if gates is not None and (gates.shape != shape or gates.dtype != query.dtype):
            raise ValueError(f"head_gates must be {shape} of {query.dtype}, got {gates.shape} of {gates.dtype}")

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """An empty KVCache for `batch` sequences of up to `capacity` positions."""
        W = self.out_proj.weight
        return KVCache(batch, self.num_kv_heads, capacity, self.d_k, self.d_v, W.dtype, W.device)

    def extra_repr(self) -> str:
        shared = f", num_kv_heads={self.num_kv_heads}" if self.num_kv_heads != self.num_heads else ""
        about = f"{self.embed_dim}, num_heads={self.num_heads}{shared}, dropout={self.dropout}"
        return f"{about}, bias={self.in_proj_bias is not None}, {self.impl}"
