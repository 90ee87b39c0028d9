"""Kernels on the CPU, fast: one thread per block, the blocks spread over the cores.

What a kernel does better than NumPy, on arrays of float32 or float64, runs as a kernel; matrix products are BLAS's, and
views, orderings, integers and small arrays are NumPy's. All of it works on np.ndarray.
"""

import functools
import logging
import struct
from pathlib import Path

import numpy as np

from ..locks import loading
from . import reference
from .host import CompilerError, address, modules, pool
from .launch import Launched

log = logging.getLogger("minigrad")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-w")
CHUNK = 1 << 14  # elements worth handing to another core
SMALL = 1 << 11  # elements below which NumPy has done the work before a kernel is called
STEPS = {"layer_norm": 16}  # of NumPy for one of the kernel, if many: it pays on arrays so many times smaller
FEW = 32  # queries of attention, half a tile, below which NumPy is faster than the kernel, which computes whole tiles
TRAINING = (
    "elementwise", "softmax", "norm", "cross_entropy", "reduce", "optim", "attention_forward TILE=64 DP=32",
    "attention_backward TILE=64 DP=32",
)  # fmt: skip
"""What training needs, compiled together the first time that one of them is."""

# The primitives that run as kernels. The others are the reference's.
ON_KERNELS = (
    "add", "sub", "mul", "div", "neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "relu", "silu", "erf",
    "erfc", "gelu", "gelu_backward", "maximum", "minimum", "where", "sum", "softmax", "softmax_backward", "log_softmax",
    "logsumexp", "attention_pattern", "attention_pattern_backward", "attention", "attention_backward", "layer_norm",
    "layer_norm_backward", "rms_norm", "rms_norm_backward", "cross_entropy", "cross_entropy_backward", "dropout",
    "cumsum", "take_add", "adam_", "sgd_", "norm", "scale_",
)  # fmt: skip


@functools.cache
def header():
    folder = Path(__file__).parent / "host"
    return "".join((folder / name).read_text(encoding="utf-8") for name in ("words.h", "native.h"))


class Native(Launched):
    """The CPU backend where there is a C++ compiler. Raises CompilerError where there is none that works."""

    whole_heads = True
    shared_limit = 1 << 19  # native.h's
    tile_pad = 16
    column_part = 1024  # rows that a block reduces by itself

    def __init__(self, small=SMALL):
        self.small = small
        self.threads = pool.threads()
        self._pool = pool.start(self.threads)
        self._kernels: dict = {}
        self.failed = None  # why kernels are no longer used, after an error

    pointer = staticmethod(address)

    def empty(self, shape, dtype):
        return np.empty(shape, dtype)

    def spread(self, n):
        return max(1, min(2 * self.threads, n // CHUNK)), 1

    def sums_of(self, n):
        return max(1, min(256, n // (4 * CHUNK)))

    def _run(self, file, entry, dtype, grid, block, shared, args):
        key = file, entry, dtype
        kernel = self._kernels.get(key) or self._load(*key)
        kernel(struct.pack("6I", *grid, *(1,) * (3 - len(grid)), 1, 1, 1), shared, args)

    def _load(self, file, entry, dtype):
        with loading:
            if self.failed is not None:
                raise self.failed
            if (file, entry, dtype) not in self._kernels:  # another thread may have been first
                try:
                    self.compile(TRAINING if file in TRAINING else [file], dtype)
                except CompilerError as error:
                    self.failed = error
                    log.warning("minigrad: %s; computing with NumPy instead", error)
                    raise
        return self._kernels[file, entry, dtype]

    def _load_for(self, name, slots):
        """Have the kernels of a primitive that works in place before it changes the first of these arrays: what it had
        done so far, NumPy would do again."""
        for dtype in {(slot[0] if type(slot) is tuple else slot).dtype for slot in slots}:
            if ("optim", name.rstrip("_"), dtype) not in self._kernels:
                self._load("optim", name.rstrip("_"), dtype)

    def compile(self, files, dtype):
        """Compile kernel files for a dtype, several at a time, and load them."""
        for file, module in zip(files, modules(files, dtype.name, header(), FLAGS, "native", threads=self.threads)):
            module.library.use_pool(self._pool)
            for name in module.kernels:
                self._kernels[file, name, dtype] = module[name]

    def takes(self, x, steps=1):
        """Is x, an argument of a primitive, something for kernels? True, False or None: either way."""
        if type(x) is not np.ndarray:
            return None
        if x.dtype.char in "fd":
            return True if x.size * steps >= self.small else None
        return None if x.dtype.char in "?bBhHiIlLqQ" else False

    def takes_all(self, slots):
        """The same of a list of arrays, or of tuples that begin with one."""
        taken = [self.takes(slot[0] if type(slot) is tuple else slot) for slot in slots]
        return False if False in taken else True if True in taken else None


def _chosen(name):
    """The primitive as a kernel where it pays, else as NumPy computes it."""
    kernel, numpy, steps = getattr(Launched, name), getattr(reference, name), STEPS.get(name, 1)

    in_place = name.endswith("_")

    @functools.wraps(kernel)
    def primitive(self, *args, **kwargs):
        if name == "attention" and self.small and args[0].shape[2] < FEW:
            return numpy(*args, **kwargs)
        large = False
        for x in args:
            taken = self.takes(x, steps) if type(x) is not list else self.takes_all(x)
            if taken is False:
                return numpy(*args, **kwargs)
            large = large or taken
        if large and self.failed is None:
            try:
                if in_place:
                    self._load_for(name, args[0])
                return kernel(self, *args, **kwargs)
            except CompilerError:  # _load has said why
                pass
        return numpy(*args, **kwargs)

    return primitive


for _name in dir(Launched):
    if hasattr(reference, _name) and not _name.startswith("_") and _name != "attention_fits":  # kernels do have limits
        _numpy = getattr(reference, _name)
        if _name in ON_KERNELS:
            setattr(Native, _name, _chosen(_name))
        else:
            setattr(Native, _name, staticmethod(_numpy) if callable(_numpy) else _numpy)
