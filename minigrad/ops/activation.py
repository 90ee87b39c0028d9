"""Activation functions: elementwise functions of one Tensor that networks use between their layers."""

import math

from ..autograd import FormulaOp, Op, Value, composite
from ..autograd.arguments import check_arguments
from ..autograd.cases import apart, case, uniform
from ..autograd.keywords import accepts_keywords_of_pytorch
from ..typing import T
from .args import also_in_place, refuse_bools, require_tensor, to_float
from .elementwise import log1p, of_input, of_output, unary
from .select import where

__all__ = ["elu", "gelu", "leaky_relu", "relu", "sigmoid", "silu", "softplus", "tanh"]


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
    forward, backward = of_input("silu", lambda dy, x: dy * ((s := x.sigmoid()) * (1.0 + x * (1.0 - s))))


class Gelu(Op):
    """y = x Φ(x), Φ the normal distribution function;   dx = dy (Φ(x) + x Φ'(x))

    approximate='tanh': Φ(x) ≈ (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2. Hendrycks and Gimpel, "Gaussian error linear
    units", 2016."""

    cases = [case((3, 4), approximate="none"), case((3, 4), approximate="tanh")]
    approximate: str

    def forward(self, x, approximate):
        self.save_inputs(x)
        return self.save_output(self.backend.gelu(x, approximate))

    def backward(self, dy: Value):
        (x,) = self.saved_inputs()
        return GeluBackward.apply(dy, x, self.saved_output().detach(), approximate=self.approximate)


class GeluBackward(FormulaOp):
    """dx = dy (Φ(x) + x Φ'(x)). y = gelu(x) comes from the forward; it is computed again if it is None."""

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


@check_arguments
def gelu(input: T, approximate: str = "none") -> T:
    """Return x Φ(x), the Gaussian error linear unit. approximate: 'none', which uses erf, or 'tanh'.

    Elementwise: of x's shape and dtype, or float32 of integers and bools. Raises ValueError for another approximate.

    Source: Hendrycks and Gimpel 2016."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return Gelu.apply(to_float(input), approximate=approximate)


tanh, sigmoid, silu = unary(Tanh), unary(Sigmoid), accepts_keywords_of_pytorch(unary(Silu))


@also_in_place
@check_arguments
def relu(input: T) -> T:
    """Return max(x, 0). Of x's shape and dtype; the gradient at 0 is 0. Raises TypeError for bools."""
    refuse_bools("relu", require_tensor("relu", input).dtype)
    return Relu.apply(input)


@composite(case((3, 4)), case(uniform((3, 4), -3, 3), beta=2.0, threshold=3.0))
def softplus(input: T, beta: float = 1.0, threshold: float = 20.0) -> T:
    """y = ln(1 + e^(beta x)) / beta, and x where beta x > threshold;   dx = dy σ(beta x)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""
    scaled = require_tensor("softplus", input) * beta
    large = scaled > threshold
    return where(large, input, log1p(where(large, 0.0, scaled).exp()) / beta)


@composite(case(apart((3, 4))), case(apart((3, 4)), alpha=0.5))
def elu(input: T, alpha: float = 1.0) -> T:
    """y = x where x > 0, else alpha (e^x - 1);   dx = dy, else dy alpha e^x

    Elementwise: of x's shape and float dtype, or float32 of integers and bools. Source: Clevert et al. 2015."""
    x = where(require_tensor("elu", input) > 0, 0.0, input)
    return where(input > 0, input, alpha * ((x.exp() + 1.0) * (x * 0.5).tanh()))  # e^x - 1 would lose digits


@composite(case(apart((3, 4))))
def leaky_relu(input: T, negative_slope: float = 0.01) -> T:
    """y = x where x > 0, else negative_slope x;   dx = dy, or negative_slope dy

    Elementwise: of x's shape and float dtype, or float32 of integers and bools. Source: Maas et al. 2013."""
    return where(require_tensor("leaky_relu", input) > 0, input, input * float(negative_slope))
