"""Random numbers and dropout."""

import math

import numpy as np

from ..numpy.random import dropout_numbers, random_bits
from .elementwise import BOOL
from .launcher import Launcher
from .rules import EXACT, KERNEL, SAME_BITS

_FLOAT32, _FLOAT64, _UINT32 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint32)


class Random(Launcher):
    @SAME_BITS
    def random_words(self, draw, n):
        y = self.empty((n,), _UINT32)
        self._launch_words("words_kernel", _FLOAT32, n, draw, y, n)
        return y

    @EXACT
    def dropout(self, x, p, draw):
        x = self.compact(x)
        y, mask = self.empty(x.shape, x.dtype), self.empty(x.shape, x.dtype)
        threshold, scale = dropout_numbers(p)
        threshold = min(threshold, 0xFFFFFFFF)  # 2^32 where p = 1: the scale is 0 then
        self._launch_words("dropout_kernel", x.dtype, x.size, draw, y, mask, x, threshold, scale, x.size)
        return y, mask

    @SAME_BITS
    def dropout_mask(self, shape, p, draw):
        y = self.empty(shape, BOOL)
        self._launch_words("kept_kernel", _FLOAT32, y.size, draw, y, min(dropout_numbers(p)[0], 0xFFFFFFFF), y.size)
        return y

    @KERNEL
    def random_uniform(self, draw, shape, dtype):
        n, dtype = math.prod(shape), np.dtype(dtype)
        y = self.empty(shape, dtype)
        if dtype == _FLOAT64:
            self._launch_words("uniform_double_kernel", dtype, 2 * n, draw, y, n)
        else:
            self._launch_words("uniform_kernel", dtype, n, draw, y, random_bits(dtype), n)
        return y

    @KERNEL
    def random_normal(self, draw, shape, dtype):
        n, dtype = math.prod(shape), np.dtype(dtype)
        y = self.empty(shape, dtype)
        self._launch_words("normal_kernel", dtype, 2 * n, draw, y, n)
        return y

    def _launch_words(self, entry, dtype, words, draw, *args):
        self.launch_each(-(-words // 4), "random", entry, dtype, *self.random_stream(draw), *args)
