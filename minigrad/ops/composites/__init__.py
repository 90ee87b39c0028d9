"""What a user of torch also types: functions made of the ops beside this folder, a line or a few each.

Those with a derivative worth checking declare cases, as ops do. A few are ops of their own, where autograd's derivative
of the formula would lose digits."""

from .activation import (
    celu, cosine_similarity, elu, glu, hardshrink, hardsigmoid, hardswish, hardtanh, leaky_relu, logsigmoid, mish,
    normalize, prelu, relu6, selu, softmin, softplus, softshrink, softsign, tanhshrink,
)  # fmt: skip
from .functions import (
    acos, addcdiv, addcmul, asin, atan, atan2, cosh, exp2, expm1, lerp, log1p, log2, log10, logaddexp, logit,
    nan_to_num, reciprocal, sinh, square, tan,
)  # fmt: skip
from .index import (
    argwhere, index_add, index_copy, index_fill, isin, masked_select, nonzero, scatter, scatter_add, take,
    take_along_dim,
)  # fmt: skip
from .matmul import addmm, addmv, baddbmm, bmm, dot, inner, mm, mv, outer, tensordot
from .movement import (
    broadcast_tensors, broadcast_to, column_stack, diag, diag_embed, diagonal, dstack, fliplr, flipud, hstack, meshgrid,
    movedim, narrow, pad, ravel, repeat_interleave, roll, rot90, select, split_with_sizes, t, tensor_split, tile, trace,
    unflatten, vstack,
)  # fmt: skip
from .product import cumprod, prod
from .reduce import (
    bincount, bucketize, count_nonzero, logcumsumexp, median, norm, searchsorted, std_mean, unique, var_mean,
)  # fmt: skip
from .rounding import ceil, div, floor_divide, fmod, frac, remainder, round, trunc
from .compare import allclose, equal, isclose
