"""Tensor: an array, the storage it lies in, and its place in the graph. Its methods apply ops.

Names, arguments and shapes follow PyTorch; NumPy's axis= and keepdims= are accepted for dim= and keepdim=.
"""

import operator

import numpy as np

from .. import autograd, backend, dtypes, ops
from ..autograd import GraphError, Node, Storage
from .inplace import InPlace
from .interop import Interop


class Tensor(InPlace, Interop):
    """An n-dimensional array that remembers how it was computed, so that gradients can flow back through it.

    Made by minigrad.tensor, zeros, randn, … and by operations. `array` is the raw array of its backend. The version
    checks do not notice a change made to that directly, so change tensors in place through their own methods."""

    __slots__ = ()

    @staticmethod
    def _wrap(array, storage, node=None):
        x = Tensor.__new__(Tensor)
        x.array, x.storage, x.node = array, storage, node
        return x

    def __init__(self, *args, **kwargs):
        raise TypeError("make a Tensor with minigrad.tensor(data), zeros, ones, randn, …")

    def _constant(self, data):
        """A copy of data as a Tensor beside this one: same device, no gradient. Its dtype is NumPy's for it."""
        array = np.array(data)
        dtypes.as_dtype(array.dtype)
        on = self.storage.backend
        return Tensor._wrap(on.from_numpy(array), Storage(on))

    # ------------------------------------------------------------------------------------------------- what it is

    shape = property(operator.attrgetter("array.shape"))  # faster than a function, and asked for all the time
    dtype = property(operator.attrgetter("array.dtype"))
    ndim = property(operator.attrgetter("array.ndim"))
    device = property(operator.attrgetter("storage.backend.device"))

    @property
    def T(self):
        """All dims reversed; a view."""
        return ops.permute(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self):
        """The last two dims exchanged; a view."""
        return ops.transpose(self, -1, -2)

    @property
    def is_leaf(self):
        """True if no recorded op made it: data, a parameter, or a result under no_grad."""
        return self.node is None or self.node.op is None

    @property
    def op(self):
        """The op that made it, or None for a leaf."""
        return None if self.node is None else self.node.op

    def size(self, dim=None):
        """The shape, or the size of one dim."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self):
        return self.ndim

    def numel(self):
        """Number of elements."""
        return self.array.size

    def is_floating_point(self):
        return self.dtype.kind == "f"

    def is_contiguous(self):
        """True if the elements lie in memory row by row, without gaps."""
        return bool(self.array.flags.c_contiguous)

    def __len__(self):
        if self.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __repr__(self):
        body = np.array2string(self._host(), separator=", ", prefix="tensor(", threshold=1000, precision=4)
        extra = "" if self.dtype in (dtypes.float32, dtypes.int64, dtypes.bool_) else f", dtype={self.dtype}"
        extra += "" if self.device == "cpu" else f", device={self.device!r}"
        extra += f", op={self.op.name}" if self.op is not None else ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({body}{extra})"

    __hash__ = object.__hash__  # by identity, as == compares elements

    # -------------------------------------------------------------------------------------------------- dtype, device

    def to(self, *targets, dtype=None, device=None):
        """This tensor in a dtype and/or on a device: to("cuda"), to(minigrad.float64), to(device, dtype), to(other).

        Returns the tensor itself if nothing changes. Gradients flow through, between float dtypes and between devices.
        Copying to the CPU waits for the device's work; copying to a device does not."""
        for target in targets:
            if isinstance(target, Tensor):
                dtype, device = target.dtype, target.device
            elif isinstance(target, str) and target in ("cpu", "cuda"):
                device = target
            else:
                dtype = target
        x = self
        if device is not None and device != self.device:
            x = ops.Transfer.apply(x, to=backend.get(device))
        if dtype is None or (dtype := dtypes.as_dtype(dtype)) == self.dtype:
            return x
        return ops.Cast.apply(x, dtype=dtype)

    def cpu(self):
        return self.to("cpu")

    def cuda(self):
        return self.to("cuda")

    def double(self):
        return self.to(dtypes.float64)

    def float(self):
        return self.to(dtypes.float32)

    def half(self):
        return self.to(dtypes.float16)

    def long(self):
        return self.to(dtypes.int64)

    def int(self):
        return self.to(dtypes.int32)

    def bool(self):
        return self.to(dtypes.bool_)

    # ------------------------------------------------------------------------------------------------------- gradients

    @property
    def requires_grad(self):
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, value):
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad=True):
        """Make this leaf require a gradient, or stop requiring one, which drops its .grad. Returns itself."""
        if not self.is_leaf:
            if requires_grad:
                return self
            raise GraphError("only a leaf can stop requiring a gradient; use detach()")
        if not requires_grad:
            self.node = None
        elif self.node is None:
            if self.dtype.kind != "f":
                raise TypeError(f"only floating-point tensors can require a gradient, not {self.dtype}")
            if self.storage.version is None:
                raise GraphError("a tensor made under inference() cannot require a gradient; clone() it outside")
            self.node = Node(None, 0, self.shape, self.dtype, self.device)
        return self

    @property
    def grad(self):
        """The gradient that backward() has added up so far: on leaves and after retain_grad(). Else None."""
        return None if self.node is None else self.node.grad

    @grad.setter
    def grad(self, value):
        if value is not None:
            if self.node is None:
                raise GraphError("a tensor that requires no gradient cannot hold one; requires_grad_() it first")
            check_same_kind(".grad", value, self)
        if self.node is not None:
            self.node.grad = value

    def retain_grad(self):
        """Keep .grad after backward() although this is not a leaf."""
        self._node_for("retain_grad").retain = True

    def register_hook(self, hook):
        """Have backward() call hook(gradient) once the whole gradient of this tensor is known.

        hook may return another gradient in its place. Returns a handle whose remove() takes this hook off again."""
        return self._node_for("register_hook").add_hook(hook)

    def _node_for(self, what):
        if self.node is None:
            raise GraphError(f"{what}: this tensor requires no gradient")
        return self.node

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        """Add d(self)/d(leaf), weighted by `gradient`, to the .grad of every leaf.

        gradient: a Tensor like this one; not needed if this has one element. retain_graph: keep what ops saved for
        another backward. create_graph: make the gradients differentiable. inputs: add to the .grad of these only."""
        nodes, cotangents = _root(self, gradient)
        if inputs is None:
            autograd.backward(nodes, cotangents, retain_graph=retain_graph, create_graph=create_graph)
            return
        inputs = [inputs] if isinstance(inputs, Tensor) else list(dict.fromkeys(inputs))
        for x, g in zip(inputs, grad(self, inputs, gradient, retain_graph, create_graph, allow_unused=True)):
            if g is not None:
                x.node.accumulate(g)

    def detach(self):
        """The same memory without the graph. The version checks notice in-place changes of either tensor."""
        return Tensor._wrap(self.array, self.storage)

    @property
    def data(self):
        """detach(). Assigning to it replaces the values by those of a tensor of the same shape, dtype and device."""
        return self.detach()

    @data.setter
    def data(self, value):
        check_same_kind(".data", value, self)
        if value.storage is not self.storage:
            self.storage.changed()
            compact = value if value.is_contiguous() else value.detach().clone()  # as optimizers need it
            self.array, self.storage = compact.array, compact.storage

    # ------------------------------------------------------------------------------------------------------- operators

    __add__ = __radd__ = ops.add
    __mul__ = __rmul__ = ops.mul
    __sub__, __truediv__, __pow__, __matmul__ = ops.sub, ops.div, ops.pow, ops.matmul
    __neg__, __abs__, __getitem__ = ops.neg, ops.abs, ops.getitem
    __lt__, __le__, __gt__, __ge__ = ops.lt, ops.le, ops.gt, ops.ge

    def __and__(self, other):
        return ops.logical_and(*_bools("&", self, other))

    def __or__(self, other):
        return ops.logical_or(*_bools("|", self, other))

    def __xor__(self, other):
        return ops.logical_xor(*_bools("^", self, other))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self):
        return ops.logical_not(*_bools("~", self))

    def __eq__(self, other):
        return ops.eq(self, other) if isinstance(other, _COMPARABLE) else NotImplemented  # for None: Python decides

    def __ne__(self, other):
        return ops.ne(self, other) if isinstance(other, _COMPARABLE) else NotImplemented

    def __rsub__(self, other):
        return ops.sub(other, self)

    def __rtruediv__(self, other):
        return ops.div(other, self)

    def __rpow__(self, other):
        return ops.pow(other, self)

    def __rmatmul__(self, other):
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

    def where(self, condition, other):
        """self where condition is True, else other."""
        return ops.where(condition, self, other)

    def zeros_like(self):
        """Zeros of the same shape, dtype and device, without a gradient."""
        on = self.storage.backend
        return Tensor._wrap(on.zeros(self.shape, self.dtype), Storage(on))


