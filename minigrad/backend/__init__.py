"""Backends: a device is a module of same-named primitives on its own kind of array.

`reference` is NumPy: it defines what every primitive means. This floor knows nothing of autograd.
"""

import importlib.util

from . import reference

CPU = reference


class DeviceError(RuntimeError):
    """A device was asked for that cannot be had here; the message says what is missing."""


def get(device):
    """The backend module for a device name, 'cpu' or 'cuda'. Raises DeviceError, naming what is missing."""
    if device == "cpu":
        return CPU
    if device == "cuda":
        raise DeviceError(why_no_cuda())
    raise ValueError(f"unknown device {device!r}; there are 'cpu' and 'cuda'")


def why_no_cuda():
    """What stands between this machine and device='cuda': the first missing of CuPy, driver, GPU, our kernels."""
    if importlib.util.find_spec("cupy") is None:
        return "device 'cuda' needs CuPy, which is not installed: pip install '.[gpu13]' (CUDA 12: '.[gpu12]')"
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if "NoDevice" in str(error):
            return "device 'cuda': CuPy and a driver are here, but no GPU was found"
        return f"device 'cuda': CuPy is installed, but there is no usable NVIDIA driver ({error})"
    except ImportError as error:
        return f"device 'cuda': CuPy is installed but its CUDA libraries are not ({error})"
    if count == 0:
        return "device 'cuda': CuPy and a driver are here, but no GPU was found"
    return "device 'cuda': CuPy and a GPU are here, but this version of minigrad has no CUDA kernels yet; use 'cpu'"
