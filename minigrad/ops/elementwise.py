"""Elementwise ops. Inputs broadcast against each other; the engine sums gradients back to the inputs' shapes."""

import math

from ..autograd import Fused, Op, Value
from ..cases import apart, booleans, case, integers, normal, positive, uniform
from ._args import check_broadcast, floating, promoted


def _unary(op):
    """The public function of an op on one tensor; integers are taken as float32."""

    def function(x):
        return op.apply(floating(x))

    function.__name__ = function.__qualname__ = op.__name__.lower()
    function.__doc__ = op.__doc__
    return function


def _binary(op):
    """The public function of an op on two tensors (or a tensor and a number), which are promoted and broadcast."""
    name = op.__name__.lower()

    def function(x, other):
        if isinstance(x, Value) and isinstance(other, Value) and x.dtype == other.dtype:
            if x.shape != other.shape:
                check_broadcast(name, x, other)
            return op.apply(x, other)
        x, other = promoted(name, x, other)
        check_broadcast(name, x, other)
        return op.apply(x, other)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
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

    cases = [case((3, 4), positive((3, 4))), case((3, 4), positive((4,))), case(2.0, positive((2, 3))), case((2, 3), 1.5)]
    broadcasts = True

    def forward(self, a, b):
        self.save_inputs(a if self.needs[1] else None, b)
        return self.backend.div(a, b)

    def backward(self, dy):
        a, b = self.saved_inputs()
        da = dy / b
        return da, -(da * a) / b if self.needs[1] else None


class Pow(Op):
    """y = a^b;   da = dy b a^(b-1), db = dy y ln a   (0 where a = 0)"""

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
            da = dy * (b * a ** (b - 1)) if isinstance(b, Value) or b != 0 else a.zeros_like()
        if self.needs[1]:
            log = a.masked_fill(a == 0, 1.0).log() if isinstance(a, Value) else math.log(a)
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


# ---------------------------------------------------------------------------------------------------------- activations


class Tanh(Op):
    """y = tanh x;   dx = dy (1 - y²)"""

    cases = [case((3, 4))]

    def forward(self, x):
        return self.save_output(self.backend.tanh(x))

    def backward(self, dy):
        y = self.saved_output()
        return dy * (1.0 - y * y)


class Sigmoid(Op):
    """y = 1 / (1 + e^-x);   dx = dy y (1 - y)"""

    cases = [case((3, 4))]

    def forward(self, x):
        return self.save_output(self.backend.sigmoid(x))

    def backward(self, dy):
        y = self.saved_output()
        return dy * (y * (1.0 - y))


class Relu(Op):
    """y = max(x, 0);   dx = dy where x > 0, else 0"""

    cases = [case(apart((3, 4)))]

    def forward(self, x):
        return self.save_output(self.backend.relu(x))

    def backward(self, dy):
        return where(self.saved_output() > 0, dy, 0.0)


class Silu(Op):
    """y = x σ(x);   dx = dy σ (1 + x (1 - σ))"""

    cases = [case((3, 4))]

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.silu(x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        s = x.sigmoid()
        return dy * (s * (1.0 + x * (1.0 - s)))


class Gelu(Op):
    """y = x Φ(x), Φ the normal distribution function; 'tanh': Φ ≈ (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.

    Hendrycks and Gimpel, "Gaussian error linear units", 2016."""

    cases = [case((3, 4), approximate="none"), case((3, 4), approximate="tanh")]

    def forward(self, x, approximate):
        self.save_inputs(x)
        return self.backend.gelu(x, approximate)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return GeluBackward.apply(dy, x, approximate=self.approximate)


class GeluBackward(Fused):
    """dx = dy (Φ(x) + x Φ'(x))"""

    cases = [case((3, 4), (3, 4), approximate="none"), case((3, 4), (3, 4), approximate="tanh")]

    def forward(self, dy, x, approximate):
        self.save_inputs(dy, x)
        return self.backend.gelu_backward(dy, x, approximate)

    @staticmethod
    def composed(dy, x, approximate):
        if approximate == "tanh":
            a, b = math.sqrt(2 / math.pi), 0.044715
            t = (a * (x + b * x**3)).tanh()
            return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * a * (1.0 + 3 * b * x * x))
        cdf = 0.5 * (1.0 + (x * math.sqrt(0.5)).erf())
        return dy * (cdf + x * (-0.5 * x * x).exp() * (1 / math.sqrt(2 * math.pi)))


