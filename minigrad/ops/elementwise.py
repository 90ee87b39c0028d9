"""Elementwise ops. Inputs broadcast against each other; the engine sums gradients back to the inputs' shapes."""

import math

from ..autograd import Op, Value, composite
from ..autograd.cases import apart, case, integers, positive, uniform
from ..backend import reference
from ..typing import Operand, T
from .args import check_broadcast, floating, giving, promoted, refuse_bools

__all__ = [
    "abs", "add", "cos", "div", "erf", "erfc", "exp", "floor", "floor_divide", "log", "log1p", "mul", "neg", "pow",
    "reciprocal", "remainder", "rsqrt", "sign", "sin", "sqrt", "square", "sub",
]  # fmt: skip


def primitive(name):
    """forward of y = f(x), which the primitive of that name computes, and nothing is kept of."""
    return lambda self, x: getattr(self.backend, name)(x)


def of_input(primitive, gradient):
    """forward and backward of y = f(x), which the primitive of that name computes, with dx = gradient(dy, x)."""

    def forward(self, x):
        self.save_inputs(x)
        return getattr(self.backend, primitive)(x)

    return forward, lambda self, dy: gradient(dy, *self.saved_inputs())


def of_output(primitive, gradient):
    """forward and backward of y = f(x), which the primitive of that name computes, with dx = gradient(dy, y)."""

    def forward(self, x):
        return self.save_output(getattr(self.backend, primitive)(x))

    return forward, lambda self, dy: gradient(dy, self.saved_output())


def _of_one(input: T) -> T: ...
def _of_two(input: T, other: Operand) -> T: ...


@giving(_of_one)
def unary(op, about="", prepared=floating):
    """The public function of an op on one tensor; integers are taken as float32, or as `prepared` says."""

    def function(input: T) -> T:
        return op.apply(prepared(input))

    about = about or "Elementwise: of x's shape and float dtype, or float32 of integers and bools."
    return published(function, op, about)


@giving(_of_two)
def binary(op):
    """The public function of an op on two tensors (or a tensor and a number), which are promoted and broadcast."""
    name = op.name

    def function(input: T, other: Operand) -> T:
        input, other = promoted(name, input, other)
        try:
            return op.apply(input, other)
        except ValueError:
            check_broadcast(name, input, other)
            raise

    about = """Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""
    return published(function, op, about)


def published(function, op, about):
    function.__name__ = function.__qualname__ = op.name
    function.__module__ = op.__module__
    function.__doc__ = f"{op.__doc__}\n\n    {about}"
    return function


# ----------------------------------------------------------------------------------------------------------- arithmetic


class Add(Op):
    """y = a + b;   da = dy, db = dy"""

    cases = [case((3, 4), (3, 4)), case((3, 4), (4,)), case((2, 1, 3), (4, 1)), case((), (2,)), case((2, 3), 1.5)]
    broadcasts = True

    def forward(self, a, b):
        return self.backend.add(a, b)

    def backward(self, dy):
        return dy, dy


class Sub(Op):
    """y = a - b;   da = dy, db = -dy"""

    cases = [case((3, 4), (3, 4)), case((3, 4), (3, 1)), case(2.0, (2, 3)), case((2, 3), 1.5)]
    broadcasts = True

    def forward(self, a, b):
        return self.backend.sub(a, b)

    def backward(self, dy):
        return dy, -dy if self.needs[1] else None


class Mul(Op):
    """y = a b;   da = dy b, db = dy a"""

    cases = [case((3, 4), (3, 4)), case((3, 4), (4,)), case((2, 1, 3), (4, 1)), case((), (2,)), case((2, 3), 1.5)]
    broadcasts = True

    def forward(self, a, b):
        self.save_inputs(a if self.needs[1] else None, b if self.needs[0] else None)
        return self.backend.mul(a, b)

    def backward(self, dy):
        a, b = self.saved_inputs()
        return dy * b if self.needs[0] else None, dy * a if self.needs[1] else None


class Div(Op):
    """y = a / b;   da = dy / b, db = -dy a / b²"""

    cases = [
        case((3, 4), positive((3, 4))),
        case((3, 4), positive((4,))),
        case(2.0, positive((2, 3))),
        case((2, 3), 1.5),
    ]
    broadcasts = True

    def forward(self, a, b):
        self.save_inputs(a if self.needs[1] else None, b)
        return self.backend.div(a, b)

    def backward(self, dy):
        a, b = self.saved_inputs()
        da = dy / b
        return da, -(da * a) / b if self.needs[1] else None


class Pow(Op):
    """y = a^b;   da = dy b a^(b-1), db = dy y ln a   (0 where b = 0, and where a = 0 and b ≥ 0)

    Of the second derivatives, d(da)/db = d(db)/da = dy a^(b-1) (1 + b ln a), which at b = 0 is dy / a. At a = 0 those
    with respect to b do not exist; they come from taking ln a as 0 there, and da as a constant where b = 0."""

    cases = [case((3, 4), 2), case((3, 4), 3), case(positive((2, 3)), -0.5), case(positive((2, 3)), (2, 3)),
             case(2.0, (2, 3)), case(positive((3, 1)), (4,)), case((2, 2), 0)]  # fmt: skip
    broadcasts = True

    def forward(self, a, b):
        y = self.backend.pow(a, b)
        self.save_inputs(a, b)
        return self.save_output(y) if self.needs[1] else y

    def backward(self, dy):
        a, b = self.saved_inputs()
        da = db = None
        if self.needs[0]:
            if isinstance(b, (int, float)):
                da = dy * (b * a ** (b - 1)) if b else a.zeros_like()
            else:  # masks for b or the product would also mask d(da)/db, which is 1/a at b = 0
                defined = (b != 0) | (dy.detach() * (1.0 / a.detach())).isfinite()
                da = dy.where(defined, 0.0) * (b * a.where(defined, 1.0) ** (b - 1))
        if self.needs[1]:
            if isinstance(a, Value):
                log = a.where((a != 0) | (b < 0), 1.0).log()
            elif a:
                log = math.log(a) if a > 0 else math.nan
            else:
                log = b.zeros_like().masked_fill(b < 0, -math.inf)
            db = dy * (self.saved_output() * log)
        return da, db


class Neg(Op):
    """y = -x;   dx = -dy"""

    cases = [case((3, 4)), case(())]
    forward, backward = primitive("neg"), lambda self, dy: -dy


class Abs(Op):
    """y = |x|;   dx = dy sign x   (0 at 0)"""

    cases = [case(apart((3, 4)))]
    forward, backward = of_input("abs", lambda dy, x: dy * x.sign())


class Sign(Op):
    """y = -1, 0 or 1;   no gradient"""

    cases = [case((3, 4))]
    differentiable = False
    forward = primitive("sign")


class Floor(Op):
    """y = the largest integer ≤ x;   no gradient"""

    cases = [case((3, 4))]
    differentiable = False
    forward = primitive("floor")


class FloorDivide(Op):
    """y = ⌊a / b⌋, as Python's a // b;   no gradient"""

    cases = [case((3, 4), (4,)), case(integers((3, 4), 9, -9), 4)]
    differentiable = False

    def forward(self, a, b):
        return self.backend.floor_divide(a, b)


