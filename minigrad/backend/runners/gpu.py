"""The backend of an NVIDIA GPU. CuPy provides memory, views, streams and launches; it computes nothing.

CuPy is imported when a Cuda is made, not before. Work is queued on CuPy's current stream, and only to_numpy() and
synchronize() wait for it. A Cuda belongs to the GPU that was current when it was made, and refuses arrays of others.
"""

import functools
import importlib.util
import math
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ...base.capturing import refuse_within, uncaptured, user_line
from .. import devices
from ..kernels import C_TYPES, entry_points, signature
from ..launch import KernelBackend
from ..launch.launcher import DEFAULT_SHARED_BYTES, bytes_below, bytes_spanned
from ..launch.rules import capturable
from . import nvrtc
from .checks import NONE_WRONG, LineCheck, checked_copy

PACKAGES = {  # {version of CUDA: the packages to install}
    12: "cupy-cuda12x nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12",
    13: "cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime",
}
INSTALL = f"pip install {PACKAGES[13]} (for a driver of CUDA 12, or a GPU before Turing: {PACKAGES[12]})"
MOST_LINE_CHECKS = 256  # lines whose check and its memory are remembered
# The methods of a Cuda that call the driver; all others use these.
DRIVER_CALLS = "_start", "empty", "zeros", "from_numpy", "to_numpy", "pinned", "synchronize", "current_stream"


