"""Calling primitives as kernels, whatever a backend would choose: what the tests of single kernels share."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from minigrad import backend
from minigrad.backend.runners.native import NativeKernels
from tests.emulated import Emulated

from .on_gpu import OnGpu

DTYPES = [np.dtype(name) for name in ("float32", "float64", "float16", "int64", "bool")]
FLOATS = DTYPES[:3]
DEVICES = {"native": DTYPES[:2], "emulated": DTYPES, "cuda": DTYPES}  # native leaves other dtypes to NumPy


OTHER_ORDER = pytest.param("emulated 3", marks=pytest.mark.slow)  # of threads


@functools.cache
def kernels(name):
    if name == "cuda":
        return backend.get("cuda")
    on = NativeKernels() if name == "native" else Emulated(schedule=3)
    with ThreadPoolExecutor(2) as compilers:  # two at a time, before they are wanted one by one
        list(compilers.map(lambda dtype: on._load("elementwise", "where_kernel", dtype), DEVICES[name]))
    return on


def on_each(names, cases):
    """Parametrize over devices, and cases, tuples whose last is a dtype, of those that the device has kernels for."""
    found = [
        pytest.param(device, *case, id="-".join([device, *(getattr(v, "name", str(v)) for v in case)]),
                     marks=[pytest.mark.gpu] if device == "cuda" else [])
        for device, dtypes in DEVICES.items() for case in cases if case[-1] in dtypes
    ]  # fmt: skip
    return pytest.mark.parametrize(("on", *names), found, indirect=["on"])


def call(on, function, *operands, **keywords):
    """function of `on` on NumPy arrays and numbers -> a NumPy array, laid out as the operands and the result are."""
    y = getattr(OnGpu(on) if on.device == "cuda" else on, function)(*operands, **keywords)
    assert type(y) is np.ndarray
    return y


def hosted(name):
    """'native', 'emulated' (another order: 'emulated 3') or 'cuda': its kernels on NumPy arrays."""
    if name == "native":
        return NativeKernels()
    return OnGpu(backend.get("cuda")) if name == "cuda" else Emulated(int(name.partition(" ")[2] or 0))


GPU = pytest.param("cuda", marks=pytest.mark.gpu)
