"""Every differentiable op, declared once, a file per family. The public functions are the ones to call.

What holds for all of them: shapes that do not fit raise ValueError, Tensors on different devices RuntimeError, other
dtypes and types than those named TypeError, and a dim or an index out of range IndexError; a dim that is no int is a
TypeError. Dtypes are promoted as PyTorch's, but Tensors of no dims count like others: floats over ints over bools, the
wider over the narrower. Nothing is changed in place."""

# isort: off
from . import keywords
from .activation import gelu, relu, sigmoid, silu, tanh
from .attention import attention_pattern, merge_heads, scaled_dot_product_attention, split_heads
from .dropout import dropout
from .elementwise import (
    Cast, Transfer, abs, add, cos, erf, erfc, exp, floor, log, mul, neg, pow, rsqrt, sign, sin, sqrt, sub,
)  # fmt: skip
from .index import embedding, gather, getitem, index_select, masked_fill, parsed_index, tril, triu
from .matmul import einsum, linear, matmul
from .movement import (
    alias, cat, chunk, clone, contiguous, expand, flatten, flip, permute, repeat, reshape,
    split, squeeze, stack, transpose, unbind, unsqueeze, view,
)  # fmt: skip
from .norm import layer_norm, rms_norm
from .reduce import (
    ValuesIndices, all, amax, amin, any, argmax, argmin, argsort, cumsum, logsumexp, max, mean, min, sort, std,
    sum, topk, var,
)  # fmt: skip
from .select import (
    clamp, eq, ge, gt, isfinite, isinf, isnan, le, logical_and, logical_not, logical_or, logical_xor, lt, maximum,
    minimum, ne, where,
)  # fmt: skip
from .softmax import log_softmax, softmax
from .composites import (
    acos, addcdiv, addcmul, addmm, addmv, allclose, argwhere, asin, atan, atan2, baddbmm, bincount, bmm,
    broadcast_tensors, broadcast_to, bucketize, ceil, celu, column_stack, cosh, cosine_similarity, count_nonzero,
    cumprod, diag, diag_embed, diagonal, div, dot, dstack, elu, equal, exp2, expm1, fliplr, flipud, floor_divide, fmod,
    frac, glu, hardshrink, hardsigmoid, hardswish, hardtanh, hstack, index_add, index_copy, index_fill, inner, isclose,
    isin, leaky_relu, lerp, log10, log1p, log2, logaddexp, logcumsumexp, logit, logsigmoid, masked_select, median,
    meshgrid, mish, mm, movedim, mv, nan_to_num, narrow, nonzero, norm, normalize, outer, pad, prelu, prod, ravel,
    reciprocal, relu6, remainder, repeat_interleave, roll, rot90, round, scatter, scatter_add, searchsorted, select,
    selu, sinh, softmin, softplus, softshrink, softsign, split_with_sizes, square, std_mean, t, take, take_along_dim,
    tan, tanhshrink, tensor_split, tensordot, tile, trace, trunc, unflatten, unique, var_mean, vstack,
)  # fmt: skip
from .loss import (
    binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, huber_loss, kl_div, l1_loss, mse_loss,
    nll_loss, smooth_l1_loss,
)  # fmt: skip
