"""Helpers of the tests of kernels: they call primitives as kernels, where a backend might choose NumPy."""

import functools

import numpy as np
import pytest

from minigrad import backend
from minigrad.backend.runners.native import NativeKernels

from .on_gpu import OnGpu

DTYPES = [np.dtype(name) for name in ("float32", "float64", "float16", "int64", "bool")]
FLOATS = DTYPES[:3]
DEVICES = {"native": DTYPES[:2], "cuda": DTYPES}  # native leaves other dtypes to NumPy


@functools.cache
def kernels(name):
    return NativeKernels() if name == "native" else backend.get("cuda")


def on_each(names, cases):
    """Parametrize over devices and cases. A case is a tuple that ends in a dtype; a device gets those of its dtypes."""
    found = [
        pytest.param(device, *case, id="-".join([device, *(getattr(v, "name", str(v)) for v in case)]),
                     marks=[pytest.mark.gpu] if device == "cuda" else [])
        for device, dtypes in DEVICES.items() for case in cases if case[-1] in dtypes
    ]  # fmt: skip
    return pytest.mark.parametrize(("on", *names), found, indirect=["on"])


def call(on, function, *operands, **keywords):
    """The result of a primitive of `on` on NumPy arrays and numbers, as a NumPy array with the same strides."""
    y = getattr(OnGpu(on) if on.device == "cuda" else on, function)(*operands, **keywords)
    assert type(y) is np.ndarray
    return y


def hosted(name):
    """The kernels of 'native' or 'cuda', for NumPy arrays."""
    return NativeKernels() if name == "native" else OnGpu(backend.get("cuda"))


GPU = pytest.param("cuda", marks=pytest.mark.gpu)
