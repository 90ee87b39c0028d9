"""Primitives that work on rows: softmax and its kin, the attention pattern, norms, cross-entropy. A block has a row.

A primitive works in the dtype of its main operand; the others are made compact and of that dtype."""

import numpy as np

from .base import SHARED, TOTAL, TOTALS, Launcher, broadcast_strides, layout


class Rows(Launcher):
    # -- softmax and its kin

    def softmax(self, x, dim):
        x, back = self._rows_last(x, dim)
        y = self.empty_like(x)
        self._by_row("softmax", x, y, x)
        return back(y)

    def softmax_backward(self, dy, y, dim):
        y, back = self._rows_last(y, dim)
        dy, _ = self._rows_last(self._operand(dy, y.dtype, compact=False), dim)
        return back(self._softmax_backward(dy, y, 1.0))

    def log_softmax(self, x, dim):
        x, back = self._rows_last(x, dim)
        y = self.empty_like(x)
        self._by_row("log_softmax", x, y, x)
        return back(y)

    def logsumexp(self, x, dim):
        x, back = self._rows_last(x, dim)
        y = self.empty((*x.shape[:-1], 1), x.dtype)
        n = x.shape[-1]
        self.launch_rows(y.size, n, "softmax", "logsumexp", x.dtype, y, x, n)
        return back(y)

    def _softmax_backward(self, dy, y, scale):
        dx = self.empty_like(y)
        self._by_row("softmax_backward", y, dx, dy, y, scale=(scale,))
        return dx

    def _by_row(self, entry, x, *arrays, scale=()):
        """An entry of softmax.cu on compact arrays of x's shape."""
        if x.size:
            n = x.shape[-1]
            self.launch_rows(x.size // n, n, "softmax", entry, x.dtype, *arrays, n, *scale)

    def _rows_last(self, x, dim):
        """x compact with `dim` last, and how to move it back."""
        if dim in (-1, x.ndim - 1):
            return self.compact(x), lambda y: y
        order = [d for d in range(x.ndim) if d != dim % x.ndim] + [dim % x.ndim]
        inverse = sorted(range(x.ndim), key=order.__getitem__)
        return self.compact(x.transpose(order)), lambda y: y.transpose(inverse)

    def _operand(self, x, dtype, compact=True):
        if x is None:
            return None
        if x.dtype != dtype:
            x = self.cast(x, dtype)
        return self.compact(x) if compact else x

    # -- attention

    def attention_pattern(self, scores, scale, mask, is_causal):
        scores = self.compact(scores)
        y = self.empty_like(scores)
        if not y.size:
            return y
        *outer, n = scores.shape
        steps = (0,) * scores.ndim if mask is None else broadcast_strides(mask, scores.shape)
        _, rows = layout(tuple(outer), (scores.itemsize, 1), scores.strides[:-1], steps[:-1])
        args = y, scores, mask, rows, steps[-1], outer[-1], n, scale, is_causal
        self.launch_rows(y.size // n, n, "pattern", "attention_pattern", scores.dtype, *args)
        return y

    def attention_pattern_backward(self, dy, y, scale):
        return self._softmax_backward(self._operand(dy, y.dtype), self.compact(y), scale)

    # -- norms

    def layer_norm(self, x, weight, bias, eps):
        mean = self.empty((*x.shape[:-1], 1), x.dtype)
        y, rstd = self._norm(x, weight, bias, mean, eps)
        return y, mean, rstd

    def layer_norm_backward(self, dy, x, weight, mean, rstd, wanted):
        return self._norm_backward(dy, x, weight, mean, rstd, wanted)

    def rms_norm(self, x, weight, eps):
        return self._norm(x, weight, None, None, eps)

    def rms_norm_backward(self, dy, x, weight, rstd, wanted):
        return self._norm_backward(dy, x, weight, None, rstd, (*wanted, False))[:2]

    def _norm(self, x, weight, bias, mean, eps):
        """-> y, rstd; writes mean, or is an RMSNorm where that is None."""
        x = self.compact(x)
        y, rstd = self.empty_like(x), self.empty((*x.shape[:-1], 1), x.dtype)
        weight, bias = self._operand(weight, x.dtype), self._operand(bias, x.dtype)
        n = x.shape[-1]
        self.launch_rows(rstd.size, n, "norm", "norm_forward", x.dtype, y, mean, rstd, x, weight, bias, n, eps)
        return y, rstd

    def _norm_backward(self, dy, x, weight, mean, rstd, wanted):
        x = self.compact(x)
        dy, weight, mean, rstd = (self._operand(a, x.dtype) for a in (dy, weight, mean, rstd))
        rows, n = rstd.size, x.shape[-1]
        dx = self.empty_like(x) if wanted[0] else None
        dweight, dbias = (self.empty((n,), x.dtype) if w else None for w in wanted[1:])
        if not x.size:
            return dx, *(None if d is None else self.zeros((n,), x.dtype) for d in (dweight, dbias))
        # Blocks that add up dweight and dbias take runs of rows; else each takes one.
        blocks = min(rows, self.sums_of(x.size)) if any(wanted[1:]) else rows
        parts = self.empty((2, blocks, n), TOTALS) if any(wanted[1:]) else None
        shared = 2 * n * TOTAL
        threads, in_shared = self.row_threads(n), parts is not None and shared <= SHARED
        args = dx, parts, dy, x, weight, mean, rstd, rows, n, *wanted[1:], in_shared
        self.launch("norm", "norm_backward", x.dtype, blocks, threads, *args, shared=shared if in_shared else 0)
        if parts is not None:
            self.launch("norm", "add_parts", x.dtype, (-(-n // 32), 2), 256, dweight, dbias, parts, blocks, n)
        return dx, dweight, dbias

    # -- cross-entropy

    def cross_entropy(self, logits, target, ignore_index, smoothing):
        x = self.compact(logits)
        loss, p = self.empty(x.shape[:1], x.dtype), self.empty_like(x)
        self._cross_entropy("cross_entropy", x, (loss, p, x), target, ignore_index, smoothing)
        return loss, p

    def cross_entropy_backward(self, dloss, p, target, ignore_index, smoothing):
        p, dloss = self.compact(p), self._operand(dloss, p.dtype)
        dlogits = self.empty_like(p)
        self._cross_entropy("cross_entropy_backward", p, (dlogits, dloss, p), target, ignore_index, smoothing)
        return dlogits

    def _cross_entropy(self, entry, x, arrays, target, ignore_index, smoothing):
        target = self._operand(target, np.dtype(np.int64))
        rows, n = x.shape
        self.launch_rows(rows, n, "cross_entropy", entry, x.dtype, *arrays, target, n, ignore_index, smoothing)
