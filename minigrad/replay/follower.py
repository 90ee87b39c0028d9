"""One call of a captured step: its Python runs, and what it does is compared with what was recorded.

A recording is a tree of Entries: an op, a primitive of a backend, or a backward walk. While the step's Python runs, the
Follower of the call stands at an Entry. What Python does next is looked up among the Entries that came next in other
calls. If one is the same in class, parameters and inputs, its recorded results are handed back, and nothing is
computed. If there is none, what Python does is recorded there, as a new branch. When the call ends, or wants to know a
value, the launches of the Entries that were passed run in one call into C.

Recorded arrays have addresses and no memory (backend/launch/program.py), so `is` tells whether two are the same value.
What comes from outside of the call, an array, its storage, or the node of a leaf, is bound to a recorded one where it
is first used. Nearest relatives: Terra (Kim et al., NeurIPS 2021), and PyTorch's lazy tensors, which reuse nodes.
"""

from sys import getrefcount
from typing import Any

import numpy as np

from ..autograd import Node, Storage, Value, mode
from ..autograd.graph import SharedStorage
from ..autograd.walk import reachable, walked
from ..backend.launch.program import Launch, below, spanned
from ..base.recording import CaptureError, refuse, refuse_within, thread, user_line
from ..ops.elementwise import Add, Div, Mul, Sub
from ..ops.index import Getitem
from ..tensor import Tensor
from .entries import (
    GONE,
    Entry,
    Late,
    Slot,
    exact,
    here,
    like,
    make_room,
    parts,
    replaced,
    several,
    varies,
    wrapped,
)  # fmt: skip

PROGRAMS = 32  # that a recording keeps; of more, the oldest is dropped
_new = object.__new__


