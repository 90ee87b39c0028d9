"""Making arrays, and moving their elements."""

import functools

import numpy as np

from .. import devices


class Movement:
    device = devices.device("cpu")  # a GPU backend says "cuda"
    array_type = np.ndarray  # the type of the backend's arrays
    captures = False  # True: steps can be captured, see replay/captured.py
    warns = True  # True: primitives must be called within quietly(). False: they silence NumPy themselves

    asarray = staticmethod(np.asarray)  # an array of this backend from a scalar or another array
    overlap = staticmethod(np.may_share_memory)
    quietly = staticmethod(functools.partial(np.errstate, all="ignore"))  # a with-block without warnings of NaN and Inf

    def zeros(self, shape, dtype):
        """A new array of zeros."""
        return np.zeros(shape, dtype)

    def full(self, shape, value, dtype):
        """A new array with one value in all elements."""
        return np.full(shape, value, dtype)

    def to_numpy(self, x: np.ndarray) -> np.ndarray:
        """The values on the host: a copy, or on a CPU the array itself."""
        return x

    def from_numpy(self, x):
        """An array of this backend with the values of an np.ndarray: a copy, or on a CPU the array itself."""
        return x

    def arange(self, start, end, step, dtype):
        """start, start + step, … below end, cast to dtype."""
        return np.arange(start, end, step).astype(dtype)

    def is_compact(self, x):
        """True if x is contiguous and writeable, so that it may be changed in place element by element."""
        return x.flags.c_contiguous and x.flags.writeable

    def is_writeable(self, x):
        """False for the result of expand, whose elements share memory."""
        return x.flags.writeable

    def copy(self, x):
        """A contiguous copy."""
        return x.copy(order="C")

    def reshape(self, x, shape):
        """A view if the strides allow, else a copy."""
        return x.reshape(shape)

    def permute(self, x, dims):
        """A view."""
        return x.transpose(dims)

    def diagonal(self, x, offset, dim1, dim2):
        """The elements (i, i + offset) of two dims, as the last dim: a view, as writeable as x."""
        y = x.diagonal(offset, dim1, dim2)  # NumPy makes it read-only
        y.flags.writeable = x.flags.writeable
        return y

    expand = staticmethod(np.broadcast_to)  # a view, with strides of 0
    cat = staticmethod(np.concatenate)  # one after the other along dim
    stack = staticmethod(np.stack)  # side by side along a new dim

    def pad(self, x, widths, value):
        """widths: (before, after) of each dim."""
        return np.pad(x, widths, constant_values=value) if widths else x.copy()
