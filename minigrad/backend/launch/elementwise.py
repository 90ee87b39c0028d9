"""Elementwise primitives and casts.

Dtypes are resolved as NumPy does it: a Python number takes the dtype of the arrays, and arrays of another dtype than
the result's are cast first."""

import functools
import math
from typing import NamedTuple

import numpy as np

from ..numpy.elementwise import Elementwise as Numpys
from .launcher import BOOL, Launcher, broadcast_strides, layout
from .rules import EXACT, KERNEL, SAME_BITS
from .source import TABLE, dtype_kind

POWERS = {0: "one", 1: "same", 2: "square", 3: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}


class Operand(NamedTuple):
    """What a plan depends on in an array."""

    dtype: np.dtype
    shape: tuple
    strides: tuple

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def itemsize(self):
        return self.dtype.itemsize


class Output(NamedTuple):
    """The memory layout of an output."""

    shape: tuple  # sizes of the dims, in the order in which they lie in memory
    back: tuple | None  # the transposition from that order to the output's own dims; None if none is needed
    size: int
    layout: bytes  # the struct Layout of the output and the operands


class Plan(NamedTuple):
    """Everything about a launch that follows from the dtypes, shapes and strides of its operands. Plans are cached."""

    entry: str  # the entry point
    dtype: np.dtype  # the dtype for which the kernel is compiled
    dtypes: tuple  # the dtype that each operand must have
    casts: bool  # True if an array must be cast first
    no_numbers: tuple | None  # if all operands are arrays, a 0 for each; otherwise None
    result: np.dtype
    output: Output


def formula(rule, name):
    """The primitive that computes the formula `name` of the table in kernels/elementwise.cu."""

    def launch(self, *operands, out=None):
        return self._map(name, operands, out)

    launch.__name__ = name
    return rule(launch)


