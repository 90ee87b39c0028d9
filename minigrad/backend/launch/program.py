"""What a recorded step launches, and the memory in which it runs.

While a step is recorded, its arrays have addresses (in a Space) and no memory. Addresses are enough to tell which
launches work on the same memory: an Allocation. To run launches, a Program gives each Allocation a place: in an arena,
where those that are never in use at the same time share memory, or wherever the call says, as for a parameter, the
data that came in, and a result that somebody keeps.
"""

import bisect
import ctypes
import functools
import math
import mmap
import weakref
from typing import Any, NamedTuple

import numpy as np

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
CHUNK = 1 << 32  # bytes of the first half of a Space's addresses


class Allocation:
    """Memory that a recording asked for, and the array that it asked for."""

    __slots__ = "start", "nbytes", "shape", "dtype"

    def __init__(self, start, nbytes, shape, dtype):
        self.start, self.nbytes, self.shape, self.dtype = start, nbytes, shape, dtype


class Launch(NamedTuple):
    """What a runner's _run gets. Arrays among args have addresses of a Space, or memory."""

    file: str
    entry: str
    dtype: np.dtype
    grid: tuple
    block: tuple
    shared: int
    args: list


class Table(NamedTuple):
    """An array of structs, as an argument: a Struct and its rows, {field: value}, whose pointers are arrays or None. It
    is packed when its launch is about to run."""

    struct: Any
    rows: list


class Space:
    """Addresses without memory. What writes there ends the process, instead of spoiling something; what reads finds
    zeros, since a debugger that shows an array must not end it.

    protection: mmap's. With 0, reading crashes too, which reveals reads of what has not been computed."""

    protection = mmap.PROT_READ

    def __init__(self, on):
        self._on = on
        self._top = self._end = 0  # of the addresses that are left
        self._chunk = CHUNK
        self.places: dict = {}  # {id of an array that lives as long as this: (it, its place)}
        self.allocations: dict[int, Allocation] = {}  # by where they begin
        self.starts: list[int] = []  # in order

    def _reserve(self, nbytes):
        self._chunk = max(2 * self._chunk, nbytes)
        start = _libc().mmap(None, self._chunk, self.protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if start in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(
                f"a captured step needs {self._chunk} bytes of addresses (no memory), which are not there"
            )
        weakref.finalize(self, _libc().munmap, start, self._chunk).atexit = False
        self._top, self._end = start, start + self._chunk

    def empty(self, shape, dtype):
        """A new compact array."""
        shape, dtype = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,), np.dtype(dtype)
        return self.array(shape, dtype)

    def array(self, shape, dtype, strides=None, before=0, nbytes=None, writeable=True, shift=0):
        """An array with an Allocation of its own, whose first element is byte `before` of it, and which begins `shift`
        bytes after a multiple of ALIGNMENT."""
        nbytes = math.prod(shape) * dtype.itemsize if nbytes is None else nbytes
        if nbytes == 0:
            return self._on.fresh(shape, dtype)
        needed = _rounded(shift + nbytes) + ALIGNMENT
        if self._top + needed > self._end:
            self._reserve(needed)
        start = self._top + shift
        self._top += needed
        self.allocations[start] = Allocation(start, nbytes, shape, dtype)
        bisect.insort(self.starts, start)
        return self.known(self._on.array_at(start + before, shape, dtype, strides, None, writeable))

    def known(self, x):
        """x, which somebody keeps for as long as this: its place is remembered."""
        self.places[id(x)] = x, self.place(x)
        return x

    def place(self, x):
        """(Allocation, byte of it at which x begins), or None for an array with memory, or without elements."""
        known = self.places.get(id(x))
        if known is not None and known[0] is x:
            return known[1]
        if x.size == 0:
            return None
        start = self._on.address(x)
        at = bisect.bisect(self.starts, start) - 1
        allocation = None if at < 0 else self.allocations[self.starts[at]]
        if allocation is None or start >= allocation.start + allocation.nbytes:
            return None
        return allocation, start - allocation.start


@functools.cache
def _libc():
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long
    libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    return libc


class Program:
    """The launches of some Entries, ready to run.

    given: {Allocation: address}, of those that lie elsewhere. kept: Allocations whose values are wanted afterwards, and
    which will lie elsewhere, too."""

    def __init__(self, on, space, entries, given, kept):
        self.keeps = list(kept)
        self.replay = on.replayer([launch for e in entries for launch in e.launches])
        spots, launch_of = self.replay.pointers()  # where the replay holds an address, and for which launch
        values, starts = self.replay.words[spots], np.array([0, *space.starts], np.uint64)
        sizes = np.array([0, *(space.allocations[start].nbytes for start in space.starts)], np.uint64)
        which = np.searchsorted(starts, values, "right") - 1
        self.offsets = values - starts[which]
        own = self.offsets < sizes[which]
        self.spots, launch_of, self.offsets, which = spots[own], launch_of[own], self.offsets[own], which[own] - 1
        used, self.owner = np.unique(which, return_inverse=True)
        allocations = [space.allocations[space.starts[i]] for i in used]
        blocks = []
        self.elsewhere = []  # (place among bases, Allocation)
        for i, allocation in enumerate(allocations):
            if allocation in given or allocation in kept:
                self.elsewhere.append((i, allocation))
            else:
                at = launch_of[self.owner == i]
                blocks.append([allocation.nbytes, int(at.min()), int(at.max()), 0, i])
        self.nbytes = lay_out(blocks)
        self._memory = on.memory(self.nbytes + ALIGNMENT)
        arena = on.address(self._memory)
        arena += -arena % ALIGNMENT
        self.bases = [0] * len(allocations)
        for *_, offset, i in blocks:
            self.bases[i] = arena + offset
        self.written = None

    def run(self, memory, blocks, ran):
        """Run the launches, with Allocations that lie elsewhere at the addresses in `memory`, in the arrays `blocks`.
        Something is appended to `ran` in the same moment, as seen by an interrupt."""
        for i, allocation in self.elsewhere:
            self.bases[i] = memory[allocation]
        if self.bases != self.written:
            self.replay.words[self.spots] = np.array(self.bases, np.uint64)[self.owner] + self.offsets
            self.written = self.bases.copy()
        ran.extend(map(*self.replay.call))

    def leave(self, blocks):
        """What is to be done when the launches have run, once or several times."""


def below(x):
    """How many bytes before an array's first element its memory begins: 0, or less if strides are negative."""
    return sum(min(0, step * (n - 1)) for n, step in zip(x.shape, x.strides))


def spanned(x):
    """How many bytes an array's elements lie within."""
    return sum(abs(step) * (n - 1) for n, step in zip(x.shape, x.strides)) + x.itemsize if x.size else 0


def lay_out(blocks):
    """Give each block [bytes, first launch, last launch, offset, …] its offset in the arena -> bytes of the arena.
    Those in use at the same time lie apart.

    The largest come first, each as low as it fits ("greedy by size": Pisarchyk and Lee, "Efficient memory management
    for deep neural net inference", 2020)."""
    placed: list[list] = []
    total = 0
    for new in sorted(blocks, key=lambda each: (-each[0], each[1])):
        beside = [old for old in placed if old[1] <= new[2] and new[1] <= old[2]]
        offset = 0
        for old in sorted(beside, key=lambda each: each[3]):
            if old[3] - offset >= new[0]:
                break
            offset = max(offset, old[3] + _rounded(old[0]))
        new[3] = offset
        placed.append(new)
        total = max(total, offset + _rounded(new[0]))
    return total


def _rounded(nbytes):
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
