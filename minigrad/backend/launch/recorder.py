"""Recording the launches of a step, to replay them without Python, and planning their memory.

A step is recorded by running it once with kernels that are noted down and not run. What the launches have in common is
clear from addresses: an array lies in memory that the step itself asked for (an Allocation), or elsewhere, such as a
parameter. Elsewhere is used where it is. The step's own memory is laid out anew, in one arena, where allocations that
are never in use at the same time share their place.
"""

import bisect
import weakref
from typing import Any, NamedTuple

import numpy as np

from ...base.recording import CaptureError, refuse, user_line
from ..philox import Draw

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


class Allocation:
    """Memory that a step asks for. first, last: the launches between which it is in use; None: it is in no launch."""

    __slots__ = "nbytes", "first", "last", "line", "offset", "array"

    def __init__(self, x, forget):
        self.nbytes, self.first, self.last, self.offset = x.nbytes, None, None, 0
        self.line = user_line()
        self.array = weakref.ref(x if x.base is None else x.base, forget)  # views hold on to the base alone


class View(NamedTuple):
    """An array in memory of the step."""

    allocation: Allocation
    offset: int  # bytes from the allocation's beginning
    shape: tuple
    strides: tuple
    dtype: np.dtype


class Launch(NamedTuple):
    """What a runner's _run gets. Arrays among args are Views, or arrays that lie elsewhere."""

    file: str
    entry: str
    dtype: np.dtype
    grid: tuple
    block: tuple
    shared: int
    args: list


class Table(NamedTuple):
    """What Launcher.table gets, with Views."""

    struct: Any
    rows: list