class Remainder(Op):
    """y = a - b ⌊a / b⌋, as Python's a % b: of b's sign;   da = dy, db = -dy ⌊a / b⌋"""

    cases = [case((3, 4), positive((4,))), case(uniform((3, 4), -9, 9), -2.5), case(7.0, positive((3,)))]
    broadcasts = True

    def forward(self, a, b):
        if self.needs[1]:
            self.save_inputs(a, b)
        return self.backend.remainder(a, b)

    def backward(self, dy):
        return dy if self.needs[0] else None, -dy * floor_divide(*self.saved_inputs()) if self.needs[1] else None


# -------------------------------------------------------------------------------------------------- powers and circles


class Exp(Op):
    """y = e^x;   dx = dy y"""

    cases = [case((3, 4)), case(())]
    forward, backward = of_output("exp", lambda dy, y: dy * y)


class Log(Op):
    """y = ln x;   dx = dy / x"""

    cases = [case(positive((3, 4)))]
    forward, backward = of_input("log", lambda dy, x: dy / x)


class Log1p(Op):
    """y = ln(1 + x), accurate where x is tiny;   dx = dy / (1 + x)"""

    cases = [case(uniform((3, 4), -0.5, 2))]
    forward, backward = of_input("log1p", lambda dy, x: dy / (x + 1.0))


class Sqrt(Op):
    """y = √x;   dx = dy / 2y"""

    cases = [case(positive((3, 4)))]
    forward, backward = of_output("sqrt", lambda dy, y: dy / (y * 2.0))


class Rsqrt(Op):
    """y = 1/√x;   dx = -dy y³ / 2"""

    cases = [case(positive((3, 4)))]
    forward, backward = of_output("rsqrt", lambda dy, y: dy * (y * y * y * -0.5))


class Sin(Op):
    """y = sin x;   dx = dy cos x"""

    cases = [case((3, 4))]
    forward, backward = of_input("sin", lambda dy, x: dy * x.cos())


class Cos(Op):
    """y = cos x;   dx = -dy sin x"""

    cases = [case((3, 4))]
    forward, backward = of_input("cos", lambda dy, x: dy * -x.sin())