def gelu(x, approximate="none"):
    """Gaussian error linear unit; approximate is 'none' (erf) or 'tanh'. Same shape and dtype as x."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return Gelu.apply(floating(x), approximate=approximate)


# ------------------------------------------------------------------------------------------------------------ selection


class Maximum(Op):
    """y = max(a, b);   dy goes to the larger, half to each where they tie"""

    cases = [case(apart((3, 4)), normal((3, 4))), case((3, 4), (4,)), case(apart((3, 4)), 0.0)]
    broadcasts = True

    def forward(self, a, b):
        self.save_inputs(a, b)
        return self.backend.maximum(a, b)

    def backward(self, dy):
        a, b = self.saved_inputs()
        share = ((a > b).to(dy.dtype) + (a >= b).to(dy.dtype)) * 0.5
        return dy * share if self.needs[0] else None, dy * (1.0 - share) if self.needs[1] else None


class Minimum(Op):
    """y = min(a, b);   dy goes to the smaller, half to each where they tie"""

    cases = [case(apart((3, 4)), normal((3, 4))), case((3, 4), (4,)), case(apart((3, 4)), 0.0)]
    broadcasts = True

    def forward(self, a, b):
        self.save_inputs(a, b)
        return self.backend.minimum(a, b)

    def backward(self, dy):
        a, b = self.saved_inputs()
        share = ((a < b).to(dy.dtype) + (a <= b).to(dy.dtype)) * 0.5
        return dy * share if self.needs[0] else None, dy * (1.0 - share) if self.needs[1] else None


class Where(Op):
    """y = a where condition, else b;   da = dy where condition, else 0; db the rest"""

    cases = [case(booleans((3, 4)), (3, 4), (3, 4)), case(booleans((4,)), (3, 4), (3, 1)), case(booleans((3, 4)), (3, 4), 0.0)]
    broadcasts = True

    def forward(self, condition, a, b):
        self.save_inputs(condition)
        return self.backend.where(condition, a, b)

    def backward(self, dy):
        (condition,) = self.saved_inputs()
        da = where(condition, dy, 0.0) if self.needs[1] else None
        return None, da, where(condition, 0.0, dy) if self.needs[2] else None


def where(condition, x, other):
    """x where condition (bool) is True, else other. Tensors or numbers, broadcast against each other."""
    if not isinstance(condition, Value) or condition.dtype.kind != "b":
        raise TypeError(f"where: condition must be a bool Tensor, got {getattr(condition, 'dtype', type(condition).__name__)}")
    if not isinstance(x, Value) and not isinstance(other, Value):
        x = condition._constant(x)
    x, other = promoted("where", x, other)
    check_broadcast("where", condition, x, other)
    return Where.apply(condition, x, other)


class Clamp(Op):
    """y = min(max(x, min), max);   dx = dy where min ≤ x ≤ max, else 0"""

    cases = [case((3, 4), min=-0.5, max=0.7), case((3, 4), min=0.1, max=None)]

    def forward(self, x, min, max):
        self.save_inputs(x)
        return self.backend.clamp(x, min, max)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        inside = x == x.clamp(self.min, self.max)
        return where(inside, dy, 0.0)


def clamp(x, min=None, max=None):
    """x limited to [min, max]; either bound may be None. Numbers only: for tensor bounds use maximum and minimum."""
    if min is None and max is None:
        raise ValueError("clamp: give min, max or both")
    for bound in (min, max):
        if bound is not None and not isinstance(bound, (int, float)):
            raise TypeError("clamp: min and max are numbers; for tensor bounds use maximum and minimum")
    if any(isinstance(bound, float) for bound in (min, max)):
        x = floating(x)
    return Clamp.apply(x, min=min, max=max)


class Cast(Op):
    """y = x in another dtype;   dx = dy in x's dtype"""

    cases = [case((3, 4), dtype="float64")]

    def forward(self, x, dtype):
        self.source = x.dtype
        return self.backend.cast(x, dtype)

    def backward(self, dy):
        return Cast.apply(dy, dtype=self.source)


