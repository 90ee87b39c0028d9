"""What heads do, read off their weights, and what they add to the logits (Elhage et al. 2021)."""

from dataclasses import dataclass

import numpy as np

from ..autograd import no_grad
from ..nn import LayerNorm, MultiheadAttention, RMSNorm
from ..tensor import eye, zeros
from .layers import as_float64, attention_layers, head_weights, undisturbed
from .table import HeadTable
from .trace import trace_heads


def qk_circuit(layer, head):
    """W_QK = s W_Q W_Kᵀ of a head, (C, kdim), float64; s is the layer's scale, by default 1/√d_k.

    x_i W_QK x_jᵀ is the score of query i and key j, as in a trace: before ALiBi and masks. x is the layer's input,
    which comes after a norm if there is one. Biases are left out. Raises ValueError for rotary positions, which have
    no such matrix."""
    if layer.positions == "rotary":
        raise ValueError("rotary positions put another rotation between W_Q and W_Kᵀ at each distance")
    W_Q, W_K, _, _ = head_weights(layer, head)
    return layer.score_scale * W_Q @ W_K.T


def ov_circuit(layer, head):
    """W_OV = W_V W_O of a head, (vdim, C), float64: a head that attends to x_j alone adds x_j W_OV to the stream.

    Biases are left out; head_gates are included."""
    _, _, W_V, W_O = head_weights(layer, head)
    return W_V @ W_O


def unembedding(model):
    """W_U (C, V), float64, of a model with head(x) and perhaps a final norm, model.norm.

    A part y of the residual stream adds y W_U / σ to the logits, where σ is what the norm divides by at that position,
    or 1 without a norm. The centering and the weight of a LayerNorm are part of W_U, which is (I - 11ᵀ/C) diag(weight)
    (matrix of the head); biases are not."""
    return _unembedding(model, _final_norm(model))[0]


@dataclass(eq=False)
class LogitAttribution:
    """What differences of two logits are made of, at n positions of B sequences: total = Σ heads + rest."""

    total: np.ndarray  # (B, n)
    heads: dict[str, np.ndarray]  # {path: (B, n, nh)}
    rest: np.ndarray  # (B, n): of embeddings, MLPs and biases

    def table(self):
        """The heads' means over sequences and positions, as a HeadTable of the stat "logits"."""
        return HeadTable({"logits": {path: each.mean((0, 1)) for path, each in self.heads.items()}})


def logit_attribution(model, idx, right, wrong, positions=(-1,)):
    """Direct logit attribution: how much each head adds to (logit of the token `right`) - (logit of the token `wrong`),

        z_h W_O^h (u_right - u_wrong) / σ.

    u are the columns of unembedding(model). σ is the divisor of the final norm for the whole residual stream; it is
    held fixed, so that the parts add up. What a head adds by way of later layers does not count.

    idx (B, T) int; right, wrong: a token, or (B, 1) or (B, n) of them; positions: n of them, from the end if negative.
    The model's layers must add to one residual stream, followed by model.norm, if it has one, and by model.head(x),
    which is model.lm_head if there is no norm: AttentionOnly, nn.GPT and others with these names."""
    norm, stream = _final_norm(model), []
    last = model.lm_head if norm is None else norm
    handle = last.register_forward_pre_hook(lambda module, args: stream.append(args[0]))
    try:
        with undisturbed(model), trace_heads(model, grads=False) as trace:
            output = model(idx)
    finally:
        handle.remove()
    logits, at = output[0] if isinstance(output, tuple) else output, list(positions)
    logits, x = as_float64(logits)[:, at], as_float64(stream[0])[:, at]  # (B, n, V), (B, n, C)
    right, wrong = (np.broadcast_to(tokens, logits.shape[:2]) for tokens in (right, wrong))  # (B, n)
    W_U, constant = _unembedding(model, norm)  # (C, V), (V,)
    direction = (W_U.T[right] - W_U.T[wrong]) / _divisor(norm, stream[0])[:, at]  # (B, n, C)
    heads = {}
    for path in trace:
        layer = trace.layers[path]
        z = sum(as_float64(call.z)[:, :, at] for call in trace.calls(path))  # (B, nh, n, d_v)
        written = [z[:, h] @ head_weights(layer, h)[-1] for h in range(layer.num_heads)]  # (B, n, C) each
        heads[path] = np.stack([(y * direction).sum(-1) for y in written], -1)  # (B, n, nh)
        x = x - sum(written)
    rest = (x * direction).sum(-1) + constant[right] - constant[wrong]
    of_right, of_wrong = (np.take_along_axis(logits, t[..., None], -1)[..., 0] for t in (right, wrong))
    return LogitAttribution(of_right - of_wrong, heads, rest)


def _final_norm(model):
    norm = getattr(model, "norm", None)
    if norm is not None and not isinstance(norm, (LayerNorm, RMSNorm)):
        raise TypeError(f"model.norm must be the final nn.LayerNorm or nn.RMSNorm, got {type(norm).__name__}")
    return norm


def _unembedding(model, norm):
    """unembedding(model), (C, V), and what the biases of the norm and the head add to the logits, (V,)."""
    if not hasattr(model, "head") or isinstance(model, MultiheadAttention):  # whose head(i) is another thing
        raise TypeError(f"{type(model).__name__} has no head(x), which would take (B, T, C) to logits")
    like = next(iter(attention_layers(model).values())).out_proj.weight  # (C, ·)
    about = dict(dtype=like.dtype, device=like.device)
    with no_grad():
        constant = as_float64(model.head(zeros(1, 1, len(like), **about)))[0, 0]
        W_U = as_float64(model.head(eye(len(like), **about).unsqueeze(0)))[0] - constant
    if getattr(norm, "bias", None) is not None:
        constant = constant + as_float64(norm.bias) @ W_U
    if getattr(norm, "weight", None) is not None:
        W_U = as_float64(norm.weight)[:, None] * W_U
    return W_U - W_U.mean(0) if isinstance(norm, LayerNorm) else W_U, constant


def _divisor(norm, x):
    """σ, what the final norm divides each row by: x (B, T, C) -> (B, T, 1), all 1 without a norm."""
    eps = 0.0 if norm is None else np.finfo(x.dtype).eps if norm.eps is None else norm.eps
    x = as_float64(x)
    if norm is None:
        return np.ones_like(x[..., :1])
    if isinstance(norm, LayerNorm):
        x = x - x.mean(-1, keepdims=True)
    return np.sqrt((x**2).mean(-1, keepdims=True) + eps)
