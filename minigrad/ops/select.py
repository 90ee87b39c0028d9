"""Choosing between values, comparisons, and the logic of bools."""

import operator

import numpy as np

from .. import dtypes
from ..autograd import Op, Value
from ..autograd.arguments import check_arguments, kind_of
from ..autograd.cases import apart, booleans, case, integers, normal
from ..typing import Operand, T
from .args import also_in_place, check_broadcast, promote, require_mask, require_tensor, to_float
from .elementwise import binary, ceil, floor, unary

__all__ = [
    "allclose", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "clamp", "clip", "eq", "equal", "ge", "gt",
    "isfinite", "isinf", "isnan", "le", "logical_and", "logical_not", "logical_or", "lt", "maximum", "minimum", "ne",
    "trunc", "where",
]  # fmt: skip


def _shares(dy, ties, a_loses, b_loses):
    """Return (da, db): dy for the winner, half of it for each in a tie, and dy for both where one is NaN.

    The loser's 0 comes from `where`, not from a factor of 0, because dy may be infinite. a_loses, b_loses: bool
    Tensors, or None for a gradient that is not wanted."""
    dy = where(ties, dy * 0.5, dy)
    return tuple(None if loses is None else where(loses, 0.0, dy) for loses in (a_loses, b_loses))


class Maximum(Op):
    """y = max(a, b);   dy goes to the larger, half to each where they tie"""

    cases = [case(apart((3, 4)), normal((3, 4))), case((3, 4), (4,)), case(apart((3, 4)), 0.0)]
    broadcasts = True

    largest = True

    def forward(self, a, b):
        self.save_inputs(a, b)
        return (self.backend.maximum if self.largest else self.backend.minimum)(a, b)

    def backward(self, dy: Value):
        a, b = self.saved_inputs()
        loses = operator.lt if self.largest else operator.gt
        a_loses, b_loses = (loses(*pair) if needed else None for pair, needed in zip(((a, b), (b, a)), self.needs))
        return _shares(dy, a == b, a_loses, b_loses)


class Minimum(Maximum):
    """y = min(a, b);   dy goes to the smaller, half to each where they tie"""

    largest = False


class Where(Op):
    """y = a where condition, else b;   da = dy where condition, else 0; db the rest"""

    cases = [
        case(booleans((3, 4)), (3, 4), (3, 4)),
        case(booleans((4,)), (3, 4), (3, 1)),
        case(booleans((3, 4)), (3, 4), 0.0),
    ]
    broadcasts = True

    def forward(self, condition, a, b):
        self.save_inputs(condition)
        return self.backend.where(condition, a, b)

    def backward(self, dy: Value):
        (condition,) = self.saved_inputs()
        da = where(condition, dy, 0.0) if self.needs[1] else None
        return None, da, where(condition, 0.0, dy) if self.needs[2] else None


def where(condition: T, input: "Operand | None" = None, other: "Operand | None" = None) -> T:
    """Return x where condition is True, else other. condition: a Tensor of bool, or of uint8, where it is not 0. x,
    other: Tensors, arrays or numbers.

    All three are broadcast, x and other promoted. Two numbers give their default dtype: float32, int64 or bool. Raises
    TypeError for another condition, and ValueError for shapes that do not broadcast."""
    if input is None or other is None:
        raise TypeError("where needs x and other; nonzero(condition, as_tuple=True) gives the places where it is True")
    condition = require_mask("where", "condition", condition)
    if not isinstance(input, Value) and not isinstance(other, Value):
        dtype = dtypes.bool_
        for number in (input, other):
            dtype = dtypes.promote_number(dtype, number)
        input = condition.constant(dtypes.plain("where", input)).to(dtype)
    input, other = promote("where", input, other)
    check_broadcast("where", condition, input, other)
    return Where.apply(condition, input, other)


class Clamp(Op):
    """y = min(max(x, min), max);   dx = dy where min ≤ x ≤ max, else 0"""

    cases = [case((3, 4), min=-0.5, max=0.7), case((3, 4), min=0.1, max=None)]
    min: float | None
    max: float | None

    def forward(self, x, min, max):
        self.save_inputs(x)
        return self.backend.clamp(x, min, max)

    def backward(self, dy: Value):
        (x,) = self.saved_inputs()
        if self.min is not None and self.max is not None and self.max < self.min:  # y is max everywhere
            return dy.zeros_like()
        inside = x == x.clamp(self.min, self.max)
        return where(inside, dy, 0.0)


@also_in_place
@check_arguments
def clamp(input: T, min: float | None = None, max: float | None = None) -> T:
    """Return x limited to the numbers [min, max]; either may be None. Of x's dtype; float32 of integers by floats.

    The gradient is dy where x lies within the bounds or on them, else 0. If max < min, the result is max. Raises
    ValueError if both are None, and TypeError for other bounds: maximum and minimum take Tensors."""
    if min is None and max is None:
        raise ValueError("clamp: give min, max or both")
    if any(isinstance(bound, float) for bound in (min, max)):
        input = to_float(input)
    return Clamp.apply(input, min=min, max=max)


