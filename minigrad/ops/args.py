"""Checks and conversions of arguments, before an op runs: Tensors, dims and shapes.

autograd/arguments.py does the same for flags and numbers. Derivatives skip all this where they can."""

import operator
from collections.abc import Callable
from reprlib import repr as shown
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd import Value
from ..autograd.arguments import kind_of, not_a_tensor_error
from ..typing import F

SEVERAL = tuple, list, range, np.ndarray  # types of sequences of sizes or dims


def returns_functions_like(signature: F) -> Callable[[Any], Callable[..., F]]:
    """Decorate a function that makes public functions: type checkers see these functions with the given signature."""
    return lambda maker: maker


def also_in_place(function: F) -> F:
    """Decorate a public function whose result has the shape of its first Tensor: Tensor offers it in place too, under
    its name with an underscore, as exp_ for exp."""
    function.also_in_place = True  # type: ignore[attr-defined]
    return function


def require_tensor(name, x, argument="input"):
    """Return x. Raises TypeError, which names the function and its argument, unless x is a Tensor."""
    if not isinstance(x, Value):
        raise not_a_tensor_error(name, argument, x)
    return x


def require_ints(name, argument, x):
    """Raise TypeError unless x is a Tensor of integers."""
    if not isinstance(x, Value):
        raise not_a_tensor_error(name, argument, x, "an int Tensor")
    if x.dtype.kind not in "iu":
        raise TypeError(f"{name}: {argument} must be an int Tensor, got {kind_of(x)}; {argument}.long() casts")


def require_mask(name, argument, x):
    """Return x, a Tensor of bool or uint8, as bools. Raises TypeError for anything else."""
    if not isinstance(x, Value):
        raise not_a_tensor_error(name, argument, x, "a bool Tensor")
    if x.dtype not in (dtypes.bool_, dtypes.uint8):
        raise TypeError(f"{name}: {argument} must be a bool Tensor, got {kind_of(x)}; {argument}.bool() casts")
    return x if x.dtype == dtypes.bool_ else x.to(dtypes.bool_)


def to_float(x):
    """Return x, or a cast of it to float32 if it holds integers or bools."""
    return x if x.dtype.kind == "f" else x.to(dtypes.DEFAULT_FLOAT)


def require_float(name, *xs):
    """Raise TypeError unless all of xs are None or Tensors of floats."""
    for x in xs:
        if x is not None and not isinstance(x, Value):
            raise TypeError(f"{name} needs Tensors of floats, got {kind_of(x)}; minigrad.tensor(…) makes one")
        if x is not None and x.dtype.kind != "f":
            raise TypeError(f"{name} needs floating-point input, got {x.dtype}; convert with .to(minigrad.float32)")


def refuse_bools(name, dtype):
    """Raise TypeError if dtype is bool."""
    if dtype.kind == "b":
        raise TypeError(f"{name} is not defined for bools; convert one with .long()")


def promote(name, *operands):
    """Return the operands in one dtype, of which at least one must be a Tensor.

    Tensors are cast, arrays become Tensors without a gradient, and Python's and NumPy's scalars stay numbers that do
    not widen the dtype. As in PyTorch, CPU Tensors without dims go to the device of the other operand."""
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
        kinds = " and ".join(map(kind_of, operands)) or "none"
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
        xs = [x if isinstance(x, Value) else fit_number(name, x, dtype) for x in xs]
    xs = [x.to(device) if isinstance(x, Value) and x.ndim == 0 and x.device != device else x for x in xs]
    return [x.to(dtype) if isinstance(x, Value) and x.dtype != dtype else x for x in xs]


_ANY_NUMBER = {"div", "eq", "ne", "lt", "le", "gt", "ge"}  # functions whose number may lie outside the tensor's dtype


def fit_number(name, number, dtype):
    """Return a Python number for an operation with Tensors of an integer dtype.

    add, sub and mul wrap it into the dtype, as they wrap their results. Comparisons and div take any number. Raises
    OverflowError for a number outside of the dtype in any other function."""
    if name in _ANY_NUMBER or isinstance(number, bool):
        return number
    if name in ("add", "sub", "mul"):
        return dtypes.modulo(name, dtype, number)
    dtypes.check_holds(name, dtype, number)
    return number


def _operand(name, first, x):
    """Return x, which is no Tensor, as a Python number, or as a Tensor on the device of `first`. Raises TypeError for
    anything but numbers and arrays."""
    if isinstance(x, (bool, int, float)):
        return float(x) if isinstance(x, float) else x  # np.float64 is a float, and would not be weak
    if isinstance(x, np.floating):
        return float(x)  # item() of NumPy's long double is a long double
    if isinstance(x, np.generic):
        return _operand(name, first, x.item())
    if isinstance(x, np.ndarray):
        return first.constant(dtypes.plain(name, x))
    instead = f": write mg.tensor({shown(x)})" if isinstance(x, (list, tuple)) else ""
    raise TypeError(f"{name} takes Tensors, NumPy arrays and real numbers, got {kind_of(x)}{instead}")


def check_broadcast(name, *xs):
    """Raise ValueError, which names the shapes, if the Tensors among xs do not broadcast."""
    try:
        np.broadcast_shapes(*(x.shape for x in xs if isinstance(x, Value)))
    except ValueError:
        shapes = " and ".join(str(x.shape) for x in xs if isinstance(x, Value))
        raise ValueError(f"{name}: shapes {shapes} do not broadcast") from None


def float_dim(name, x, dim):
    """Return `one_dim` of x, which must hold floats."""
    ndim = require_tensor(name, x).ndim
    if x.dtype.kind == "f" and type(dim) is int and -ndim <= dim < ndim:
        return dim % ndim
    require_float(name, x)
    return one_dim(name, x, dim)


def one_dim(name, x, dim, new=0):
    """Return dim as a number in [0, x.ndim). A Tensor without dims counts as having one. new=1: a dim may be added."""
    ndim = require_tensor(name, x).ndim + new or 1
    if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)):
        raise TypeError(f"{name}: dim must be an int, got {shown(dim)}")
    if not -ndim <= dim < ndim:
        raise IndexError(f"{name}: dim {dim} is out of range for shape {x.shape}")
    return int(dim) % ndim


def many_dims(name, x, dim):
    """Return dim (None for all, a number or several) as a sorted tuple of numbers in [0, x.ndim)."""
    ndim = require_tensor(name, x).ndim
    if dim is None:
        return tuple(range(ndim))
    dims = [one_dim(name, x, d) for d in (dim if isinstance(dim, SEVERAL) else (dim,))]
    if ndim and len(set(dims)) != len(dims):
        raise ValueError(f"{name}: dim {dim} names a dimension twice for shape {x.shape}")
    return tuple(sorted(dims)) if dims and ndim else tuple(range(ndim))


def shape_of(name, sizes):
    """Return the sizes of f(2, 3) or f((2, 3)) as a tuple of ints."""
    if len(sizes) == 1 and isinstance(sizes[0], SEVERAL):
        sizes = sizes[0]
    try:
        return tuple(map(operator.index, sizes))
    except (TypeError, ValueError):  # ValueError: a Tensor of several numbers
        raise TypeError(f"{name}: sizes and dims are ints, got {shown(sizes)}") from None
