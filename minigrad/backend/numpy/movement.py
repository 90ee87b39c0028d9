"""Arrays: making them, and moving their elements."""

import functools

import numpy as np

from .. import devices
from ..primitives import Primitives


class Movement(Primitives):
    device = devices.device("cpu")
    array_type = np.ndarray
    captures = False
    warns = True

    asarray = staticmethod(np.asarray)
    zeros = staticmethod(np.zeros)
    full = staticmethod(np.full)
    overlap = staticmethod(np.may_share_memory)
    quietly = staticmethod(functools.partial(np.errstate, all="ignore"))

    def to_numpy(self, x):
        return x

    def from_numpy(self, x):
        return x

    def is_compact(self, x):
        return x.flags.c_contiguous and x.flags.writeable

    def is_writeable(self, x):
        return x.flags.writeable

    def copy(self, x):
        return x.copy(order="C")

    def reshape(self, x, shape):
        return x.reshape(shape)

    def permute(self, x, dims):
        return x.transpose(dims)

    expand = staticmethod(np.broadcast_to)
    flip = staticmethod(np.flip)
    cat = staticmethod(np.concatenate)
    stack = staticmethod(np.stack)

    def pad(self, x, widths, value):
        return np.pad(x, widths, constant_values=value) if widths else x.copy()