class Recorder:
    """What a step has done so far. Code that may run within a step announces here what is to be known of it, through
    base/recording.py, and launch code makes its arrays, cells and tables here.

    A GPU's is in runners/graph.py."""

    def __init__(self, backend):
        self.backend = backend
        self.launches: list[Launch] = []
        self.allocations: list[Allocation] = []
        self._addresses: list[int] = []  # of the allocations that are not freed yet, in order, and those themselves
        self._owners: list[Allocation] = []
        self.constants: dict[int, Any] = {}  # by their ids
        self.inputs: list[tuple[Any, Any]] = []  # the step's arguments: (array, storage)
        self.calls: list[Any] = []  # functions to call each time, before the launches
        self.guards: list[tuple[Any, Any]] = []  # (function, what it must return for this recording to hold)
        self.checks: list[tuple[Any, Any]] = []  # (array, function that raises if its values are wrong)
        self.streams: dict[Any, Stream] = {}  # by generator
        self.tensors: dict[int, tuple[Any, ...]] = {}  # those from outside: (tensor, its array, its node, that's hooks)
        self.modules: dict[int, tuple[Any, Contents]] = {}  # those called: (module, its contents)
        self.changed: dict[int, Any] = {}  # storages changed in place
        self.grads: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # {node: its .grad before}

    # -- memory

    def made(self, x):
        """x has been made by `empty` of a backend. Returns it."""
        if not isinstance(x, self.backend.array_type):
            refuse("a Tensor that is made on another device than the arguments'")
        if x.nbytes:
            start = self.backend.address(x)

            def forget(_):
                at = bisect.bisect_left(self._addresses, start)
                del self._addresses[at], self._owners[at]

            allocation = Allocation(x, forget)
            at = bisect.bisect_left(self._addresses, start)
            self._addresses.insert(at, start)
            self._owners.insert(at, allocation)
            self.allocations.append(allocation)
        return x

    def located(self, x):
        """The View of an array, or the array itself if it is no part of the step's memory."""
        if x.size == 0:
            return x
        start = self.backend.address(x)
        low = start + below(x)
        at = bisect.bisect_right(self._addresses, low) - 1
        if at < 0 or low >= self._addresses[at] + self._owners[at].nbytes:
            return x
        return View(self._owners[at], start - self._addresses[at], x.shape, x.strides, x.dtype)

    def constant(self, x):
        """An array that comes from the host in the step: what it holds now is used at each call, and nobody may write
        to it."""
        owner = x if x.base is None else x.base
        self.constants[id(owner)] = owner
        return x

    def is_constant(self, x):
        return id(x if x.base is None else x.base) in self.constants

    # -- launches

    def launch(self, file, entry, dtype, grid, block, shared, args):
        located = [self._used(x) for x in args]
        self.launches.append(Launch(file, entry, dtype, grid, block, shared, located))

    def _used(self, x):
        """An argument of the launch that comes next."""
        if not isinstance(x, self.backend.array_type):
            return x
        view = self.located(x)
        if isinstance(view, View):
            allocation = view.allocation
            allocation.last = len(self.launches)
            allocation.first = allocation.last if allocation.first is None else allocation.first
        return view

    def cell(self, shape, dtype):
        """A small array that the host fills before each call, as the host and as kernels see it."""
        array = np.zeros(shape, dtype)
        return array, array

    def cells(self, values, shape, dtype):
        """See Launcher.cells: an array that holds what values() returns at each call."""
        cell, array = self.cell(shape, dtype)

        def refresh():
            cell[...] = values()

        self.calls.append(refresh)
        return array

    def table(self, struct, rows):
        """See Launcher.table: it is packed once the step's memory has been laid out."""
        return Table(struct, [{name: self._used(x) for name, x in row.items()} for row in rows])

    def stop(self):
        """See Launcher.stop: here a wrong index is found before the step runs."""
        return None

    def replayer(self, launches):
        """What replays launches whose Views have become arrays: see Replay."""
        return Replay(self.backend.replayer(launches))

    # -- random numbers

    def reserve(self, generator, blocks):
        """See Generator.reserve: blocks of the stream, counted from where it stands when the step is called."""
        if generator not in self.streams:
            self.streams[generator] = Stream(*self.cell((2,), np.uint64))
        stream = self.streams[generator]
        start = stream.at
        stream.at += blocks
        stream.blocks = max(stream.blocks, stream.at)
        return Draw(generator.seed, start, generator)

    def drawn(self, generator):
        """How many blocks of its stream the step has drawn, or less after rewind()."""
        return self.streams[generator].at if generator in self.streams else 0

    def rewind(self, generator, seed, offset):
        """Draw numbers again that the step has drawn before, as recomputation does."""
        at, stream = offset - generator.offset, self.streams.get(generator)
        if seed != generator.seed or not 0 <= at <= (stream.blocks if stream else 0):
            refuse("setting a generator to a state from outside of the step")
        if stream:
            stream.at = at

    def stream(self, draw):
        """See Launcher.stream."""
        if draw.generator not in self.streams:
            raise CaptureError(f"random numbers that were reserved before the step cannot be captured ({user_line()})")
        return self.streams[draw.generator].array, 0, draw.offset

    # -- announcements

    def op(self, op, tensors):
        """An op runs on these Tensors."""
        if not op.primitive:
            refuse(f"{op.name}, an op that may compute in NumPy,")
        for x in tensors:
            if x.storage.backend is not self.backend:
                refuse(f"{op.name} of a Tensor on another device than the arguments'")
            if id(x) not in self.tensors and not isinstance(self.located(x.array), View) and not self.is_input(x):
                hooks = list(x.node.hooks.values()) if x.node is not None and x.node.hooks else None
                self.tensors[id(x)] = x, x.array, x.node, hooks

    def is_input(self, x):
        """Is a Tensor one of the step's arguments?"""
        return any(x.array is array for array, _ in self.inputs)

    def results(self, op, inputs, outputs):
        """An op has run. What it returns must have been made by launches, or be a view of what was there before."""
        for y in outputs:
            own = isinstance(y, np.ndarray) and y.base is None and y.size and y.flags.writeable
            if own and not any(y is x for x in inputs) and not isinstance(self.located(y), View):
                refuse(f"{op.name}, computed outside of kernels here,")

    def module(self, module):
        """A module is called, or at hand. With it, those below it are watched."""
        if id(module) not in self.modules:
            for each in module.modules():
                self.modules[id(each)] = each, Contents(each)

    def grad(self, node):
        """The .grad of a node is going to be set."""
        self.grads.setdefault(node, node.grad)

    def accumulates(self, node):
        """A gradient is going to be added to a node's .grad, which is None if it is the first one."""
        if node.grad is not None and type(self.located(node.grad.array)) is not View:
            refuse("adding to the gradients of the call before, without zero_grad() in the step,")
        if node not in self.grads:
            self.grads[node] = None
            known = weakref.ref(node)  # else the guard would keep a node of the step, and with it its graph
            self.guards.append((lambda: getattr(known(), "grad", None) is None, True))

    def reads_grad(self, node):
        """A .grad from before the step is used: it must be the same Tensor at each call."""
        g: Any = node.grad
        known = weakref.ref(node)
        if g is None:
            if node not in self.grads:
                self.guards.append((lambda: getattr(known(), "grad", None) is None, True))
        elif type(self.located(g.array)) is not View:
            array = g.array
            self.guards.append((lambda: g.array is array and getattr(known(), "grad", None) is g, True))

    def checked(self, array, n, ignored, function):
        """An array of indices, of which function(array) raises if any is neither in [0, n) nor `ignored`: called now
        and before each call. What the step itself computes cannot be checked then, and is refused."""
        if isinstance(self.located(array), View):
            refuse("an index that the step itself computes")
        for given, storage in self.inputs:
            if self.backend.overlap(array, given) and storage.version:
                refuse("an index that the step changes in place")
        function(array)
        self.checks.append((array, function))
        return array


