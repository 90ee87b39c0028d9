"""Optimizer steps, and norm and scale of many arrays: one launch for all of them, through a table of slots."""

import math

import numpy as np

from ..kernels import Struct, constant
from .launcher import Launcher
from .rules import natively

SLOT = Struct("optim.cu", "Slot")
CHUNK = constant("optim.cu", "CHUNK")  # elements of an array that one block updates
THREADS = 256


class Optim(Launcher):
    @natively()
    def adam_(self, slots, beta1, beta2, eps, decoupled):
        for dtype, group in _by_dtype(slots):
            table, last = [], None
            for p, g, m, v, lr, weight_decay, step in group:
                if (lr, weight_decay, step) != last:
                    last = lr, weight_decay, step
                    rate, root = lr / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
                    decay = 1 - lr * weight_decay if decoupled else weight_decay
                table.append(self._slot(p, m, v, g, rate, decay, root))
            self._launch_slots("adam", dtype, table, beta1, beta2, eps, decoupled)

    @natively()
    def sgd_(self, slots, momentum, nesterov):
        for dtype, group in _by_dtype(slots):
            table = [self._slot(p, buffer, None, g, lr, weight_decay) for p, g, buffer, lr, weight_decay in group]
            self._launch_slots("sgd", dtype, table, momentum, nesterov)

    @natively()
    def global_norm(self, arrays):
        total = 0.0
        for dtype, group in _by_dtype([(self.compact(x),) for x in arrays]):
            chunks = sum(-(-x.size // CHUNK) for (x,) in group)
            parts, result = self.empty((chunks,), np.float64), self.empty((1,), np.float64)
            self._launch_slots("sum_squares", dtype, [self._slot(x) for (x,) in group], parts)
            self.launch("optim", "add_up", dtype, 1, THREADS, result, parts, chunks)
            total += float(self.to_numpy(result)[0])
        return math.sqrt(total)

    @natively()
    def scale_(self, arrays, factor):
        for dtype, group in _by_dtype([(_dense(x),) for x in arrays]):
            self._launch_slots("scale", dtype, [self._slot(x) for (x,) in group if x.flags.c_contiguous], factor)
            for (x,) in group:
                if not x.flags.c_contiguous:
                    self.mul(x, factor, out=x)

    def _slot(self, p, m=None, v=None, g=None, rate=0.0, decay=0.0, root=0.0):
        """The fields of a Slot for an array; its chunks are numbered later."""
        p_at, m_at, v_at, g_at = (0 if x is None else self.pointer(x) for x in (p, m, v, g))
        return dict(p=p_at, m=m_at, v=v_at, g=g_at, size=p.size, rate=rate, decay=decay, root=root)

    def _launch_slots(self, entry, dtype, slots, *args):
        """A block for each chunk of the arrays in slots."""
        packed, chunks = [], 0
        for slot in slots:
            if slot["size"]:
                packed.append(SLOT(**slot, chunk=chunks))
                chunks += -(-slot["size"] // CHUNK)
        if packed:
            table = self.from_numpy(np.frombuffer(b"".join(packed), np.uint8))
            self.launch("optim", entry, dtype, chunks, THREADS, table, len(packed), *args)


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
