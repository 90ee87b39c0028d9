"""Names of PyTorch that minigrad has not, and what to use in their place: for the errors of those who type them."""

import re

_ABSENT = {  # patterns of names, and what to say of them
    r"conv\w*|\w*_pool\w*|(un)?fold|interpolate|grid_sample|affine_grid|pixel_(un)?shuffle": (
        "minigrad has no convolutions and no pooling; patches of a picture are reshape and permute, then matmul"
    ),
    r"c(omplex\w*|float|double|half)|view_as_\w+|real|imag|conj\w*|angle|polar|is_complex": (
        "minigrad has no complex numbers; keep real and imaginary parts in tensors of their own"
    ),
    r"\w*sparse\w*": "minigrad has no sparse tensors; gather, index_add and scatter_add read and add by index",
    r"fft|i?stft|\w+_window": "minigrad has no Fourier transforms; a small one is a matmul with cos and sin",
    r"linalg|svd\w*|qr|eig\w*|cholesky\w*|p?inverse|(slog|log)?det|lu\w*|lstsq|\w*solve|matrix_\w+": (
        "minigrad has no decompositions of matrices; there are norm, trace, outer, matmul and einsum"
    ),
    r"bfloat16|float8\w*|u?int[0-9]+|q\w*int\w+|quantize\w*": (
        "minigrad's dtypes are float64, float32, float16, int64, int32, int16, int8, uint8 and bool"
    ),
    r"\w+Tensor": "tensors are made by minigrad.tensor(data, dtype=…), zeros, ones, randn, …",
    r"bitwise_\w+|__\w+shift__": "& | ^ ~ are for bools here: logical_and, logical_or, logical_xor, logical_not",
    r"compile|jit|fx|export": "minigrad.capture records a whole training step and replays it",
    r"func|vmap|autocast|amp": "minigrad has no transforms of functions and no mixed precision",
    r"[sg]et_default_\w+": "new tensors are float32 on the CPU; say dtype= and device= where they are made",
    r"[sg]et_num_threads": "set OMP_NUM_THREADS before the program starts",
    r"(arc|a)(sin|cos|tan)h": "log, log1p and sqrt make it: asinh x = ln(x + √(x² + 1)), acosh x = ln(x + √(x² - 1)), "
    "atanh x = (log1p(x) - log1p(-x)) / 2",
    r"cummax|cummin|kthvalue|mode|msort|aminmax|quantile": "sort, topk, amax, amin and median do this",
    r"nan(mean|sum|median|quantile)": "x.where(~x.isnan(), 0) leaves NaN out; (~x.isnan()).sum() counts",
    r"addr|addbmm|chain_matmul|vdot|kron|cdist": "matmul, outer, baddbmm and einsum do this",
    r"histc|histogram\w*|unique_consecutive": "bincount, bucketize and unique do this",
    r"scatter_reduce|index_reduce|index_put|put|masked_scatter": "scatter, scatter_add, where and x[i] = y do this",
    r"dropout|embedding|layer_norm|rms_norm|scaled_dot_product_attention|gelu|silu|selu|celu|pad|linear|\w+_entropy": (
        "it is in minigrad.nn.functional"
    ),
    r"arc(sin|cos|tan|tan2)": "it goes by its short name: asin, acos, atan, atan2",
    r"is_tensor": "use isinstance(x, minigrad.Tensor)",
    r"select|view|expand|repeat|view_as|expand_as|numel|is_floating_point": "it is a method of Tensor",
    r"lstm|gru|rnn_\w+": "minigrad has no recurrent layers; a loop over the positions with nn.Linear does this",
    r"(batch|group|instance)_norm": "minigrad has layer_norm and rms_norm, in minigrad.nn.functional",
}


def absent(module: str, name: str) -> AttributeError:
    """The AttributeError for a name that a module has not. If PyTorch has it, it says what to use instead."""
    message = f"module {module!r} has no attribute {name!r}"
    for pattern, instead in _ABSENT.items():
        if re.fullmatch(pattern, name):
            return AttributeError(f"{message}: {instead}")
    return AttributeError(message)
