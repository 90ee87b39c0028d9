"""The backend of a CPU with a C++ compiler: kernels, and NumPy where it gives the same bits faster.

The rule of each primitive says which of the two computes it: see launch/rules.py.
"""

import ctypes
import functools
import os
import platform
from pathlib import Path

import numpy as np

from ....base.locks import loading
from ...launch import KernelBackend
from ...launch.rules import MANY
from ...launch.source import source
from ..compiler import Source, load, load_all
from .attention import CpuAttention
from .kernel import Replay, address, exports, kernels, packed_grid
from .matmul import Gemm

FOLDER = Path(__file__).parent
FLAGS: tuple[str, ...] = (
    "-std=c++17", "-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-w",
)  # fmt: skip
if platform.machine() in ("x86_64", "AMD64"):
    # Without this, GCC uses half the width of AVX-512's registers, and exp takes 1.4 times as long.
    FLAGS += ("-mprefer-vector-width=512",)
POOL_FLAGS = ("-std=c++17", "-O2", "-pthread")
MOST_THREADS = 1024
SHARE = 1 << 14  # elements that are worth another core
SMALL = 1 << 12  # elements of rows that one core computes in less time than waking another takes
TRAINING = "gemm", "elementwise", "softmax", "norm", "cross_entropy", "reduce", "optim", "attention"
"""The kernel files that training needs. They are compiled together, when the first of them is needed for a large array.
A program with small arrays waits only for the files that it uses."""
OWN = "gemm", "attention"
"""The kernel files of this folder, which replace files of kernels/ on a CPU."""


def cores():
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads():
    """The number of threads that compute: OMP_NUM_THREADS, which other libraries obey too, or else cores()."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if wanted.isascii() and wanted.isdecimal() and (digits := wanted.lstrip("0")):
        return min(int(digits[:5]), MOST_THREADS)
    return cores()


@functools.cache
def pool():
    """The compiled library of pool.cpp: the threads that kernels run on. The first call also sets malloc up."""
    library = load(Source((FOLDER / "pool.cpp").read_text(encoding="utf-8"), POOL_FLAGS, "pool"))
    library.replay.argtypes, library.replay.restype = (ctypes.c_void_p, ctypes.c_longlong), None
    library.keep_freed_memory()
    return library


class NativeKernels(Gemm, CpuAttention, KernelBackend):
    """Every primitive as a kernel, even where NumPy is faster. Raises CompilerError if there is no C++ compiler."""

    captures = True
    column_part = 1024  # the most rows that a block reduces

    def __init__(self):
        self.threads = threads()
        pool().start_pool(self.threads)
        self._run_blocks = ctypes.cast(pool().run_blocks, ctypes.c_void_p)
        self._kernels: dict = {}

    one_thread = True
    pointer = address = staticmethod(address)

    def spread(self, n):
        return (1, 1) if n < 2 * SHARE else (min(2 * self.threads, n // SHARE), 1)

    def partial_sums(self, n):
        return max(1, min(256, n // (4 * SHARE)))

    def rows(self, rows, n, each=4):
        fewest_shared = max(1, SMALL // max(1, n))  # see packed_grid
        return (rows, 1, 1, fewest_shared), 1

    def launch_rows(self, rows, n, file, entry, dtype, *args):
        """Run an entry point built on rows.cuh over `rows` rows of n elements: a block of one thread for each."""
        if rows:
            self._start(file, entry, dtype, self.rows(rows, n)[0], (1,), 0, args)

    def _start(self, file, entry, dtype, grid, block, shared, args):
        kernel = self._kernels.get((file, entry, dtype)) or self._load(file, entry, dtype)
        if kernel.takes_structs:
            args = self.with_packed_structs(args)  # the packed structs live until the kernel has run
        kernel.function(packed_grid(grid), kernel.pack(args))

    def kernel(self, *key):
        """The Kernel of a file, entry point and dtype."""
        return self._kernels.get(key) or self._load(*key)

    def _load(self, file, entry, dtype):
        with loading:
            if (file, entry, dtype) not in self._kernels:  # another thread may have been first
                self.compile([(each, dtype) for each in self._together(file, dtype)])
        return self._kernels[file, entry, dtype]

    def _together(self, file, dtype):
        """The files that are compiled at the same time as this one, which is among them."""
        return [file]

    def replayer(self, launches):
        """The Replay of captured launches."""
        return Replay(pool().replay, [(self.kernel(*launch[:3]), launch) for launch in launches])

    def compile(self, wanted):
        """Compile and load kernel files, several at a time. wanted: (file, dtype) pairs."""
        header, texts, sources = (FOLDER / "native.h").read_text(encoding="utf-8"), [], []
        for file, dtype in wanted:
            text = source(file, dtype.name, FOLDER / f"{file}.cpp" if file in OWN else None)
            label = f"{file.replace(' ', '-')}-{dtype}-native"
            texts.append(text)
            sources.append(Source(f"{header}\n{text}\n{exports(text)}\n", FLAGS, label))
        for (file, dtype), text, library in zip(wanted, texts, load_all(sources, self.threads)):
            library.use_pool(self._run_blocks)
            for name, kernel in kernels(text, library).items():
                self._kernels[file, name, dtype] = kernel


class Native(NativeKernels):
    """The backend of device 'cpu': a kernel or NumPy computes each primitive, as its rule says.

    any_size: use kernels for small arrays too, for tests."""

    may_use_numpy = True
    warns = False  # kernels do not warn, and the rules silence NumPy

    def __init__(self, any_size=False):
        super().__init__()
        self.any_size = any_size
        self.large: set = set()  # the dtypes of large arrays so far

    def _together(self, file, dtype):
        return TRAINING if dtype in self.large and file in TRAINING else [file]

    def choose_kernel(self, smallest, args):
        """Return True if a kernel is to compute a primitive of these arguments, False if NumPy is. Remember the dtype
        of a large array in self.large.

        smallest: a kernel computes if the largest array of floats has so many elements or more, (if all arrays are
        compact, if one is not). NumPy computes where there are floats other than float32 and float64, or none."""
        largest, dtype = -1, None  # the arrays of floats alone decide
        compact = True
        for x in args:
            if type(x) is np.ndarray:
                kind = x.dtype.char
                if kind in "fd":
                    if x.size > largest:
                        largest, dtype = x.size, x.dtype
                elif kind not in "?bBhHiIlLqQ":
                    return False
                compact = compact and x.flags.c_contiguous
            elif type(x) is list:  # a list of arrays, or of slots whose first item is an array
                arrays = [slot[0] if type(slot) is tuple else slot for slot in x]
                if not all(array.dtype.char in "fd" for array in arrays):
                    return False
                for array in arrays:
                    if array.size > largest:
                        largest, dtype = array.size, array.dtype
            elif isinstance(x, np.dtype):  # the result will have this dtype
                if x.char not in "fd":
                    return False
                largest = max(largest, 0)
        if largest >= MANY:
            self.large.add(dtype)
        return largest >= (0 if self.any_size else smallest[0] if compact else smallest[1])
