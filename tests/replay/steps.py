"""What the tests of capture share."""

import numpy as np
import pytest

import minigrad as mg

supported = pytest.mark.needs("g++")


def same(x, y):
    """Are two Tensors equal in shape, dtype and every bit, any NaN being as good as any other?"""
    x, y = (a.detach().numpy() for a in (x, y))
    return x.shape == y.shape and x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f")


def numbers(*shape, seed=0):
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def count_runs(function):
    """The function captured, and a list that grows with each run of it in Python."""
    runs = []

    def counted(*args, **kwargs):
        runs.append(1)
        return function(*args, **kwargs)

    return mg.capture(counted), runs
