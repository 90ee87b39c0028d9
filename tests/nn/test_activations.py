"""Activation layers: each is its function, with the defaults and with the options that it is made with."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

X = mg.tensor(np.random.default_rng(0).standard_normal((4, 6)) * 5)
LAYERS = {  # each beside what it computes
    "ReLU": (nn.ReLU(), F.relu), "SiLU": (nn.SiLU(True), F.silu), "Tanh": (nn.Tanh(), F.tanh),
    "Sigmoid": (nn.Sigmoid(), F.sigmoid),
    "Softplus": (nn.Softplus(), F.softplus),
    "Softplus's options": (nn.Softplus(0.5, 1.0), lambda x: F.softplus(x, 0.5, 1.0)),
    "ELU": (nn.ELU(), F.elu), "ELU's alpha": (nn.ELU(0.3), lambda x: F.elu(x, 0.3)),
    "LeakyReLU": (nn.LeakyReLU(), F.leaky_relu),
    "LeakyReLU's slope": (nn.LeakyReLU(0.3), lambda x: F.leaky_relu(x, 0.3)),
    "LogSoftmax": (nn.LogSoftmax(0), lambda x: F.log_softmax(x, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_its_function(name):
    layer, function = LAYERS[name]
    y = layer(X).detach()
    assert y.dtype == mg.float64
    np.testing.assert_array_equal(y.numpy(), function(X).numpy())


def test_layers_is_complete():
    kinds = {kind for kind in vars(nn.activations).values() if isinstance(kind, type) and kind.__name__[0] != "_"}
    elsewhere = {nn.GELU, nn.Softmax, nn.Module, nn.Parameter, mg.Tensor}  # test_modules.py
    assert {kind for kind in kinds if issubclass(kind, nn.Module)} - elsewhere == {type(m) for m, _ in LAYERS.values()}
