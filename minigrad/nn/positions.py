"""Four ways to tell attention where a token stands. Without one, its output does not depend on the order of the keys.

learned      an Embedding of positions, added to the tokens
sinusoidal   fixed waves, added to the tokens (Vaswani et al. 2017, section 3.5)
rotary       queries and keys are rotated by angles that grow with the position (Su et al. 2021)
alibi        scores are lowered in proportion to the distance (Press, Smith and Lewis 2021)
"""

import functools
import math
from collections.abc import Sequence

import numpy as np

from ..dtypes import DEFAULT_FLOAT
from ..ops.public import cat
from ..tensor import Tensor, tensor
from ..typing import DTypeLike

__all__ = ["sinusoidal", "rotary", "alibi_slopes", "alibi"]


def sinusoidal(positions: Tensor, C: int, dtype: DTypeLike = DEFAULT_FLOAT) -> Tensor:
    """positions (…) ints -> (…, C): sin and cos of position / 10000^(2i / C), alternating."""
    i = np.arange(C)
    rates = tensor(10000.0 ** (-(i // 2 * 2) / C), device=positions.device)  # (C,), float64
    shift = tensor(i % 2 * (math.pi / 2), device=positions.device)  # cos x = sin(x + π/2)
    angles = positions.to(rates.dtype).unsqueeze(-1) * rates  # (…, C)
    return (angles + shift).sin().to(dtype)


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


def alibi_slopes(nh: int) -> list[float]:
    """The slope of each of nh heads, a list of nh floats: 2^(-8/nh), 2^(-16/nh), … if nh is a power of two. Otherwise,
    as in the paper, those of the next lower power of two, and then every other one of the next higher."""
    power = 2 ** int(math.log2(nh)) if nh else 0
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return slopes + [2 ** (-4 * (2 * i + 1) / power) for i in range(nh - power)]


def alibi(
    slopes: Sequence[float], T: int, S: int, start: int = 0, dtype: DTypeLike = DEFAULT_FLOAT, device: str = "cpu"
) -> Tensor:
    """-slope · |t - s| for queries at start … start + T - 1 and keys at 0 … S - 1: (nh, T, S), added to the scores."""
    distance = np.abs(np.arange(start, start + T)[:, None] - np.arange(S))  # (T, S)
    return tensor(-np.asarray(slopes, np.float64)[:, None, None] * distance, dtype=dtype, device=device)
