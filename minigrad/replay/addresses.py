"""Addresses without memory, for the arrays of a step while it is captured.

An address is enough to tell which launches work on the same memory: that is an Allocation. When the step is replayed, a
memory plan gives each Allocation a place (programs.py).
"""

import bisect
import ctypes
import functools
import math
import mmap
import os
import tempfile
import weakref

import numpy as np

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
FIRST_RANGE = 1 << 26  # bytes of the first range of addresses; each further one is twice as large
POISON = 1 << 24  # bytes of the file that is mapped at all addresses: the system limits the number of mappings
MAP_FIXED = 0x10  # a flag of mmap on Linux and macOS, which Python's module lacks


class Allocation:
    """Memory that a step asked for, and the shape and dtype of the array that it asked for."""

    __slots__ = "start", "nbytes", "shape", "dtype"

    def __init__(self, start, nbytes, shape, dtype):
        self.start, self.nbytes, self.shape, self.dtype = start, nbytes, shape, dtype


class AddressSpace:
    """Addresses without memory. A NumPy array there is read-only, and reads as NaN (-1 for integers), since it has no
    values yet: one file of such bytes is mapped again and again. (On a GPU, nothing can read there.)

    protection: mmap's. With 0, a read ends the process, so that a test finds reads of values that were never
    computed."""

    protection = mmap.PROT_READ

    def __init__(self, backend):
        self._backend = backend
        self._top = self._end = 0  # begin and end of the addresses that are still free
        self._poisoned = 0  # the end of the addresses where the file is mapped
        self._range = FIRST_RANGE // 2
        self._places: dict = {}  # {id of an array: (array, its place)}; the arrays live as long as this does
        self.allocations: dict[int, Allocation] = {}  # {address: the Allocation that begins there}
        self.starts: list[int] = []  # the keys of `allocations`, sorted

    def empty(self, shape, dtype):
        """A new compact array."""
        return self.array(tuple(shape) if isinstance(shape, (tuple, list)) else (shape,), np.dtype(dtype))

    def array(self, shape, dtype, strides=None, first=0, nbytes=None, writeable=True, begins=0):
        """An array with an Allocation of nbytes.

        first: the byte of the Allocation at which element 0 lies. begins: how many bytes after a multiple of ALIGNMENT
        the Allocation begins. writeable: what is_writeable() says of the array."""
        nbytes = math.prod(shape) * dtype.itemsize if nbytes is None else nbytes
        if nbytes == 0:
            return self._backend.empty(shape, dtype)
        needed = rounded_up(begins + nbytes) + ALIGNMENT
        if self._top + needed > self._end:
            self._reserve(needed)
        start = self._top + begins
        self._top += needed
        self._poison()
        self.allocations[start] = Allocation(start, nbytes, shape, dtype)
        bisect.insort(self.starts, start)
        return self.remember(self._backend.array_at(start + first, shape, dtype, strides, None, writeable))

    def remember(self, x):
        """x, which lives as long as this from now on, so that place() finds it faster."""
        self._places[id(x)] = x, self.place(x)
        return x

    def place(self, x):
        """(Allocation, byte of it at which x begins), or None for an array with memory, or without elements."""
        entry = self._places.get(id(x))
        if entry is not None and entry[0] is x:
            return entry[1]
        if x.size == 0:
            return None
        start = self._backend.address(x)
        at = bisect.bisect(self.starts, start) - 1
        allocation = None if at < 0 else self.allocations[self.starts[at]]
        if allocation is None or start >= allocation.start + allocation.nbytes:
            return None
        return allocation, start - allocation.start

    def _reserve(self, nbytes):
        """Reserve a further range of addresses from the system, of at least nbytes."""
        self._range = rounded_up(max(2 * self._range, nbytes), POISON)
        start = _libc().mmap(None, self._range, self.protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if start in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"a captured step needs a range of {self._range} addresses, and none is left")
        weakref.finalize(self, _libc().munmap, start, self._range).atexit = False
        self._top, self._end, self._poisoned = start, start + self._range, start

    def _poison(self):
        """On a CPU, map the file at all addresses below `_top`."""
        while self._poisoned < self._top and self._backend.device == "cpu":
            flags = mmap.MAP_PRIVATE | MAP_FIXED
            _libc().mmap(self._poisoned, POISON, self.protection, flags, _poison_file(), 0)
            self._poisoned += POISON


def rounded_up(nbytes, multiple=ALIGNMENT):
    """The least multiple of `multiple` that is not below nbytes."""
    return -(-nbytes // multiple) * multiple


@functools.cache
def _poison_file():
    """The descriptor of a file whose bytes read as NaN in any float dtype."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("minigrad")
    else:
        file, path = tempfile.mkstemp()
        os.unlink(path)
    for _ in range(POISON >> 20):
        os.write(file, b"\xff" * (1 << 20))
    return file


@functools.cache
def _libc():
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long
    libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    return libc
