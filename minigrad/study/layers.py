"""The attention layers of a model: finding them by name, their weights head by head, and looking without a trace."""

from contextlib import contextmanager

import numpy as np

from ..autograd import no_grad
from ..errors import UnknownName, unknown
from ..nn import MultiheadAttention
from ..tensor import Tensor


def attention_layers(model, names=None):
    """{path: layer} of the MultiheadAttention layers in a Module; of those named, by path or by number, if any are.

    The model itself may be one, at path "". Raises ValueError if there are none, KeyError for an unknown name."""
    found = {path: m for path, m in model.named_modules() if isinstance(m, MultiheadAttention)}
    if not found:
        raise ValueError(f"{type(model).__name__} has no nn.MultiheadAttention in it")
    if names is None:
        return found
    paths = [path_of(name, found) for name in several(names)]
    if not paths:
        raise ValueError("no layers are named: None means all")
    return {path: found[path] for path in found if path in paths}


def several(names):
    """Names or numbers as a list; one alone is a list of it."""
    return [names] if isinstance(names, (str, int)) else list(names)


def path_of(name, layers):
    """The path of a layer, given that or its number, the first being 0."""
    if name in layers:
        return name
    if name in range(len(layers)):
        return list(layers)[name]
    raise UnknownName(unknown("attention layer", name, layers))


def head_weights(layer, head):
    """W_Q (C, d_k), W_K (kdim, d_k), W_V (vdim, d_v) and W_O (d_v, C) of a head of a MultiheadAttention, float64.

    Heads of a group share W_K and W_V. W_O is times the head's gate, if the layer has gates."""
    if head not in range(layer.num_heads):
        raise ValueError(f"there is no head {head}: this layer has {layer.num_heads}, from 0 on")
    of_group = layer.kv_of_head[head]
    parts = zip(layer._weights(), (head, of_group, of_group), layer._sizes)
    W_Q, W_K, W_V = (as_float64(W)[i * d : (i + 1) * d].T for W, i, d in parts)
    W_O = as_float64(layer.out_proj.weight)[:, head * layer.d_v : (head + 1) * layer.d_v].T
    return W_Q, W_K, W_V, W_O if layer.head_gates is None else W_O * layer.head_gates[head].item()


def as_float64(x):
    """A Tensor or an array as an array."""
    return np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, np.float64)


@contextmanager
def undisturbed(model):
    """Inside, the model computes without dropout and without gradients; after it, modules train or not as before."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with no_grad():
            yield
    finally:
        for module, training in before.items():
            module.training = training