class Elementwise(Launcher):
    exp = formula(KERNEL, "exp")
    log = formula(KERNEL, "log")
    log1p = formula(KERNEL, "log1p")
    sin = formula(KERNEL, "sin")
    cos = formula(KERNEL, "cos")
    tanh = formula(KERNEL, "tanh")
    erf = formula(KERNEL, "erf")
    erfc = formula(KERNEL, "erfc")
    sigmoid = formula(KERNEL, "sigmoid")
    silu = formula(KERNEL, "silu")
    add = formula(EXACT, "add")
    sub = formula(EXACT, "sub")
    mul = formula(EXACT, "mul")
    div = formula(EXACT, "div")
    maximum = formula(EXACT, "maximum")
    minimum = formula(EXACT, "minimum")
    neg = formula(EXACT, "neg")
    abs = formula(EXACT, "abs")
    sqrt = formula(EXACT, "sqrt")
    rsqrt = formula(EXACT, "rsqrt")
    relu = formula(EXACT, "relu")
    where = formula(EXACT, "where")
    floor_divide = formula(EXACT, "floor_divide")
    remainder = formula(EXACT, "remainder")
    sign = formula(EXACT, "sign")
    floor = formula(SAME_BITS, "floor")
    round = formula(SAME_BITS, "round")
    isnan = formula(SAME_BITS, "isnan")
    isinf = formula(SAME_BITS, "isinf")
    isfinite = formula(SAME_BITS, "isfinite")
    logical_and = formula(SAME_BITS, "logical_and")
    logical_or = formula(SAME_BITS, "logical_or")
    logical_not = formula(SAME_BITS, "logical_not")
    bitwise_and = formula(SAME_BITS, "bitwise_and")
    bitwise_or = formula(SAME_BITS, "bitwise_or")
    bitwise_xor = formula(SAME_BITS, "bitwise_xor")
    bitwise_not = formula(SAME_BITS, "bitwise_not")
    eq = formula(SAME_BITS, "eq")
    ne = formula(SAME_BITS, "ne")
    lt = formula(SAME_BITS, "lt")
    le = formula(SAME_BITS, "le")
    gt = formula(SAME_BITS, "gt")
    ge = formula(SAME_BITS, "ge")

    @KERNEL
    def pow(self, x, y):
        if isinstance(y, (int, float)) and not isinstance(x, (int, float)):
            if y in POWERS and x.dtype.kind == "f":
                return self._map(POWERS[y], (x,))
            if y < 0 and x.dtype.kind in "iub" and isinstance(y, int):
                raise ValueError("integers to negative integer powers are not allowed")
        return self._map("pow", (x, y))

    @KERNEL
    def clamp(self, x, min, max):
        dtype = np.result_type(x.dtype, *(v for v in (min, max) if v is not None))
        low, high = (-math.inf, math.inf)
        if dtype.kind in "iu":  # a bound beyond the dtype's limits has no effect
            low, high = (int(n) for n in (np.iinfo(dtype).min, np.iinfo(dtype).max))
            min, max = (v if v is None else sorted((low, v, high))[1] for v in (min, max))
        x = self._cast_to(x, dtype)
        if any(bound is not None and bound != bound for bound in (min, max)):  # NaN, which the kernel would ignore
            return self._map("mul", (x, math.nan))
        return self._map("clamp", (x, low if min is None else min, high if max is None else max))

    @KERNEL
    def gelu(self, x, approximate):
        return self._map(f"gelu_{approximate}", (x,))

    @KERNEL
    def gelu_backward(self, dy, x, y, approximate):
        if approximate == "tanh":
            return self._map("gelu_backward_tanh", (dy, x))
        return self._map("gelu_backward_none", (dy, x, y))

    @SAME_BITS
    def cast(self, x, dtype):
        dtype = np.dtype(dtype)
        output = cast_output(dtype, x.dtype, x.shape, x.strides)
        y = self._empty_output(output, dtype)
        entry, widest = f"to_{dtype.name}_kernel", max(dtype.itemsize, x.itemsize)
        self.launch_places(output.size, widest, "elementwise_cast", entry, x.dtype, y, x, output.layout)
        return y

    def _cast_to(self, x, dtype):
        """x, or a copy in another dtype."""
        return x if x.dtype == dtype else self.cast(x, dtype)

    def _map(self, name, operands, out=None):
        """Compute the formula `name` of arrays and numbers. out: an array for the result, or None; it may be an
        operand."""
        array_type = self.array_type
        if out is not None:
            operands = tuple([self._without_overlap(x, out) if type(x) is array_type else x for x in operands])
        kinds = [(x.dtype, x.shape, x.strides) if type(x) is array_type else _kind(x) for x in operands]
        kind_of_out = None if out is None else (out.dtype, out.shape, out.strides)
        entry, dtype, dtypes, casts, no_numbers, result, output = plan_for(name, kind_of_out, *kinds)
        if casts:
            pairs = zip(operands, dtypes)
            return self._map(name, [self._cast_to(x, t) if type(x) is array_type else x for x, t in pairs], out)
        y = self._empty_output(output, result) if out is None else out
        # The kernel gets an array or null for each operand, and then a number for each, which a null stands for.
        if no_numbers is None:
            numbers = [0 if type(x) is array_type else _number(x, dtype, TABLE[name].wide) for x in operands]
            operands = [x if type(x) is array_type else None for x in operands]
        else:
            numbers = no_numbers
        size, packed = output.size, output.layout
        self.launch_places(size, dtype.itemsize, "elementwise", entry, dtype, y, *operands, *numbers, packed)
        return y

    def _empty_output(self, output, dtype):
        """A new array in the memory layout of an Output."""
        y = self.empty(output.shape, dtype)
        return y if output.back is None else y.transpose(output.back)

    def _without_overlap(self, x, y):
        """x, or a copy if x and y are different arrays that overlap: writing to y would change elements of x before
        they are read."""
        return self.copy(x) if x is not y and self.overlap(x, y) else x


