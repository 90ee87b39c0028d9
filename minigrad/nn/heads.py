"""The heads of a MultiheadAttention one by one: looking at their matrices, and loading them."""

import operator

import numpy as np

from ..ops.public import cat
from ..tensor import as_tensor, zeros
from . import init
from .module import Parameter


class Head:
    """Head `number` of a MultiheadAttention, as layer.head(i) returns it. The layer's output is the sum of gate z W_O:

        q = query W_Q    k = key W_K    v = value W_V    z = softmax(scale q kᵀ + mask) v

    W_Q (C, d_k), W_K (C, d_k), W_V (C, d_v) and W_O (d_v, C) are detached views of the layer's parameters. Heads
    of a group share W_K and W_V. scale and gate are numbers; the gate is 1 unless the layer has head_gates.

    parts: {"W_Q": [(parameter, index), …], "W_K": …, "W_V": …, "W_O": …}, where in the layer's parameters each matrix
    lies, transposed, and then where its bias lies, if there is one. An index is a tuple of slices."""

    def __init__(self, layer, number):
        if number not in range(layer.num_heads):
            raise ValueError(_no_head(number, layer.num_heads))
        gates, kv = layer.head_gates, layer.kv_of_head[number]
        self.number, self.d_k, self.d_v, self.scale = number, layer.d_k, layer.d_v, layer.score_scale
        self.gate = 1.0 if gates is None else gates[number].item()
        self.parts: dict[str, list[tuple]] = {}
        first = 0  # row of W_q, W_k or W_v in the parameters that hold all three
        for name, i, (n, d) in zip(("W_Q", "W_K", "W_V"), (number, kv, kv), layer.sizes):
            own = slice(first + i * d, first + (i + 1) * d)
            self.parts[name] = [(p, (own,)) for p in (layer.in_proj_weight, layer.in_proj_bias) if p is not None]
            first += n * d
        self.parts["W_O"] = [(layer.out_proj.weight, np.s_[:, number * self.d_v : (number + 1) * self.d_v])]

    W_Q = property(lambda self: self._matrix("W_Q"))
    W_K = property(lambda self: self._matrix("W_K"))
    W_V = property(lambda self: self._matrix("W_V"))
    W_O = property(lambda self: self._matrix("W_O"))

    def _matrix(self, name):
        W, index = self.parts[name][0]
        return W.detach()[index].T


def known_heads(heads, nh):
    """heads as a set of numbers below nh. Raises ValueError for any other number."""
    heads = {operator.index(h) for h in heads}
    if unknown := sorted(heads.difference(range(nh))):
        raise ValueError(_no_head(unknown, nh))
    return heads


def _no_head(which, nh):
    which = ", ".join(map(str, which)) if isinstance(which, list) else which
    return f"there is no head {which}: this layer has {nh}, from 0 on"


# ------------------------------------------------------------------------------------------------------------- surgery


def load(layer, W_Q, W_K, W_V, W_O):
    """See MultiheadAttention.load_from_heads."""
    about = dict(dtype=layer.out_proj.weight.dtype, device=layer.out_proj.weight.device)
    W_Q, W_K, W_V = ([as_tensor(W, **about).detach() for W in Ws] for Ws in (W_Q, W_K, W_V))
    W_O, nh, nkv = as_tensor(W_O, **about).detach(), len(W_Q), len(W_K)
    if nh == 0 or nkv == 0 or nh % nkv or len(W_V) != nkv:
        raise ValueError(
            f"{nh} W_Q, {nkv} W_K and {len(W_V)} W_V: there must be as many W_K as W_V, a divisor of the W_Q"
        )
    d_k, d_v = (W.shape[-1] if W.ndim else 0 for W in (W_Q[0], W_V[0]))
    C = layer.embed_dim
    sizes = ("W_Q", W_Q, (C, d_k)), ("W_K", W_K, (C, d_k)), ("W_V", W_V, (C, d_v)), ("W_O", [W_O], (nh * d_v, C))
    for name, Ws, shape in sizes:
        if any(W.shape != shape for W in Ws):
            raise ValueError(f"{name} must be {shape}, got {', '.join(str(W.shape) for W in Ws)}")
    layer.num_heads, layer.num_kv_heads = nh, nkv
    layer.d_k, layer.d_v, layer.head_gates = d_k, d_v, None
    layer.in_proj_weight = _like(layer.in_proj_weight, cat([W.T for Ws in (W_Q, W_K, W_V) for W in Ws]))
    layer.out_proj.weight = _like(layer.out_proj.weight, W_O.T)
    layer.out_proj.in_features = nh * d_v
    if layer.in_proj_bias is not None:
        layer.in_proj_bias = _like(layer.in_proj_bias, zeros(nh * d_k + nkv * (d_k + d_v), **about))
        init.zeros_(layer.out_proj.bias)


def _like(old, x):
    """x as a Parameter in place of `old`, requiring a gradient if that did."""
    return Parameter(x, requires_grad=old.requires_grad)
