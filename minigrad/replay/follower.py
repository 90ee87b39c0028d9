"""One call of a captured step: its Python runs, and what it does is compared with what was recorded.

A recording is a tree of Entries: an op, a primitive of a backend, or a backward walk. While the step's Python runs, the
Follower of the call is at an Entry. What Python does next is looked up among the Entries that came next in other
calls. If one has the same class, parameters and inputs, its recorded results are returned, and nothing is computed. If
there is none, the action is recorded there, as a new branch. When the call ends, or needs a value, the launches of the
Entries that were passed run in one call into C.

Recorded arrays have addresses but no memory (backend/launch/program.py), so `is` tells whether two are the same value.
An array, storage or leaf node from outside the call is bound to a recorded one at its first use. Nearest relatives:
Terra (Kim et al., NeurIPS 2021), and PyTorch's lazy tensors, which reuse nodes.
"""

import numpy as np

from ..autograd import Storage, Value, mode
from ..backend.launch.program import Launch, below
from ..backend.philox import Draw
from ..base.recording import CaptureError, refuse, uncaptured, user_line
from ..ops.elementwise import Add, Div, Mul, Sub, Transfer
from ..ops.index import Getitem
from .entries import Entry, Late, as_tuple, exact, here, make_room, parts, replaced, spec, varies, wrapped
from .walks import Walks


class Follower(Walks):
    """A call."""

    def apply(self, cls, inputs, params):
        """Op.apply."""
        if self.at is self.recording.root:
            self._meet(next(x.storage.backend for x in inputs if isinstance(x, Value)))
        if cls in (Getitem, Transfer) and inputs[0].node is None:
            place = self._place(inputs[0])
            if place is None or cls is Transfer:
                return self._at_once(cls, inputs[0], params, place)
        draws: list = []
        form = tuple([(name, exact(value, draws)) for name, value in params.items()]) if params else ()
        now = mode.__dict__
        grad = now["grad"] if not now["inference"] else None
        if now["anomaly"]:
            refuse("detect_anomaly() inside")
        for e in self.at.next:
            if e.kind is cls and e.grad is grad and e.form == form and self._takes(e, inputs):
                break
        else:
            e = self._record_op(cls, inputs, params, form, draws)
        self._pass(e, [*draws, *[inputs[i] for i in e.varying]] if e.varying else draws)
        ys = [None if out is None else self._made(*out) for out in e.outs]
        if now["watch"] is not None:
            now["watch"](e.op or cls(), inputs, ys)
        return tuple(ys) if e.result else ys[0]

    def _at_once(self, cls, x, params, place):
        """Rows of data, at an index that may differ at each call, and values for another device."""
        if place is not None:
            self.flush()
            x = wrapped(here(self.on, self.memory, self.blocks, place, x.array), None, Storage(self.on))
        with uncaptured(after=self.dirty):
            return cls.apply(x, **params)

    def _record_op(self, cls, inputs, params, form, draws):
        if not cls.primitive:
            raise CaptureError(f"{cls.name}, an op that may compute in NumPy, cannot be captured ({user_line()})")
        e = Entry(cls, form)
        self.hooked = self.hooked or cls.runs_hooks
        mark = len(self.journal)
        e.late = [Late(draw) for draw in draws]
        given = tuple([self._proxy(e, x) if isinstance(x, Value) else x for x in inputs])
        e.inputs = [parts(x) if isinstance(x, Value) else (None, exact(x), None) for x in given]
        if cls in (Add, Sub, Mul, Div):
            given = self._with_cell(e, given)
        result = self._recorded(e, lambda: cls.apply(*given, **params), mark)
        e.result = isinstance(result, tuple)
        for y in as_tuple(result):
            if y is None:
                e.outs.append(None)
                continue
            self._check_made(cls.name, y.array, [x.array for x in given if isinstance(x, Value)])
            e.outs.append(parts(y))
            self.space.known(y.array)
            self.recording.storages.add(y.storage)
            e.op = y.node.op if y.node is not None and y.node.op is not None else e.op
        arrays = [out[0] for out in e.outs if out is not None]
        if e.op is not None and e.op not in self.recording.ops:
            self.recording.ops.add(e.op)
            arrays += e.op.saved_arrays()
        self._last(e, arrays)
        self.at.next.append(e)
        return e

    def _with_cell(self, e, given):
        """The inputs of a sum, difference, product or quotient, with a cell instead of a Python number, if another call
        had another number here, or in an earlier op."""
        i = next((i for i, x in enumerate(given) if varies(x)), None)
        if i is None or given[1 - i].dtype.char not in "fd":
            return given
        self.varies = self.varies or any(other.kind is e.kind and other.inputs[i][0] is None for other in self.at.next)
        if not self.varies:
            return given
        late, storage = Late(given[i]), Storage(self.on)
        cell, there = self.on.cell((), given[1 - i].dtype)
        cell[...] = late.value
        e.late.append(late)
        e.refreshes.append((cell, there, lambda: late.value))
        e.varying, e.inputs[i] = (i,), (None, Late, None)
        self.recording.storages.add(storage)
        return (*given[:i], wrapped(there, None, storage), *given[i + 1 :])

    # called by code that launches kernels, see launch/launcher.py

    def empty(self, shape, dtype):
        """Memory of the step."""
        if self.entry is None:
            raise CaptureError(f"memory outside of an op cannot be captured ({user_line()})")
        return self.space.empty(shape, dtype)

    def launch(self, *args):
        """Record a launch."""
        launch = Launch(*args)
        kernel = self.on.kernel(*launch[:3])  # compiled now: if it cannot be, nothing has happened yet
        kernel.contract.check(launch.grid, launch.args, self.on.overlap)
        self.entry.launches.append(launch)

    def stream(self, draw):
        """See Launcher.stream."""
        late = next((late for late in self.entry.late if late.value is draw), None)
        if late is None:
            raise CaptureError(f"random numbers drawn within an op cannot be captured ({user_line()})")
        return self.cells(lambda: (late.value.key, late.value.offset), (2,), np.uint64), 0, 0

    def cells(self, values, shape, dtype):
        """See Launcher.cells."""
        cell, there = self.on.cell(shape, dtype)
        cell[...] = values()
        self.entry.refreshes.append((cell, there, values))
        return there

    # -- primitives that no op calls: in-place changes, new arrays, optimizers

    def primitive(self, name, function, on, args, kwargs):
        """A primitive of the backend: function(on, *args, **kwargs)."""
        if self.entry is not None:
            return function(on, *args, **kwargs)
        self._meet(on)
        late: list = []
        arrays: list = []
        index = args[1:2] if name in ("getitem", "setitem") else ()  # its arrays are the host's
        rest = args[:1] + args[2:] if index else args
        form = exact(index), exact((rest, kwargs), late, arrays)
        writes = name == "setitem" or name[-1] == "_" or kwargs.get("out") is not None

        def run(arrays, late):
            given, named = replaced((rest, kwargs), iter(arrays), iter(late), on.array_type)
            return function(on, *given[:1], *index, *given[1:], **named)

        varies = name == "setitem" and any(isinstance(part, np.ndarray) for part in args[1])
        if name == "flatnonzero":  # how many there are, no recording can tell
            return self._for_real(arrays, lambda given: run(given, late))
        if writes and (self.shares or varies or (len(arrays) < 4 and self._entangled(arrays))):
            return self._for_real(arrays, lambda given: run(given, late))
        for e in self.at.next:
            if e.kind == name and e.form == form and self._takes_arrays(e, arrays):
                break
        else:
            e = self._record_primitive(name, form, arrays, late, run)
        self._pass(e, late)
        self.dirty = self.dirty or (writes and e.outside)
        return e.result

    def _record_primitive(self, name, form, arrays, late, run):
        e, mark = Entry(name, form), len(self.journal)
        e.inputs = [self._recorded_array(e, x) for x in arrays]
        e.late = [Late(value) for value in late]
        e.result = self._recorded(e, lambda: run(e.inputs, e.late), mark)
        e.outs = [self.space.known(y) for y in as_tuple(e.result) if isinstance(y, self.on.array_type)]
        self._last(e, e.outs)
        places = [self.space.place(x) for x in e.inputs]
        e.outside = any(place is not None and place[0] in self.recording.outside for place in places)
        for y in e.outs:
            self._check_made(name, y, e.inputs)
            if not any(y is x for x in e.inputs):
                storage = self.recording.raw[id(y)] = Storage(self.on)
                self.recording.storages.add(storage)
        self.at.next.append(e)
        return e

    def _entangled(self, arrays):
        """Do two of these share memory where the recorded arrays do not, such as views made before the call?"""
        found: list = []  # (array in memory, the recorded one)
        for x in arrays:
            place = self.space.place(x)
            if place is None:
                found.append((x, self.bound.get(id(x), (x, None))[1]))
            elif place[0] in self.recording.outside:
                found.append((here(self.on, self.memory, self.blocks, place, x), x))
        return any(
            a is not b and self.on.overlap(a, b) and (x is None or y is None or not self.on.overlap(x, y))
            for i, (a, x) in enumerate(found)
            for b, y in found[:i]
        )

    def _for_real(self, arrays, run):
        """run(arrays) immediately, after everything pending, with their memory."""
        self.flush()
        self._copied(False)
        places = [(x, self.space.place(x)) for x in arrays]
        given = [x if place is None else here(self.on, self.memory, self.blocks, place, x) for x, place in places]
        try:
            with uncaptured(after=False):
                return run(given)
        finally:
            self._copied(True)

    def look_later(self, check):
        """What a check of indices finds: (function, line, array of the GPU), see Cuda.checked."""
        self.entry.checks.append(check)


