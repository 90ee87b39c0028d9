"""Rounding, and division with a remainder. What is rounded has no gradient."""

from ...autograd import Op, Value, composite
from ...autograd.cases import case, integers, positive, uniform
from ...typing import Operand, T
from ..args import promoted
from ..elementwise import Floor, binary, neg
from ..elementwise import div as true_divide
from ..select import where

__all__ = ["ceil", "div", "floor_divide", "fmod", "remainder", "round", "trunc"]


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
        if not self.needs[1]:
            return dy, None
        return dy if self.needs[0] else None, -dy * floor_divide(*self.saved_inputs())


class Fmod(Op):
    """y = a - b trunc(a / b), as C's fmod: of a's sign;   da = dy, db = -dy trunc(a / b)"""

    cases = [case((3, 4), positive((4,))), case(uniform((3, 4), -9, 9), uniform((3, 1), -3, -1))]
    broadcasts = True

    def forward(self, a, b):
        if self.needs[1]:
            self.save_inputs(a, b)
        on = self.backend
        if a.dtype.kind == "f":
            y = on.remainder(on.abs(a), on.abs(b))
            return on.where(on.lt(a, 0), on.neg(y), y)
        y = on.remainder(a, b)  # no abs of integers: the smallest has none
        return on.where(on.logical_and(on.ne(y, 0), on.ne(on.lt(a, 0), on.lt(b, 0))), on.sub(y, b), y)

    def backward(self, dy):
        if not self.needs[1]:
            return dy, None
        return dy if self.needs[0] else None, -dy * div(*self.saved_inputs(), rounding_mode="trunc")


_floor_divide, _remainder, _fmod = binary(FloorDivide), binary(Remainder), binary(Fmod)


def _numbers(name, x, other):
    """Both in one dtype, of which a kernel can divide. Raises for what Python refuses too."""
    x, other = promoted(name, x, other)
    dtype = (x if isinstance(x, Value) else other).dtype
    if dtype.kind == "b":
        raise TypeError(f"{name} is not defined for bools; convert one with .long()")
    if dtype.kind in "iu" and not isinstance(other, Value) and other == 0:
        raise ZeroDivisionError(f"{name}: integers divided by zero")
    return x, other


def floor_divide(input: T, other: Operand) -> T:
    """⌊x / other⌋, as Python's //; no gradient. Elementwise, promoted and broadcast. Integers by a tensor's 0 give 0.

    Raises ZeroDivisionError for integers by the number 0, TypeError for bools, ValueError for shapes that do not
    broadcast."""
    return _floor_divide(*_numbers("floor_divide", input, other))


def remainder(input: T, other: Operand) -> T:
    """x - other ⌊x / other⌋, as Python's %: it has other's sign. Elementwise, promoted and broadcast. Integers by a
    tensor's 0 give 0.

    Raises ZeroDivisionError for integers by the number 0, TypeError for bools, ValueError for shapes that do not
    broadcast."""
    return _remainder(*_numbers("remainder", input, other))


def fmod(input: T, other: Operand) -> T:
    """x - other trunc(x / other), as C's: it has x's sign. Elementwise, promoted and broadcast. Integers by a tensor's
    0 give 0.

    Raises ZeroDivisionError for integers by the number 0, TypeError for bools, ValueError for shapes that do not
    broadcast."""
    input, other = _numbers("fmod", input, other)
    if not isinstance(other, Value):
        other = input.zeros_like() + other
    elif not isinstance(input, Value):
        input = other.zeros_like() + input
    return _fmod(input, other)


def div(input: T, other: Operand, *, rounding_mode: str | None = None) -> T:
    """x / other, true division: of integers too, in float32. Elementwise, promoted and broadcast.

    With rounding_mode "floor" or "trunc" a whole number, in the promoted dtype and without a gradient. Raises
    ValueError for another mode or shapes that do not broadcast, and, rounding, ZeroDivisionError for integers by the
    number 0."""
    if rounding_mode is None:
        return true_divide(input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode != "trunc":
        raise ValueError(f"div: rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}")
    input, other = _numbers("div", input, other)
    if (input if isinstance(input, Value) else other).dtype.kind == "f":
        return trunc(true_divide(input, other))
    y = floor_divide(input, other)  # one less than wanted where it is negative and something remains
    return y + ((y < 0) & (y * other != input)).to(y.dtype)


@composite(case((3, 4)))
def ceil(input: T) -> T:
    """y = the smallest integer ≥ x, in x's dtype;   no gradient

    Elementwise: of x's shape."""
    return neg(Floor.apply(neg(input))) if input.dtype.kind == "f" else Floor.apply(input)


@composite(case((3, 4)))
def trunc(input: T) -> T:
    """y = x without its fraction, in x's dtype;   no gradient

    Elementwise: of x's shape."""
    return where(input < 0, ceil(input), Floor.apply(input))


@composite(case((3, 4)), case((3, 4), decimals=1))
def round(input: T, decimals: int = 0) -> T:
    """y = the nearest integer, the even one of two, or the nearest multiple of 10^-decimals;   no gradient

    Elementwise: of x's shape and dtype. Raises TypeError for decimals of integers."""
    if input.dtype.kind != "f":
        if decimals:
            raise TypeError(f"round: decimals is for floats, got {input.dtype}")
        return Floor.apply(input)
    input = input.detach()
    if decimals:
        scale = 10.0 ** abs(decimals)
        return round(input * scale) / scale if decimals > 0 else round(input / scale) * scale
    below = Floor.apply(input)
    rest = input - below  # exact
    up = (rest > 0.5) | ((rest == 0.5) & (remainder(below, 2.0) != 0))
    y = where(up, below + 1, below)
    return where(y == 0, input * 0.0, y)  # -0.0 of what rounds to 0 from below
