"""Making tensors at random."""

import operator
from typing import Any

import numpy as np

from .. import backend, dtypes
from ..random import Generator, default_generator
from ..typing import DTypeLike, Size
from .core import Tensor
from .creation import _finish, _sizes, from_backend


def _or_default(generator: Generator | None) -> Generator:
    if not isinstance(generator, Generator | None):
        raise TypeError(f"generator must be a minigrad.Generator or None, got {generator!r}")
    return default_generator if generator is None else generator


def _drawn(
    name: str, draw: Any, shape: Any, dtype: Any, device: str, requires_grad: bool, generator: Generator | None
) -> Tensor:
    dtype, on = dtypes.as_dtype(dtype), backend.get(device)
    if dtype.kind != "f":
        raise TypeError(f"{name} makes floats, not {dtype}; for integers use randint")
    return from_backend(draw(_or_default(generator), shape, dtype, on), on, requires_grad)


def rand(
    *sizes: Size,
    size: Size | None = None,
    dtype: DTypeLike = dtypes.DEFAULT_FLOAT,
    device: str = "cpu",
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform in [0, 1). rand(2, 3) or rand((2, 3)). Raises TypeError for non-float dtypes."""
    shape = _sizes("rand", sizes, size)
    return _drawn("rand", Generator.uniform, shape, dtype, device, requires_grad, generator)


def randn(
    *sizes: Size,
    size: Size | None = None,
    dtype: DTypeLike = dtypes.DEFAULT_FLOAT,
    device: str = "cpu",
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Standard normal. randn(2, 3) or randn((2, 3)). Raises TypeError for non-float dtypes."""
    shape = _sizes("randn", sizes, size)
    return _drawn("randn", Generator.normal, shape, dtype, device, requires_grad, generator)


def rand_like(
    input: Tensor, dtype: DTypeLike | None = None, device: str | None = None, generator: Generator | None = None
) -> Tensor:
    """Uniform in [0, 1), of input's shape, dtype and device, or others. Raises TypeError for dtypes that are no
    floats."""
    return rand(input.shape, dtype=dtype or input.dtype, device=device or input.device, generator=generator)


def randn_like(
    input: Tensor, dtype: DTypeLike | None = None, device: str | None = None, generator: Generator | None = None
) -> Tensor:
    """Standard normal, of input's shape, dtype and device, or others. Raises TypeError for dtypes that are no
    floats."""
    return randn(input.shape, dtype=dtype or input.dtype, device=device or input.device, generator=generator)


def randint(
    low: int = 0,
    high: Any = None,
    size: Any = None,
    *,
    dtype: DTypeLike | None = None,
    device: str = "cpu",
    generator: Generator | None = None,
) -> Tensor:
    """Integers in [low, high), int64 or of a dtype: randint(low, high, size), or randint(high, size) from 0 on."""
    if size is None and not isinstance(high, int):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise TypeError(f"randint needs a size: randint(high, size) or randint(low, high, size), got {low}, {high}")
    numbers = _or_default(generator).integers(low, high, _sizes("randint", (tuple(size),)))
    return _finish(numbers.astype(dtypes.as_dtype(dtype or dtypes.int64), copy=False), device, False)


def normal(
    mean: Tensor | float = 0.0, std: Tensor | float = 1.0, size: Any = None, *,
    generator: Generator | None = None, **options: Any,
) -> Tensor:  # fmt: skip
    """Normal numbers of a mean and a standard deviation: two numbers and a size, or Tensors, which are broadcast.
    options: dtype, device and requires_grad, as of randn, where there is a size."""
    like = [x for x in (mean, std) if isinstance(x, Tensor)]
    if not like:
        if size is None:
            raise TypeError("normal of two numbers needs a size; for normal numbers in a Tensor, nn.init.normal_")
        wanted = options.pop("requires_grad", False)
        return (mean + std * randn(size, generator=generator, **options)).requires_grad_(wanted)
    if size is not None or options:
        raise TypeError("normal of Tensors takes no size, dtype or device: they are those of the Tensors")
    shape = np.broadcast_shapes(*(x.shape for x in like))
    return mean + std * randn(shape, dtype=like[0].dtype, device=like[0].device, generator=generator)


def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that input has there, or everywhere with probability p, else 0: of input's shape, dtype (a
    float) and device, without a gradient."""
    if p is not None and not 0 <= p <= 1:
        raise ValueError(f"bernoulli: p must lie in [0, 1], got {p}")
    input = input.detach()
    return (rand_like(input, generator=generator) < (input if p is None else p)).to(input.dtype)


def randperm(n: int, device: str = "cpu", generator: Generator | None = None) -> Tensor:
    """range(n) in random order: (n,), int64."""
    return _finish(_or_default(generator).permutation(operator.index(n)), device, False)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, generator: Generator | None = None
) -> Tensor:
    """Indices drawn in proportion to the rows of input, (n,) or (N, n), each ≥ 0 -> (num_samples,) or (N, num_samples).

    On the host, in float64. Without replacement by the Gumbel trick: the num_samples largest of ln p + Gumbel noise."""
    p = input.detach().to("cpu").double().numpy()
    if p.ndim not in (1, 2) or not np.isfinite(p).all() or (p < 0).any() or (p.sum(-1) <= 0).any():
        raise ValueError(f"multinomial: each row of input, shape {input.shape}, must be finite, ≥ 0 and not all 0")
    rows = np.atleast_2d(p)
    if replacement or num_samples == 1:
        cumulative = np.cumsum(rows, -1)
        u = _or_default(generator).uniform((len(rows), num_samples)) * cumulative[:, -1:]
        found = np.stack([np.searchsorted(c, v, side="right") for c, v in zip(cumulative, u)])
    else:
        if num_samples > ((rows > 0).sum(-1)).min():
            raise ValueError(f"multinomial: {num_samples} samples without replacement, but fewer choices have p > 0")
        with np.errstate(divide="ignore"):
            keys = np.log(rows) - np.log(-np.log1p(-_or_default(generator).uniform(rows.shape)))
        found = np.argsort(-keys, -1, kind="stable")[:, :num_samples]
    return _finish(found.astype(np.int64).reshape(p.shape[:-1] + (num_samples,)), input.device, False)
