import pytest

from minigrad.backend import reference

from .calls import kernels


@pytest.fixture
def quiet():
    """NumPy does not warn of overflow and the like, as within a primitive of the reference."""
    with reference.quietly():
        yield


@pytest.fixture(params=["native", pytest.param("cuda", marks=pytest.mark.gpu)])
def on(request):
    return kernels(request.param)
