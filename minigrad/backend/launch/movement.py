"""Making arrays, and moving their elements.

Elements are moved as unsigned integers of their size, so that a kernel is compiled for four types and not for all.
"""

import functools
import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ...base.capturing import CaptureError, refuse_within
from ..kernels import constant
from .launcher import Launcher, has_memory, is_narrow, is_writeable, layout, merged, reciprocal
from .rules import COPY, MOVE, SAME_BITS

UINT_OF_SIZE = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
SIDE = constant("movement.cu", "SIDE")  # the side of a tile of a transposition
TILE_THREADS = SIDE * 8


class Movement(Launcher):
    # -- making

    def asarray(self, x):
        return x if isinstance(x, self.array_type) else self.from_numpy(np.asarray(x))

    def to_numpy(self, x):
        refuse_within("reading values on the host")
        if x.size and not has_memory(x):
            raise CaptureError("an array of a captured step has no values yet: call numpy() of its Tensor in the step")
        return x

    def quietly(self):
        return np.errstate(all="ignore")

    @MOVE
    def zeros(self, shape, dtype):
        return self.full(shape, 0, dtype)

    @SAME_BITS
    def full(self, shape, value, dtype):
        y = self.empty(shape, np.dtype(dtype))
        bits = UINT_OF_SIZE[y.itemsize]
        value = int(np.full((), value, y.dtype).view(bits))
        n, packed = layout((y.size,), (y.itemsize,), (y.itemsize,))
        self.launch_places(n, y.itemsize, "movement", "fill", bits, y, value, packed)
        return y

    def arange(self, start, end, step, dtype):
        return self.from_numpy(np.arange(start, end, step).astype(dtype))

    def overlap(self, x, y):
        return np.may_share_memory(x, y)

    def is_compact(self, x):
        return x.flags.c_contiguous and is_writeable(x)

    def is_writeable(self, x):
        return is_writeable(x)

    # -- views, and copies where there is none

    def expand(self, x, shape):
        return self.read_only(np.broadcast_to(x, shape))

    def reshape(self, x, shape):
        is_view = x.flags.c_contiguous or has_view(x.shape, x.strides, shape)
        return (x if is_view else self.copy(x)).reshape(shape)

    def permute(self, x, dims):
        return x.transpose(dims)

    def diagonal(self, x, offset, dim1, dim2):
        y = x.diagonal(offset, dim1, dim2)
        if type(y) is np.ndarray:
            y.flags.writeable = x.flags.writeable  # NumPy makes it read-only
        return y

    # -- moving

    @COPY
    def copy(self, x):
        return self.move(self.empty(x.shape, x.dtype), x)

    def copy_to(self, target, source):
        """target[...] = source, broadcast and cast. source: an array or a number. target: any writeable view."""
        if not isinstance(source, self.array_type):
            source = self.full((), source, target.dtype)
        elif source.dtype != target.dtype:
            source = self.cast(source, target.dtype)
        elif self.overlap(target, source):
            source = self.copy(source)
        while source.ndim > target.ndim and source.shape[0] == 1:
            source = source[0, ...]
        self.move(target, self.expand(source, target.shape))

    def move(self, y, x):
        """Copy x to y and return y. They have one shape and item size, and share no memory."""
        tiles, packed, n = _move_plan(y.shape, y.itemsize, y.strides, x.strides)
        if tiles is not None:
            self.launch("movement", "transpose", UINT_OF_SIZE[y.itemsize], n, TILE_THREADS, y, x, packed, *tiles)
        else:
            self.launch_places(n, y.itemsize, "movement", "copy", UINT_OF_SIZE[y.itemsize], y, x, packed)
        return y

    @MOVE
    def cat(self, xs, dim):
        dim = normalize_axis_index(dim, xs[0].ndim)
        shape = list(xs[0].shape)
        shape[dim] = sum(x.shape[dim] for x in xs)
        y, start = self.empty(tuple(shape), xs[0].dtype), 0
        for x in xs:
            part = y[(slice(None),) * dim + (slice(start, start + x.shape[dim]),)]
            self.move(part, self.operand(x, y.dtype, part.shape, compact=False))
            start += x.shape[dim]
        return y

    @MOVE
    def stack(self, xs, dim):
        dim = normalize_axis_index(dim, xs[0].ndim + 1)
        shape = xs[0].shape
        y = self.empty((*shape[:dim], len(xs), *shape[dim:]), xs[0].dtype)
        for i, x in enumerate(xs):
            self.move(y[(slice(None),) * dim + (i, ...)], self.operand(x, y.dtype, shape, compact=False))
        return y

    @SAME_BITS
    def pad(self, x, widths, value):
        y = self.full(tuple(n + sum(pair) for n, pair in zip(x.shape, widths)), value, x.dtype)
        self.move(y[(*(slice(before, before + n) for n, (before, _) in zip(x.shape, widths)), ...)], x)
        return y


@functools.lru_cache(4096)
def has_view(shape, strides, wanted):
    """True if an array of this shape and strides has a view of the shape `wanted`, which has as many elements."""
    if 0 in shape:
        return True
    merged: list = []  # [size, stride] of runs of dims that are evenly spaced
    for n, stride in zip(shape, strides):
        if n == 1:
            continue
        if merged and merged[-1][1] == n * stride:
            merged[-1] = [merged[-1][0] * n, stride]
        else:
            merged.append([n, stride])
    left = 1  # the part of the current run that is not divided yet; runs are taken from the last
    for n in reversed(wanted):
        if n == 1:
            continue
        if left == 1:
            left = merged.pop()[0]
        if left % n:
            return False
        left //= n
    return True


@functools.lru_cache(4096)
def _move_plan(shape, itemsize, y_strides, x_strides):
    """The arguments of the kernel that moves x to y.

    For the kernel `transpose`: (two reciprocals, the struct Layout, the number of tiles). For the kernel `copy`: (None,
    the struct Layout, the number of elements)."""
    dims = [d for d, n in enumerate(shape) if n != 1]
    dims.sort(key=lambda d: -abs(y_strides[d]))  # so that writes run along the memory
    pair = [next((d for d in dims if strides[d] == itemsize), -1) for strides in (x_strides, y_strides)]  # dense dims
    is_transposed = -1 not in pair and pair[0] != pair[1] and min(shape[d] for d in pair) >= 4
    if is_transposed:
        dims = [d for d in dims if d not in pair] + pair
    sizes, y_steps, x_steps = (tuple(of[d] for d in dims) for of in (shape, y_strides, x_strides))
    n, packed = layout(sizes, (itemsize, itemsize), y_steps, x_steps)
    runs = merged(sizes, (itemsize, itemsize), (y_steps, x_steps))
    if not is_transposed or not is_narrow(runs):
        return None, packed, n
    *outer, across, down = (n for n, _ in runs)
    across, down = -(-across // SIDE), -(-down // SIDE)
    return (reciprocal(across * down), reciprocal(across)), packed, math.prod(outer) * across * down
