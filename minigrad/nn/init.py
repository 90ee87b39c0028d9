"""Initial values: each function fills a tensor in place and returns it. Random ones use the default generator."""

import math
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from ..random import Generator, default_generator
from ..tensor import Tensor, rand, randn

__all__ = [
    "skipped", "passed_over", "constant_", "zeros_", "ones_", "uniform_", "normal_", "xavier_uniform_",
    "xavier_normal_", "kaiming_uniform_", "kaiming_normal_",
]  # fmt: skip

T = TypeVar("T", bound=Tensor)

_way = ContextVar("way", default="draw")


@contextmanager
def _instead(way):
    before = _way.set("skip" if _way.get() == "skip" else way)
    try:
        yield
    finally:
        _way.reset(before)


def skipped() -> AbstractContextManager[None]:
    """Within a with-block no random numbers are drawn and values stay as they are: for a model that loads weights."""
    return _instead("skip")


def passed_over() -> AbstractContextManager[None]:
    """Within a with-block values stay as they are, but the generator goes on as if they had been drawn: for a model
    that draws its own in the place of its layers', so that theirs need not be computed."""
    return _instead("pass over")


class _Nowhere:
    """In the place of a backend: numbers are reserved, but not computed."""

    @staticmethod
    def random_uniform(draw, shape, dtype):
        pass

    random_normal = random_uniform


def _fill(x, values):
    x.detach().copy_(values)
    return x


def constant_(x: T, value: float) -> T:
    """value everywhere."""
    return _fill(x, value)


def zeros_(x: T) -> T:
    """0 everywhere."""
    return _fill(x, 0)


def ones_(x: T) -> T:
    """1 everywhere."""
    return _fill(x, 1)


def _random(x, make, draw, scale, shift, generator):
    """x filled with scale · numbers + shift, where make(…) gives a Tensor of what draw(generator, …) computes."""
    way = _way.get()
    if way == "draw":
        return _fill(x, make(x.shape, dtype=x.dtype, generator=generator).mul_(scale).add_(shift))
    if way == "pass over":
        draw(default_generator if generator is None else generator, x.shape, x.dtype, _Nowhere)
    return x


def uniform_(x: T, a: float = 0.0, b: float = 1.0, generator: Generator | None = default_generator) -> T:
    """Uniform in [a, b)."""
    return _random(x, rand, Generator.uniform, b - a, a, generator)


def normal_(x: T, mean: float = 0.0, std: float = 1.0, generator: Generator | None = default_generator) -> T:
    """Normal."""
    return _random(x, randn, Generator.normal, std, mean, generator)


def _fans(x):
    """(fan_in, fan_out) of a weight (out, in, …)."""
    if x.ndim < 2:
        raise ValueError(f"fan in and fan out need at least two dims, got shape {x.shape}")
    rest = math.prod(x.shape[2:])
    return x.shape[1] * rest, x.shape[0] * rest


def xavier_uniform_(x: T, gain: float = 1.0) -> T:
    """Glorot and Bengio 2010: variance 2 / (fan_in + fan_out)."""
    bound = gain * math.sqrt(6 / sum(_fans(x)))
    return uniform_(x, -bound, bound)


def xavier_normal_(x: T, gain: float = 1.0) -> T:
    """Glorot and Bengio 2010: variance 2 / (fan_in + fan_out)."""
    return normal_(x, 0.0, gain * math.sqrt(2 / sum(_fans(x))))


def kaiming_uniform_(x: T, a: float = 0.0) -> T:
    """He et al. 2015: variance 2 / ((1 + a²) fan_in), for a leaky ReLU of slope a."""
    bound = math.sqrt(6 / ((1 + a * a) * _fans(x)[0]))
    return uniform_(x, -bound, bound)


def kaiming_normal_(x: T, a: float = 0.0) -> T:
    """He et al. 2015: variance 2 / ((1 + a²) fan_in), for a leaky ReLU of slope a."""
    return normal_(x, 0.0, math.sqrt(2 / ((1 + a * a) * _fans(x)[0])))
