"""The rules that say when NumPy computes a primitive on the CPU instead of a kernel.

A rule decorates a method of this package that launches kernels. The result is the primitive of every backend, such as
Native.softmax and Cuda.softmax. A GPU always launches. On the CPU, the rule may let NumPy compute.

A primitive must give the same bits at every size, and in a captured step (replay/), which runs kernels only. So NumPy
may compute only if it gives the kernel's bits in the kernel's memory layout. (The layout decides the order of later
sums.) Results are compact, whichever of the two computes them, with one exception: kernels on floats that are not
compact, such as transposed arrays, give results in the layout of the operands. NumPy never computes those.
"""

import enum
import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...base.capturing import refuse_within, thread
from ...base.quiet import call_quietly
from ..numpy import Numpy

MANY = 1 << 11  # elements; with fewer, NumPy is usually done before a kernel has been called
MANY_STRIDED = 1 << 14  # the same for copies of arrays that are not compact

Launch = TypeVar("Launch", bound=Callable[..., Any])
_reference = Numpy()


class Rule(enum.Enum):
    """What computes a primitive on the CPU.

    Whatever the rule, NumPy computes primitives of integers and bools alone, and of float16."""

    MOVE = "NumPy: it moves elements as fast as a kernel, and has no NaN to warn of"
    COPY = "a kernel for MANY_STRIDED elements that are not compact, which NumPy reads slowly; otherwise NumPy"
    SAME_BITS = "NumPy: it gives the kernel's bits, as fast"
    EXACT = "a kernel for MANY elements and for arrays that are not compact; otherwise NumPy, with the same bits"
    KERNEL = "a kernel: NumPy rounds in another way, sums in another order, or is far slower"

    def __call__(self, launch: Launch) -> Launch:
        """Return the primitive that launches kernels by `launch`, or calls NumPy's primitive of the same name."""
        return _primitive(self, launch)


MOVE, COPY, SAME_BITS, EXACT, KERNEL = Rule

_SMALLEST = {COPY: (math.inf, MANY_STRIDED), EXACT: (MANY, 0), KERNEL: (0, 0)}
"""{rule: the fewest elements that a kernel computes, (if all arrays are compact, if one is not)}"""


def _primitive(rule: Rule, launch: Any) -> Any:
    """Return the primitive that launches kernels by `launch`, or calls NumPy's primitive of the same name if the rule
    prefers it. In a captured step it always launches."""
    name, numpy_primitive = launch.__name__, getattr(_reference, launch.__name__)
    may_launch, may_warn, keeps_layout = rule in _SMALLEST, rule not in (MOVE, COPY), rule in (EXACT, KERNEL)
    smallest = _SMALLEST.get(rule)

    def captured(self, *args, **kwargs):
        """What a captured step calls: kernels, with a result in the layout that `primitive` gives it."""
        _refuse_float16(name, args)
        y = launch(self, *args, **kwargs)
        return y if keeps_layout and _has_floats(args) else _compacted(y, (*args, *kwargs.values()), self.copy)

    @functools.wraps(launch)
    def primitive(self, *args, **kwargs):
        session = thread.session
        if session is not None:
            return session.primitive(name, captured, self, args, kwargs)
        if not self.may_use_numpy or (may_launch and self.choose_kernel(smallest, args)):
            return launch(self, *args, **kwargs)
        y = call_quietly(numpy_primitive, args, kwargs) if may_warn else numpy_primitive(*args, **kwargs)
        return y if type(y) is np.ndarray and y.flags.c_contiguous else _compacted(y, (*args, *kwargs.values()))

    primitive.rule = rule  # type: ignore[attr-defined]
    return primitive


def capturable(name, uncaptured, captured):
    """Return the method `name` of a backend: uncaptured(self, …), of which a captured step captures captured(self,
    …)."""

    @functools.wraps(uncaptured)
    def method(self, *args, **kwargs):
        session = thread.session
        if session is None:
            return uncaptured(self, *args, **kwargs)
        return session.primitive(name, captured, self, args, kwargs)

    return method


def _refuse_float16(name, args):
    """Refuse float16 on a CPU in a captured step: NumPy computes it, and a step cannot capture NumPy."""
    if any(type(x) is np.ndarray and x.dtype.char == "e" for x in args):
        refuse_within(f"{name} of float16, for which there are no kernels on a CPU,")


def _has_floats(args):
    """True if an argument is an array of float32 or float64, or a list of arrays."""
    return any(type(x) is list or (type(x) is np.ndarray and x.dtype.char in "fd") for x in args)


def _compacted(y, args, copy=np.ascontiguousarray):
    """The result y as a compact array, or unchanged if it is a view of an argument."""
    if type(y) is tuple:
        return tuple(_compacted(part, args, copy) for part in y)
    if type(y) is not np.ndarray or y.flags.c_contiguous:
        return np.asarray(y) if isinstance(y, np.generic) else y  # the next kernel would take a scalar for a number
    return y if any(type(x) is np.ndarray and np.may_share_memory(x, y) for x in args) else copy(y)
