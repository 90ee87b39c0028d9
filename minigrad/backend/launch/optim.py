"""Optimizer steps, and the norm and clipping of many arrays: one launch for all arrays, which a table lists."""

import math

import numpy as np

from ..kernels import Struct, StructArray, constant
from .launcher import TOTALS, Launcher, real
from .rules import EXACT, KERNEL

SLOT = Struct("optim.cu", "Slot")
CHUNK = constant("optim.cu", "CHUNK")  # elements of an array that one block updates
THREADS = 256
NO_FIELDS = dict(m=None, v=None, g=None, row=0)


class Optim(Launcher):
    @KERNEL
    def adam_(self, slots, options, beta1, beta2, eps, decoupled):
        def numbers():
            for lr, weight_decay, step in options():
                decay = 1 - lr * weight_decay if decoupled else weight_decay
                yield lr / (1 - beta1**step), decay, 1 / math.sqrt(1 - beta2**step)

        buffer = self.parameter_buffer(lambda: list(numbers()), (len(options()), 3), np.float64)
        for dtype, group in _by_dtype(slots):
            rows = [dict(p=p, g=g, m=m, v=v, row=row) for p, g, m, v, row in group]
            self._launch_slots("adam", dtype, rows, buffer, beta1, beta2, eps, decoupled, self.stop_flag)

    @KERNEL
    def sgd_(self, slots, options, momentum, nesterov):
        buffer = self.parameter_buffer(options, (len(options()), 2), np.float64)
        for dtype, group in _by_dtype(slots):
            rows = [dict(p=p, g=g, m=buffer, row=row) for p, g, buffer, row in group]
            self._launch_slots("sgd", dtype, rows, buffer, momentum, nesterov, self.stop_flag)

    @KERNEL
    def muon_(self, slots, options, nesterov, steps, eps):
        buffer = self.parameter_buffer(options, (len(options()), 3), np.float64)
        kinds: dict = {}
        for slot in slots:
            p, *_, n, scale = slot
            if p.size:
                kinds.setdefault((p.dtype, n, p.shape[-1], scale), []).append(slot)
        for (dtype, n, k, scale), group in kinds.items():
            x, rows, start = self.empty((sum(slot[0].size for slot in group),), dtype), [], 0
            for p, g, m, row, *_ in group:
                rows.append(dict(p=p, g=g, m=m, v=x[start : start + p.size], row=row))
                start += p.size
            self._launch_slots("muon_direction", dtype, rows, buffer, nesterov)
            y, start = self._orthogonal(x.reshape(-1, n, k), steps, eps).reshape(-1), 0
            for slot in rows:
                slot["v"] = y[start : start + slot["p"].size]
                start += slot["p"].size
            self._launch_slots("muon", dtype, rows, buffer, scale, self.stop_flag)

    def _orthogonal(self, x, steps, eps):
        """The matrices x (N, n, k) made orthogonal by Newton-Schulz iteration. x may be overwritten.

        If x is much longer than wide, only the small A = x xᵀ is iterated, together with the product of the factors by
        which x is multiplied at the end: the same polynomial with less work."""
        stored_dtype, dtype = x.dtype, real(x.dtype)
        x = self.cast(x, dtype) if stored_dtype != dtype else x
        N, n, k = x.shape
        side, is_tall = min(n, k), n > k
        iterates_square = 2 * side <= max(n, k)

        def times(q, x):
            return self.matmul(x, q) if is_tall else self.matmul(q, x)

        def gram(x):
            return self.matmul(x.mT, x) if is_tall else self.matmul(x, x.mT)

        parts = self.empty((N * _chunks(n * k),), TOTALS)
        self.launch("optim", "muon_squares", dtype, parts.size, THREADS, parts, x, n * k)
        self.launch("optim", "muon_norm", dtype, parts.size, THREADS, x, parts, n * k, eps)
        squares, factor = gram(x), None
        for i, coefficients in enumerate(steps):
            q = self.matmul(squares, squares)
            threads = self.row_threads(side)
            self.launch("optim", "muon_polynomial", dtype, N * side, threads, q, squares, side, *coefficients)
            is_last = i + 1 == len(steps)
            if iterates_square:
                factor = q if factor is None else self.matmul(q, factor)
                squares = None if is_last else self.matmul(self.matmul(q, squares), q)
            else:
                x = times(q, x)
                squares = None if is_last else gram(x)
        x = times(factor, x) if iterates_square else x
        return self.cast(x, stored_dtype) if stored_dtype != dtype else x

    @KERNEL
    def global_norm(self, arrays):
        groups = _by_dtype([(self.compact(x),) for x in arrays if x.size])
        if not groups:
            return self.zeros((), np.dtype(np.float64))
        counts = [sum(_chunks(x.size) for (x,) in group) for _, group in groups]
        parts, norm, start = self.empty((sum(counts),), TOTALS), self.empty((), np.dtype(np.float64)), 0
        for (dtype, group), count in zip(groups, counts):
            self._launch_slots("sum_squares", dtype, [dict(p=x) for (x,) in group], parts[start : start + count])
            start += count
        self.launch("optim", "root_of_sum", dtype, 1, THREADS, norm, parts, start)
        return norm

    @EXACT
    def clip_(self, arrays, norm, most):
        arrays, norm = [_in_memory_order(x) for x in arrays], self.operand(norm, TOTALS, ())
        compact = [self.compact(x) for x in arrays]
        for dtype, group in _by_dtype([(x,) for x in compact]):
            self._launch_slots("clip", dtype, [dict(p=x) for (x,) in group], norm, most)
        for x, y in zip(arrays, compact):
            if y is not x:
                self.setitem(x, (), y)

    def _launch_slots(self, entry, dtype, slots, *args):
        """Launch one block for each chunk of the arrays in slots, which are {field of a Slot: array or number}."""
        rows, chunks = [], 0
        for slot in slots:
            if size := slot["p"].size:
                rows.append({**NO_FIELDS, **slot, "size": size, "chunk": chunks})
                chunks += _chunks(size)
        if rows:
            self.launch("optim", entry, dtype, chunks, THREADS, StructArray(SLOT, rows), len(rows), *args)


def _chunks(size):
    return -(-size // CHUNK)


def _by_dtype(slots):
    """(dtype, slots) for each dtype among the first arrays of the slots."""
    groups: dict = {}
    for slot in slots:
        groups.setdefault(slot[0].dtype, []).append(slot)
    return groups.items()


def _in_memory_order(x):
    """x with its dims in memory order: compact if x is a transposition of a compact array."""
    if x.flags.c_contiguous:
        return x
    return x.transpose(sorted(range(x.ndim), key=lambda d: -x.strides[d]))
