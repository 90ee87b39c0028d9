"""Tensors and other libraries: NumPy, copies, Python numbers. Nothing here drops a gradient silently."""

import copy
from typing import TYPE_CHECKING, Any

from .. import backend
from ..autograd import GraphError, Storage
from ..base.recording import refuse
from ..typing import Array
from .attributes import Attributes


class Interop(Attributes):
    """The part of Tensor that faces outwards."""

    __slots__ = ()
    __array_ufunc__ = None  # array * Tensor is Tensor.__rmul__; np.exp(x), which would lose the graph, a TypeError

    if TYPE_CHECKING:

        def _host(self) -> Any: ...

    def numpy(self, *, force: bool = False) -> Array:
        """A copy of the values as a NumPy array, of the same shape and dtype. Raises GraphError if the tensor requires
        a gradient, which would be lost: detach() first, or say force=True."""
        if self.node is not None and not force:
            raise GraphError("numpy() would drop the gradient of a tensor that requires one; use .detach().numpy()")
        values: Array = self._host()
        return values.copy() if self.device == "cpu" else values  # a GPU's have been copied to the host

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a Tensor shares no memory with NumPy: its values are copied")
        return self.numpy().astype(dtype or self.dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickling and copy.copy keep the values, the device and whether a gradient is required, but not the graph or
        .grad. Tensors that share memory no longer share it afterwards. Where a pickle's device is missing, loading it
        raises backend.DeviceError: a checkpoint, or .cpu() before, serves for another machine."""
        self._check_leaf()
        return _rebuilt, (type(self), self._host().copy(), self.requires_grad, str(self.device))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A leaf on the same device with memory, .grad and attributes of its own, but no hooks. Tensors that share
        memory no longer share it afterwards; what is one Tensor stays one."""
        refuse("copying a Tensor with deepcopy")
        self._check_leaf()
        on = self.storage.backend
        y: Any = object.__new__(type(self))
        memo[id(self)] = y
        y.array, y.storage, y.node = on.copy(self.array), Storage(on), None
        if self.requires_grad:
            y.requires_grad_()
            y.grad = copy.deepcopy(self.grad, memo)
        for name, value in getattr(self, "__dict__", {}).items():  # a subclass may have attributes
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
            raise TypeError(f"the format {spec!r} is for tensors without dims, and this one has shape {self.shape}")
        return str(self)

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError(f"only an int tensor can be an index, not {self.dtype}")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ValueError(f"the truth of a tensor of shape {self.shape} is ambiguous; use .any() or .all()")
        return bool(self.item())


def _rebuilt(cls: Any, array: Any, requires_grad: bool, device: str = "cpu") -> Any:
    on = backend.get(device)
    x = cls._wrap(on.from_numpy(array), Storage(on))
    return x.requires_grad_(requires_grad) if type(x) is cls else cls(x, requires_grad)
