"""The functions behind the layers, under their PyTorch names: `from minigrad.nn import functional as F`."""

from ..tensor import one_hot
from ..ops import (
    attention_pattern, binary_cross_entropy, binary_cross_entropy_with_logits, cosine_similarity,
    cross_entropy, dropout, elu, embedding, gelu, glu, hardsigmoid, hardswish, hardtanh, huber_loss, kl_div,
    l1_loss, layer_norm, leaky_relu, linear, log_softmax, logsigmoid, merge_heads, mish, mse_loss, nll_loss,
    normalize, pad, prelu, relu, relu6, rms_norm, scaled_dot_product_attention, selu, sigmoid, silu, smooth_l1_loss,
    softmax, softplus, split_heads, tanh,
)  # fmt: skip

__all__ = [
    "attention_pattern", "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity",
    "cross_entropy", "dropout", "elu", "embedding", "gelu", "glu", "hardsigmoid", "hardswish", "hardtanh",
    "huber_loss", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear", "log_softmax", "logsigmoid",
    "merge_heads", "mish", "mse_loss", "nll_loss", "normalize", "one_hot", "pad", "prelu", "relu", "relu6",
    "rms_norm", "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss", "softmax", "softplus",
    "split_heads", "tanh",
]  # fmt: skip
