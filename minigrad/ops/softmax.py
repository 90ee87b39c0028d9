"""Softmax and its logarithm. The softmax of a slice that is all -∞ is zeros, never NaN."""

from ..autograd import FormulaOp, Op, Value
from ..autograd.arguments import check_arguments
from ..autograd.cases import Fixed, case
from ..typing import DTypeLike, T
from .args import float_dim

__all__ = ["log_softmax", "softmax"]

_INF = float("inf")


class Softmax(Op):
    """y = exp(x - max x) / Σ exp(x - max x) along dim;   dx = y (dy - Σ dy y)

    A slice that is all -∞ gives zeros, and zero gradients."""

    cases = [
        case((3, 5), dim=1),
        case((2, 4, 3), dim=1),
        case((2, 1), dim=1),
        case(Fixed([[0.3, -_INF, 1.1], [-_INF, -_INF, -_INF]]), dim=1),
    ]
    dim: int

    def forward(self, x, dim):
        return self.save_output(self.backend.softmax(x, dim))

    def backward(self, dy: Value):
        return SoftmaxBackward.apply(dy, self.saved_output(), dim=self.dim)


class SoftmaxBackward(FormulaOp):
    """dx = y (dy - Σ dy y) along dim, y the softmax"""

    cases = [case((3, 5), (3, 5), dim=1), case((2, 4, 3), (2, 4, 3), dim=1)]

    @staticmethod
    def formula(dy, y, dim):
        return y * (dy - (dy * y).sum(dim, keepdim=True))


@check_arguments
def softmax(input: T, dim: int = -1, dtype: DTypeLike | None = None) -> T:
    """Return e^x / Σ e^x along dim: positive numbers that sum to 1. Of x's shape and dtype; `dtype` casts x first.

    Raises TypeError unless that dtype is a float, and IndexError for a dim that x does not have."""
    input = input if dtype is None else input.to(dtype)
    dim = float_dim("softmax", input, dim)
    return Softmax.apply(input, dim=dim) if input.ndim else (input * 0.0).exp()


class LogSoftmax(Op):
    """y = x - ln Σ e^x along dim;   dx = dy - e^y Σ dy"""

    cases = [case((3, 5), dim=1), case((2, 4, 3), dim=1)]
    rounds_as = 1.0  # where one x is far above the others, y there is ln 1, the rest of a difference of numbers near 1
    dim: int

    def forward(self, x, dim):
        return self.save_output(self.backend.log_softmax(x, dim))

    def backward(self, dy: Value):
        return dy - self.saved_output().exp() * dy.sum(self.dim, keepdim=True)


@check_arguments
def log_softmax(input: T, dim: int = -1, dtype: DTypeLike | None = None) -> T:
    """Return the logarithm of softmax along dim, without underflow. Of x's shape and dtype; `dtype` casts x first.

    Raises TypeError unless that dtype is a float, and IndexError for a dim that x does not have."""
    input = input if dtype is None else input.to(dtype)
    dim = float_dim("log_softmax", input, dim)
    return LogSoftmax.apply(input, dim=dim) if input.ndim else input * 0.0
