"""The part of CuPy that minigrad.backend.runners.cuda uses, on NumPy's memory, with kernels run by the emulator.

It is as strict as a reviewer: an ndarray here has views and nothing else, no arithmetic, no copies, no assignment, no
NumPy function. A launch takes what the real one takes, of exactly the declared types. To have it instead of CuPy:

    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
"""

import re
import types

import numpy as np

from minigrad.backend.kernels import C_TYPES, signatures
from minigrad.backend.runners.emulated import Emulated

launches: list = []  # (entry point, grid, block, shared_mem) of each launch so far
_SCALARS = {kind: np.dtype(name).type for name, kind in C_TYPES.items()}
_LIMIT = 227 << 10  # bytes of shared memory for a block of an H200


class ndarray:
    """Device memory, of which the host sees shape, dtype and strides, and can make views."""

    __array_ufunc__ = None  # NumPy's operators and functions raise TypeError

    def __init__(self, shape, dtype=float, _host=None, _base=None, _gpu=0):
        if _host is None:
            dtype = np.dtype(dtype)
            _host = np.frombuffer(b"\xff" * (int(np.prod(shape)) * dtype.itemsize), dtype).copy().reshape(shape)
        self._host, self.base = _host, _base
        self.shape, self.strides, self.dtype = _host.shape, _host.strides, _host.dtype
        self.ndim, self.size, self.itemsize, self.nbytes = _host.ndim, _host.size, _host.itemsize, _host.nbytes
        self.flags = types.SimpleNamespace(c_contiguous=_host.flags.c_contiguous)  # CuPy has no flags.writeable
        self.data = types.SimpleNamespace(ptr=_host.ctypes.data, device_id=_gpu)

    def _view(self, host):
        assert host.size == 0 or np.shares_memory(host, self._host), "CuPy would copy this with a kernel of its own"
        return ndarray(host.shape, host.dtype, host, self if self.base is None else self.base, self.data.device_id)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        if not all(isinstance(i, (int, slice, type(None), type(...))) and not isinstance(i, bool) for i in index):
            raise TypeError(f"CuPy would gather this with a kernel of its own: {index}")
        return self._view(self._host[index if ... in index else (*index, ...)])  # an array even of one element

    def reshape(self, *shape):
        return self._view(self._host.reshape(*shape))

    def transpose(self, *dims):
        return self._view(self._host.transpose(*dims))

    @property
    def T(self):
        return self.transpose()

    def get(self):
        assert self.flags.c_contiguous, "CuPy would compact this with a kernel of its own"
        return self._host.copy()

    @property
    def __cuda_array_interface__(self):
        about = {"shape": self.shape, "strides": self.strides, "typestr": self.dtype.str, "version": 3}
        return about | {"data": (self.data.ptr, False), "the stand-in's": self}

    def __dlpack_device__(self):
        return 2, self.data.device_id

    def __dlpack__(self, **keywords):
        return self

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    __hash__ = None

    def __repr__(self):
        return f"fake_cupy.ndarray({self._host})"


def array(host):
    assert isinstance(host, np.ndarray) and host.ndim, "CuPy would fill this with a kernel of its own"
    return ndarray(host.shape, host.dtype, host.copy(order="C"))


def asarray(x):
    x = x.__cuda_array_interface__["the stand-in's"]
    return ndarray(x.shape, x.dtype, x._host, x, x.data.device_id)


def from_dlpack(x):
    return asarray(x.__dlpack__(stream=None))


def zeros(shape, dtype):
    return ndarray(shape, dtype, np.zeros(shape, dtype))


def broadcast_to(x, shape):
    return x._view(np.broadcast_to(x._host, shape))


def may_share_memory(x, y):
    return np.may_share_memory(x._host, y._host)


class Module:
    """What the stand-in's NVRTC has made of a source, which is that source. The emulator compiles it when an entry
    point is called first."""

    def load(self, binary):
        assert type(binary) is bytes
        include, self.text = binary.decode().split("\n", 1)  # the emulator has a half of its own
        assert include == "#include <cuda_fp16.h>", include
        self.emulator = Emulated(text_of=lambda file, dtype: self.text, asked=0)

    def get_function(self, name):
        return Function(self, name)


