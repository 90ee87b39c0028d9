"""What heads do, read off the weights, and what they add to the logits (Elhage et al. 2021)."""

from dataclasses import dataclass

import numpy as np

from ..autograd import no_grad
from ..nn import LayerNorm, RMSNorm
from ..tensor import eye, zeros
from .layers import as_float64, attention_layers, head_weights, undisturbed
from .table import HeadTable
from .trace import trace_heads


def qk_circuit(layer, head):
    """s W_Q W_Kᵀ of a head, (C, kdim), float64, s the layer's scale, 1/√d_k by default: x_i W_QK x_jᵀ is the score of
    query i and key j, as a trace has it, before ALiBi and masks; x is the layer's input, behind a norm if there is one.

    Biases are left out. With rotary positions there is no one such matrix: ValueError."""
    if layer.positions == "rotary":
        raise ValueError("rotary positions put another rotation between W_Q and W_Kᵀ at each distance")
    W_Q, W_K, _, _ = head_weights(layer, head)
    return layer._scale * W_Q @ W_K.T


def ov_circuit(layer, head):
    """W_V W_O of a head, (vdim, C), float64: attending to x_j alone, it adds x_j W_OV to the residual stream.

    Biases are left out; head_gates count."""
    _, _, W_V, W_O = head_weights(layer, head)
    return W_V @ W_O


def unembedding(model):
    """W_U (C, V), float64, of a model with head(x) and perhaps a final norm, model.norm: what a part y of the residual
    stream adds to the logits is y W_U / σ, with σ what the norm divides by there (1 without a norm).

    A LayerNorm's centering and weight are in it: W_U = (I - 11ᵀ/C) diag(weight) (the head's matrix); biases are not."""
    return _unembedding(model, _final_norm(model))[0]


@dataclass(eq=False)
class LogitAttribution:
    """How differences of two logits come about, at n positions of B sequences: total = Σ heads + rest."""

    total: np.ndarray  # (B, n)
    heads: dict[str, np.ndarray]  # {path: (B, n, nh)}
    rest: np.ndarray  # (B, n): of embeddings, MLPs and biases

    def table(self):
        """The heads' means over sequences and positions, as a HeadTable of the stat "logits"."""
        return HeadTable({"logits": {path: each.mean((0, 1)) for path, each in self.heads.items()}})


def logit_attribution(model, idx, right, wrong, positions=(-1,)):
    """Direct logit attribution: how much each head adds to (logit of the token `right`) - (logit of the token `wrong`),

        z_h W_O^h (u_right - u_wrong) / σ,

    u the columns of unembedding(model), σ the divisor of the final norm for the whole residual stream: frozen, so that
    parts add up. What a head adds by way of later layers does not count.

    idx (B, T) int; right, wrong: a token, or (B, 1) or (B, n) of them; positions: n of them, from the end if negative.
    For a model whose layers add to one residual stream, after which come model.norm, if it has one, and model.head(x),
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
        layer, z = (
            trace.layers[path],
            sum(as_float64(call.z)[:, :, at] for call in trace.calls(path)),
        )  # (B, nh, n, d_v)
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
    """unembedding(model), (C, V), and what the biases of norm and head add to the logits, (V,)."""
    if not hasattr(model, "head"):
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
    """σ, what the final norm divides rows by: x (B, T, C) -> (B, T, 1), all 1 without a norm."""
    eps = 0.0 if norm is None else np.finfo(x.dtype).eps if norm.eps is None else norm.eps
    x = as_float64(x)
    if norm is None:
        return np.ones_like(x[..., :1])
    if isinstance(norm, LayerNorm):
        x = x - x.mean(-1, keepdims=True)
    return np.sqrt((x**2).mean(-1, keepdims=True) + eps)
