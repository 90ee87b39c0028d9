"""Kernels on an NVIDIA GPU. CuPy gives memory, views, streams and launches; it computes nothing.

CuPy is imported when a Cuda is made, not before. Work is queued on CuPy's current stream; only to_numpy() and
synchronize() wait for it. A Cuda is the GPU that was current when it was made, and refuses the arrays of others.
"""

import ctypes
import functools
import importlib.util
import math
import struct
import threading

import numpy as np

from ...base.recording import apart, refuse, thread
from .. import devices
from ..kernels import C_TYPES, Struct, signatures
from ..launch import Launched
from ..launch.launcher import SHARED, real
from ..launch.recorder import below, spanned
from . import nvrtc
from .graph import GraphRecorder
from .toolchain import CompilerError
from .toolchain.module import FORMATS

INSTALL = (
    "pip install cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime "
    "(CUDA 12: cupy-cuda12x nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12)"
)
NO_DEVICE = 100  # cudaErrorNoDevice


def why_not():
    """What stands between this machine and device='cuda', or None: the first missing of CuPy, a driver, a GPU, NVRTC
    for that GPU, and CUDA's headers."""
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
        return f"device 'cuda' needs NVRTC, CUDA's compiler: pip install nvidia-cuda-nvrtc ({first_line(error)})"
    try:
        nvrtc.target(cupy, cupy.cuda.Device().compute_capability)
    except CompilerError as error:
        return f"device 'cuda': {error}"
    if nvrtc.headers(cupy) is None:
        return "device 'cuda' needs CUDA's headers: pip install nvidia-cuda-runtime (there is no cuda_fp16.h)"
    return None


def first_line(error):
    """What an exception says, in a line."""
    return next(iter(str(error).splitlines()), type(error).__name__)


