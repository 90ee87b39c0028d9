"""minigrad: tensors, autograd and attention from scratch. See README.md."""

from typing import TYPE_CHECKING

from . import launched  # first, before NumPy
from . import autograd, cuda, dtypes, nn, ops, optim, random, utils
from .autograd import (
    AnomalyError, FormulaOp, GraphError, Op, case, composite, detect_anomaly, enable_grad, inference, is_grad_enabled,
    no_grad, registry, set_grad_enabled,
)  # fmt: skip
from .backend import DeviceError, device
from .captured import capture
from .dtypes import bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from .dtypes import (  # PyTorch's names of them
    bool_ as bool, float16 as half, float32 as float, float64 as double, int16 as short, int32 as int, int64 as long,
)  # fmt: skip
from .ops import (
    abs, add, all, amax, amin, any, argmax, argmin, argsort, cat, chunk, clamp, clone, cos, cumsum, div, einsum, eq,
    erf, erfc, exp, flatten, flip, floor, gather, ge, gt, index_select, isfinite, isinf, isnan, le, log, log_softmax,
    logical_and, logical_not, logical_or, logical_xor, logsumexp, lt, masked_fill, matmul, max, maximum, mean, min,
    minimum, mul, ne, neg, permute, pow, prod, relu, repeat_interleave, reshape, rsqrt, sigmoid, sign, sin, softmax,
    sort, split, sqrt, squeeze, stack, std, sub, sum, tanh, topk, transpose, tril, triu, unbind, unsqueeze, var,
    where,
)  # fmt: skip
from .ops import (  # composites
    acos, addcdiv, addcmul, addmm, addmv, allclose, argwhere, asin, atan, atan2, baddbmm, bincount, bmm,
    broadcast_tensors, broadcast_to, bucketize, ceil, column_stack, cosh, count_nonzero, cumprod, diag, diag_embed,
    diagonal, dot, dstack, equal, exp2, expm1, fliplr, flipud, floor_divide, fmod, frac, hstack, index_add, index_copy,
    index_fill, inner, isclose, isin, lerp, log1p, log2, log10, logaddexp, logcumsumexp, logit, masked_select, median,
    meshgrid, mm, movedim, mv, nan_to_num, narrow, nonzero, norm, outer, ravel, reciprocal, remainder, roll, rot90,
    round, scatter, scatter_add, searchsorted, sinh, split_with_sizes, square, std_mean, t, take, take_along_dim, tan,
    tensor_split, tensordot, tile, trace, trunc, unflatten, unique, var_mean, vstack,
)  # fmt: skip
from .ops import (  # by their second names
    abs as absolute, cat as concat, cat as concatenate, clamp as clip, div as divide, div as true_divide, ge as
    greater_equal, gt as greater, le as less_equal, lt as less, movedim as moveaxis, mul as multiply, ne as not_equal,
    neg as negative, sub as subtract, transpose as swapaxes, transpose as swapdims,
)  # fmt: skip
from .autograd import inference as inference_mode
from .missing import explaining
from .recording import CaptureError
from .random import Generator, default_generator, manual_seed
from .tensor import (
    Tensor, arange, as_tensor, bernoulli, empty, empty_like, eye, from_dlpack, from_numpy, full, full_like, grad,
    linspace, multinomial, normal, one_hot, ones, ones_like, rand, rand_like, randint, randn, randn_like, randperm,
    tensor, tril_indices, triu_indices, zeros, zeros_like,
)  # fmt: skip
from .training.objects import load, save

__version__ = "0.1.0"

if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    __getattr__ = explaining(__name__)
