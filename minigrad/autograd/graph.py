"""Storage, Node and Value: what the graph is made of, besides ops.

Value (a Tensor) ──> Storage, the memory it lies in
                 ──> Node, its place in the graph, if it requires a gradient"""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from ..base.capturing import thread
from ..base.locks import accumulating

if TYPE_CHECKING:
    import numpy as np

    from ..backend.devices import device as Device
    from ..backend.numpy import Numpy


class GraphError(RuntimeError):
    """The graph cannot be used: it was freed, was never recorded, or saved an array that has changed since."""


class Outdated:
    """Stands for the backend of an outdated storage. Raises GraphError when a Tensor of that storage is used."""

    def __init__(self, backend: "Numpy", change: str):
        self.before = backend
        self.message = (
            f"this tensor shared memory with one that was changed in place by {change}, and the graph records that "
            f"change, but not for this tensor; make the view again after the change, or clone() it before"
        )

    def __getattr__(self, name: str) -> Any:
        raise GraphError(self.message)


class Storage:
    """Memory that a Tensor and its views share.

    backend: of its device. version: the version counter, how often the memory was changed in place. born: the number of
    the latest backward walk when it was allocated. holds_leaf: True if a leaf that requires a gradient lies in it.
    whole: if a view has only a part of the elements, the number of all; else 0."""

    __slots__ = ("backend", "version", "born", "holds_leaf", "whole")

    walk = 0  # the number of the latest backward walk, of any thread
    _walks = itertools.count(1)

    def __init__(self, backend: "Numpy"):
        self.backend = backend
        self.version = 0
        self.born = Storage.walk
        self.holds_leaf = False
        self.whole = 0

    @classmethod
    def begin_walk(cls) -> int:
        """Return the number of a new backward walk: larger than `born` of any storage made before it."""
        with accumulating:  # without the lock, a slow thread could set an older number than another's
            cls.walk = number = next(cls._walks)
        return number

    def changed(self, times: int = 1) -> None:
        """Count an in-place change: the backward of an op that saved the old values then raises.

        times=-1 takes back the count of a change that failed and wrote nothing."""
        self.version += times
        if thread.session is not None:
            thread.session.storage_changed(self, times)

    def outdate(self, change: str) -> None:
        """Let every Tensor of this storage raise GraphError when it is used.

        change: the method that changed one of them in place, and where. That one has got other memory."""
        outdated: Any = Outdated(self.backend, change)
        self.backend = outdated
        if thread.session is not None:
            thread.session.storage_outdated(self)

    def for_saved(self) -> "Storage":
        """The storage for a Tensor around an array that an op saved: this one, unless it is outdated."""
        backend: Any = self.backend
        if type(backend) is not Outdated:
            return self
        storage = Storage(backend.before)
        storage.born = self.born
        return storage


class Handle:
    """What adding a hook returns: remove() removes that hook."""

    def __init__(self, hooks: dict[Any, Any], hook: Any):
        self._hooks, self._key = hooks, object()
        hooks[self._key] = hook

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._hooks.pop(self._key, None)


class Node:
    """The place of a value in the graph, without the value itself.

    op, index: the value is output `index` of that op; a leaf has no op. grad: the accumulated gradient, of a leaf or
    after retain_grad()."""

    __slots__ = ("op", "index", "shape", "dtype", "device", "grad", "retain", "hooks", "__weakref__")

    def __init__(self, op: Any, index: int, shape: tuple[int, ...], dtype: "np.dtype[Any]", device: str):
        self.op, self.index = op, index
        self.shape, self.dtype, self.device = shape, dtype, device
        self.grad: Any = None
        self.retain = op is None
        self.hooks: dict[Any, Any] | None = None

    def add_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call hook(gradient) in every backward walk, once the whole gradient of this value is known.

        The hook may return another gradient in its place, or None. Hooks run in the order in which they were added."""
        self._tell_session()
        if self.hooks is None:
            self.hooks = {}
        return Handle(self.hooks, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this value in `grad`, although it is not a leaf."""
        self._tell_session()
        self.retain = True

    def _tell_session(self) -> None:
        if thread.session is not None:
            thread.session.node_observed(self)

    def accumulate(self, g: Any, own: Callable[[Any], Any] | None = None) -> None:
        """Add g to .grad; other threads may do the same at the same time.

        own: own(g) returns g with memory of its own; called if .grad is None so far. None: g has its own already."""
        with accumulating:
            if self.grad is not None:
                self.grad = self.grad + g
            else:
                self.grad = g if own is None else own(g)


