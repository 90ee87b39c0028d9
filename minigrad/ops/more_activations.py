"""Activation functions that are made of other ops. Those with ops of their own are in activation.py."""

import numpy as np

from ..autograd import Value, composite
from ..autograd.cases import apart, case, uniform
from .args import floating, one_dim, require_float
from .movement import chunk, stack
from .select import where


def softplus(x):
    x = floating(x)
    return stack([x, x.zeros_like()], 0).logsumexp(0)


@composite(case((3, 4)))
def logsigmoid(x):
    """ln σ(x) = -ln(1 + e^-x), exact for any x. Same shape and dtype."""
    return -softplus(-floating(x))


@composite(case((3, 4)))
def mish(x):
    """x tanh(ln(1 + e^x)). Same shape and dtype. Source: Misra 2020."""
    return x * softplus(x).tanh()


@composite(case(uniform((3, 4), -9.0, 9.0)))
def hardtanh(x, min_val=-1.0, max_val=1.0):
    """x limited to [min_val, max_val]. Same shape and dtype."""
    if min_val >= max_val:
        raise ValueError(f"hardtanh: min_val must be less than max_val, got {min_val} and {max_val}")
    return x.clamp(min_val, max_val)


@composite(case(uniform((3, 4), -9.0, 9.0)))
def relu6(x):
    """x limited to [0, 6]. Same shape and dtype."""
    return x.clamp(0, 6)


@composite(case(uniform((3, 4), -9.0, 9.0)))
def hardsigmoid(x):
    """x / 6 + 1/2, limited to [0, 1]. Same shape and dtype."""
    return (floating(x) * (1 / 6) + 0.5).clamp(0.0, 1.0)


@composite(case(uniform((3, 4), -9.0, 9.0)))
def hardswish(x):
    """x hardsigmoid(x). Same shape and dtype. Source: Howard et al. 2019."""
    return x * hardsigmoid(x)


@composite(case(apart((3, 4))))
def softsign(x):
    """x / (1 + |x|). Same shape and dtype."""
    return x / (1 + x.abs())


@composite(case((3, 4)), case((2, 6, 3), dim=1))
def glu(x, dim=-1):
    """a σ(b), where a and b are the halves of x along dim, whose size must be even. Source: Dauphin et al. 2017."""
    require_float("glu", x)
    if x.ndim == 0 or x.shape[one_dim("glu", x, dim)] % 2:
        raise ValueError(f"glu: dim {dim} of shape {x.shape} cannot be halved")
    a, b = chunk(x, 2, dim)
    return a * b.sigmoid()


@composite(case(apart((2, 3, 4)), uniform((3,), 0.1, 0.5)), case(apart((3, 4)), uniform((1,), 0.1, 0.5)))
def prelu(x, weight):
    """x where x > 0, else weight x. weight: (1,), or (C,) for x (N, C, …). Source: He et al. 2015."""
    require_float("prelu", x, weight)
    if not isinstance(weight, Value) or weight.ndim > 1:
        raise ValueError("prelu: weight must be a Tensor of shape (1,) or (C,)")
    if weight.numel() != 1:
        C = x.shape[1] if x.ndim > 1 else x.numel() if x.ndim else 1
        if weight.numel() != C:
            raise ValueError(f"prelu: {weight.numel()} weights do not fit {C} channels of x, shape {x.shape}")
        weight = weight.reshape(C, *[1] * max(x.ndim - 2, 0))
    return where(x > 0, x, weight * x)


@composite(case((3, 4), (3, 4)), case((2, 3, 4), (4,), dim=-1))
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """x1 · x2 / (|x1| |x2|) along dim, of Tensors that are broadcast. No length counts as less than eps."""
    require_float("cosine_similarity", x1, x2)

    def length(x):
        least = max(eps * eps, float(np.finfo(x.dtype).tiny))  # not 0, where the root has no gradient
        return (x * x).sum(dim).clamp(min=least).sqrt()

    return (x1 * x2).sum(dim) / (length(x1) * length(x2))
