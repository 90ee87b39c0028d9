"""The elementwise primitives: what each is in NumPy and in C, and for which dtypes there is one.

The reference takes its NumPy functions from here, and kernels/elementwise.cu its entry points.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

NUMBERS, ALL = "fi", "fib"


class Row(NamedTuple):
    """y = f(a), f(a, b) or f(a, b, c) at each place."""

    name: str
    arity: int
    numpy: Callable | None  # None: several lines of NumPy, which stand in backend/reference/elementwise.py
    c: str  # y for operands a, b, c, of type R; nb and nc are b and c of a row that takes numbers there
    kinds: str = "f"  # of the dtypes it is for: f floats, i integers, b bools
    result: str = "same"  # or "bool"; y's dtype
    ints: str = ""  # c for integers and bools, where that is something else
    wide: bool = False  # take integers as long long: a number beside them may lie outside their dtype


def _comparison(name, numpy, sign):
    return Row(name, 2, numpy, f"a {sign} b", ALL, "bool", wide=True)


def _logic(name, numpy, c):
    return Row(name, 2, numpy, c, ALL, "bool")


PRIMITIVES = (
    Row("add", 2, np.add, "a + b", ALL),
    Row("sub", 2, np.subtract, "a - b", NUMBERS),
    Row("mul", 2, np.multiply, "a * b", ALL),
    Row("div", 2, np.true_divide, "a / b"),
    Row("neg", 1, np.negative, "-a", NUMBERS),
    Row("abs", 1, np.abs, "fabs(a)", ALL, ints="a < 0 ? -a : a"),
    Row("sign", 1, np.sign, "a > 0 ? R(1) : a < 0 ? R(-1) : a == 0 ? R(0) : a", NUMBERS),
    Row("floor", 1, np.floor, "floor(a)", ALL, ints="a"),
    Row("maximum", 2, np.maximum, "larger(a, b)", ALL),
    Row("minimum", 2, np.minimum, "smaller(a, b)", ALL),
    Row("clamp", 3, np.clip, "smaller(larger(a, R(nb)), R(nc))", NUMBERS),
    Row("where", 3, np.where, "a ? b : c", ALL),
    Row("pow", 2, np.power, "pow(a, b)", NUMBERS, ints="whole_power(a, b)"),
    Row("sqrt", 1, np.sqrt, "sqrt(a)"),
    Row("rsqrt", 1, lambda x: 1 / np.sqrt(x), "R(1) / sqrt(a)"),
    Row("exp", 1, np.exp, "exp(a)"),
    Row("log", 1, np.log, "log(a)"),
    Row("sin", 1, np.sin, "sin(a)"),
    Row("cos", 1, np.cos, "cos(a)"),
    Row("tanh", 1, np.tanh, "tanh(a)"),
    Row("erf", 1, None, "erf(a)"),
    Row("erfc", 1, None, "erfc(a)"),
    Row("relu", 1, lambda x: np.maximum(x, 0), "larger(a, R(0))", NUMBERS),
    Row("sigmoid", 1, None, "sigmoid(a)"),
    Row("silu", 1, None, "silu(a)"),
    _comparison("eq", np.equal, "=="),
    _comparison("ne", np.not_equal, "!="),
    _comparison("lt", np.less, "<"),
    _comparison("le", np.less_equal, "<="),
    _comparison("gt", np.greater, ">"),
    _comparison("ge", np.greater_equal, ">="),
    _logic("logical_and", np.logical_and, "a != 0 && b != 0"),
    _logic("logical_or", np.logical_or, "a != 0 || b != 0"),
    _logic("logical_xor", np.logical_xor, "(a != 0) != (b != 0)"),
    Row("logical_not", 1, np.logical_not, "a == 0", ALL, "bool"),
    Row("isnan", 1, np.isnan, "a != a", ALL, "bool", ints="false"),
    Row("isinf", 1, np.isinf, "fabs(a) == INF", ALL, "bool", ints="false"),
    Row("isfinite", 1, np.isfinite, "fabs(a) < INF", ALL, "bool", ints="true"),
)

# Forms of a primitive, of which it chooses one by its other arguments: pow(x, 2) is square, gelu(x, "tanh") gelu_tanh.
FORMS = (
    Row("one", 1, np.ones_like, "R(1)"),
    Row("same", 1, np.positive, "a"),
    Row("square", 1, np.square, "a * a"),
    Row("cube", 1, lambda x: x * x * x, "a * a * a"),
    Row("reciprocal", 1, lambda x: 1 / x, "R(1) / a"),
    Row("gelu_none", 1, None, "gelu_none(a)"),
    Row("gelu_tanh", 1, None, "gelu_tanh(a)"),
    Row("gelu_backward_none", 3, None, "a * gelu_slope_none(b, c)"),
    Row("gelu_backward_tanh", 2, None, "a * gelu_slope_tanh(b)"),
)
POWERS = {0: "one", 1: "same", 2: "square", 3: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}

TABLE = {row.name: row for row in PRIMITIVES + FORMS}


def numpy_functions(*names):
    """The NumPy functions of primitives."""
    return [TABLE[name].numpy for name in names]


def kind_of(dtype):
    """'f', 'i' or 'b', or another letter for what kernels do not know."""
    return {"u": "i"}.get(dtype.kind, dtype.kind)


def entries(dtype):
    """The C text of all entry points for a dtype (a name such as 'float32')."""
    kind = kind_of(np.dtype(dtype))
    return "\n".join(_entry(row, kind) for row in TABLE.values() if kind in row.kinds)


def _entry(row, kind):
    result, first = "bool" if row.result == "bool" else "T", "bool" if row.name == "where" else "T"
    number = "double" if kind == "f" else "long long"
    value = "long long" if row.wide and kind != "f" else "R"
    letters = "abc"[: row.arity]
    parameters = [f"{result}* y", *(f"const {first if x == 'a' else 'T'}* {x}" for x in letters)]
    parameters += [*(f"{number} n{x}" for x in letters), "Layout layout"]
    c = row.ints if row.ints and kind != "f" else row.c
    if row.name == "where":
        body = "choose(y, a, b, c, nb, nc, layout);"
    elif row.name == "clamp":
        body = f"map1<R>(y, a, layout, [=](R a) {{ return {c}; }});"
    else:
        numbers = ", na, nb" if row.arity == 2 else ""
        operands = ", ".join(f"{value} {x}" for x in letters)
        body = f"map{row.arity}<{value}>(y, {', '.join(letters)}{numbers}, layout, [=]({operands}) {{ return {c}; }});"
    return f'extern "C" __global__ void {row.name}_kernel({", ".join(parameters)}) {{\n  {body}\n}}\n'
