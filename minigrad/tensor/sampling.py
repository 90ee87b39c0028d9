"""Functions that make tensors at random. All draw from `generator`, or from the one that manual_seed seeds."""

from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.arguments import check_arguments
from ..backend import get as get_backend
from ..dtypes import float32, int64
from ..random import Generator, default_generator
from ..typing import DTypeLike, Size
from .core import Tensor
from .creation import _finish, _sizes, from_backend


def _or_default(generator: Generator | None) -> Generator:
    """Return generator, or the default one for None."""
    if not isinstance(generator, Generator | None):
        raise TypeError(f"generator must be a minigrad.Generator or None, got {generator!r}")
    return default_generator if generator is None else generator


def _draw(
    name: str, draw: Any, shape: Any, dtype: Any, device: str, requires_grad: bool, generator: Generator | None
) -> Tensor:
    """Return numbers drawn by `draw`, a method of Generator, as a Tensor. name: of the public function."""
    dtype, backend = dtypes.as_dtype(dtype), get_backend(device)
    if dtype.kind != "f":
        raise TypeError(f"{name} makes floats, not {dtype}; for integers use randint")
    return from_backend(draw(_or_default(generator), shape, dtype, backend), backend, requires_grad)


@check_arguments
def rand(
    *size: Size, dtype: DTypeLike = float32, device: str = "cpu", requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return uniform numbers in [0, 1): rand(2, 3) or rand((2, 3)). Raises TypeError unless dtype is a float."""
    return _draw("rand", Generator.uniform, _sizes("rand", size), dtype, device, requires_grad, generator)


@check_arguments
def randn(
    *size: Size, dtype: DTypeLike = float32, device: str = "cpu", requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return standard normal numbers: randn(2, 3) or randn((2, 3)). Raises TypeError unless dtype is a float."""
    return _draw("randn", Generator.normal, _sizes("randn", size), dtype, device, requires_grad, generator)


@check_arguments
def randn_like(
    input: Tensor, dtype: DTypeLike | None = None, device: str | None = None, generator: Generator | None = None
) -> Tensor:
    """Return standard normal numbers of input's shape; of its dtype and device by default. Raises TypeError unless the
    dtype is a float."""
    dtype, device = dtype or input.dtype, device or input.device
    return _draw("randn_like", Generator.normal, input.shape, dtype, device, False, generator)


@check_arguments
def randint(
    low: int, high: Any = None, size: Any = None, *, dtype: DTypeLike = int64, device: str = "cpu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return integers in [low, high): randint(low, high, size), or randint(high, size), which begins at 0."""
    if size is None:
        high, size = None, high
    if size is None:
        raise TypeError("randint needs a size: randint(high, size) or randint(low, high, size)")
    if high is None:
        low, high = 0, low
    numbers = _or_default(generator).integers(low, high, _sizes("randint", (tuple(size),)))
    return _finish(np.asarray(numbers, dtypes.as_dtype(dtype)), device, False)


@check_arguments
def rand_like(
    input: Tensor, dtype: DTypeLike | None = None, device: str | None = None, generator: Generator | None = None
) -> Tensor:
    """Return uniform numbers in [0, 1) of input's shape; of its dtype and device by default. Raises TypeError unless
    the dtype is a float."""
    dtype, device = dtype or input.dtype, device or input.device
    return _draw("rand_like", Generator.uniform, input.shape, dtype, device, False, generator)


@check_arguments
def randint_like(
    input: Tensor, low: int, high: Any = None, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """Return integers in [low, high), or below low, of input's shape; of its dtype and device by default."""
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, input.shape, dtype=dtype or input.dtype, device=device or input.device)


@check_arguments
def randperm(n: int, device: str = "cpu", generator: Generator | None = None) -> Tensor:
    """Return range(n) in random order: (n,), int64."""
    return _finish(_or_default(generator).permutation(n), device, False)


@check_arguments
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, generator: Generator | None = None
) -> Tensor:
    """Return indices drawn in proportion to the rows of input, (n,) or (N, n): int64 (num_samples,) or (N,
    num_samples).

    Drawn on the host, in float64. Without replacement by the Gumbel trick: the num_samples largest of ln p + Gumbel
    noise. Raises ValueError for rows that are negative, not finite or all 0, and for more samples than there are."""
    p = input.detach().to("cpu").double().numpy()
    if p.ndim not in (1, 2) or not np.isfinite(p).all() or (p < 0).any() or (p.sum(-1) <= 0).any():
        raise ValueError(f"multinomial: each row of input, shape {input.shape}, must be finite, ≥ 0 and not all 0")
    if num_samples < 0:
        raise ValueError(f"multinomial: num_samples must not be negative, got {num_samples}")
    rows = np.atleast_2d(p)
    if replacement or num_samples == 1:
        cumulative = np.cumsum(rows, -1)
        u = _or_default(generator).uniform((len(rows), num_samples)) * cumulative[:, -1:]
        drawn = np.array([np.searchsorted(c, v, side="right") for c, v in zip(cumulative, u)])
    else:
        if num_samples > (rows > 0).sum(-1).min(initial=num_samples):
            raise ValueError(f"multinomial: {num_samples} samples without replacement, but fewer choices have p > 0")
        with np.errstate(divide="ignore"):
            keys = np.log(rows) - np.log(-np.log1p(-_or_default(generator).uniform(rows.shape)))
        drawn = np.argsort(-keys, -1, kind="stable")[:, :num_samples]
    return _finish(drawn.astype(np.int64).reshape(p.shape[:-1] + (num_samples,)), input.device, False)