class Cuda(Launched):
    """Every primitive, on the GPU that is current when this is made."""

    device = devices.device("cuda")
    captures = True

    def __init__(self):
        import cupy

        device = cupy.cuda.Device()
        about = device.attributes
        self.array_type, self.gpu = cupy.ndarray, device.id
        self._nvrtc = nvrtc.Nvrtc(cupy, nvrtc.target(cupy, device.compute_capability))
        self.shared_limit = about["MaxSharedMemoryPerBlockOptin"]
        self._cupy, self.processors = cupy, about["MultiProcessorCount"]
        self.current_stream, self.driver = cupy.cuda.get_current_stream, Driver(cupy.cuda)
        self._kernels: dict = {}  # without a lock: two threads that load the same kernel load it twice
        self.unread: dict = {}  # Graphs that have run since the host last waited, and may have found wrong indices

    # -- kernels

    def spread(self, n):
        return _spread(n, self.processors)

    def _run(self, file, entry, dtype, grid, block, shared, args):
        if thread.recorder is not None:
            return thread.recorder.launch(file, entry, dtype, grid, block, shared, args)
        key = file, entry, dtype
        kernel = self._kernels.get(key) or self._load(*key)
        kernel.launch(grid, block, shared, args)

    def _load(self, file, entry, dtype):
        module, text = self._cupy.cuda.function.Module(), nvrtc.text(file, dtype.name)
        module.load(self._nvrtc.binary(file, dtype.name))
        named = {"T": C_TYPES[dtype.name], "R": C_TYPES[real(dtype).name]}
        for name, kinds in signatures(text).items():
            kinds = [named.get(kind, kind) for kind in kinds]
            structs = {kind: Struct(file, kind, text).size for kind in kinds if kind not in FORMATS}
            self._kernels[file, name, dtype] = Kernel(self, module.get_function(name), name, kinds, structs)
        return self._kernels[file, entry, dtype]

    def room(self, function):
        """Bytes of dynamic shared memory that a block of this function may have without asking."""
        driver = self._cupy.cuda.driver
        return SHARED - driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function.ptr)

    def ask(self, function):
        """Ask for all the shared memory that a block of this function can have -> how much of it is dynamic."""
        driver = self._cupy.cuda.driver
        most = self.shared_limit - SHARED + self.room(function)
        driver.funcSetAttribute(function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)
        return most

    # -- memory

    def expand(self, x, shape):
        return self._cupy.broadcast_to(x, shape)

    def overlap(self, x, y):
        return self._cupy.may_share_memory(x, y)

    def empty(self, shape, dtype):
        x = self.array_type(shape, dtype)
        return x if thread.recorder is None else thread.recorder.made(x)

    def zeros(self, shape, dtype):
        if thread.recorder is not None:
            return super().zeros(shape, dtype)
        return self._cupy.zeros(shape, dtype)  # a memset

    def from_numpy(self, x):
        """A copy on the GPU, through page-locked memory and without waiting."""
        y = self._cupy.array(x.reshape(-1)).reshape(x.shape)  # flat: CuPy fills 0-d arrays with a kernel of its own
        return y if thread.recorder is None else thread.recorder.constant(y)

    def shared(self, x):
        """The memory of another library's array on this GPU, an object with __cuda_array_interface__."""
        return self._fit(self._cupy.asarray(x))

    def from_dlpack(self, x):
        """Likewise for an object with __dlpack__."""
        return self._fit(self._cupy.from_dlpack(x))

    def _fit(self, x):
        """x, an array of CuPy. Raises ValueError unless a kernel could step through it by whole elements."""
        steps = [step for n, step in zip(x.shape, x.strides) if n > 1]
        if x.size and any(place % x.itemsize for place in (x.data.ptr, *steps)):
            raise ValueError(f"an array of {x.dtype} whose elements lie {x.itemsize} bytes wide at strides {x.strides}")
        return self.own(x)

    def to_numpy(self, x):
        """A copy in the CPU's memory. This waits for all that was queued before."""
        refuse("reading values on the host")
        y = self.compact(x).get()
        self.raise_found()
        return y

    def download(self, x, host):
        """Copy x, which is dense, into a NumPy array of its shape and dtype, without a copy between if that is
        pinned(). This waits for all that was queued before."""
        refuse("reading values on the host")
        x.get(out=host)
        self.raise_found()

    def pinned(self, shape, dtype):
        """A NumPy array, not initialised, in page-locked memory: from_numpy() of it is a single asynchronous copy.

        For a batch that is filled again and again. Fill it only after synchronize(): the copy may not be done."""
        dtype, size = np.dtype(dtype), math.prod(shape)
        memory = self._cupy.cuda.alloc_pinned_memory(max(1, size * dtype.itemsize))
        return np.frombuffer(memory, dtype, size).reshape(shape)

    def synchronize(self):
        """Wait for all that was queued on the current stream."""
        refuse("waiting for the GPU")
        self.current_stream().synchronize()
        self.raise_found()

    def raise_found(self):
        """Raise IndexError if captured steps that have come to their end were given wrong indices."""
        for graph in list(self.unread):
            self.unread.pop(graph, None)  # before it is asked: another thread's call may enter it again
            if graph.done:
                graph.raise_found()
            else:
                self.unread[graph] = None

    def pointer(self, x):
        return self.own(x).data.ptr

    def own(self, x):
        """x, an array of CuPy. Raises RuntimeError if it lies on another GPU, whose memory this one may not reach."""
        if x.data.device_id != self.gpu and x.size:
            raise RuntimeError(
                f"an array of GPU {x.data.device_id}, but device 'cuda' is GPU {self.gpu}, which was current when it "
                f"was first used: copy the array there, or keep GPU {self.gpu} current"
            )
        return x

    # -- captured steps

    def recorder(self):
        return GraphRecorder(self)

    def stop(self):
        recorded = super().stop()
        return self.stopped if recorded is None and self.unread else recorded

    @functools.cached_property
    def stopped(self):
        """(1,) int64: 1 if a captured step was given a wrong index, of which the host does not know yet."""
        with apart():
            return self.from_numpy(np.zeros(1, np.int64))

    def is_writeable(self, x):
        return super().is_writeable(x) and not (thread.recorder is not None and thread.recorder.is_constant(x))

    def address(self, x):
        return x.data.ptr

    def memory(self, nbytes):
        return self.array_type((nbytes,), np.uint8)

    def array_in(self, memory, start, shape, dtype, strides):
        return self.array_type(shape, dtype, memptr=memory.data + start, strides=strides)

    def event(self):
        return self._cupy.cuda.Event(disable_timing=True)

    def seen_by_gpu(self, x):
        """The same memory as an array of the GPU, for one of pinned()."""
        memory = self._cupy.cuda.UnownedMemory(x.ctypes.data, x.nbytes, x, self.gpu)
        return self.array_type(x.shape, x.dtype, memptr=self._cupy.cuda.MemoryPointer(memory, 0))

    def graph(self, launches, downloads):
        """A CUDA graph of launches, and then of copies: pairs of an array of pinned() and the one that it is to be."""
        runtime = self._cupy.cuda.runtime
        for launch in launches:
            if launch[:3] not in self._kernels:
                self._load(*launch[:3])  # which a stream that is being captured would refuse
        with self._cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            try:
                for launch in launches:
                    self._run(*launch)
                for host, there in downloads:  # by the runtime, as CuPy's own methods refuse all downloads here
                    kind = runtime.memcpyDeviceToHost
                    runtime.memcpyAsync(host.ctypes.data, there.data.ptr, there.nbytes, kind, stream.ptr)
            finally:
                graph = stream.end_capture()
        return graph

    def refill(self, y, x):
        """y[...] = x: a copy by the driver, if they lie alike in memory that is all theirs."""
        if y.strides == x.strides and self._dense(x):
            (y.data + below(y)).copy_from_device_async(x.data + below(x), x.nbytes)
        else:
            self.copy_to(y, x)

    def duplicate(self, x):
        if not self._dense(x):
            return self.copy(x)
        y = self.array_in(self.memory(x.nbytes), -below(x), x.shape, x.dtype, x.strides)
        self.refill(y, x)
        return y

    def _dense(self, x):
        """Does x have each element of the memory that it spans, once?"""
        return x.size > 0 and spanned(x) == x.nbytes and self.is_writeable(x)


