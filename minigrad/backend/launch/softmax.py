"""Softmax and its relatives, over rows of n elements that lie side by side."""

import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from .launcher import Launcher
from .rules import KERNEL

COLUMNS = 16  # neighbours that are worth being taken together
LONG, FEW = 1 << 17, 64  # elements of a row that is worth several blocks, and rows that need them


class Softmax(Launcher):
    @KERNEL
    def softmax(self, x, dim):
        as_it_is = dim == x.ndim - 1 and x.flags.c_contiguous  # nearly always
        if not (as_it_is and self.one_thread) and self._by_columns(x, dim):
            return self.div(*self._exp_sums(self._below_top(x, dim), dim))
        return self._by_rows("softmax", *((x, None) if as_it_is else self._rows_last(x, dim)))

    @KERNEL
    def softmax_backward(self, dy, y, dim):
        dy = self.operand(dy, y.dtype, y.shape, compact=False)
        if self._by_columns(y, dim):
            return self.mul(self.sub(dy, self.sum(self.mul(dy, y), (dim,), True)), y)
        y, back = self._rows_last(y, dim)
        dy, _ = self._rows_last(dy, dim)
        dx = self._softmax_backward(dy, y, 1.0)
        return dx if back is None else dx.transpose(back)

    @KERNEL
    def log_softmax(self, x, dim):
        if self._by_columns(x, dim):
            x = self._below_top(x, dim)
            return self.sub(x, self.log(self._exp_sums(x, dim)[1]))
        return self._by_rows("log_softmax", *self._rows_last(x, dim))

    def _by_rows(self, entry, x, back):
        """The kernel of that name on the rows of x; back: the order of dims that the result gets, or None."""
        y = self.empty(x.shape, x.dtype)
        n = x.shape[-1]
        rows = x.size // (n or 1)
        self.launch_rows(rows, n, "softmax", entry, x.dtype, y, x, rows, n)
        return y if back is None else y.transpose(back)

    @KERNEL
    def logsumexp(self, x, dim):
        if self._by_columns(x, dim):
            top = self.minimum(self._top(x, dim), float(np.finfo(x.dtype).max))
            return self.add(self.log(self.sum(self.exp(self.sub(x, top)), (dim,), True)), top)
        x, back = self._rows_last(x, dim)
        y = self.empty((*x.shape[:-1], 1), x.dtype)
        self.launch_rows(y.size, x.shape[-1], "softmax", "logsumexp", x.dtype, y, x, y.size, x.shape[-1])
        return y if back is None else y.transpose(back)

    def _softmax_backward(self, dy, y, scale):
        """dx of scale * x, all compact, along the last dim."""
        dx = self.empty(y.shape, y.dtype)
        n = y.shape[-1]
        rows = y.size // (n or 1)
        self.launch_rows(rows, n, "softmax", "softmax_backward", y.dtype, dx, dy, y, rows, n, scale)
        return dx

    def _by_columns(self, x, dim):
        """Are several launches over all of x better than rows? Natively, if elements beside each other can be taken
        together; on a GPU, if a block for each row leaves most of it idle."""
        if not (x.size and x.flags.c_contiguous):
            return False
        if self.one_thread:
            return math.prod(x.shape[dim:][1:]) >= COLUMNS
        return x.shape[dim] >= LONG and x.size // x.shape[dim] < FEW and x.dtype != np.float16

    def _top(self, x, dim):
        """The largest along dim; the least float where all are -∞."""
        return self.maximum(self.max(x, (dim,), True), float(np.finfo(x.dtype).min))

    def _below_top(self, x, dim):
        """x less the largest along dim: -∞ where all are, not NaN."""
        return self.sub(x, self._top(x, dim))

    def _exp_sums(self, x, dim):
        """e^x and its sums along dim: at least 1, since one x is 0, unless all are -∞."""
        y = self.exp(x)
        return y, self.maximum(self.sum(y, (dim,), True), 1.0)

    def _rows_last(self, x, dim):
        """x compact with `dim` last, and the order of dims that moves it back; None: it is where it was."""
        dim = normalize_axis_index(dim, x.ndim)
        if dim == x.ndim - 1:
            return x if x.flags.c_contiguous else self.copy(x), None
        order = [*(d for d in range(x.ndim) if d != dim), dim]
        return self.compact(x.transpose(order)), sorted(range(x.ndim), key=order.__getitem__)
