"""What the graph is made of, besides ops: storages, nodes, and what the engine sees of a Tensor."""

import functools
import itertools
from typing import TYPE_CHECKING, Any

from ..locks import accumulating
from .modes import mode


class GraphError(RuntimeError):
    """The graph cannot answer: it was freed, was never recorded, or holds an array that has changed since."""


class Storage:
    """Memory that views share: where it is, how often it was changed in place, and in which walk it was born."""

    __slots__ = ("backend", "version", "born")

    walk = 0  # number of the latest backward walk, of any thread
    _walks = itertools.count(1)

    def __init__(self, backend):
        self.backend = backend
        self.version = None if mode.inference else 0  # None: an array made under inference()
        self.born = Storage.walk

    @classmethod
    def begin_walk(cls):
        """The number of a new backward walk: larger than `born` of any storage made before it."""
        with accumulating:  # else a thread that is slow here could set an older number than another's
            cls.walk = number = next(cls._walks)
        return number

    def changed(self):
        if self.version is not None:
            self.version += 1


class Node:
    """A value in the graph, without the value. A leaf has no op. `grad` is kept on leaves and on retained nodes."""

    __slots__ = ("op", "index", "shape", "dtype", "device", "grad", "retain", "hooks", "__weakref__")

    def __init__(self, op, index, shape, dtype, device):
        self.op, self.index = op, index
        self.shape, self.dtype, self.device = shape, dtype, device
        self.grad = None
        self.retain = op is None
        self.hooks = None

    def add_hook(self, hook):
        """Have every walk call hook(gradient) with the whole gradient of this value; it may return another in its
        place. Returns a function without arguments that takes this hook off again, and no other."""
        if self.hooks is None:
            self.hooks = {}
        key = object()
        self.hooks[key] = hook
        return functools.partial(self.hooks.pop, key, None)

    def accumulate(self, g, own=None):
        """Add g to .grad; what other threads add meanwhile is not lost.

        own: makes of g an array whose memory nobody else has, for .grad to begin with. None: g is one already."""
        with accumulating:
            if self.grad is not None:
                self.grad = self.grad + g
            else:
                self.grad = g if own is None else own(g)


class Value:
    """What the engine sees of a Tensor: an array, the storage it lies in, and its node if it requires a gradient."""

    __slots__ = ("array", "storage", "node", "__weakref__")
    array: Any
    storage: Storage
    node: Node | None

    if TYPE_CHECKING:  # the rest of Tensor: shape, detach(), …

        def __getattr__(self, name: str) -> Any: ...

    @staticmethod
    def _wrap(array, storage, node=None):
        raise TypeError("ops take Tensors")
