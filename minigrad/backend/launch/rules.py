"""When NumPy computes a primitive on the CPU instead of a kernel. A GPU runs all primitives as kernels.

A primitive must give the same bits at every size, and in a captured step (replay/), which runs kernels only. So NumPy
may compute where it gives the kernel's bits, in the kernel's memory layout: the layout decides the order of later sums.
Results are compact, therefore. The exception are kernels on floats that are not compact, such as transposed ones:
their results have the operands' layout, and NumPy never computes those.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...base.quiet import call_quietly
from ...base.recording import refuse_within, thread

MANY = 1 << 11  # elements; with fewer, NumPy is usually done before a kernel has been called

Launch = TypeVar("Launch", bound=Callable[..., Any])


class Rule(NamedTuple):
    """When a primitive runs as a kernel natively: if one of the arguments has `from_size` elements, or is not compact.

    In any case, all arrays of floats among them must be float32 or float64: other dtypes are left to NumPy."""

    from_size: int = MANY
    never: str = ""  # why NumPy does it, whatever the arguments are; empty if it may run as a kernel
    silent: bool = False  # NumPy cannot warn of NaN and Inf here, since it computes nothing
    always: bool = False  # take the method of launch/ in any case: it launches nothing
    same: bool = False  # NumPy's computes nothing at all, so it serves in a captured step too


def natively(from_size: int = MANY, **rule: Any) -> Callable[[Launch], Launch]:
    """The rule of a primitive."""

    def say(launch: Launch) -> Launch:
        launch.natively = Rule(from_size, **rule)  # type: ignore[attr-defined]
        return launch

    return say


KERNEL = natively(0)  # NumPy rounds in another way, or sums in another order, or is far slower
EXACT = natively()  # NumPy gives the same bits, and is faster for few elements
VIEW = natively(never="it computes nothing", silent=True, same=True)
COPY = natively(never="NumPy copies as fast", silent=True)
NUMPYS = natively(never="NumPy gives the same bits, as fast")


def followed(name, eager, captured):
    """A primitive of a runner, and what of it a step captures."""

    @functools.wraps(eager)
    def primitive(self, *args, **kwargs):
        if thread.recorder is None:
            return eager(self, *args, **kwargs)
        return thread.recorder.primitive(name, captured, self, args, kwargs)

    return primitive


def refuse_half(name, args):
    """NumPy computes with float16, and a captured step cannot call it."""
    if any(type(x) is np.ndarray and x.dtype.char == "e" for x in args):
        refuse_within(f"{name} of float16, for which there are no kernels on a CPU,")


def has_floats(args):
    return any(type(x) is list or (type(x) is np.ndarray and x.dtype.char in "fd") for x in args)


def compacted(y, args, copy=np.ascontiguousarray):
    """A result that NumPy may compute, captured or not: compact, unless it is a view of an argument."""
    if type(y) is tuple:
        return tuple(compacted(part, args, copy) for part in y)
    if type(y) is not np.ndarray or y.flags.c_contiguous:
        return np.asarray(y) if isinstance(y, np.generic) else y  # a scalar would be a number to the next kernel
    return y if any(type(x) is np.ndarray and np.may_share_memory(x, y) for x in args) else copy(y)


def by_rule(name, launch, numpy):
    """A primitive of a runner, launched or as NumPy computes it. Raises TypeError if it has no rule."""
    rule = getattr(launch, "natively", None)
    if rule is None:
        raise TypeError(f"backend/launch does not say of {name} when it is a kernel natively: see launch/rules.py")
    if rule.always:
        return launch
    if rule.same:
        return staticmethod(numpy)

    def captured(self, *args, **kwargs):
        refuse_half(name, args)
        y = launch(self, *args, **kwargs)
        return y if not rule.never and has_floats(args) else compacted(y, (*args, *kwargs.values()), self.copy)

    @functools.wraps(launch)
    def primitive(self, *args, **kwargs):
        if thread.recorder is not None:
            return thread.recorder.primitive(name, captured, self, args, kwargs)
        if not rule.never and self.pays(rule, args):
            return launch(self, *args, **kwargs)
        y = numpy(*args, **kwargs) if rule.silent else call_quietly(numpy, args, kwargs)
        return y if type(y) is np.ndarray and y.flags.c_contiguous else compacted(y, (*args, *kwargs.values()))

    return primitive
