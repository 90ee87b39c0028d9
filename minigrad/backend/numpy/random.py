"""Random numbers, and dropout, from Philox streams. Large arrays are filled AT_ONCE numbers at a time."""

import math

import numpy as np

from ..philox import AT_ONCE, Draw, doubles, words


class Random:
    """draw: the block (four words of 32 bits) of a Philox stream at which the random words begin."""

    random_words = staticmethod(words)  # (draw, n) -> (n,) uint32

    def random_uniform(self, draw, shape, dtype):
        """Numbers in [0, 1), of 53 random bits in float64, 24 in float32 and 11 in float16."""
        y = np.empty(math.prod(shape), dtype)
        for first in range(0, y.size, AT_ONCE):
            part = y[first : first + AT_ONCE]
            part[:] = _uniform(draw, first, part.size, y.dtype)
        return y.reshape(shape)

    def random_normal(self, draw, shape, dtype):
        """Standard normal numbers by Box and Muller's transform, computed in float64: pairs of uniform numbers become
        the first half of the result, the cosines, and its second half, the sines."""
        y = np.empty(math.prod(shape), dtype)
        pairs = -(-y.size // 2)
        cosines, sines = y[:pairs], y[pairs:]
        for first in range(0, pairs, AT_ONCE):
            n = min(AT_ONCE, pairs - first)
            radius = np.sqrt(-2 * np.log1p(-doubles(draw, first, n)))
            angle = 2 * np.pi * doubles(draw, pairs + first, n)
            for half, wave in (cosines, np.cos), (sines, np.sin):
                part = half[first : first + n]
                part[:] = (radius * wave(angle))[: part.size]  # an odd count has no last sine
        return y.reshape(shape)

    def dropout(self, x, p, draw):
        """(x mask, mask): mask holds 1 / (1 - p) with probability 1 - p, else 0, in x's dtype."""
        mask = np.multiply(self.dropout_mask(x.shape, p, draw), x.dtype.type(dropout_numbers(p)[1]))
        return x * mask, mask

    def dropout_mask(self, shape, p, draw):
        """bool: True where the mask of dropout() is not 0."""
        return self.random_words(draw, math.prod(shape)).reshape(shape) >= dropout_numbers(p)[0]


def _uniform(draw, first, n, dtype):
    """Numbers first to first + n - 1 of those that random_uniform draws: (n,). first: a multiple of 4."""
    if dtype == np.float64:
        return doubles(draw, first, n)
    bits, drawn = random_bits(dtype), words(Draw(draw.key, draw.offset + first // 4), n)
    return (drawn >> np.uint32(32 - bits)).astype(dtype) * dtype.type(2.0**-bits)


def random_bits(dtype):
    """The number of random bits in a number of [0, 1)."""
    return {"float64": 53, "float32": 24, "float16": 11}[np.dtype(dtype).name]


def dropout_numbers(p):
    """(the smallest word that keeps its element, the factor of kept elements)"""
    return int(p * 2**32), 1 / (1 - p) if p < 1 else 0.0
