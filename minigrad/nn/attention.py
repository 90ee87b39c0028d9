"""Multi-head attention (Vaswani et al. 2017, section 3.2.2), in three implementations that compute the same."""

import warnings

from ..autograd import current_modes, switched
from ..dtypes import DEFAULT_FLOAT
from ..ops.public import cat, stack
from ..tensor import Tensor, empty, tensor
from ..typing import DTypeLike
from . import functional as F
from . import init
from .cache import KVCache
from .heads import INPUTS, OUTPUT, HeadAccess
from .layers import Linear
from .masks import combined_mask
from .module import Parameter, factory
from .positions import rotary

IMPLS = "per_head", "batched", "fused"


class MultiheadAttention(HeadAccess):
    """MultiHead(q, k, v) = Concat(head_1 … head_nh) W_O,   head_i = softmax(Q_i K_iᵀ / √d_k + mask) V_i

    with Q_i = query W_Q^i, K_i = key W_K^i, V_i = value W_V^i. `impl` may be changed at any time:

        "per_head"  the definition: a loop over heads, each with matrices of its own
        "batched"   one product for all heads, then reshape and transpose
        "fused"     as batched, but F.scaled_dot_product_attention never holds a whole pattern (T, S)

    All three have the same parameters and give the same outputs and gradients. The parameters are PyTorch's:
    in_proj_weight (3C, C), which is W_q, W_k and W_v one below the other, in_proj_bias (3C,) and out_proj. `head(i)`
    gives the matrices of a single head: rows i d_k … (i + 1) d_k of W_q are W_Q^i transposed.

    num_kv_heads: a divisor of num_heads. Groups of heads then share keys and values (Ainslie et al. 2023); with 1, all
    heads share them (Shazeer 2019). scale: replaces 1/√d_k. positions: "rotary", see nn.positions, or None. dropout:
    the probability that a number of the pattern is dropped in training.

    batch_first=True is required, since PyTorch's default is (T, B, C): inputs and output are (B, T, C) here. Raises
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
        _check_impl(impl)
        self.embed_dim = embed_dim
        self.d_k = self.d_v = embed_dim // num_heads
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.impl, self.scale, self.dropout, self.positions = impl, scale, dropout, positions
        self.register_buffer("head_gates", None, persistent=False)
        rows, place = sum(self._projected_sizes), factory(device, dtype)
        self.in_proj_weight = Parameter(empty(rows, embed_dim, **place))
        self.in_proj_bias = Parameter(empty(rows, **place)) if bias else None
        self.out_proj = Linear(num_heads * self.d_v, embed_dim, bias=bias, **place)
        self.reset_parameters()

    # -------------------------------------------------------------------------------------------- three implementations

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
                key_padding_mask: Tensor | None = None, need_weights: bool = False, attn_mask: Tensor | None = None,
                average_attn_weights: bool = True, is_causal: bool = False, *,
                cache: KVCache | None = None) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Return (output (B, T, C), pattern or None) of query (B, T, C), key and value (B, S, C).

        key defaults to query, value to key. Masks are those of torch.nn.MultiheadAttention: True in a bool mask means
        *not* to attend, a float mask is added to the scores; key_padding_mask is (B, S), attn_mask (T, S) or
        (B·nh, T, S). A query that sees no key gives out_proj's bias, and no gradient.

        With need_weights the pattern is returned too: the mean over heads (B, T, S), or (B, nh, T, S) without
        average_attn_weights. Unlike in PyTorch, need_weights is False by default, and is_causal needs no attn_mask.

        cache: a KVCache. The new keys and values are added to it, and the queries see all S that it then holds. Masks
        must cover these, and is_causal counts the queries' positions from the cache's length before the call."""
        key = query if key is None else key
        value = key if value is None else value
        self._check_inputs(query, key, value)
        start = 0 if cache is None else cache.length
        mask, is_causal = combined_mask(query, key, attn_mask, key_padding_mask, is_causal, start, self.num_heads)
        compute_heads = self._method_of_impl(need_weights)
        z, pattern = compute_heads(query, key, value, mask, is_causal, cache)  # (B, T, nh·d_v), (B, nh, T, S) or None
        y = self.out_proj(z)  # (B, T, C)
        if self._head_hooks:
            y = self._run_hooks(OUTPUT, y)  # (B, T, C)
        if not need_weights:
            return y, None
        return y, pattern.mean(1) if average_attn_weights else pattern

    def _per_head(self, query, key, value, mask, is_causal, cache):
        """impl "per_head": a loop over heads, as in the paper. Return z of all heads, and the pattern."""
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
        query, key, value = map(self._run_hooks, INPUTS, (query, key, value))  # (B, T, C), (B, S, C) twice
        q, k, v = self._project(query, key, value, cache)
        q = self._run_hooks("q", q)  # (B, nh, T, d_k)
        k = self._run_hooks("k", self._repeat_for_heads(k))  # (B, nh, S, d_k)
        v = self._run_hooks("v", self._repeat_for_heads(v))  # (B, nh, S, d_v)
        qk = self._run_hooks("qk", q @ k.mT)  # (B, nh, T, S)
        pattern = F.attention_pattern(qk, mask, is_causal, self.score_scale)  # (B, nh, T, S)
        pattern = self._run_hooks("pattern", pattern)  # (B, nh, T, S)
        z = self._run_hooks("z", F.dropout(pattern, self.dropout, self.training) @ v)  # (B, nh, T, d_v)
        return self._concatenate(z), pattern  # (B, T, nh·d_v), (B, nh, T, S)

    def _fused(self, query, key, value, mask, is_causal, cache):
        q, k, v = self._project(query, key, value, cache)  # (B, nh, T, d_k), (B, nkv, S, d_k), (B, nkv, S, d_v)
        dropout = self.dropout if self.training else 0.0
        z = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, self.score_scale, enable_gqa=True)
        return self._concatenate(z), None  # (B, T, nh·d_v)

    # ------------------------------------------------------------------------------------ steps that two of them share

    def _project(self, query, key, value, cache):
        """Return q (B, nh, T, d_k), k (B, nkv, S, d_k) and v (B, nkv, S, d_v). With a cache, k and v include the cached
        positions."""
        nh, nkv, start = self.num_heads, self.num_kv_heads, 0 if cache is None else cache.length
        if query is key and key is value and self.d_k == self.d_v:
            qkv = F.linear(query, self.in_proj_weight, self.in_proj_bias)  # (B, T, (nh + 2 nkv)·d_k)
            q, k, v = F.split_heads(qkv, nh, nkv, nkv)  # (B, nh, T, d_k), (B, nkv, T, d_k), (B, nkv, T, d_k)
        else:
            inputs = zip((query, key, value), self.weights(), self.biases(), (nh, nkv, nkv))
            q, k, v = (F.split_heads(F.linear(x, W, b), n) for x, W, b, n in inputs)
        if self.positions == "rotary":
            q, k = rotary(q, start), rotary(k, start)
        return (q, k, v) if cache is None else (q, *cache.append(k, v))

    def _repeat_for_heads(self, x):
        """Return keys or values (B, nkv, S, d) repeated for each head that reads them: (B, nh, S, d)."""
        if self.num_heads == self.num_kv_heads:
            return x
        return x[:, tensor(self.kv_of_head, device=x.device)]

    def _concatenate(self, z):
        """Multiply each head of z (B, nh, T, d_v) by its gate, and put the heads side by side: (B, T, nh·d_v)."""
        if self.head_gates is not None:
            z = z * self.head_gates.reshape(-1, 1, 1)
        return F.merge_heads(z)

    # ---------------------------------------------------------------------------------------------- parameters, sizes

    def reset_parameters(self) -> None:
        """Draw new initial weights, as PyTorch does: Xavier's uniform for the projections in, 0 for the biases."""
        init.xavier_uniform_(self.in_proj_weight)
        self.out_proj.reset_parameters()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)

    @property
    def kv_of_head(self) -> tuple[int, ...]:
        """For each head, the number of the keys and values that it reads. Heads of a group are neighbours."""
        return tuple(i * self.num_kv_heads // self.num_heads for i in range(self.num_heads))

    @property
    def score_scale(self) -> float:
        """The factor of the scores: `scale`, or 1/√d_k."""
        return (self.d_k or 1) ** -0.5 if self.scale is None else self.scale

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """(number of heads, rows of each) of W_q, W_k and W_v."""
        return (self.num_heads, self.d_k), (self.num_kv_heads, self.d_k), (self.num_kv_heads, self.d_v)

    @property
    def _projected_sizes(self):
        return [n * d for n, d in self.sizes]

    def weights(self) -> tuple[Tensor, ...]:
        """Return W_q (nh·d_k, C), W_k (nkv·d_k, C) and W_v (nkv·d_v, C)."""
        return self.in_proj_weight.split(self._projected_sizes)

    def biases(self) -> tuple[Tensor | None, ...]:
        """Return b_q (nh·d_k,), b_k (nkv·d_k,) and b_v (nkv·d_v,); three times None for a layer without biases."""
        return (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.split(self._projected_sizes)

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """Return an empty KVCache for `batch` sequences of up to `capacity` positions."""
        W = self.out_proj.weight
        return KVCache(batch, self.num_kv_heads, capacity, self.d_k, self.d_v, W.dtype, W.device)

    def extra_repr(self) -> str:
        shared = f", num_kv_heads={self.num_kv_heads}" if self.num_kv_heads != self.num_heads else ""
        about = f"{self.embed_dim}, num_heads={self.num_heads}{shared}, dropout={self.dropout}"
        return f"{about}, bias={self.in_proj_bias is not None}, {self.impl}"

    # --------------------------------------------------------------------------------------------------------- choices

    def _method_of_impl(self, need_weights):
        """Return the method that computes the heads: for the layer's impl, or one that the call needs instead."""
        if self._head_hooks:
            return self._batched
        _check_impl(self.impl)
        impl = current_modes()["impl"] or self.impl
        if need_weights and impl == "fused":
            warnings.warn("impl 'fused' never holds the pattern: need_weights takes 'batched'", stacklevel=4)
            return self._batched
        return getattr(self, f"_{impl}")

    def _check_inputs(self, query, key, value):
        for name, x, length in ("query", query, "T"), ("key", key, "S"), ("value", value, "S"):
            if x.ndim != 3 or x.shape[2] != self.embed_dim:
                raise ValueError(f"{name} must be (B, {length}, {self.embed_dim}), got shape {x.shape}")
        if query.shape[0] != key.shape[0] or key.shape[:2] != value.shape[:2]:
            raise ValueError(f"query {query.shape}, key {key.shape} and value {value.shape} do not fit each other")
        gates, shape = self.head_gates, (self.num_heads,)
        if gates is not None and (gates.shape != shape or gates.dtype != query.dtype):
            raise ValueError(f"head_gates must be {shape} of {query.dtype}, got {gates.shape} of {gates.dtype}")


class force_impl(switched):
    """Within a with-block, all layers that this thread runs compute as if their impl were this one. None: as their own
    impl says.

    Layers with head hooks are "batched" all the same. Raises ValueError for an unknown impl."""

    def __init__(self, impl: str | None) -> None:
        if impl is not None:
            _check_impl(impl)
        super().__init__(impl=impl)


def _check_impl(impl):
    if impl not in IMPLS:
        raise ValueError(f"impl must be one of {', '.join(IMPLS)}, got {impl!r}")
