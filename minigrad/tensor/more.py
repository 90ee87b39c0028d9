"""The methods that are composites: what a user of torch types beside the ops of core.py."""

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .. import backend, dtypes
from ..autograd import Storage, Value
from ..base.missing import instead
from ..ops.args import shape_of
from ..typing import DTypeLike, Number, Size

if TYPE_CHECKING:
    from ..ops import signatures as ops  # see core.py
    from .core import Tensor
else:
    from .. import ops


class More(Value):
    """The part of Tensor that ops/composites/ gives it, and torch's ways of asking and of making one like this."""

    __slots__ = ()

    # functions of one number, rounding
    expm1, log1p, log2, log10, exp2 = ops.expm1, ops.log1p, ops.log2, ops.log10, ops.exp2
    tan, asin, acos, atan, atan2 = ops.tan, ops.asin, ops.acos, ops.atan, ops.atan2
    sinh, cosh, square, reciprocal, logit = ops.sinh, ops.cosh, ops.square, ops.reciprocal, ops.logit
    ceil, trunc, frac, round, nan_to_num = ops.ceil, ops.trunc, ops.frac, ops.round, ops.nan_to_num
    floor_divide, remainder, fmod, logaddexp = ops.floor_divide, ops.remainder, ops.fmod, ops.logaddexp
    lerp, addcmul, addcdiv, logical_xor = ops.lerp, ops.addcmul, ops.addcdiv, ops.logical_xor
    isclose, allclose, equal = ops.isclose, ops.allclose, ops.equal
    # second names
    absolute, negative, subtract, multiply = ops.abs, ops.neg, ops.sub, ops.mul
    divide = true_divide = ops.div
    clip = ops.clamp
    not_equal, greater, greater_equal, less, less_equal = ops.ne, ops.gt, ops.ge, ops.lt, ops.le
    # over dims
    norm, count_nonzero, cumprod, logcumsumexp = ops.norm, ops.count_nonzero, ops.cumprod, ops.logcumsumexp
    median, unique, bincount = ops.median, ops.unique, ops.bincount
    # shapes
    t, movedim, moveaxis, narrow, roll = ops.t, ops.movedim, ops.movedim, ops.narrow, ops.roll
    swapaxes = swapdims = ops.transpose
    diag, diagonal, diag_embed, trace, rot90 = ops.diag, ops.diagonal, ops.diag_embed, ops.trace, ops.rot90
    fliplr, flipud, tile, unflatten, ravel = ops.fliplr, ops.flipud, ops.tile, ops.unflatten, ops.ravel
    broadcast_to, split_with_sizes, tensor_split = ops.broadcast_to, ops.split_with_sizes, ops.tensor_split
    select = ops.select
    # places
    nonzero, argwhere, masked_select, take = ops.nonzero, ops.argwhere, ops.masked_select, ops.take
    take_along_dim, scatter, scatter_add = ops.take_along_dim, ops.scatter, ops.scatter_add
    index_add, index_copy, index_fill = ops.index_add, ops.index_copy, ops.index_fill
    # products
    mm, bmm, mv, dot, outer, inner = ops.mm, ops.bmm, ops.mv, ops.dot, ops.outer, ops.inner
    addmm, addmv, baddbmm = ops.addmm, ops.addmv, ops.baddbmm

    # --------------------------------------------------------------------------------------------------- like another

    def expand_as(self: Any, other: Value) -> "Tensor":
        """expand(other.shape)."""
        return ops.expand(self, other.shape)

    def view_as(self: Any, other: Value) -> "Tensor":
        """view(other.shape)."""
        return ops.view(self, other.shape)

    def reshape_as(self: Any, other: Value) -> "Tensor":
        """reshape(other.shape)."""
        return ops.reshape(self, other.shape)

    def type_as(self: Any, other: Value) -> "Tensor":
        """This tensor in other's dtype and on its device."""
        y: Tensor = self.to(other)
        return y

    @overload
    def type(self, dtype: DTypeLike) -> "Tensor": ...
    @overload
    def type(self) -> str: ...
    def type(self: Any, dtype: DTypeLike | None = None) -> "Tensor | str":
        """This tensor in a dtype; or the name of its own, such as 'float32', which y.type(x.type()) takes."""
        y: Tensor | str = str(self.dtype) if dtype is None else self.to(dtype)
        return y

    def new_full(
        self: Any,
        size: Size,
        fill_value: Number,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> "Tensor":
        """One value in a shape, with this tensor's dtype and device, or others."""
        on = self.storage.backend if device is None else backend.get(device)
        shape, dtype = shape_of("new_full", (size,)), dtypes.as_dtype(dtype or self.dtype)
        dtypes.check_holds("new_full", dtype, fill_value)
        x = self._wrap(on.full(shape, fill_value, dtype), Storage(on))
        y: Tensor = x.requires_grad_(requires_grad)
        return y

    def new_zeros(self: Any, *sizes: Size, size: Size | None = None, **options: Any) -> "Tensor":
        """Zeros of a shape, with this tensor's dtype and device. options: others, and requires_grad."""
        y: Tensor = self.new_full(shape_of("new_zeros", sizes, size), 0, **options)
        return y

    def new_ones(self: Any, *sizes: Size, size: Size | None = None, **options: Any) -> "Tensor":
        """Ones of a shape, with this tensor's dtype and device. options: others, and requires_grad."""
        y: Tensor = self.new_full(shape_of("new_ones", sizes, size), 1, **options)
        return y

    def new_empty(self: Any, *sizes: Size, size: Size | None = None, **options: Any) -> "Tensor":
        """A tensor of a shape for values to be written into, with this tensor's dtype and device, or others."""
        y: Tensor = self.new_zeros(*sizes, size=size, **options)
        return y

    def new_tensor(
        self: Any, data: Any, dtype: DTypeLike | None = None, device: str | None = None, requires_grad: bool = False
    ) -> "Tensor":
        """A copy of data, with this tensor's dtype and device, or others. Raises OverflowError as tensor() does."""
        dtype = dtypes.as_dtype(dtype or self.dtype)
        array = data.detach().cpu().numpy() if isinstance(data, Value) else np.array(data)
        if not isinstance(data, (Value, np.ndarray, np.generic)):
            dtypes.check_data("new_tensor", dtype, array)
            array = array.astype(dtype) if array.dtype.kind == "u" else array  # NumPy's for ints from 2**63 on
        y: Tensor = self.constant(array).to(dtype).to(device or self.device).requires_grad_(requires_grad)
        return y

    # ------------------------------------------------------------------------------------------------------- asked of

    @property
    def is_cuda(self) -> bool:
        """True on the GPU."""
        return bool(self.device == "cuda")

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.numel() * self.dtype.itemsize)

    def nelement(self) -> int:
        """Number of elements."""
        return int(self.numel())

    def ndimension(self) -> int:
        """Number of dims."""
        return int(self.ndim)

    def element_size(self) -> int:
        """Bytes of one element."""
        return int(self.dtype.itemsize)

    @overload
    def stride(self) -> tuple[int, ...]: ...
    @overload
    def stride(self, dim: int) -> int: ...
    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """How many elements of memory lie between neighbours along each dim, or along one."""
        steps = tuple(n // self.dtype.itemsize for n in self.array.strides)
        return steps if dim is None else steps[dim]

    def is_complex(self) -> bool:
        """False: minigrad has no complex tensors."""
        return False

    if not TYPE_CHECKING:  # to mypy, what is not here does not exist

        def __getattr__(self, name):
            """Raises the AttributeError for a name of PyTorch's that minigrad has not, with what to use instead."""
            why = None if name.startswith("_") else instead(name.rstrip("_"))
            if why is None:
                return object.__getattribute__(self, name)  # which raises what it has raised before
            raise AttributeError(f"'Tensor' object has no attribute {name!r}: {why}")

    def __contains__(self: Any, value: Any) -> bool:
        return bool((self == value).any())
