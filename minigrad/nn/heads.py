"""The heads of a MultiheadAttention one by one: their matrices, hooks on what they compute, and loading them."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from ..autograd import Handle
from ..ops.public import cat
from ..tensor import Tensor, as_tensor, check_same_kind, zeros
from ..typing import Array
from . import init
from .module import Module, Parameter

POINTS = "q", "k", "v", "qk", "pattern", "z"  # values of each head that hooks see, in the forward's order
INPUTS = "x_q", "x_k", "x_v"  # inputs of the layer, which all heads share
OUTPUT = "y"  # output of the layer, to which all heads add


class Head:
    """Head `number` of a MultiheadAttention, as layer.head(i) returns it. The layer's output is the sum of gate z W_O:

        q = query W_Q    k = key W_K    v = value W_V    z = softmax(scale q kᵀ + mask) v

    W_Q (C, d_k), W_K (C, d_k), W_V (C, d_v) and W_O (d_v, C) are detached views of the layer's parameters. Heads
    of a group share W_K and W_V. scale and gate are numbers; the gate is 1 unless the layer has head_gates.

    parts: {"W_Q": [(parameter, index), …], "W_K": …, "W_V": …, "W_O": …}. parameter[index] is the matrix, transposed;
    a second pair gives its bias, if there is one. An index is a tuple of slices."""

    def __init__(self, layer, number):
        if number not in range(layer.num_heads):
            raise ValueError(_unknown_head_message([number], layer.num_heads))
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


def check_heads(heads, nh):
    """Return heads as a set of ints. Raises ValueError for a number that is not in 0 … nh - 1."""
    heads = {operator.index(h) for h in heads}
    unknown = sorted(heads.difference(range(nh)))
    if unknown:
        raise ValueError(_unknown_head_message(unknown, nh))
    return heads


def _unknown_head_message(numbers, nh):
    """The message for head numbers that a layer of nh heads does not have. numbers: a list."""
    return f"there is no head {', '.join(map(str, numbers))}: this layer has {nh}, from 0 on"


class HeadAccess(Module):
    """The part of MultiheadAttention that gives access to single heads: their matrices, hooks on them, and loading."""

    _head_hooks: dict = {}

    def head(self, i: int) -> Head:
        """Return head number i, whose matrices are views of the layer's parameters: see Head. Raises ValueError if
        there is none."""
        return Head(self, i)

    def register_head_hook(self, point: str, hook: Callable[[Any, Tensor], Any], last: bool = False) -> Handle:
        """Call hook(layer, x) in each forward with the value x named `point`. The hook returns None, or a Tensor like x
        that replaces it. Return a handle whose remove() takes off this hook.

        point is one of each head's values: "q" (B, nh, T, d_k); "k" (B, nh, S, d_k) and "v" (B, nh, S, d_v), repeated
        for each head that reads them; "qk" = q kᵀ (B, nh, T, S), before scale and mask; "pattern" (B, nh, T, S), before
        dropout; "z" (B, nh, T, d_v), before head_gates. Or it is a value that all heads share: the arguments of forward
        "x_q" (B, T, C), "x_k" and "x_v" (B, S, C), or its output "y" (B, T, C).

        last: call the hook after all hooks without `last`. It then sees the value that the forward uses, and must
        return None. A layer with head hooks runs with impl="batched", whatever its impl is."""
        points = *POINTS, *INPUTS, OUTPUT
        if point not in points:
            raise ValueError(f"there is no {point!r} in attention: there are {', '.join(points)}")
        if "_head_hooks" not in self.__dict__:
            self._head_hooks = {}
        return Handle(self._head_hooks, (last, point, hook))

    def _run_hooks(self, point, x):
        """Run the hooks on this point, and return x, or the Tensor with which they replace it."""
        for last, hooked_point, hook in sorted(self._head_hooks.values(), key=lambda entry: entry[0]):
            replacement = hook(self, x) if hooked_point == point else None
            if replacement is not None:
                name = getattr(hook, "__name__", hook)
                if last:
                    raise TypeError(f"hook {name} on {point!r} has last=True and must return None, not a value")
                check_same_kind(f"the return value of hook {name} on {point!r}", replacement, x)
                x = replacement
        return x

    def load_from_heads(
        self,
        W_Q: Sequence[Tensor | Array],
        W_K: Sequence[Tensor | Array],
        W_V: Sequence[Tensor | Array],
        W_O: Tensor | Array,
    ) -> Self:
        """Take the matrices of single heads, Tensors or arrays: W_Q nh times (C, d_k), W_K nkv times (C, d_k), W_V nkv
        times (C, d_v), and W_O (nh·d_v, C). Return self.

        The number and size of heads follow from these, so make the optimizer afterwards. Biases become 0, head_gates
        None."""
        _load(self, W_Q, W_K, W_V, W_O)
        return self


def _load(layer, W_Q, W_K, W_V, W_O):
    """Replace the parameters and sizes of a layer: see load_from_heads. Raises ValueError for shapes that do not
    fit."""
    about = dict(dtype=layer.out_proj.weight.dtype, device=layer.out_proj.weight.device)
    W_Q, W_K, W_V = ([as_tensor(W, **about).detach() for W in Ws] for Ws in (W_Q, W_K, W_V))
    W_O, nh, nkv = as_tensor(W_O, **about).detach(), len(W_Q), len(W_K)
    if nh == 0 or nkv == 0 or nh % nkv or len(W_V) != nkv:
        raise ValueError(
            f"got {nh} W_Q, {nkv} W_K and {len(W_V)} W_V: there must be as many W_V as W_K, and their number must "
            f"divide the number of W_Q"
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
    """Return x as a Parameter that requires a gradient if `old` does."""
    return Parameter(x, requires_grad=old.requires_grad)
