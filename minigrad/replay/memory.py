"""The memory of a captured step: addresses without memory while it is captured, and places for them when it runs.

Captured arrays have addresses in a Space. Addresses are enough to tell which launches work on the same
memory: an Allocation. To run launches, a Program gives each Allocation a place: in an arena, where those that are never
in use at the same time share memory, or wherever the call says, as for a parameter, the data that came in, and a result
that somebody keeps.
"""

import bisect
import ctypes
import functools
import math
import mmap
import os
import tempfile
import weakref
from typing import Any, NamedTuple

import numpy as np

from ..backend.kernels import Struct, Structs
from ..backend.launch.launcher import below, spanned
from ..backend.runners.checks import WORD, Found

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
CHUNK = 1 << 32  # bytes of the first half of a Space's addresses
POISON = 1 << 20  # bytes
MAP_FIXED = 0x10  # of mmap, on Linux and macOS; Python's module lacks it
LETTER = Struct("captured.cu", "Letter")
SLOTS = 32  # calls that the host may be ahead of a GPU


class Allocation:
    """Memory that a step asked for, and the array that it asked for."""

    __slots__ = "start", "nbytes", "shape", "dtype"

    def __init__(self, start, nbytes, shape, dtype):
        self.start, self.nbytes, self.shape, self.dtype = start, nbytes, shape, dtype


class Launch(NamedTuple):
    """The arguments of Launcher._start. Arrays among args have addresses of a Space, or memory."""

    file: str
    entry: str
    dtype: np.dtype
    grid: tuple
    block: tuple
    shared: int
    args: list


