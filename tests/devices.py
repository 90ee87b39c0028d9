"""The ways to run kernels, as a fixture: `device` is a backend, on which everything in the test is then computed."""

import functools

import pytest

from minigrad import backend
from minigrad.backend.runners.emulated import Emulated
from minigrad.backend.runners.native import Native

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


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    on = backend_of(request.param)
    if on.device == "cpu":  # what device="cpu" then means, for the creation functions too
        monkeypatch.setattr(backend, "cpu", lambda: on)
    return on
