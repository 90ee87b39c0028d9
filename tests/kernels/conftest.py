import pytest

from minigrad.backend import reference

from .calls import kernels


@pytest.fixture
def quiet():
    """Silence NumPy's warnings of overflow and the like, as a primitive of the reference does."""
    with reference.quietly():
        yield


@pytest.fixture(params=["native", pytest.param("cuda", marks=pytest.mark.gpu)])
def on(request):
    return kernels(request.param)
