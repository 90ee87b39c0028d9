"""Tensors and other libraries: NumPy, DLPack, pickling, Python numbers. Nothing here drops a gradient silently."""

import numpy as np

from . import backend, ops
from .autograd import GraphError, Storage, Value


class Interop(Value):
    """The part of Tensor that faces outwards."""

    __slots__ = ()
    __array_priority__ = 1000.0

    def _host(self):
        return self.storage.backend.to_numpy(self.array)

    def numpy(self):
        """The NumPy array, sharing memory on a CPU. Raises if that would drop a gradient: detach() first."""
        if self.node is not None:
            raise GraphError("numpy() would drop the gradient of a tensor that requires one; use .detach().numpy()")
        return self._host()

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        """NumPy's ufuncs on Tensors become our ops, so that ndarray * Tensor never loses the graph."""
        ours = _UFUNCS.get(ufunc.__name__)
        if ours is None or method != "__call__" or kwargs:
            raise TypeError(
                f"np.{ufunc.__name__} ({method}) has no minigrad counterpart, and would lose the graph; "
                f"use Tensor methods, or .detach().numpy()"
            )
        return ours(*inputs)

    def __dlpack__(self, **kwargs):
        if self.node is not None:
            raise GraphError("__dlpack__ would drop the gradient of a tensor that requires one; use .detach()")
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    @property
    def __cuda_array_interface__(self):
        """What other libraries read to share a GPU tensor's memory; missing on the CPU, and where it would drop a
        gradient."""
        if self.node is not None:
            raise AttributeError("this tensor requires a gradient, which sharing would drop; use .detach()")
        return self.array.__cuda_array_interface__

    def __reduce__(self):
        """Pickling and copying keep the values and whether a gradient is required, not the graph."""
        if not self.is_leaf:
            raise GraphError("only leaves can be pickled or deep-copied; detach() first")
        return _rebuilt, (type(self), self._host().copy(), self.requires_grad)

    def item(self):
        """The one element as a Python number."""
        if self.numel() != 1:
            raise ValueError(f"item() needs a tensor of one element, this has shape {self.shape}")
        return self._host().item()

    def tolist(self):
        """Nested lists of Python numbers."""
        return self._host().tolist()

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __index__(self):
        if self.dtype.kind not in "iu":
            raise TypeError(f"only an int tensor can be an index, not {self.dtype}")
        return int(self.item())

    def __bool__(self):
        if self.numel() != 1:
            raise ValueError(f"the truth of a tensor of shape {self.shape} is ambiguous; use .any() or .all()")
        return bool(self.item())

    def __iter__(self):
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))


def _rebuilt(cls, array, requires_grad):
    x = cls._wrap(array, Storage(backend.cpu()))
    return x.requires_grad_(requires_grad) if type(x) is cls else cls(x, requires_grad)


_UFUNCS = {
    "add": ops.add, "subtract": ops.sub, "multiply": ops.mul, "divide": ops.div, "power": ops.pow, "negative": ops.neg,
    "absolute": ops.abs, "exp": ops.exp, "log": ops.log, "sqrt": ops.sqrt, "sin": ops.sin, "cos": ops.cos,
    "tanh": ops.tanh, "sign": ops.sign, "floor": ops.floor, "maximum": ops.maximum, "minimum": ops.minimum,
    "matmul": ops.matmul, "equal": ops.eq, "not_equal": ops.ne, "less": ops.lt, "less_equal": ops.le,
    "greater": ops.gt, "greater_equal": ops.ge, "logical_and": ops.logical_and, "logical_or": ops.logical_or,
    "logical_xor": ops.logical_xor, "logical_not": ops.logical_not, "isnan": ops.isnan, "isinf": ops.isinf,
    "isfinite": ops.isfinite,
}  # fmt: skip
