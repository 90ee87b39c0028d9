"""Reductions, running sums and orderings. An array is seen as (outer, n, inner), and the n values become one."""

import functools
import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ..kernels import constant
from .launcher import BOOL, INT64, TOTALS, Launcher, real
from .rules import KERNEL, SAME_BITS

ROW_PART = 1 << 14  # the most elements of a row that a block reduces
EACH = 16  # the fewest elements of a thread, in two turns of each_ahead() of common.cuh
WIDTH = constant("accumulate.cuh", "WIDTH")  # columns of a block
FEW = 16  # the most values that one thread reduces
SORTED = 2048  # the most elements that a block sorts
SUMMED = 4096  # the most elements whose running sums one block computes
LONG_COLUMN, MANY = 128, 1 << 16  # columns at least this long are transposed to rows, if there are fewer than MANY


class Reduce(Launcher):
    """Integers and bools sum in int64, float16 in float32. The result of a reduction is laid out like its input."""

    column_part = 256  # the most rows that a block reduces: few where many blocks run at the same time

    @KERNEL
    def sum(self, x, dims, keepdim):
        y = self._reduce("sum", x, dims, keepdim, accumulator(x.dtype), 0)
        return self.cast(y, x.dtype) if x.dtype == np.float16 else y

    @KERNEL
    def max(self, x, dims, keepdim):
        return self._reduce("max", x, dims, keepdim, x.dtype)

    @KERNEL
    def min(self, x, dims, keepdim):
        return self._reduce("min", x, dims, keepdim, x.dtype)

    @SAME_BITS
    def any(self, x, dims, keepdim):
        return self._reduce("max", self._truth(x), dims, keepdim, BOOL, False)

    @SAME_BITS
    def all(self, x, dims, keepdim):
        return self._reduce("min", self._truth(x), dims, keepdim, BOOL, True)

    def _truth(self, x):
        return x if x.dtype == BOOL else self.ne(x, 0)

    def _reduce(self, name, x, dims, keepdim, dtype, empty=None):
        """x reduced over the tuple dims, as an array of `dtype`. empty: the result of reducing no values; None if the
        caller has excluded that."""
        order = None
        if not x.flags.c_contiguous:
            x, order = self._in_memory_order(x)
        folds, kept, shape, back = reduction(x.shape, order, dims, keepdim)
        if 0 in x.shape:
            y = self.full(kept, empty if empty is not None else 0, dtype)
        else:
            y = x
            for outer, n, inner in folds:
                y = self._fold(name, y, outer, n, inner, dtype)
        return y.reshape(shape) if back is None else y.reshape(kept).transpose(back).reshape(shape)

    def _fold(self, name, x, outer, n, inner, dtype):
        """Return x (outer, n, inner) reduced to (outer, inner), n ≥ 1. If n is large, it is split into parts, whose
        results are reduced by further launches."""
        if n <= FEW and inner < FEW:
            y = self.empty((outer, inner), dtype)
            self.launch_each(y.size, "reduce", f"{name}_each", x.dtype, y, x, outer, n, inner)
            return y
        if inner == 1:
            parts, part = shares(n, ROW_PART)
            y = self.empty((outer, parts, inner), dtype)
            grid, block = self.rows(outer * parts, part, EACH)
            self.launch("reduce", f"{name}_rows", x.dtype, grid, block, y, x, outer * parts, n, part)
        else:
            blocks_across = -(-inner // WIDTH)
            factor = 1 if self.one_thread else -(-WIDTH // inner)  # if x is narrow, a block takes more of its rows
            parts, part = shares(n, self.column_part * factor)
            y = self.empty((outer, parts, inner), dtype)
            grid, block = outer * parts * blocks_across, WIDTH * (4 if n >= FEW else 1)
            self.launch("reduce", f"{name}_columns", x.dtype, grid, block, y, x, n, inner, part)
        return y if parts == 1 else self._fold(name, y, outer, parts, inner, dtype)

    def _in_memory_order(self, x):
        """(a compact view of x with its dims in another order, that order), or (a compact copy, None)."""
        by_stride = tuple(sorted(range(x.ndim), key=lambda d: -x.strides[d]))
        view = x.transpose(by_stride)
        return (view, by_stride) if view.flags.c_contiguous else (self.copy(x), None)

    @SAME_BITS
    def argmax(self, x, dim, keepdim):
        return self._arg("argmax_rows", x, dim, keepdim)

    @SAME_BITS
    def argmin(self, x, dim, keepdim):
        return self._arg("argmin_rows", x, dim, keepdim)

    def _arg(self, entry, x, dim, keepdim):
        dim = normalize_axis_index(dim, x.ndim)
        shape = x.shape[:dim] + (1,) * keepdim + x.shape[dim + 1 :]
        last = self.compact(x.transpose(*(d for d in range(x.ndim) if d != dim), dim))
        return self._arg_rows(entry, last.reshape(math.prod(shape), x.shape[dim])).reshape(shape)

    def _arg_rows(self, entry, x):
        """The position of the best of each row of x (rows, n): (rows, 1). A long row is cut into parts, and the best of
        their best is found."""
        rows, n = x.shape
        parts, part = shares(n, n if self.one_thread else ROW_PART)
        y = self.empty((rows, parts), INT64)
        self.launch("reduce", entry, x.dtype, *self.rows(y.size, part, EACH), y, x, y.size, n, part)
        return y if parts == 1 else self.gather(y, 1, self._arg_rows(entry, self.gather(x, 1, y)))

    @SAME_BITS
    def argsort(self, x, dim, descending, k=None):
        dim = normalize_axis_index(dim, x.ndim)
        n, others = x.shape[dim], [d for d in range(x.ndim) if d != dim]
        x = self.compact(x.transpose(*others, dim))
        y = self._orders(x.reshape(-1, n), descending).reshape(x.shape) if x.size else self.empty(x.shape, INT64)
        if k is not None:
            y = self.copy(y[..., :k])  # a view would keep all n alive
        return y.transpose(*range(dim), -1, *range(dim, x.ndim - 1))

    def _orders(self, x, descending):
        """The indices (rows, n) that sort each row of x (rows, n)."""
        rows, n = x.shape
        parts, part = (1, n) if self.one_thread else shares(n, SORTED)
        y, other = self.empty(x.shape, INT64), self.empty(x.shape, INT64)
        shape = rows * parts, self.row_threads(part)
        self.launch("reduce_argsort", "argsort", x.dtype, *shape, y, other, x, n, part, descending)
        while part < n:
            y, other = other, y
            args = y, other, x, rows, n, part, descending
            self.launch_each(x.size, "reduce_argsort", "merge_orders", x.dtype, *args)
            part *= 2
        return y

    @KERNEL
    def cumsum(self, x, dim, reverse):
        x, dim = self.compact(x), normalize_axis_index(dim, x.ndim)
        outer, n, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
        if not self.one_thread and inner > 1 and n >= LONG_COLUMN and outer * inner < MANY:
            return self.cumsum(x.swapaxes(dim, -1), -1, reverse).swapaxes(dim, -1)
        y = self.empty(x.shape, accumulator(x.dtype))
        if y.size and inner == 1:
            parts, part = (1, n) if self.one_thread else shares(n, SUMMED)
            grid, block = outer * parts, min(256, self.row_threads(part))
            totals = None if parts == 1 else self.empty((grid,), TOTALS)
            if parts > 1:
                self.launch("reduce_cumsum", "cumsum_parts", x.dtype, grid, block, totals, x, n, part, reverse)
            self.launch("reduce_cumsum", "cumsum_rows", x.dtype, grid, block, y, x, totals, n, part, reverse)
        elif y.size:
            grid = outer * -(-inner // WIDTH)
            self.launch("reduce_cumsum", "cumsum_columns", x.dtype, grid, WIDTH, y, x, n, inner, reverse)
        return self.cast(y, x.dtype) if x.dtype == np.float16 else y

    @KERNEL
    def dot(self, x, y):
        if x.size == 0:
            return 0.0
        x, y = self.compact(x), self.operand(y, x.dtype, x.shape)
        parts, part = shares(x.size, ROW_PART)
        sums = self.empty((parts,), accumulator(x.dtype))
        self.launch("reduce", "dot_parts", x.dtype, parts, self.row_threads(part), sums, x, y, x.size, part)
        return float(self.to_numpy(sums if parts == 1 else self._fold("sum", sums, 1, parts, 1, sums.dtype)).item())


@functools.lru_cache(4096)
def reduction(shape, order, dims, keepdim):
    """How to reduce x over dims: ([(outer, n, inner) of each fold], kept, result, back).

    shape: of x in memory, whose dims are the dims `order` of x (None: in order). kept: the shape of the result in
    memory, with size 1 for reduced dims. result: the shape of the result. back: the transposition from memory to the
    order of dims, or None if none is needed."""
    dims = normalize_axis_tuple(dims, len(shape))
    gone = [d in dims for d in order or range(len(shape))]
    runs: list = []  # neighbouring dims of which all are reduced, or none: (size, True if they are reduced)
    for n, reduced in zip(shape, gone):
        if runs and runs[-1][1] == reduced:
            runs[-1] = runs[-1][0] * n, reduced
        elif n != 1:
            runs.append((n, reduced))
    folds = []
    while any(reduced for _, reduced in runs):  # fold one run after the other, from the last
        at = max(i for i, (_, reduced) in enumerate(runs) if reduced)
        n = runs.pop(at)[0]
        outer, inner = (math.prod(size for size, _ in part) for part in (runs[:at], runs[at:]))
        folds.append((outer, n, inner))
    kept = tuple([1 if reduced else n for n, reduced in zip(shape, gone)])
    back = None if order is None else sorted(range(len(order)), key=order.__getitem__)
    result = kept if back is None else tuple([kept[d] for d in back])
    if not keepdim:
        result = tuple([n for d, n in enumerate(result) if d not in dims])
    # If nothing is reduced, one fold of n = 1 makes the new array of the result's dtype.
    return folds or [(1, 1, math.prod(shape))], kept, result, back


@functools.cache
def accumulator(dtype):
    """A of accumulate.cuh: the dtype in which arrays of a dtype are summed."""
    return real(dtype) if dtype.kind == "f" else INT64


def shares(n, most):
    """(count, size) of equal shares of n elements, of at most `most` each. The last share may be smaller."""
    count = -(-n // most)
    size = -(-n // count)
    return -(-n // size), size
