"""What the graph is made of, besides ops: storages, nodes, and what the engine sees of a Tensor."""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..base.locks import accumulating
from ..base.recording import thread

if TYPE_CHECKING:
    import numpy as np

    from ..backend.devices import device as Device


class GraphError(RuntimeError):
    """The graph cannot be used: it was freed, was never recorded, or saved an array that has changed since."""


class Storage:
    """Memory that views share: its device, the number of in-place changes, and the walk that allocated it."""

    __slots__ = ("backend", "version", "born")

    walk = 0  # number of the latest backward walk, of any thread
    _walks = itertools.count(1)

    def __init__(self, backend: Any):
        self.backend = backend
        self.version = 0
        self.born = Storage.walk

    @classmethod
    def begin_walk(cls) -> int:
        """The number of a new backward walk: larger than `born` of any storage made before it."""
        with accumulating:  # otherwise a slow thread could set an older number than another's
            cls.walk = number = next(cls._walks)
        return number

    def changed(self, times: int = 1) -> None:
        """Count an in-place change, so that the backward of an op that saved the old values raises. -1: take one back
        that raised, and wrote nothing."""
        self.version += times
        if thread.recorder is not None:
            thread.recorder.storage_changed(self, times)


class Handle:
    """Returned when a hook is added; remove() removes that hook."""

    def __init__(self, hooks: dict[Any, Any], hook: Any):
        self._hooks, self._key = hooks, object()
        hooks[self._key] = hook

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._hooks.pop(self._key, None)


class Node:
    """A value in the graph, without the value. A leaf has no op. `grad` is kept on leaves and on retained nodes."""

    __slots__ = ("op", "index", "shape", "dtype", "device", "grad", "retain", "hooks", "__weakref__")

    def __init__(self, op: Any, index: int, shape: tuple[int, ...], dtype: "np.dtype[Any]", device: str):
        self.op, self.index = op, index
        self.shape, self.dtype, self.device = shape, dtype, device
        self.grad: Any = None
        self.retain = op is None
        self.hooks: dict[Any, Any] | None = None  # hooks added by add_hook

    def add_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call hook(gradient) in every backward walk, once the whole gradient of this value is known.

        hook may return a replacement, or None. Hooks run in the order in which they were added."""
        self._observed()
        if self.hooks is None:
            self.hooks = {}
        return Handle(self.hooks, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this value in `grad`, although it is not a leaf."""
        self._observed()
        self.retain = True

    def _observed(self) -> None:
        if thread.recorder is not None:
            thread.recorder.node_observed(self)

    def accumulate(self, g: Any, own: Callable[[Any], Any] | None = None) -> None:
        """Add g to .grad, safely while other threads do.

        own: a function that returns g in memory of its own, for a new .grad. None: g already is."""
        with accumulating:
            if self.grad is not None:
                self.grad = self.grad + g
            else:
                self.grad = g if own is None else own(g)


class Value:
    """What the engine sees of a Tensor: an array, the storage it lies in, and its node if it requires a gradient."""

    __slots__ = ("array", "storage", "node", "__weakref__")
    array: Any  # the storage's backend made it
    storage: Storage
    node: Node | None

    if TYPE_CHECKING:  # the attributes of a Tensor that are used here and in the parts of its class

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
        def detach(self) -> Any: ...
        def to(self, *targets: Any) -> Any: ...

    @staticmethod
    def _wrap(array: Any, storage: Storage, node: Node | None = None) -> Any:
        raise TypeError("ops take Tensors")
