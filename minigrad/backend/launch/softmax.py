"""Softmax, log-softmax and logsumexp. A kernel works on rows of n elements that lie side by side."""

import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from .launcher import Launcher
from .rules import KERNEL

COLUMNS = 16  # on a CPU, with at least so many elements side by side, whole-array primitives are faster than rows
LONG, FEW = 1 << 17, 64  # on a GPU, fewer than FEW rows of LONG elements leave most of it idle: a row has one block


class Softmax(Launcher):
    @KERNEL
    def softmax(self, x, dim):
        has_rows = dim == x.ndim - 1 and x.flags.c_contiguous  # the usual case
        if not (has_rows and self.one_thread) and self._prefers_whole_array(x, dim):
            return self.div(*self._exp_and_sums(self._minus_max(x, dim), dim))
        return self._launch_on_rows("softmax", *((x, None) if has_rows else self._rows_last(x, dim)))

    @KERNEL
    def softmax_backward(self, dy, y, dim):
        dy = self.operand(dy, y.dtype, y.shape, compact=False)
        if self._prefers_whole_array(y, dim):
            return self.mul(self.sub(dy, self.sum(self.mul(dy, y), (dim,), True)), y)
        y, back = self._rows_last(y, dim)
        dy, _ = self._rows_last(dy, dim)
        dx = self._softmax_backward(dy, y, 1.0)
        return dx if back is None else dx.transpose(back)

    @KERNEL
    def log_softmax(self, x, dim):
        if self._prefers_whole_array(x, dim):
            x = self._minus_max(x, dim)
            return self.sub(x, self.log(self._exp_and_sums(x, dim)[1]))
        return self._launch_on_rows("log_softmax", *self._rows_last(x, dim))

    def _launch_on_rows(self, entry, x, back):
        """Run an entry point on the rows of x, and return its result. back: a transposition of the result, or None."""
        y = self.empty(x.shape, x.dtype)
        n = x.shape[-1]
        rows = x.size // (n or 1)
        self.launch_rows(rows, n, "softmax", entry, x.dtype, y, x, rows, n)
        return y if back is None else y.transpose(back)

    @KERNEL
    def logsumexp(self, x, dim):
        if self._prefers_whole_array(x, dim):
            top = self.minimum(self._finite_max(x, dim), float(np.finfo(x.dtype).max))
            return self.add(self.log(self.sum(self.exp(self.sub(x, top)), (dim,), True)), top)
        x, back = self._rows_last(x, dim)
        y = self.empty((*x.shape[:-1], 1), x.dtype)
        self.launch_rows(y.size, x.shape[-1], "softmax", "logsumexp", x.dtype, y, x, y.size, x.shape[-1])
        return y if back is None else y.transpose(back)

    def _softmax_backward(self, dy, y, scale):
        """dx, where y = softmax(scale * x) along the last dim. All arrays are compact."""
        dx = self.empty(y.shape, y.dtype)
        n = y.shape[-1]
        rows = y.size // (n or 1)
        self.launch_rows(rows, n, "softmax", "softmax_backward", y.dtype, dx, dy, y, rows, n, scale)
        return dx

    def _prefers_whole_array(self, x, dim):
        """True if elementwise primitives and reductions of the whole array are faster than a kernel for rows: on a CPU
        if many elements lie side by side across dim, on a GPU if there are few long rows."""
        if not (x.size and x.flags.c_contiguous):
            return False
        if self.one_thread:
            return math.prod(x.shape[dim:][1:]) >= COLUMNS
        return x.shape[dim] >= LONG and x.size // x.shape[dim] < FEW and x.dtype != np.float16

    def _finite_max(self, x, dim):
        """The maximum along dim. For elements that are all -∞ it is the least finite float."""
        return self.maximum(self.max(x, (dim,), True), float(np.finfo(x.dtype).min))

    def _minus_max(self, x, dim):
        """x minus its maximum along dim. Elements that are all -∞ stay -∞, instead of becoming NaN."""
        return self.sub(x, self._finite_max(x, dim))

    def _exp_and_sums(self, x, dim):
        """(e^x, its sums along dim), for an x whose maximum along dim is 0. So a sum is 1 or more; for elements that
        are all -∞ it is 1, not 0."""
        y = self.exp(x)
        return y, self.maximum(self.sum(y, (dim,), True), 1.0)

    def _rows_last(self, x, dim):
        """Return (x as a compact array with dim last, the transposition that moves dim back). The second is None if dim
        was last."""
        dim = normalize_axis_index(dim, x.ndim)
        if dim == x.ndim - 1:
            return x if x.flags.c_contiguous else self.copy(x), None
        order = [*(d for d in range(x.ndim) if d != dim), dim]
        return self.compact(x.transpose(order)), sorted(range(x.ndim), key=order.__getitem__)
