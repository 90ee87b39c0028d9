"""Tensors of somebody's own engine, as base/engines.py says what they are.

micrograd's Value is one, and so is a class that somebody writes to learn. Inputs are copies of the user's with other
data. The engine's own walk is what is checked: each gradient is a new forward, and one `backward()` from its end."""

import copy
import inspect
import numbers
from functools import partial

import numpy as np

from ...base.engines import Own
from ..subject import flat
from .foreign import Framework, as_tensor
from .numpy import Function


class Engine(Framework):
    array = "tensor of your engine"
    imports = "import numpy as np"
    kinds = (Own, np.ndarray)

    def __init__(self, example):
        self.example = example  # of which inputs are copies, with its flags, such as requires_grad

    def entered(self, x):
        if isinstance(x, np.ndarray):  # indices vary in size with the rest
            return as_tensor(x) if x.dtype in (np.int64, np.int32, np.bool_) else x
        return as_tensor(np.array(x.data, np.float64))  # a copy, as the engine may replace or change x.data

    def made(self, array):
        """A leaf of the engine. Raises TypeError where it has numbers only, and this is an array. Indices stay."""
        if array.dtype.kind != "f":
            return array
        x, scalar = copy.copy(self.example), not isinstance(self.example.data, np.ndarray)
        if scalar and np.ndim(array):
            raise TypeError(f"{type(x).__name__} holds numbers, not arrays of shape {np.shape(array)}")
        x.data = float(array) if scalar else np.array(array)
        grad, x.grad = x.grad, None
        if isinstance(grad, (np.ndarray, numbers.Real)):  # the engine adds to it
            x.grad = np.zeros_like(x.data) if isinstance(grad, np.ndarray) else 0.0
        return x

    def function(self, call, label):
        def values(arrays):
            return [np.array(y.data, np.float64) for y in call([self.made(a) for a in arrays])]

        return Function(values, label, partial(self.pulled, call))

    def outputs(self, y):
        return flat(y, of=Own)

    def constant(self, array):
        return self.made(array)

    def host(self, x):
        return np.asarray(x.data if isinstance(x, Own) else x)

    def pulled(self, call, dys, arrays):
        """What backward() leaves in the inputs: one forward and one backward for each output, and their sum."""
        total: list = [np.zeros_like(a) for a in arrays]
        for i, dy in enumerate(dys):
            xs = [self.made(a) for a in arrays]
            factor = _backward(call(xs)[i], dy, self.made)
            arrived = [getattr(x, "grad", None) for x in xs]  # indices have none
            total = [g if a is None else g + factor * self.host(a) for g, a in zip(total, arrived)]
        return total


def _backward(y, dy, made):
    """Start backward at y with the gradient dy. Returns the number by which the inputs' gradients are to be multiplied:
    a backward() without arguments starts with 1, and derivatives are linear in what it starts with."""
    if np.size(dy) == 1:
        y.backward()
        return float(np.reshape(dy, ()))
    arguments = list(inspect.signature(y.backward).parameters.values())[:1]
    if arguments and not isinstance(arguments[0].default, bool):  # it takes a gradient, and not retain_graph=False
        y.backward(dy)
    elif hasattr(y, "sum"):
        (y * made(dy)).sum().backward()
    else:
        raise TypeError(
            f"gradcheck: {type(y).__name__}.backward() must start with a gradient of shape {np.shape(y.data)}: let it "
            "take one, or let the function return a number, or add a method sum()"
        )
    return 1.0
