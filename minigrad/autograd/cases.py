"""Inputs on which an op is checked, as data: `cases = [case((3, 5)), case((2, 4, 7), dim=1)]`.

Each positional argument of `case` describes one input. A shape means standard normal numbers. The functions below make
other kinds. A Python number or None is passed as it is, and a list is a list of inputs. Keyword arguments are the
parameters of the op.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    """A random input of a kind: "normal", "uniform", "apart", "integers" or "booleans"."""

    kind: str
    shape: Shape
    low: float = 0.0  # bounds of uniform numbers and integers
    high: float = 1.0

    def draw(self, rng: "np.random.Generator", dtype: Any) -> Any:
        """Return an array of random numbers; floats have this dtype."""
        size = int(np.prod(self.shape))
        if self.kind == "normal":
            return rng.standard_normal(self.shape).astype(dtype)
        if self.kind == "uniform":
            return rng.uniform(self.low, self.high, self.shape).astype(dtype)
        if self.kind == "apart":  # values at least 1/8 from each other and 1/16 from 0
            steps = np.where(np.arange(size) % 2, -1.0, 1.0) * (1 + np.arange(size)) / 8
            return rng.permutation(steps + 1 / 16 * np.sign(steps)).reshape(self.shape).astype(dtype)
        if self.kind == "integers":
            return rng.integers(int(self.low), int(self.high), self.shape)
        return rng.random(self.shape) < 0.6  # booleans

    def __repr__(self) -> str:
        bounds = f" {self.low:g}…{self.high:g}" if self.kind in ("uniform", "integers") else ""
        return f"{self.kind}{bounds} {self.shape}"


def normal(shape: Sequence[int]) -> Sample:
    """Standard normal numbers."""
    return Sample("normal", tuple(shape))


def uniform(shape: Sequence[int], low: float, high: float) -> Sample:
    """Numbers from low to high."""
    return Sample("uniform", tuple(shape), low, high)


def positive(shape: Sequence[int]) -> Sample:
    """Numbers from 0.5 to 2.5."""
    return uniform(shape, 0.5, 2.5)


def apart(shape: Sequence[int]) -> Sample:
    """Distinct numbers, none near 0: away from the kinks of max, relu and abs."""
    return Sample("apart", tuple(shape))


def integers(shape: Sequence[int], high: int, low: int = 0) -> Sample:
    """Ints from low to high - 1."""
    return Sample("integers", tuple(shape), low, high)


def booleans(shape: Sequence[int]) -> Sample:
    """Bools, of which 60 % are True."""
    return Sample("booleans", tuple(shape))


@dataclass(frozen=True)
class Fixed:
    """An input given by its values, such as a mask with an empty row, which random numbers hardly ever give."""

    values: object

    def draw(self, rng: "np.random.Generator", dtype: Any) -> Any:
        """Return the values as an array; floats have this dtype."""
        array = np.array(self.values)
        return array.astype(dtype) if array.dtype.kind == "f" else array


class Case:
    """One set of inputs and parameters of an op."""

    def __init__(self, inputs: tuple[Any, ...], params: dict[str, Any]):
        self.inputs, self.params = inputs, params

    def draw(self, rng: "np.random.Generator", dtype: Any = np.float64) -> list[Any]:
        """Return the inputs as NumPy arrays, floats in `dtype`. Numbers, None and other constants stay as they are."""
        return [self._draw(x, rng, dtype) for x in self.inputs]

    def _draw(self, x: Any, rng: "np.random.Generator", dtype: Any) -> Any:
        if isinstance(x, (Sample, Fixed)):
            return x.draw(rng, dtype)
        if isinstance(x, tuple):
            return normal(x).draw(rng, dtype)
        if isinstance(x, list):
            return [self._draw(item, rng, dtype) for item in x]
        return x

    def __repr__(self) -> str:
        parts = [repr(x) for x in self.inputs] + [f"{key}={value!r}" for key, value in self.params.items()]
        return f"case({', '.join(parts)})"


def case(*inputs: Any, **params: Any) -> Case:
    """Declare inputs for an op's checks: case((3, 5), dim=1) is op(x, dim=1) of an x (3, 5) of standard normal numbers.

    A number or None is passed as it is, and a list is a list of inputs. The functions of minigrad.autograd.cases make
    other inputs: positive, uniform, integers, booleans, apart and Fixed."""
    return Case(inputs, params)