@functools.lru_cache(4096)
def _spread(n, processors):
    return min(-(-n // 256), 32 * processors), 256  # four times as many blocks as run at once


class Driver(threading.local):
    """CUDA's driver, in a thread that has the GPU's context."""

    def __init__(self, cuda):  # at a thread's first launch
        cuda.runtime.memGetInfo()  # gives the thread that context, which the driver itself would not
        self.launch = cuda.driver.launchKernel


class Kernel:
    """One entry point. Arguments are arrays, None for a null pointer, numbers, and bytes for structs.

    A driver gets the addresses of arguments, and reads at each as many bytes as the kernel declares. So they are packed
    as what is declared, in one go. (CuPy makes an object of each argument, in several times as long.)"""

    def __init__(self, on, function, name, kinds, structs):
        """kinds: the C type of each parameter, '*' for a pointer. structs: {C type: bytes}, of the others."""
        self.on, self.function, self.name, self.kinds = on, function, name, kinds
        self.room, self.address = on.room(function), function.ptr
        self.pointers = [i for i, kind in enumerate(kinds) if kind == "*"]
        self.structs = [(i, structs[kind]) for i, kind in enumerate(kinds) if kind in structs]
        formats = [FORMATS.get(kind) or f"{structs[kind]}s" for kind in kinds]
        self.pack_into = struct.Struct("=" + "".join(formats)).pack_into
        self.sizes = [struct.calcsize("=" + each) for each in formats]
        self.unused: list = []  # Memory that no launch is using just now

    def launch(self, grid, block, shared, args):
        on, values = self.on, list(args)
        try:
            for i in self.pointers:  # on.pointer(), without a call
                x = values[i]
                if x is None:
                    values[i] = 0
                    continue
                data = x.data
                if data.device_id != on.gpu:
                    on.own(x)
                values[i] = data.ptr
            for i, size in self.structs:
                if len(values[i]) != size:
                    raise TypeError(f"a {self.kinds[i]} has {size} bytes, not {len(values[i])}")
            try:
                memory = self.unused.pop()  # never that of a launch which another thread has begun
            except IndexError:
                memory = Memory(self.sizes)
            self.pack_into(memory.arguments, 0, *values)
        except (AttributeError, LookupError, OverflowError, TypeError, struct.error) as error:
            raise self.refused(args, error) from None
        x, y, z, i, j, k = _shape(grid, block)
        launch, stream = on.driver.launch, on.current_stream().ptr
        if shared > self.room:
            self.room = on.ask(self.function)
        launch(self.address, x, y, z, i, j, k, shared, stream, memory.addresses, 0)
        self.unused.append(memory)  # the driver has copied what was there

    def refused(self, args, error):
        """The TypeError for arguments that cannot be packed, for which there was another error."""
        if len(args) != len(self.kinds):
            error = f"{len(self.kinds)} arguments were expected, not {len(args)}"
        for x in (args[i] for i in self.pointers if i < len(args)):
            if x is not None and not isinstance(x, self.on.array_type):
                error = f"an array of this device was expected, not {type(x).__name__}"
        return TypeError(f"kernel {self.name}({', '.join(self.kinds)}): {error}")


class Memory:
    """Where the arguments of a launch lie, one after the other, and the array of their addresses, for a driver."""

    def __init__(self, sizes):
        self.arguments = ctypes.create_string_buffer(sum(sizes))
        place = ctypes.addressof(self.arguments)
        self._addresses = (ctypes.c_void_p * len(sizes))(*(place + sum(sizes[:i]) for i in range(len(sizes))))
        self.addresses = ctypes.addressof(self._addresses)


@functools.lru_cache(4096)
def _shape(grid, block):
    """A grid and a block of up to three dims, as the six numbers that the driver takes."""
    return (*grid, 1, 1)[:3] + (*block, 1, 1)[:3]
