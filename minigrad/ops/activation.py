"""Activation functions."""

import math

from ..autograd import FormulaOp, Op
from ..autograd.cases import apart, case
from ..typing import T
from .args import floating
from .elementwise import of_output, unary
from .select import where

__all__ = ["gelu", "relu", "sigmoid", "silu", "tanh"]


class Tanh(Op):
    """y = tanh x;   dx = dy (1 - y²)"""

    cases = [case((3, 4))]
    forward, backward = of_output("tanh", lambda dy, y: dy * (1.0 - y * y))


class Sigmoid(Op):
    """y = 1 / (1 + e^-x);   dx = dy y (1 - y)"""

    cases = [case((3, 4))]
    forward, backward = of_output("sigmoid", lambda dy, y: dy * (y * (1.0 - y)))


class Relu(Op):
    """y = max(x, 0);   dx = 0 where x ≤ 0, else dy, also where x is NaN"""

    cases = [case(apart((3, 4)))]
    forward, backward = of_output("relu", lambda dy, y: where(y <= 0, 0.0, dy))


class Silu(Op):
    """y = x σ(x);   dx = dy σ (1 + x (1 - σ))"""

    cases = [case((3, 4))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.silu(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        s = x.sigmoid()
        return dy * (s * (1.0 + x * (1.0 - s)))


class Gelu(Op):
    """y = x Φ(x), Φ the normal distribution function; 'tanh': Φ ≈ (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.

    Hendrycks and Gimpel, "Gaussian error linear units", 2016."""

    cases = [case((3, 4), approximate="none"), case((3, 4), approximate="tanh")]

    def forward(self, x, approximate):
        self.save_inputs(x)
        return self.save_output(self.backend.gelu(x, approximate))

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return GeluBackward.apply(dy, x, self.saved_output().detach(), approximate=self.approximate)


class GeluBackward(FormulaOp):
    """dx = dy (Φ(x) + x Φ'(x)). y = gelu(x) comes from the forward; None: computed again."""

    cases = [case((3, 4), (3, 4), None, approximate="none"), case((3, 4), (3, 4), None, approximate="tanh")]
    from_forward = (2,)

    def forward(self, dy, x, y, approximate):
        self.save_inputs(dy, x, y)
        if y is None:
            y = self.backend.gelu(x, approximate)
        return self.backend.gelu_backward(dy, x, y, approximate)

    @staticmethod
    def formula(dy, x, y, approximate):
        if approximate == "tanh":
            a, b = 2 * math.sqrt(2 / math.pi), 0.044715
            cdf = (a * (x + b * x**3)).sigmoid()  # (1 + tanh(u)) / 2 = σ(2u), also where that is tiny
            return dy * (cdf + x * cdf * (1.0 - cdf) * a * (1.0 + 3 * b * x * x))
        cdf = 0.5 * (x * -math.sqrt(0.5)).erfc()
        return dy * (cdf + x * (-0.5 * x * x).exp() * (1 / math.sqrt(2 * math.pi)))


def gelu(input: T, approximate: str = "none") -> T:
    """x Φ(x), the Gaussian error linear unit; approximate is 'none' (by erf) or 'tanh'. Of x's shape and dtype, or
    float32 of integers and bools. Raises ValueError for another approximate.

    Source: Hendrycks and Gimpel 2016."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return Gelu.apply(floating(input), approximate=approximate)


tanh, sigmoid, silu = unary(Tanh), unary(Sigmoid), unary(Silu)


def relu(input: T) -> T:
    """max(x, 0). Of x's shape and dtype (of bools, int64); the gradient at 0 is 0."""
    return Relu.apply(input)
