import pytest

from minigrad import backend
from minigrad.replay.addresses import AddressSpace

from ..devices import DEVICES, backend_of


@pytest.fixture(params=DEVICES)
def kernels(request, monkeypatch):
    """A backend whose steps can be captured, which the device "cpu" stands for during the test."""
    on = backend_of(request.param)
    monkeypatch.setattr(backend, "cpu", lambda: on)
    return on


@pytest.fixture(autouse=True)
def nothing_to_read(monkeypatch):
    """Let a read of a captured array end the process, since no test should cause one."""
    monkeypatch.setattr(AddressSpace, "protection", 0)
