"""Exchange with NumPy and Python: arrays, copies, pickles, numbers. Nothing here drops a gradient silently."""

import copy
from typing import TYPE_CHECKING, Any

from ..autograd import GraphError, Storage
from ..backend import get as get_backend
from ..base.capturing import refuse
from ..ops import public as ops
from ..typing import Array
from .attributes import Attributes

_OPERATORS = {  # NumPy's functions behind array + Tensor, array < Tensor, …: the method of Tensor
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__", "remainder": "__rmod__", "power": "__rpow__", "matmul": "__rmatmul__",
    "bitwise_and": "__rand__", "bitwise_or": "__ror__", "equal": "__eq__", "not_equal": "__ne__",
    "less": "__gt__", "less_equal": "__ge__", "greater": "__lt__", "greater_equal": "__le__",
}  # fmt: skip


class Interop(Attributes):
    """The part of Tensor that NumPy, copy, pickle and Python's number protocols call."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy calls this for `array * Tensor`, `array *= Tensor` and np.exp(Tensor). The first two become the
        operator of the Tensor. The third raises TypeError, because its result would be outside the graph."""
        array, *others = inputs
        is_operator = method == "__call__" and ufunc.__name__ in _OPERATORS and not isinstance(array, Interop)
        if is_operator and (not options or options.get("out", (None,))[0] is array):  # *= has out=(array,)
            return getattr(others[0], _OPERATORS[ufunc.__name__])(array)
        name = f"np.{ufunc.__name__}" if method == "__call__" else f"np.{ufunc.__name__}.{method}"
        has_function = method == "__call__" and ufunc.__name__ in ops.__dict__
        instead = f"mg.{ufunc.__name__}(x), or " if has_function else ""
        raise TypeError(f"{name} of a Tensor would lose the graph: write {instead}x.detach().numpy()")

    if TYPE_CHECKING:

        def _host(self) -> Any: ...

    def numpy(self, *, force: bool = False) -> Array:
        """Return a copy of the values as a NumPy array of the same shape and dtype. Raises GraphError if the tensor
        requires a gradient, which would be lost: detach() first, or pass force=True."""
        if self.node is not None and not force:
            raise GraphError("numpy() would drop the gradient of a tensor that requires one; use .detach().numpy()")
        values: Array = self._host()
        return values.copy() if self.device == "cpu" else values  # from a GPU, they are a copy already

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a Tensor shares no memory with NumPy: its values are copied")
        return self.numpy().astype(dtype or self.dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle and copy.copy keep: the values, the device and requires_grad, but not the graph or .grad.

        Tensors that share memory no longer share it afterwards. Loading raises backend.DeviceError if the device is
        missing: for another machine, pickle x.cpu() or save a checkpoint."""
        self._check_leaf()
        return _rebuild, (type(self), self._host().copy(), self.requires_grad, str(self.device))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a leaf on the same device with memory, .grad and attributes of its own, but no hooks.

        Tensors that share memory no longer share it afterwards. A Tensor that is copied twice in one deepcopy stays
        one Tensor."""
        refuse("copying a Tensor with deepcopy")
        self._check_leaf()
        backend = self.storage.backend
        y: Any = object.__new__(type(self))
        memo[id(self)] = y
        y.array, y.storage, y.node = backend.copy(self.array), Storage(backend), None
        if self.requires_grad:
            y.requires_grad_()
            y.grad = copy.deepcopy(self.grad, memo)
        for name, value in getattr(self, "__dict__", {}).items():  # a subclass may have attributes
            setattr(y, name, copy.deepcopy(value, memo))
        return y

    def _check_leaf(self) -> None:
        """Raise GraphError unless this is a leaf."""
        if not self.is_leaf:
            raise GraphError("only leaves can be pickled or deep-copied; detach() first")

    def item(self) -> float:
        """Return the one element as a Python float, int or bool. Raises ValueError for another number of elements."""
        if self.numel() != 1:
            raise ValueError(f"item() needs a tensor of one element, this has shape {self.shape}")
        number: float = self._host().item()
        return number

    def tolist(self) -> Any:
        """Return nested lists of Python numbers, as deep as there are dims; a number if there are none."""
        return self._host().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __format__(self, spec: str) -> str:
        """Format a tensor without dims as its number: f"{loss:.4f}". Others have no formats: f"{x}" is str(x)."""
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


def _rebuild(cls: Any, array: Any, requires_grad: bool, device: str = "cpu") -> Any:
    """Return the Tensor of a pickle."""
    backend = get_backend(device)
    x = cls._wrap(backend.from_numpy(array), Storage(backend))
    return x.requires_grad_(requires_grad) if type(x) is cls else cls(x, requires_grad)
