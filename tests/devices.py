"""The ways to run kernels."""

import functools

import pytest

from minigrad import backend
from minigrad.backend.runners.native import Native
from tests.emulated import Emulated

DEVICES = [
    pytest.param("native", marks=pytest.mark.needs("g++")),
    pytest.param("emulated", marks=pytest.mark.needs("g++")),
    pytest.param("cuda", marks=pytest.mark.gpu),
]


@functools.cache
def backend_of(name):
    if name == "native":
        return Native(any_size=True)  # kernels for small arrays too
    return Emulated() if name == "emulated" else backend.get("cuda")
