"""The functions behind the layers, under their PyTorch names: `from minigrad.nn import functional as F`.

Contents

Tensors
    one_hot   int Tensor (…) -> int64 (…, num_classes): 1 at the class, else 0

Element by element
    celu                y = x where x > 0, else alpha (e^(x / alpha) - 1)
    cosine_similarity   y = Σ x1 x2 / (max(‖x1‖, eps) max(‖x2‖, eps)) along dim
    elu                 y = x where x > 0, else alpha (e^x - 1)
    gelu                x Φ(x), the Gaussian error linear unit; approximate is 'none' (by erf) or 'tanh'
    glu                 y = a σ(b), a and b the halves of x along dim (Dauphin et al., 2016)
    hardshrink          y = x where |x| > lambd, else 0
    hardsigmoid         y = x / 6 + 1/2, limited to [0, 1]
    hardswish           y = x hardsigmoid x (Howard et al., 2019)
    hardtanh            y = min(max(x, min_val), max_val)
    leaky_relu          y = x where x > 0, else negative_slope x
    logsigmoid          y = ln σ(x) = -ln(1 + e^-x), without overflow
    mish                y = x tanh(softplus x) (Misra, 2019)
    normalize           y = x / max(‖x‖, eps), with the p-norm along dim (one or several)
    prelu               y = x where x > 0, else weight x, with a weight (1,), or (C,) for x (N, C, …) (He et al., 2015)
    relu                max(x, 0)
    relu6               y = min(max(x, 0), 6)
    selu                y = 1.0507 elu(x, 1.67326), which keeps mean 0 and variance 1 (Klambauer et al., 2017)
    sigmoid             y = 1 / (1 + e^-x)
    silu                y = x σ(x)
    softmin             y = softmax(-x) along dim
    softplus            y = ln(1 + e^(beta x)) / beta, and x where beta x > threshold
    softshrink          y = x moved by lambd towards 0, and 0 if it is not so far away
    softsign            y = x / (1 + |x|)
    tanh                y = tanh x
    tanhshrink          y = x - tanh x

Along dims
    log_softmax   The logarithm of softmax along dim, without underflow
    softmax       Positive numbers that sum to 1 along dim, in proportion to e^x

Shapes
    pad   Padding as PyTorch's

Indexing
    embedding   Rows of weight, (V, C), at the int Tensor input, (…) -> (…, C), of weight's dtype

Products
    linear   input (…, k) @ weight (m, k)ᵀ + bias (m,) -> (…, m)

Norms and dropout
    dropout      Each element 0 with probability p, else divided by 1 - p; input itself if not training or p = 0
    layer_norm   Each row of input (…, *normalized_shape) to mean 0 and variance 1 (biased), times weight plus bias
    rms_norm     Each row of input (…, *normalized_shape) to mean square 1, times weight, of normalized_shape

Losses
    binary_cross_entropy               -(t ln p + (1 - t) ln(1 - p)) of probabilities p, input, and t, target, in [0, …
    binary_cross_entropy_with_logits   binary_cross_entropy of sigmoid(input), exact for any logit
    cross_entropy                      Cross-entropy of logits against class indices or class probabilities
    huber_loss                         d²/2 where |d| < delta, else delta (|d| - delta/2), with d = input - target, …
    kl_div                             t (ln t - input): its sum is the Kullback-Leibler divergence of t, target, …
    l1_loss                            |input - target| of two Tensors of one shape; the gradient at 0 is 0
    mse_loss                           (input - target)² of two Tensors of one shape
    nll_loss                           -input[target]: the loss of log-probabilities, such as log_softmax gives, for …
    smooth_l1_loss                     d²/(2 beta) where |d| < beta, else |d| - beta/2, with d = input - target, both …

Attention and transformers
    attention_pattern              softmax(scale · qk + mask) over the last dim of qk (…, T, S): which keys each …
    merge_heads                    Heads (B, n, T, d) side by side, (B, T, n·d): x.transpose(1, 2).reshape(B, T, n·d)
    scaled_dot_product_attention   z = softmax(q kᵀ / √d_k + mask) v   (Vaswani et al. 2017, eq
    split_heads                    x (B, T, n·d) as n heads: x.reshape(B, T, n, d).transpose(1, 2), a view (B, n, T, …
"""

from typing import TYPE_CHECKING

from ..base.missing import explaining, listing
from ..tensor import one_hot
from ..ops import keywords
from ..ops import (
    attention_pattern, binary_cross_entropy, binary_cross_entropy_with_logits, celu, cosine_similarity,
    cross_entropy, dropout, elu, embedding, gelu, glu, hardshrink, hardsigmoid, hardswish, hardtanh, huber_loss, kl_div,
    l1_loss, layer_norm, leaky_relu, linear, log_softmax, logsigmoid, merge_heads, mish, mse_loss, nll_loss,
    normalize, pad, prelu, relu, relu6, rms_norm, scaled_dot_product_attention, selu, sigmoid, silu, smooth_l1_loss,
    softmax, softmin, softplus, softshrink, softsign, split_heads, tanh, tanhshrink,
)  # fmt: skip

__all__ = [
    "attention_pattern", "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu", "cosine_similarity",
    "cross_entropy", "dropout", "elu", "embedding", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "huber_loss", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear", "log_softmax", "logsigmoid",
    "merge_heads", "mish", "mse_loss", "nll_loss", "normalize", "one_hot", "pad", "prelu", "relu", "relu6",
    "rms_norm", "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss", "softmax", "softmin",
    "softplus", "softshrink", "softsign", "split_heads", "tanh", "tanhshrink",
]  # fmt: skip


if not TYPE_CHECKING:  # to mypy a module with __getattr__ would have every name
    __getattr__, __dir__ = explaining(__name__), listing(__name__)
    keywords.accept(globals())
