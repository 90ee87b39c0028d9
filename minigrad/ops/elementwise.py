"""Elementwise ops. Inputs broadcast against each other; the backward walk sums gradients back to the inputs' shapes."""

import math
from collections.abc import Callable
from typing import Any

from ..autograd import Op, Value, composite
from ..autograd.arguments import check_arguments
from ..autograd.cases import apart, case, integers, positive, uniform
from ..backend import reference
from ..typing import Operand, T
from .args import (
    also_in_place,
    check_broadcast,
    promote,
    refuse_bools,
    require_tensor,
    returns_functions_like,
    to_float,
)  # fmt: skip

__all__ = [
    "abs", "absolute", "add", "addcdiv", "addcmul", "ceil", "cos", "div", "erf", "erfc", "exp", "floor", "floor_divide",
    "lerp", "log", "log10", "log1p", "log2", "mul", "neg", "pow", "reciprocal", "remainder", "round", "rsqrt", "sign",
    "sin", "sqrt", "square", "sub",
]  # fmt: skip


def forward_by(name):
    """Return a forward that calls the primitive of that name on x and saves nothing."""
    return lambda self, x: getattr(self.backend, name)(x)


def of_input(primitive: str, gradient: Callable[[Value, Value], Value]) -> tuple[Any, Any]:
    """Return (forward, backward) of y = f(x) for an op whose derivative is written in x: dx = gradient(dy, x).

    primitive: the name of the primitive that computes f."""

    def forward(self, x):
        self.save_inputs(x)
        return getattr(self.backend, primitive)(x)

    return forward, lambda self, dy: gradient(dy, *self.saved_inputs())


def of_output(primitive: str, gradient: Callable[[Value, Value], Value]) -> tuple[Any, Any]:
    """Return (forward, backward) of y = f(x) for an op whose derivative is written in y: dx = gradient(dy, y).

    primitive: the name of the primitive that computes f."""

    def forward(self, x):
        return self.save_output(getattr(self.backend, primitive)(x))

    return forward, lambda self, dy: gradient(dy, self.saved_output())


def _unary_signature(input: T) -> T:
    return input


def _binary_signature(input: T, other: Operand) -> T:
    return input


@returns_functions_like(_unary_signature)
def unary(op, about="", convert=to_float):
    """Return the public function of an op on one Tensor.

    about: the end of its docstring. convert: called with the Tensor first; by default it casts integers to float32."""

    def function(input: T) -> T:
        try:
            return op.apply(convert(input))
        except AttributeError:
            require_tensor(op.name, input)  # raises if that is why
            raise

    about = about or "Elementwise: of x's shape and float dtype, or float32 of integers and bools."
    return also_in_place(with_docs_of(op, function, about))


@returns_functions_like(_binary_signature)
def binary(op):
    """Return the public function of an op on two Tensors, or a Tensor and a number. They are promoted and broadcast."""
    name = op.name

    def function(input: T, other: Operand) -> T:
        input, other = promote(name, input, other)
        try:
            return op.apply(input, other)
        except ValueError:
            check_broadcast(name, input, other)
            raise

    about = """Tensors, NumPy arrays or numbers, at least one a Tensor. Dtypes are promoted and shapes broadcast. Raises
    ValueError for shapes that do not broadcast, and TypeError for other types."""
    return also_in_place(with_docs_of(op, function, about))


def with_docs_of(op, function, about):
    """Give a function the name of an op, and the op's docstring followed by `about`. Returns the function."""
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

    def backward(self, dy: Value):
        return dy, dy


class Sub(Op):
    """y = a - b;   da = dy, db = -dy"""

    cases = [case((3, 4), (3, 4)), case((3, 4), (3, 1)), case(2.0, (2, 3)), case((2, 3), 1.5)]
    broadcasts = True

    def forward(self, a, b):
        return self.backend.sub(a, b)

    def backward(self, dy: Value):
        return dy, -dy if self.needs[1] else None


class Mul(Op):
    """y = a b;   da = dy b, db = dy a"""

    cases = [case((3, 4), (3, 4)), case((3, 4), (4,)), case((2, 1, 3), (4, 1)), case((), (2,)), case((2, 3), 1.5)]
    broadcasts = True

    def forward(self, a, b):
        self.save_inputs(a if self.needs[1] else None, b if self.needs[0] else None)
        return self.backend.mul(a, b)

    def backward(self, dy: Value):
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

    def backward(self, dy: Value):
        a, b = self.saved_inputs()
        da = dy / b
        return da, -(da * a) / b if self.needs[1] else None


