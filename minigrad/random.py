"""Random numbers for every device: a Philox stream whose whole state is two integers, (seed, offset)."""

import math
import operator
from reprlib import repr as shown
from typing import Any, Self

import numpy as np

from .backend import reference
from .backend.devices import device as named
from .backend.philox import Draw
from .base.locks import drawing
from .base.recording import refuse_within
from .typing import Array, DTypeLike

__all__ = ["Generator", "default_generator", "manual_seed"]


class Generator:
    """A stream of random words. `state` is a dict of two ints: set a saved one again, and the same numbers follow.

    Setting anything else raises ValueError and changes nothing. device ('cpu' or 'cuda') makes no difference to
    the numbers."""

    def __init__(self, seed: int = 0, *, device: str = "cpu") -> None:
        named(device)
        self.seed, self.offset = 0, 0
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Self:
        """Start the stream of `seed` (any int) from its beginning. Returns itself."""
        self.seed, self.offset = int(seed) & 0xFFFFFFFFFFFFFFFF, 0
        return self

    @property
    def state(self) -> dict[str, int]:
        """{"seed": …, "offset": …}, two ints; may be set to a saved one."""
        return {"seed": self.seed, "offset": self.offset}

    @state.setter
    def state(self, state):
        try:
            seed, offset = state["seed"], state["offset"]
            right = len(state) == 2 and type(seed) is not bool and type(offset) is not bool
            seed, offset = operator.index(seed), operator.index(offset)
        except (KeyError, TypeError, IndexError):
            right = False
        if not (right and 0 <= seed < 2**64 and 0 <= offset < 2**62):
            raise ValueError(f"a random state is two integers, seed < 2^64 and offset < 2^62, not {shown(state)}")
        self.seed, self.offset = seed, offset

    def reserve(self, n: int) -> Draw:
        """Set n words of the stream aside for the caller. Returns a Draw, which says where they begin; every call
        begins a fresh block of four words."""
        refuse_within("drawing random numbers in an op")
        with drawing:
            offset, self.offset = self.offset, self.offset + -(-n // 4)
        return Draw(self.seed, offset, lambda: self.reserve(n))

    # `on` is the backend that computes the numbers, and whose array they come in.

    def words(self, n: int, on: Any = reference) -> Any:
        """The next n words: (n,), uint32."""
        return on.random_words(self.reserve(n), n)

    def uniform(self, shape: tuple[int, ...], dtype: DTypeLike = np.float64, on: Any = reference) -> Any:
        """Numbers in [0, 1), of a shape and float dtype, as an array: 53 random bits in float64, 24 otherwise (11 in
        float16)."""
        n, dtype = math.prod(shape), np.dtype(dtype)
        return on.random_uniform(self.reserve(2 * n if dtype == np.float64 else n), shape, dtype)

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike = np.float64, on: Any = reference) -> Any:
        """Standard normal numbers, of a shape and float dtype, as an array, by Box and Muller's transform in
        float64."""
        pairs = -(-math.prod(shape) // 2)
        return on.random_normal(self.reserve(4 * pairs), shape, np.dtype(dtype))

    # The rest is generated on the host: batches and samples, where speed does not matter.

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> Array:
        """int64 in [low, high), each equally likely to within 2^-53. Raises ValueError if the range is empty."""
        if high <= low:
            raise ValueError(f"no integers from {low} up to but not including {high}")
        return low + (self.uniform(shape) * (high - low)).astype(np.int64)

    def permutation(self, n: int) -> Array:
        """A random order of range(n), (n,), int64."""
        return np.argsort(self.uniform((n,)), kind="stable")


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, which initialisation, dropout and the random creation functions draw from, with any
    int. Returns it."""
    return default_generator.manual_seed(seed)
