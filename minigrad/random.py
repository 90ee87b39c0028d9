"""Random numbers for every device: a Philox stream whose whole state is two integers, (seed, offset)."""

import math

import numpy as np

from .backend import reference


class Generator:
    """A stream of random words. `state` is a dict of two ints: save it, set it, and the stream goes on the same."""

    def __init__(self, seed=0):
        self.seed, self.offset = 0, 0
        self.manual_seed(seed)

    def manual_seed(self, seed):
        """Start the stream of `seed` (any int) from its beginning."""
        self.seed, self.offset = int(seed) & 0xFFFFFFFFFFFFFFFF, 0
        return self

    @property
    def state(self):
        return {"seed": self.seed, "offset": self.offset}

    @state.setter
    def state(self, state):
        self.seed, self.offset = int(state["seed"]), int(state["offset"])

    def words(self, n, backend=reference):
        """The next n words, uint32, as an array of `backend`. Every call begins a fresh block of four."""
        offset, self.offset = self.offset, self.offset + -(-n // 4)
        return backend.random_words(self.seed, offset, n)

    # What follows is drawn on the host: parameters, batches and samples, where speed does not matter.

    def uniform(self, shape, dtype=np.float64):
        """Numbers in [0, 1): 53 random bits in float64, 24 otherwise (11 in float16)."""
        n, dtype = math.prod(shape), np.dtype(dtype)
        if dtype == np.float64:
            high, low = self.words(2 * n).reshape(-1, 2).T.astype(np.uint64)
            y = (((high << np.uint64(32)) | low) >> np.uint64(11)) * 2.0**-53
        else:
            bits = 11 if dtype == np.float16 else 24
            y = (self.words(n) >> np.uint32(32 - bits)).astype(dtype) * dtype.type(2.0**-bits)
        return y.reshape(shape)

    def normal(self, shape, dtype=np.float64):
        """Standard normal numbers by Box and Muller's transform, computed in float64."""
        n = math.prod(shape)
        u = self.uniform((2, -(-n // 2)))
        radius, angle = np.sqrt(-2 * np.log1p(-u[0])), 2 * np.pi * u[1]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n].reshape(shape).astype(dtype)

    def integers(self, low, high, shape):
        """int64 in [low, high), each equally likely to within 2^-53."""
        if high <= low:
            raise ValueError(f"no integers from {low} up to but not including {high}")
        return low + (self.uniform(shape) * (high - low)).astype(np.int64)

    def permutation(self, n):
        """A random order of range(n), int64."""
        return np.argsort(self.uniform((n,)), kind="stable")


default_generator = Generator()


def manual_seed(seed):
    """Seed the default generator, which initialisation, dropout and the random creation functions draw from."""
    return default_generator.manual_seed(seed)
