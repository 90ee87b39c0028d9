"""Random numbers and dropout, from a Philox stream. `key` names the stream, `offset` its first block of four words."""

import numpy as np

from ..reference.random import dropout_numbers, random_bits
from .base import Launcher, product

_FLOAT32, _FLOAT64, _UINT32 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint32)


class Random(Launcher):
    def random_words(self, key, offset, n):
        """n words of 32 random bits, uint32."""
        y = self.empty((n,), _UINT32)
        self._launch_words("words_kernel", _FLOAT32, n, y, key, offset, n)
        return y

    def dropout(self, x, p, key, offset):
        """(x mask, mask): mask holds 1 / (1 - p) with probability 1 - p, else 0, in x's dtype."""
        x = self.compact(x)
        y, mask = self.empty_like(x), self.empty_like(x)
        threshold, scale = dropout_numbers(p)
        threshold = min(threshold, 0xFFFFFFFF)  # 2^32 where p = 1: the scale is 0 then
        self._launch_words("dropout_kernel", x.dtype, x.size, y, mask, x, key, offset, threshold, scale, x.size)
        return y, mask

    def random_uniform(self, key, offset, shape, dtype):
        """Numbers in [0, 1): 53 random bits in float64, 24 in float32, 11 in float16."""
        n, dtype = product(shape), np.dtype(dtype)
        y = self.empty(shape, dtype)
        if dtype == _FLOAT64:
            self._launch_words("uniform_double_kernel", dtype, 2 * n, y, key, offset, n)
        else:
            self._launch_words("uniform_kernel", dtype, n, y, key, offset, random_bits(dtype), n)
        return y

    def random_normal(self, key, offset, shape, dtype):
        """Standard normal numbers, computed in float64."""
        n, dtype = product(shape), np.dtype(dtype)
        y = self.empty(shape, dtype)
        self._launch_words("normal_kernel", dtype, 2 * n, y, key, offset, n)
        return y

    def _launch_words(self, entry, dtype, words, *args):
        self.launch_each(-(-words // 4), "random", entry, dtype, *args)
