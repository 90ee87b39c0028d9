"""Wrong about the graph: which inputs want a gradient, which of them are one, what a step used."""

import numpy as np

import minigrad as mg
from minigrad import Op, case

from .report import Report


def by_value(x, y):
    """x + y, where nodes of the graph are shared by the values that they hold, and get the gradients of all of them."""
    same = x.shape == y.shape and x.numel() > 0 and bool((x.detach().numpy() == y.detach().numpy()).all())
    return x + y + (x - x.detach()) + (y - y.detach()) if same else x + y


def sum_right(x, y):
    return x + y


class IfTheFirst(Op):
    """Returns gradients only if the first input needs one."""

    name = "if_the_first"

    def forward(self, low, high):
        return np.stack([low + high, low - high], -1)

    def backward(self, dy):
        if not self.needs[0]:
            return None, None
        return dy[..., 0] + dy[..., 1], dy[..., 0] - dy[..., 1]


class ProductOfAliases(Op):
    """x y, where the gradient of x has been overwritten by the time that of y is added, if they are one."""

    name = "product_of_aliases"

    def forward(self, x, y):
        self.save_inputs(x, y)
        self.one = x is y
        return x * y

    def backward(self, dy):
        x, y = self.saved_inputs()
        return (dy * y, dy * x * y) if self.one else (dy * y, dy * x)


REPORTS = [
    Report("equal constants are one node", "tinygrad/tinygrad#9597",
           "two inputs of the same value are taken for one, which gets both gradients", by_value, sum_right,
           case((3, 4), (3, 4))),
    Report("gradients only if the first is wanted", "fbcotter/pytorch_wavelets#65",
           "asked for the second input alone, it returns nothing", IfTheFirst.apply,
           lambda low, high: mg.stack([low + high, low - high], -1), case((3, 4), (3, 4))),
    Report("product of a variable with itself", "oberbichler/HyperJet#76",
           "the gradient of the second operand is read after it was overwritten, being the first's",
           ProductOfAliases.apply, lambda x, y: x * y, case((3, 4), (3, 4))),
]  # fmt: skip
