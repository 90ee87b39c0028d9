import pytest

from minigrad import backend

from ..devices import DEVICES, backend_of


@pytest.fixture(params=DEVICES)
def kernels(request, monkeypatch):
    """A backend whose steps can be captured, as what "cpu" means."""
    on = backend_of(request.param)
    monkeypatch.setattr(backend, "cpu", lambda: on)
    return on
