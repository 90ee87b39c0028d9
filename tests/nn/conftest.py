import pytest

from minigrad.gradcheck.probes import CHEAP

from .heads import FORMS, layer


@pytest.fixture
def probes(thorough):
    """Those of a layer. Its ops have all been probed by themselves."""
    return CHEAP if thorough else ()


@pytest.fixture(params=FORMS)
def attention(request):
    return layer(impl=request.param)
