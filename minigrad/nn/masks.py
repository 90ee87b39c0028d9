"""The masks of attention, with the conventions of PyTorch's layers, combined into one."""

import functools
import math
import operator

import numpy as np

from ..ops.public import where
from ..tensor import tensor


def combined_mask(query, key, attn_mask, key_padding_mask, is_causal, start, nh):
    """Return (mask, is_causal) for F.attention_pattern, from the arguments of MultiheadAttention.forward.

    start: the position of the first query, which is the number of keys in the cache. Raises ValueError for masks of
    another shape."""
    (B, T), S, masks = query.shape[:2], start + key.shape[1], []
    if attn_mask is not None:
        if attn_mask.shape not in ((T, S), (B * nh, T, S)):  # (B, T, S) could mean (nh, T, S)
            raise ValueError(f"attn_mask must be {(T, S)} or {(B * nh, T, S)}, got shape {attn_mask.shape}")
        masks.append(attn_mask.reshape(B, nh, T, S) if attn_mask.ndim == 3 else attn_mask)
    if key_padding_mask is not None:
        if key_padding_mask.shape != (B, S):
            raise ValueError(f"key_padding_mask must be {(B, S)}, got shape {key_padding_mask.shape}")
        masks.append(key_padding_mask.reshape(B, 1, 1, S))
    if is_causal and start and key.shape[1] > 1:  # a single query comes last and sees all keys
        masks.append(tensor(~np.tri(T, S, start, dtype=bool), device=query.device))
    return _merged(masks, query.dtype), is_causal and not start


def _merged(masks, dtype):
    """Return one mask with four dims for F.attention_pattern, in which True means to attend, or None without masks.

    masks: Tensors that broadcast to scores (B, nh, T, S): bool, where True means not to attend, or of `dtype`, the
    dtype of the scores, to which they are added. Raises TypeError for others."""
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
