"""minigrad: tensors, autograd and attention from scratch.

mg.tensor makes a Tensor, whose methods are the functions mg.softmax, mg.matmul, … here. Layers are in nn, the functions
behind them in nn.functional, optimizers in optim, batches in utils.data. mg.capture makes a training step fast.
gradcheck, study and viz look into gradients; README.md shows how.

ValueError is for shapes, sizes and options that do not fit, TypeError for dtypes and types, IndexError for dims and
indices out of range, and RuntimeError for tensors on different devices.
"""

from math import inf, nan, pi
from typing import TYPE_CHECKING

from .base import ranks as _ranks  # isort: skip  # before NumPy
from . import autograd, dtypes, ops, random
from .autograd import (
    GraphError, case, enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled,
)  # fmt: skip
from .backend import DeviceError, device
from .autograd.keywords import contiguous_format, preserve_format
from .dtypes import bool_, dtype, finfo, float16, float32, float64, int8, int16, int32, int64, uint8
from .ops.public import *
from .base import missing as _missing
from .base.capturing import CaptureError
from .random import *
from .tensor import *
from .tensor import __all__ as _of_tensor, tensor  # the function: to Pyright, a star leaves the name to the package
from .tensor.gradients import Op
from .version import __version__

bool, float, double, int, long = bool_, float32, float64, int32, int64
"""PyTorch's names of dtypes: mg.float. `from minigrad import *` leaves Python's bool, float and int alone."""

__all__ = [
    "autograd", "cuda", "distributed", "dtypes", "nn", "ops", "optim", "random", "utils", "GraphError", "case",
    "enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled", "DeviceError",
    "device", "bool_", "dtype", "finfo", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
    "CaptureError", "Op", "capture", "contiguous_format", "inf", "load", "nan", "pi",
    "preserve_format", "save",
    "set_float32_matmul_precision",
]  # fmt: skip
__all__ += random.__all__
__all__ += _of_tensor

if TYPE_CHECKING:
    from . import cuda, distributed, gradcheck, nn, optim, study, training, typing, utils, viz
    from .cuda import set_float32_matmul_precision
    from .replay.captured import capture
    from .training.checkpoint import load, save
else:  # to mypy a module with __getattr__ would have every name
    _DTYPES = "bool", "float", "double", "int", "long"
    _LATER = {
        **dict.fromkeys(
            ["cuda", "distributed", "gradcheck", "nn", "optim", "study", "training", "typing", "utils", "viz"]
        ),
        "set_float32_matmul_precision": ".cuda",
        "capture": ".replay.captured", "load": ".training.checkpoint", "save": ".training.checkpoint",
    }  # fmt: skip
    __getattr__, __dir__ = _missing.module_getattr(__name__, _LATER), lambda: [*__all__, *_LATER, *_DTYPES]
    __all__ += ops.__all__  # mypy takes those of a star
    autograd.later("grad", "minigrad.tensor")  # PyTorch has them in autograd
    autograd.later("gradcheck", "minigrad.gradcheck")
