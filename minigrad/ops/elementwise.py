"""Elementwise ops. Inputs broadcast against each other; the engine sums gradients back to the inputs' shapes."""

import math
from collections.abc import Callable
from typing import Any

from ..autograd import Op, Value
from ..autograd.cases import apart, case, positive, uniform
from ..backend import reference
from ..typing import F, Operand, T
from .args import check_broadcast, floating, promoted, scaled

__all__ = [
    "abs", "add", "cos", "erf", "erfc", "exp", "floor", "log", "mul", "neg", "pow", "rsqrt", "sign", "sin", "sqrt",
    "sub",
]  # fmt: skip


def _giving(signature: F) -> Callable[[Any], Callable[[type[Op]], F]]:
    """A decorator for what makes functions, which tells type checkers of what signature."""
    return lambda maker: maker


def _of_one(input: T) -> T: ...
def _of_two(input: T, other: Operand) -> T: ...


@_giving(_of_one)
def unary(op):
    """The public function of an op on one tensor; integers are taken as float32."""

    def function(input: T) -> T:
        return op.apply(floating(input))

    return _published(function, op, "Elementwise: of x's shape and float dtype, or float32 of integers and bools.")


@_giving(_of_two)
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
    return _published(function, op, about)


def _published(function, op, about):
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

    def forward(self, x):
        return self.backend.neg(x)

    def backward(self, dy):
        return -dy


class Abs(Op):
    """y = |x|;   dx = dy sign x   (0 at 0)"""

    cases = [case(apart((3, 4)))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.abs(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * x.sign()


class Sign(Op):
    """y = -1, 0 or 1;   no gradient"""

    cases = [case((3, 4))]
    differentiable = False

    def forward(self, x):
        return self.backend.sign(x)


class Floor(Op):
    """y = the largest integer ≤ x;   no gradient"""

    cases = [case((3, 4))]
    differentiable = False

    def forward(self, x):
        return self.backend.floor(x)


# -------------------------------------------------------------------------------------------------- powers and circles


class Exp(Op):
    """y = e^x;   dx = dy y"""

    cases = [case((3, 4)), case(())]

    def forward(self, x):
        return self.save_output(self.backend.exp(x))

    def backward(self, dy):
        return dy * self.saved_output()


class Log(Op):
    """y = ln x;   dx = dy / x"""

    cases = [case(positive((3, 4)))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.log(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy / x


class Sqrt(Op):
    """y = √x;   dx = dy / 2y"""

    cases = [case(positive((3, 4)))]

    def forward(self, x):
        return self.save_output(self.backend.sqrt(x))

    def backward(self, dy):
        return dy / (self.saved_output() * 2.0)


class Rsqrt(Op):
    """y = 1/√x;   dx = -dy y³ / 2"""

    cases = [case(positive((3, 4)))]

    def forward(self, x):
        return self.save_output(self.backend.rsqrt(x))

    def backward(self, dy):
        y = self.saved_output()
        return dy * (y * y * y * -0.5)


class Sin(Op):
    """y = sin x;   dx = dy cos x"""

    cases = [case((3, 4))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.sin(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * x.cos()


class Cos(Op):
    """y = cos x;   dx = -dy sin x"""

    cases = [case((3, 4))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.cos(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * -x.sin()


class Erf(Op):
    """y = 2/√π ∫₀ˣ exp(-t²) dt;   dx = dy 2/√π exp(-x²)"""

    cases = [case((3, 4)), case(uniform((8,), -5, 5))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.erf(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * ((-(x * x)).exp() * (2 / math.sqrt(math.pi)))


class Erfc(Op):
    """y = 1 - erf x;   dx = -dy 2/√π exp(-x²)

    It is accurate for large x too, where 1 - erf x would round to 0."""

    cases = [case((3, 4)), case(uniform((8,), -5, 9))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.erfc(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * ((-(x * x)).exp() * (-2 / math.sqrt(math.pi)))


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

_add, _sub, mul = (binary(op) for op in (Add, Sub, Mul))
exp, log, sqrt, rsqrt, sin, cos = (unary(op) for op in (Exp, Log, Sqrt, Rsqrt, Sin, Cos))
erf, erfc = unary(Erf), unary(Erfc)
_div, _pow = binary(Div), binary(Pow)


def add(input: T, other: Operand, *, alpha: float = 1) -> T:
    """x + alpha other. Elementwise: Tensors, arrays or numbers, one of them a Tensor, promoted and broadcast. Raises
    ValueError for shapes that do not broadcast, and TypeError for a float alpha of ints."""
    return _add(input, other) if alpha == 1 else _add(*scaled("add", input, other, alpha))


def sub(input: T, other: Operand, *, alpha: float = 1) -> T:
    """x - alpha other. Elementwise: Tensors, arrays or numbers, one of them a Tensor, promoted and broadcast. Raises
    ValueError for shapes that do not broadcast, and TypeError for bools, or a float alpha of ints."""
    return _sub(input, other) if alpha == 1 else _sub(*scaled("sub", input, other, alpha))


def div(x, other):
    """x / other, true division: of integers too, in float32."""
    return _div(*(floating(v) if isinstance(v, Value) else v for v in promoted("div", x, other)))


def pow(input: T, exponent: Operand) -> T:
    """x ** exponent. Elementwise: Tensors, arrays or numbers, one of them a Tensor, promoted and broadcast. Ints to a
    negative int are float32. Raises ValueError for other shapes, and for ints to negative numbers in an int Tensor."""
    if isinstance(exponent, int) and exponent < 0:
        input = floating(input)
    return _pow(input, exponent)


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
