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

    def __init__(self, shape, dtype=float, _host=None, _base=None):
        if _host is None:
            dtype = np.dtype(dtype)
            _host = np.frombuffer(b"\xff" * (int(np.prod(shape)) * dtype.itemsize), dtype).copy().reshape(shape)
        self._host, self.base = _host, _base
        self.shape, self.strides, self.dtype = _host.shape, _host.strides, _host.dtype
        self.ndim, self.size, self.itemsize, self.nbytes = _host.ndim, _host.size, _host.itemsize, _host.nbytes
        self.flags = types.SimpleNamespace(c_contiguous=_host.flags.c_contiguous)  # CuPy has no flags.writeable
        self.data = types.SimpleNamespace(ptr=_host.ctypes.data)

    def _view(self, host):
        assert host.size == 0 or np.shares_memory(host, self._host), "CuPy would copy this with a kernel of its own"
        return ndarray(host.shape, host.dtype, host, self if self.base is None else self.base)

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

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    __hash__ = None

    def __repr__(self):
        return f"fake_cupy.ndarray({self._host})"


def array(host):
    assert isinstance(host, np.ndarray) and host.ndim, "CuPy would fill this with a kernel of its own"
    return ndarray(host.shape, host.dtype, host.copy(order="C"))


def zeros(shape, dtype):
    return ndarray(shape, dtype, np.zeros(shape, dtype))


def broadcast_to(x, shape):
    return x._view(np.broadcast_to(x._host, shape))


def may_share_memory(x, y):
    return np.may_share_memory(x._host, y._host)


class RawModule:
    """Source that the emulator compiles, when an entry point is called first."""

    def __init__(self, *, code, options=()):
        include, self.text = code.split("\n", 1)  # the emulator has a half of its own
        assert include == "#include <cuda_fp16.h>", include
        assert all(option.startswith("-") for option in options), options
        self.emulator = Emulated(text_of=lambda file, dtype: self.text)

    def compile(self):
        assert not self.text, "the only module that is compiled without being used is empty"

    def get_function(self, name):
        return RawKernel(self, name)


class RawKernel:
    max_dynamic_shared_size_bytes = 48 << 10

    def __init__(self, module, name):
        self.module, self.name = module, name
        file = re.search(r'#line 1 "(\w+)\.cu"', module.text)[1]
        kept, computed = (re.search(rf"typedef ([\w ]+) {letter};", module.text)[1] for letter in "TR")
        names = {"T": kept, "R": computed}
        self.kinds = [names.get(kind, kind) for kind in signatures(module.text)[name]]
        self.key = file, name, np.dtype(_SCALARS[kept])

    def __call__(self, grid, block, args, *, shared_mem=0):
        for shape in (grid, block):
            assert type(shape) is tuple and 1 <= len(shape) <= 3 and all(type(n) is int and n > 0 for n in shape), shape
        assert all(n <= 65535 for n in grid[1:]) and grid[0] < 1 << 31, f"no GPU has a grid of {grid}"
        assert shared_mem <= self.max_dynamic_shared_size_bytes <= _LIMIT, f"{self.name}: {shared_mem} bytes"
        assert type(args) is tuple and len(args) == len(self.kinds), f"{self.name}: {len(args)} arguments"
        launches.append((self.name, grid, block, shared_mem))
        values = [self._value(i, kind, x) for i, (kind, x) in enumerate(zip(self.kinds, args))]
        self.module.emulator._run(*self.key, grid, block, shared_mem, values)

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


cuda = types.SimpleNamespace(
    runtime=types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError, driverGetVersion=lambda: 13000, getDeviceCount=lambda: 1
    ),
    nvrtc=types.SimpleNamespace(getVersion=lambda: (13, 0)),
    Device=lambda: types.SimpleNamespace(attributes={"MultiProcessorCount": 2, "MaxSharedMemoryPerBlockOptin": _LIMIT}),
    get_current_stream=lambda: types.SimpleNamespace(synchronize=lambda: None),
    alloc_pinned_memory=bytearray,
)
