"""Random numbers: Philox streams, the same on every device. The state of a stream is two integers, seed and offset."""

import math
import operator
from reprlib import repr as shown
from typing import Any, Self

import numpy as np

from .backend import reference
from .backend.devices import device as named
from .backend.numpy import Numpy
from .backend.philox import Draw
from .base.capturing import refuse_within
from .base.locks import drawing
from .typing import Array, DTypeLike

__all__ = ["Generator", "default_generator", "manual_seed"]


class Generator:
    """A stream of random words. Setting `state`, a dict of two ints, to a saved one makes the same numbers follow.

    Setting it to anything else raises ValueError and changes nothing. device, 'cpu' or 'cuda', is accepted because
    PyTorch has it, and makes no difference."""

    def __init__(self, seed: int = 0, *, device: str = "cpu") -> None:
        named(device)
        self.seed, self.offset = 0, 0
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Self:
        """Start the stream of `seed`, any int, from its beginning. Returns this generator."""
        self.seed, self.offset = int(seed) & 0xFFFFFFFFFFFFFFFF, 0
        return self

    @property
    def state(self) -> dict[str, int]:
        """{"seed": …, "offset": …}, two ints. Can be set to a saved one."""
        return {"seed": self.seed, "offset": self.offset}

    @state.setter
    def state(self, state):
        try:
            seed, offset = state["seed"], state["offset"]
            is_state = len(state) == 2 and type(seed) is not bool and type(offset) is not bool
            seed, offset = operator.index(seed), operator.index(offset)
        except (KeyError, TypeError, IndexError):
            is_state = False
        if not (is_state and 0 <= seed < 2**64 and 0 <= offset < 2**62):
            raise ValueError(f"a random state is two integers, seed < 2^64 and offset < 2^62, not {shown(state)}")
        self.seed, self.offset = seed, offset

    def reserve(self, n: int) -> Draw:
        """Reserve the next n words of the stream for the caller. Returns a Draw, which says where they begin: always at
        a new block of four words."""
        refuse_within("drawing random numbers in an op")
        with drawing:
            offset, self.offset = self.offset, self.offset + -(-n // 4)
        return Draw(self.seed, offset, lambda: self.reserve(n))

    # A backend computes the numbers, which are an array of its own.

    def words(self, n: int, backend: Numpy = reference) -> Any:
        """Return the next n words: (n,), uint32."""
        return backend.random_words(self.reserve(n), n)

    def uniform(self, shape: tuple[int, ...], dtype: DTypeLike = np.float64, backend: Numpy = reference) -> Any:
        """Return numbers in [0, 1) as an array of a shape and float dtype, with 53 random bits in float64, 24 in
        float32 and 11 in float16."""
        n, dtype = math.prod(shape), np.dtype(dtype)
        return backend.random_uniform(self.reserve(2 * n if dtype == np.float64 else n), shape, dtype)

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike = np.float64, backend: Numpy = reference) -> Any:
        """Return standard normal numbers as an array of a shape and float dtype, by Box and Muller's transform in
        float64."""
        pairs = -(-math.prod(shape) // 2)
        return backend.random_normal(self.reserve(4 * pairs), shape, np.dtype(dtype))

    # The rest is for batches and samples, and is computed on the host.

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> Array:
        """Return int64 in [low, high), equally likely to within 2^-53. Raises ValueError if the range is empty."""
        if high <= low:
            raise ValueError(f"no integers from {low} up to but not including {high}")
        return low + (self.uniform(shape) * (high - low)).astype(np.int64)

    def permutation(self, n: int) -> Array:
        """Return range(n) in random order: (n,), int64."""
        return np.argsort(self.uniform((n,)), kind="stable")


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator with any int. Initialisation, dropout and the functions that make random tensors draw
    from it. Returns it."""
    return default_generator.manual_seed(seed)
