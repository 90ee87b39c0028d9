"""Arrays: making them, moving their elements, reading, writing and adding by index.

Elements are moved as unsigned integers of their size, so a kernel is compiled for four types, not for all.
"""

import functools
from typing import Any

import numpy as np

from .base import TOTALS, Launcher, layout, product

BITS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
INT64 = np.dtype(np.int64)
SIDE = 32  # of a tile of copy.cu's transpose
SPAN, MOST_THREADS = 128, 512  # columns and threads of a block of scatter.cu's take_add
SHORT = 8  # numbers that add up in themselves as exactly as in a total


class Arrays(Launcher):
    deterministic = True  # False: the backward of an embedding may add in any order, which is faster

    # -- the array library's own views; CuPy has both under the same names

    expand = staticmethod(np.broadcast_to)
    overlap = staticmethod(np.may_share_memory)

    # -- making

    def asarray(self, x):
        return x if isinstance(x, self.Array) else self.from_numpy(np.asarray(x))

    def zeros(self, shape, dtype):
        return self.full(shape, 0, dtype)

    def full(self, shape, value, dtype):
        y = self.empty(shape, np.dtype(dtype))
        bits = BITS[y.itemsize]
        value = int(np.asarray(value).astype(y.dtype).view(bits))
        self.launch_each(y.size, "copy", "fill", bits, y, value, y.size)
        return y

    # -- views, and copies where there is none

    def is_compact(self, x):
        """Dense, row-major and writeable: an array that in-place arithmetic may use as its own."""
        return x.flags.c_contiguous and getattr(x.flags, "writeable", True)

    def is_writeable(self, x):
        """False for the result of expand, where places share memory."""
        return getattr(x.flags, "writeable", True) and all(s or n < 2 for n, s in zip(x.shape, x.strides))

    def reshape(self, x, shape):
        return (x if has_view(x.shape, x.strides, shape) else self.copy(x)).reshape(shape)

    def permute(self, x, dims):
        return x.transpose(dims)

    def flip(self, x, dims):
        return x[tuple(slice(None, None, -1) if d in dims else slice(None) for d in range(x.ndim))]

    # -- moving

    def copy(self, x):
        return self._move(self.empty(x.shape, x.dtype), x)

    def copy_to(self, target, source):
        """target[...] = source, an array or a number, broadcast and cast. target may be any writeable view."""
        Array: Any = self.Array
        if not isinstance(source, Array):
            source = self.full((), source, target.dtype)
        elif source.dtype != target.dtype:
            source = self.cast(source, target.dtype)
        elif self.overlap(target, source):
            source = self.copy(source)
        while source.ndim > target.ndim and source.shape[0] == 1:
            source = source[0, ...]
        self._move(target, self.expand(source, target.shape))

    def _move(self, y, x):
        """y[...] = x for arrays of one shape and item size that share no memory; returns y."""
        transposed, packed, n = _moving(y.shape, y.itemsize, y.strides, x.strides)
        if transposed:
            self.launch("copy", "transpose", BITS[y.itemsize], n, SIDE * 8, y, x, packed)
        else:
            self.launch_each(n, "copy", "copy", BITS[y.itemsize], y, x, packed)
        return y

    def cat(self, xs, dim):
        dim %= xs[0].ndim
        shape = list(xs[0].shape)
        shape[dim] = sum(x.shape[dim] for x in xs)
        y, start = self.empty(tuple(shape), xs[0].dtype), 0
        for x in xs:
            self._move(y[(slice(None),) * dim + (slice(start, start + x.shape[dim]),)], x)
            start += x.shape[dim]
        return y

    def stack(self, xs, dim):
        dim %= xs[0].ndim + 1
        shape = xs[0].shape
        y = self.empty((*shape[:dim], len(xs), *shape[dim:]), xs[0].dtype)
        for i, x in enumerate(xs):
            self._move(y[(slice(None),) * dim + (i, ...)], x)
        return y

    def pad(self, x, widths, value):
        """x between `widths`, a pair (before, after) for each dim, of value."""
        y = self.full(tuple(n + sum(pair) for n, pair in zip(x.shape, widths)), value, x.dtype)
        self._move(y[(*(slice(before, before + n) for n, (before, _) in zip(x.shape, widths)), ...)], x)
        return y

    # -- by index: arrays in an index are the host's, as parsed_index makes them

    def getitem(self, x, index):
        """x[index], index a tuple; a view for a basic one, even of a single element."""
        if is_basic(index):
            return view_at(x, index)
        positions, rest = places(x.shape, index)
        return self._take(self.compact(x), self.from_numpy(positions), product(rest)).reshape(positions.shape + rest)

    def setitem(self, x, index, value):
        """x[index] = value, in place, the last of repeated places winning; value is an array or a number."""
        if is_basic(index):
            return self.copy_to(view_at(x, index), value)
        if not x.flags.c_contiguous:
            y = self.copy(x)
            self.setitem(y, index, value)
            return self.copy_to(x, y)
        positions, rest = places(x.shape, index)
        values = self.empty(positions.shape + rest, x.dtype)
        self.copy_to(values, value)
        to, last = np.unique(positions.reshape(-1)[::-1], return_index=True)
        self.launch_each(
            to.size * product(rest), "index", "put", BITS[x.itemsize],
            x, values, self.from_numpy(to), self.from_numpy(positions.size - 1 - last), to.size, product(rest),
        )  # fmt: skip

    def getitem_add(self, shape, index, dy):
        """Zeros of `shape` with dy added at `index`, repeated indices adding up: the adjoint of getitem."""
        index = index if isinstance(index, tuple) else (index,)
        if any_integers(index):
            positions, rest = places(shape, index)
            dy = self.compact(self.expand(dy, positions.shape + rest))
            rows = product(shape[: len(shape) - len(rest)])
            positions = self.from_numpy(positions.reshape(-1))
            return self.take_add(rows, positions, dy.reshape(positions.size, product(rest))).reshape(shape)
        dx = self.zeros(shape, dy.dtype)  # slices, numbers and masks name each element once
        self.setitem(dx, index, dy)
        return dx

    def gather(self, x, dim, index):
        dim %= x.ndim
        y = self.empty(index.shape, x.dtype)
        outer, inner = product(x.shape[:dim]), product(x.shape[dim + 1 :])
        sizes = outer, x.shape[dim], index.shape[dim], inner
        self.launch_each(y.size, "index", "gather", BITS[x.itemsize], y, self.compact(x), self._indices(index), *sizes)
        return y

    def scatter_add(self, shape, dim, index, dy):
        """Zeros of `shape` with dy added at `index` along dim: the adjoint of gather. dy and index have one shape."""
        dim %= len(shape)
        outer, inner, m = product(shape[:dim]), product(shape[dim + 1 :]), index.shape[dim]
        args = self.compact(dy), self._indices(index), outer, shape[dim], m, inner
        if m > SHORT:
            dx = self.empty(shape, dy.dtype)
            totals = self.zeros(shape, TOTALS)
            self.launch_each(outer * inner, "scatter", "scatter_add_long", dy.dtype, dx, totals, *args)
            return dx
        dx = self.zeros(shape, real(dy.dtype))
        if dy.size:
            self.launch_each(outer * inner, "scatter", "scatter_add", dy.dtype, dx, *args)
        return dx if dx.dtype == dy.dtype else self.cast(dx, dy.dtype)

    def take(self, x, index):
        """Rows of x, (V, C) and (…) -> (…, C)."""
        return self._take(self.compact(x), self._indices(index), x.shape[1]).reshape(*index.shape, x.shape[1])

    def _take(self, x, index, n):
        """Rows of n elements of x, compact -> (index.size, n)."""
        y = self.empty((index.size, n), x.dtype)
        self.launch_each(y.size, "index", "take", BITS[x.itemsize], y, x, index, index.size, n)
        return y

    def take_add(self, rows, index, dy):
        """Zeros (rows, C) with dy (N, C) added at index (N,): the adjoint of take. Sums in a fixed order, unless
        self.deterministic is False."""
        index, dy, (N, C) = self._indices(index), self.compact(dy), dy.shape
        blocks, threads = self.spread(dy.size)
        if threads > 1 and (self.deterministic or dy.dtype.kind != "f"):
            by_token = rows > N
            dx = (self.zeros if by_token else self.empty)((rows, C), dy.dtype)
            grid, block = (N if by_token else rows, -(-C // SPAN)), min(MOST_THREADS, max(32, N // 32 * 32))
            self.launch("scatter", "take_add", dy.dtype, grid, block, dx, dy, index, N, C, by_token)
            return dx
        if threads > 1:
            dx = self.zeros((rows, C), real(dy.dtype))
            self.launch_each(dy.size, "scatter", "take_add_atomic", dy.dtype, dx, dy, index, N, C)
            return dx if dx.dtype == dy.dtype else self.cast(dx, dy.dtype)
        zeroed = rows > N
        dx = (self.zeros if zeroed else self.empty)((rows, C), dy.dtype)
        order, starts = self.empty((N,), INT64), self.empty((rows + 1,), INT64)
        self.launch("scatter", "sort_indices", dy.dtype, 1, 1, order, starts, index, N, rows)
        grid = max(1, min(blocks, -(-C // 16)))
        self.launch("scatter", "take_add_sorted", dy.dtype, grid, 1, dx, dy, order, starts, rows, C, zeroed)
        return dx

    def _indices(self, index):
        """Compact int64."""
        return self.compact(index if index.dtype == INT64 else self.cast(index, INT64))


def real(dtype):
    """The dtype of arithmetic: R."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def is_basic(index):
    return all(isinstance(i, (int, slice, type(None), type(...))) and not isinstance(i, bool) for i in index)


def view_at(x, index):
    """x[index] for a basic index; 0-d too, where NumPy without an ellipsis gives a scalar."""
    return x[index if ... in index else (*index, ...)]


def any_integers(index):
    return any(isinstance(i, np.ndarray) and i.dtype != bool for i in index)


def places(shape, index):
    """Where x[index] reads an x of `shape` -> (positions, rest): int64 positions of rows of shape `rest`, the last
    dims of x, which the index leaves alone. Only as much memory as the result has is used, however large x is."""
    lead = len(shape)
    if Ellipsis not in [i for i in index if not isinstance(i, np.ndarray)]:
        lead = min(lead, sum(i.ndim if is_mask(i) else i is not None and not is_bool(i) for i in index))
    positions, step = np.zeros((), np.int64), 1
    for d in reversed(range(lead)):
        along = np.arange(shape[d], dtype=np.int64).reshape(-1, *(1,) * (lead - 1 - d)) * step
        positions = positions + np.broadcast_to(along, shape[:lead])[index]
        step *= shape[d]
    return np.ascontiguousarray(positions), tuple(shape[lead:])


def is_mask(i):
    return isinstance(i, np.ndarray) and i.dtype == bool


def is_bool(i):
    return isinstance(i, (bool, np.bool_))


def has_view(shape, strides, wanted):
    """Can an array of this shape and strides be seen in another shape of the same size without a copy?"""
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
    left = 1  # of the run that is being cut up, from the last one on
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
def _moving(shape, itemsize, y_strides, x_strides):
    """How to move x to y: (as a transposition?, the struct Layout, tiles or else elements)."""
    dims = [d for d, n in enumerate(shape) if n != 1]
    dims.sort(key=lambda d: -abs(y_strides[d]))  # writes follow the memory
    pair = [next((d for d in dims if strides[d] == itemsize), -1) for strides in (x_strides, y_strides)]  # dense there
    transposed = -1 not in pair and pair[0] != pair[1] and min(shape[d] for d in pair) >= 4
    if transposed:
        dims = [d for d in dims if d not in pair] + pair
    sizes, y_steps, x_steps = (tuple(of[d] for d in dims) for of in (shape, y_strides, x_strides))
    n, packed = layout(sizes, (itemsize, itemsize), y_steps, x_steps)
    if transposed and n:
        n = n // product(sizes[-2:]) * product(-(-n // SIDE) for n in sizes[-2:])
    return transposed, packed, n
