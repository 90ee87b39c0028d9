import pytest

from minigrad.gradcheck.probes import CHEAP

from .heads import IMPLS, layer


@pytest.fixture
def how(thorough):
    """Options of gradcheck for a layer: no probes, since its ops are probed in their own tests."""
    return dict(mode="directional", probes=CHEAP) if thorough else dict(mode="directional", probes=(), directions=1)


@pytest.fixture(params=IMPLS)
def attention(request):
    return layer(impl=request.param)
