"""The attention layers of a model, and the weights of each head."""

import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import enable_grad
from ..dtypes import float64
from ..nn import MultiheadAttention
from ..nn.positions import rotary
from ..nn.utils import evaluating
from ..tensor import Tensor, grad, tensor, zeros
from ..typing import Array
from .names import path_of

if TYPE_CHECKING:
    from ..nn.module import Module

WEIGHTS = "W_Q", "W_K", "W_V", "W_O"  # a head's matrices
_locks: "weakref.WeakKeyDictionary[Module, Any]" = weakref.WeakKeyDictionary()


def alone(model: "Module") -> Any:
    """Return a lock for a with-block in which this thread alone studies a Module: hooks and gates belong to the model,
    and would mix the values of several threads. Blocks of one thread nest. Raises RuntimeError if another thread is in
    such a block."""
    lock = _locks.setdefault(model, threading.RLock())
    if not lock.acquire(blocking=False):
        raise RuntimeError(
            f"another thread is studying this {type(model).__name__}: wait for it, or give each thread its own "
            "copy.deepcopy(model)"
        )
    lock.release()
    return lock  # it is taken by the with-statement in one call into C, which no interrupt divides


def attention_layers(
    model: "Module", names: Iterable[int | str] | int | str | None = None
) -> dict[str, MultiheadAttention]:
    """Return {path: layer} of the MultiheadAttention layers in a Module, in order. names: only these, by path or
    number.

    If the model itself is one, its path is "". Raises ValueError if there are none, KeyError for an unknown name."""
    layers = {path: m for path, m in model.named_modules() if isinstance(m, MultiheadAttention)}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no nn.MultiheadAttention in it")
    if names is None:
        return layers
    paths = [path_of(name, layers) for name in as_list(names)]
    if not paths:
        raise ValueError("no layers are named: None means all")
    return {path: layers[path] for path in layers if path in paths}


def numbers_of_heads(layers):
    """Return {path: numbers of the layer's heads} of {path: MultiheadAttention}."""
    return {path: range(layer.num_heads) for path, layer in layers.items()}


def as_list(names):
    """Return names or numbers as a list. A single one becomes a list of length 1."""
    return [names] if isinstance(names, (str, int, np.integer)) else list(names)


def head_weights(layer: MultiheadAttention, head: int) -> tuple[Array, Array, Array, Array]:
    """Return W_Q (C, d_k), W_K (C, d_k), W_V (C, d_v) and W_O (d_v, C) of a head, float64.

    Heads of a group share W_K and W_V. If the layer has head_gates, W_O is multiplied by the head's gate. Raises
    ValueError for an unknown head. nn.MultiheadAttention.head returns the same as Tensors, without the gate."""
    h = layer.head(head)
    W_Q, W_K, W_V, W_O = map(as_float64, (h.W_Q, h.W_K, h.W_V, h.W_O))
    return W_Q, W_K, W_V, W_O * h.gate


def before_rotary(dy):
    """Return dx of y = rotary(x), from dy (B, n, T, d): float64. Positions are 0, 1, …"""
    x = zeros(*dy.shape, dtype=float64, requires_grad=True)
    with enable_grad():
        y = rotary(x)
    return grad(y, x, tensor(dy, dtype=float64))[0].numpy()


def only_prediction(losses: Tensor, p: int) -> Tensor:
    """Return weights for losses (B, P): 1 for prediction p of each sequence, 0 for the others."""
    is_p = np.arange(losses.shape[1]) == p
    return losses.constant(np.broadcast_to(is_p, losses.shape)).to(losses.dtype)


def as_float64(x):
    """Return a Tensor or an array as an array of float64."""
    return np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, np.float64)


class undisturbed(evaluating):
    """Within the with-block, the model is in eval mode and no graph is recorded."""

    def settings(self, modes):
        return super().settings(modes) | {"grad": False}