class Follower:
    """A call."""

    def __init__(self, recording, recording_of):
        """recording_of: a function of a backend, which gives the Recording on it."""
        self.recording, self.on, self.space = recording, recording.on, recording.space
        self.recording_of = recording_of
        self.at = self.since = recording.root
        self.path: list[Entry] = []  # that have not run yet
        self.entry: Any = None  # what is being recorded
        self.missed = False  # has anything been recorded in this call?
        self.made: list[Tensor] = []  # in this call
        self.bound: dict = {}  # {id of an array from outside: (it, the recorded one, a copy that is used instead)}
        self.static: dict = {}  # {storage or node from outside: the recorded one}
        self.real: dict = {}  # the other way round
        self.journal: list = []  # (dict, key) of what was added to these three, to be undone
        self.memory: dict = {}  # {Allocation: address}, of those that lie outside of arenas
        self.blocks: dict = {}  # {Allocation: what holds its memory}
        self.programs: tuple = ()  # that have run in this call
        self.spent: list[set] = []  # ops that walks have been through
        self.shares = False  # does the call change what NumPy may look at?
        self.dirty = False  # do pending launches change what lies outside?
        self.varies = False  # has a number been another than in other calls?
        self.hooked = False  # is there code of the user's for a walk to run?
        self.pending: Any = None  # a Program that is about to run
        self.ran: list = []  # not empty: it has run
        self.held: Any = None  # when the call is over, the Tensors that somebody holds on to
        for storage in recording.changed:
            storage.version = 0
        for node in recording.nodes:
            node.grad, node.hooks, node.retain = None, None, False
        recording.changed, recording.nodes = set(), []

    # -- ops

    def apply(self, cls, inputs, params):
        """Op.apply."""
        if self.entry is not None:
            return cls.run(inputs, params)
        if cls is Getitem and inputs[0].node is None and self.space.place(inputs[0].array) is None:
            if self.dirty:
                self.flush()
            return self._apart(lambda: cls.run(inputs, params))  # of data, at an index that may be another each time
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
        ys: list = []
        for out in e.outs:
            if out is None:
                ys.append(None)
                continue
            y = _new(Tensor)
            y.array, y.node, y.storage = out
            self.made.append(y)
            ys.append(y)
        if now["watch"] is not None:
            now["watch"](e.op or cls(), inputs, ys)
        return tuple(ys) if e.result else ys[0]

    def _pass(self, e, late):
        """Go on to an Entry that fits."""
        if late:
            for known, value in zip(e.late, late):
                known.value = value
            for cell, _, values in e.refreshes:
                cell[...] = values()
        self.path.append(e)  # after all that its launches read, in case of an interrupt
        self.at = e

    def _takes(self, e, inputs):
        """Are these the inputs of an Entry? Those that come in with it are bound."""
        if len(inputs) != len(e.inputs):
            return False
        mark = len(self.journal)
        for x, (array, node, storage) in zip(inputs, e.inputs):
            if array is None:
                if not isinstance(x, Value) and (varies(x) if node is Late else exact(x) == node):
                    continue
            elif isinstance(x, Value):
                if x.array is array and x.node is node:
                    continue
                if (
                    self._same_array(e, x.array, array, x)
                    and self._alike(x.storage, storage)
                    and self._same_node(x.node, node)
                ):
                    continue
            self._undo(mark)
            return False
        return True

    def _same_node(self, given, known):
        if given is None or known is None or given is known:
            return given is known
        return given.op is known.op and known.op in (None, GONE) and self._alike(given, known)

    def _alike(self, given, known):
        """Is a storage or a node the recorded one? If neither has a partner yet in this call, they are from now on."""
        if given is known:
            return True
        if self.static.get(given, known) is not known or self.real.get(known, given) is not given:
            return False
        if given not in self.static:
            self.static[given], self.real[known] = known, given
            self.journal += (self.static, given), (self.real, known)
        return True

    def _undo(self, mark):
        while len(self.journal) > mark:
            known, key = self.journal.pop()
            del known[key]

    def _same_array(self, e, x, array, tensor=None):
        """Is x the recorded array? tensor: what it belongs to, if that is known."""
        if tensor is not None and tensor.storage.backend is not self.on:
            return False
        known = self._known(x)
        if known is not None:
            return known is array
        slot = e.slots.get(id(array))
        if slot is None:  # perhaps a view of recorded memory, which is made anew at each call
            place = self.space.place(x)
            return place is not None and place == self.space.place(array) and like(x, self.on) == like(array, self.on)
        if slot.last is not x and (like(x, self.on) != slot.like or self.space.place(x) is not None):
            return False
        self._bind(x, slot, tensor)
        return True

    def _known(self, x):
        """The recorded array in the place of x, if it has come in already."""
        known = self.bound.get(id(x))
        if known is None:
            return None
        _, array, copy = known
        if copy is not None:
            if self.dirty:
                self.flush()
            if not np.array_equal(copy, x):  # NumPy has changed it since
                self.flush()
                self.on.refill(copy, x)
        return array

    def _bind(self, x, slot, tensor):
        copy = None
        if tensor is not None and tensor.node is None and type(tensor.storage) is SharedStorage:
            if self.dirty:
                self.flush()
            copy = self.on.alike(x)
        self.bound[id(x)] = x, slot.array, copy
        self.journal.append((self.bound, id(x)))
        if slot.allocation is not None:
            if slot.last is not x:
                slot.last, slot.address = x, self.on.address(x) + below(x)
            self.blocks[slot.allocation] = x if copy is None else copy
            self.memory[slot.allocation] = slot.address if copy is None else self.on.address(copy) + below(copy)

    # -- recording

    def _record_op(self, cls, inputs, params, form, draws):
        if not cls.primitive:
            raise CaptureError(f"{cls.name}, an op that may compute in NumPy, cannot be captured ({user_line()})")
        self._meet(next(x.storage.backend for x in inputs if isinstance(x, Value)))
        e = Entry(cls, form)
        self.hooked = self.hooked or cls.runs_hooks
        mark = len(self.journal)
        e.late = [Late(draw) for draw in draws]
        given = tuple([self._proxy(e, x) if isinstance(x, Value) else x for x in inputs])
        e.inputs = [parts(x) if isinstance(x, Value) else (None, exact(x), None) for x in given]
        if cls in (Add, Sub, Mul, Div):
            given = self._with_cell(e, given)
        result = self._recorded(e, lambda: cls.run(given, params), mark)
        e.result = isinstance(result, tuple)
        for y in several(result):
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
        """The inputs of a sum, difference, product or quotient, with a cell in the place of a Python number, if another
        call had another number here, or in an op before."""
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

    def _recorded(self, e, run, mark):
        """run(), with what it launches noted in an Entry. After an error, what has come in since `mark` has not."""
        self.missed = True
        self.recording.entries += 1
        self.entry, made = e, len(self.made)
        try:
            return run()
        except BaseException:
            self._undo(mark)
            raise
        finally:
            self.entry = None
            del self.made[made:]

    def _last(self, e, arrays):
        """Note what an Entry leaves behind."""
        places = [self.space.place(x) for x in arrays]
        e.lasting = list(dict.fromkeys(place[0] for place in places if place is not None))

    def _check_made(self, name, y, given):
        if y.size and self.space.place(y) is None and not any(y is x for x in given):
            raise CaptureError(f"{name}, computed outside of kernels here, cannot be captured ({user_line()})")

    def _proxy(self, e, x):
        """The recorded Tensor in the place of x."""
        self._meet(x.storage.backend)
        array, node, storage = self._recorded_array(e, x.array, x), x.node, x.storage
        if storage not in self.recording.storages:
            known = self.static.get(storage)
            if known is None:
                known = Storage(self.on)
                known.version = None if storage.version is None else 0
                self.recording.storages.add(known)
                self._alike(storage, known)
            storage = known
        if node is not None and node.op not in self.recording.ops and node not in self.real:
            known = self.static.get(node)
            if known is None:
                if node.op is not None and node.op is not GONE:
                    raise CaptureError(
                        f"a Tensor of a graph that began before the captured step: detach() it ({user_line()})"
                    )
                known = Node(node.op, 0, node.shape, node.dtype, node.device)
                self._alike(node, known)
            node = known
        return wrapped(array, node, storage)

    def _recorded_array(self, e, x, tensor=None):
        known = self._known(x)
        if known is None and self.space.place(x) is not None:
            known = x
        if known is None:
            before = -below(x)
            given = (on := self.on).address(x) - before
            writeable = getattr(x.flags, "writeable", True)
            array = self.space.array(x.shape, x.dtype, x.strides, before, spanned(x), writeable, given % on.alignment)
            place = self.space.place(array)
            slot = e.slots[id(array)] = Slot(array, place and place[0], like(x, on))
            self.recording.outside.add(slot.allocation)
            self._bind(x, slot, tensor)
            known = array
        return known

    def _meet(self, on):
        if on is self.on:
            return
        if self.at is self.recording.root and not self.bound and on.captures:
            vars(self).update(vars(Follower(self.recording_of(on), self.recording_of)))
        else:
            raise CaptureError(f"Tensors on two devices cannot be captured in one step ({user_line()})")

    # what code that launches kernels announces, see launch/launcher.py

    def empty(self, shape, dtype):
        """Memory of the step."""
        if self.entry is None:
            raise CaptureError(f"memory outside of an op cannot be captured ({user_line()})")
        return self.space.empty(shape, dtype)

    def launch(self, *args):
        """Note a launch."""
        self.on.kernel(*args[:3])  # compiled now: if it cannot be, nothing has happened yet
        self.entry.launches.append(Launch(*args))

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
        e.outs = [self.space.known(y) for y in several(e.result) if isinstance(y, self.on.array_type)]
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
        """Do two of these share memory, which the recorded arrays do not, as views that were made before the call?"""
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
        """run(arrays), now, after all that is pending, with their memory."""
        self.flush()
        self._copied(False)
        places = [(x, self.space.place(x)) for x in arrays]
        given = [x if place is None else here(self.on, self.memory, self.blocks, place, x) for x, place in places]
        try:
            return self._apart(lambda: run(given))
        finally:
            self._copied(True)

    def _apart(self, run):
        thread.recorder = None
        try:
            return run()
        finally:
            thread.recorder = self

    def checked(self, index, n, ignored, check):
        """index, of whose values check() raises if one is wrong; on a GPU a Tensor in its place, and check() is called
        when something next waits."""
        if not hasattr(self.on, "checked"):
            check(self.read(index))
            return index

        def checked(on, array, n, ignored):
            y, found = on.checked(array, n, ignored, check)
            self.entry.checks.append(found)
            return y

        y = self.primitive("check", checked, index.storage.backend, (index.array, n, ignored), {})
        return index._wrap(y, Storage(self.on))

    def _takes_arrays(self, e, arrays):
        mark = len(self.journal)
        for x, array in zip(arrays, e.inputs, strict=True):
            if x is not array and not self._same_array(e, x, array):
                self._undo(mark)
                return False
        return True

    # -- backward

    def walk(self, roots, cotangents, inputs, retain_graph, create_graph, stop, inspect):
        """autograd.backward. A walk in which no code of the user's runs is one Entry."""
        retain = create_graph or inspect is not None if retain_graph is None else retain_graph
        targets = None if inputs is None else [self.static.get(node, node) for node in inputs]
        if all(node.op is None for node in roots):  # of leaves
            return walked(roots, cotangents, inputs, retain, create_graph, stop, inspect)
        hooks = any(given.hooks for given in self.static if type(given) is Node)
        if (
            create_graph
            or stop
            or inspect is not None
            or mode.watch is not None
            or mode.inspecting
            or hooks
            or self.hooked
        ):
            return self._walk_in_python(roots, cotangents, targets, retain, create_graph, stop, inspect)
        if any(node.op not in self.recording.ops and node.op is not GONE for node in roots):
            raise CaptureError(f"a graph that began before the captured step cannot be walked in it ({user_line()})")
        form = tuple(roots), targets, retain
        for e in self.at.next:
            if e.kind == "walk" and e.form == form and self._takes_gradients(e, cotangents):
                break
        else:
            e = self._record_walk(form, roots, cotangents, targets)
        self._pass(e, ())
        if not retain:
            self.spent.append(e.ops)
        for leaf, _, array, storage in e.leaves:
            self.real[leaf].grad = self._made(array, storage)
        return None if targets is None else [None if out is None else self._made(out[0], out[2]) for out in e.outs]

    def _made(self, array, storage):
        x = wrapped(array, None, storage)
        self.made.append(x)
        return x

    def _takes_gradients(self, e, cotangents):
        mark = len(self.journal)
        if not self._takes(e, cotangents):
            return False
        for leaf, before, *_ in e.leaves:
            g = self.real[leaf].grad
            fits = (
                g is None
                if before is None
                else g is not None and (g.array is before or self._same_array(e, g.array, before, g))
            )
            if not fits:
                self._undo(mark)
                return False
        return True

    def _record_walk(self, form, roots, cotangents, targets):
        e = Entry("walk", form)
        e.ops, mark = set(reachable(roots, 0)), len(self.journal)
        for op in e.ops:
            if op.spent or any(op in ops for ops in self.spent):
                raise op.already_spent()
        leaves = {node: None for op in e.ops for node in op.parents if node is not None and node.op is None}
        leaves.update(dict.fromkeys(node for node in roots if node.op is None))
        given = [self._proxy(e, g) for g in cotangents]
        e.inputs = [parts(g) for g in given]
        try:
            for leaf in leaves if targets is None else ():
                g = self.real[leaf].grad
                leaf.grad = leaves[leaf] = None if g is None else self._proxy(e, g)
            found = self._recorded(e, lambda: walked(roots, given, targets, True), mark)
            for leaf, before in leaves.items():
                g = leaf.grad
                if targets is None and g is not before:
                    e.leaves.append((leaf, None if before is None else before.array, g.array, g.storage))
                    self.recording.storages.add(g.storage)
        finally:
            for leaf in leaves:
                leaf.grad = None
        for g in found or ():
            e.outs.append(None if g is None else parts(g))
            self.recording.storages.update(() if g is None else [g.storage])
        self._last(e, [array for _, _, array, _ in e.leaves] + [out[0] for out in e.outs if out is not None])
        self.at.next.append(e)
        return e

    def _walk_in_python(self, roots, cotangents, targets, retain, create_graph, stop, inspect):
        """A walk whose ops are followed one by one, with the hooks and gradients of the leaves outside."""
        ops = set(reachable(roots, 0))
        leaves = [node for node in self.real if type(node) is Node and node.op is None]
        spent = [op for gone in self.spent for op in gone]
        try:
            for op in spent:
                op.spent = True
            for leaf in leaves:
                leaf.grad, leaf.hooks = self.real[leaf].grad, self.real[leaf].hooks
            return walked(roots, cotangents, targets, True, create_graph, stop, inspect)
        finally:
            for op in spent:
                op.spent = False
            for leaf in leaves:
                self.real[leaf].grad, leaf.grad, leaf.hooks = leaf.grad, None, None
            if not retain:
                self.spent.append(ops)

    def note(self, x):
        """A Tensor has been made."""
        x.storage = self.recording.raw.get(id(x.array), x.storage)
        self.made.append(x)

    def looked_into(self, node):
        """Somebody hooks into a node, or retains its gradient."""
        if node.op is not None:
            self.hooked = True
            self.recording.nodes.append(node)

    # -- changes in place, and reading

    def changed(self, storage):
        """Storage.changed, which has just counted a change."""
        if self.entry is not None:
            return
        given, known = (
            (self.real.get(storage), storage)
            if storage in self.recording.storages
            else (storage, self.static.get(storage))
        )
        for partner in (given, known):
            if partner is not None and partner is not storage and partner.version is not None:
                partner.version += 1
        if known is not None:
            self.recording.changed.add(known)
        if given is None:
            return
        self.shares = self.shares or type(given) is SharedStorage
        self.dirty = True

    def _copied(self, copies):
        """Use new copies of what is shared with NumPy, or use it where it lies."""
        for x, array, copy in self.bound.values():
            if copy is not None and (place := self.space.place(array)) is not None:
                if copies:
                    self.on.refill(copy, x)
                used = copy if copies else x
                self.blocks[place[0]], self.memory[place[0]] = used, self.on.address(used) + below(used)

    def read(self, x, shares=False):
        """The values of a Tensor, after all that the step has done so far. shares: the caller hands out memory."""
        refuse_within("reading values on the host")
        place = self.space.place(x.array)
        if place is None:
            if self.dirty or (shares and id(x.array) in self.bound):
                self.flush()
            return self.on.to_numpy(x.array)
        if self.dirty or place[0] not in self.recording.outside:
            self.flush()
        y = self.on.to_numpy(here(self.on, self.memory, self.blocks, place, x.array)).copy()
        y.flags.writeable = False
        return y

    # -- running

    def flush(self):
        """Run what is pending, in the middle of a call."""
        if any(e.launches for e in self.path):
            lasting = self._allocations(self._held())
            for e in self.path:
                if type(e.kind) is str or (e.op is not None and not any(e.op in ops for ops in self.spent)):
                    lasting += e.lasting
            self.pending = self._program(lasting)
            self._advance()
        self.since, self.path, self.dirty = self.at, [], False

    def _advance(self):
        """Run what is pending. After an interrupt, this goes on where it was."""
        recorder, thread.recorder, program = thread.recorder, None, self.pending
        try:
            if not self.ran:
                make_room(self.on, program, self.memory, self.blocks)
                program.run(self.memory, self.blocks, self.ran)
            program.leave(self.blocks)
        finally:
            thread.recorder = recorder
        self.programs = (*self.programs, program)
        self.since, self.path, self.dirty = self.at, [], False
        self.pending, self.ran = None, []

    def _held(self):
        """The Tensors of this call that somebody holds on to."""
        return held(self.made, HELD)

    def _allocations(self, tensors):
        return [place[0] for x in tensors if (place := self.space.place(x.array)) is not None]

    def _program(self, lasting):
        """What runs the pending Entries, after which these Allocations have their values."""
        kept = {each: None for each in lasting if each not in self.memory}
        key = self.at, self.since, self.programs, tuple(kept)
        programs = self.recording.programs
        program = programs.pop(key, None)
        if program is None:
            program = self.on.program(self.on, self.space, self.path, self.memory, kept)
        programs[key] = program
        if len(programs) > PROGRAMS:
            del programs[next(iter(programs))]
        return program

    def settle(self):
        """The call is over: find out what it leaves behind."""
        held = self._held()
        self.pending, self.held = self._program(self._allocations(held)), held

    def finish(self):
        """The call is over. Run what is pending, and give what it leaves behind memory of its own. After an interrupt
        it goes on where it was."""
        if self.pending is not None:
            self._advance()
        if self.held is None:
            self.settle()
            self._advance()
        self._copied(False)
        for x in self.held:
            node = x.node
            if node is not None and node.op is not None and node.op is not GONE:
                x.node = Node(GONE, 0, node.shape, node.dtype, node.device)
                x.node.grad = node.grad
            place = self.space.place(x.array)
            if place is not None:
                x.array = here(self.on, self.memory, self.blocks, place, x.array)
            if x.storage in self.recording.storages:
                if x.storage not in self.real:
                    self.real[x.storage] = Storage(self.on)
                x.storage = self.real[x.storage]


