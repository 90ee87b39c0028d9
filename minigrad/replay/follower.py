"""One call of a captured step: Python runs, and each of its actions is compared with the captured one.

That is a tree of Entries: an op, a primitive of a backend, or a backward walk. While the step's Python runs, the
Follower of the call is at an Entry. What Python does next is looked up among the Entries that came next in other
calls. If one has the same class, parameters and inputs, its captured results are returned, and nothing is computed. If
there is none, the action is captured there, as a new branch. When the call ends, or needs a value, the launches of the
Entries that were passed run in one call into C.

Captured arrays have addresses but no memory (memory.py), so `is` tells whether two are the same value. What comes from
outside the call is bound to captured objects (bindings.py). Nearest relatives: Terra (Kim et al., NeurIPS 2021), and
PyTorch's lazy tensors, which reuse nodes.
"""

from sys import getrefcount
from typing import Any

import numpy as np

from ..autograd import Node, Storage, Value, mode
from ..autograd.modes import switched
from ..autograd.walk import backward, reachable, walked
from ..base.recording import CaptureError, refuse, refuse_within, uncaptured, user_line
from ..ops.elementwise import Add, Div, Mul, Sub, Transfer
from ..ops.index import Getitem
from .bindings import Bindings
from .entries import GONE, EagerOp, Entry, Late, as_tuple, exact, parts, replaced, tensor_around, varies
from .memory import PROGRAMS, Launch

MOST_PROGRAMS = 32  # most programs that a tree keeps; then the oldest is dropped