class Repeat:
    """Repeats what a call did on other arguments, without its Python, for a loop in which nothing else changes.

    It draws random numbers as often, and returns Tensors as the call did."""

    def __init__(self, call, args, results):
        """call: not finished yet. args: its arguments, Tensors and None. results: a tuple of Tensors."""
        self._on, self._program = call.on, call.pending
        self._memory, self._blocks = call.memory, call.blocks
        self._outs = [(call.space.place(y.array), y.array) for y in results]
        places = [None if x is None else call.space.place(call.bound[id(x.array)][1]) for x in args]
        self._slots = [None if place is None else (place[0], spec(x.array, call.on)) for place, x in zip(places, args)]
        self._path = call.path

    def __call__(self, *args):
        """Raises ValueError for arguments of another kind."""
        on = self._on
        for slot, x in zip(self._slots, args, strict=True):
            if (x is None) != (slot is None) or (slot is not None and spec(x.array, on) != slot[1]):
                raise ValueError("a call of a captured step can be repeated on arguments like its own only")
            if slot is not None:
                self._memory[slot[0]], self._blocks[slot[0]] = on.address(x.array) + below(x.array), x.array
        for e in self._path:
            for late in e.late:
                late.value = late.value.again() if type(late.value) is Draw else late.value
            for cell, _, values in e.refreshes:
                cell[...] = values()
        make_room(on, self._program, self._memory, self._blocks)
        self._program.run(self._memory, self._blocks, [])
        self._program.leave(self._blocks)
        ys = [here(on, self._memory, self._blocks, place, y) for place, y in self._outs]
        return tuple([wrapped(y, None, Storage(on)) for y in ys])
