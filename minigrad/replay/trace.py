"""What is captured of a step: a tree of trace entries, and the objects that they are made of."""

from typing import Any

from ..autograd import GraphError, Op, mode
from ..base.capturing import thread, user_place
from ..tensor import Tensor
from .addresses import AddressSpace
from .programs import Launch

_new = object.__new__


class TraceEntry:
    """One action of a step: an op, a primitive of the backend outside of ops, or a backward walk."""

    __slots__ = (
        "kind", "guard", "inputs", "outputs", "result", "op", "allocations", "placeholders", "launches",
        "per_call_values", "varying", "updates", "checks", "changes_outside", "leaves", "ops", "branches",
    )  # fmt: skip

    def __init__(self, kind, guard=()):
        self.kind = kind  # the class of an op, the name of a primitive, or "walk"
        self.guard = guard  # guard_of() its parameters
        self.inputs: list = []  # parts_of() each
        self.outputs: list = []  # parts_of() each Tensor; None for an output that was not needed
        self.result: Any = None  # the result of a primitive; for an op, True if its outputs are a tuple
        self.op: Any = None  # the op that it added to the graph
        self.allocations: list = []  # the memory that its results and its op keep alive
        self.placeholders: dict = {}  # {id of a captured array: Placeholder}, for arrays first used here
        self.launches: list[Launch] = []
        self.per_call_values: list[PerCallValue] = []
        self.varying: tuple = ()  # the positions of inputs that are per-call values
        self.updates: list = []  # (host array, array for kernels, function whose values both get) before a replay
        self.checks: list = []  # checks of indices on a GPU: see runners/checks.py
        self.changes_outside = False  # True if a primitive in place gets arrays from outside
        self.leaves: list = []  # the leaves of a walk: (leaf, parts_of() its new .grad, or None)
        self.ops: set = set()  # the ops of a walk
        self.branches: list[TraceEntry] = []  # the entries that came next in a call


class Placeholder:
    """A captured array that stands for an array from outside. Each call binds its own array to it.

    guard: array_guard() of the arrays that can be bound."""

    __slots__ = "array", "allocation", "guard", "bound", "address"

    def __init__(self, array, allocation, guard):
        self.array, self.allocation, self.guard = array, allocation, guard
        self.bound, self.address = None, 0  # the array that was bound last, and the address of its memory


class PerCallValue:
    """A value that may differ at each call: a number, the position of a random stream, or a function."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __call__(self, *args):
        return self.value(*args)


class TraceTree:
    """Everything captured of a function on one backend."""

    def __init__(self, backend):
        self.backend, self.space, self.root = backend, AddressSpace(backend), TraceEntry(None)
        self.size = 0  # the number of entries
        self.ops: set = set()  # the ops of the captured graph
        self.storages: set = set()  # the storages of captured Tensors
        self.outside: set = set()  # the allocations of placeholders
        self.raw_storages: dict = {}  # {id of an array that a primitive made outside of ops: its storage}
        self.changed: set = set()  # captured storages that the last call changed in place
        self.observed: list = []  # captured nodes that got a hook or kept a gradient in the last call
        self.programs: dict = {}


class _FinishedStep(Op, abstract=True):
    """The op of every Tensor that a captured step leaves behind: the graph ends with the call."""

    name = "a captured step"
    spent = True
    serial = 0
    needs: tuple[bool, ...] = ()
    params: dict = {}

    def already_spent(self):
        return GraphError("backward through a captured step that is over: call backward() inside of it")


FINISHED: Any = _FinishedStep()


class EagerOp(Op, abstract=True):
    """The op of the captured graph that stands for an op of the user's, which runs at each call."""

    @classmethod
    def standing_for(cls, op, params, parents, ys, backend):
        """The EagerOp for the class `op`. parents: a node or None for each input. ys: the outputs, Tensors."""
        self = _new(cls)
        self.name, self.params, self.parents, self.backend, self.wrap = op.name, params, parents, backend, Tensor._wrap
        self.needs = tuple([node is not None for node in parents])
        self.serial, self.scope, self.line = next(Op._serials), mode.scope, user_place()
        if len(ys) > 1:
            self.outputs = tuple([None if y is None else (y.shape, y.dtype) for y in ys])
        return self

    def backward(self, *dys):
        call: Any = thread.session
        return call.eager_backward(self, dys)


def tensor_around(array, node, storage):
    """A Tensor of these parts."""
    x = _new(Tensor)
    x.array, x.node, x.storage = array, node, storage
    return x
