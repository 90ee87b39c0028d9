"""What the tests of capture share."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn

supported = pytest.mark.needs("g++")


def same(x, y):
    """True if two Tensors are equal in shape, dtype and every bit. Any NaN equals any other."""
    x, y = (a.detach().numpy() for a in (x, y))
    return x.shape == y.shape and x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f")


def numbers(*shape, seed=0):
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def net(seed=0, inputs=6, hidden=10, outputs=3):
    mg.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


def batch(i, size=8, inputs=6, outputs=3):
    """x (size, inputs) and y (size, outputs), different for each i."""
    rng = np.random.default_rng(100 + i)
    return [mg.tensor(rng.standard_normal((size, n)).astype(np.float32)) for n in (inputs, outputs)]