class Value:
    """What the engine sees of a Tensor: an array, the storage it lies in, and its node if it requires a gradient.

    Tensor is a subclass, of a higher layer. What the engine and the ops call of it is declared here."""

    __slots__ = ("array", "storage", "node", "_is_data", "__weakref__")
    array: Any  # the raw array, of the storage's backend
    storage: Storage
    node: Node | None
    _is_data: bool  # set on x.data alone: changes in place of it are never recorded

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]:
            """The sizes of the dims; () for one number."""

        @property
        def dtype(self) -> "np.dtype[Any]":
            """The kind of the elements: minigrad.float32, int64, bool_, …"""

        @property
        def ndim(self) -> int:
            """Number of dims."""

        @property
        def device(self) -> "Device":
            """Where it is: "cpu" or "cuda"."""

        @property
        def is_leaf(self) -> bool: ...

        requires_grad: bool
        grad: Any

        def numel(self) -> int: ...
        def is_contiguous(self) -> bool: ...
        def numpy(self, *, force: bool = False) -> "np.ndarray[Any, Any]": ...
        def _host(self) -> Any: ...

        # Tensor maths, as derivatives are written in it.
        def detach(self) -> Any: ...
        def clone(self) -> Self: ...
        def constant(self, data: Any) -> Self: ...
        def zeros_like(self) -> Self: ...
        def to(self, *targets: Any) -> Any: ...
        def float(self) -> Self: ...
        def double(self) -> Self: ...
        def half(self) -> Self: ...
        def __neg__(self) -> Self: ...
        def __add__(self, other: Any, /) -> Self: ...
        def __radd__(self, other: Any, /) -> Self: ...
        def __sub__(self, other: Any, /) -> Self: ...
        def __rsub__(self, other: Any, /) -> Self: ...
        def __mul__(self, other: Any, /) -> Self: ...
        def __rmul__(self, other: Any, /) -> Self: ...
        def __truediv__(self, other: Any, /) -> Self: ...
        def __rtruediv__(self, other: Any, /) -> Self: ...
        def __pow__(self, other: Any, /) -> Self: ...
        def __mod__(self, other: Any, /) -> Self: ...
        def __matmul__(self, other: Any, /) -> Self: ...
        def __getitem__(self, index: Any, /) -> Self: ...
        def __lt__(self, other: Any, /) -> Self: ...
        def __le__(self, other: Any, /) -> Self: ...
        def __gt__(self, other: Any, /) -> Self: ...
        def __ge__(self, other: Any, /) -> Self: ...
        def __eq__(self, other: Any, /) -> Any: ...
        def __ne__(self, other: Any, /) -> Any: ...
        def exp(self) -> Self: ...
        def sin(self) -> Self: ...
        def cos(self) -> Self: ...
        def sqrt(self) -> Self: ...
        def sign(self) -> Self: ...
        def tanh(self) -> Self: ...
        def sigmoid(self) -> Self: ...
        def all(self) -> Self: ...
        def sum(self, dim: Any = None, keepdim: bool = False) -> Self: ...
        def mean(self, dim: Any = None, keepdim: bool = False) -> Self: ...
        def softmax(self, dim: int = -1) -> Self: ...
        def clamp(self, min: Any = None, max: Any = None) -> Self: ...
        def where(self, condition: Any, other: Any) -> Any: ...
        def masked_fill(self, mask: Any, value: Any) -> Self: ...
        def reshape(self, *shape: Any) -> Self: ...
        def permute(self, dims: Any = (), *more: int) -> Self: ...
        def squeeze(self, dim: Any = None) -> Self: ...
        def unsqueeze(self, dim: int) -> Self: ...
        def narrow(self, dim: int, start: int, length: int) -> Self: ...
        def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self: ...
        @property
        def mT(self) -> Any: ...

    def _become(self, source: "Value") -> None:
        """Take the memory of another Tensor."""
        self.array, self.storage = source.array, source.storage
        if thread.session is not None:
            thread.session.tensor_created(self)

    @staticmethod
    def _wrap(array: Any, storage: Storage, node: Node | None = None) -> Any:
        raise TypeError("ops take Tensors")
