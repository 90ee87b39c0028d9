"""Guards: what must be equal for an action of a call to be the one that was captured."""

import numpy as np

from ..autograd import Value
from ..backend.philox import Draw
from .trace import PerCallValue, TensorParts

_PLAIN = {int, bool, str, bytes, type(None), type(...)}


def guard_of(x, per_call=None, arrays=None):
    """A value that equals the guard of another parameter if and only if launch code cannot tell the two apart. The
    guard of an object of an unknown type equals no other.

    Values that may differ at each call are appended to `per_call`, and only their kind is guarded. Arrays are appended
    to `arrays`; if that is None, they are compared by content."""
    kind = type(x)
    if kind in _PLAIN:
        return kind, x
    if kind is float:
        return kind, (x if x == x and x != 0 else repr(x))  # 0 and NaN compare by their bits
    if kind in (tuple, list):
        return kind, [guard_of(each, per_call, arrays) for each in x]
    if kind is dict:
        return kind, [(name, guard_of(each, per_call, arrays)) for name, each in x.items()]
    if kind is slice:
        return kind, guard_of((x.start, x.stop, x.step))
    if kind is Draw and per_call is not None:
        per_call.append(x)
        return Draw
    if hasattr(x, "strides") and not isinstance(x, np.generic):  # is_array(), without a call: this runs for every op
        if arrays is None:
            return kind, x.shape, x.dtype, x.tobytes()
        arrays.append(x)
        return np.ndarray
    if arrays is not None and callable(x) and not isinstance(x, type):
        per_call.append(x)
        return PerCallValue
    if isinstance(x, np.dtype):
        return np.dtype, x
    if isinstance(x, np.generic):
        return kind, x.tobytes()
    return object()


def substituted(x, arrays, per_call, array_type):
    """x with each array in it replaced by the next of `arrays`, and each function by the next of `per_call`."""
    kind = type(x)
    if kind in (tuple, list):
        return kind([substituted(each, arrays, per_call, array_type) for each in x])
    if kind is dict:
        return {name: substituted(each, arrays, per_call, array_type) for name, each in x.items()}
    if isinstance(x, array_type):
        return next(arrays)
    if kind is Draw:
        next(per_call)
        return x
    return next(per_call) if callable(x) and not isinstance(x, type | np.dtype) else x


class NumberPattern:
    """An input that is no array: it must be the same number, or None, at each call."""

    __slots__ = ("guard",)

    def __init__(self, guard):
        self.guard = guard

    def matches(self, x):
        return not isinstance(x, Value) and guard_of(x) == self.guard


class VaryingNumber:
    """An input that is a per-call value: any number that may_vary()."""

    __slots__ = ()

    def matches(self, x):
        return not isinstance(x, Value) and may_vary(x)


VARYING_NUMBER = VaryingNumber()


def pattern_of(x):
    """What input x of an entry must be at each call: TensorParts of a Tensor or an array, else a NumberPattern."""
    if isinstance(x, Value):
        return parts_of(x)
    return TensorParts(x, None, None) if is_array(x) else NumberPattern(guard_of(x))


def parts_of(x):
    """The TensorParts of a Tensor."""
    return TensorParts(x.array, x.node, x.storage)


def is_array(x):
    """True for an array of NumPy or CuPy, False for NumPy's scalars."""
    return hasattr(x, "strides") and not isinstance(x, np.generic)


def array_guard(x, backend):
    """What must be equal in two arrays for the same launches to be right for both."""
    return x.shape, x.strides, x.dtype, getattr(x.flags, "writeable", True), misalignment(x, backend)


def misalignment(x, backend):
    """How many bytes an array begins after a multiple of the alignment that launches may depend on."""
    return backend.address(x) % backend.alignment if backend.alignment > 1 else 0


def may_vary(x):
    """True for a number that kernels round to a float dtype alike, be it an argument or an element of an array."""
    return type(x) is float or (type(x) is int and -(1 << 24) < x < 1 << 24)