# ---------------------------------------------------------------------------------------------- comparisons, predicates


class _Predicate(Op, abstract=True):
    broadcasts = True
    differentiable = False

    def forward(self, *xs):
        return getattr(self.backend, self.primitive)(*xs)


def _predicate(primitive, doc, *cases):
    """Declare an op with bool output and no gradient; returns its class."""
    name = "".join(part.capitalize() for part in primitive.split("_"))
    return type(name, (_Predicate,), {"__doc__": doc, "__module__": __name__, "cases": list(cases), "primitive": primitive})


_PAIR = (case((3, 4), (4,)), case(integers((3, 4), 3), 1))
_BITS = (case(booleans((3, 4)), booleans((4,))),)
_comparison = {
    name: _binary(_predicate(name, f"y = a {sign} b, bool;   no gradient", *_PAIR))
    for name, sign in dict(eq="==", ne="≠", lt="<", le="≤", gt=">", ge="≥").items()
}
eq, ne, lt, le, gt, ge = _comparison.values()

_LogicalAnd = _predicate("logical_and", "y = a and b, bool;   no gradient", *_BITS)
_LogicalOr = _predicate("logical_or", "y = a or b, bool;   no gradient", *_BITS)
_LogicalXor = _predicate("logical_xor", "y = a or b but not both, bool;   no gradient", *_BITS)
_LogicalNot = _predicate("logical_not", "y = not x, bool;   no gradient", case(booleans((3, 4))))
_Isnan = _predicate("isnan", "y = is x NaN?, bool;   no gradient", case((3, 4)))
_Isinf = _predicate("isinf", "y = is x ±∞?, bool;   no gradient", case((3, 4)))
_Isfinite = _predicate("isfinite", "y = is x neither NaN nor ±∞?, bool;   no gradient", case((3, 4)))

logical_and, logical_or, logical_xor = _binary(_LogicalAnd), _binary(_LogicalOr), _binary(_LogicalXor)


def logical_not(x):
    """True where x is 0 or False. Same shape, bool."""
    return _LogicalNot.apply(x)


def isnan(x):
    """True where x is NaN. Same shape, bool."""
    return _Isnan.apply(x)


def isinf(x):
    """True where x is +∞ or -∞. Same shape, bool."""
    return _Isinf.apply(x)


def isfinite(x):
    """True where x is neither NaN nor infinite. Same shape, bool."""
    return _Isfinite.apply(x)


# ---------------------------------------------------------------------------------------------------- public functions

add, sub, mul, maximum, minimum = (_binary(op) for op in (Add, Sub, Mul, Maximum, Minimum))
exp, log, sqrt, rsqrt, sin, cos, erf = (_unary(op) for op in (Exp, Log, Sqrt, Rsqrt, Sin, Cos, Erf))
tanh, sigmoid, silu = _unary(Tanh), _unary(Sigmoid), _unary(Silu)
_div, _pow = _binary(Div), _binary(Pow)


def div(x, other):
    """x / other, true division: of integers too, in float32."""
    x = x if not isinstance(x, Value) else floating(x)
    return _div(x, other if not isinstance(other, Value) else floating(other))


def pow(x, exponent):
    """x ** exponent, tensors or numbers. Of integers with a non-negative int exponent, an integer."""
    if isinstance(exponent, int) and exponent < 0:
        x = floating(x)
    return _pow(x, exponent)


def neg(x):
    """-x. Same shape and dtype; not for bools."""
    if x.dtype.kind == "b":
        raise TypeError("neg of a bool tensor; use ~x or logical_not")
    return Neg.apply(x)


def abs(x):
    """|x|. Same shape and dtype."""
    return Abs.apply(x)


def sign(x):
    """-1, 0 or 1. Same shape and dtype; no gradient."""
    return Sign.apply(x)


def floor(x):
    """The largest integer ≤ x, in x's dtype; no gradient."""
    return Floor.apply(x)


def relu(x):
    """max(x, 0). Same shape and dtype; the gradient at 0 is 0."""
    return Relu.apply(x)
