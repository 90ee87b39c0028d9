"""Multi-head attention (Vaswani et al. 2017, section 3.2.2), in its batched form."""

import math

from ..creation import empty, zeros
from ..dtypes import DEFAULT_FLOAT
from . import functional as F
from . import init
from .layers import Linear
from .module import Module, Parameter


class MultiheadAttention(Module):
    """MultiHead(q, k, v) = Concat(head_1 … head_nh) W_O, head_i = softmax(Q_i K_iᵀ / √hs) V_i, hs = embed_dim / nh.

    One matrix holds W_Q, W_K and W_V of all heads, as in PyTorch: in_proj_weight (3C, C), in_proj_bias (3C,), and
    out_proj. Batch first: query (B, T, C), key and value (B, S, C)."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, dtype=DEFAULT_FLOAT):
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.in_proj_weight = Parameter(init.xavier_uniform_(empty(3 * embed_dim, embed_dim, dtype=dtype)))
        self.in_proj_bias = Parameter(zeros(3 * embed_dim, dtype=dtype)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        if bias:
            init.zeros_(self.out_proj.bias)

    def forward(self, query, key=None, value=None, key_padding_mask=None, need_weights=False, attn_mask=None,
                average_attn_weights=True, is_causal=False):  # fmt: skip
        """(output (B, T, C), pattern or None). key defaults to query, value to key.

        Masks as in torch.nn.MultiheadAttention: bool True means *not* to attend, float is added; key_padding_mask
        (B, S), attn_mask (T, S) or (B·nh, T, S). The pattern, with need_weights, is (B, T, S), the mean over heads, or
        (B, nh, T, S). Unlike torch, need_weights is False by default and is_causal needs no attn_mask beside it."""
        key = query if key is None else key
        value = key if value is None else value
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.ndim != 3 or x.shape[2] != self.embed_dim:
                raise ValueError(f"{name} must be (B, T, {self.embed_dim}), got shape {x.shape}")
        B, T, C = query.shape
        S, hs = key.shape[1], C // self.num_heads

        q, k, v = self._project(query, key, value)  # (B, T or S, nh, hs)
        q = q.transpose(1, 2)  # (B, nh, T, hs)
        k = k.transpose(1, 2)  # (B, nh, S, hs)
        v = v.transpose(1, 2)  # (B, nh, S, hs)

        mask = self._mask(attn_mask, key_padding_mask, B, T, S)
        if need_weights:
            pattern = F.attention_pattern(q @ k.mT, mask, is_causal, scale=hs**-0.5)  # (B, nh, T, S)
            z = F.dropout(pattern, self.dropout, self.training) @ v  # (B, nh, T, hs)
        else:
            dropout = self.dropout if self.training else 0.0
            z = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)  # (B, nh, T, hs)

        z = z.transpose(1, 2).reshape(B, T, C)  # heads side by side
        y = self.out_proj(z)  # (B, T, C)
        if not need_weights:
            return y, None
        return y, pattern.mean(1) if average_attn_weights else pattern

    def _project(self, query, key, value):
        """x W_Qᵀ, x W_Kᵀ, x W_Vᵀ for all heads; in self-attention with a single product."""
        C, nh, W, b = self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias
        if query is key and key is value:
            qkv = F.linear(query, W, b)  # (B, T, 3C)
            return qkv.reshape(*query.shape[:2], 3, nh, C // nh).unbind(2)
        weights, biases = W.split(C), (None,) * 3 if b is None else b.split(C)
        projected = (F.linear(x, Wx, bx) for x, Wx, bx in zip((query, key, value), weights, biases))
        return tuple(y.reshape(*y.shape[:2], nh, C // nh) for y in projected)

    def _mask(self, attn_mask, key_padding_mask, B, T, S):
        """Both masks as one for F.attention_pattern, where True means to attend."""
        masks = []
        if attn_mask is not None:
            per_head = attn_mask.ndim == 3 and attn_mask.shape[0] == B * self.num_heads
            masks.append(attn_mask.reshape(B, self.num_heads, T, S) if per_head else attn_mask)
        if key_padding_mask is not None:
            if key_padding_mask.shape != (B, S):
                raise ValueError(f"key_padding_mask must be {(B, S)}, got shape {key_padding_mask.shape}")
            masks.append(key_padding_mask.reshape(B, 1, 1, S))
        if not masks:
            return None
        if all(mask.dtype.kind == "b" for mask in masks):
            return ~masks[0] if len(masks) == 1 else ~(masks[0] | masks[1])
        dtype = self.out_proj.weight.dtype
        added = [
            zeros(m.shape, dtype=dtype, device=m.device).masked_fill(m, -math.inf) if m.dtype.kind == "b" else m
            for m in masks
        ]
        return added[0] if len(added) == 1 else added[0] + added[1]

    def extra_repr(self):
        bias = self.in_proj_bias is not None
        return f"{self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}, bias={bias}"
