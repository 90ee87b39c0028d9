import pytest

from minigrad import backend
from minigrad.replay.addresses import AddressSpace

from ..devices import DEVICES, backend_of


@pytest.fixture(params=DEVICES)
def kernels(request, monkeypatch):
    """A backend whose steps can be captured, as what "cpu" means."""
    on = backend_of(request.param)
    monkeypatch.setattr(backend, "cpu", lambda: on)
    return on


@pytest.fixture(autouse=True)
def nothing_to_read(monkeypatch):
    """Reading a captured array ends the process: a test that does so has found a bug."""
    monkeypatch.setattr(AddressSpace, "protection", 0)
