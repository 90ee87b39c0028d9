import pytest

from .heads import FORMS, layer


@pytest.fixture(params=FORMS)
def attention(request):
    return layer(impl=request.param)
