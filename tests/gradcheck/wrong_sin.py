"""An op that is wrong by a factor, and float64 inputs to check it on."""

from functools import partial

import minigrad as mg


class WrongSin(mg.Op):
    """y = sin x;   dx = dy cos x, times `factor`, which should be 1"""

    def forward(self, x, factor):
        self.save_inputs(x)
        return self.backend.sin(x)

    def backward(self, dy):
        return dy * self.saved_inputs()[0].cos() * self.factor


wrong_sin = partial(WrongSin.apply, factor=1.001)


def data(*shape):
    return mg.randn(*shape, dtype=mg.float64)


def values(*numbers):
    return mg.tensor(numbers, dtype=mg.float64)
