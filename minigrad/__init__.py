"""minigrad: tensors, autograd and attention from scratch. See README.md."""

from . import launched  # first, before NumPy
from . import autograd, dtypes, nn, ops, optim, random, utils
from .autograd import (
    AnomalyError, FormulaOp, GraphError, Op, case, composite, detect_anomaly, enable_grad, inference, is_grad_enabled,
    no_grad, registry,
)  # fmt: skip
from .backend import DeviceError
from .captured import capture
from .dtypes import bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from .ops import (
    abs, add, all, amax, amin, any, argmax, argmin, argsort, cat, chunk, clamp, clone, cos, cumsum, div, einsum, eq,
    erf, erfc, exp, flatten, flip, floor, gather, ge, gt, index_select, isfinite, isinf, isnan, le, log, log_softmax,
    logical_and, logical_not, logical_or, logical_xor, logsumexp, lt, masked_fill, matmul, max, maximum, mean, min,
    minimum, mul, ne, neg, permute, pow, prod, relu, repeat_interleave, reshape, rsqrt, sigmoid, sign, sin, softmax,
    sort, split, sqrt, squeeze, stack, std, sub, sum, tanh, topk, transpose, tril, triu, unbind, unsqueeze, var,
    where,
)  # fmt: skip
from .recording import CaptureError
from .random import Generator, default_generator, manual_seed
from .tensor import (
    Tensor, arange, as_tensor, empty, eye, from_dlpack, from_numpy, full, full_like, grad, linspace, multinomial,
    one_hot, ones, ones_like, rand, rand_like, randint, randn, randn_like, randperm, tensor, zeros, zeros_like,
)  # fmt: skip
from .training.objects import load, save

__version__ = "0.1.0"