class Contents:
    """What must not change of a module between calls: which objects are its attributes, and which are in these, if they
    are dicts, lists or tuples."""

    def __init__(self, module):
        module.training = module.training  # as eval() and train() do: an attribute of its own
        attributes = vars(module)
        nested = [value for value in attributes.values() if type(value) in (dict, list, tuple)]
        self._containers = [attributes, *nested]
        self._kept = [list(_values(each)) for each in self._containers]  # so that no id is used again
        self._ids = [list(map(id, values)) for values in self._kept]
        self._tensors = [(x, x.array, x.node) for x in attributes.values() if hasattr(x, "storage")]

    def hold(self):
        return all(list(map(id, _values(each))) == ids for each, ids in zip(self._containers, self._ids)) and all(
            x.array is array and x.node is node for x, array, node in self._tensors
        )


def _values(container):
    return container.values() if type(container) is dict else container


class Stream:
    """What a step draws from a generator. cell, array: see Recorder.cell; the key, and the offset at which a call
    begins."""

    def __init__(self, cell, array):
        self.cell, self.array = cell, array
        self.blocks = 0  # of four words, in a call
        self.at = 0  # which of them comes next


class Replay(NamedTuple):
    """How a recorded step is run again: run(); begin() before its arguments and cells are written, and end() after its
    results have been copied."""

    run: Any
    begin: Any = lambda: None
    end: Any = lambda: None


class Program:
    """A recorded step, ready to run: see `replay`. kept: Views that hold their values until the next call."""

    def __init__(self, recorder, kept):
        end = len(recorder.launches)
        for view in kept:
            view.allocation.first, view.allocation.last = view.allocation.first or 0, end
        used = [allocation for allocation in recorder.allocations if allocation.first is not None]
        self.nbytes = lay_out(used)
        self._backend = backend = recorder.backend
        self._memory = backend.memory(self.nbytes + ALIGNMENT)
        self._skip = -backend.address(self._memory) % ALIGNMENT
        self.launches = [launch._replace(args=[self._placed(x) for x in launch.args]) for launch in recorder.launches]
        self.replay = recorder.replayer(self.launches)

    def _placed(self, x):
        if type(x) is View:
            return self.array(x)
        if type(x) is Table:
            rows = [{name: self._placed(value) for name, value in row.items()} for row in x.rows]
            return Table(x.struct, rows)
        return x

    def array(self, view):
        """The array of a View."""
        start = self._skip + view.allocation.offset + view.offset
        return self._backend.array_in(self._memory, start, view.shape, view.dtype, view.strides)


def below(x):
    """How many bytes before an array's first element its memory begins: 0, or less if strides are negative."""
    return sum(min(0, step * (n - 1)) for n, step in zip(x.shape, x.strides))


def spanned(x):
    """How many bytes an array's elements lie within."""
    return sum(abs(step) * (n - 1) for n, step in zip(x.shape, x.strides)) + x.itemsize if x.size else 0


def lay_out(allocations):
    """Give each allocation its offset in the arena -> bytes of the arena. Those in use at the same time lie apart.

    The largest come first, each as low as it fits ("greedy by size": Pisarchyk and Lee, "Efficient memory management
    for deep neural net inference", 2020)."""
    placed: list[Allocation] = []
    total = 0
    for new in sorted(allocations, key=lambda each: (-each.nbytes, each.first)):
        beside = [old for old in placed if old.first <= new.last and new.first <= old.last]
        offset = 0
        for old in sorted(beside, key=lambda each: each.offset):
            if old.offset - offset >= new.nbytes:
                break
            offset = max(offset, old.offset + _rounded(old.nbytes))
        new.offset = offset
        placed.append(new)
        total = max(total, offset + _rounded(new.nbytes))
    return total


def _rounded(nbytes):
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
