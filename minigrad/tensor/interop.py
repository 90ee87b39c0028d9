"""Tensors and other libraries: NumPy, DLPack, copies, Python numbers. Nothing here drops a gradient silently."""

import copy
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from .. import backend
from ..autograd import GraphError, Storage
from ..base.recording import refuse, thread
from ..ops import public as ops
from ..typing import Array
from .attributes import Attributes


class Interop(Attributes):
    """The part of Tensor that faces outwards."""

    __slots__ = ()
    __array_priority__ = 1000.0

    def _host(self, shares: bool = False) -> Any:
        """The values; shares: the caller hands out their memory."""
        if thread.recorder is not None:
            return thread.recorder.read(self, shares)
        return self.storage.backend.to_numpy(self.array)

    def numpy(self, *, force: bool = False) -> Array:
        """The NumPy array, of the same shape and dtype, sharing memory on a CPU. Raises GraphError if the tensor
        requires a gradient, which would be lost: detach() first, or say force=True."""
        if self.node is not None and not force:
            raise GraphError("numpy() would drop the gradient of a tensor that requires one; use .detach().numpy()")
        shared: Array = self._host(shares=True)
        return shared

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's ufuncs on Tensors become our ops, so that ndarray * Tensor never loses the graph."""
        ours = _UFUNCS.get(ufunc.__name__)
        if ours is None or method != "__call__" or kwargs:
            raise TypeError(
                f"np.{ufunc.__name__} ({method}) has no minigrad counterpart, and would lose the graph; "
                f"use Tensor methods, or .detach().numpy()"
            )
        return ours(*inputs)

    def __dlpack__(self, **kwargs: Any) -> Any:
        if self.node is not None:
            raise GraphError("__dlpack__ would drop the gradient of a tensor that requires one; use .detach()")
        refuse("sharing memory by DLPack")
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> Any:
        """What other libraries read to share a GPU tensor's memory. Missing on the CPU, and on a tensor that requires a
        gradient, which would be lost."""
        if self.node is not None:
            raise AttributeError("this tensor requires a gradient, which sharing would drop; use .detach()")
        refuse("sharing memory with other libraries")
        return self.array.__cuda_array_interface__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickling and copy.copy keep the values, the device and whether a gradient is required, but not the graph or
        .grad. Tensors that share memory no longer share it afterwards. Where a pickle's device is missing, loading it
        raises backend.DeviceError: a checkpoint, or .cpu() before, serves for another machine."""
        self._check_leaf()
        return _rebuilt, (type(self), self._host().copy(), self.requires_grad, str(self.device))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A leaf on the same device with memory, .grad and attributes of its own, but no hooks. Tensors that share
        memory and are copied in one call share it afterwards. That works on a CPU only; elsewhere it raises, as copies
        that no longer share memory would compute something else."""
        refuse("copying a Tensor with deepcopy")
        self._check_leaf()
        key = id(self.storage)  # nothing else is stored in memo under a storage's id
        copies = memo.get(key)
        if copies is None:
            copies = memo[key] = _Copies(self.storage)
        y: Any = object.__new__(type(self))
        memo[id(self)] = y
        y.storage, y.node = copies.storage, None
        copies.add(self.array, y)
        if self.requires_grad:
            y.requires_grad_()
            y.grad = copy.deepcopy(self.grad, memo)
        for name, value in getattr(self, "__dict__", {}).items():  # of a subclass
            setattr(y, name, copy.deepcopy(value, memo))
        return y

    def _check_leaf(self) -> None:
        if not self.is_leaf:
            raise GraphError("only leaves can be pickled or deep-copied; detach() first")

    def item(self) -> float:
        """The one element as a Python number: a float, an int or a bool. Raises ValueError if there are more."""
        if self.numel() != 1:
            raise ValueError(f"item() needs a tensor of one element, this has shape {self.shape}")
        number: float = self._host().item()
        return number

    def tolist(self) -> Any:
        """Nested lists of Python numbers, as deep as there are dims; of a Tensor of no dims, a number."""
        return self._host().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __format__(self, spec: str) -> str:
        """A tensor of no dims as its number, f"{loss:.4f}"; of others, f"{x}" is str(x), and a format raises."""
        if self.ndim == 0:
            return format(self.item(), spec)
        if spec:
            raise TypeError(
                f"a format such as {spec!r} is for tensors of no dims, not of shape {self.shape}; use .item()"
            )
        return str(self)

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError(f"only an int tensor can be an index, not {self.dtype}")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ValueError(f"the truth of a tensor of shape {self.shape} is ambiguous; use .any() or .all()")
        return bool(self.item())


