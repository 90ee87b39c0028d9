"""How the public functions read Tensors, dims and shapes; autograd/arguments.py reads flags and numbers. Inner loops
skip all this."""

import operator
from collections.abc import Callable
from reprlib import repr as shown
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd import Op, Value
from ..typing import F

SEVERAL = tuple, list, range, np.ndarray  # types of sequences of sizes or dims


def giving(signature: F) -> Callable[[Any], Callable[[type[Op]], F]]:
    """Decorates a function that makes an op's public function, and tells type checkers its signature."""
    return lambda maker: maker


def floating(x):
    """x itself, or x as float32 if it holds integers or bools: what a function such as exp computes on."""
    return x if x.dtype.kind == "f" else x.to(dtypes.DEFAULT_FLOAT)


def require_float(name, *xs):
    for x in xs:
        if x is not None and x.dtype.kind != "f":
            raise TypeError(f"{name} needs floating-point input, got {x.dtype}; convert with .to(minigrad.float32)")


def refuse_bools(name, dtype):
    if dtype.kind == "b":
        raise TypeError(f"{name} is not defined for bools; convert one with .long()")


def promoted(name, *operands):
    """The inputs in one dtype: Tensors cast, Python and NumPy scalars weak, arrays taken as constants. As in PyTorch,
    CPU Tensors without dims go to the device of the other operand."""
    x, other = operands if len(operands) == 2 else (None, None)
    if type(x) in (float, int):
        x, other = other, x
    if isinstance(x, Value):  # the usual case
        if isinstance(other, Value):
            if other.array.dtype is x.array.dtype and other.storage.backend is x.storage.backend:
                return operands
        elif type(other) in (float, int) and x.array.dtype.kind == "f":
            return operands
    first = next((x for x in operands if isinstance(x, Value)), None)
    if first is None:
        kinds = ", ".join(type(x).__name__ for x in operands) or "none"
        raise TypeError(f"{name} needs at least one Tensor, got {kinds}; minigrad.tensor(…) makes one")
    xs = [x if isinstance(x, Value) else _operand(name, first, x) for x in operands]
    dtype, device = first.dtype, first.device
    for x in xs:
        if isinstance(x, Value):
            dtype = dtypes.promote(dtype, x.dtype)
            device = device if x.device == "cpu" else x.device
    for x in xs:
        if not isinstance(x, Value):
            dtype = dtypes.promote_number(dtype, x)
    if dtype.kind in "iu":
        xs = [x if isinstance(x, Value) else fitting(name, x, dtype) for x in xs]
    xs = [x.to(device) if isinstance(x, Value) and x.ndim == 0 and x.device != device else x for x in xs]
    return [x.to(dtype) if isinstance(x, Value) and x.dtype != dtype else x for x in xs]


_ANY_NUMBER = {"div", "eq", "ne", "lt", "le", "gt", "ge"}  # functions whose number may lie outside the tensor's dtype


def fitting(name, number, dtype):
    """A number for an operation with an integer dtype: add, sub and mul wrap it, as they do their results. Raises
    OverflowError where others would have to."""
    if name in _ANY_NUMBER or isinstance(number, bool):
        return number
    if name in ("add", "sub", "mul"):
        return dtypes.modulo(name, dtype, number)
    dtypes.check_holds(name, dtype, number)
    return number


def _operand(name, first, x):
    if isinstance(x, (bool, int, float)):
        return float(x) if isinstance(x, float) else x  # np.float64 is a float, and would not be weak
    if isinstance(x, np.floating):
        return float(x)  # item() of NumPy's long double is a long double
    if isinstance(x, np.generic):
        return _operand(name, first, x.item())
    if isinstance(x, np.ndarray):
        return first.constant(x)
    raise TypeError(f"{name} takes Tensors, arrays and real numbers, not {type(x).__name__}")


def check_broadcast(name, *xs):
    """Raise, naming op and shapes, if the Tensors among xs do not broadcast."""
    try:
        np.broadcast_shapes(*(x.shape for x in xs if isinstance(x, Value)))
    except ValueError:
        shapes = " and ".join(str(x.shape) for x in xs if isinstance(x, Value))
        raise ValueError(f"{name}: shapes {shapes} do not broadcast") from None


def float_dim(name, x, dim):
    """`one_dim` of x, which must hold floats."""
    ndim = x.ndim
    if x.dtype.kind == "f" and type(dim) is int and -ndim <= dim < ndim:
        return dim % ndim
    require_float(name, x)
    return one_dim(name, x, dim)


def one_dim(name, x, dim, new=0):
    """dim as a number in [0, x.ndim); a 0-d tensor counts as having one dimension. new=1: where one may be added."""
    ndim = x.ndim + new or 1
    if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)):
        raise TypeError(f"{name}: dim must be an int, got {shown(dim)}")
    if not -ndim <= dim < ndim:
        raise IndexError(f"{name}: dim {dim} is out of range for shape {x.shape}")
    return int(dim) % ndim


def many_dims(name, x, dim):
    """dim (None for all, a number or several) as a sorted tuple of numbers in [0, x.ndim)."""
    ndim = x.ndim
    if dim is None:
        return tuple(range(ndim))
    dims = [one_dim(name, x, d) for d in (dim if isinstance(dim, SEVERAL) else (dim,))]
    if ndim and len(set(dims)) != len(dims):
        raise ValueError(f"{name}: dim {dim} names a dimension twice for shape {x.shape}")
    return tuple(sorted(dims)) if dims and ndim else tuple(range(ndim))


def shape_of(name, sizes):
    """The sizes of f(2, 3) or f((2, 3)) as a tuple of ints."""
    if len(sizes) == 1 and isinstance(sizes[0], SEVERAL):
        sizes = sizes[0]
    try:
        return tuple(map(operator.index, sizes))
    except (TypeError, ValueError):  # ValueError: a Tensor of several numbers
        raise TypeError(f"{name} takes ints, got {sizes}") from None
