"""Wrong about the graph: which inputs want a gradient, which of them are one, what a step used."""

import numpy as np

import minigrad as mg
from minigrad import Op, case
from minigrad.autograd.cases import Fixed

from .report import Report, cotangent, leaves, mistake, only, pulled


def by_value(x, y):
    """x + y, where nodes of the graph are shared by the values that they hold, and get the gradients of all of them."""
    same = x.shape == y.shape and x.numel() > 0 and bool((x.detach().numpy() == y.detach().numpy()).all())
    return x + y + (x - x.detach()) + (y - y.detach()) if same else x + y


def sum_right(x, y):
    return x + y


def loop(x, w, steps=3):
    for i in range(steps):
        x = x * (w + i)
    return x


def loop_backward(dy, x, w, last):
    factors = [w + i for i in range(3)]
    if last:  # each step's backward sees the loop's variables as they are at the end
        factors = [factors[-1]] * 3
    a, b, c = factors
    return dy * a * b * c, dy * x * (b * c + a * c + a * b)


class IfTheFirst(Op):
    """Returns gradients only if the first input needs one."""

    name = "if_the_first"

    def forward(self, low, high):
        return np.stack([low + high, low - high], -1)

    def backward(self, dy):
        if not self.needs[0]:
            return None, None
        return dy[..., 0] + dy[..., 1], dy[..., 0] - dy[..., 1]


class NothingForVectors(Op):
    """A matrix-vector product whose rule leaves the vector out, since in isolation it is not wanted."""

    name = "nothing_for_vectors"

    def forward(self, a, v):
        self.save_inputs(a, v)
        return a @ v

    def backward(self, dy):
        _, v = self.saved_inputs()
        return dy.reshape(-1, 1) * v.reshape(1, -1), v.zeros_like()


def report(name, source, wrong, bug, right, natural, targeted=None, **rest):
    return Report(name, source, wrong, bug, right, natural, targeted or natural, **rest)


def aliased(function, arrays):
    """The gradient of function(x, x), of the first array."""
    x, _ = leaves(arrays)
    y = function(x, x)
    return [g.numpy() for g in pulled(y, [x], cotangent(y))]


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


class OuterOfItself(Op):
    """x @ y.T, where what the transpose sends back is lost if it is the same array."""

    name = "outer_of_itself"

    def forward(self, x, y):
        self.save_inputs(x, y)
        self.one = np.shares_memory(x, y)
        return x @ y.T

    def backward(self, dy):
        x, y = self.saved_inputs()
        return dy @ y, (x.zeros_like() if self.one else dy.T @ x)


REPORTS = [
    report(
        "equal constants are one node",
        "tinygrad/tinygrad#9597",
        "two inputs of the same value are taken for one, which gets both gradients",
        by_value,
        sum_right,
        case((3, 4), (3, 4)),
        case(Fixed([[3.0]]), Fixed([[3.0]])),
    ),
    mistake(
        "loop that remembers its last step",
        "PaddlePaddle/Paddle#27814",
        "the backward of every step uses the variables as the last one left them",
        lambda x, w: loop(x, w),
        lambda dy, x, w: loop_backward(dy, x, w, last=True),
        lambda dy, x, w: loop_backward(dy, x, w, last=False),
        case((3, 4), (3, 4)),
        case((3, 4), (3, 4)),
    ),
    report(
        "gradients only if the first is wanted",
        "fbcotter/pytorch_wavelets#65",
        "asked for the second input alone, it returns nothing",
        IfTheFirst.apply,
        lambda low, high: mg.stack([low + high, low - high], -1),
        case((3, 4), (3, 4)),
        look=only(1),
    ),
    report(
        "rule without the vector",
        "jax-ml/jax#17496",
        "no gradient for the vector: right alone, wrong in a chain",
        NothingForVectors.apply,
        lambda a, v: a @ v,
        case((3, 4), (4,)),
    ),
    Report(
        "product of a variable with itself",
        "oberbichler/HyperJet#76",
        "the gradient of the second operand is read after it was overwritten, being the first's",
        ProductOfAliases.apply,
        lambda x, y: x * y,
        case((3, 4), (3, 4)),
        case((3, 4), (3, 4)),
        look=aliased,
    ),
    Report(
        "product of a matrix with its transpose",
        "NervanaSystems/neon#169",
        "the gradient of x.T is not added to that of x",
        OuterOfItself.apply,
        lambda x, y: x @ y.T,
        case((3, 4), (2, 4)),
        case((3, 4), (3, 4)),
        look=aliased,
    ),
]
