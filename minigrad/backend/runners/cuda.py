"""Kernels on an NVIDIA GPU. CuPy gives memory, views, streams and the compiler (NVRTC); it computes nothing.

CuPy is imported when a Cuda is made, not before. Work is queued on CuPy's current stream and current device; only
to_numpy() and synchronize() wait for it.
"""

import importlib.util
import math

import numpy as np

from ..kernels import C_TYPES, signatures
from ..launch import Launched
from ..launch.launcher import SHARED
from ..launch.source import source

# CuPy adds -arch for the GPU at hand, where CUDA's headers are, and -ftz=true: float32 numbers below 1e-38 become 0.
OPTIONS = ("-std=c++17",)
INSTALL = "pip install '.[gpu13]' (CUDA 12: '.[gpu12]')"
NO_DEVICE = 100  # cudaErrorNoDevice
_SCALARS = {kind: np.dtype(name).type for name, kind in C_TYPES.items()}


def text(file, dtype):
    """What NVRTC gets for kernels/<file>.cu on arrays of a dtype, by its name."""
    return f"#include <cuda_fp16.h>\n{source(file, dtype)}"


def why_not():
    """What stands between this machine and device='cuda', or None: the first missing of CuPy, a driver, a GPU, NVRTC
    and CUDA's headers. It compiles four words, which CuPy keeps in its cache on disk."""
    if importlib.util.find_spec("cupy") is None:
        return f"device 'cuda' needs CuPy, which is not installed: {INSTALL}"
    try:
        import cupy
    except OSError as error:
        why = f"cannot make its cache folder; name one in CUPY_CACHE_DIR ({first_line(error)})"
        return f"device 'cuda': CuPy is installed, but {why}"
    except Exception as error:
        return f"device 'cuda': CuPy is installed, but cannot be imported ({first_line(error)})"
    runtime = cupy.cuda.runtime
    if runtime.driverGetVersion() == 0:
        return "device 'cuda': CuPy is installed, but there is no NVIDIA driver"
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        if error.status != NO_DEVICE:
            return f"device 'cuda': CuPy is installed, but there is no NVIDIA driver that it can use ({error})"
        count = 0
    if count == 0:
        return "device 'cuda': CuPy and a driver are here, but no GPU was found"
    try:
        cupy.cuda.nvrtc.getVersion()
    except Exception as error:  # CuPy's loader has exceptions of its own
        return f"device 'cuda' needs NVRTC, CUDA's compiler: pip install '.[gpu13]' ({first_line(error)})"
    try:
        cupy.RawModule(code="#include <cuda_fp16.h>\n", options=OPTIONS).compile()
    except Exception as error:
        return f"device 'cuda' needs CUDA's headers: pip install '.[gpu13]' ({first_line(error)})"
    return None


def first_line(error):
    """What an exception says, in a line."""
    return next(iter(str(error).splitlines()), type(error).__name__)


class Cuda(Launched):
    """Every primitive, on the current GPU."""

    device = "cuda"

    def __init__(self):
        import cupy

        about = cupy.cuda.Device().attributes
        self.array_type = cupy.ndarray
        self.shared_limit = about["MaxSharedMemoryPerBlockOptin"]
        self._cupy, self.processors = cupy, about["MultiProcessorCount"]
        self._kernels: dict = {}  # without a lock: two threads that load the same kernel load it twice

    # -- kernels

    def spread(self, n):
        return min(-(-n // 256), 32 * self.processors), 256  # four times as many blocks as run at once

    def _run(self, file, entry, dtype, grid, block, shared, args):
        key = file, entry, dtype
        kernel = self._kernels.get(key) or self._load(*key)
        kernel(grid, block, shared, args)

    def _load(self, file, entry, dtype):
        code = text(file, dtype.name)
        module = self._cupy.RawModule(code=code, options=OPTIONS)
        for name, kinds in signatures(code).items():
            self._kernels[file, name, dtype] = Kernel(module.get_function(name), name, kinds, dtype, self.array_type)
        return self._kernels[file, entry, dtype]

    # -- memory

    def expand(self, x, shape):
        return self._cupy.broadcast_to(x, shape)

    def overlap(self, x, y):
        return self._cupy.may_share_memory(x, y)

    def empty(self, shape, dtype):
        return self.array_type(shape, dtype)

    def zeros(self, shape, dtype):
        return self._cupy.zeros(shape, dtype)  # a memset

    def from_numpy(self, x):
        """A copy on the GPU, through page-locked memory and without waiting."""
        return self._cupy.array(x.reshape(-1)).reshape(x.shape)  # flat: CuPy fills 0-d arrays with a kernel of its own

    def to_numpy(self, x):
        """A copy in the CPU's memory. This waits for all that was queued before."""
        return self.compact(x).get()

    def pinned(self, shape, dtype):
        """A NumPy array, not initialised, in page-locked memory: from_numpy() of it is a single asynchronous copy.

        For a batch that is filled again and again. Fill it only after synchronize(): the copy may not be done."""
        dtype, size = np.dtype(dtype), math.prod(shape)
        memory = self._cupy.cuda.alloc_pinned_memory(max(1, size * dtype.itemsize))
        return np.frombuffer(memory, dtype, size).reshape(shape)

    def synchronize(self):
        """Wait for all that was queued on the current stream."""
        self._cupy.cuda.get_current_stream().synchronize()

    def pointer(self, x):
        return x.data.ptr


class Kernel:
    """One entry point. Arguments are arrays, None for a null pointer, numbers, and bytes for structs.

    CuPy passes whatever it is given, and a Python number is 8 bytes: so each becomes exactly what is declared."""

    def __init__(self, function, name, kinds, dtype, array_type):
        self.function, self.name, self.kinds, self.array_type = function, name, kinds, array_type
        kept, computed = dtype.type, np.float32 if dtype == np.float16 else dtype.type
        made = {"*": self._pointer, "T": kept, "R": computed, **_SCALARS}
        self.makers = [made.get(kind, _struct) for kind in kinds]

    def _pointer(self, x):
        if x is not None and not isinstance(x, self.array_type):  # CuPy would pass one number of NumPy by value
            raise TypeError(f"an array of this device was expected, not {type(x).__name__}")
        return x

    def __call__(self, grid, block, shared, args):
        try:
            values = tuple([make(x) for make, x in zip(self.makers, args, strict=True)])
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"kernel {self.name}({', '.join(self.kinds)}): {error}") from None
        if shared > SHARED:
            self.function.max_dynamic_shared_size_bytes = shared
        self.function(grid, block, values, shared_mem=shared)


def _struct(x):
    """bytes as what CuPy passes by value: a NumPy array of one element, here of as many bytes."""
    return np.frombuffer(x, np.dtype((np.void, len(x))))