class Erf(Op):
    """y = 2/√π ∫₀ˣ exp(-t²) dt;   dx = dy 2/√π exp(-x²)"""

    cases = [case((3, 4)), case(uniform((8,), -5, 5))]
    forward, backward = of_input("erf", lambda dy, x: dy * ((-(x * x)).exp() * (2 / math.sqrt(math.pi))))


class Erfc(Op):
    """y = 1 - erf x;   dx = -dy 2/√π exp(-x²)

    It is accurate for large x too, where 1 - erf x would round to 0."""

    cases = [case((3, 4)), case(uniform((8,), -5, 9))]
    forward, backward = of_input("erfc", lambda dy, x: dy * ((-(x * x)).exp() * (-2 / math.sqrt(math.pi))))


class Cast(Op):
    """y = x in another dtype;   dx = dy in x's dtype"""

    cases = [case((3, 4), dtype="float64")]

    def forward(self, x, dtype):
        self.source = x.dtype
        return self.backend.cast(x, dtype)

    def backward(self, dy):
        return Cast.apply(dy, dtype=self.source)


class Transfer(Op):
    """y = x on another device;   dx = dy on x's device"""

    cases = [case((3, 4), to=reference)]

    def forward(self, x, to):
        self.source = self.backend
        self.backend = to  # y's
        host = self.source.to_numpy(x)
        return to.from_numpy(host.copy() if to.device == self.source.device else host)

    def backward(self, dy):
        return Transfer.apply(dy, to=self.source)


# ---------------------------------------------------------------------------------------------------- public functions

add, sub, mul, _div, _pow = (binary(op) for op in (Add, Sub, Mul, Div, Pow))
exp, log, log1p, sqrt, rsqrt, sin, cos, erf, erfc = (
    unary(op) for op in (Exp, Log, Log1p, Sqrt, Rsqrt, Sin, Cos, Erf, Erfc)
)
_floor_divide, _remainder = binary(FloorDivide), binary(Remainder)


def div(input: T, other: Operand) -> T:
    """x / other, true division: of integers too, in float32. Elementwise, promoted and broadcast. Raises ValueError for
    shapes that do not broadcast."""
    return _div(*(floating(v) if isinstance(v, Value) else v for v in promoted("div", input, other)))


def _checked_division(name, x, other):
    """Both operands in one dtype that kernels can divide. Raises ZeroDivisionError and OverflowError as Python does."""
    x, other = promoted(name, x, other)
    dtype = (x if isinstance(x, Value) else other).dtype
    refuse_bools(name, dtype)
    if dtype.kind in "iu" and not isinstance(other, Value) and other == 0:
        raise ZeroDivisionError(f"{name}: integers divided by zero")
    return x, other


def floor_divide(input: T, other: Operand) -> T:
    """⌊x / other⌋, as Python's //; no gradient. Elementwise, promoted and broadcast. Integers by a tensor's 0 give 0.

    Raises ZeroDivisionError for integers by the number 0, TypeError for bools, ValueError for shapes that do not
    broadcast."""
    return _floor_divide(*_checked_division("floor_divide", input, other))


def remainder(input: T, other: Operand) -> T:
    """x - other ⌊x / other⌋, as Python's %: it has other's sign. Elementwise, promoted and broadcast. Integers by a
    tensor's 0 give 0.

    Raises ZeroDivisionError for integers by the number 0, TypeError for bools, ValueError for shapes that do not
    broadcast."""
    return _remainder(*_checked_division("remainder", input, other))


def pow(input: T, exponent: Operand) -> T:
    """x ** exponent. Elementwise: Tensors, arrays or numbers, one of them a Tensor, promoted and broadcast. Ints to a
    negative int are float32. Raises ValueError for other shapes, and for ints to negative numbers in an int Tensor."""
    if isinstance(exponent, int) and exponent < 0:
        input = floating(input)
    return _pow(input, exponent)


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


def neg(input: T) -> T:
    """-x. Of x's shape and dtype. Raises TypeError for bools: use ~x."""
    if input.dtype.kind == "b":
        raise TypeError("neg of a bool tensor; use ~x or logical_not")
    return Neg.apply(input)


def abs(input: T) -> T:
    """|x|. Of x's shape and dtype; the gradient at 0 is 0."""
    return Abs.apply(input)


def sign(input: T) -> T:
    """-1, 0 or 1. Of x's shape and dtype; no gradient."""
    return Sign.apply(input) if input.dtype.kind != "b" else input.clone()


def floor(input: T) -> T:
    """The largest integer ≤ x, in x's dtype; no gradient. Of x's shape."""
    return Floor.apply(input)
