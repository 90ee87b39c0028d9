"""Initial values: each function fills a tensor in place, keeping its shape, dtype and place in memory, and returns it.
No gradient is recorded. Random ones use the default generator, unless given another, and take float Tensors only."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import numpy as np

from ..dtypes import float64
from ..ops.public import where
from ..random import Generator, default_generator
from ..tensor import Tensor, randn

__all__ = [
    "skipped", "constant_", "zeros_", "ones_", "uniform_", "normal_", "calculate_gain",
    "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "trunc_normal_", "orthogonal_",
]  # fmt: skip

T = TypeVar("T", bound=Tensor)

_skipping = ContextVar("skipping", default=False)


@contextmanager
def skipped() -> Iterator[None]:
    """Within a with-block no random numbers are drawn and values stay as they are: for a model that loads weights."""
    before = _skipping.set(True)
    try:
        yield
    finally:
        _skipping.reset(before)


def _fill(x, values):
    x.detach().copy_(values)
    return x


def constant_(tensor: T, val: float) -> T:
    """val everywhere in a tensor, of any shape. Returns it."""
    return _fill(tensor, val)


def zeros_(tensor: T) -> T:
    """0 everywhere in a tensor, of any shape. Returns it."""
    return _fill(tensor, 0)


def ones_(tensor: T) -> T:
    """1 everywhere in a tensor, of any shape. Returns it."""
    return _fill(tensor, 1)


def uniform_(tensor: T, a: float = 0.0, b: float = 1.0, generator: Generator | None = default_generator) -> T:
    """Uniform in [a, b), for a tensor of any shape. Returns it. Raises TypeError unless it holds floats."""
    if not _skipping.get():
        tensor.detach().uniform_(a, b, generator=generator)
    return tensor


def normal_(tensor: T, mean: float = 0.0, std: float = 1.0, generator: Generator | None = default_generator) -> T:
    """Normal, for a tensor of any shape. Returns it. Raises TypeError unless it holds floats."""
    if not _skipping.get():
        tensor.detach().normal_(mean, std, generator=generator)
    return tensor


def _fans(x):
    """(fan_in, fan_out) of a weight (out, in, …)."""
    if x.ndim < 2:
        raise ValueError(f"fan in and fan out need at least two dims, got shape {x.shape}")
    rest = math.prod(x.shape[2:])
    return x.shape[1] * rest, x.shape[0] * rest


def _fan(x, mode):
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', got {mode!r}")
    return _fans(x)[mode == "fan_out"]


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """What the standard deviation of weights is multiplied by, a float, so that values keep theirs through a function,
    one of torch's names, "relu", "tanh", … param: a leaky ReLU's slope, 0.01 if None. Raises ValueError for other
    names."""
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
    gains |= dict.fromkeys(("linear", "identity", "sigmoid"), 1.0)
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in gains:
        raise ValueError(f"nonlinearity must be one of {', '.join(gains)}, leaky_relu; got {nonlinearity!r}")
    return gains[nonlinearity]


def xavier_uniform_(tensor: T, gain: float = 1.0, generator: Generator | None = default_generator) -> T:
    """Uniform, of variance gain² · 2 / (fan_in + fan_out), for a weight (out, in, …). Returns it. Raises ValueError
    for fewer dims. Source: Glorot and Bengio 2010."""
    bound = gain * math.sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: T, gain: float = 1.0, generator: Generator | None = default_generator) -> T:
    """Normal, of variance gain² · 2 / (fan_in + fan_out), for a weight (out, in, …). Returns it. Raises ValueError for
    fewer dims. Source: Glorot and Bengio 2010."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans(tensor))), generator)


def kaiming_uniform_(
    tensor: T,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = default_generator,
) -> T:
    """Uniform, of variance gain² / fan, for a weight (out, in, …). Returns it. mode: "fan_in" or "fan_out"; gain: see
    calculate_gain; a: a leaky ReLU's slope. Raises ValueError for fewer dims or other words. Source: He et al. 2015."""
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: T,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = default_generator,
) -> T:
    """Normal, of variance gain² / fan, for a weight (out, in, …). Returns it. mode: "fan_in" or "fan_out"; gain: see
    calculate_gain; a: a leaky ReLU's slope. Raises ValueError for fewer dims or other words. Source: He et al. 2015."""
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


_RAREST = 1e-3  # of numbers that have to lie within trunc_normal_'s bounds, as those outside are drawn again


def trunc_normal_(
    tensor: T,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = default_generator,
) -> T:
    """Normal, but for numbers outside of [a, b], which are drawn again, for a tensor of any shape. Returns it. Raises
    ValueError if next to none, less than one in a thousand, would lie within."""

    def below(z):
        return 0.5 * math.erfc((mean - z) / (std * math.sqrt(2)))

    if not (std > 0 and below(b) - below(a) > _RAREST):
        raise ValueError(f"trunc_normal_: next to none of N({mean}, {std}²) lies in [{a}, {b}]")
    if _skipping.get():
        return tensor
    z = randn(tensor.shape, dtype=tensor.dtype, generator=generator).mul_(std).add_(mean)
    while (outside := (z < a).logical_or(z > b)).any():
        z = where(outside, randn(tensor.shape, dtype=tensor.dtype, generator=generator).mul_(std).add_(mean), z)
    return _fill(tensor, z)


def orthogonal_(tensor: T, gain: float = 1.0, generator: Generator | None = default_generator) -> T:
    """gain times a matrix with orthonormal rows, or columns if it has fewer, for a tensor (out, in, …) with the last
    dims as one. Returns it. Raises ValueError for fewer dims. Source: Saxe et al. 2014."""
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_ needs at least two dims, got shape {tensor.shape}")
    if _skipping.get() or not tensor.numel():
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = randn(max(rows, columns), min(rows, columns), dtype=float64, generator=generator).numpy()
    q, r = np.linalg.qr(drawn)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # else its distribution would depend on LAPACK's choice of signs
    return _fill(tensor, gain * (q.T if rows < columns else q).reshape(tensor.shape))
