"""Rotary positions: queries and keys are rotated by angles that grow with the position (Su et al. 2021)."""

import functools

import numpy as np

from ..ops.public import cat
from ..tensor import Tensor, tensor

__all__ = ["rotary"]


def rotary(x: Tensor, start: int = 0, base: float = 10000.0) -> Tensor:
    """Rotate each pair (x_i, x_{i + d/2}) of x (…, T, d), whose positions are start … start + T - 1, by position ·
    base^(-2i / d) radians. The result has the same shape and dtype. q · k then depends on the distance between a query
    and a key, not on where they stand. Raises ValueError for an odd d."""
    T, d = x.shape[-2:]
    if d % 2:
        raise ValueError(f"rotary positions need an even head size, got {d}")
    cos, sin = (tensor(table, dtype=x.dtype, device=x.device) for table in _rotations(start, T, d, base))
    other = cat([x[..., d // 2 :], x[..., : d // 2]], -1)  # (…, T, d): the other number of each pair
    return x * cos + other * sin


@functools.lru_cache(16)  # queries and keys of all layers need the same
def _rotations(start, T, d, base):
    """Return two float64 arrays (T, d): the factor of each number in its rotation, and the factor of its partner."""
    rates = base ** (-np.arange(0, d, 2) / d)  # (d / 2,)
    angles = np.arange(start, start + T)[:, None] * rates  # (T, d / 2)
    return np.concatenate([np.cos(angles)] * 2, -1), np.concatenate([-np.sin(angles), np.sin(angles)], -1)
