"""Bounds that are Tensors, and whether tensors are equal, or nearly so."""

from ...autograd import Value
from ...typing import Operand, T
from ..args import promoted
from ..select import isfinite, isnan

__all__ = ["allclose", "equal", "isclose"]


def isclose(input: T, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> T:
    """Where |x - other| ≤ atol + rtol |other|, bool, both broadcast. Equal infinities are close; NaN if equal_nan.

    Raises ValueError for a negative tolerance, and for shapes that do not broadcast."""
    for what, number in (("rtol", rtol), ("atol", atol)):
        if not number >= 0:
            raise ValueError(f"isclose: {what} must not be negative, got {number}")
    if not isinstance(other, Value):
        other = input.zeros_like() + other
    input, other = (v.detach() for v in promoted("isclose", input, other))
    y = input == other
    if input.dtype.kind == "f" or rtol or atol:
        a, b = (v if v.dtype.kind == "f" else v.double() for v in (input, other))
        y = y | (isfinite(b) & ((a - b).abs() <= atol + (b * rtol).abs()))
    if equal_nan and input.dtype.kind == "f":
        y = y | (isnan(input) & isnan(other))
    return y


def allclose(input: T, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Is isclose() true everywhere? A Python bool. Raises ValueError for shapes that do not broadcast."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def equal(input: T, other: Operand) -> bool:
    """Have x and other the same shape and values? A Python bool. NaN equals nothing. Raises TypeError for an other that
    is no Tensor."""
    if not isinstance(other, Value):
        raise TypeError(f"equal compares two Tensors, got {type(other).__name__}; for elements use eq")
    return input.shape == other.shape and bool((input.detach() == other.detach()).all())
