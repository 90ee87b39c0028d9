"""What the tests of capture share."""

import numpy as np
import pytest

supported = pytest.mark.needs("g++")


def same(x, y):
    """Are two Tensors equal in shape, dtype and every bit, any NaN being as good as any other?"""
    x, y = (a.detach().numpy() for a in (x, y))
    return x.shape == y.shape and x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