@functools.lru_cache(1 << 14)
def plan_for(name, out, *operands):
    """The Plan for operands and an output. An array is given as (dtype, shape, strides), a number by its dtype or as
    bool, int or float. out: None for a new array."""
    formula = TABLE[name]
    arrays = [Operand(*x) for x in operands if isinstance(x, tuple)]
    if not arrays or (name == "where" and not isinstance(operands[0], tuple)):
        raise TypeError(f"{name} needs at least one array, got {operands}")
    if formula.arity == 3 and name not in ("where", "clamp") and len(arrays) < 3:
        raise TypeError(f"{name} takes arrays, no numbers, got {operands}")
    kinds = [x[0] if isinstance(x, tuple) else x for x in operands]
    dtype = computing_dtype(formula, kinds, out and out[0])
    if dtype_kind(dtype) not in formula.kinds:
        raise TypeError(f"{name} is not defined for {dtype}")
    dtypes = (BOOL if name == "where" else dtype, *(dtype,) * (formula.arity - 1))
    casts = any(isinstance(x, tuple) and x[0] != wanted for x, wanted in zip(operands, dtypes))
    result = BOOL if formula.bools else dtype
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    if out is not None:
        if np.broadcast_shapes(shape, out[1]) != out[1]:
            raise ValueError(f"{name}: operands of shape {shape} do not fit into an output of shape {out[1]}")
        out, shape = Operand(*out), out[1]
    no_numbers = (0,) * len(operands) if len(arrays) == len(operands) else None
    return Plan(f"{name}_kernel", dtype, dtypes, casts, no_numbers, result, output_of(result, shape, arrays, out))


def output_of(dtype, shape, operands, out=None):
    """The Output for a result. It has the layout of `out`, the array that it is written to, or if that is None, of the
    first operand that has the result's shape."""
    first = out or next((x for x in operands if x.shape == shape), operands[0])
    order = tuple(range(len(shape)))
    long = [d for d in order if shape[d] != 1]
    if first.shape == shape and all(first.strides[d] for d in long):
        sorted_long = sorted(long, key=lambda d: -abs(first.strides[d]))
        if sorted_long != long:
            order = (*(d for d in order if shape[d] == 1), *sorted_long)
    memory = tuple([shape[d] for d in order])
    back = tuple([order.index(d) for d in range(len(shape))])
    strides = [compact_strides(memory, dtype.itemsize) if out is None else tuple([out.strides[d] for d in order])]
    for x in operands:
        steps = broadcast_strides(x, shape)
        strides.append(tuple([steps[d] for d in order]))
    size, packed = layout(memory, (dtype.itemsize, *(x.itemsize for x in operands)), *strides)
    return Output(memory, None if back == tuple(range(len(back))) else back, size, packed)


@functools.lru_cache(1 << 12)
def cast_output(dtype, *x):
    return output_of(dtype, x[1], (Operand(*x),))


def computing_dtype(formula, kinds, out):
    """The dtype in which a formula is computed. kinds: the dtype of each operand; bool, int or float for a Python
    number. out: the dtype of the output, or None."""
    kinds = [BOOL if kind is bool else kind for kind in kinds]
    named = [getattr(module, formula.name, None) for module in (Numpys, np)]
    ufunc = next((found for found in named if isinstance(found, np.ufunc)), None)
    if ufunc is not None and not formula.name.startswith("logical"):  # logical ufuncs would resolve floats to bool
        dtype = ufunc.resolve_dtypes((*kinds, out))[0]
        return dtype if out is None else out
    kinds = kinds[1:] if formula.name == "where" else kinds
    return np.result_type(*({int: 1, float: 1.0}.get(kind, kind) for kind in kinds))


def compact_strides(shape, itemsize):
    strides = []
    for n in reversed(shape):
        strides.append(itemsize)
        itemsize *= n
    return tuple(reversed(strides))


def _kind(x):
    """The dtype of a NumPy scalar; bool, int or float for a Python number. Raises TypeError for anything else."""
    if type(x) is float or type(x) is int:  # the usual case
        return type(x)
    if isinstance(x, np.generic):
        return x.dtype
    for kind in (bool, int, float):
        if isinstance(x, kind):
            return kind
    raise TypeError(f"an operand must be an array or a number, got {type(x).__name__}")


def _number(x, dtype, wide):
    """The number that a kernel for `dtype` is given for x. wide: it may lie outside of an integer dtype, as in a
    comparison. Raises OverflowError if it may not and does."""
    x = x.item() if isinstance(x, np.generic) else x
    if dtype.char == "e":  # float16
        return float(dtype.type(x))
    if dtype.kind in "iu" and not wide and not np.iinfo(dtype).min <= x <= np.iinfo(dtype).max:
        raise OverflowError(f"the number {x} does not fit into {dtype}")
    return x
