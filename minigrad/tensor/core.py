"""Tensor: an array, the storage it lies in, and its place in the graph. Its methods apply ops.

Names, arguments and shapes follow PyTorch; NumPy's axis= and keepdims= are accepted for dim= and keepdim=.
"""

import builtins
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .. import autograd, dtypes
from ..autograd import GraphError, Handle, Node, Op, Storage, Value
from ..autograd.arguments import check_arguments
from ..autograd.keywords import accepts_keywords_of_pytorch
from ..backend import device as as_device
from ..backend import get as get_backend
from ..base.capturing import thread
from ..base.missing import MissingAttribute, replacements
from ..ops import elementwise, index, movement
from ..ops import public as ops
from ..ops.args import shape_of
from ..typing import DTypeLike, Number, Operand, Size
from ..typing import T as V  # within Tensor, T is the transposed
from .attributes import Attributes
from .inplace import InPlace
from .interop import Interop


class Gradients(Attributes):
    """The part of Tensor that concerns the graph."""

    __slots__ = ()

    @property
    def is_leaf(self) -> bool:
        """True if no recorded op made it, such as data, a parameter, or a result under no_grad."""
        return self.node is None or self.node.op is None

    @property
    def op(self) -> Op | None:
        """The op that made it, or None for a leaf."""
        return None if self.node is None else self.node.op

    grad_fn = op

    @property
    def requires_grad(self) -> bool:
        """True if backward() computes its gradient. Can be set on leaves of floats."""
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @check_arguments
    def requires_grad_(self: V, requires_grad: bool = True) -> V:
        """Make this leaf require a gradient, or not, which drops its .grad. Returns itself. Raises TypeError unless it
        holds floats, and GraphError unless it is a leaf."""
        if not self.is_leaf:
            if requires_grad:
                return self
            raise GraphError("only a leaf can stop requiring a gradient; use detach()")
        if not requires_grad:
            self.node = None
            self.storage.holds_leaf = False
        elif self.node is None:
            if self.dtype.kind != "f":
                raise TypeError(f"only floating-point tensors can require a gradient, not {self.dtype}")
            self.node = Node(None, 0, self.shape, self.dtype, self.device)
            self.storage.holds_leaf = True
        return self

    @property
    def grad(self) -> "Tensor | None":
        """The gradient that backward() has accumulated: of leaves, and after retain_grad(); else None."""
        if self.node is None:
            return None
        grad: Tensor | None = self.node.grad
        op = self.node.op
        if grad is None and op is not None and not self.node.retain:
            text = f"grad of a result of {op.name} is None: only leaves keep one; call retain_grad() before backward()"
            warnings.warn(text, stacklevel=2)
        return grad

    @grad.setter
    def grad(self, value: "Tensor | None") -> None:
        if value is not None:
            if self.node is None:
                raise GraphError("a tensor that requires no gradient cannot hold one; requires_grad_() it first")
            check_same_kind(".grad", value, self)
        if self.node is not None:
            self.node.grad = value

    def retain_grad(self) -> None:
        """Keep .grad after backward(), although this is not a leaf."""
        self._node_for("retain_grad").retain_grad()

    def register_hook(self, hook: "Callable[[Tensor], Tensor | None]") -> Handle:
        """Make backward() call hook(gradient) once the whole gradient of this tensor, of its shape, is known.

        The hook may return another gradient in its place. Returns a handle whose remove() removes this hook. Raises
        GraphError if this tensor requires no gradient."""
        return self._node_for("register_hook").add_hook(hook)

    def _node_for(self, what: str) -> Node:
        if self.node is None:
            raise GraphError(f"{what}: this tensor requires no gradient")
        return self.node

    @check_arguments
    def backward(
        self,
        gradient: Value | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Value | Iterable[Value] | None = None,
    ) -> None:
        """Add d(self)/d(leaf), weighted by `gradient`, to the .grad of every leaf.

        gradient: a Tensor of this shape and dtype; not needed if this has one element. retain_graph: keep what ops
        saved, for another backward. create_graph: make the gradients differentiable. inputs: add to the .grad of these
        only.

        Raises GraphError if this requires no gradient, if its graph has been freed, or if a value that an op saved has
        been changed in place since."""
        root, cotangent = self._root(gradient)
        inputs = [inputs] if isinstance(inputs, Value) else inputs
        nodes = None if inputs is None else nodes_of("backward", dict.fromkeys(inputs))
        gradients = autograd.backward([root], [cotangent], nodes, retain_graph, create_graph)
        for node, g in zip(nodes or (), gradients or ()):
            if g is not None:
                node.accumulate(g)

    def _root(self, gradient: Value | None) -> tuple[Node, Value]:
        """Return (node, gradient) that a backward walk begins with."""
        if self.node is None:
            raise GraphError(
                "backward from a tensor that requires no gradient: none of what it was computed from does (say "
                "requires_grad=True, or make it an nn.Parameter), or it was computed under no_grad()"
            )
        if gradient is None:
            if self.numel() != 1:
                raise GraphError(
                    f"backward from a tensor of shape {self.shape} needs a `gradient` of that shape; usually you want "
                    f"the backward of one number: loss.sum() or loss.mean()"
                )
            backend = self.storage.backend
            gradient = self._wrap(backend.full(self.shape, 1, self.dtype), Storage(backend))
        check_same_kind("`gradient`", gradient, self)
        return self.node, gradient

    def detach(self) -> "Tensor":
        """Return a tensor with the same memory outside the graph. Both share the version counter: a backward notices if
        either was changed in place."""
        return Tensor._wrap(self.array, self.storage)

    @property
    def data(self) -> "Tensor":
        """detach(), which may be changed in place by values that require a gradient: such a change is never recorded.

        Assigning to it replaces the values by those of a tensor of the same shape, dtype and device."""
        x = self.detach()
        x._is_data = True
        return x

    @data.setter
    def data(self, value: "Tensor") -> None:
        check_same_kind(".data", value, self)
        if value.array is not self.array:
            self.storage.changed()
            self._become(value if value.is_contiguous() else value.detach().clone())  # optimizers need compact memory


