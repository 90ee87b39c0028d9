"""Random numbers and dropout."""

import math

import numpy as np

from ..philox import words
from ..primitives import Primitives


class Random(Primitives):
    random_words = staticmethod(words)

    def random_uniform(self, draw, shape, dtype):
        n, dtype, bits = math.prod(shape), np.dtype(dtype), random_bits(dtype)
        if dtype == np.float64:
            high, low = self.random_words(draw, 2 * n).reshape(-1, 2).T.astype(np.uint64)
            y = (((high << np.uint64(32)) | low) >> np.uint64(11)) * 2.0**-bits
        else:
            y = (self.random_words(draw, n) >> np.uint32(32 - bits)).astype(dtype) * dtype.type(2.0**-bits)
        return y.reshape(shape)

    def random_normal(self, draw, shape, dtype):
        n = math.prod(shape)
        u = self.random_uniform(draw, (2, -(-n // 2)), np.float64)
        radius, angle = np.sqrt(-2 * np.log1p(-u[0])), 2 * np.pi * u[1]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n].reshape(shape).astype(dtype)

    def dropout(self, x, p, draw):
        threshold, scale = dropout_numbers(p)
        mask = np.multiply(self.random_words(draw, x.size).reshape(x.shape) >= threshold, x.dtype.type(scale))
        return x * mask, mask


def random_bits(dtype):
    """How many random bits a number below 1 has."""
    return {"float64": 53, "float32": 24, "float16": 11}[np.dtype(dtype).name]


def dropout_numbers(p):
    """(the least word that keeps its element, what kept elements are multiplied by)"""
    return int(p * 2**32), 1 / (1 - p) if p < 1 else 0.0
