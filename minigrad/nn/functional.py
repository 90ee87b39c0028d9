"""The functions behind the layers, under their PyTorch names: `from minigrad.nn import functional as F`."""

import functools
from typing import TYPE_CHECKING

from ..missing import explaining
from ..tensor import one_hot
from ..ops import (
    attention_pattern, binary_cross_entropy, binary_cross_entropy_with_logits, cosine_similarity, cross_entropy,
    dropout, embedding, gelu, glu, hardsigmoid, hardswish, hardtanh, huber_loss, kl_div, l1_loss, layer_norm, linear,
    log_softmax, logsigmoid, merge_heads, mish, mse_loss, nll_loss, pad, prelu, relu, relu6, rms_norm,
    scaled_dot_product_attention, sigmoid, silu, smooth_l1_loss, softmax, softsign, split_heads, tanh,
)  # fmt: skip

__all__ = [
    "attention_pattern", "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity",
    "cross_entropy", "dropout", "embedding", "gelu", "glu", "hardsigmoid", "hardswish", "hardtanh", "huber_loss",
    "kl_div", "l1_loss", "layer_norm", "linear", "log_softmax", "logsigmoid", "merge_heads", "mish", "mse_loss",
    "nll_loss", "one_hot", "pad", "prelu", "relu", "relu6", "rms_norm", "scaled_dot_product_attention", "sigmoid",
    "silu", "smooth_l1_loss", "softmax", "softsign", "split_heads", "tanh",
]  # fmt: skip


def _takes_inplace(function):
    """Also accept inplace=, as PyTorch does there. The result is returned, and the input stays as it is."""

    @functools.wraps(function)
    def wrapper(input, *args, inplace=False, **kwargs):
        return function(input, *args, **kwargs)

    return wrapper


dropout, relu, relu6, silu, mish, hardsigmoid, hardswish, hardtanh = map(
    _takes_inplace, (dropout, relu, relu6, silu, mish, hardsigmoid, hardswish, hardtanh)
)

if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    __getattr__ = explaining(__name__)
