"""The functions behind the layers, under their PyTorch names: `from minigrad.nn import functional as F`."""

from typing import TYPE_CHECKING

from ..tensor import one_hot
from ..ops import (  # composites
    celu, cosine_similarity, elu, glu, hardtanh, leaky_relu, logsigmoid, mish, normalize, relu6, selu, softmin,
    softplus, softsign,
)  # fmt: skip
from ..ops import (
    attention_pattern, cross_entropy, dropout, embedding, gelu, layer_norm, linear, log_softmax, merge_heads, pad, relu,
    rms_norm, scaled_dot_product_attention, sigmoid, silu, softmax, split_heads, tanh,
)  # fmt: skip

__all__ = [
    "attention_pattern", "cross_entropy", "dropout", "embedding", "gelu", "layer_norm", "linear", "log_softmax",
    "merge_heads", "one_hot", "pad", "relu", "rms_norm", "scaled_dot_product_attention", "sigmoid", "silu", "softmax",
    "split_heads", "tanh",
    "celu", "cosine_similarity", "elu", "glu", "hardtanh", "leaky_relu", "logsigmoid", "mish", "normalize", "relu6",
    "selu", "softmin", "softplus", "softsign",
]  # fmt: skip

if not TYPE_CHECKING:  # to mypy, a name that is not above does not exist

    def __getattr__(name):
        """Raises the AttributeError for a name of PyTorch's that minigrad has not, with what to use instead."""
        from ..absent import absent

        raise absent(__name__, name)
