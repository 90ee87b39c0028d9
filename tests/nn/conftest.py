import pytest

from minigrad.gradcheck.probes import CHEAP

from .heads import FORMS, layer


@pytest.fixture
def how(thorough):
    """Options of gradcheck for a layer, whose ops have been checked and probed by themselves."""
    return dict(mode="directional", probes=CHEAP) if thorough else dict(mode="directional", probes=(), directions=1)


@pytest.fixture(params=FORMS)
def attention(request):
    return layer(impl=request.param)
