"""The masks of attention, in the conventions of PyTorch's layers, combined into one."""

import functools
import math
import operator

import numpy as np

from ..ops.public import where
from ..tensor import tensor


def as_one(query, key, attn_mask, key_padding_mask, is_causal, start, nh):
    """(mask, is_causal), as F.attention_pattern takes them, from what MultiheadAttention.forward was given. The queries
    (B, T, C) begin at position start, after as many keys as are in the cache. Raises ValueError for shapes."""
    (B, T), S, masks = query.shape[:2], start + key.shape[1], []
    if attn_mask is not None:
        if attn_mask.shape not in ((T, S), (B * nh, T, S)):  # (B, T, S) would be taken for a mask of each head
            raise ValueError(f"attn_mask must be {(T, S)} or {(B * nh, T, S)}, got shape {attn_mask.shape}")
        masks.append(attn_mask.reshape(B, nh, T, S) if attn_mask.ndim == 3 else attn_mask)
    if key_padding_mask is not None:
        if key_padding_mask.shape != (B, S):
            raise ValueError(f"key_padding_mask must be {(B, S)}, got shape {key_padding_mask.shape}")
        masks.append(key_padding_mask.reshape(B, 1, 1, S))
    if is_causal and start and key.shape[1] > 1:  # a single query stands last, and sees all keys
        masks.append(tensor(~np.tri(T, S, start, dtype=bool), device=query.device))
    return combined(masks, query.dtype), is_causal and not start


def combined(masks, dtype):
    """One mask of four dims for F.attention_pattern, in which True means to attend; None if there are no masks.

    masks: Tensors that broadcast to scores (B, nh, T, S), bool (True: do not attend) or of `dtype`, that of the scores,
    to which they are added. Raises TypeError for others."""
    for mask in masks:
        if mask.dtype.kind != "b" and mask.dtype != dtype:
            raise TypeError(f"attention: masks must be bool or {dtype} like the query, got {mask.dtype}")
    hidden = [mask for mask in masks if mask.dtype.kind == "b"]
    added = [mask for mask in masks if mask.dtype.kind != "b"]
    if not masks:
        return None
    if added:
        mask = functools.reduce(operator.add, added)
        if hidden:
            mask = where(functools.reduce(operator.or_, hidden), -math.inf, mask)
    else:
        mask = ~functools.reduce(operator.or_, hidden)
    return mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape)
