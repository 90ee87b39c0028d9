"""The ways to run kernels."""

import functools
import types

import numpy as np
import pytest

from minigrad import backend
from minigrad.backend.launch import KernelBackend
from minigrad.backend.launch.source import source
from minigrad.backend.runners.native import Native

DEVICES = [pytest.param("native", marks=pytest.mark.needs("g++")), pytest.param("cuda", marks=pytest.mark.gpu)]


@functools.cache
def backend_of(name):
    if name == "native":
        return Native(any_size=True)  # kernels for small arrays too
    return backend.get("cuda")


class NoGpu(KernelBackend):
    """What a GPU would be asked to launch: each launch is checked, and nothing is computed. Arrays are NumPy's, of
    zeros."""

    def empty(self, shape, dtype):
        return np.zeros(shape, dtype)

    def pointer(self, x):
        return x.ctypes.data

    def spread(self, n):
        return min(3, -(-n // 64)), 64

    def kernel(self, file, entry, dtype):
        return types.SimpleNamespace(name=entry, text=source(file, dtype.name))

    def _start(self, *launch):
        pass