class Repeat:
    """What a call did, done again on other arguments without its Python, for a loop in which nothing else changes.

    It draws random numbers as often, and returns Tensors as the call did."""

    def __init__(self, call, args, results):
        """A call that is not finished yet; args: its arguments, Tensors and None. results: a tuple of Tensors."""
        self._on, self._program = call.on, call.pending
        self._memory, self._blocks = call.memory, call.blocks
        self._outs = [(call.space.place(y.array), y.array) for y in results]
        places = [None if x is None else call.space.place(call.bound[id(x.array)][1]) for x in args]
        self._slots = [None if place is None else (place[0], like(x.array, call.on)) for place, x in zip(places, args)]
        self._path = call.path

    def __call__(self, *args):
        """Raises ValueError for arguments of another kind."""
        on = self._on
        for slot, x in zip(self._slots, args, strict=True):
            if (x is None) != (slot is None) or (slot is not None and like(x.array, on) != slot[1]):
                raise ValueError("a call of a captured step can be repeated on arguments like its own only")
            if slot is not None:
                self._memory[slot[0]], self._blocks[slot[0]] = on.address(x.array) + below(x.array), x.array
        for e in self._path:
            for late in e.late:
                late.value = late.value.again()
            for cell, _, values in e.refreshes:
                cell[...] = values()
        make_room(on, self._program, self._memory, self._blocks)
        self._program.run(self._memory, self._blocks, [])
        self._program.leave(self._blocks)
        ys = [here(on, self._memory, self._blocks, place, y) for place, y in self._outs]
        return tuple([wrapped(y, None, Storage(on)) for y in ys])


def held(made, count):
    """Those to which there are more references than so many."""
    return [x for x in made if getrefcount(x) > count]


HELD = next(count for count in range(9) if not held([object()], count))  # of an object that only the list holds
