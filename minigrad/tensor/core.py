"""Tensor: an array, the storage it lies in, and its place in the graph. Its methods apply ops.

Names, arguments and shapes follow PyTorch; NumPy's axis= and keepdims= are accepted for dim= and keepdim=.
"""

import builtins
import operator
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .. import backend, dtypes
from ..autograd import Node, Storage
from ..typing import Array, DTypeLike, Operand
from .drawn import Drawn
from .gradients import Gradients
from .interop import Interop
from .more import More

if TYPE_CHECKING:
    from ..ops import signatures as ops  # not .. import ops, in which Pyright takes softmax and matmul for the modules
else:
    from .. import ops


class Tensor(More, Gradients, Drawn, Interop):
    """An n-dimensional array that remembers how it was computed, so that gradients can flow back through it.

    Made by minigrad.tensor, zeros, randn, … and by operations. `array` is the raw array of its backend. The version
    checks do not notice a change made to that directly, so change tensors in place through their own methods.

    Methods

    What it is, in another dtype or place, or like another: T, bool, byte, char, constant, cpu, cuda, device, dim,
        double, dtype, element_size, expand_as, float, half, int, is_complex, is_contiguous, is_cuda, is_floating_point,
        long, mT, nbytes, ndim, ndimension, nelement, new_empty, new_full, new_ones, new_tensor, new_zeros, numel,
        pin_memory, reshape_as, shape, short, size, stride, to, type, type_as, view_as, where, zeros_like
    Element by element: abs, absolute, acos, add, addcdiv, addcmul, asin, atan, atan2, ceil, cos, cosh, div, divide,
        erf, erfc, exp, exp2, expm1, floor, floor_divide, fmod, frac, lerp, log, log10, log1p, log2, logaddexp, logit,
        mul, multiply, nan_to_num, neg, negative, pow, reciprocal, relu, remainder, round, rsqrt, sigmoid, sign, sin,
        sinh, sqrt, square, sub, subtract, tan, tanh, true_divide, trunc
    Comparing and choosing: allclose, clamp, clip, eq, equal, ge, greater, greater_equal, gt, isclose, isfinite, isinf,
        isnan, le, less, less_equal, logical_and, logical_not, logical_or, logical_xor, lt, maximum, minimum, ne,
        not_equal
    Along dims: all, amax, amin, any, argmax, argmin, argsort, bincount, count_nonzero, cumprod, cumsum, log_softmax,
        logcumsumexp, logsumexp, max, mean, median, min, norm, prod, softmax, sort, std, sum, topk, unique, var
    Shapes: alias, broadcast_to, chunk, clone, contiguous, diag, diag_embed, diagonal, expand, flatten, flip, fliplr,
        flipud, moveaxis, movedim, narrow, pad, permute, ravel, repeat, repeat_interleave, reshape, roll, rot90, select,
        split, split_with_sizes, squeeze, swapaxes, swapdims, t, tensor_split, tile, trace, transpose, unbind,
        unflatten, unsqueeze, view
    Indexing: argwhere, gather, index_add, index_copy, index_fill, index_select, masked_fill, masked_select, nonzero,
        scatter, scatter_add, take, take_along_dim, tril, triu
    Products: addmm, addmv, baddbmm, bmm, dot, inner, matmul, mm, mv, outer
    Gradients: backward, data, detach, detach_, grad, grad_fn, is_leaf, op, register_hook, requires_grad,
        requires_grad_, retain_grad
    As Python's and NumPy's: item, numpy, tolist
    In place: abs_, add_, addcdiv_, addcmul_, ceil_, clamp_, clip_, copy_, cos_, div_, exp_, fill_, fill_diagonal_,
        floor_, floor_divide_, index_add_, index_copy_, index_fill_, lerp_, log_, masked_fill_, mul_, neg_, normal_,
        pow_, reciprocal_, relu_, remainder_, round_, rsqrt_, scatter_, scatter_add_, sigmoid_, sign_, sin_, sqrt_,
        square_, sub_, tanh_, tril_, triu_, uniform_, zero_
    """

    __slots__ = ()

    @staticmethod
    def _wrap(array: Any, storage: Storage, node: Node | None = None) -> "Tensor":
        x = object.__new__(Tensor)
        x.array, x.storage, x.node = array, storage, node
        return x

    def __init__(self, *args: Any, **kwargs: Any):
        raise TypeError("make a Tensor with minigrad.tensor(data), zeros, ones, randn, …")

    def constant(self, data: Any) -> "Tensor":
        """A copy of data, numbers or an array, as a Tensor beside this one: same device, no gradient. Its dtype is
        NumPy's for it. Raises TypeError for a dtype that minigrad has not."""
        array = np.array(data)
        dtypes.as_dtype(array.dtype)
        on = self.storage.backend
        return Tensor._wrap(on.from_numpy(array), Storage(on))

    # ------------------------------------------------------------------------------------------------- what it is

    if not TYPE_CHECKING:  # Value says their types
        shape = property(operator.attrgetter("array.shape"), doc="The sizes of the dims, a tuple of ints.")
        dtype = property(operator.attrgetter("array.dtype"), doc="The kind of the elements, as minigrad.float32.")
        ndim = property(operator.attrgetter("array.ndim"), doc="The number of dims.")
        device = property(operator.attrgetter("storage.backend.device"), doc="'cpu' or 'cuda', a minigrad.device.")

    @property
    def T(self) -> "Tensor":
        """All dims reversed, (n, m) -> (m, n); a view."""
        return ops.permute(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> "Tensor":
        """The last two dims exchanged, (…, n, m) -> (…, m, n); a view."""
        return ops.transpose(self, -1, -2)

    @overload
    def size(self) -> tuple[builtins.int, ...]: ...
    @overload
    def size(self, dim: builtins.int) -> builtins.int: ...
    def size(self, dim: builtins.int | None = None) -> tuple[builtins.int, ...] | builtins.int:
        """The shape, or the size of one dim. Raises IndexError for a dim that there is not."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> builtins.int:
        """The number of dims."""
        return self.ndim

    def numel(self) -> builtins.int:
        """Number of elements."""
        return int(self.array.size)

    def is_floating_point(self) -> builtins.bool:
        """True for float16, float32 and float64."""
        return bool(self.dtype.kind == "f")

    def is_contiguous(self) -> builtins.bool:
        """True if the elements lie in memory row by row, without gaps."""
        return bool(self.array.flags.c_contiguous)

    def __len__(self) -> builtins.int:
        if self.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0])

    def __repr__(self) -> str:
        body = np.array2string(self._host(), separator=", ", prefix="tensor(", threshold=1000, precision=4)
        extra = "" if self.dtype in (dtypes.float32, dtypes.int64, dtypes.bool_) else f", dtype={self.dtype}"
        extra += "" if self.device == "cpu" else f", device={self.device!r}"
        extra += f", op={self.op.name}" if self.op is not None else ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({body}{extra})"

    __hash__ = object.__hash__  # by identity, as == compares elements

    # -------------------------------------------------------------------------------------------------- dtype, device

    def to(
        self,
        *targets: "DTypeLike | Tensor | builtins.bool | None",
        dtype: DTypeLike | None = None,
        device: str | None = None,
        non_blocking: builtins.bool = False,
        copy: builtins.bool = False,
    ) -> "Tensor":
        """This tensor in a dtype and/or on a device: to("cuda"), to(minigrad.float64), to(device, dtype), to(other).

        Returns the tensor itself if nothing changes, or with copy=True a copy. Gradients flow through, between float
        dtypes and between devices. Copying to the CPU waits for the device's work; copying to a device does not,
        non_blocking or not."""
        flags = [target for target in targets if isinstance(target, builtins.bool)]  # non_blocking, copy
        copy = copy or (len(flags) > 1 and flags[1])
        rest: Any = targets[: len(targets) - len(flags)]
        for target in rest:
            if isinstance(target, Tensor):
                dtype, device = target.dtype, target.device
            elif isinstance(target, str) and target.startswith(("cpu", "cuda")):
                device = backend.device(target)
            else:
                dtype = target
        x = self.clone() if copy else self
        if device is not None and backend.device(device) != self.device:
            x = ops.Transfer.apply(x, to=backend.get(device))
        if dtype is None or (dtype := dtypes.as_dtype(dtype)) == self.dtype:
            return x
        cast: Tensor = ops.Cast.apply(x, dtype=dtype)
        return cast

    def cpu(self) -> "Tensor":
        """On the CPU: itself if it is there. Gradients flow through."""
        return self.to("cpu")

    def cuda(self, non_blocking: builtins.bool = False) -> "Tensor":
        """On the GPU: itself if it is there. Gradients flow through."""
        return self.to("cuda")

    def pin_memory(self) -> "Tensor":
        """Itself. PyTorch copies it to page-locked memory, from which a GPU reads sooner; here that changes nothing."""
        return self

    def double(self) -> "Tensor":
        """As float64."""
        return self.to(dtypes.float64)

    def float(self) -> "Tensor":
        """As float32."""
        return self.to(dtypes.float32)

    def half(self) -> "Tensor":
        """As float16."""
        return self.to(dtypes.float16)

    def long(self) -> "Tensor":
        """As int64; floats are cut off. No gradient."""
        return self.to(dtypes.int64)

    def int(self) -> "Tensor":
        """As int32; floats are cut off. No gradient."""
        return self.to(dtypes.int32)

    def short(self) -> "Tensor":
        """As int16; floats are cut off. No gradient."""
        return self.to(dtypes.int16)

    def char(self) -> "Tensor":
        """As int8; floats are cut off. No gradient."""
        return self.to(dtypes.int8)

    def byte(self) -> "Tensor":
        """As uint8; floats are cut off. No gradient."""
        return self.to(dtypes.uint8)

    def bool(self) -> "Tensor":
        """As bool: True where it is not 0. No gradient."""
        return self.to(dtypes.bool_)

    # ------------------------------------------------------------------------------------------------------- operators

    __add__ = __radd__ = ops.add
    __mul__ = __rmul__ = ops.mul
    __sub__, __truediv__, __pow__, __matmul__ = ops.sub, ops.div, ops.pow, ops.matmul
    __neg__, __abs__, __getitem__ = ops.neg, ops.abs, ops.getitem
    __floordiv__, __mod__ = ops.floor_divide, ops.remainder
    __lt__, __le__, __gt__, __ge__ = ops.lt, ops.le, ops.gt, ops.ge

    def __and__(self, other: Operand) -> "Tensor":
        return ops.logical_and(*_bools("&", self, other))

    def __or__(self, other: Operand) -> "Tensor":
        return ops.logical_or(*_bools("|", self, other))

    def __xor__(self, other: Operand) -> "Tensor":
        return ops.logical_xor(*_bools("^", self, other))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __pos__(self) -> "Tensor":
        return self

    def __invert__(self) -> "Tensor":
        return ops.logical_not(*_bools("~", self))

    def __eq__(self, other: Any) -> "Tensor":  # type: ignore[override]
        return ops.eq(self, other) if isinstance(other, _COMPARABLE) else NotImplemented  # for None: Python decides

    def __ne__(self, other: Any) -> "Tensor":  # type: ignore[override]
        return ops.ne(self, other) if isinstance(other, _COMPARABLE) else NotImplemented

    def __rsub__(self, other: Operand) -> "Tensor":
        return ops.sub(other, self)

    def __rtruediv__(self, other: Operand) -> "Tensor":
        return ops.div(other, self)

    def __rfloordiv__(self, other: Operand) -> "Tensor":
        return ops.floor_divide(other, self)

    def __rmod__(self, other: Operand) -> "Tensor":
        return ops.remainder(other, self)

    def __rpow__(self, other: Operand) -> "Tensor":
        return ops.pow(other, self)

    def __rmatmul__(self, other: Array) -> "Tensor":
        return ops.matmul(other, self)

    # ------------------------------------------------------------------------------------------ ops of the same name

    add, sub, mul, div, pow, neg, abs = ops.add, ops.sub, ops.mul, ops.div, ops.pow, ops.neg, ops.abs
    exp, log, sqrt, rsqrt, sin, cos = ops.exp, ops.log, ops.sqrt, ops.rsqrt, ops.sin, ops.cos
    erf, erfc = ops.erf, ops.erfc
    tanh, sigmoid, relu = ops.tanh, ops.sigmoid, ops.relu
    sign, floor, maximum, minimum, clamp = ops.sign, ops.floor, ops.maximum, ops.minimum, ops.clamp
    eq, ne, lt, le, gt, ge = ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge
    logical_and, logical_or, logical_not = ops.logical_and, ops.logical_or, ops.logical_not
    isnan, isinf, isfinite = ops.isnan, ops.isinf, ops.isfinite
    sum, mean, var, std, prod, max, min = ops.sum, ops.mean, ops.var, ops.std, ops.prod, ops.max, ops.min
    amax, amin, argmax, argmin, any, all = ops.amax, ops.amin, ops.argmax, ops.argmin, ops.any, ops.all
    logsumexp, cumsum, topk, sort, argsort = ops.logsumexp, ops.cumsum, ops.topk, ops.sort, ops.argsort
    softmax, log_softmax = ops.softmax, ops.log_softmax
    reshape, view, flatten, squeeze, unsqueeze = ops.reshape, ops.view, ops.flatten, ops.squeeze, ops.unsqueeze
    transpose, permute, expand, flip, repeat = ops.transpose, ops.permute, ops.expand, ops.flip, ops.repeat
    repeat_interleave, split, chunk, unbind, pad = ops.repeat_interleave, ops.split, ops.chunk, ops.unbind, ops.pad
    alias, clone, contiguous = ops.alias, ops.clone, ops.contiguous
    gather, index_select, masked_fill = ops.gather, ops.index_select, ops.masked_fill
    tril, triu, matmul = ops.tril, ops.triu, ops.matmul

    def where(self, condition: "Tensor", other: Operand) -> "Tensor":
        """self where condition, a bool Tensor, is True, else other; all three broadcast, as mg.where does."""
        return ops.where(condition, self, other)

    def zeros_like(self) -> "Tensor":
        """Zeros of the same shape, dtype and device, without a gradient."""
        on = self.storage.backend
        return Tensor._wrap(on.zeros(self.shape, self.dtype), Storage(on))


def _bools(operator: str, *operands: Any) -> tuple[Any, ...]:
    """The operands, if all are bool. On integers, & | ^ ~ would be bitwise, which minigrad does not have."""
    for x in operands:
        kind = getattr(x, "dtype", type(x).__name__)
        if kind != "bool":  # a dtype is equal to its name
            raise TypeError(f"{operator} is for bools, got {kind}; for truth use logical_and, logical_or, logical_not")
    return operands


_COMPARABLE: Any = (Tensor, np.ndarray, np.generic, bool, int, float)