class Space:
    """Addresses without memory. A NumPy array there is read-only, and reads as NaN (-1 for integers), since it has no
    values yet: every byte is that of one file, POISON bytes long, mapped again and again.

    protection: mmap's. With 0, a read ends the process: a test then finds reads of what was never computed."""

    protection = mmap.PROT_READ

    def __init__(self, on):
        self._on = on
        self._top = self._end = 0  # begin and end of the addresses that are still free
        self._poisoned = 0  # the end of the addresses where the file is mapped
        self._chunk = CHUNK
        self.places: dict = {}  # {id of an array: (array, its place)}; the arrays live as long as the Space
        self.allocations: dict[int, Allocation] = {}  # {where it begins: the Allocation}
        self.starts: list[int] = []  # keys of allocations, sorted

    def _reserve(self, nbytes):
        self._chunk = -(-max(2 * self._chunk, nbytes) // POISON) * POISON
        start = _libc().mmap(None, self._chunk, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if start in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"no range of {self._chunk} addresses is left, which a captured step needs")
        weakref.finalize(self, _libc().munmap, start, self._chunk).atexit = False
        self._top, self._end, self._poisoned = start, start + self._chunk, start

    def _poison(self):
        """Make all addresses below `_top` readable."""
        while self._poisoned < self._top:
            flags = mmap.MAP_PRIVATE | MAP_FIXED
            _libc().mmap(self._poisoned, POISON, self.protection, flags, _poison_file(), 0)
            self._poisoned += POISON

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
        self._poison()
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
def _poison_file():
    """The descriptor of a file whose bytes read as NaN in any float dtype."""
    file, path = tempfile.mkstemp()
    os.unlink(path)
    os.write(file, b"\xff" * POISON)
    return file


@functools.cache
def _libc():
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long
    libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    return libc


class Memory:
    """Where Allocations lie in a call, if not in an arena."""

    def __init__(self, on):
        self.on = on
        self.addresses: dict[Allocation, int] = {}
        self.blocks: dict[Allocation, Any] = {}  # the arrays that hold them

    def put(self, allocation, x, address=None):
        """Have an Allocation lie where the array x does, whose memory begins at that address."""
        self.addresses[allocation] = self.on.address(x) + below(x) if address is None else address
        self.blocks[allocation] = x

    def array(self, place, x):
        """The array in memory of a captured one, x."""
        allocation, offset = place
        block = self.blocks[allocation]
        if offset == 0 and block.shape == x.shape and block.dtype == x.dtype and block.strides == x.strides:
            return block
        return self.on.array_at(self.addresses[allocation] + offset, x.shape, x.dtype, x.strides, block)


class Program:
    """The launches of some Entries, ready to run, with the arena in which they do. On a CPU, launches are packed once,
    and each run writes the addresses into them that differ.

    given: Allocations that lie elsewhere. kept: those whose values are wanted afterwards, in memory of their own."""

    def __init__(self, on, space, entries, given, kept):
        self._on, self._kept = on, kept
        self._replay = on.replayer([launch for e in entries for launch in e.launches])
        spots, launch_of = (
            self._replay.pointers()
        )  # places of addresses among the replay's words, and the launch of each
        values, starts = self._replay.words[spots], np.array([0, *space.starts], np.uint64)
        sizes = np.array([0, *(space.allocations[start].nbytes for start in space.starts)], np.uint64)
        which = np.searchsorted(starts, values, "right") - 1
        offsets = values - starts[which]
        own = offsets < sizes[which]
        self._spots, launch_of, self._offsets = spots[own], launch_of[own], offsets[own]
        used, self._owner = np.unique(which[own] - 1, return_inverse=True)
        self._used = [space.allocations[space.starts[i]] for i in used]
        self._elsewhere = [(i, a) for i, a in enumerate(self._used) if a in given or a in kept]
        uses = {a: launch_of[self._owner == i] for i, a in enumerate(self._used)}
        arena = self._laid_out({a: (at.min(), at.max()) for a, at in uses.items() if a not in given and a not in kept})
        self._bases = [arena.get(a, 0) for a in self._used]
        self._written = None

    def _laid_out(self, lives):
        """{Allocation: its address in an arena}, from {Allocation: its (first, last) launch}. Those in use at the same
        time lie apart.

        The largest come first, each as low as it fits ("greedy by size": Pisarchyk and Lee, "Efficient memory
        management for deep neural net inference", 2020)."""
        found: list[tuple] = []  # (offset, end, first, last, Allocation)
        for a, (first, last) in sorted(lives.items(), key=lambda each: (-each[0].nbytes, each[1][0])):
            offset = 0
            for start, end in sorted(each[:2] for each in found if each[2] <= last and first <= each[3]):
                if start - offset >= a.nbytes:
                    break
                offset = max(offset, end)
            found.append((offset, offset + _rounded(a.nbytes), first, last, a))
        self._arena = self._on.memory(max((end for _, end, *_ in found), default=0) + ALIGNMENT)
        start = self._on.address(self._arena)
        start += -start % ALIGNMENT
        return {a: start + offset for offset, *_, a in found}

    def run(self, memory, ran):
        """Run the launches. After an interrupt, call it again: something is appended to the list `ran` in the same
        moment in which they run."""
        if not ran:
            for allocation in self._kept:
                block = self._on.fresh(allocation.shape, allocation.dtype)
                memory.put(allocation, block, self._on.address(block))
            ran.extend(map(*self._call(memory)))
        self._leave(memory)

    def _call(self, memory):
        """Make everything ready -> (function that runs the launches, a list of each of its arguments)."""
        for i, allocation in self._elsewhere:
            self._bases[i] = memory.addresses[allocation]
        if self._bases != self._written:
            self._replay.words[self._spots] = np.array(self._bases, np.uint64)[self._owner] + self._offsets
            self._written = self._bases.copy()
        return self._replay.call

    def _leave(self, memory):
        """What is to be done when the launches have run, once or several times."""


class GraphProgram(Program):
    """Likewise on a GPU: a CUDA graph, on the stream that is current at each call, which the host starts and does not
    wait for.

    What differs is how each call's arrays and numbers get to the GPU. A graph knows addresses: an array from outside
    that lies elsewhere at another call is copied to a place of its own, and back if the step changes it. The numbers
    (learning rates, where random numbers begin) lie in page-locked memory, which the graph's first kernel reads
    (kernels/captured.cu): nothing is uploaded, and since each of SLOTS calls has a slot, the host may be that many
    calls ahead. A wrong index is replaced by 0 and noted down. From then on no optimizer of minigrad's changes
    anything, until the host next waits for the GPU, notices, and raises."""

    _calls = 0

    def __init__(self, on, space, entries, given, kept):
        self._on, self._space, self._kept = on, space, kept
        self._launches = [launch for e in entries for launch in e.launches]
        self._cells = [(cell.base, there.base) for e in entries for cell, there, _ in e.refreshes]  # words
        lives: dict = {}
        self._changed = set()
        for at, launch in enumerate(self._launches):
            for x, changes in _arrays(on, launch):
                if place := space.place(x):
                    lives.setdefault(place[0], [at, at])[1] = at
                    if changes:
                        self._changed.add(place[0])
        end = len(self._launches)  # when those are copied that are kept
        inner = {a: (first, end if a in kept else last) for a, (first, last) in lives.items() if a not in given}
        self._inner = self._laid_out(inner)
        self._outer = [a for a in lives if a in given]
        self._at: dict = {}  # {Allocation from outside: where the graph takes it to be}
        self._copies: dict = {}  # {Allocation: its own place}, where another call passed another address
        self._graph: Any = None
        self._stream: Any = None
        self._turn: Any = None  # how many calls the GPU has begun, if there are cells
        self._events = [on.event() for _ in range(SLOTS)]  # when each of the last calls had finished
        self._found = Found(on, [check for e in entries for check in e.checks])

    # -- making it

    def _build(self):
        on = self._on
        launches = [launch._replace(args=on.with_tables(map(self._placed, launch.args))) for launch in self._launches]
        if self._cells:
            launches.insert(0, self._delivery())
        downloads = [(seen, found) for seen, (_, _, found) in zip(self._found.seen, self._found.raising)]
        self._graph = on.graph(launches, downloads)
        self._built = launches  # keeps the arrays of these launches alive

    def _placed(self, x):
        if type(x) is Structs:
            return Structs(x.struct, [{name: self._placed(value) for name, value in row.items()} for row in x.rows])
        place = self._space.place(x) if isinstance(x, self._on.array_type) else None
        if place is None:
            return x
        allocation, offset = place
        start = self._inner.get(allocation) or self._at[allocation]
        return self._on.array_at(start + offset, x.shape, x.dtype, x.strides, self)

    def _delivery(self):
        """The launch that copies a call's slot to the cells."""
        on, rows, size = self._on, [], 0
        for cell, there in self._cells:
            rows.append(dict(to=there, at=size, size=cell.size))
            size += cell.size
        if self._turn is None:
            self._slots, self._turn = on.pinned((SLOTS, size), WORD), on.from_numpy(np.zeros(1, np.int64))
        args = [on.packed(Structs(LETTER, rows)), len(rows), on.seen_by_gpu(self._slots), size, SLOTS, self._turn]
        return Launch("captured", "deliver", WORD, (1,), (32,), 0, args)

    # -- running it

    @property
    def done(self):
        """Has the GPU finished the last call?"""
        return not self._calls or self._last.done

    def _call(self, memory):
        """What follows on the current stream comes after the last call, whichever stream that was on."""
        stream = self._on.current_stream()
        if self._calls and stream != self._stream:
            stream.wait_event(self._last)
        self._stream = stream
        self._take_in(memory)
        if self._calls >= SLOTS:
            self._events[self._calls % SLOTS].synchronize()  # the slot has been read
        if self._cells:
            self._slots[self._calls % SLOTS] = np.concatenate([cell for cell, _ in self._cells])
        if self._found.raising:
            self._on.unread[self] = None
        self._next = self._calls + 1
        return self._graph.launch, (stream,)

    def _leave(self, memory):
        on, self._calls = self._on, self._next
        for allocation in self._changed & self._copies.keys():
            on.refill(memory.blocks[allocation], self._copy_of(allocation, memory))
        for allocation in self._kept:
            block = memory.blocks[allocation]
            on.refill(block, on.array_at(self._inner[allocation], block.shape, block.dtype, block.strides, self))
        self._last.record(self._stream)

    def _take_in(self, memory):
        """Have the graph find what comes from outside."""
        moved = [a for a in self._outer if a not in self._copies and self._at.get(a) != memory.addresses[a]]
        for allocation in moved:
            if self._graph is None:
                self._at[allocation] = memory.addresses[allocation]
            else:
                self._copies[allocation] = copy = self._on.memory(spanned(memory.blocks[allocation]))
                self._at[allocation] = self._on.address(copy)
        if moved or self._graph is None:
            self._build()
        for allocation in self._copies:
            self._on.refill(self._copy_of(allocation, memory), memory.blocks[allocation])

    def _copy_of(self, allocation, memory):
        x = memory.blocks[allocation]
        return self._on.array_in(self._copies[allocation], -below(x), x.shape, x.dtype, x.strides)

    @property
    def _last(self):
        return self._events[(self._calls - 1) % SLOTS]

    def raise_found(self):
        """Raise IndexError if a call that has finished was given a wrong index."""
        self._found.raise_found(", in a captured step")

    def __del__(self):
        if not self.done:  # page-locked memory that is given back may be used for something else at once
            self._last.synchronize()


PROGRAMS = {"cpu": Program, "cuda": GraphProgram}


def _arrays(on, launch):
    """(array, may the launch change it?) of the arrays among its arguments."""
    for x, p in zip(launch.args, on.kernel(*launch[:3]).parameters):
        if type(x) is Structs:
            for row in x.rows:
                yield from ((value, True) for value in row.values() if isinstance(value, on.array_type))
        elif isinstance(x, on.array_type):
            yield x, p.changes


def _rounded(nbytes):
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