class Follower(Bindings):
    """A call, the `recorder` of its thread in base/recording.py."""

    def __init__(self, tree, tree_of):
        """tree_of: a function from a backend to its Tree."""
        super().__init__(tree)
        self.tree_of = tree_of
        # where the call is
        self.at = self.ran_at = tree.root  # the Entry that was passed last, and when launches last ran
        self.path: list[Entry] = []  # passed since then
        self.entry: Any = None  # the Entry that is being captured
        self.is_new = False  # has anything been captured in this call?
        # what the call has made and changed
        self.made: list = []  # Tensors
        self.spent: list[set] = []  # ops that walks have been through
        self.writes_outside = False  # do pending launches change memory outside the call?
        self.numbers_vary = False  # has a number differed from that of other calls?
        self.runs_user_code = False  # is there user code for a walk to run?
        self.eager_ops: dict = {}  # {EagerOp: (inputs, outputs) of the op that ran for it in this call}
        self.walking: set = set()  # captured leaves that a walk in Python has given the gradients of those outside
        # what runs
        self.programs: tuple = ()  # programs that have run in this call
        self.pending: Any = None  # a Program that is about to run
        self.has_run: list = []  # not empty once the arithmetic so far has run
        self.survivors: Any = None  # at the end of the call, the Tensors that are still referenced
        for storage in tree.changed:
            storage.version = 0
        for node in tree.nodes:
            node.grad, node.hooks, node.retain = None, None, False
        tree.changed, tree.nodes = set(), []

    # -- the engine: an op

    def apply(self, cls, inputs, params):
        """Op.apply."""
        if self.at is self.tree.root:
            self._meet(next((x.storage.backend for x in inputs if isinstance(x, Value)), self.on))
        if not cls.primitive:
            return self._apply_eagerly(cls, inputs, params)
        if cls in (Getitem, Transfer) and inputs[0].node is None:
            place = self._place(inputs[0])
            if place is None or cls is Transfer:
                return self._at_once(cls, inputs[0], params, place)
        draws: list = []
        now = mode.__dict__
        form = now["grad"], [(name, exact(value, draws)) for name, value in params.items()] if params else ()
        if now["anomaly"]:
            refuse("detect_anomaly() inside")
        e = self._next(cls, form, inputs) or self._capture_op(cls, inputs, params, form, draws)
        self._pass(e, [*draws, *[inputs[i] for i in e.varying]] if e.varying else draws)
        ys = [None if out is None else self._made(*out) for out in e.outs]
        if now["watch"] is not None:
            now["watch"](e.op or cls(), inputs, ys)
        return tuple(ys) if e.result else ys[0]

    def _at_once(self, cls, x, params, place):
        """Rows of data, at an index that may differ at each call, and values for another device."""
        if place is not None:
            self.flush()
            x = tensor_around(self.memory.array(place, x.array), None, Storage(self.on))
        with uncaptured(after=self.writes_outside):
            return cls.apply(x, **params)

    def _capture_op(self, cls, inputs, params, form, draws):
        e = Entry(cls, form)
        e.late = [Late(draw) for draw in draws]

        def run():
            given = tuple([self._proxy(e, x) if isinstance(x, Value) else x for x in inputs])
            e.inputs = [parts(x) for x in given]
            if cls in (Add, Sub, Mul, Div):
                given = self._with_cell(e, given)
            self.entry = e
            result = cls.apply(*given, **params)
            e.result = isinstance(result, tuple)
            ys = as_tuple(result)
            for y in ys:
                if y is not None:
                    self._keep(cls.name, y.array, [x.array for x in given if isinstance(x, Value)])
                    self.tree.storages.add(y.storage)
                    e.op = y.node.op if y.node is not None and y.node.op is not None else e.op
            e.outs = [None if y is None else parts(y) for y in ys]
            arrays = [y.array for y in ys if y is not None]
            if e.op is not None and e.op not in self.tree.ops:
                self.tree.ops.add(e.op)
                arrays += e.op.saved_arrays()
            return arrays

        return self._capture(e, run)

    def _with_cell(self, e, given):
        """The inputs of a sum, difference, product or quotient, with a cell instead of a Python number, if another call
        had another number here, or in an earlier op."""
        i = next((i for i, x in enumerate(given) if varies(x)), None)
        if i is None or given[1 - i].dtype.char not in "fd":
            return given
        self.numbers_vary = self.numbers_vary or any(
            other.kind is e.kind and other.inputs[i][0] is None for other in self.at.next
        )
        if not self.numbers_vary:
            return given
        late, storage = Late(given[i]), Storage(self.on)
        cell, there = self.on.cell((), given[1 - i].dtype)
        cell[...] = late.value
        e.late.append(late)
        e.refreshes.append((cell, there, lambda: late.value))
        e.varying, e.inputs[i] = (i,), (None, Late, None)
        self.tree.storages.add(storage)
        return (*given[:i], tensor_around(there, None, storage), *given[i + 1 :])

    # -- the engine: an op that may compute in NumPy

    def _apply_eagerly(self, cls, inputs, params):
        """Run an op that may compute in NumPy: now, on the values of its inputs. Its outputs come into the rest of the
        step as arrays from outside, so only their shapes and dtypes must be those of other calls. In the captured
        graph an EagerOp represents it, which runs its backward in the same way."""
        if mode.anomaly:
            refuse("detect_anomaly() inside")
        self.flush()
        given = [self._with_values(x) if isinstance(x, Value) else x for x in inputs]
        with uncaptured(after=False), switched(watch=None):
            result = cls.apply(*given, **params)
        ys = as_tuple(result)
        form = [None if y is None else (y.shape, y.dtype, y.node is not None) for y in ys]
        tensors = [x for x in inputs if isinstance(x, Value)]
        e = self._next(cls, form, tensors) or self._capture_eager_op(cls, form, inputs, given, ys, params)
        self._pass(e, ())
        if e.op is not None:
            self.eager_ops[e.op] = given, ys
            self.runs_user_code = True
        nodes = [None if out is None else out[1] for out in e.outs]
        outputs = [None if y is None else self._from_outside(y, node, inputs, given) for y, node in zip(ys, nodes)]
        if mode.watch is not None:
            mode.watch(e.op or cls(), inputs, outputs)
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]

    def _with_values(self, x):
        """A Tensor around the values of x, after flush(): a leaf if x is in the graph."""
        place, node = self._place(x), None
        if x.node is not None:
            node = Node(None, 0, x.node.shape, x.node.dtype, x.node.device)
        return tensor_around(x.array if place is None else self.memory.array(place, x.array), node, x.storage)

    def _from_outside(self, y, node, inputs, given):
        """The Tensor that the step gets for y, an output of an op that ran on `given` instead of `inputs`."""
        for x, values in zip(inputs, given):
            if isinstance(x, Value) and y.storage is x.storage:
                if y.array is values.array:
                    return self._made(x.array, node, x.storage)
                with uncaptured(after=False):  # two captured arrays must not be the same memory: a view becomes a copy
                    y = y.detach().clone()
        return self._made(y.array, node, y.storage)

    def _capture_eager_op(self, cls, form, inputs, given, ys, params):
        e = Entry(cls, form)

        def run():
            known = [self._proxy(e, x) if isinstance(x, Value) else None for x in inputs]
            e.inputs = [parts(x) for x in known if x is not None]
            if any(y is not None and y.node is not None for y in ys):
                parents = [None if x is None else x.node for x in known]
                e.op = EagerOp.standing_for(cls, params, parents, ys, self.on)
                self.tree.ops.add(e.op)
            e.outs = [
                None if y is None else (None, y.node and Node(e.op, i, y.shape, y.dtype, y.device), None)
                for i, y in enumerate(ys)
            ]
            return []

        return self._capture(e, run)

    def eager_backward(self, op, dys):
        """The backward of an EagerOp: that of the op which ran in this call, on the values of dys."""
        if mode.grad:
            raise CaptureError(
                f"{op.name} is an op of your own that computes in NumPy: a captured step gives its first derivative "
                f"only, so create_graph=True must stay outside of it ({user_line()})"
            )
        self.flush()
        given, ys = self.eager_ops[op._whole or op]
        pairs = [(y.node, self._with_values(dy)) for y, dy in zip(ys, dys) if dy is not None and y.node is not None]
        wanted = [x.node for x, need in zip(given, op.needs) if need]
        with uncaptured(after=False):
            dxs = iter(backward([node for node, _ in pairs], [dy for _, dy in pairs], wanted, True))
        return tuple([next(dxs) if need else None for need in op.needs])

    # -- the engine: a backward walk, hooks, changes in place

    def walk(self, roots, cotangents, inputs, retain_graph, create_graph, inspect):
        """autograd.backward. A walk in which no user code runs is one Entry."""
        retain = create_graph or inspect is not None if retain_graph is None else retain_graph
        targets = None if inputs is None else [self.captured.get(node, node) for node in inputs]
        roots = [self.captured.get(node, node) for node in roots]
        looks = inspect is not None or mode.inspecting or mode.watch is not None
        hooks = self.runs_user_code or any(given.hooks for given in self.captured if type(given) is Node)
        if create_graph or looks or hooks or any(node.op is None for node in roots):
            return self._walk_in_python(roots, cotangents, targets, retain, create_graph, inspect)
        if any(node.op not in self.tree.ops and node.op is not GONE for node in roots):
            raise CaptureError(f"a graph that began before the captured step cannot be walked in it ({user_line()})")
        form = tuple(roots), targets, retain
        leaves = next((e.leaves for e in self.at.next if e.kind == "walk" and e.form == form), ())
        given = [*cotangents, *[self.given[leaf].grad for leaf, _ in leaves]]
        e = self._next("walk", form, given) or self._capture_walk(form, roots, cotangents, targets)
        self._pass(e, ())
        if not retain:
            self.spent.append(e.ops)
        for leaf, after in e.leaves:
            if after is not None:
                self.given[leaf].grad = self._made(*after)
        return None if targets is None else [None if out is None else self._made(*out) for out in e.outs]

    def _capture_walk(self, form, roots, cotangents, targets):
        e, ops = Entry("walk", form), reachable(roots, 0)
        for op in ops:
            if op.spent or any(op in gone for gone in self.spent):
                raise op.already_spent()
        leaves = {node: None for op in ops for node in op.parents if node is not None and node.op is None}
        leaves = leaves if targets is None else {}
        e.ops = set(ops)

        def run():
            before = [self.given[leaf].grad for leaf in leaves]
            given = [None if g is None else self._proxy(e, g) for g in (*cotangents, *before)]
            e.inputs = [parts(g) for g in given]
            for leaf, g in zip(leaves, given[len(cotangents) :]):
                leaf.grad = leaves[leaf] = g
            self.entry = e
            found = backward(roots, given[: len(cotangents)], targets, True)
            e.leaves = [(leaf, None if leaf.grad is g else parts(leaf.grad)) for leaf, g in leaves.items()]
            e.outs = [None if g is None else parts(g) for g in found or ()]
            made = [out for out in (*[after for _, after in e.leaves], *e.outs) if out is not None]
            self.tree.storages.update([storage for _, _, storage in made])
            return [array for array, _, _ in made]

        try:
            return self._capture(e, run)
        finally:
            for leaf in leaves:
                leaf.grad = None

    def _walk_in_python(self, roots, cotangents, targets, retain, create_graph, inspect):
        """A walk whose ops are followed one by one, with the hooks and gradients of the leaves outside. Within another,
        as in the backward of a formula, the leaves have them already."""
        ops = set(reachable(roots, 0))
        leaves = [x for x in self.given if type(x) is Node and x.op is None and x not in self.walking]
        spent = [op for gone in self.spent for op in gone if not op.spent]
        self.walking.update(leaves)
        try:
            for op in spent:
                op.spent = True
            for leaf in leaves:
                leaf.grad, leaf.hooks = self.given[leaf].grad, self.given[leaf].hooks
            return walked(roots, cotangents, targets, True, create_graph, inspect)
        finally:
            for op in spent:
                op.spent = False
            for leaf in leaves:
                self.given[leaf].grad, leaf.grad, leaf.hooks = leaf.grad, None, None
            self.walking.difference_update(leaves)
            if not retain:
                self.spent.append(ops)

    def looked_into(self, node):
        """A Node gets a hook, or keeps its gradient."""
        if node.op is not None:
            self.runs_user_code = True
            self.tree.nodes.append(node)

    def changed(self, storage, times):
        """Storage.changed, which has just counted a change."""
        if self.entry is not None:
            return
        inside = storage in self.tree.storages
        given = self.given.get(storage) if inside else storage
        known = storage if inside else self.captured.get(storage)
        for partner in (given, known):
            if partner is not None and partner is not storage:
                partner.version += times
        if known is not None:
            self.tree.changed.add(known)
        if given is not None:
            self.writes_outside = True

    # -- Tensors that are made, and read

    def note(self, x):
        """A Tensor has been made, or has other memory."""
        if x.storage.backend is self.on:
            x.storage = self.tree.raw.get(id(x.array), x.storage)
            self.made.append(x)

    def _made(self, array, node, storage):
        y = tensor_around(array, node, storage)
        self.made.append(y)
        return y

    def _place(self, x):
        """The place of a captured Tensor, or None for one with memory."""
        return self.space.place(x.array) if x.storage.backend is self.on else None

    def read(self, x):
        """The values of a Tensor, after everything the step has done so far."""
        refuse_within("reading values on the host")
        place = self._place(x)
        if place is None:
            if self.writes_outside:
                self.flush()
            return x.storage.backend.to_numpy(x.array)
        if self.writes_outside or place[0] not in self.tree.outside:
            self.flush()
        return self.on.to_numpy(self.memory.array(place, x.array)).copy()

    # -- primitives of backends outside of ops: in-place changes, new arrays, updates of optimizers

    def primitive(self, name, function, on, args, kwargs):
        """A primitive of the backend: function(on, *args, **kwargs)."""
        if self.entry is not None:
            return function(on, *args, **kwargs)
        self._meet(on)
        late: list = []
        arrays: list = []
        index = args[1:2] if name in ("getitem", "setitem") else ()  # arrays in an index lie on the host
        rest = args[:1] + args[2:] if index else args
        form = exact(index), exact((rest, kwargs), late, arrays)
        writes = name == "setitem" or name[-1] == "_" or kwargs.get("out") is not None

        def run(arrays, late):
            given, named = replaced((rest, kwargs), iter(arrays), iter(late), on.array_type)
            return function(on, *given[:1], *index, *given[1:], **named)

        places = name == "setitem" and any(isinstance(part, np.ndarray) for part in args[1])  # may differ at each call
        real = writes and (places or (len(arrays) < 4 and self._entangled(arrays)))
        if real or name == "flatnonzero":  # how many places it finds, no earlier call can tell
            return self._for_real(arrays, lambda given: run(given, late))
        e = self._next(name, form, arrays) or self._capture_primitive(name, form, arrays, late, run)
        self._pass(e, late)
        self.writes_outside = self.writes_outside or (writes and e.outside)
        return e.result

    def _capture_primitive(self, name, form, arrays, late, call):
        e = Entry(name, form)
        e.late = [Late(value) for value in late]

        def run():
            given = [self._array(e, x) for x in arrays]
            e.inputs = [parts(x) for x in given]
            places = [self.space.place(x) for x in given]
            e.outside = any(place is not None and place[0] in self.tree.outside for place in places)
            self.entry = e
            e.result = call(given, e.late)
            made = [y for y in as_tuple(e.result) if isinstance(y, self.on.array_type)]
            for y in made:
                self._keep(name, y, given)
                if not any(y is x for x in given):
                    storage = self.tree.raw[id(y)] = Storage(self.on)
                    self.tree.storages.add(storage)
            return made

        return self._capture(e, run)

    def _for_real(self, arrays, run):
        """run(arrays) immediately, after everything pending, with their memory."""
        self.flush()
        places = [(x, self.space.place(x)) for x in arrays]
        given = [x if place is None else self.memory.array(place, x) for x, place in places]
        with uncaptured(after=False):
            return run(given)

    # -- launch code within an op or a primitive

    def empty(self, shape, dtype):
        """Memory of the step."""
        if self.entry is None:
            raise CaptureError(f"memory outside of an op cannot be captured ({user_line()})")
        return self.space.empty(shape, dtype)

    def launch(self, *args):
        """Capture a launch."""
        launch = Launch(*args)
        self.on.kernel(*launch[:3])  # compiled now: if it cannot be, nothing has happened yet
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

    def look_later(self, check):
        """What a check of indices finds: (function, line, array of the GPU), see Cuda.checked."""
        self.entry.checks.append(check)

    # -- following: is this what was captured?

    def _next(self, kind, form, inputs):
        """The Entry that came next in another call, if it does the same to the same; inputs from outside are bound."""
        for e in self.at.next:
            if e.kind != kind or e.form != form or len(e.inputs) != len(inputs):
                continue
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
                elif x is array or (isinstance(x, self.on.array_type) and self._same_array(e, x, array)):
                    continue
                self._undo(mark)
                break
            else:
                return e
        return None

    def _pass(self, e, late):
        """Advance to an Entry that fits."""
        if late:
            for known, value in zip(e.late, late):
                known.value = value
            for cell, _, values in e.refreshes:
                cell[...] = values()
        self.path.append(e)  # after all that its launches read, in case of an interrupt
        self.at = e

    def _meet(self, on):
        """Choose the backend on which the step runs: that of the first Tensor."""
        if on is self.on:
            return
        if self.at is self.tree.root and not self.bound and on.captures:
            vars(self).update(vars(Follower(self.tree_of(on), self.tree_of)))
        else:
            raise CaptureError(f"Tensors on two devices cannot be captured in one step ({user_line()})")

    # -- capturing

    def _capture(self, e, run):
        """Capture an Entry as the next. run() sets self.entry when it has bound all inputs, and returns the arrays that
        the Entry leaves behind. After an error nothing stays bound."""
        self.is_new = True
        self.tree.entries += 1
        mark, made = len(self.journal), len(self.made)
        try:
            places = [self.space.place(x) for x in run()]
        except BaseException:
            self._undo(mark)
            raise
        finally:
            self.entry = None
            del self.made[made:]
        e.lasting = list(dict.fromkeys(place[0] for place in places if place is not None))
        self.at.next.append(e)
        return e

    def _keep(self, name, y, given):
        """Remember y, an array that an op or a primitive has made from those given."""
        if y.size and self.space.place(y) is None and not any(y is x for x in given):
            raise CaptureError(
                f"{name} was not computed by a kernel, so it cannot be captured ({user_line()}). If this op of yours "
                f"computes in NumPy, leave out its primitive = True"
            )
        self.space.known(y)

    # -- running

    def flush(self):
        """Run what is pending, in the middle of a call."""
        if any(e.launches for e in self.path):
            lasting = self._allocations(held(self.made, HELD))
            for e in self.path:
                if type(e.kind) is str or (e.op is not None and not any(e.op in ops for ops in self.spent)):
                    lasting += e.lasting
            self.pending = self._program(lasting)
            self._advance()
        self.ran_at, self.path, self.writes_outside = self.at, [], False

    def _advance(self):
        """Run what is pending. After an interrupt, this continues where it stopped."""
        with uncaptured(after=False):
            self.pending.run(self.memory, self.has_run)
        self.programs = (*self.programs, self.pending)
        self.ran_at, self.path, self.writes_outside = self.at, [], False
        self.pending, self.has_run = None, []

    def _allocations(self, tensors):
        return [place[0] for x in tensors if (place := self.space.place(x.array)) is not None]

    def _program(self, lasting):
        """The Program that runs the pending Entries, after which these Allocations have their values."""
        given = self.memory.addresses
        kept = dict.fromkeys(each for each in lasting if each not in given)
        key = self.at, self.ran_at, self.programs, tuple(kept)
        programs = self.tree.programs
        program = programs.pop(key, None)
        if program is None:
            program = PROGRAMS[self.on.device](self.on, self.space, self.path, given, kept)
        programs[key] = program
        if len(programs) > MOST_PROGRAMS:
            del programs[next(iter(programs))]
        return program

    def settle(self):
        """The call is over: find out what it leaves behind."""
        survivors = held(self.made, HELD)
        self.pending, self.survivors = self._program(self._allocations(survivors)), survivors

    def finish(self):
        """The call is over. Run what is pending, and give what remains memory of its own. After an interrupt
        it continues where it stopped."""
        if self.pending is not None:
            self._advance()
        if self.survivors is None:
            self.settle()
            self._advance()
        for x in self.survivors:
            node = x.node
            if node is not None and node.op is not None and node.op is not GONE:
                x.node = Node(GONE, 0, node.shape, node.dtype, node.device)
                x.node.grad = node.grad
            place = self.space.place(x.array)
            if place is not None:
                x.array = self.memory.array(place, x.array)
            if x.storage in self.tree.storages:
                if x.storage not in self.given:
                    self.given[x.storage] = Storage(self.on)
                x.storage = self.given[x.storage]

    def abandon(self):
        """What is pending cannot run (out of memory, say): no leaf keeps a gradient without values."""
        for leaf in [given for given in self.captured if type(given) is Node]:
            if leaf.grad is not None and self._place(leaf.grad) is not None:
                leaf.grad = None


def held(made, count):
    """Those with more than a given number of references."""
    return [x for x in made if getrefcount(x) > count]


HELD = next(count for count in range(9) if not held([object()], count))  # references of what only a list holds
