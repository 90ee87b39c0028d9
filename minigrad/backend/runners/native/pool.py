"""The threads that native kernels run on: see pool.cpp."""

import ctypes
import functools
import os
from pathlib import Path

import numpy as np

from ...launch.program import Table
from ..toolchain import address, load

FLAGS = ("-std=c++17", "-O2", "-pthread")
MOST = 1024  # threads, however many are asked for


def cores():
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads():
    """How many threads compute: OMP_NUM_THREADS, which other libraries heed too, or the cores this process may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if wanted.isascii() and wanted.isdecimal() and (digits := wanted.lstrip("0")):
        return min(int(digits[:5]), MOST)
    return cores()


@functools.cache
def _library():
    library = load((Path(__file__).parent / "pool.cpp").read_text(encoding="utf-8"), FLAGS, "pool")
    library.replay.argtypes, library.replay.restype = (ctypes.c_void_p, ctypes.c_longlong), ctypes.c_longlong
    return library


def start(n):
    """Compile and start a pool of n threads, the caller's included. -> its function run_blocks, for native.h."""
    _library().start_pool(n)
    return ctypes.cast(_library().run_blocks, ctypes.c_void_p)


class Replay:
    """Recorded launches, run again by one call into C. All that they read, but for arrays, lies in `words`, where the
    addresses of arrays may be changed."""

    def __init__(self, launches):
        """launches: (a toolchain Kernel, its grid as 6 unsigned ints, the recorded Launch) each."""
        self._kept, pieces, self._pointers, within, rows = launches, [], [], [], []
        size = 0  # of all pieces, in words

        def add(piece):
            nonlocal size
            pieces.append(piece)
            size += len(piece) // 8
            return size - len(piece) // 8

        for at, (kernel, shape, launch) in enumerate(launches):
            args, tables = list(launch.args), []
            for i in kernel.pointers:
                if type(args[i]) is Table:
                    struct, table = args[i]
                    begin = add(b"".join(struct.packed(row, address) for row in table))
                    step = struct.size // 8
                    self._pointers += [(begin + k * step + j, at) for k in range(len(table)) for j in struct.pointers]
                    args[i] = None
                    tables.append((i, begin))
            begin = add(kernel.pack(args))
            places = kernel.places()
            self._pointers += [(begin + places[i], at) for i in kernel.pointers if args[i] is not None]
            within += [(begin + places[i], table) for i, table in tables]
            rows.append((ctypes.cast(kernel.function, ctypes.c_void_p).value, add(shape), launch.shared, begin))
        self.words = np.frombuffer(bytearray(b"".join(pieces)), np.uint64)
        start = self.words.ctypes.data
        for place, table in within:
            self.words[place] = start + 8 * table
        found = [(function, start + 8 * grid, shared, start + 8 * packed) for function, grid, shared, packed in rows]
        self._launches = np.array(found, np.uint64).reshape(-1, 4)  # what pool.cpp's Launch is
        self.call = _library().replay, (self._launches.ctypes.data,), (len(launches),)  # function, arguments to map()

    def pointers(self):
        """(place, launch): where addresses are among the words, and for which launch."""
        found = np.array(self._pointers, np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]
