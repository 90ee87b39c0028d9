"""Functions that make tensors: from data, filled, or in sequence. sampling.py makes them at random."""

from collections.abc import Callable
from reprlib import repr as shown
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd import GraphError, Storage, is_grad_enabled
from ..autograd.arguments import check_arguments, kind_of
from ..backend import get as get_backend
from ..backend.numpy import Numpy
from ..dtypes import float32
from ..ops.args import shape_of
from ..typing import Array, DType, DTypeLike, Number, Size
from .core import Tensor


def _finish(array: Any, device: str, requires_grad: bool) -> Tensor:
    """Return a Tensor on a device with the values of an array on the host."""
    backend = get_backend(device)
    return from_backend(backend.from_numpy(array), backend, requires_grad)


def from_backend(array: Any, backend: Numpy, requires_grad: bool = False) -> Tensor:
    """Return a Tensor around an array of a backend. They share memory."""
    x = Tensor._wrap(array, Storage(backend))
    return x if requires_grad is False else x.requires_grad_(requires_grad)


def tensor(data: Any, dtype: DTypeLike | None = None, device: str = "cpu", requires_grad: bool = False) -> Tensor:
    """Return a Tensor with a copy of data: numbers, nested lists, arrays, Tensors, and whatever np.array takes.

    dtype None: an array keeps its dtype; Python's floats become float32, ints int64, bools bool. Raises OverflowError
    for a Python number that the integer dtype does not hold, TypeError for data that are not real numbers, and
    ValueError for lists of different lengths."""
    if isinstance(data, Tensor):
        data = data.detach()._host()
    has_dtype = hasattr(data, "__array__")
    if not has_dtype and isinstance(data, (list, tuple)):
        data = _without_tensors(data)
        has_dtype = _first_has_dtype(data)
    try:
        array = np.array(dtypes.plain("tensor", data) if isinstance(data, np.ndarray) else data)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError("tensor: the lists have different lengths; pad them to one length") from None
    if dtype is None and not has_dtype:
        dtype = {"f": dtypes.DEFAULT_FLOAT, "u": dtypes.int64}.get(array.dtype.kind)
    if array.dtype == object:
        others = [x for x in array.flat if not isinstance(x, (int, float))]
        if others:
            raise TypeError(f"tensor: {shown(others[0])} is not a number")
    if not has_dtype:
        dtypes.check_data("tensor", dtypes.as_dtype(dtype or dtypes.int64), array)
    wanted = dtypes.as_dtype(dtype or array.dtype)
    return _finish(array.astype(wanted, copy=False), device, requires_grad)


def _without_tensors(data: Any, depth: int = 0) -> Any:
    """Return nested lists with an array in place of each Tensor. Raises GraphError for a Tensor with a gradient."""
    if isinstance(data, (list, tuple)):
        if depth > 64:  # the most dims that NumPy has
            raise ValueError("tensor: lists are nested more than 64 deep; does one contain itself?")
        return [_without_tensors(item, depth + 1) for item in data]
    if not isinstance(data, (Tensor, np.ndarray)):
        return data
    if isinstance(data, np.ndarray):
        return dtypes.plain("tensor", data)
    if data.requires_grad and is_grad_enabled():
        raise GraphError("tensor() of a list would drop the gradients of its Tensors: write minigrad.stack(list)")
    return data.detach()._host()


def _first_has_dtype(data: Any) -> bool:
    """Return True if the first element of nested lists has a dtype: an array, or a scalar of NumPy's."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(data, (np.ndarray, np.generic))


def as_tensor(data: Any, dtype: DTypeLike | None = None, device: str = "cpu") -> Tensor:
    """Return data as a Tensor: itself if it is a Tensor of that dtype and device, else a copy, as tensor() makes it."""
    return data.to(device).to(dtype or data.dtype) if isinstance(data, Tensor) else tensor(data, dtype, device)


def from_numpy(array: Array) -> Tensor:
    """Return a Tensor with a copy of a NumPy array, of its shape and dtype."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy needs a NumPy array, got {kind_of(array)}; tensor() takes other data")
    return tensor(array)


def _sizes(name: str, sizes: Any) -> tuple[int, ...]:
    """Return the shape that sizes, f(2, 3) or f((2, 3)), ask for."""
    shape: tuple[int, ...] = shape_of(name, sizes)
    if any(n < 0 for n in shape):
        raise ValueError(f"{name}: sizes must not be negative, got {shape}")
    return shape


@check_arguments
def full(
    size: Size, fill_value: Number, dtype: DTypeLike | None = None, device: str = "cpu", requires_grad: bool = False
) -> Tensor:
    """Return a Tensor of shape `size` filled with a number. dtype None: float32, int64 or bool, as the number is."""
    if not isinstance(fill_value, (int, float)):
        value = dtypes.plain("full", fill_value)
        if value.ndim:
            raise TypeError(f"full: fill_value must be a number, got an array of shape {value.shape}")
        fill_value = value.item()
    if dtype is None:
        dtype = {"b": dtypes.bool_, "i": dtypes.int64, "u": dtypes.int64}.get(np.asarray(fill_value).dtype.kind)
    shape = _sizes("full", (size,))
    dtype = dtypes.as_dtype(dtype or dtypes.DEFAULT_FLOAT)
    dtypes.check_holds("full", dtype, fill_value)
    backend = get_backend(device)
    return from_backend(backend.full(shape, fill_value, dtype), backend, requires_grad)


