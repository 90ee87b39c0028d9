"""Initial values: each function fills a tensor in place, without recording a gradient, and returns it.

Random ones draw from the default generator unless another is given, and take float Tensors only."""

import math
from typing import TypeVar

from ..autograd import current_modes, switched
from ..random import Generator, default_generator
from ..tensor import Tensor

__all__ = [
    "skipped", "constant_", "zeros_", "ones_", "uniform_", "normal_", "xavier_uniform_", "xavier_normal_",
    "kaiming_uniform_", "kaiming_normal_",
]  # fmt: skip

T = TypeVar("T", bound=Tensor)


class skipped(switched):
    """Within a with-block the random functions draw nothing and change nothing, for a model that loads its weights."""

    def __init__(self) -> None:
        super().__init__(skips_init=True)


def _fill(x, values):
    x.detach().copy_(values)
    return x


def constant_(tensor: T, val: float) -> T:
    """Fill a tensor of any shape with a number."""
    return _fill(tensor, val)


def zeros_(tensor: T) -> T:
    """Fill a tensor of any shape with 0."""
    return _fill(tensor, 0)


def ones_(tensor: T) -> T:
    """Fill a tensor of any shape with 1."""
    return _fill(tensor, 1)


def uniform_(tensor: T, a: float = 0.0, b: float = 1.0, generator: Generator | None = default_generator) -> T:
    """Fill a tensor of any shape with numbers uniform in [a, b). Raises TypeError unless it holds floats."""
    if not current_modes()["skips_init"]:
        tensor.detach().uniform_(a, b, generator=generator)
    return tensor


def normal_(tensor: T, mean: float = 0.0, std: float = 1.0, generator: Generator | None = default_generator) -> T:
    """Fill a tensor of any shape with normal numbers. Raises TypeError unless it holds floats."""
    if not current_modes()["skips_init"]:
        tensor.detach().normal_(mean, std, generator=generator)
    return tensor


def _fans(x):
    """Return (fan_in, fan_out) of a weight (out, in, …)."""
    if x.ndim < 2:
        raise ValueError(f"fan in and fan out need at least two dims, got shape {x.shape}")
    rest = math.prod(x.shape[2:])
    return x.shape[1] * rest, x.shape[0] * rest


def xavier_uniform_(tensor: T, gain: float = 1.0, generator: Generator | None = default_generator) -> T:
    """Fill a weight (out, in, …) with uniform numbers of variance gain² · 2 / (fan_in + fan_out).

    Raises ValueError for fewer than two dims. Source: Glorot and Bengio 2010."""
    bound = gain * math.sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: T, gain: float = 1.0, generator: Generator | None = default_generator) -> T:
    """Fill a weight (out, in, …) with normal numbers of variance gain² · 2 / (fan_in + fan_out).

    Raises ValueError for fewer than two dims. Source: Glorot and Bengio 2010."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans(tensor))), generator)


def kaiming_normal_(
    tensor: T, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = default_generator,
) -> T:  # fmt: skip
    """Fill a weight (out, in, …) with normal numbers of variance 2 / (1 + a²) / fan, for a layer before a leaky ReLU of
    slope a. With nonlinearity "relu", a counts as 0.

    mode: the fan, "fan_in" or "fan_out". Raises ValueError for fewer than two dims and for other words. Source: He et
    al. 2015."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def kaiming_uniform_(
    tensor: T, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = default_generator,
) -> T:  # fmt: skip
    """Fill a weight (out, in, …) with uniform numbers of the variance that kaiming_normal_ gives."""
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def _kaiming_std(x, a, mode, nonlinearity):
    if mode not in ("fan_in", "fan_out") or nonlinearity not in ("relu", "leaky_relu"):
        raise ValueError(f"mode is 'fan_in' or 'fan_out', nonlinearity '(leaky_)relu', got {mode!r}, {nonlinearity!r}")
    slope = a if nonlinearity == "leaky_relu" else 0.0
    return math.sqrt(2 / (1 + slope**2) / _fans(x)[mode == "fan_out"])
