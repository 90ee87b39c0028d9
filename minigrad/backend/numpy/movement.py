"""Arrays: making them, and moving their elements."""

import functools

import numpy as np

from .. import devices


class Movement:
    device = devices.device("cpu")  # a GPU backend says "cuda"
    array_type = np.ndarray  # the type of the backend's arrays
    captures = False  # can steps be captured? See replay/captured.py
    warns = True  # must primitives be called within quietly()? If not, they silence NumPy themselves

    asarray = staticmethod(np.asarray)  # x, or what NumPy makes of it, as an array of this backend
    zeros = staticmethod(np.zeros)
    full = staticmethod(np.full)
    overlap = staticmethod(np.may_share_memory)
    quietly = staticmethod(functools.partial(np.errstate, all="ignore"))  # inside, NumPy does not warn of NaN and Inf

    def to_numpy(self, x):
        return x

    def from_numpy(self, x):
        return x

    def arange(self, start, end, step, dtype):
        """start, start + step, … below end, cast to dtype."""
        return np.arange(start, end, step).astype(dtype)

    def is_compact(self, x):
        """Is it dense, row-major and writeable? Then in-place arithmetic may use it."""
        return x.flags.c_contiguous and x.flags.writeable

    def is_writeable(self, x):
        """Not the result of expand, whose places share memory."""
        return x.flags.writeable

    def copy(self, x):
        """Dense and row-major."""
        return x.copy(order="C")

    def reshape(self, x, shape):
        """A view where one is possible."""
        return x.reshape(shape)

    def permute(self, x, dims):
        """A view."""
        return x.transpose(dims)

    expand = staticmethod(np.broadcast_to)  # a view: broadcast, with strides of 0
    cat = staticmethod(np.concatenate)  # one after the other along dim
    stack = staticmethod(np.stack)  # side by side along a new dim

    def pad(self, x, widths, value):
        """widths: (before, after) of each dim."""
        return np.pad(x, widths, constant_values=value) if widths else x.copy()