@check_arguments
def zeros(*size: Size, dtype: DTypeLike = float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
    """Return zeros: zeros(2, 3) or zeros((2, 3)). Raises ValueError for negative sizes."""
    return full(_sizes("zeros", size), 0, dtype, device, requires_grad)


@check_arguments
def ones(*size: Size, dtype: DTypeLike = float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
    """Return ones: ones(2, 3) or ones((2, 3)). Raises ValueError for negative sizes."""
    return full(_sizes("ones", size), 1, dtype, device, requires_grad)


@check_arguments
def empty(*size: Size, dtype: DTypeLike = float32, device: str = "cpu", requires_grad: bool = False) -> Tensor:
    """Return a Tensor with arbitrary values: empty(2, 3) or empty((2, 3)). Raises ValueError for negative sizes."""
    return _finish(np.empty(_sizes("empty", size), dtypes.as_dtype(dtype)), device, requires_grad)


@check_arguments
def full_like(
    input: Tensor, fill_value: Number, dtype: DTypeLike | None = None, device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a Tensor filled with a number, of input's shape; of its dtype and device by default."""
    return full(input.shape, fill_value, dtype or input.dtype, device or input.device, requires_grad)


@check_arguments
def empty_like(
    input: Tensor, dtype: DTypeLike | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Return a Tensor with arbitrary values, of input's shape; of its dtype and device by default."""
    return empty(input.shape, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad)


@check_arguments
def zeros_like(
    input: Tensor, dtype: DTypeLike | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Return zeros of input's shape; of its dtype and device by default."""
    return full_like(input, 0, dtype, device, requires_grad)


@check_arguments
def ones_like(
    input: Tensor, dtype: DTypeLike | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Return ones of input's shape; of its dtype and device by default."""
    return full_like(input, 1, dtype, device, requires_grad)


@check_arguments
def arange(
    start: float | None = None, end: float | None = None, step: float = 1, dtype: DTypeLike | None = None,
    device: str = "cpu", requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the vector start, start + step, … below end; arange(n) and arange(end=n) count from 0. dtype None: int64,
    or float32 if an argument is a float. Raises ValueError for a step of 0."""
    if end is None:
        start, end = None, start
    if end is None:
        raise TypeError("arange needs an end: arange(n) or arange(start, end)")
    start = 0 if start is None else start
    if step == 0:
        raise ValueError("arange: step must not be 0")
    dtypes.check_holds("arange", dtypes.int64, *(v for v in (start, end, step) if isinstance(v, int)))
    if dtype is None:
        dtype = dtypes.DEFAULT_FLOAT if any(isinstance(v, float) for v in (start, end, step)) else dtypes.int64
    backend = get_backend(device)
    return from_backend(backend.arange(start, end, step, dtypes.as_dtype(dtype)), backend, requires_grad)


@check_arguments
def linspace(
    start: float, end: float, steps: int, dtype: DTypeLike = float32, device: str = "cpu", requires_grad: bool = False
) -> Tensor:
    """Return `steps` evenly spaced numbers from start to end, both included: (steps,), computed in float64."""
    return _finish(np.linspace(start, end, steps).astype(dtypes.as_dtype(dtype)), device, requires_grad)


@check_arguments
def eye(
    n: int, m: int | None = None, dtype: DTypeLike = float32, device: str = "cpu", requires_grad: bool = False
) -> Tensor:
    """Return the matrix (n, m), or (n, n) if m is None, with ones on the main diagonal and zeros elsewhere."""
    return _finish(np.eye(n, m, dtype=dtypes.as_dtype(dtype)), device, requires_grad)


@check_arguments
def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Return int64 (…, num_classes) of an int Tensor (…): 1 at the class, else 0. num_classes -1: the largest class +
    1.

    Raises IndexError for a class outside of [0, num_classes)."""
    low, high = (int(end.item()) for end in (input.min(), input.max())) if input.numel() else (0, -1)
    num_classes = high + 1 if num_classes == -1 else num_classes
    if low < 0 or high >= num_classes:
        wrong = f"{low} is negative" if low < 0 else f"{high} is not below {num_classes}"
        raise IndexError(f"one_hot: class {wrong}")
    return (input.unsqueeze(-1) == arange(num_classes, device=input.device)).long()


def _constructor(name: str, dtype: DType) -> Callable[..., Tensor]:
    """Return the function of PyTorch's old form that makes a Tensor of a dtype."""

    def make(*data_or_sizes: Any) -> Tensor:
        if len(data_or_sizes) == 1 and not isinstance(data_or_sizes[0], int | np.integer):
            return tensor(data_or_sizes[0], dtype)
        return empty(*(data_or_sizes or (0,)), dtype=dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""Return a Tensor of {dtype}, in PyTorch's old form: of data, a list or an array; or of sizes,
    ints, with arbitrary values."""
    make.dtype_made = dtype  # type: ignore[attr-defined]
    return make


FloatTensor, DoubleTensor, HalfTensor = (
    _constructor(f"{kind}Tensor", dtype)
    for kind, dtype in (("Float", float32), ("Double", dtypes.float64), ("Half", dtypes.float16))
)
LongTensor, IntTensor, ByteTensor, BoolTensor = (
    _constructor(f"{kind}Tensor", dtype)
    for kind, dtype in (
        ("Long", dtypes.int64), ("Int", dtypes.int32), ("Byte", dtypes.uint8), ("Bool", dtypes.bool_)
    )
)  # fmt: skip
Tensor._old_form = FloatTensor
