"""PyTorch's arguments of modules, optimizers and grad(): taken where they mean something, else refused with a hint."""

import pytest

import minigrad as mg
from minigrad import nn


class Bare(nn.Module):
    pass


class Free(nn.Module):
    def __init__(self, **options):
        self.options = tuple(options)


def test_words_of_ones_own_are_taken():
    assert Free(sparse=True, reduce=1).options == ("sparse", "reduce")


X = mg.ones(2, requires_grad=True)
REFUSED = {
    "unexpected keyword argument 'biases'": lambda: nn.Linear(2, 2, biases=True),
    r"Bare\(\) takes no arguments": lambda: Bare(3),
    r"grad\(\) got an unexpected keyword argument 'graph'": lambda: mg.grad(X.sum(), X, graph=True),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused_says_so(words):
    with pytest.raises(TypeError, match=words):
        REFUSED[words]()
