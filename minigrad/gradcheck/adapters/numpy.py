"""A pair of NumPy functions: f(*inputs), and vjp(dy, *inputs) -> the gradients of the inputs."""

import inspect
from functools import partial

import numpy as np

from ..subject import aligned, flat
from .foreign import Framework, as_tensor


class Pair(Framework):
    array = "NumPy array"
    imports = "import numpy as np"
    kinds = (np.ndarray,)

    def __init__(self, vjp):
        self.vjp = vjp

    def entered(self, x):
        if x.dtype.kind == "c":
            raise TypeError("gradcheck: complex inputs are not checked; pass real and imaginary part instead")
        if x.dtype.kind == "f":
            return as_tensor(x if x.dtype.itemsize <= 8 else x.astype(np.float64))
        return as_tensor(x) if x.dtype in (np.int64, np.int32, np.bool_) else x

    def takes(self, name):
        return any(name == q.name or q.kind is q.VAR_KEYWORD for q in inspect.signature(self.vjp).parameters.values())

    def function(self, call, label):
        return Function(call, label, partial(self.pulled, call))

    def pulled(self, call, dys, arrays):
        """What the user's vjp returns."""
        args, keywords = call.inputs(arrays)
        found = aligned(self.vjp(dys[0] if len(dys) == 1 else tuple(dys), *args, **keywords), (args, keywords))
        return [found.get(id(a), np.zeros_like(a)) for a in arrays]

    def outputs(self, y):
        found = [np.require(x, requirements="W") for x in flat(y, of=(np.ndarray, np.floating, float))]  # JAX's are not
        return [x for x in found if x.dtype.kind == "f"]

    def constant(self, array):
        return array

    def literal(self, x, most):
        if not x.size:
            return f"np.zeros({x.shape}, np.{x.dtype.name})"
        return f"np.array({x.tolist()!r}, dtype=np.{x.dtype.name})" if x.size <= most else None


class Function:
    """call(arrays) -> outputs, and of(dys, arrays) -> the gradients of all arrays."""

    def __init__(self, call, label, of):
        self.call, self.label, self.of = call, label, of

    def vjp(self, arrays, needs):
        ys = self.call(arrays)
        return ys, lambda dys, wanted: self.pulled(arrays, ys, dys, wanted)

    def pulled(self, arrays, ys, dys, wanted):
        found = self.of([np.zeros_like(y) if dy is None else dy for y, dy in zip(ys, dys)], arrays)
        return [np.require(g, a.dtype, "W") for g, a, want in zip(found, arrays, wanted) if want]

    def gradient(self, n, wanted, label):
        def call(arrays):
            return self.pulled(arrays[:n], self.call(arrays[:n]), arrays[n:], wanted)

        return _Last(call, label, None)


class _Last(Function):
    """A gradient that has no gradient."""

    def pulled(self, arrays, ys, dys, wanted):
        raise TypeError(
            "gradcheck: only PyTorch's functions and ours are checked at order 2: this backward has none of its own"
        )
