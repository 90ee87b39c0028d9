"""Parameters and gradients for the tests of optimizers."""

import numpy as np

import minigrad as mg


def leaf(*shape, dtype=mg.float64):
    return mg.randn(*shape, dtype=dtype, requires_grad=True)


def gradients(steps, shape):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape) for _ in range(steps)]
