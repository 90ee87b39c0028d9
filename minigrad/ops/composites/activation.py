"""Activations that have no kernels. A branch that is not taken is computed at 0, so that no ∞ reaches a gradient."""

from ...autograd import composite
from ...autograd.cases import apart, case, uniform
from ...typing import T
from ..activation import sigmoid
from ..args import numpy_names, one_dim, require_float
from ..movement import split
from ..reduce import sum as total
from ..select import clamp, where
from .functions import expm1, log1p
from .movement import broadcast_tensors
from .reduce import norm

__all__ = ["cosine_similarity", "elu", "glu", "leaky_relu", "logsigmoid", "normalize", "prelu", "softplus"]  # fmt: skip


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
def leaky_relu(input: T, negative_slope: float = 0.01) -> T:
    """y = x where x > 0, else negative_slope x;   dx = dy, or negative_slope dy

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats. Source: Maas et al. 2013."""
    require_float("leaky_relu", input)
    return where(input > 0, input, input * negative_slope)


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
