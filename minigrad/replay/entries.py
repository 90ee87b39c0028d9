"""What is captured of a step: a tree of Entries, each with what must be equal for it to be followed.

See follower.py for how it is captured, and followed.
"""

from typing import Any

import numpy as np

from ..autograd import GraphError, Op, Value, mode
from ..backend.philox import Draw
from ..base.recording import thread, user_place
from ..tensor import Tensor
from .memory import Launch, Space

_new = object.__new__


class Entry:
    """One action of a step, and the actions that followed it in earlier calls."""

    __slots__ = (
        "kind", "form", "inputs", "outs", "result", "op", "lasting", "slots", "launches", "late", "varying",
        "refreshes", "checks", "outside", "leaves", "ops", "next",
    )  # fmt: skip

    def __init__(self, kind, form=()):
        self.kind, self.form = kind, form
        self.inputs: list = []  # parts() of each
        self.outs: list = []  # the same of output Tensors; None for an output that was not needed
        self.result: Any = None  # the result of a primitive; for an op: are its outputs a tuple?
        self.op: Any = None  # the op it added to the graph
        self.lasting: list = []  # Allocations that its results and its op keep alive
        self.slots: dict = {}  # {id of a captured array: its Slot}, for arrays that are bound here
        self.launches: list[Launch] = []
        self.late: list[Late] = []
        self.varying: tuple = ()  # positions of inputs that are `late` numbers
        self.refreshes: list = []  # (array of the host, as kernels see it, function that gives what it is to hold)
        self.checks: list = []  # checks of indices on a GPU: see Cuda.checked
        self.outside = False  # does a primitive in place have arrays from outside?
        self.leaves: list = []  # (leaf, parts() of its new .grad, or None) of a walk
        self.ops: set = set()  # ops of a walk whose saved arrays have been freed
        self.next: list[Entry] = []


class Slot:
    """A captured array that represents one from outside. spec: what can be bound to it."""

    __slots__ = "array", "allocation", "spec", "last", "address"

    def __init__(self, array, allocation, spec):
        self.array, self.allocation, self.spec = array, allocation, spec
        self.last, self.address = None, 0  # the array last bound to the slot, and its address


class Late:
    """A parameter that may differ at each call: where random numbers begin, a number, or a function."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __call__(self, *args):
        return self.value(*args)


class Tree:
    """Everything captured of a function on one backend."""

    def __init__(self, on):
        self.on, self.space, self.root = on, Space(on), Entry(None)
        self.ops: set = set()  # the ops of its graph
        self.storages: set = set()
        self.outside: set = set()  # Allocations of what comes from outside
        self.raw: dict = {}  # {id of an array that a primitive made outside of ops: the storage of Tensors around it}
        self.changed: set = set()  # objects that the last call changed in place
        self.nodes: list = []  # nodes of its graph that the last call looked at
        self.programs: dict = {}
        self.entries = 0


class _Gone(Op, abstract=True):
    """Replaces the ops of a captured step that is over."""

    name = "a captured step"
    spent = True
    serial = 0
    needs: tuple[bool, ...] = ()
    params: dict = {}

    def already_spent(self):
        return GraphError("backward through a captured step that is over: call backward() inside of it")


GONE: Any = _Gone()


class EagerOp(Op, abstract=True):
    """An op of the captured graph that represents an op which runs at each call, as it may compute in NumPy."""

    @classmethod
    def standing_for(cls, op, params, parents, ys, backend):
        """The EagerOp for a class `op`, with these parents (nodes, None for numbers) and outputs."""
        self = _new(cls)
        self.name, self.params, self.parents, self.backend, self.wrap = op.name, params, parents, backend, Tensor._wrap
        self.needs = tuple([node is not None for node in parents])
        self.serial, self.scope, self.line = next(Op._serials), mode.scope, user_place()
        if len(ys) > 1:
            self.outputs = tuple([None if y is None else (y.shape, y.dtype) for y in ys])
        return self

    def backward(self, *dys):
        return thread.recorder.eager_backward(self, dys)


def tensor_around(array, node, storage):
    x = _new(Tensor)
    x.array, x.node, x.storage = array, node, storage
    return x


def parts(x):
    """(array, node, storage) of a Tensor, (array, None, None) of an array, (None, exact form, None) of a number."""
    if isinstance(x, Value):
        return x.array, x.node, x.storage
    return (x, None, None) if hasattr(x, "strides") and not isinstance(x, np.generic) else (None, exact(x), None)


def as_tuple(x):
    return x if type(x) is tuple else (x,)


def spec(x, on):
    """What must be equal in two arrays for the same launches to be correct for both."""
    return x.shape, x.strides, x.dtype, getattr(x.flags, "writeable", True), shift(x, on)


def shift(x, on):
    """How far an array's address is off the alignment that launches may depend on."""
    return on.address(x) % on.alignment if on.alignment > 1 else 0


def varies(x):
    """Is it a number that rounds to a float dtype in the same way as a kernel's argument and as an array's element?"""
    return type(x) is float or (type(x) is int and -(1 << 24) < x < 1 << 24)


_PLAIN = {int, bool, str, bytes, type(None), type(...)}


def exact(x, late=None, arrays=None):
    """A form that is equal exactly for what launch code cannot distinguish; unknown objects equal nothing. Arrays are
    appended to `arrays`, or if that is None, compared by content; what may differ at each call is appended to
    `late`."""
    kind = type(x)
    if kind in _PLAIN:
        return kind, x
    if kind is float:
        return kind, (x if x == x and x != 0 else repr(x))  # 0 and NaN compare by their bits
    if kind in (tuple, list):
        return kind, [exact(each, late, arrays) for each in x]
    if kind is dict:
        return kind, [(name, exact(each, late, arrays)) for name, each in x.items()]
    if kind is slice:
        return kind, exact((x.start, x.stop, x.step))
    if kind is Draw and late is not None:
        late.append(x)
        return Draw
    if hasattr(x, "strides") and not isinstance(x, np.generic):
        if arrays is None:
            return kind, x.shape, x.dtype, x.tobytes()
        arrays.append(x)
        return np.ndarray
    if arrays is not None and callable(x) and not isinstance(x, type):
        late.append(x)
        return Late
    if isinstance(x, np.dtype):
        return np.dtype, x
    if isinstance(x, np.generic):
        return kind, x.tobytes()
    return object()


def replaced(x, arrays, late, array_type):
    """x, with each array in it replaced by the next of `arrays`, and each function by the next of `late`."""
    kind = type(x)
    if kind in (tuple, list):
        return kind([replaced(each, arrays, late, array_type) for each in x])
    if kind is dict:
        return {name: replaced(each, arrays, late, array_type) for name, each in x.items()}
    if isinstance(x, array_type):
        return next(arrays)
    if kind is Draw:
        next(late)
    return next(late) if kind is not Draw and callable(x) and not isinstance(x, type | np.dtype) else x
