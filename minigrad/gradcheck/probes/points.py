"""Points, the calls that probes make up, and what the probes need to make them.

other_numbers.py, other_sizes.py and other_options.py have the probes. They take a ProbeContext, the user's call, and
yield Points; at_point.py checks the gradient at each. What they try is a fixed list: they do not read the function's
code, nor what it holds."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import autograd
from ...autograd import FormulaOp
from ...backend import reference
from ...tensor import Tensor, from_backend
from ..call import op_of
from ..subject import host, map_tensors, to_tensor


@dataclass
class Point:
    """A call at which the gradient is compared with differences."""

    name: str
    fn: Any
    inputs: tuple
    may_be_invalid: bool = False  # the function may not be meant for this call: a failure is a WARN
    backward_may_raise: bool = False  # an exception of the backward counts for nothing
    may_be_out_of_bounds: bool = False  # NumPy computes, which refuses such an index; a kernel would not look
    cut_size: int = 0  # the former size of the dims that were cut, or 0
    has_grown: bool = False  # a dim has more elements than the user gave it
    arrays: Any = None  # an array for each leaf, in place of the numbers of inputs and parameters


def on_numpy_backend(x):
    """Return x as a Tensor of the NumPy backend."""
    return from_backend(reference.from_numpy(host(x)), reference).requires_grad_(x.requires_grad)


def map_tensors_once(inputs, change):
    """Return the inputs with change(x) for each Tensor x. A Tensor that is passed twice is changed once."""
    done: dict[int, Tensor] = {}
    return map_tensors(inputs, lambda x: done[id(x)] if id(x) in done else done.setdefault(id(x), change(x)))


def like(x, array):
    """Return the array as a Tensor on x's device, which requires a gradient if x does."""
    with autograd.no_grad():
        y = to_tensor(np.array(array, x.dtype if x.dtype.kind != "f" else None), x)
    return y.requires_grad_() if x.requires_grad else y


# -- whose code it is


def is_library_code(x):
    """True if a function, class or object belongs to minigrad, NumPy or PyTorch."""
    module = getattr(x, "__module__", None) or type(x).__module__
    return module.startswith(("minigrad.", "numpy", "torch"))


def is_ours(op):
    """True if all code of this op class is minigrad's own."""
    return all(base.__module__.startswith("minigrad.") for base in op.__mro__[:-1])


def is_bare_op(p):
    """True if the function is an op class of minigrad itself. Only the public functions validate their arguments: a
    kernel would read out of bounds at an index beyond its dim."""
    op = op_of(p.fn)
    return op is not None and any(is_ours(base) for base in op.__mro__[:-2])


def user_ops(p):
    """[(op, its inputs)] of each op of the user's own that ran, once for each class and parameters."""
    distinct = {}
    for op, inputs in p.ran:
        cls = type(op)
        if op.serial >= 0 and not is_ours(cls) and not issubclass(cls, FormulaOp):
            distinct.setdefault((cls, repr(op.params)), (op, inputs))
    return list(distinct.values())
