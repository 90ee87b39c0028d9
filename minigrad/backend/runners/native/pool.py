"""The threads that native kernels run on: see pool.cpp."""

import ctypes
import functools
import os
from pathlib import Path

from ..toolchain import load

FLAGS = ("-std=c++17", "-O2", "-pthread")
MOST = 1024  # threads, however many are asked for


def threads():
    """How many threads compute: OMP_NUM_THREADS, which other libraries heed too, or the cores this process may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if wanted.isascii() and wanted.isdecimal() and (digits := wanted.lstrip("0")):
        return min(int(digits[:5]), MOST)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _library():
    library = load((Path(__file__).parent / "pool.cpp").read_text(encoding="utf-8"), FLAGS, "pool")
    library.replay.argtypes, library.replay.restype = (ctypes.c_char_p, ctypes.c_longlong), ctypes.c_longlong
    return library


def start(n):
    """Compile and start a pool of n threads, the caller's included. -> its function run_blocks, for native.h."""
    _library().start_pool(n)
    return ctypes.cast(_library().run_blocks, ctypes.c_void_p)


class Launch(ctypes.Structure):
    """A launch of a compiled kernel, to be run again: what pool.cpp's Launch is. It keeps the bytes it is made of."""

    _fields_ = [
        ("_function", ctypes.c_void_p),
        ("_grid", ctypes.c_char_p),
        ("_shared", ctypes.c_ulong),
        ("_packed", ctypes.c_char_p),
    ]

    def __init__(self, function, grid, shared, packed):
        """function: of a toolchain Kernel. grid: 6 unsigned ints as bytes. packed: its arguments, as it packs them."""
        super().__init__(ctypes.cast(function, ctypes.c_void_p), grid, shared, packed)


def recorded(launches):
    """Launches as an array for `replay`: bytes, since ctypes would make a type for each length, which only the garbage
    collector could free. The launches have to be kept for as long."""
    return b"".join(map(bytes, launches))


def replay(launches):
    """Run an array of launches one after the other, in one call that lets other threads of Python run meanwhile.
    -> the place of the first one that fails, or their number."""
    return _library().replay(launches, len(launches) // ctypes.sizeof(Launch))
