"""Elementwise primitives, made from the table, and casts.

Types are resolved as NumPy resolves them: Python numbers are weak, arrays of other dtypes are cast first."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ..table import POWERS, PRIMITIVES, TABLE, kind_of
from .base import Launcher, broadcast_strides, layout

_BOOL = np.dtype(bool)


class Operand(NamedTuple):
    """What a plan needs to know of an array."""

    dtype: np.dtype
    shape: tuple
    strides: tuple

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def itemsize(self):
        return self.dtype.itemsize


class Place(NamedTuple):
    """Where an output lies in memory, and the struct Layout of it and the operands."""

    shape: tuple  # in memory: the dims in the order in which they lie there
    back: tuple | None  # the transposition from that to the output; None: it is none
    size: int
    layout: bytes


class Plan(NamedTuple):
    """A call of a primitive on operands of certain dtypes, shapes and strides; most calls have been made before."""

    dtype: np.dtype  # that the kernel is compiled for
    dtypes: tuple  # of the operands
    casts: bool  # whether an array has another dtype than that
    result: np.dtype
    place: Place


@functools.lru_cache(1 << 14)
def planned(name, out, *operands):
    """The plan for operands: (dtype, shape, strides) for an array, a dtype or bool, int, float for a number."""
    row = TABLE[name]
    arrays = [Operand(*x) for x in operands if isinstance(x, tuple)]
    if not arrays or (name == "where" and not isinstance(operands[0], tuple)):
        raise TypeError(f"{name} needs an array, got {operands}")
    kinds = [x[0] if isinstance(x, tuple) else x for x in operands]
    dtype = resolved(row, kinds, out and out[0])
    if kind_of(dtype) not in row.kinds:
        raise TypeError(f"{name} is not defined for {dtype}")
    dtypes = (_BOOL if name == "where" else dtype, *(dtype,) * (row.arity - 1))
    casts = any(isinstance(x, tuple) and x[0] != wanted for x, wanted in zip(operands, dtypes))
    result = _BOOL if row.result == "bool" else dtype
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    if out is not None:
        if np.broadcast_shapes(shape, out[1]) != out[1]:
            raise ValueError(f"{name}: operands of shape {shape} do not fit into an output of shape {out[1]}")
        out, shape = Operand(*out), out[1]
    return Plan(dtype, dtypes, casts, result, placed(result, shape, arrays, out))


def placed(dtype, shape, operands, out=None):
    """The Place of an output, which lies in memory as the first operand of its shape does. out: the output is there."""
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
    return Place(memory, None if back == tuple(range(len(back))) else back, size, packed)


@functools.lru_cache(1 << 12)
def cast_placed(dtype, *x):
    return placed(dtype, x[1], (Operand(*x),))


def resolved(row, kinds, out):
    """The dtype that a row computes in, for operands of `kinds`: dtypes, or bool, int and float for Python numbers."""
    kinds = [_BOOL if kind is bool else kind for kind in kinds]
    if isinstance(row.numpy, np.ufunc) and not row.name.startswith("logical"):  # those take a float for a bool
        dtype = row.numpy.resolve_dtypes((*kinds, out))[0]
        return dtype if out is None else out
    kinds = kinds[1:] if row.name == "where" else kinds
    return np.result_type(*({int: 1, float: 1.0}.get(kind, kind) for kind in kinds))


def compact_strides(shape, itemsize):
    strides = []
    for n in reversed(shape):
        strides.append(itemsize)
        itemsize *= n
    return tuple(reversed(strides))


class Elementwise(Launcher):
    """The primitives of PRIMITIVES become methods below; here are those that take more than arrays and numbers."""

    def pow(self, x, y):
        if isinstance(y, (int, float)) and not isinstance(x, (int, float)):
            if y in POWERS and x.dtype.kind == "f":
                return self._map(POWERS[y], x)
            if y < 0 and x.dtype.kind in "iub" and isinstance(y, int):
                raise ValueError("integers to negative integer powers are not allowed")
        return self._map("pow", x, y)

    def clamp(self, x, min, max):
        dtype = np.result_type(x.dtype, *(v for v in (min, max) if v is not None))
        low, high = (-math.inf, math.inf)
        if dtype.kind in "iu":  # bounds beyond the dtype's limits bind nothing
            low, high = (int(n) for n in (np.iinfo(dtype).min, np.iinfo(dtype).max))
            min, max = (v if v is None else sorted((low, v, high))[1] for v in (min, max))
        return self._map("clamp", self._as(x, dtype), low if min is None else min, high if max is None else max)

    def gelu(self, x, approximate):
        return self._map(f"gelu_{approximate}", x)

    def gelu_backward(self, dy, x, y, approximate):
        if approximate == "tanh":
            return self._map("gelu_backward_tanh", dy, x)
        return self._map("gelu_backward_none", dy, x, y)

    def cast(self, x, dtype):
        dtype = np.dtype(dtype)
        place = cast_placed(dtype, x.dtype, x.shape, x.strides)
        y = self._made(place, dtype)
        self.launch_each(place.size, "cast", f"to_{dtype.name}_kernel", x.dtype, y, x, place.layout)
        return y

    def _as(self, x, dtype):
        return x if x.dtype == dtype else self.cast(x, dtype)

    def _map(self, name, *operands, out=None):
        """The row `name` of the table on arrays and numbers; into `out`, which may be one of them, if given."""
        Array: Any = self.Array
        if out is not None:
            operands = tuple([self._apart(x, out) if type(x) is Array else x for x in operands])
        about = [(x.dtype, x.shape, x.strides) if type(x) is Array else _kind(x) for x in operands]
        plan = planned(name, None if out is None else (out.dtype, out.shape, out.strides), *about)
        if plan.casts:
            pairs = zip(operands, plan.dtypes)
            return self._map(name, *(self._as(x, t) if type(x) is Array else x for x, t in pairs), out=out)
        y = self._made(plan.place, plan.result) if out is None else out
        pointers, numbers = [], []
        for x in operands:
            if type(x) is Array:
                pointers.append(x)
                numbers.append(0)
            else:
                pointers.append(None)
                numbers.append(_number(x, plan.dtype, TABLE[name].wide))
        size, packed = plan.place.size, plan.place.layout
        self.launch_each(size, "elementwise", name + "_kernel", plan.dtype, y, *pointers, *numbers, packed)
        return y

    def _made(self, place, dtype):
        y = self.empty(place.shape, dtype)
        return y if place.back is None else y.transpose(place.back)

    def _apart(self, x, y):
        """x, or a copy of it where its elements lie in y's memory, but not each in its own place."""
        return self.copy(x) if x is not y and self.overlap(x, y) else x