def _reflect(function: Any) -> Callable[[V, Operand], V]:
    """Return the method that calls function(other, self)."""
    return lambda self, other: function(other, self)


class Tensor(Gradients, InPlace, Interop):
    """An n-dimensional array that remembers how it was computed, so that gradients can flow back through it.

    minigrad.tensor, zeros, randn, … and operations make one. `array` is the raw array of its backend. Change a Tensor
    through its methods only: the version counter does not see a write to `array`.
    """

    __slots__ = ()

    @staticmethod
    def _wrap(array: Any, storage: Storage, node: Node | None = None) -> "Tensor":
        x = object.__new__(Tensor)
        x.array, x.storage, x.node = array, storage, node
        if thread.session is not None:
            thread.session.tensor_created(x)
        return x

    def _host(self) -> Any:
        """The values as an array on the host. On a CPU it is the tensor's own memory: read it at once, keep no
        reference."""
        if thread.session is not None:
            return thread.session.read_values(self)
        return self.storage.backend.to_numpy(self.array)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if hasattr(Tensor, name)]

    _old_form: Callable[..., "Tensor"]  # FloatTensor, which creation.py sets

    def __new__(cls, *data_or_sizes: Any) -> Any:
        """Return FloatTensor(*data_or_sizes), as in PyTorch; tensor(data) and empty(*sizes) are plainer. Raises
        TypeError for a subclass, which makes its instances itself."""
        if cls is not Tensor:
            raise TypeError(f"{cls.__name__} must define __new__; minigrad.tensor(data), zeros, randn, … make a Tensor")
        return Tensor._old_form(*data_or_sizes)

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    __add__ = __radd__ = elementwise.plus
    __mul__ = __rmul__ = ops.mul
    __sub__, __truediv__, __pow__, __matmul__ = elementwise.minus, ops.div, ops.pow, ops.matmul
    __neg__, __abs__, __getitem__ = ops.neg, ops.abs, index.getitem
    __floordiv__, __mod__ = ops.floor_divide, ops.remainder
    __lt__, __le__, __gt__, __ge__ = ops.lt, ops.le, ops.gt, ops.ge

    __and__ = __rand__ = ops.bitwise_and
    __or__ = __ror__ = ops.bitwise_or
    __xor__ = __rxor__ = ops.bitwise_xor
    __invert__ = ops.bitwise_not

    def __pos__(self) -> "Tensor":
        return self

    def __eq__(self, other: Any) -> "Tensor":  # type: ignore[override]
        return ops.eq(self, other) if isinstance(other, _COMPARABLE) else NotImplemented  # x == None is Python's

    def __ne__(self, other: Any) -> "Tensor":  # type: ignore[override]
        return ops.ne(self, other) if isinstance(other, _COMPARABLE) else NotImplemented

    __rsub__, __rtruediv__, __rpow__ = _reflect(elementwise.minus), _reflect(ops.div), _reflect(ops.pow)
    __rfloordiv__, __rmod__ = _reflect(ops.floor_divide), _reflect(ops.remainder)
    __rmatmul__ = _reflect(ops.matmul)
    __hash__ = object.__hash__  # identity, since == compares elements

    @property
    def T(self) -> "Tensor":
        """All dims reversed, (n, m) -> (m, n); a view."""
        return ops.permute(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> "Tensor":
        """The last two dims exchanged, (…, n, m) -> (…, m, n); a view."""
        return ops.transpose(self, -1, -2)

    def __iter__(self) -> "Iterator[Tensor]":
        """The slices along dim 0, as views."""
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(ops.unbind(self, 0))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    add, sub, mul, div, pow, neg, abs = ops.add, ops.sub, ops.mul, ops.div, ops.pow, ops.neg, ops.abs
    absolute, clip, prod, mm = ops.absolute, ops.clip, ops.prod, ops.mm
    exp, log, log2, log10, log1p, sqrt, rsqrt = ops.exp, ops.log, ops.log2, ops.log10, ops.log1p, ops.sqrt, ops.rsqrt
    sin, cos, erf, erfc, tanh, sigmoid, relu = ops.sin, ops.cos, ops.erf, ops.erfc, ops.tanh, ops.sigmoid, ops.relu
    sign, floor, ceil, round, trunc = ops.sign, ops.floor, ops.ceil, ops.round, ops.trunc
    floor_divide, remainder, lerp = ops.floor_divide, ops.remainder, ops.lerp
    addcmul, addcdiv = ops.addcmul, ops.addcdiv
    maximum, minimum, clamp, square, reciprocal = ops.maximum, ops.minimum, ops.clamp, ops.square, ops.reciprocal
    eq, ne, lt, le, gt, ge = ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge
    logical_and, logical_or, logical_not = ops.logical_and, ops.logical_or, ops.logical_not
    bitwise_and, bitwise_or, bitwise_xor = ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor
    bitwise_not = ops.bitwise_not
    isnan, isinf, isfinite, equal, allclose = ops.isnan, ops.isinf, ops.isfinite, ops.equal, ops.allclose
    sum, mean, var, std, norm = ops.sum, ops.mean, ops.var, ops.std, ops.norm
    max, min, amax, amin, argmax, argmin = ops.max, ops.min, ops.amax, ops.amin, ops.argmax, ops.argmin
    any, all, cumsum, cumprod = ops.any, ops.all, ops.cumsum, ops.cumprod
    sort, argsort, topk = ops.sort, ops.argsort, ops.topk
    softmax, log_softmax, logsumexp = ops.softmax, ops.log_softmax, ops.logsumexp
    reshape, view, flatten, squeeze, unsqueeze = ops.reshape, movement.view, ops.flatten, ops.squeeze, ops.unsqueeze
    transpose, t, permute, expand, flip = ops.transpose, ops.t, ops.permute, movement.expand, ops.flip
    repeat, repeat_interleave, roll, pad = movement.repeat, ops.repeat_interleave, ops.roll, movement.pad
    split, chunk, unbind = ops.split, ops.chunk, ops.unbind
    alias, clone, contiguous = movement.alias, ops.clone, movement.contiguous
    gather, scatter, scatter_add, masked_fill = ops.gather, ops.scatter, ops.scatter_add, ops.masked_fill
    tril, triu, diagonal, nonzero = ops.tril, ops.triu, ops.diagonal, ops.nonzero
    index_select, index_add, index_fill = ops.index_select, ops.index_add, ops.index_fill
    narrow, matmul, mv, dot, bmm, outer = ops.narrow, ops.matmul, ops.mv, ops.dot, ops.bmm, ops.outer

    def where(self, condition: "Tensor", other: Operand) -> "Tensor":
        """self where condition, a bool Tensor, is True, else other; all three broadcast, as mg.where does."""
        return ops.where(condition, self, other)

    def constant(self, data: Any) -> "Tensor":
        """Return a copy of data, numbers or an array, as a Tensor on this one's device, without a gradient. NumPy
        infers its dtype. Raises TypeError for a dtype that minigrad lacks."""
        array = np.array(dtypes.plain("constant", data), order="C")
        dtypes.as_dtype(array.dtype)
        backend = self.storage.backend
        return Tensor._wrap(backend.from_numpy(array), Storage(backend))

    def __repr__(self) -> str:
        body = np.array2string(self._host(), separator=", ", prefix="tensor(", threshold=1000, precision=4)
        extra = "" if self.dtype in (dtypes.float32, dtypes.int64, dtypes.bool_) else f", dtype={self.dtype}"
        extra += "" if self.device == "cpu" else f", device={self.device!r}"
        extra += f", op={self.op.name}" if self.op is not None else ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({body}{extra})"

    @accepts_keywords_of_pytorch
    def to(
        self,
        *targets: "DTypeLike | Tensor | None",
        dtype: DTypeLike | None = None,
        device: str | None = None,
        non_blocking: builtins.bool = False,
        copy: builtins.bool = False,
    ) -> "Tensor":
        """Return this tensor in a dtype, on a device, or both: to("cuda"), to(mg.float64), to(device, dtype),
        to(other).

        Returns the tensor itself if nothing changes, or with copy=True a copy. Gradients flow through, between float
        dtypes and between devices. Copying to the CPU waits for the GPU's work; copying to the GPU never waits,
        whatever non_blocking says."""
        for target in targets:
            if isinstance(target, Tensor):
                dtype, device = target.dtype, target.device
            elif isinstance(target, str) and target.startswith(("cpu", "cuda", "gpu")):  # device() refuses "gpu"
                device = as_device(target)
            else:
                dtype = target
        x: Tensor = self
        if device is not None and as_device(device) != self.device:
            x = elementwise.Transfer.apply(x, to=get_backend(device))
        if dtype is None or (dtype := dtypes.as_dtype(dtype)) == self.dtype:
            return x.clone() if copy and x is self else x
        cast: Tensor = elementwise.Cast.apply(x, dtype=dtype)
        return cast

    def cpu(self) -> "Tensor":
        """Return this tensor on the CPU; itself if it is there. Gradients flow through."""
        return self.to("cpu")

    def cuda(self, non_blocking: builtins.bool = False) -> "Tensor":
        """Return this tensor on the GPU; itself if it is there. Gradients flow through."""
        return self.to("cuda")

    def pin_memory(self) -> "Tensor":
        """Return this tensor itself: unlike in PyTorch, page-locked memory makes no difference."""
        return self

    def double(self) -> "Tensor":
        """Return the same numbers in float64."""
        return self.to(dtypes.float64)

    def float(self) -> "Tensor":
        """Return the same numbers in float32."""
        return self.to(dtypes.float32)

    def half(self) -> "Tensor":
        """Return the same numbers in float16."""
        return self.to(dtypes.float16)

    def long(self) -> "Tensor":
        """Return the numbers in int64, floats rounded towards 0. No gradient."""
        return self.to(dtypes.int64)

    def int(self) -> "Tensor":
        """Return the numbers in int32, floats rounded towards 0. No gradient."""
        return self.to(dtypes.int32)

    def bool(self) -> "Tensor":
        """Return bools: True where this tensor is not 0. No gradient."""
        return self.to(dtypes.bool_)

    def type_as(self, other: "Tensor") -> "Tensor":
        """Return this tensor in other's dtype, on its device; itself if nothing changes. Gradients flow through."""
        return self.to(other)

    def type(self, dtype: DTypeLike) -> "Tensor":
        """Return this tensor in a dtype; itself if it has that dtype. Gradients flow through, between float dtypes.

        dtype: one, or mg.LongTensor and the like."""
        return self.to(dtypes.as_dtype(getattr(dtype, "dtype_made", dtype)))

    def expand_as(self, other: "Tensor") -> "Tensor":
        """Return this tensor broadcast to other's shape, without a copy. Gradients flow through."""
        return movement.expand(self, other.shape)

    def zeros_like(self) -> "Tensor":
        """Return zeros of the same shape, dtype and device, without a gradient."""
        backend = self.storage.backend
        return Tensor._wrap(backend.zeros(self.shape, self.dtype), Storage(backend))

    @check_arguments
    def new_full(
        self,
        size: Size,
        fill_value: Number,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: builtins.bool = False,
    ) -> "Tensor":
        """Return a Tensor of shape `size` filled with a number; of this one's dtype and device by default."""
        dtype, backend = dtypes.as_dtype(dtype or self.dtype), get_backend(device or self.device)
        dtypes.check_holds("new_full", dtype, fill_value)
        shape = shape_of("new_full", (size,))
        return Tensor._wrap(backend.full(shape, fill_value, dtype), Storage(backend)).requires_grad_(requires_grad)

    @check_arguments
    def new_zeros(self, *size: Size, **options: Any) -> "Tensor":
        """Return zeros of a size: new_zeros(2, 3) or new_zeros((2, 3)). options: those of new_full."""
        return self.new_full(shape_of("new_zeros", size), 0, **options)

    @check_arguments
    def new_ones(self, *size: Size, **options: Any) -> "Tensor":
        """Return ones of a size: new_ones(2, 3) or new_ones((2, 3)). options: those of new_full."""
        return self.new_full(shape_of("new_ones", size), 1, **options)

    new_empty = new_zeros

    def new(self, *data_or_sizes: Any) -> "Tensor":
        """Return a Tensor of this one's dtype and device, in PyTorch's old form: new_tensor(data) of a list or an
        array, new_empty(*sizes) of ints."""
        if len(data_or_sizes) == 1 and not isinstance(data_or_sizes[0], builtins.int | np.integer):
            return self.new_tensor(data_or_sizes[0])
        return self.new_empty(*(data_or_sizes or (0,)))

    def new_tensor(self, data: Any, dtype: DTypeLike | None = None, device: str | None = None) -> "Tensor":
        """Return a copy of data, numbers or an array, without a gradient; of this one's dtype and device by default."""
        return self.constant(data).to(device or self.device, dtype or self.dtype)


for _name in replacements().keys() - {*dir(Tensor)}:
    setattr(Tensor, _name, MissingAttribute("a Tensor", _name))


def check_same_kind(what: str, x: Any, like: Value) -> None:
    """Raise unless x is a Tensor of like's shape and dtype on its device."""
    if not isinstance(x, Value):
        raise TypeError(f"{what} must be a Tensor of shape {like.shape} and {like.dtype}, got {type(x).__name__}")
    if (x.shape, x.dtype, x.device) != (like.shape, like.dtype, like.device):
        raise ValueError(
            f"{what} must have shape {like.shape}, {like.dtype}, {like.device}; got {x.shape}, {x.dtype}, {x.device}"
        )


def nodes_of(what: str, inputs: Iterable[Value]) -> list[Node]:
    """Return the nodes of `inputs`, whose gradients are wanted. Raises GraphError for one that requires none."""
    nodes = []
    for i, x in enumerate(inputs):
        if x.node is None:
            raise GraphError(f"{what}: input {i} requires no gradient; call requires_grad_() before computing with it")
        nodes.append(x.node)
    return nodes


_COMPARABLE: Any = (Tensor, np.ndarray, np.generic, bool, int, float)
