"""Functions of one number, beyond those that are primitives: each from these, without losing their digits."""

import math

import numpy as np

from ...autograd import Op, Value, composite
from ...autograd.cases import case, positive, uniform
from ...dtypes import float16
from ...typing import Operand, T
from ..args import check_broadcast, floating, promoted, require_float
from ..elementwise import div, log, pow, unary
from ..select import clamp, maximum, where
from .rounding import round

__all__ = [
    "acos", "addcdiv", "addcmul", "asin", "atan", "atan2", "cosh", "exp2", "expm1", "lerp", "log1p", "log2",
    "log10", "logaddexp", "logit", "nan_to_num", "reciprocal", "sinh", "square", "tan",
]  # fmt: skip


class Expm1(Op):
    """y = e^x - 1, accurate where that is tiny;   dx = dy e^x"""

    cases = [case((3, 4))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.expm1(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * x.exp()


class Log1p(Op):
    """y = ln(1 + x), accurate where x is tiny;   dx = dy / (1 + x)"""

    cases = [case(uniform((3, 4), -0.5, 2))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.log1p(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy / (x + 1.0)


class Atan(Op):
    """y = the angle whose tangent is x, in (-π/2, π/2);   dx = dy / (1 + x²)"""

    cases = [case((3, 4))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.atan(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy / (x * x + 1.0)


class Tan(Op):
    """y = sin x / cos x;   dx = dy (1 + y²)"""

    cases = [case(uniform((3, 4), -1.2, 1.2))]

    def forward(self, x):
        return self.save_output(self.backend.div(self.backend.sin(x), self.backend.cos(x)))

    def backward(self, dy):
        y = self.saved_output()
        return dy * (y * y + 1.0)


class Sinh(Op):
    """y = (e^x - e^-x) / 2;   dx = dy cosh x"""

    cases = [case((3, 4))]

    def forward(self, x):
        self.save_inputs(x)
        on = self.backend
        half = on.mul(on.abs(x), -0.5)  # of -|x| = 2a: sinh 2a = 2 sinh a cosh a, where neither is too large too soon
        e, less = on.exp(half), on.expm1(half)
        y = on.mul(on.add(less, on.div(less, e)), on.mul(on.add(e, on.div(1.0, e)), 0.5))
        return on.where(on.lt(x, 0.0), y, on.neg(y))

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * Cosh.apply(x)


class Cosh(Op):
    """y = (e^x + e^-x) / 2;   dx = dy sinh x"""

    cases = [case((3, 4))]

    def forward(self, x):
        self.save_inputs(x)
        on = self.backend
        e = on.exp(on.mul(on.abs(x), 0.5))  # its root: e^|x| may be twice the largest number
        return on.add(on.mul(on.mul(e, 0.5), e), on.div(on.div(0.5, e), e))

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * Sinh.apply(x)


class Asin(Op):
    """y = the angle whose sine is x, in [-π/2, π/2];   dx = dy / √(1 - x²)"""

    cases = [case(uniform((3, 4), -0.9, 0.9))]

    def forward(self, x):
        self.save_inputs(x)
        on = self.backend
        return on.atan(on.div(x, on.sqrt(on.mul(on.sub(1.0, x), on.add(x, 1.0)))))

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * ((1.0 - x) * (x + 1.0)).rsqrt()


class Acos(Op):
    """y = the angle whose cosine is x, in [0, π];   dx = -dy / √(1 - x²)"""

    cases = [case(uniform((3, 4), -0.9, 0.9))]

    def forward(self, x):
        self.save_inputs(x)
        on = self.backend
        return on.mul(on.atan(on.sqrt(on.div(on.sub(1.0, x), on.add(x, 1.0)))), 2.0)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return -dy * ((1.0 - x) * (x + 1.0)).rsqrt()


class Atan2(Op):
    """y = the angle of the point (b, a), in [-π, π];   da = dy b / (a² + b²), db = -dy a / (a² + b²) (0 at 0)"""

    cases = [case((2, 3), positive((2, 1))), case((3, 4), (4,))]
    broadcasts = True

    def forward(self, a, b):
        self.save_inputs(a, b)
        on = self.backend
        far, origin = on.logical_and(on.isinf(a), on.isinf(b)), on.logical_and(on.eq(a, 0.0), on.eq(b, 0.0))
        below, left = (on.lt(on.where(on.eq(v, 0.0), on.div(1.0, v), v), 0.0) for v in (a, b))  # also of -0.0
        y = on.atan(on.where(far, 1.0, on.where(origin, 0.0, on.div(on.abs(a), on.abs(b)))))
        y = on.where(left, on.sub(math.pi, y), y)
        return on.where(below, on.neg(y), y)

    def backward(self, dy):
        a, b = self.saved_inputs()
        size = maximum(a.abs(), b.abs()).detach()  # its square may be too small, or too large, for the dtype
        origin = size == 0
        size = where(origin, 1.0, size)
        a, b = a / size, b / size
        dy = dy / size / where(origin, 1.0, a * a + b * b)
        return dy * b if self.needs[0] else None, -dy * a if self.needs[1] else None


class Logaddexp(Op):
    """y = ln(e^a + e^b), without overflow;   da = dy e^(a - y), db = dy e^(b - y)   (0 where that one is -∞)"""

    cases = [case((3, 4), (4,)), case((2, 3), (2, 1))]
    broadcasts = True

    def forward(self, a, b):
        self.save_inputs(a, b)
        on = self.backend
        most = on.maximum(a, b)
        apart = on.where(on.eq(a, b), 0.0, on.abs(on.sub(a, b)))  # two equal infinities are not NaN apart
        return on.add(most, on.log1p(on.exp(on.neg(apart))))

    def backward(self, dy):
        a, b = self.saved_inputs()
        apart = where((a == b) & a.isinf(), 0.0, a - b)
        da = where(a == -math.inf, 0.0, dy * apart.sigmoid()) if self.needs[0] else None
        return da, where(b == -math.inf, 0.0, dy * (-apart).sigmoid()) if self.needs[1] else None


expm1, log1p, atan, tan, sinh, cosh, asin, acos = (
    unary(op) for op in (Expm1, Log1p, Atan, Tan, Sinh, Cosh, Asin, Acos)
)


def atan2(input: T, other: Operand) -> T:
    """The angle of the point (other, x), in [-π, π]. Tensors, promoted and broadcast; integers as float32.

    Raises TypeError for a number beside a Tensor, and ValueError for shapes that do not broadcast."""
    input, other = promoted("atan2", input, other)
    if not (isinstance(input, Value) and isinstance(other, Value)):
        raise TypeError("atan2 takes two Tensors; of a number, make one with full_like")
    check_broadcast("atan2", input, other)
    if input.dtype == float16:
        return atan2(input.float(), other.float()).half()
    return Atan2.apply(floating(input), floating(other))


@composite(case((3, 4)))
def square(input: T) -> T:
    """y = x²;   dx = 2 x dy

    Elementwise: of x's shape and dtype, or int64 of bools."""
    return pow(input, 2)


@composite(case(positive((3, 4))))
def reciprocal(input: T) -> T:
    """y = 1 / x;   dx = -dy y²

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""
    return div(1.0, input)


@composite(case((3, 4)))
def exp2(input: T) -> T:
    """y = 2^x;   dx = dy y ln 2

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""
    return pow(2.0, floating(input))


def _log(x, base):
    """log(x) / log(base), and exact where that is a whole number."""
    y = log(x) / math.log(base)
    whole = round(y)
    rest = whole - y.detach()
    tiny = rest.abs() <= whole.abs() * (4 * float(np.finfo(y.dtype).eps))  # not so for a subnormal power
    return y + where((pow(float(base), whole) == x.detach()) & tiny, rest, 0.0)


@composite(case(positive((3, 4))))
def log2(input: T) -> T:
    """y = the logarithm of x to base 2, exact for its powers;   dx = dy / (x ln 2)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""
    return _log(input, 2)


@composite(case(positive((3, 4))))
def log10(input: T) -> T:
    """y = the logarithm of x to base 10, exact for its powers;   dx = dy / (x ln 10)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""
    return _log(input, 10)


def logaddexp(input: T, other: Operand) -> T:
    """ln(e^x + e^other), without overflow and without losing the smaller. Elementwise, promoted and broadcast; other
    may be a number. Raises TypeError unless they are floats, and ValueError for shapes that do not broadcast."""
    input, other = promoted("logaddexp", input, other if isinstance(other, Value) else input.zeros_like() + other)
    require_float("logaddexp", input)
    check_broadcast("logaddexp", input, other)
    if input.dtype == float16:
        return logaddexp(input.float(), other.float()).half()
    return Logaddexp.apply(input, other)


@composite(case(uniform((3, 4), 0.1, 0.9)), case(uniform((3, 4), -0.5, 1.5), eps=0.1))
def logit(input: T, eps: float | None = None) -> T:
    """y = ln(x / (1 - x)), x limited to [eps, 1 - eps] first;   dx = dy / (x (1 - x))

    Elementwise: of x's shape and float dtype, or float32 of integers and bools. NaN where x is outside of [0, 1],
    unless eps is given."""
    input = floating(input)
    if eps is not None:
        input = clamp(input, eps, 1 - eps)
    input = input + where((input < 0) | (input > 1), math.nan, 0.0).to(
        input.dtype
    )  # where y is NaN, so is the gradient
    return log(input) - log1p(-input)


@composite(case((3, 4), (3, 4), 0.3), case((3, 4), (4,), positive((4,))))
def lerp(input: T, end: T, weight: Operand) -> T:
    """y = x + weight (end - x): x for weight 0, end for 1. weight: a number or a Tensor

    Elementwise: promoted and broadcast. Raises ValueError for shapes that do not broadcast, and TypeError for bools."""
    if weight is None or (not isinstance(weight, Value) and np.ndim(weight)):
        raise TypeError(f"lerp: weight must be a number or a Tensor, got {type(weight).__name__}")
    near = abs(weight) < 0.5
    if not isinstance(near, Value):
        return input + weight * (end - input) if near else end + (weight - 1) * (end - input)
    return where(near, input, end) + where(near, weight, weight - 1) * (
        end - input
    )  # from the end that is nearer: it is exact


@composite(case((3, 4), (3, 4), (4,), value=0.5))
def addcmul(input: T, tensor1: T, tensor2: T, *, value: float = 1) -> T:
    """y = x + value tensor1 tensor2

    Elementwise: promoted and broadcast. Raises ValueError for shapes that do not broadcast."""
    return input + (tensor1 * tensor2 if value == 1 else value * tensor1 * tensor2)


@composite(case((3, 4), (3, 4), positive((4,)), value=0.5))
def addcdiv(input: T, tensor1: T, tensor2: T, *, value: float = 1) -> T:
    """y = x + value tensor1 / tensor2

    Elementwise: promoted and broadcast, integers divided in float32. Raises ValueError for shapes that do not
    broadcast."""
    return input + (tensor1 / tensor2 if value == 1 else value * tensor1 / tensor2)


@composite(case((3, 4)))
def nan_to_num(input: T, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> T:
    """y = x with these numbers for NaN, ∞ and -∞, by default 0 and the largest and smallest of the dtype

    Elementwise: of x's shape and dtype; integers and bools are copied."""
    if input.dtype.kind != "f":
        return input.clone()
    most = float(np.finfo(input.dtype).max)
    y = where(input.isnan(), nan, input)
    y = where(input == math.inf, most if posinf is None else posinf, y)
    return where(input == -math.inf, -most if neginf is None else neginf, y)