class Function:
    def __init__(self, module, name):
        self.module, self.name, self.ptr = module, name, len(_functions)
        file = re.search(r'#line 1 "(\w+)\.cu"', module.text)[1]
        kept, computed = (re.search(rf"typedef ([\w ]+) {letter};", module.text)[1] for letter in "TR")
        names = {"T": kept, "R": computed}
        self.kinds = [names.get(kind, kind) for kind in signatures(module.text)[name]]
        self.key = file, name, np.dtype(_SCALARS[kept])
        self.asked = None  # bytes of dynamic shared memory
        _functions.append(self)

    def __call__(self, grid, block, args, shared_mem=0):
        for shape in (grid, block):
            assert type(shape) is tuple and 1 <= len(shape) <= 3 and all(type(n) is int and n > 0 for n in shape), shape
        assert all(n <= 65535 for n in grid[1:]) and grid[0] < 1 << 31, f"no GPU has a grid of {grid}"
        assert type(args) is tuple and len(args) == len(self.kinds), f"{self.name}: {len(args)} arguments"
        launches.append((self.name, grid, block, shared_mem))
        values = [self._value(i, kind, x) for i, (kind, x) in enumerate(zip(self.kinds, args))]
        self.module.emulator.asked = self.asked or 0
        self.module.emulator._run(*self.key, grid, block, shared_mem, values)

    def static_shared(self):
        return self.module.emulator.static_shared(*self.key)

    def _value(self, i, kind, x):
        """An argument as the emulator takes it. CuPy passes any number as it is, and a NumPy array of one element by
        value: so each is to be of exactly the declared type."""
        if kind == "*":
            assert x is None or type(x) is ndarray, f"{self.name}, argument {i}: {type(x)} for a pointer"
            return x if x is None else x._host
        if kind in _SCALARS:
            assert type(x) is _SCALARS[kind], f"{self.name}, argument {i}: {type(x)} for a {kind}"
            return x.item()
        assert type(x) is np.ndarray and x.size == 1, f"{self.name}, argument {i}: {type(x)} for a {kind}"
        return x.tobytes()


class CUDARuntimeError(RuntimeError):
    def __init__(self, status, name="cudaErrorNamed"):
        super().__init__(f"{name}: and so on")
        self.status = status


class NVRTCError(RuntimeError):
    pass


class Program:
    """A source, which compiled stays as it is."""

    def __init__(self, code, name, headers, include_names):
        assert type(code) is str and name.endswith(".cu") and headers == include_names == ()
        self.code, self.options = code, ()

    def compile(self, options):
        assert type(options) is tuple and all(option.startswith("-") for option in options), options
        assert not any("ftz" in option for option in options), "denormals would be 0"
        self.options = options

    def binary(self):
        return self.code.encode()

    def log(self):
        return ""


def get_attribute(attribute, function):
    assert attribute == driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
    return _functions[function].static_shared()


def set_attribute(function, attribute, value):
    function = _functions[function]
    assert attribute == driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert 0 <= value <= _LIMIT - function.static_shared(), f"{function.name}: no GPU has {value} bytes"
    function.asked = value


_functions: list = []  # their pointers are places in it
driver = types.SimpleNamespace(
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=1,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
    funcGetAttribute=get_attribute,
    funcSetAttribute=set_attribute,
)
nvrtc = types.SimpleNamespace(
    NVRTCError=NVRTCError,
    getVersion=lambda: (13, 0),
    getSupportedArchs=lambda: (75, 80, 90),
    createProgram=Program,
    compileProgram=Program.compile,
    getCUBIN=Program.binary,
    getPTX=Program.binary,
    getProgramLog=Program.log,
    destroyProgram=lambda program: None,
)
cuda = types.SimpleNamespace(
    runtime=types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError, driverGetVersion=lambda: 13000, getDeviceCount=lambda: 1
    ),
    driver=driver,
    nvrtc=nvrtc,
    function=types.SimpleNamespace(Module=Module),
    Device=lambda: types.SimpleNamespace(
        id=0,
        compute_capability="90",
        attributes={"MultiProcessorCount": 2, "MaxSharedMemoryPerBlockOptin": _LIMIT},
    ),
    get_current_stream=lambda: types.SimpleNamespace(synchronize=lambda: None),
    get_cuda_path=lambda: None,
    alloc_pinned_memory=bytearray,
)