def _kind(x):
    """What a plan needs to know of a number: the dtype of one of NumPy's, else bool, int or float."""
    if isinstance(x, np.generic):
        return x.dtype
    for kind in (bool, int, float):
        if isinstance(x, kind):
            return kind
    raise TypeError(f"an operand must be an array or a number, not {type(x).__name__}")


def _number(x, dtype, wide):
    """A number as what a kernel for `dtype` takes. wide: it may lie outside an integer dtype, as in a comparison."""
    x = x.item() if isinstance(x, np.generic) else x
    if dtype == np.float16:
        return float(dtype.type(x))
    if dtype.kind in "iu" and not wide and not np.iinfo(dtype).min <= x <= np.iinfo(dtype).max:
        raise OverflowError(f"the number {x} does not fit into {dtype}")
    return x


def _method(row):
    def unary(self, x):
        return self._map(row.name, x)

    def binary(self, x, y, out=None):
        return self._map(row.name, x, y, out=out)

    def ternary(self, x, y, z):
        return self._map(row.name, x, y, z)

    method = (unary, binary, ternary)[row.arity - 1]
    method.__name__ = row.name
    method.__doc__ = f"y = {row.c}, of operands a, b, c."
    return method


for _row in PRIMITIVES:
    if _row.name not in vars(Elementwise):
        setattr(Elementwise, _row.name, _method(_row))
