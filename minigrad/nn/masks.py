"""The masks of attention, in the conventions of PyTorch's layers, combined into one."""

import functools
import math
import operator

import numpy as np

from ..ops.public import where
from ..tensor import tensor


def hidden_future(T, S, start=0, device="cpu"):
    """bool (T, S), True where key s comes after query t, whose position is start + t."""
    return tensor(~np.tri(T, S, start, dtype=bool), device=device)


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
