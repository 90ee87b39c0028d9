"""Activation functions as layers, each named after its function in `functional`.

A Tensor of any shape gives one of the same shape and float dtype. All but the softmaxes are elementwise. A layer raises
what its function raises. `inplace` is accepted for PyTorch programs and ignored: the result is a new tensor."""

from typing import Any

from ..tensor import Tensor
from . import functional as F
from .module import Module


class _Activation(Module):
    """A function of one Tensor. `options` names the attributes that are passed to it."""

    function: Any = None
    options: tuple = ()

    def forward(self, x: Tensor) -> Tensor:
        return type(self).function(x, **{name: getattr(self, name) for name in self.options})

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.options)


class _Inplace(_Activation):
    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


class ReLU(_Inplace):
    """max(x, 0), elementwise"""

    function = staticmethod(F.relu)


class SiLU(_Inplace):
    """x σ(x), elementwise"""

    function = staticmethod(F.silu)


class GELU(_Activation):
    """x Φ(x), or its approximation by tanh with approximate="tanh", elementwise."""

    function, options = staticmethod(F.gelu), ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate


class LeakyReLU(_Activation):
    """x where x > 0, else negative_slope · x, elementwise. inplace is ignored, as in ReLU."""

    function, options = staticmethod(F.leaky_relu), ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = negative_slope


class ELU(_Activation):
    """x where x > 0, else alpha (e^x - 1), elementwise. inplace is ignored, as in ReLU."""

    function, options = staticmethod(F.elu), ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = alpha


class Softplus(_Activation):
    """ln(1 + e^(beta x)) / beta, elementwise: see F.softplus."""

    function, options = staticmethod(F.softplus), ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = beta, threshold


class Tanh(_Activation):
    """tanh x, elementwise"""

    function = staticmethod(F.tanh)


class Sigmoid(_Activation):
    """1 / (1 + e^-x), elementwise"""

    function = staticmethod(F.sigmoid)


class Softmax(_Activation):
    """Softmax along dim, of x's shape: see F.softmax."""

    function, options = staticmethod(F.softmax), ("dim",)

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim


class LogSoftmax(_Activation):
    """The logarithm of softmax along dim, of x's shape: see F.log_softmax."""

    function, options = staticmethod(F.log_softmax), ("dim",)

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim
