"""What is captured of a step: a tree of trace entries, and the objects that they are made of."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..autograd import GraphError, Node, Op, Storage, current_modes
from ..base.capturing import thread, user_place
from ..tensor import Tensor
from .addresses import AddressSpace
from .programs import Launch

_new = object.__new__


class TensorParts(NamedTuple):
    """The parts of a captured Tensor. node and storage are None for a bare array."""

    array: Any
    node: Node | None
    storage: Storage | None


class ParameterBuffer(NamedTuple):
    """A small array for kernels, such as a learning rate, that is filled with values() before each replay."""

    host: Any  # an array of NumPy, which values() are written to
    kernel: Any  # the array that kernels read: the same memory on a CPU, a copy on a GPU
    values: Callable[[], Any]


class TraceEntry:
    """One action of a step. Each kind of action is a subclass."""

    __slots__ = (
        "kind", "guard", "inputs", "allocations", "placeholders", "launches", "per_call_values", "parameter_buffers",
        "checks", "branches",
    )  # fmt: skip

    def __init__(self, kind, guard=()):
        self.kind = kind  # the class of an op, the name of a primitive, or "walk"
        self.guard = guard  # everything else that must be equal, besides `kind` and `inputs`
        self.inputs: list = []  # pattern_of() each input
        self.allocations: list = []  # the memory that its results, and the op that it adds to the graph, keep alive
        self.placeholders: dict = {}  # {id of a captured array: Placeholder}, for arrays first used here
        self.launches: list[Launch] = []
        self.per_call_values: list[PerCallValue] = []
        self.parameter_buffers: list[ParameterBuffer] = []
        self.checks: list = []  # checks of indices on a GPU: see runners/checks.py
        self.branches: list[TraceEntry] = []  # the entries that came next in a call


class OpEntry(TraceEntry):
    """An op. Its guard has the grad mode and guard_of() each parameter; for a UserOp, shapes and dtypes of outputs."""

    __slots__ = "op", "outputs", "returns_tuple", "varying"

    def __init__(self, kind, guard):
        super().__init__(kind, guard)
        self.op: Op | None = None  # the op that it adds to the captured graph, or None
        self.outputs: list[TensorParts | None] = []  # None for an output that was not needed
        self.returns_tuple = False
        self.varying: int | None = None  # the position of an input that is a per-call value


class PrimitiveEntry(TraceEntry):
    """A primitive of the backend outside of ops. Its guard is guard_of() its arguments."""

    __slots__ = "result", "changes_outside"

    def __init__(self, kind, guard):
        super().__init__(kind, guard)
        self.result: Any = None
        self.changes_outside = False  # True if it gets arrays from outside, which it changes if it works in place


class WalkEntry(TraceEntry):
    """A backward walk. Its guard is (roots, targets, retain_graph); its inputs are the cotangents and old gradients."""

    __slots__ = "outputs", "leaves", "spent"

    def __init__(self, guard):
        super().__init__("walk", guard)
        self.spent: set = set()  # the ops whose saved arrays it frees
        self.outputs: list[TensorParts | None] = []  # the gradients of the targets
        self.leaves: list = []  # (leaf, the TensorParts of its new .grad, or None if it stays the same)


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
        self.changed: set = set()  # captured storages that the last call changed in place, or outdated
        self.observed: list = []  # captured nodes that got a hook or kept a gradient in the last call
        self.programs: dict = {}

    def begin_call(self):
        """Make the captured objects look as they did before the first call.

        Raises IndexError if an earlier call, which the GPU has finished since, was given wrong indices."""
        self.backend.raise_index_errors()
        for storage in self.changed:
            storage.version, storage.backend = 0, self.backend
        for node in self.observed:
            node.grad, node.hooks, node.retain = None, None, False
        self.changed, self.observed = set(), []


class _FinishedStep(Op, abstract=True):
    """The op of every Tensor that a captured step leaves behind: the graph ends with the call."""

    name = "a captured step"
    spent = True
    serial = 0
    needs: tuple[bool, ...] = ()
    params: dict = {}

    def spent_error(self):
        return GraphError("backward through a captured step that is over: call backward() inside of it")


FINISHED: Any = _FinishedStep()


class UserOp(Op, abstract=True):
    """The op of the captured graph that stands for an op of the user's, which runs at each call."""

    _saves: bool  # True if the user's op has kept something for its backward

    @classmethod
    def standing_for(cls, op, params, parents, ys, backend):
        """The UserOp for the class `op`. parents: a node or None for each input. ys: the outputs, Tensors."""
        self = _new(cls)
        self._saves = any(y is not None and y.node is not None and y.node.op.has_saved() for y in ys)
        self.name, self.params, self.parents, self.backend, self.wrap = op.name, params, parents, backend, Tensor._wrap
        self.needs = tuple([node is not None for node in parents])
        self.serial, self.scope, self.line = next(Op._serials), current_modes()["scope"], user_place()
        if len(ys) > 1:
            self.outputs = tuple([None if y is None else (y.shape, y.dtype) for y in ys])
        return self

    def has_saved(self):
        return self._saves

    def backward(self, *dys):
        call: Any = thread.session
        return call.backward_of_user_op(self, dys)


def tensor_around(array, node, storage):
    """A Tensor of these parts."""
    x = _new(Tensor)
    x.array, x.node, x.storage = array, node, storage
    return x