clip = clamp
maximum, minimum = binary(Maximum), binary(Minimum)


# ---------------------------------------------------------------------------------------------- comparisons, predicates


class Discrete(Op, abstract=True):
    """An op with bools or integers as output, and so without a gradient."""

    broadcasts = True
    differentiable = False


def _discrete(name, says, *cases):
    """Return the Discrete op that the primitive `name` computes. says: its formula, for the docstring."""

    def forward_of_one(self, x):
        return getattr(self.backend, name)(x)

    def forward_of_two(self, a, b):
        return getattr(self.backend, name)(a, b)

    forward = forward_of_one if len(cases[0].inputs) == 1 else forward_of_two
    about = {"__doc__": f"y = {says};   no gradient", "cases": list(cases), "forward": forward}
    return type(name.title().replace("_", ""), (Discrete,), about)


_PAIR = case((3, 4), (4,)), case(integers((3, 4), 3), 1)
_BOOLS = case(booleans((3, 4)), booleans((4,)))
_COMPARED = {"eq": "a == b", "ne": "a ≠ b", "lt": "a < b", "le": "a ≤ b", "gt": "a > b", "ge": "a ≥ b"}
_JOINED = {"logical_and": "a and b", "logical_or": "a or b"}
eq, ne, lt, le, gt, ge = (binary(_discrete(name, f"{says}, bool", *_PAIR)) for name, says in _COMPARED.items())
logical_and, logical_or = (binary(_discrete(name, f"{says}, bool", _BOOLS)) for name, says in _JOINED.items())
LogicalNot = _discrete("logical_not", "not x, bool", case(booleans((3, 4))))
Isnan = _discrete("isnan", "True where x is NaN", case((3, 4)))
Isinf = _discrete("isinf", "True where x is +∞ or -∞", case((3, 4)))
Isfinite = _discrete("isfinite", "True where x is neither NaN nor ±∞", case((3, 4)))


logical_not, isnan, isinf, isfinite = (
    unary(op, "Elementwise: bool, of x's shape.", lambda x: x) for op in (LogicalNot, Isnan, Isinf, Isfinite)
)


class Bitwise(Discrete, abstract=True):
    """An op on the bits of bools or integers. The primitive has the op's name."""

    cases = [case(integers((3, 4), 9, -9), integers((4,), 9, -9)), case(booleans((3, 4)), booleans((4,)))]

    def forward(self, a, b):
        _require_bits(self.name, a, b)
        return getattr(self.backend, self.name)(a, b)


def _require_bits(name, *arrays):
    """Raise TypeError if one of the arrays holds floats."""
    for x in arrays:
        if getattr(x, "dtype", dtypes.int64).kind == "f":
            raise TypeError(f"{name} is for bools and integers, got {x.dtype}; for truth, compare with 0 first")


class BitwiseAnd(Bitwise):
    """y = a & b, bit by bit;   no gradient"""


class BitwiseOr(Bitwise):
    """y = a | b, bit by bit;   no gradient"""


class BitwiseXor(Bitwise):
    """y = a ^ b, bit by bit;   no gradient"""


class BitwiseNot(Discrete):
    """y = ~x, each bit turned; of bools, not x;   no gradient"""

    cases = [case(integers((3, 4), 9, -9)), case(booleans((3, 4)))]

    def forward(self, x):
        _require_bits("bitwise_not", x)
        return self.backend.logical_not(x) if x.dtype.kind == "b" else self.backend.bitwise_not(x)


bitwise_and, bitwise_or, bitwise_xor = binary(BitwiseAnd), binary(BitwiseOr), binary(BitwiseXor)
bitwise_not = unary(BitwiseNot, "Elementwise: of x's shape, and of its dtype, bool or integer.", lambda x: x)


@also_in_place
@check_arguments
def trunc(input: T) -> T:
    """Return x rounded towards 0. Of x's shape and dtype; no gradient."""
    return where(require_tensor("trunc", input) < 0, ceil(input), floor(input))


@check_arguments
def equal(input: T, other: T) -> bool:
    """Return True if x and other have the same shape and values. NaN equals nothing. Raises TypeError for an other that
    is no Tensor."""
    if not isinstance(other, Value):
        raise TypeError(f"equal compares two Tensors, got {kind_of(other)}; to compare elements, use eq")
    return input.shape == other.shape and bool((input.detach() == other.detach()).all())


@check_arguments
def allclose(input: T, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Return True if |x - other| ≤ atol + rtol |other| everywhere, both broadcast.

    Equal infinities are close, and so are NaNs if equal_nan. Raises ValueError for shapes that do not broadcast."""
    x, y = (v.numpy(force=True) if isinstance(v, Value) else np.asarray(v) for v in (input, other))
    for name, given, array in (("input", input, x), ("other", other, y)):
        if array.dtype.kind not in "biuf":
            raise TypeError(f"allclose: {name} must be a Tensor, an array or a number, got {kind_of(given)}")
    try:
        return bool(np.allclose(x, y, rtol, atol, equal_nan))
    except ValueError:
        raise ValueError(f"allclose: shapes {x.shape} and {y.shape} do not broadcast") from None
