"""Optimizer steps, and norm and scale of many arrays: one launch for all of them, through a table of slots."""

import functools
import math
import struct

import numpy as np

from .base import Launcher

# Of kernels/optim.cu: the elements of a chunk, and a Slot: p, m, v, g, size, first chunk, rate, decay, root.
CHUNK = 4096
SLOT = "4Q2q3d"
THREADS = 256


class Updates(Launcher):
    def adam_(self, slots, beta1, beta2, eps, decoupled):
        """slots: (p, g, m, v, lr, weight_decay, step), see the reference."""
        for dtype, group in _by_dtype(slots):
            table, last = [], None
            for p, g, m, v, lr, weight_decay, step in group:
                if (lr, weight_decay, step) != last:
                    last = lr, weight_decay, step
                    rate, root = lr / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
                    decay = 1 - lr * weight_decay if decoupled else weight_decay
                table.append((*self._addresses(p, m, v), self.pointer(g), p.size, rate, decay, root))
            self._launch_slots("adam", dtype, table, beta1, beta2, eps, decoupled)

    def sgd_(self, slots, momentum, nesterov):
        """slots: (p, g, buffer or None, lr, weight_decay), see the reference."""
        for dtype, group in _by_dtype(slots):
            table = [
                (*self._addresses(p, buffer, None), self.pointer(g), p.size, lr, weight_decay, 0)
                for p, g, buffer, lr, weight_decay in group
            ]
            self._launch_slots("sgd", dtype, table, momentum, nesterov)

    def norm(self, arrays):
        total = 0.0
        for dtype, group in _by_dtype([(self.compact(x),) for x in arrays]):
            chunks = sum(-(-x.size // CHUNK) for (x,) in group)
            parts, result = self.empty((chunks,), np.float64), self.empty((1,), np.float64)
            self._launch_slots("sum_squares", dtype, [self._only(x) for (x,) in group], parts)
            self.launch("optim", "add_up", dtype, 1, THREADS, result, parts, chunks)
            total += float(self.to_numpy(result)[0])
        return math.sqrt(total)

    def scale_(self, arrays, factor):
        for dtype, group in _by_dtype([(_dense(x),) for x in arrays]):
            self._launch_slots("scale", dtype, [self._only(x) for (x,) in group if x.flags.c_contiguous], factor)
            for (x,) in group:
                if not x.flags.c_contiguous:
                    self.mul(x, factor, out=x)

    def _only(self, x):
        return self.pointer(x), 0, 0, 0, x.size, 0, 0, 0

    def _addresses(self, *arrays):
        return tuple([0 if x is None else self.pointer(x) for x in arrays])

    def _launch_slots(self, entry, dtype, slots, *args):
        """A block for each chunk of the slots, which are (p, m, v, g, size, rate, decay, root) each."""
        numbers, chunk, count = [], 0, 0
        for *pointers, size, rate, decay, root in slots:
            if size:
                numbers += (*pointers, size, chunk, rate, decay, root)
                chunk += -(-size // CHUNK)
                count += 1
        if count:
            table = self.from_numpy(np.frombuffer(_packer(count)(*numbers), np.uint8))
            self.launch("optim", entry, dtype, chunk, THREADS, table, count, *args)


@functools.lru_cache(64)
def _packer(count):
    return struct.Struct("=" + SLOT * count).pack


def _by_dtype(slots):
    """(dtype, slots) for each dtype that the slots' first arrays have."""
    groups: dict = {}
    for slot in slots:
        groups.setdefault(slot[0].dtype, []).append(slot)
    return groups.items()


def _dense(x):
    """x with its dims in the order that they have in memory: compact if x is a permutation of a compact array."""
    if x.flags.c_contiguous:
        return x
    return x.transpose(sorted(range(x.ndim), key=lambda d: -x.strides[d]))
