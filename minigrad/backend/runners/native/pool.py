"""The threads that native kernels run on: see pool.cpp."""

import ctypes
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


def start(n):
    """Compile and start a pool of n threads, the caller's included. -> its function run_blocks, for native.h."""
    library = load((Path(__file__).parent / "pool.cpp").read_text(encoding="utf-8"), FLAGS, "pool")
    library.start_pool(n)
    return ctypes.cast(library.run_blocks, ctypes.c_void_p)
