"""Random numbers and dropout."""

import math

import numpy as np

from ..philox import AT_ONCE, Draw, words
from ..primitives import Primitives

_FLOAT64 = np.dtype(np.float64)


class Random(Primitives):
    random_words = staticmethod(words)

    def random_uniform(self, draw, shape, dtype):
        y = np.empty(math.prod(shape), dtype)
        for first in range(0, y.size, AT_ONCE):
            some = y[first : first + AT_ONCE]
            some[:] = _uniform(draw, first, some.size, y.dtype)
        return y.reshape(shape)

    def random_normal(self, draw, shape, dtype):
        y = np.empty(math.prod(shape), dtype)
        pairs = -(-y.size // 2)
        cosines, sines = y[:pairs], y[pairs:]
        for first in range(0, pairs, AT_ONCE):
            n = min(AT_ONCE, pairs - first)
            radius = np.sqrt(-2 * np.log1p(-_uniform(draw, first, n, _FLOAT64)))
            angle = 2 * np.pi * _uniform(draw, pairs + first, n, _FLOAT64)
            for half, wave in (cosines, np.cos), (sines, np.sin):
                some = half[first : first + n]
                some[:] = (radius * wave(angle))[: some.size]  # of an odd number of numbers, the last sine is not one
        return y.reshape(shape)

    def dropout(self, x, p, draw):
        threshold, scale = dropout_numbers(p)
        mask = np.multiply(self.random_words(draw, x.size).reshape(x.shape) >= threshold, x.dtype.type(scale))
        return x * mask, mask


def _uniform(draw, first, n, dtype):
    """Numbers first, …, first + n - 1 of those that random_uniform makes of a Draw: (n,)."""
    each = 2 if dtype == _FLOAT64 else 1  # words of a number
    block, skipped = divmod(each * first, 4)
    drawn = words(Draw(draw.key, draw.offset + block), skipped + each * n)[skipped:]
    if each == 2:  # 53 bits: nothing is rounded
        return drawn[::2] * 2.0**-32 + (drawn[1::2] >> np.uint32(11)) * 2.0**-53
    bits = random_bits(dtype)
    return (drawn >> np.uint32(32 - bits)).astype(dtype) * dtype.type(2.0**-bits)


def random_bits(dtype):
    """How many random bits a number below 1 has."""
    return {"float64": 53, "float32": 24, "float16": 11}[np.dtype(dtype).name]


def dropout_numbers(p):
    """(the least word that keeps its element, what kept elements are multiplied by)"""
    return int(p * 2**32), 1 / (1 - p) if p < 1 else 0.0
