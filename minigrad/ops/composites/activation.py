"""Activations that have no kernels. A branch that is not taken is computed at 0, so that no ∞ reaches a gradient."""

from ...autograd import composite
from ...autograd.cases import apart, case, uniform
from ...typing import T
from ..activation import sigmoid, tanh
from ..args import numpy_names, one_dim, require_float
from ..movement import split
from ..reduce import sum as total
from ..select import clamp, where
from .functions import expm1, log1p
from .movement import broadcast_tensors
from .reduce import norm

__all__ = [
    "cosine_similarity", "elu", "glu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
    "normalize", "prelu", "relu6", "selu", "softplus",
]  # fmt: skip


@composite(case((3, 4)), case(uniform((3, 4), -3, 3), beta=2.0, threshold=3.0))
def softplus(input: T, beta: float = 1.0, threshold: float = 20.0) -> T:
    """y = ln(1 + e^(beta x)) / beta, and x where beta x > threshold;   dx = dy σ(beta x)

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""
    require_float("softplus", input)
    scaled = input * beta
    large = scaled > threshold
    return where(large, input, log1p(where(large, 0.0, scaled).exp()) / beta)


@composite(case(apart((3, 4))))
def logsigmoid(input: T) -> T:
    """y = ln σ(x) = -ln(1 + e^-x), without overflow;   dx = dy σ(-x)

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""
    require_float("logsigmoid", input)
    below = input < 0
    a, b = where(below, input, 0.0), where(below, 0.0, input)
    return where(below, a - log1p(a.exp()), -log1p((-b).exp()))


@composite(case(apart((3, 4))), case(apart((3, 4)), alpha=0.5))
def elu(input: T, alpha: float = 1.0) -> T:
    """y = x where x > 0, else alpha (e^x - 1);   dx = dy, else dy alpha e^x

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats. Source: Clevert et al. 2015."""
    require_float("elu", input)
    above = input > 0
    return where(above, input, alpha * expm1(where(above, 0.0, input)))


@composite(case(apart((3, 4))))
def selu(input: T) -> T:
    """y = 1.0507 elu(x, 1.67326), which keeps mean 0 and variance 1 (Klambauer et al., 2017)

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""
    return elu(input, 1.6732632423543772848170429916717) * 1.0507009873554804934193349852946


@composite(case(apart((3, 4))))
def leaky_relu(input: T, negative_slope: float = 0.01) -> T:
    """y = x where x > 0, else negative_slope x;   dx = dy, or negative_slope dy

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats. Source: Maas et al. 2013."""
    require_float("leaky_relu", input)
    return where(input > 0, input, input * negative_slope)


@composite(case((3, 4)))
def mish(input: T) -> T:
    """y = x tanh(softplus x) (Misra, 2019)

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""
    return input * tanh(softplus(input))


@composite(case(apart((3, 4))))
def relu6(input: T) -> T:
    """y = min(max(x, 0), 6);   dx = dy where 0 < x < 6, else 0

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""
    return hardtanh(input, 0.0, 6.0)


@composite(case(apart((3, 4))))
def hardtanh(input: T, min_val: float = -1.0, max_val: float = 1.0) -> T:
    """y = min(max(x, min_val), max_val);   dx = dy where min_val < x < max_val, else 0

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats, and ValueError if min_val is above
    max_val."""
    require_float("hardtanh", input)
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val {min_val} is above max_val {max_val}")
    y = clamp(input, min_val, max_val)
    return where((input == min_val) | (input == max_val), y.detach(), y)


@composite(case(uniform((3, 4), -9.0, 9.0)))
def hardsigmoid(input: T) -> T:
    """y = x / 6 + 1/2, limited to [0, 1]

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""
    require_float("hardsigmoid", input)
    return relu6(input + 3.0) / 6.0


@composite(case(uniform((3, 4), -9.0, 9.0)))
def hardswish(input: T) -> T:
    """y = x hardsigmoid x (Howard et al., 2019)

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""
    return input * hardsigmoid(input)


@composite(case(apart((2, 3, 4)), uniform((3,), 0.1, 0.5)), case(apart((3, 4)), uniform((1,), 0.1, 0.5)))
def prelu(input: T, weight: T) -> T:
    """y = x where x > 0, else weight x, with a weight (1,), or (C,) for x (N, C, …) (He et al., 2015)

    Of x's shape. Raises TypeError unless both hold floats, and ValueError for a weight of another shape."""
    require_float("prelu", input, weight)
    C = input.shape[1] if input.ndim > 1 else 1
    if weight.ndim > 1 or weight.numel() not in (1, C):
        raise ValueError(f"prelu: weight of shape {weight.shape} must be (1,) or ({C},) for x of shape {input.shape}")
    weight = weight.reshape(C, *[1] * (input.ndim - 2)) if weight.numel() > 1 else weight.reshape(())
    return where(input > 0, input, weight * input)


@numpy_names
@composite(case((3, 4)))
def glu(input: T, dim: int = -1) -> T:
    """y = a σ(b), a and b the halves of x along dim (Dauphin et al., 2016)

    Of half x's size there. Raises TypeError unless x holds floats, and ValueError if that size is odd."""
    require_float("glu", input)
    dim = one_dim("glu", input, dim)
    if input.ndim == 0 or input.shape[dim] % 2:
        raise ValueError(f"glu: dim {dim} of shape {input.shape} cannot be halved")
    a, b = split(input, [input.shape[dim] // 2] * 2, dim)
    return a * sigmoid(b)


@numpy_names
@composite(case((3, 4)), case((2, 3, 2), p=1.0, dim=-1))
def normalize(input: T, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> T:
    """y = x / max(‖x‖, eps), with the p-norm along dim (one or several)

    Of x's shape and dtype. Raises TypeError unless x holds floats."""
    return input / clamp(norm(input, p, dim, keepdim=True), eps)


@numpy_names
@composite(case((3, 4), (1, 4)))
def cosine_similarity(x1: T, x2: T, dim: int = 1, eps: float = 1e-08) -> T:
    """y = Σ x1 x2 / (max(‖x1‖, eps) max(‖x2‖, eps)) along dim

    x1 and x2 are broadcast; dim is dropped. Raises TypeError unless both hold floats, and ValueError for shapes that do
    not broadcast."""
    require_float("cosine_similarity", x1, x2)
    x1, x2 = (x / clamp(norm(x, 2, dim, keepdim=True), eps) for x in broadcast_tensors(x1, x2))
    return total(x1 * x2, dim)
