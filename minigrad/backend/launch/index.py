"""Reading, writing and adding by index. Arrays in an index are NumPy arrays, as parse_index() of ops/index.py makes
them."""

import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ..kernels import constant
from .launcher import INT64, TOTALS, real
from .movement import UINT_OF_SIZE, Movement
from .rules import EXACT, KERNEL, MOVE, SAME_BITS

SPAN, WARPS = (constant("index_add.cu", name) for name in ("SPAN", "WARPS"))  # columns and warps of a block of take_add
SHORT = 8  # a sum of so few numbers loses no digit, so it needs no Total


class Index(Movement):
    @MOVE
    def getitem(self, x, index):
        if is_basic(index):
            return view_at(x, index)
        positions, rest = places(x.shape, index)
        return self._take(self.compact(x), self.from_numpy(positions), math.prod(rest)).reshape(positions.shape + rest)

    @SAME_BITS
    def setitem(self, x, index, value):
        """x[index] = value, in place. value: an array or a number. Of repeated places, the last one counts."""
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
            to.size * math.prod(rest), "index", "put", UINT_OF_SIZE[x.itemsize],
            x, values, self.from_numpy(to), self.from_numpy(positions.size - 1 - last), to.size, math.prod(rest),
        )  # fmt: skip

    @KERNEL
    def getitem_add(self, shape, index, dy):
        index = index if isinstance(index, tuple) else (index,)
        if any_integers(index):
            positions, rest = places(shape, index)
            dy = self.compact(self.expand(dy, positions.shape + rest))
            rows = math.prod(shape[: len(shape) - len(rest)])
            positions = self.from_numpy(positions.reshape(-1))
            return self.take_add(rows, positions, dy.reshape(positions.size, math.prod(rest))).reshape(shape)
        dx = self.zeros(shape, dy.dtype)  # slices, numbers and masks select each element once
        self.setitem(dx, index, dy)
        return dx

    @EXACT
    def gather(self, x, dim, index):
        dim = normalize_axis_index(dim, x.ndim)
        index = self.operand(index, INT64, (*x.shape[:dim], *index.shape[dim : dim + 1], *x.shape[dim + 1 :]))
        y = self.empty(index.shape, x.dtype)
        outer, inner = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
        sizes = outer, x.shape[dim], index.shape[dim], inner
        self.launch_each(y.size, "index", "gather", UINT_OF_SIZE[x.itemsize], y, self.compact(x), index, *sizes)
        return y

    @KERNEL
    def scatter_add(self, shape, dim, index, dy):
        dim = normalize_axis_index(dim, len(shape))
        outer, inner, m = math.prod(shape[:dim]), math.prod(shape[dim + 1 :]), index.shape[dim]
        index = self.operand(index, INT64, (*shape[:dim], m, *shape[dim + 1 :]))
        args = self.operand(dy, dy.dtype, index.shape), index, outer, shape[dim], m, inner
        if m > SHORT and not self.one_thread:
            places = self.empty(index.shape, INT64)
            self.launch_each(places.size, "index_add", "scatter_places", dy.dtype, places, *args[1:])
            return self.take_add(math.prod(shape), places.reshape(-1), args[0].reshape(-1, 1)).reshape(shape)
        if m > SHORT:
            dx = self.empty(shape, dy.dtype)
            totals = self.zeros(shape, TOTALS)
            blocks = min(self.spread(dy.size)[0], outer * inner)
            self.launch("index_add", "scatter_add_long", dy.dtype, blocks, 1, dx, totals, *args)
            return dx
        dx = self.zeros(shape, real(dy.dtype))
        if dy.size:
            self.launch_each(outer * inner, "index_add", "scatter_add", dy.dtype, dx, *args)
        return dx if dx.dtype == dy.dtype else self.cast(dx, dy.dtype)

    @SAME_BITS
    def flatnonzero(self, x):
        if not x.size:
            return self.empty((0,), INT64)
        sums = self.cumsum(self.compact(self._truth(x)).reshape(-1), 0, False)
        y = self.empty((int(self.to_numpy(sums[-1:])[0]),), INT64)
        self.launch_each(x.size, "index", "places", UINT_OF_SIZE[8], y, sums, x.size, y.size)
        return y

    @MOVE
    def take(self, x, index):
        return self._take(self.compact(x), self.operand(index, INT64), x.shape[1]).reshape(*index.shape, x.shape[1])

    def _take(self, x, index, n):
        """The rows of x at `index`, of n elements each: (index.size, n). x is compact."""
        y = self.empty((index.size, n), x.dtype)
        self.launch_each(y.size, "index", "take", UINT_OF_SIZE[x.itemsize], y, x, index, index.size, n)
        return y

    @KERNEL
    def take_add(self, rows, index, dy):
        index, dy, (N, C) = self.operand(index, INT64, dy.shape[:1]), self.compact(dy), dy.shape
        blocks, threads = self.spread(dy.size)
        if threads > 1:
            dx = self.zeros((rows, C), dy.dtype)
            if dy.size:
                grid = -(-N // WARPS) * -(-C // SPAN)
                order = self.argsort(index, 0, False)  # stable: equal indices keep their order
                keys = self._take(index, order, 1)
                self.launch("index_add", "take_add", dy.dtype, grid, 32 * WARPS, dx, dy, keys, order, N, C)
            return dx
        zeroed = rows > N
        dx = (self.zeros if zeroed else self.empty)((rows, C), dy.dtype)
        order, starts = self.empty((N,), INT64), self.empty((rows + 1,), INT64)
        self.launch("index_add", "sort_indices", dy.dtype, 1, 1, order, starts, index, N, rows)
        grid = max(1, min(blocks, -(-C // 16)))
        self.launch("index_add", "take_add_sorted", dy.dtype, grid, 1, dx, dy, order, starts, rows, C, zeroed)
        return dx


def is_basic(index):
    """True for an index of ints, slices, None and ... alone, which gives a view."""
    return all(isinstance(i, (int, slice, type(None), type(...))) and not isinstance(i, bool) for i in index)


def view_at(x, index):
    """x[index] for a basic index, as an array. (Without an ellipsis, NumPy returns a scalar for a single element.)"""
    return x[index if ... in index else (*index, ...)]


def any_integers(index):
    """True if the index has an array of integers, which may read an element several times."""
    return any(isinstance(i, np.ndarray) and i.dtype != bool for i in index)


def places(shape, index):
    """Return (positions, rest): what x[index] reads in an x of `shape`.

    rest: the sizes of the last dims of x, which the index does not touch. positions: int64, the row that each element
    of the result reads, if x is seen as rows of shape `rest`. The memory that this takes depends on the result's size,
    not on x's."""
    lead = len(shape)
    if Ellipsis not in [i for i in index if not isinstance(i, np.ndarray)]:
        lead = min(lead, sum(i.ndim if is_mask(i) else i is not None and not is_bool(i) for i in index))
    positions, step = np.broadcast_to(np.int64(0), shape[:lead])[index], 1
    for d in reversed(range(lead)):
        along = np.arange(shape[d], dtype=np.int64).reshape(-1, *(1,) * (lead - 1 - d)) * step
        positions = positions + np.broadcast_to(along, shape[:lead])[index]
        step *= shape[d]
    return np.ascontiguousarray(positions), tuple(shape[lead:])


def is_mask(i):
    return isinstance(i, np.ndarray) and i.dtype == bool


def is_bool(i):
    return isinstance(i, (bool, np.bool_))
