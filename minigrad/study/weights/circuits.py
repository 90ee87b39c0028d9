"""What heads do, read off their weights, and what they add to the logits (Elhage et al. 2021)."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...autograd import no_grad
from ...gradcheck.report import aligned
from ...nn import LayerNorm, Module, MultiheadAttention, RMSNorm
from ...tensor import Tensor, eye, zeros
from ...typing import Array
from ..layers import as_float64, attention_layers, head_weights, undisturbed
from ..residual.streams import divisor, streams
from ..table import HeadTable
from ..trace import trace_heads

MADE = 4  # roots of the dtype's eps: by how much logits may differ from what they are made of


def qk_circuit(layer: MultiheadAttention, head: int) -> Array:
    """W_QK = s W_Q W_Kᵀ of a head, (C, kdim), float64; s is the layer's scale, by default 1/√d_k.

    x_i W_QK x_jᵀ is the score of query i and key j, as in a trace: before ALiBi and masks. x is the layer's input,
    which comes after a norm if there is one. Biases are left out. Raises ValueError for rotary positions, which have
    no such matrix."""
    if layer.positions == "rotary":
        raise ValueError("rotary positions put another rotation between W_Q and W_Kᵀ at each distance")
    W_Q, W_K, _, _ = head_weights(layer, head)
    return layer.score_scale * W_Q @ W_K.T


def ov_circuit(layer: MultiheadAttention, head: int) -> Array:
    """W_OV = W_V W_O of a head, (vdim, C), float64: a head that attends to x_j alone adds x_j W_OV to the stream.

    Biases are left out; head_gates are included."""
    _, _, W_V, W_O = head_weights(layer, head)
    return W_V @ W_O


def unembedding(model: Module) -> Array:
    """W_U (C, V), float64, of a model with unembed(x), or an nn.Linear after its blocks, and perhaps a norm before.

    A part y of the residual stream adds y W_U / σ to the logits, where σ is what the norm divides by at that position,
    or 1 without a norm. The centering and the weight of a LayerNorm are part of W_U, which is (I - 11ᵀ/C) diag(weight)
    (matrix of the head); biases are not."""
    try:
        found = streams(model)
    except (TypeError, ValueError):  # then there have to be model.unembed and model.norm
        found = []
    return _unembedding(model, *_end(model, found[0] if len(found) == 1 else None))[0]


@dataclass(eq=False)
class LogitAttribution:
    """What differences of two logits are made of, at n positions of B sequences: total = Σ heads + Σ parts + rest.

    total, rest: (B, n). heads: {path: (B, n, nh)}. parts: {"tokens", "positions" or the path of an MLP: (B, n)}. rest
    is of biases. print() shows all, the largest first."""

    total: np.ndarray
    heads: dict[str, np.ndarray]
    parts: dict[str, np.ndarray]
    rest: np.ndarray

    def table(self) -> HeadTable:
        """The heads' means over sequences and positions, as a HeadTable of the stat "logits"."""
        return HeadTable({"logits": {path: each.mean((0, 1)) for path, each in self.heads.items()}})

    def __str__(self) -> str:
        found = {f"{path} head {h}": x for path, each in self.heads.items() for h, x in enumerate(each.mean((0, 1)))}
        found |= {name: each.mean() for name, each in (*self.parts.items(), ("rest", self.rest))}
        ranked = sorted(found.items(), key=lambda row: -abs(row[1]))
        if len(ranked) > 21:
            ranked[20:] = [(f"{len(ranked) - 20} smaller ones", sum(x for _, x in ranked[20:]))]
        rows = [("", "logits"), ("total", f"{self.total.mean():+.4f}"), *((name, f"{x:+.4f}") for name, x in ranked)]
        return "\n".join(aligned(rows))