class _Copies:
    """The copies of all tensors that lie in one storage. They share a buffer, as far apart as the originals."""

    def __init__(self, storage: Storage):
        self.source = storage  # kept alive, so that no other storage gets its id
        self.storage = Storage(storage.backend)
        self.members: list[tuple[Any, Any]] = []  # (original array, the Tensor that is its copy)
        self.low = self.high = 0  # the addresses that the buffer is a copy of

    def add(self, array: Any, y: Any) -> None:
        """Give y a copy of array, and move the earlier copies if the buffer has to grow for it."""
        if not isinstance(array, np.ndarray):
            if self.members:
                raise GraphError(
                    f"deepcopy of tensors that share memory, of shapes {self.members[0][0].shape} and {array.shape}, "
                    f"works on a CPU only; clone() one of them, or copy the module or list on the CPU"
                )
            y.array = self.storage.backend.copy(array)
        elif not self.members:
            self._allot([array])
            y.array = self._placed(array)
        else:
            low, high = byte_bounds(array) if array.size else (self.low, self.low)
            if low < self.low or high > self.high:
                self._allot([_owner(member) for member, _ in self.members] + [_owner(array)])
                for member, other in self.members:
                    other.array = self._placed(member)
            y.array = self._placed(array)
        self.members.append((array, y))

    def _allot(self, arrays: list[Any]) -> None:
        bounds = [byte_bounds(a) for a in arrays if a.size] or [(0, 0)]
        self.low, self.high = min(low for low, _ in bounds), max(high for _, high in bounds)
        self.buffer = np.zeros(self.high - self.low, np.uint8)

    def _placed(self, array: Any) -> Any:
        """A copy of array at its place in the buffer."""
        if not array.size:
            return array.copy()
        start = array.__array_interface__["data"][0] - self.low
        placed = np.ndarray(array.shape, array.dtype, self.buffer, start, array.strides)
        placed[...] = array
        repeated = any(n > 1 and not stride for n, stride in zip(array.shape, array.strides))
        placed.flags.writeable = array.flags.writeable or not repeated  # the result of an expand stays read-only
        return placed


def _owner(array: Any) -> Any:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _rebuilt(cls: Any, array: Any, requires_grad: bool, device: str = "cpu") -> Any:
    on = backend.get(device)
    x = cls._wrap(on.from_numpy(array), Storage(on))
    return x.requires_grad_(requires_grad) if type(x) is cls else cls(x, requires_grad)


_UFUNCS: dict[str, Any] = {
    "add": ops.add, "subtract": ops.sub, "multiply": ops.mul, "divide": ops.div, "power": ops.pow, "negative": ops.neg,
    "absolute": ops.abs, "exp": ops.exp, "log": ops.log, "log1p": ops.log1p, "sqrt": ops.sqrt, "square": ops.square,
    "sin": ops.sin, "cos": ops.cos, "tanh": ops.tanh, "sign": ops.sign, "floor": ops.floor, "maximum": ops.maximum,
    "minimum": ops.minimum, "floor_divide": ops.floor_divide, "remainder": ops.remainder, "matmul": ops.matmul,
    "equal": ops.eq, "not_equal": ops.ne, "less": ops.lt, "less_equal": ops.le, "greater": ops.gt,
    "greater_equal": ops.ge, "logical_and": ops.logical_and, "logical_or": ops.logical_or,
    "logical_not": ops.logical_not, "isnan": ops.isnan, "isinf": ops.isinf, "isfinite": ops.isfinite,
}  # fmt: skip
