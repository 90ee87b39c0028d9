"""Backends: one object for each device, with the primitives of numpy/ on its own kind of array.

numpy/ defines what every primitive computes. launch/ has the same primitives as launches of kernels, which runners/ run
on a GPU and on the CPU. This package does not depend on autograd.
"""

import functools
import os

from ..base.errors import CompilerError, DeviceError
from ..base.locks import loading
from .devices import device
from .numpy import Numpy

CPU_BACKENDS = "native", "numpy"
reference = Numpy()
"""The backend that computes with NumPy. The others are tested against it."""


def once(make):
    """Decorate a function that makes a backend: it runs once for each argument. Threads that call it at the same time
    wait for the first, and get its result."""
    made = functools.cache(make)

    @functools.cache
    @functools.wraps(make)
    def get(*args):
        with loading:
            return made(*args)

    return get


def get(name: str) -> Numpy:
    """Return the backend of a device, 'cpu' or 'cuda'. Raises DeviceError, which names the missing program."""
    if name == "cpu":
        return cpu()
    if name == "cuda":
        return cuda()
    return get(device(name))  # device() takes 'cuda:0' too, and raises ValueError for an unknown name


@once
def cpu():
    """The backend of the device 'cpu': the one that MINIGRAD_CPU names (native or numpy); by default native, or NumPy
    if there is no C++ compiler."""
    name = os.environ.get("MINIGRAD_CPU")
    if name:
        return cpu_backend(name)
    try:
        return cpu_backend("native")
    except DeviceError as error:
        import logging  # here, so that `import minigrad` stays fast

        logging.getLogger("minigrad").warning("minigrad: %s; computing with NumPy instead", error)
        return reference


@once
def cpu_backend(name):
    """The CPU backend of a name that MINIGRAD_CPU takes. Raises DeviceError if it is not available."""
    if name not in CPU_BACKENDS:
        raise DeviceError(f"MINIGRAD_CPU={name}: there are {', '.join(CPU_BACKENDS)}")
    try:
        if name == "native":
            from .runners.native import Native

            return Native()
    except CompilerError as error:
        raise DeviceError(f"no {name} kernels: {error}") from error
    return reference


@once
def cuda():
    """Return the backend of the GPU. Raises DeviceError, which names the missing program."""
    from .runners import gpu

    reason = gpu.why_not()
    if reason:
        raise DeviceError(reason)
    return gpu.Cuda()
