"""The bytes of every argument of a launch, beside what the kernel declares.

A driver is given the addresses of arguments, and reads as many bytes there as the kernel declares: whether a Python
float came where a float of 4 bytes belongs, nobody notices. On the rig, `check_launches` has every launch of code that
CuPy compiles looked at, and every kernel of minigrad's, which makes its arguments in one way at each launch.
"""

import ctypes
import functools
import os
from pathlib import Path

import numpy as np

POINTER = 8


def size(x):
    """The bytes that CuPy passes for a Python object."""
    if isinstance(x, (np.ndarray, np.generic)):
        return x.nbytes
    for kind, n in ((bool, 1), ((int, float), 8), (complex, 16)):
        if isinstance(x, kind):
            return n
    return POINTER  # an array of CuPy's, None, or another kind of pointer


def declared(function):
    """The bytes of each parameter of a kernel, from the rig's library."""
    library = ctypes.CDLL(str(Path(os.environ["GPU_RIG"], "libgpurig.so")))
    sizes = (ctypes.c_uint * 64)()
    count = library.gpu_rig_parameters(ctypes.c_void_p(function.ptr), sizes, len(sizes))
    return list(sizes[:count]) if count >= 0 else None  # None: it cannot be translated, and the launch will say so


def same(name, given, wanted):
    """Raise TypeError for arguments of these bytes, unless they are those wanted, or nobody knows what is."""
    if wanted is not None and given != wanted:
        raise TypeError(f"kernel {name}: arguments of {given} bytes, where it declares {wanted}")


def check_launches():
    """Has every kernel that is loaded from now on look at its arguments."""
    import cupy
    from cupy.cuda import function

    from minigrad.backend.runners import gpu

    if hasattr(function.Module, "checked"):
        return

    class Function(function.Function):
        def __init__(self, module, name):
            super().__init__(module, name)
            self.name, self.sizes = name, None

        def __call__(self, grid, block, args, *rest, **options):
            if self.sizes is None:
                self.sizes = declared(self)
            same(self.name, [size(x) for x in args], self.sizes)
            return super().__call__(grid, block, args, *rest, **options)

    class Module(function.Module):
        checked = True

        def get_function(self, name):
            return Function(self, name)

    class Kernel(gpu.Kernel):
        @functools.cached_property
        def raw(self):
            raw, kinds = super().raw, self.contract.kinds
            given = {
                "*": POINTER,
                **{kind: make(0).nbytes for kind, make in gpu.NUMBERS.items()},
                **self.contract.sizes,
            }
            if isinstance(raw, cupy.RawKernel):  # and no test's
                same(raw.__name__, [given[kind] for kind in kinds], declared(raw.kernel))
            return raw

    function.Module, gpu.Kernel = Module, Kernel
