"""Layer norm and RMS norm over the last dims. The ops work on rows (…, C); the public functions make such rows."""

import math

import numpy as np

from ..autograd import FormulaOp, Op, Value
from ..autograd.arguments import check_arguments
from ..autograd.cases import case
from ..typing import Size, T
from .args import require_float, shape_of
from .movement import reshape, reshape_if_needed

__all__ = ["layer_norm", "rms_norm"]


def _column_sums(x):
    """Return x (…, C) summed over all but the last dim: (C,)."""
    return x.sum(tuple(range(x.ndim - 1))) if x.ndim > 1 else x


class LayerNorm(Op):
    """y = w x̂ + b, x̂ = (x - mean) / σ, σ = √(var + eps) of each row of (…, C);
    dx = (dx̂ - mean dx̂ - x̂ mean(dx̂ x̂)) / σ, dx̂ = w dy, dw = Σ dy x̂, db = Σ dy

    Ba, Kiros and Hinton 2016."""

    cases = [
        case((2, 3, 5), (5,), (5,), eps=1e-5),
        case((3, 5), (5,), None, eps=1e-5),
        case((5,), None, None, eps=1e-3),
    ]
    rounds_inside = True  # x - mean
    eps: float

    def forward(self, x, weight, bias, eps):
        y, mean, rstd = self.backend.layer_norm(x, weight, bias, eps)
        self.save_inputs(x, weight)
        self.save(mean, rstd)
        return y

    def backward(self, dy: Value):
        x, weight = self.saved_inputs()
        return LayerNormBackward.apply(dy, x, weight, *self.saved(), eps=self.eps, wanted=self.needs)


class LayerNormBackward(FormulaOp):
    """dx = (dx̂ - mean dx̂ - x̂ mean(dx̂ x̂)) / √(var + eps), dx̂ = w dy;   dw = Σ dy x̂, db = Σ dy

    Outputs that are not wanted are None. mean and rstd come from the forward; they are computed again if None."""

    cases = [
        case((2, 2, 4), (2, 2, 4), (4,), None, None, eps=1e-5, wanted=(True, True, True)),
        case((3, 5), (3, 5), None, None, None, eps=1e-5, wanted=(True, False, False)),
    ]
    from_forward = (3, 4)
    rounds_inside = True

    def forward(self, dy, x, weight, mean, rstd, eps, wanted):
        self.save_inputs(dy, x, weight, mean, rstd)
        if mean is None:
            _, mean, rstd = self.backend.layer_norm(x, None, None, eps)
        return self.backend.layer_norm_backward(dy, x, weight, mean, rstd, wanted)

    @staticmethod
    def formula(dy, x, weight, mean, rstd, eps, wanted):
        # mean and rstd are computed again, from x: the second derivative passes through them
        centred = x - x.mean(-1, keepdim=True)
        rstd = ((centred * centred).mean(-1, keepdim=True) + eps).rsqrt()
        xhat = centred * rstd
        dxhat = dy if weight is None else dy * weight
        along_xhat = xhat * (dxhat * xhat).mean(-1, keepdim=True)
        dx = (dxhat - dxhat.mean(-1, keepdim=True) - along_xhat) * rstd
        return dx, _column_sums(dy * xhat), _column_sums(dy)


class RmsNorm(Op):
    """y = w x̂, x̂ = x / σ, σ = √(mean x² + eps) of each row of (…, C);
    dx = (dx̂ - x̂ mean(dx̂ x̂)) / σ, dx̂ = w dy, dw = Σ dy x̂

    Zhang and Sennrich 2019."""

    cases = [case((2, 3, 5), (5,), eps=1e-5), case((5,), None, eps=1e-3)]
    eps: float

    def forward(self, x, weight, eps):
        y, rstd = self.backend.rms_norm(x, weight, eps)
        self.save_inputs(x, weight)
        self.save(rstd)
        return y

    def backward(self, dy: Value):
        x, weight = self.saved_inputs()
        return RmsNormBackward.apply(dy, x, weight, *self.saved(), eps=self.eps, wanted=self.needs)


class RmsNormBackward(FormulaOp):
    """dx = (dx̂ - x̂ mean(dx̂ x̂)) / √(mean x² + eps), dx̂ = w dy;   dw = Σ dy x̂

    Outputs that are not wanted are None. rstd comes from the forward; it is computed again if None."""

    cases = [
        case((3, 5), (3, 5), (5,), None, eps=1e-5, wanted=(True, True)),
        case((3, 5), (3, 5), None, None, eps=1e-5, wanted=(True, False)),
    ]
    from_forward = (3,)

    def forward(self, dy, x, weight, rstd, eps, wanted):
        self.save_inputs(dy, x, weight, rstd)
        if rstd is None:
            _, rstd = self.backend.rms_norm(x, None, eps)
        return self.backend.rms_norm_backward(dy, x, weight, rstd, wanted)

    @staticmethod
    def formula(dy, x, weight, rstd, eps, wanted):
        # rstd is computed again, from x: the second derivative passes through it
        rstd = ((x * x).mean(-1, keepdim=True) + eps).rsqrt()
        xhat = x * rstd
        dxhat = dy if weight is None else dy * weight
        return (dxhat - xhat * (dxhat * xhat).mean(-1, keepdim=True)) * rstd, _column_sums(dy * xhat)


def _as_rows(name, x, normalized_shape, weight, bias=None):
    """Return x as (…, C), and weight and bias as (C,) or None, where C elements are normalised together."""
    shape = normalized_shape if type(normalized_shape) is tuple else shape_of(name, (normalized_shape,))
    require_float(name, x)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ValueError(f"{name}: input of shape {x.shape} does not end in normalized_shape {shape}")
    for what, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.shape != shape:
            raise ValueError(f"{name}: {what} of shape {parameter.shape} should have shape {shape}")
        if parameter is not None and parameter.dtype != x.dtype:
            raise TypeError(f"{name}: input is {x.dtype} but {what} is {parameter.dtype}; convert one with .to()")
    if len(shape) == 1:
        return x, weight, bias
    C = math.prod(shape)
    flat = [p if p is None else reshape(p, C) for p in (weight, bias)]
    return reshape(x, *x.shape[: -len(shape)], C), *flat


@check_arguments
def layer_norm(
    input: T, normalized_shape: Size, weight: T | None = None, bias: T | None = None, eps: float = 1e-05
) -> T:
    """Return input with each row scaled to mean 0 and (biased) variance 1, then times weight, plus bias. Same shape.

    The last dims of input, of normalized_shape (an int or a shape), make a row; weight and bias have that shape or are
    None. eps is added to the variance. Raises ValueError for other shapes, and TypeError unless all are floats of one
    dtype.

    Source: Ba, Kiros and Hinton 2016."""
    x, weight, bias = _as_rows("layer_norm", input, normalized_shape, weight, bias)
    return reshape_if_needed(LayerNorm.apply(x, weight, bias, eps=eps), input.shape)


@check_arguments
def rms_norm(input: T, normalized_shape: Size, weight: T | None = None, eps: float | None = None) -> T:
    """Return input with each row scaled to mean square 1, then times weight. Same shape.

    The last dims of input, of normalized_shape (an int or a shape), make a row; weight has that shape or is None. eps
    is added to the mean square; None stands for the dtype's machine epsilon, as in PyTorch. Raises ValueError for other
    shapes, and TypeError unless all are floats of one dtype. Source: Zhang and Sennrich 2019."""
    x, weight, _ = _as_rows("rms_norm", input, normalized_shape, weight)
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    return reshape_if_needed(RmsNorm.apply(x, weight, eps=eps), input.shape)
