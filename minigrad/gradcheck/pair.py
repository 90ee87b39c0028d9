"""A pair of functions of NumPy arrays, f(*inputs) and vjp(dy, *inputs), as one function of Tensors: whatever computes
a gradient, in any framework, is checked as such a pair."""

import inspect
from typing import Any

import numpy as np

from .. import backend
from ..autograd import Op, is_grad_enabled
from ..dtypes import plain
from ..tensor import from_backend, from_numpy
from .subject import gradients_of, host, map_tensors, no_floats_message, tensors_in


class Pair:
    """fn, a function of arrays, whose gradient is what vjp returns, as a function of Tensors."""

    def __init__(self, fn, vjp):
        self.__wrapped__, self.vjp = fn, vjp
        self.label = getattr(fn, "__name__", type(fn).__name__)

    def __call__(self, *args, **keywords):
        tree = args, keywords
        tensors = list({id(x): x for x in tensors_in(tree)}.values())  # fn(x, x) gets one array twice
        return VjpOp.apply(*tensors, call=_Call(self, tree, tensors))

    def vjp_takes(self, name):
        """True if vjp has an option of this name too."""
        return any(name == q.name or q.kind is q.VAR_KEYWORD for q in inspect.signature(self.vjp).parameters.values())


def share_memory(x):
    """Return a Tensor that shares memory and strides with the array x. An array whose dtype minigrad lacks stays an
    array, which is a constant. Raises TypeError for complex numbers."""
    if x.dtype.kind == "c":
        raise TypeError("gradcheck: complex inputs are not checked; pass real and imaginary part instead")
    if x.dtype.kind != "f" and x.dtype not in (np.int64, np.int32, np.bool_):
        return x
    return from_backend(plain("gradcheck", x if x.dtype.itemsize <= 8 else x.astype(np.float64)), backend.get("cpu"))


class _Call:
    """One call of a Pair, to be repeated with other arrays for its Tensors."""

    def __init__(self, pair, tree, tensors):
        self.pair, self.tree, self.tensors = pair, tree, tensors

    def inputs(self, arrays):
        """Return (args, keywords) for the user's functions, with these arrays in place of the Tensors."""
        at = {id(x): array for x, array in zip(self.tensors, arrays)}
        return map_tensors(self.tree, lambda x: at[id(x)])

    def outputs(self, arrays):
        """The float arrays that fn returns."""
        args, keywords = self.inputs(arrays)
        y = self.pair.__wrapped__(*args, **keywords)
        outputs = tensors_in(y, of=(np.ndarray, np.floating, float))
        arrays = [np.require(x, requirements="W") for x in outputs]  # JAX's arrays are read-only
        floats = tuple(x for x in arrays if x.dtype.kind == "f")
        if not floats:
            raise TypeError(no_floats_message(y, "NumPy array"))
        return floats

    def gradients(self, dys, arrays):
        """The gradients of the arrays: what vjp returns for them, or zeros."""
        args, keywords = self.inputs(arrays)
        gradients = gradients_of(self.pair.vjp(dys[0] if len(dys) == 1 else dys, *args, **keywords), (args, keywords))
        return [np.require(gradients.get(id(a), np.zeros_like(a)), a.dtype, "W") for a in arrays]


class VjpOp(Op, abstract=True):
    """ys = fn(*arrays) of a call, whose backward is the call's vjp."""

    call: Any

    def forward(self, *arrays, call):
        self.name = call.pair.label
        self.save_inputs(*arrays)
        return call.outputs(arrays)

    def backward(self, *dys):
        if is_grad_enabled():
            raise TypeError("gradcheck: a vjp of NumPy arrays has no derivative, so it is checked at order 1 only")
        gradients = self.call.gradients(tuple(map(host, dys)), [host(x) for x in self.saved_inputs()])
        return tuple(from_numpy(g) if needed else None for g, needed in zip(gradients, self.needs))


VjpOp.primitive = False  # it runs anyone's code
