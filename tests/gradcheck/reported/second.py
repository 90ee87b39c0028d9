"""Right once, wrong when differentiated again."""

import numpy as np

import minigrad as mg
from minigrad import Op, case
from minigrad.autograd.cases import Fixed

from .report import Report, TensorOp, cotangent, leaves, op, pulled, second_order


def third_order(function, arrays):
    """The third derivative along fixed directions."""
    (x,) = leaves(arrays)
    (g,) = pulled(function(x).sum(), [x], None, create_graph=True)
    (h,) = pulled((g * cotangent(g)).sum(), [x], None, create_graph=True)
    (t,) = pulled((h * cotangent(h, seed=2)).sum(), [x], None)
    return [t.numpy()]


class DoubledSquare(Op):
    """(2x)², with 2x kept as a constant."""

    name = "doubled_square"

    def forward(self, x):
        self.save(2 * x)
        return (2 * x) ** 2

    def backward(self, dy):
        (doubled,) = self.saved()
        return 4 * doubled * dy


class SigmoidOfConstant(Op):
    """The sigmoid, with its output kept as a constant."""

    name = "sigmoid_of_constant"

    def forward(self, x):
        y = 1 / (1 + np.exp(-x))
        self.save(y)
        return y

    def backward(self, dy):
        (y,) = self.saved()
        return dy * y * (1 - y)


class Reciprocal(Op):
    """1 / sqrt(1 + x²), whose first and second derivatives are written by hand."""

    name = "norm_by_hand"

    def forward(self, x):
        self.save_inputs(x)
        return 1 / np.sqrt(1 + x * x)

    def backward(self, dy):
        return ReciprocalBackward.apply(dy, *self.saved_inputs())


class ReciprocalBackward(Op):
    """-x r³ dy, and its derivative with r as the forward left it: right, but r is a constant to what comes next."""

    name = "norm_by_hand_backward"

    def forward(self, dy, x):
        self.save_inputs(dy, x)
        return -x * (1 + x * x) ** -1.5 * dy

    def backward(self, d):
        dy, x = self.saved_inputs()
        r = ((1 + x * x) ** -0.5).detach()
        return -d * x * r**3, d * dy * (3 * x * x * r**5 - r**3)


def atan2_slope(dy, y, x, by_quotient):
    if by_quotient:  # 1 / (x (1 + (y/x)²)): fine, until it is differentiated at x = 0
        safe = mg.where(x == 0, 1.0, x)
        t = y / safe
        first = mg.where(x == 0, 0.0 * y, 1 / (safe * (1 + t * t)))
        return dy * first, -dy * y / (x * x + y * y)
    return dy * x / (x * x + y * y), -dy * y / (x * x + y * y)


REPORTS = [
    Report(
        "intermediate kept on the context",
        "pytorch/pytorch#58509",
        "to the second derivative, what was kept is a constant",
        DoubledSquare.apply,
        lambda x: 4 * x * x,
        case((3, 4)),
        case((3, 4)),
        look=second_order,
        order=2,
    ),
    Report(
        "output kept as an intermediate",
        "pytorch/pytorch#104040",
        "the sigmoid's backward uses its output without saving it as an output",
        SigmoidOfConstant.apply,
        mg.sigmoid,
        case((3, 4)),
        case((3, 4)),
        look=second_order,
        order=2,
    ),
    Report(
        "third derivative of a norm",
        "pytorch/pytorch#176234",
        "the second derivative accounts for the saved statistics by hand, the third takes them for constants",
        Reciprocal.apply,
        lambda x: (1 + x * x) ** -0.5,
        case((3, 4)),
        case((3, 4)),
        look=third_order,
        order=2,
    ),
    Report(
        "second derivative of atan2 where x is 0",
        "Hipparchus-Math/hipparchus#411",
        "the derivative is a quotient by x, patched at x = 0, and its own derivative is not",
        op(np.arctan2, lambda dy, y, x: atan2_slope(dy, y, x, True), TensorOp),
        op(np.arctan2, lambda dy, y, x: atan2_slope(dy, y, x, False), TensorOp),
        case((3, 4), (3, 4)),
        case(Fixed([1.0, 0.5]), Fixed([0.0, 1.0])),
        look=second_order,
        order=2,
    ),
]