def why_not():
    """Return the message that says why device='cuda' cannot be used here, or None if it can be used. It names the first
    thing that is missing: CuPy, a driver, a GPU, NVRTC or CUDA's headers."""
    if importlib.util.find_spec("cupy") is None:
        return f"device 'cuda' needs CuPy, which is not installed: {INSTALL}"
    try:
        import cupy
    except Exception as error:
        return f"device 'cuda': CuPy is installed, but cannot be imported ({first_line(error)})"
    runtime = cupy.cuda.runtime
    driver, cuda = (version // 1000 for version in (runtime.driverGetVersion(), runtime.runtimeGetVersion()))
    if driver == 0:
        return "device 'cuda': CuPy is installed, but there is no NVIDIA driver"
    if driver < cuda:
        advice = f"pip install {PACKAGES[driver]}" if driver in PACKAGES else "a newer driver is needed"
        return f"device 'cuda': this CuPy is for CUDA {cuda}, and the NVIDIA driver for CUDA {driver}: {advice}"
    _, nvrtc_package, headers_package = PACKAGES[min(PACKAGES, key=lambda version: abs(version - cuda))].split()
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        count = error
    if not isinstance(count, int) or count == 0:
        return f"device 'cuda': CuPy and a driver are installed, but no GPU was found ({count})"
    try:
        compiler, _ = cupy.cuda.nvrtc.getVersion()
    except Exception as error:  # CuPy's loader has exceptions of its own
        return f"device 'cuda' needs NVRTC, CUDA's compiler: pip install {nvrtc_package} ({first_line(error)})"
    if compiler > driver:
        return (
            f"device 'cuda': CuPy has found the NVRTC of CUDA {compiler}, and the NVIDIA driver is for CUDA {driver}: "
            f"pip install {nvrtc_package}, and remove the other"
        )
    if nvrtc.headers() is None:
        return f"device 'cuda' needs CUDA's headers: pip install {headers_package} (there is no cuda_fp16.h)"
    return None


def first_line(error):
    """The first line of an exception's message, or the name of its class."""
    return next(iter(str(error).splitlines()), type(error).__name__)


class Cuda(KernelBackend):
    """Every primitive, on the GPU that was current when this was made."""

    device = devices.device("cuda")
    captures = True
    alignment = 16  # the most bytes that a thread reads at once

    def __init__(self):
        import cupy

        device = cupy.cuda.Device()
        about = device.attributes
        self.array_type, self.gpu = cupy.ndarray, device.id
        self._arch = device.compute_capability
        self.tensor_cores = int(device.compute_capability) >= 80
        self.shared_limit = about["MaxSharedMemoryPerBlockOptin"]
        self.shared_memory = about["MaxSharedMemoryPerMultiprocessor"]
        self._cupy, self.processors = cupy, about["MultiProcessorCount"]
        self.current_stream = cupy.cuda.get_current_stream
        self._kernels: dict = {}  # without a lock: two threads that load the same kernel load it twice
        self._compilers = ThreadPoolExecutor(thread_name_prefix="minigrad-nvrtc")
        self.unread_checks: dict = {}  # GraphPrograms and LineChecks since the host last waited: a set in their order
        self._line_checks: dict = {}  # {(line, what it checks): LineCheck}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self):
        """In a child of os.fork(), refuse everything that needs CUDA's driver, which does not work there."""

        def refuse(*args):
            raise RuntimeError(
                "device 'cuda' cannot be used in a child of os.fork() if its parent has used it: CUDA's driver does "
                "not work there. Start new processes: multiprocessing.get_context('spawn')"
            )

        for name in DRIVER_CALLS:
            setattr(self, name, refuse)

    # -- kernels

    def spread(self, n):
        return _spread(n, self.processors)

    def partial_sums(self, n):
        return min(-(-n // 4096), 8 * self.processors)

    def _start(self, file, entry, dtype, grid, block, shared, args):
        self.kernel(file, entry, dtype)(grid, block, shared, self.with_packed_structs(args))

    def kernel(self, *key):
        """The Kernel of a file, entry point and dtype."""
        return self._kernels.get(key) or self._load(*key)

    def _load(self, file, entry, dtype):
        """Begin to compile a file. A kernel waits for that when it is first launched, so the files that a captured step
        needs are compiled side by side."""
        only = entry if file == "elementwise" else None
        text = nvrtc.text(file, dtype.name, only)
        names = list(entry_points(text))
        binary = self._compilers.submit(nvrtc.binary, file, dtype.name, only, self._arch)

        @functools.cache
        def functions():
            with tempfile.TemporaryDirectory() as folder:  # a new one each time, since CuPy caches modules by path
                path = os.path.join(folder, "module")
                with open(path, "wb") as written:
                    written.write(binary.result())
                module = self._cupy.RawModule(path=path)
                return {name: module.get_function(name) for name in names}

        for name in names:
            self._kernels[file, name, dtype] = Kernel(self, functions, name, text)
        return self._kernels[file, entry, dtype]

    # -- memory

    def expand(self, x, shape):
        return self._cupy.broadcast_to(x, shape)

    def overlap(self, x, y):
        return self._cupy.may_share_memory(x, y)

    def is_writeable(self, x):
        """False for the result of expand, which CuPy does not make read-only."""
        return not (x.size and any(step == 0 and n > 1 for n, step in zip(x.shape, x.strides)))

    def empty(self, shape, dtype):
        return self.array_type(shape, dtype)

    def _zeros(self, shape, dtype):
        return self._cupy.zeros(shape, dtype)

    zeros = capturable("zeros", _zeros, KernelBackend.zeros)  # a memset; a captured step launches a kernel instead

    def from_numpy(self, x):
        """A copy on the GPU, through page-locked memory of CuPy's: it does not wait, and x may change at once."""
        return self._cupy.array(x.reshape(-1)).reshape(x.shape)  # flat, since CuPy fills 0-d arrays with its own kernel

    # A captured step uploads the numbers once, and copies them at each call.
    arange = capturable(
        "arange", KernelBackend.arange, lambda self, *args: self.copy(KernelBackend.arange(self, *args))
    )

    def to_numpy(self, x):
        """A copy in the CPU's memory. This waits for everything that was queued before."""
        refuse_within("reading values on the host")
        with uncaptured(after=False):  # the copy is not part of a captured step
            y = self.compact(x).get()
        self.raise_index_errors()
        return y

    def pinned(self, shape, dtype):
        """A NumPy array in page-locked memory, which the GPU can read and write by itself. Its contents are
        undefined."""
        dtype, size = np.dtype(dtype), math.prod(shape)
        memory = self._cupy.cuda.alloc_pinned_memory(max(1, size * dtype.itemsize))
        return np.frombuffer(memory, dtype, size).reshape(shape)

    def synchronize(self):
        """Wait for everything that was queued on the current stream."""
        refuse_within("waiting for the GPU")
        self.current_stream().synchronize()
        self.raise_index_errors()

    def raise_index_errors(self):
        """Raise IndexError if work that the GPU has finished was given wrong indices."""
        for each in list(self.unread_checks):
            self.unread_checks.pop(each, None)  # before it is read: another thread may add the same check meanwhile
            if each.is_done:
                each.raise_index_errors()
            else:
                self.unread_checks[each] = None

    def pointer(self, x):
        return self.require_this_gpu(x).data.ptr

    def require_this_gpu(self, x):
        """Return x, a CuPy array. Raises RuntimeError if it lies on another GPU, whose memory this one may not be able
        to reach."""
        if x.data.device_id != self.gpu and x.size:
            raise RuntimeError(
                f"got an array of GPU {x.data.device_id}, but device 'cuda' is GPU {self.gpu}, the current one when it "
                f"was first used: copy the array there, or keep GPU {self.gpu} current"
            )
        return x

    # -- captured steps

    def parameter_memory(self, shape, dtype):
        n, dtype = math.prod(shape), np.dtype(dtype)
        words = -(-n * dtype.itemsize // 8)  # buffers are copied to the GPU in words of 8 bytes
        pair = np.zeros(words, np.uint64), self.array_type(words, np.uint64)
        return tuple([each.view(dtype)[:n].reshape(shape) for each in pair])

    def _check_indices(self, name, index, n, wraps, ignored, raise_for):
        """Return a copy of an array of indices of the op `name`, with 0 in place of wrong ones.

        raise_for(wrong indices) raises IndexError when the host next waits for the GPU. wraps, ignored: see
        checked_copy()."""
        line = user_line()
        key = line, name, n, wraps, ignored
        check = self._line_checks.get(key)
        if check is None:
            if len(self._line_checks) == MOST_LINE_CHECKS:
                self._line_checks.clear()
            check = self._line_checks[key] = LineCheck(self, raise_for, line)
        return check.run(index, n, wraps, ignored)

    def _check_indices_in_a_step(self, name, index, n, wraps, ignored, raise_for):
        found = self.from_numpy(np.array(NONE_WRONG))
        self.defer_check((raise_for, user_line(), found))
        return checked_copy(self, index, n, wraps, ignored, found)

    check_indices = capturable("check", _check_indices, _check_indices_in_a_step)

    @functools.cached_property
    def stop_flag(self):
        """(1,) int64: 1 if an index was wrong, and the host has not seen it yet."""
        return self.from_numpy(np.zeros(1, np.int64))

    def address(self, x):
        """The address of an array's first element, to tell arrays apart. (For kernels, pointer() checks the GPU
        too.)"""
        return x.data.ptr

    def memory(self, nbytes):
        return self.array_type((nbytes,), np.uint8)

    def array_in(self, memory, start, shape, dtype, strides):
        """An array whose first element lies at byte `start` of an array that memory() gave."""
        return self.array_type(shape, dtype, memptr=memory.data + start, strides=strides)

    def array_at(self, address, shape, dtype, strides, holder, writeable=True):
        memory = self._cupy.cuda.UnownedMemory(address, 1, holder, self.gpu)
        return self.array_type(shape, dtype, memptr=self._cupy.cuda.MemoryPointer(memory, 0), strides=strides)

    def event(self):
        return self._cupy.cuda.Event(disable_timing=True)

    def seen_by_gpu(self, x):
        """An array of pinned() as an array of the GPU, in the same memory."""
        memory = self._cupy.cuda.UnownedMemory(x.ctypes.data, x.nbytes, x, self.gpu)
        return self.array_type(x.shape, x.dtype, memptr=self._cupy.cuda.MemoryPointer(memory, 0))

    def download(self, host, on_gpu, stream):
        """Queue a copy to an array of pinned(). It calls the runtime, since CuPy's own methods refuse this while a
        graph is made."""
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(host.ctypes.data, on_gpu.data.ptr, on_gpu.nbytes, runtime.memcpyDeviceToHost, stream.ptr)

    def graph(self, launches, downloads):
        """A CUDA graph of launches, and after them of downloads: (array of pinned(), array to copy to it) pairs."""
        for launch in launches:
            _ = self.kernel(*launch[:3]).raw  # loaded now, since CUDA loads no module while it captures a stream
        with self._cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            try:
                for file, entry, dtype, *rest in launches:
                    self._kernels[file, entry, dtype](*rest)
                for host, on_gpu in downloads:
                    self.download(host, on_gpu, stream)
            finally:
                graph = stream.end_capture()
        return graph

    def refill(self, y, x):
        """Do y[...] = x: by a copy of the driver if both have the same strides and x is dense, otherwise by a
        kernel."""
        if y.strides == x.strides and self._is_dense(x):
            (y.data + bytes_below(y)).copy_from_device_async(x.data + bytes_below(x), x.nbytes)
        else:
            with uncaptured(after=False):  # the copy is not part of a captured step
                self.copy_to(y, x)

    def _is_dense(self, x):
        """True if x is not empty, and its elements are all the elements of the memory that it spans, each once."""
        return x.size > 0 and bytes_spanned(x) == x.nbytes and self.is_writeable(x)


@functools.lru_cache(4096)
def _spread(n, processors):
    return min(-(-n // 256), 32 * processors), 256  # at most four times as many blocks as run at the same time


NUMBERS = {kind: np.dtype(name).type for name, kind in C_TYPES.items()}


class Kernel:
    """One entry point: CuPy's RawKernel, with each argument converted to the type that the entry point declares.

    Arguments are arrays, None for a null pointer, numbers, and bytes for structs. Arrays of structs are packed."""

    def __init__(self, backend, functions, name, text):
        """functions: called to get {entry point: RawKernel} of a file; it waits until the file is compiled. name: the
        entry point. text: the file's source."""
        self.backend, self.functions, self.name, self.text = backend, functions, name, text
        self.parameters, self.kinds, sizes = signature(name, text)
        converters: dict = {"*": self._pointer, **NUMBERS}
        # CuPy passes an array of one element by value, as a struct
        converters |= {kind: functools.partial(np.frombuffer, dtype=f"V{size}") for kind, size in sizes.items()}
        self.converters = [converters[kind] for kind in self.kinds]

    @functools.cached_property
    def raw(self):
        """The RawKernel. This waits until it is compiled."""
        return self.functions()[self.name]

    @functools.cached_property
    def shared_room(self):
        """Bytes of dynamic shared memory that a block may have; more must be asked for."""
        return DEFAULT_SHARED_BYTES - self.raw.shared_size_bytes

    def __call__(self, grid, block, shared, args):
        try:
            values = [convert(x) for convert, x in zip(self.converters, args, strict=True)]
        except (OverflowError, TypeError, ValueError) as error:
            raise TypeError(f"kernel {self.name}({', '.join(self.kinds)}): {error}") from None
        if shared > self.shared_room:
            self.shared_room = self.backend.shared_limit - self.raw.shared_size_bytes
            self.raw.max_dynamic_shared_size_bytes = self.shared_room
        self.raw(grid, block, values, shared_mem=shared)

    def _pointer(self, x):
        if x is None:
            return None
        if not isinstance(x, self.backend.array_type):
            raise TypeError(f"needs an array of the GPU, got {type(x).__name__}")
        return self.backend.require_this_gpu(x)