class Pow(Op):
    """y = a^b;   da = dy b a^(b-1), db = dy y ln a   (0 where b = 0, and where a = 0 and b ≥ 0)

    The mixed second derivative, d(da)/db = d(db)/da = dy a^(b-1) (1 + b ln a), is dy / a at b = 0. At a = 0 the second
    derivatives with respect to b do not exist: there ln a is taken as 0, and da as a constant where b = 0."""

    cases = [case((3, 4), 2), case((3, 4), 3), case(positive((2, 3)), -0.5), case(positive((2, 3)), (2, 3)),
             case(2.0, (2, 3)), case(positive((3, 1)), (4,)), case((2, 2), 0)]  # fmt: skip
    broadcasts = True

    def forward(self, a, b):
        y = self.backend.pow(a, b)
        self.save_inputs(a, b)
        return self.save_output(y) if self.needs[1] else y

    def backward(self, dy: Value):
        a, b = self.saved_inputs()
        da = db = None
        if self.needs[0]:
            if isinstance(b, (int, float)):
                da = dy * (b * a ** (b - 1)) if b else a.zeros_like()
            else:  # only dy and a are masked: a mask of b or the product would make d(da)/db 0 at b = 0, not 1/a
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
    forward = forward_by("neg")

    def backward(self, dy: Value):
        return -dy


class Abs(Op):
    """y = |x|;   dx = dy sign x   (0 at 0)"""

    cases = [case(apart((3, 4)))]
    forward, backward = of_input("abs", lambda dy, x: dy * x.sign())


class Sign(Op):
    """y = -1, 0 or 1;   no gradient"""

    cases = [case((3, 4))]
    differentiable = False
    forward = forward_by("sign")


class Floor(Op):
    """y = the largest integer ≤ x;   no gradient"""

    cases = [case((3, 4))]
    differentiable = False
    forward = forward_by("floor")


class Round(Op):
    """y = the nearest integer, of two the even one;   no gradient"""

    cases = [case((3, 4))]
    differentiable = False
    forward = forward_by("round")


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

    def backward(self, dy: Value):
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

    Accurate for large x too, where the difference would round to 0."""

    cases = [case((3, 4)), case(uniform((8,), -5, 9))]
    forward, backward = of_input("erfc", lambda dy, x: dy * ((-(x * x)).exp() * (-2 / math.sqrt(math.pi))))


class Cast(Op):
    """y = x in another dtype;   dx = dy in x's dtype"""

    cases = [case((3, 4), dtype="float64")]

    def forward(self, x, dtype):
        self.source = x.dtype
        return self.backend.cast(x, dtype)

    def backward(self, dy: Value):
        return Cast.apply(dy, dtype=self.source)


class Transfer(Op):
    """y = x on another device;   dx = dy on x's device"""

    cases = [case((3, 4), to=reference)]

    def forward(self, x, to):
        self.source = self.backend
        self.backend = to  # the backend of the result
        host = self.source.to_numpy(x)
        return to.from_numpy(host.copy() if to.device == self.source.device else host)

    def backward(self, dy: Value):
        return Transfer.apply(dy, to=self.source)


# ---------------------------------------------------------------------------------------------------- public functions

plus, minus, mul, _div, _pow = (binary(op) for op in (Add, Sub, Mul, Div, Pow))  # plus and minus are + and -
exp, log, log1p, sqrt, rsqrt, sin, cos, erf, erfc = (
    unary(op) for op in (Exp, Log, Log1p, Sqrt, Rsqrt, Sin, Cos, Erf, Erfc)
)
_floor_divide, _remainder = binary(FloorDivide), binary(Remainder)


def add(input: T, other: Operand, *, alpha: float = 1) -> T:
    """Return x + alpha · other. Elementwise, promoted and broadcast. Raises ValueError for shapes that do not
    broadcast."""
    return plus(input, _scaled(other, alpha))


def sub(input: T, other: Operand, *, alpha: float = 1) -> T:
    """Return x - alpha · other. Elementwise, promoted and broadcast. Raises ValueError for shapes that do not
    broadcast."""
    return minus(input, _scaled(other, alpha))


def _scaled(other, alpha):
    return other if alpha == 1 else other * alpha


@also_in_place
def div(input: T, other: Operand, *, rounding_mode: str | None = None) -> T:
    """Return x / other; integers are divided in float32. Elementwise, promoted and broadcast.

    rounding_mode: None; "floor", as floor_divide; or "trunc", towards 0. The last two have no gradient. Raises
    ValueError for another mode, and for shapes that do not broadcast."""
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        quotient, rest = floor_divide(input, other), remainder(input, other).detach()
        return quotient + ((quotient < 0) & (rest != 0)).to(quotient.dtype)
    if rounding_mode is not None:
        raise ValueError(f"div: rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}")
    return _div(*(to_float(v) if isinstance(v, Value) else v for v in promote("div", input, other)))