def _bools(operator, *operands):
    """The operands, if all are bool. On integers, & | ^ ~ would be bitwise, which minigrad does not have."""
    for x in operands:
        kind = getattr(x, "dtype", type(x).__name__)
        if kind != "bool":  # a dtype is equal to its name
            raise TypeError(f"{operator} is for bools, got {kind}; for truth use logical_and, logical_or, logical_not")
    return operands


_COMPARABLE = (Tensor, np.ndarray, np.generic, bool, int, float)


def check_same_kind(what, x, like):
    """Raise unless x is a Tensor of like's shape and dtype on its device."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{what} must be a Tensor of shape {like.shape} and {like.dtype}, got {type(x).__name__}")
    if (x.shape, x.dtype, x.device) != (like.shape, like.dtype, like.device):
        raise ValueError(
            f"{what} must have shape {like.shape}, {like.dtype} on {like.device!r}; got shape {x.shape}, {x.dtype} on "
            f"{x.device!r}"
        )


def _root(output, gradient):
    """([node], [cotangent]) to begin a walk with."""
    if output.node is None:
        raise GraphError(
            "backward from a tensor that requires no gradient: none of what it was computed from does, or it was "
            "computed under no_grad()"
        )
    if gradient is None:
        if output.numel() != 1:
            raise GraphError(f"backward from a tensor of shape {output.shape} needs `gradient`, a tensor of that shape")
        on = output.storage.backend
        gradient = Tensor._wrap(on.full(output.shape, 1, output.dtype), Storage(on))
    check_same_kind("`gradient`", gradient, output)
    return [output.node], [gradient]


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=False):
    """Gradients of outputs with respect to inputs, weighted by grad_outputs, as a tuple; touches no .grad.

    outputs, inputs, grad_outputs: a Tensor or a sequence. Raises GraphError for an input that the outputs do not depend
    on; with allow_unused, its gradient is None. retain_graph, create_graph: as in Tensor.backward."""
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if grad_outputs is None or isinstance(grad_outputs, Tensor):
        if grad_outputs is not None and len(outputs) != 1:
            raise ValueError(f"grad: {len(outputs)} outputs need as many grad_outputs, got one Tensor")
        grad_outputs = [grad_outputs] * len(outputs)
    for i, x in enumerate(inputs):
        if x.node is None:
            raise GraphError(f"grad: input {i} requires no gradient; call requires_grad_() before computing with it")
    roots = [_root(y, g) for y, g in zip(outputs, grad_outputs, strict=True)]
    found = autograd.backward(
        [nodes[0] for nodes, _ in roots], [gs[0] for _, gs in roots],
        inputs=[x.node for x in inputs], retain_graph=retain_graph, create_graph=create_graph,
    )  # fmt: skip
    for i, g in enumerate(found):
        if g is None and not allow_unused:
            raise GraphError(f"grad: outputs do not depend on input {i}; pass allow_unused=True to get None for it")
    return tuple(found)
