"""Every differentiable op, declared once, a file per family. The public functions are the ones to call."""

# isort: off
from .activation import gelu, relu, sigmoid, silu, tanh
from .attention import attention_pattern, merge_heads, scaled_dot_product_attention, split_heads
from .dropout import dropout
from .elementwise import (
    Cast, Transfer, abs, add, cos, div, erf, erfc, exp, floor, log, mul, neg, pow, rsqrt, sign, sin, sqrt, sub,
)  # fmt: skip
from .index import embedding, gather, getitem, index_select, masked_fill, parsed_index, tril, triu
from .matmul import einsum, linear, matmul
from .movement import (
    alias, cat, chunk, clone, contiguous, expand, flatten, flip, pad, permute, repeat, repeat_interleave, reshape,
    split, squeeze, stack, transpose, unbind, unsqueeze, view,
)  # fmt: skip
from .norm import layer_norm, rms_norm
from .reduce import (
    ValuesIndices, all, amax, amin, any, argmax, argmin, argsort, cumsum, logsumexp, max, mean, min, prod, sort, std,
    sum, topk, var,
)  # fmt: skip
from .select import (
    clamp, eq, ge, gt, isfinite, isinf, isnan, le, logical_and, logical_not, logical_or, logical_xor, lt, maximum,
    minimum, ne, where,
)  # fmt: skip
from .softmax import cross_entropy, log_softmax, softmax