def _checked_division(name, x, other):
    """Return both operands in one dtype. Raises ZeroDivisionError for integers by the number 0, as Python does."""
    x, other = promote(name, x, other)
    dtype = (x if isinstance(x, Value) else other).dtype
    refuse_bools(name, dtype)
    if dtype.kind in "iu" and not isinstance(other, Value) and other == 0:
        raise ZeroDivisionError(f"{name}: integers divided by zero")
    return x, other


@also_in_place
def floor_divide(input: T, other: Operand) -> T:
    """Return ⌊x / other⌋, Python's //; no gradient. Elementwise, promoted and broadcast. Integers by a tensor's 0 are
    0.

    Raises ZeroDivisionError for integers by the number 0, TypeError for bools, ValueError for shapes that do not
    broadcast."""
    return _floor_divide(*_checked_division("floor_divide", input, other))


@also_in_place
def remainder(input: T, other: Operand) -> T:
    """Return x - other ⌊x / other⌋, Python's %, which has other's sign. Elementwise, promoted and broadcast. Integers
    by a tensor's 0 are 0.

    Raises ZeroDivisionError for integers by the number 0, TypeError for bools, ValueError for shapes that do not
    broadcast."""
    return _remainder(*_checked_division("remainder", input, other))


@also_in_place
def pow(input: T, exponent: Operand) -> T:
    """Return x ** exponent. Elementwise: Tensors, arrays or numbers, at least one a Tensor, promoted and broadcast.

    Integers to a negative int are float32. Raises ValueError for shapes that do not broadcast, and for integers to an
    int Tensor with a negative number."""
    if isinstance(exponent, int) and exponent < 0:
        input = to_float(input)
    return _pow(input, exponent)


@also_in_place
@composite(case((3, 4)))
def square(input: T) -> T:
    """y = x²;   dx = 2 x dy

    Elementwise: of x's shape and dtype, or int64 of bools."""
    return pow(input, 2)


@also_in_place
@composite(case(positive((3, 4))))
def reciprocal(input: T) -> T:
    """y = 1 / x;   dx = -dy y²

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""
    return 1.0 / require_tensor("reciprocal", input)


@also_in_place
@check_arguments
def neg(input: T) -> T:
    """Return -x. Of x's shape and dtype. Raises TypeError for bools: use ~x."""
    if input.dtype.kind == "b":
        raise TypeError("neg of a bool tensor; use ~x or logical_not")
    return Neg.apply(input)


@also_in_place
def abs(input: T) -> T:
    """Return |x|. Of x's shape and dtype; the gradient at 0 is 0."""
    return Abs.apply(input)


absolute = abs


@also_in_place
@check_arguments
def sign(input: T) -> T:
    """Return -1, 0 or 1. Of x's shape and dtype; no gradient."""
    return Sign.apply(input) if input.dtype.kind != "b" else input.clone()


@also_in_place
def floor(input: T) -> T:
    """Return the largest integer ≤ x. Of x's shape and dtype; no gradient."""
    return Floor.apply(input)


@also_in_place
def round(input: T) -> T:
    """Return the nearest integer, of two the even one, as Python does. Of x's shape and dtype; no gradient."""
    return Round.apply(input)


@also_in_place
@check_arguments
def ceil(input: T) -> T:
    """Return the smallest integer ≥ x. Of x's shape and dtype; no gradient."""
    return Neg.apply(Floor.apply(Neg.apply(input))) if input.dtype.kind == "f" else input.clone()


@also_in_place
@composite(case(positive((3, 4))))
def log2(input: T) -> T:
    """y = ln x / ln 2;   dx = dy / (x ln 2)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""
    return log(input) / math.log(2)


@also_in_place
@composite(case(positive((3, 4))))
def log10(input: T) -> T:
    """y = ln x / ln 10;   dx = dy / (x ln 10)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""
    return log(input) / math.log(10)


@composite(case((3, 4), (3, 4), (3, 4)), case((3, 4), (4,), 0.3))
def lerp(input: T, end: T, weight: Operand) -> T:
    """Return x + weight · (end - x). Elementwise, promoted and broadcast. Raises ValueError for shapes that do not
    broadcast."""
    return input + (end - input) * weight


@composite(case((3, 4), (3, 4), (3, 4)), case((3, 4), (4,), (3, 1), value=0.5))
def addcmul(input: T, tensor1: T, tensor2: T, *, value: float = 1) -> T:
    """Return x + value · tensor1 · tensor2. Elementwise, promoted and broadcast. Raises ValueError for shapes that do
    not broadcast."""
    return add(input, tensor1 * tensor2, alpha=value)


@composite(case((3, 4), (3, 4), positive((3, 4))), case((3, 4), (4,), positive((3, 1)), value=0.5))
def addcdiv(input: T, tensor1: T, tensor2: T, *, value: float = 1) -> T:
    """Return x + value · tensor1 / tensor2. Elementwise, promoted and broadcast. Raises ValueError for shapes that do
    not broadcast."""
    return add(input, tensor1 / tensor2, alpha=value)
