"""When NumPy computes a primitive on the CPU instead of a kernel. A GPU runs all primitives as kernels.

A primitive must give the same bits at every size, and in a captured step (replay/), which runs kernels only. So NumPy
may compute where it gives the kernel's bits, in the kernel's memory layout: the layout decides the order of later sums.
Results are compact, therefore. The exception are kernels on floats that are not compact, such as transposed ones:
their results have the operands' layout, and NumPy never computes those.
"""

import enum
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...base.quiet import call_quietly
from ...base.recording import refuse_within, thread

MANY = 1 << 11  # elements; with fewer, NumPy is usually done before a kernel has been called

Launch = TypeVar("Launch", bound=Callable[..., Any])


class Rule(enum.Enum):
    """What computes a primitive on the CPU. A rule is a decorator of the primitive in launch/.

    KERNEL and EXACT launch a kernel only if all arrays of floats among the arguments are float32 or float64."""

    HOST = "the method of launch/, which launches nothing"
    VIEW = "NumPy, also in a captured step: nothing is computed"
    COPY = "NumPy, which copies as fast as a kernel, and has no NaN to warn of"
    NUMPYS = "NumPy, which gives the kernel's bits as fast"
    EXACT = "a kernel if an array has MANY elements or is not compact; or else NumPy, which gives the same bits"
    KERNEL = "a kernel: NumPy rounds in another way, sums in another order, or is far slower"

    def __call__(self, launch: Launch) -> Launch:
        launch.rule = self  # type: ignore[attr-defined]
        return launch


HOST, VIEW, COPY, NUMPYS, EXACT, KERNEL = Rule


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
    """A primitive of a runner, launched or as NumPy computes it."""
    rule = launch.rule
    if rule is HOST:
        return launch
    if rule is VIEW:
        return staticmethod(numpy)
    launches, from_size = rule in (EXACT, KERNEL), 0 if rule is KERNEL else MANY

    def captured(self, *args, **kwargs):
        refuse_half(name, args)
        y = launch(self, *args, **kwargs)
        return y if launches and has_floats(args) else compacted(y, (*args, *kwargs.values()), self.copy)

    @functools.wraps(launch)
    def primitive(self, *args, **kwargs):
        if thread.recorder is not None:
            return thread.recorder.primitive(name, captured, self, args, kwargs)
        if launches and self.pays(from_size, args):
            return launch(self, *args, **kwargs)
        y = numpy(*args, **kwargs) if rule is COPY else call_quietly(numpy, args, kwargs)
        return y if type(y) is np.ndarray and y.flags.c_contiguous else compacted(y, (*args, *kwargs.values()))

    return primitive