def logit_attribution(
    model: Any, idx: Tensor, right: Any, wrong: Any, positions: Sequence[int] = (-1,)
) -> LogitAttribution:
    """Direct logit attribution: how much each head adds to (logit of the token `right`) - (logit of the token `wrong`),

        z_h W_O^h (u_right - u_wrong) / σ,

    and each MLP and embedding. u are the columns of unembedding(model). σ is the divisor of the final norm for the
    whole residual stream; it is held fixed, so that the parts add up. What a part adds by way of later layers does not
    count.

    idx (B, T) int; right, wrong: a token, or (B, 1) or (B, n) of them; positions: n of them, from the end if negative.
    The model's layers must add to one residual stream, followed by a norm, if it has one, and by model.unembed(x) or
    else by an nn.Linear. Raises TypeError for a model whose stream is not known; ValueError for one with several, with
    norms on the stream itself, after its sums, and for one whose logits are not made so."""
    if not isinstance(idx, Tensor) or idx.ndim != 2:
        raise ValueError(f"idx must be a Tensor (B, T) of tokens, got {getattr(idx, 'shape', type(idx).__name__)}")
    known, stream = _the_stream(model), []
    norm, unembed = _end(model, known)
    with ExitStack() as stack:
        stack.callback(known.body[-1].register_forward_hook(lambda module, args, y: stream.append(y)).remove)
        written = _watched(known, stack)
        with undisturbed(model), trace_heads(model, grads=False) as trace:
            output = model(idx)
    logits, at = output[0] if isinstance(output, tuple) else output, list(positions)
    logits, x = as_float64(logits)[:, at], as_float64(stream[-1])[:, at]  # (B, n, V), (B, n, C)
    right, wrong = (
        _tokens(name, given, logits.shape) for name, given in (("right", right), ("wrong", wrong))
    )  # (B, n)
    W_U, constant = _unembedding(model, norm, unembed)  # (C, V), (V,)
    read = stream[-1]
    sigma = 1.0 if norm is None else divisor(norm, as_float64(read), read.dtype)[:, at]  # (B, n, 1)
    expected, size = x @ W_U / sigma + constant, np.abs(x) @ np.abs(W_U) / sigma + np.abs(constant)
    if not (np.abs(logits - expected) <= MADE * np.finfo(read.dtype).eps ** 0.5 * size).all():
        raise ValueError("the model's logits are not those of its unembedding, behind the norm at its end")
    direction = (W_U.T[right] - W_U.T[wrong]) / sigma  # (B, n, C)
    heads, parts = {}, {name: y[:, at] for name, y in written.items()}  # {name: (B, n, C)}
    scales = {part.first: part.scale for part in known.parts}
    for path in trace:
        layer = trace.layers[path]
        z = sum(as_float64(call.z)[:, :, at] for call in trace.calls(path))  # (B, nh, n, d_v)
        W_O = [head_weights(layer, h)[-1] * scales.get(layer, 1.0) for h in range(layer.num_heads)]
        ys = [z[:, h] @ W for h, W in enumerate(W_O)]  # (B, n, C) each
        heads[path] = np.stack([(y * direction).sum(-1) for y in ys], -1)  # (B, n, nh)
        x = x - sum(ys)
    rest = ((x - sum(parts.values())) * direction).sum(-1) + constant[right] - constant[wrong]
    parts = {name: (y * direction).sum(-1) for name, y in parts.items()}
    of_right, of_wrong = (np.take_along_axis(logits, t[..., None], -1)[..., 0] for t in (right, wrong))
    return LogitAttribution(of_right - of_wrong, heads, parts, rest)


def _the_stream(model):
    found = streams(model)
    if len(found) > 1:
        raise ValueError("the model has several residual streams: attribution is known for one")
    if any(part.after is not None for part in found[0].parts):
        raise ValueError("the residual stream goes through norms after its sums, so its parts do not add up")
    return found[0]


def _watched(stream, stack):
    """{name: (B, T, C)} of what embeddings and MLPs write, to be filled by the next forward."""
    written: dict = {}
    tokens = []  # what the embedding gave, the first time

    def begin(module, args):
        if written or not args:
            return  # the first block runs again, or is called by keyword
        x = as_float64(args[0])
        if not tokens or tokens[0].shape != x.shape:
            written["input"] = x
        else:
            written["tokens"] = tokens[0]
            if not np.array_equal(tokens[0], x):
                written[stream.rest] = x - tokens[0]

    def added(name, scale, module, args, y):
        written[name] = written.get(name, 0.0) + as_float64(y) * scale

    stack.callback(stream.body[0].register_forward_pre_hook(begin).remove)
    if stream.embedding is not None:
        keep = stream.embedding.register_forward_hook(lambda module, args, y: tokens.append(as_float64(y)))
        stack.callback(keep.remove)
    parts = {part.last: part for part in reversed(stream.parts) if not part.is_attention}  # of shared ones the first
    for module, part in parts.items():
        stack.callback(module.register_forward_hook(partial(added, part.path, part.scale)).remove)
    return written


def _tokens(name, given, shape):
    """Tokens as an array (B, n), shape being (B, n, V)."""
    given = np.asarray(given.numpy() if isinstance(given, Tensor) else given)
    if given.dtype.kind not in "iu" or not ((given >= 0) & (given < shape[2])).all():
        raise ValueError(f"{name} must be tokens, whole numbers from 0 to {shape[2] - 1}, not {given.tolist()!r}")
    return np.broadcast_to(given, shape[:2])


def _end(model, stream):
    """(the norm through which logits are made of a stream (B, T, C), or None; what then makes them)"""
    norm = getattr(model, "norm", None)
    if stream is not None and not isinstance(norm, Module):
        norm = stream.norm
    if norm is not None and not isinstance(norm, (LayerNorm, RMSNorm)):
        raise TypeError(f"model.norm must be the final nn.LayerNorm or nn.RMSNorm, got {type(norm).__name__}")
    unembed = getattr(model, "unembed", None if stream is None else stream.unembedding)
    if unembed is None:
        raise TypeError(
            f"{type(model).__name__} has no unembed(x), which would take (B, T, C) to logits, and no nn.Linear after "
            "its blocks"
        )
    return norm, unembed


def _unembedding(model, norm, unembed):
    """unembedding(model), (C, V), and what the biases of the norm and the unembedding add to the logits, (V,)."""
    like = next(iter(attention_layers(model).values())).out_proj.weight  # (C, ·)
    about: Any = dict(dtype=like.dtype, device=like.device)
    with no_grad():
        constant = as_float64(unembed(zeros(1, 1, len(like), **about)))[0, 0]
        W_U = as_float64(unembed(eye(len(like), **about).unsqueeze(0)))[0] - constant
    if getattr(norm, "bias", None) is not None:
        constant = constant + as_float64(norm.bias) @ W_U
    if getattr(norm, "weight", None) is not None:
        W_U = as_float64(norm.weight)[:, None] * W_U
    return W_U - W_U.mean(0) if isinstance(norm, LayerNorm) else W_U, constant
