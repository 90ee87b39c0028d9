"""Code that tests run to find accesses outside of an array."""

FENCED = """
import ctypes, mmap
import numpy as np
from minigrad.backend.runners.native import NativeKernels

PAGE, libc = mmap.PAGESIZE, ctypes.CDLL(None, use_errno=True)
kept = []

def fenced(shape, dtype=np.float32):
    "An array between pages that nobody may touch: it ends where the second begins, or starts where the first ends."
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    pages = -(-size // PAGE) * PAGE
    memory = mmap.mmap(-1, pages + 2 * PAGE)
    kept.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (start, start + PAGE + pages):
        assert libc.mprotect(ctypes.c_void_p(page), PAGE, 0) == 0
    offset = PAGE + (pages - size if fenced.at_end else 0)
    return np.ndarray(shape, dtype, memory, offset)
"""
