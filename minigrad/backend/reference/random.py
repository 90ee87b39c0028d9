"""Random numbers and dropout, from a Philox stream. `key` names the stream, `offset` its first block of four words."""

import math

import numpy as np

from ..philox import words as random_words


def random_bits(dtype):
    """How many random bits a number below 1 has."""
    return {"float64": 53, "float32": 24, "float16": 11}[np.dtype(dtype).name]


def random_uniform(key, offset, shape, dtype):
    """Numbers in [0, 1): 53 random bits (two words) in float64, 24 in float32, 11 in float16."""
    n, dtype, bits = math.prod(shape), np.dtype(dtype), random_bits(dtype)
    if dtype == np.float64:
        high, low = random_words(key, offset, 2 * n).reshape(-1, 2).T.astype(np.uint64)
        y = (((high << np.uint64(32)) | low) >> np.uint64(11)) * 2.0**-bits
    else:
        y = (random_words(key, offset, n) >> np.uint32(32 - bits)).astype(dtype) * dtype.type(2.0**-bits)
    return y.reshape(shape)


def random_normal(key, offset, shape, dtype):
    """Standard normal numbers by Box and Muller's transform, computed in float64."""
    n = math.prod(shape)
    u = random_uniform(key, offset, (2, -(-n // 2)), np.float64)
    radius, angle = np.sqrt(-2 * np.log1p(-u[0])), 2 * np.pi * u[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n].reshape(shape).astype(dtype)


def dropout_numbers(p):
    """(the least word that keeps its element, what kept elements are multiplied by)"""
    return int(p * 2**32), 1 / (1 - p) if p < 1 else 0.0


def dropout(x, p, key, offset):
    """(x mask, mask): mask holds 1 / (1 - p) with probability 1 - p, else 0, in x's dtype. A word decides for each
    element of x, in order."""
    threshold, scale = dropout_numbers(p)
    mask = np.multiply(random_words(key, offset, x.size).reshape(x.shape) >= threshold, x.dtype.type(scale))
    return x * mask, mask
