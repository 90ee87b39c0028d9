"""Rotary positions: queries and keys are rotated by angles that grow with the position (Su et al. 2021)."""

import functools

import numpy as np

from ..ops.public import cat
from ..tensor import Tensor, tensor

__all__ = ["rotary"]


def rotary(x: Tensor, start: int | Tensor = 0, base: float = 10000.0) -> Tensor:
    """x (…, T, d), d even, at positions start … start + T - 1, with each pair (x_i, x_{i + d/2}) rotated by position ·
    base^(-2i / d) radians; the same shape and dtype. So q · k depends on the distance between the two, not on where
    they stand.

    start: an int, or, for T = 1, an int64 Tensor (1,), which is read on the device. Raises ValueError for an odd d."""
    T, d = x.shape[-2:]
    if d % 2:
        raise ValueError(f"rotary positions need an even head size, got {d}")
    if isinstance(start, Tensor):
        cos, sin = (factors.to(x.dtype) for factors in _turns_at(start, d, base))
    else:
        cos, sin = (tensor(table, dtype=x.dtype, device=x.device) for table in _turns(start, T, d, base))
    other = cat([x[..., d // 2 :], x[..., : d // 2]], -1)  # (…, T, d): the other number of each pair
    return x * cos + other * sin


def _turns_at(position, d, base):
    """What _turns gives for a position (1,) on the device: two float64 Tensors (1, d)."""
    rates = np.tile(base ** (-np.arange(0, d, 2) / d), 2)  # (d,)
    signs = np.repeat([-1.0, 1.0], d // 2)  # (d,)
    angles = position.double().unsqueeze(-1) * tensor(rates, device=position.device)  # (1, d)
    return angles.cos(), angles.sin() * tensor(signs, device=position.device)


@functools.lru_cache(16)  # queries and keys of all layers need the same
def _turns(start, T, d, base):
    """The factors of each number and of its partner in the rotation: two arrays (T, d), float64."""
    rates = base ** (-np.arange(0, d, 2) / d)  # (d / 2,)
    angles = np.arange(start, start + T)[:, None] * rates  # (T, d / 2)
    return np.concatenate([np.cos(angles)] * 2, -1), np.concatenate([-np.sin(angles), np.sin(angles)], -1)
