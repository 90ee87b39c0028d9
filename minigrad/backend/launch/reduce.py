"""Reductions, running sums and orderings. x is treated as (outer, n, inner), and the n values are reduced to one."""

import math

import numpy as np

from ..kernels import constant
from .launcher import Launcher, real
from .rules import NUMPYS, natively

ROW_PART = 1 << 14  # elements of a row that a block reduces at most
WIDTH = constant("accumulate.cuh", "WIDTH")  # columns of a block
FEW = 16  # values that one thread may reduce


class Reduce(Launcher):
    """Integers and bools sum in int64, float16 in float32. A reduction's result is laid out as its input is."""

    column_part = 256  # rows that a block reduces at most: few where many blocks run at once

    @natively()
    def sum(self, x, dims, keepdim):
        y = self._reduce("sum", x, dims, keepdim, accumulator(x.dtype), 0)
        return self.cast(y, x.dtype) if x.dtype == np.float16 else y

    @NUMPYS
    def max(self, x, dims, keepdim):
        return self._reduce("max", x, dims, keepdim, x.dtype)

    @NUMPYS
    def min(self, x, dims, keepdim):
        return self._reduce("min", x, dims, keepdim, x.dtype)

    @NUMPYS
    def any(self, x, dims, keepdim):
        return self._reduce("any", x, dims, keepdim, np.dtype(bool), False)

    @NUMPYS
    def all(self, x, dims, keepdim):
        return self._reduce("all", x, dims, keepdim, np.dtype(bool), True)

    def _reduce(self, name, x, dims, keepdim, dtype, empty=None):
        """x reduced over the tuple dims -> dtype. empty: the result of no values at all; None: it has none."""
        x, order = self._in_memory_order(x)
        gone = [d in dims for d in order]
        shape = tuple(1 if reduced else n for n, reduced in zip(x.shape, gone))
        if 0 in x.shape:
            y = self.full(shape, empty if empty is not None else 0, dtype)
        else:
            y, runs = x, _runs(x.shape, gone)
            while any(reduced for _, reduced in runs):  # one run of dims after the other, from the last
                at = max(i for i, (_, reduced) in enumerate(runs) if reduced)
                n = runs.pop(at)[0]
                outer, inner = (math.prod(size for size, _ in part) for part in (runs[:at], runs[at:]))
                y = self._fold(name, y, outer, n, inner, dtype)
            if y is x:  # nothing to reduce, but the result must be a new array, of its dtype
                y = self._fold(name, x, 1, 1, x.size, dtype)
            y = y.reshape(shape)
        y = y.transpose(sorted(range(len(order)), key=order.__getitem__))
        return y if keepdim else y.reshape(tuple(n for d, n in enumerate(y.shape) if d not in dims))

    def _fold(self, name, x, outer, n, inner, dtype):
        """x (outer, n, inner) -> (outer, inner), n ≥ 1; in two launches or more where n is large."""
        rows = inner == 1 and n > FEW
        if not rows and n <= FEW and inner < FEW:
            y = self.empty((outer, inner), dtype)
            self.launch_each(y.size, "reduce", f"{name}_each", x.dtype, y, x, outer, n, inner)
            return y
        parts, part = shares(n, ROW_PART if rows else self.column_part)
        y = self.empty((outer, parts, inner), dtype)
        if rows:
            self.launch("reduce", f"{name}_rows", x.dtype, outer * parts, self.row_threads(part), y, x, n, part)
        else:
            grid, block = outer * parts * -(-inner // WIDTH), WIDTH * (4 if n >= FEW else 1)
            self.launch("reduce", f"{name}_columns", x.dtype, grid, block, y, x, n, inner, part)
        return y if parts == 1 else self._fold(name, y, outer, parts, inner, dtype)

    def _in_memory_order(self, x):
        """x, or a view of it with its dims in another order, compact if there is one, else a copy; and that order."""
        order = tuple(range(x.ndim))
        if x.flags.c_contiguous:
            return x, order
        by_stride = tuple(sorted(order, key=lambda d: -x.strides[d]))
        view = x.transpose(by_stride)
        return (view, by_stride) if view.flags.c_contiguous else (self.copy(x), order)

    @NUMPYS
    def argmax(self, x, dim, keepdim):
        return self._arg("argmax_rows", x, dim, keepdim)

    @NUMPYS
    def argmin(self, x, dim, keepdim):
        return self._arg("argmin_rows", x, dim, keepdim)

    def _arg(self, entry, x, dim, keepdim):
        dim %= x.ndim
        n, shape = x.shape[dim], x.shape[:dim] + x.shape[dim + 1 :]
        last = tuple(d for d in range(x.ndim) if d != dim) + (dim,)
        y = self.empty(shape, np.dtype(np.int64))
        self.launch_rows(y.size, n, "reduce", entry, x.dtype, y, self.compact(x.transpose(last)), n)
        return y.reshape(x.shape[:dim] + (1,) + x.shape[dim + 1 :]) if keepdim else y

    @NUMPYS
    def argsort(self, x, dim, descending):
        """On the host: nothing but sampling asks for it."""
        x = self.to_numpy(x)
        if not descending:
            return self.from_numpy(np.argsort(x, axis=dim, kind="stable"))
        return self.from_numpy(x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim))

    @natively()
    def cumsum(self, x, dim, reverse):
        x, dim = self.compact(x), dim % x.ndim
        y = self.empty(x.shape, accumulator(x.dtype))
        outer, n, inner = math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
        if y.size and inner == 1:
            block = min(256, self.row_threads(n))
            self.launch("reduce_cumsum", "cumsum_rows", x.dtype, outer, block, y, x, n, reverse)
        elif y.size:
            grid = outer * -(-inner // WIDTH)
            self.launch("reduce_cumsum", "cumsum_columns", x.dtype, grid, WIDTH, y, x, n, inner, reverse)
        return self.cast(y, x.dtype) if x.dtype == np.float16 else y

    @natively()
    def dot(self, x, y):
        if x.size == 0:
            return 0.0
        x, y = self.compact(x), self.compact(y)
        parts, part = shares(x.size, ROW_PART)
        sums = self.empty((parts,), accumulator(x.dtype))
        self.launch("reduce", "dot_parts", x.dtype, parts, self.row_threads(part), sums, x, y, x.size, part)
        return float(self.to_numpy(sums if parts == 1 else self._fold("sum", sums, 1, parts, 1, sums.dtype)).item())


def _runs(shape, gone):
    """[(size, reduced?)] of neighbouring dims that go or stay together."""
    runs: list = []
    for n, reduced in zip(shape, gone):
        if runs and runs[-1][1] == reduced:
            runs[-1] = runs[-1][0] * n, reduced
        elif n != 1:
            runs.append((n, reduced))
    return runs


def accumulator(dtype):
    """The dtype that sums add up in: A of accumulate.cuh."""
    return real(dtype) if dtype.kind == "f" else np.dtype(np.int64)


def shares(n, most):
    """(how many, how large): n things in equal shares of at most `most`; the last may be smaller."""
    count = -(-n // most)
    size = -(-n // count)
    return -(-n // size), size
