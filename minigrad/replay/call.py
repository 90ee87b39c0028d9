"""One call of a captured step: its Python runs, and each action is compared with the captured ones.

While the step's Python runs, the call is at an entry of the trace tree (trace.py). What Python does next is looked up
among the branches there: the entries that came next in other calls. If one is of the same kind, with an equal guard and
matching inputs, its captured results are returned, and nothing is computed. If there is none, the action is captured as
a new branch. When the call ends, or needs a value, the launches of the entries that were passed are replayed
(execution.py).

Captured arrays have addresses but no memory (addresses.py), so `is` tells whether two are the same value. What comes
from outside the call is bound to captured objects (bindings.py). Nearest relatives: Terra (Kim et al., NeurIPS 2021),
and PyTorch's lazy tensors, which reuse nodes.
"""

from typing import Any

import numpy as np

from ..autograd import Node, Storage, Value, current_modes, is_grad_enabled
from ..autograd.modes import switched
from ..autograd.walk import backward, leading_to, reachable, run_walk
from ..base.capturing import CaptureError, refuse, refuse_within, uncaptured, user_line
from ..ops.elementwise import Add, Div, Mul, Sub, Transfer
from ..ops.index import Getitem
from .bindings import Bindings, two_devices_error
from .execution import Execution
from .guards import VARYING_NUMBER, guard_of, may_vary, parts_of, pattern_of, substituted
from .recording import recording_for
from .trace import (
    FINISHED,
    OpEntry,
    PerCallValue,
    PrimitiveEntry,
    TensorParts,
    TraceEntry,
    TraceTree,
    UserOp,
    WalkEntry,
    tensor_around,
)  # fmt: skip


class CapturedCall:
    """A call of a captured step: the CaptureSession of its thread, whose methods base/capturing.py describes."""

    def __init__(self, tree, tree_for):
        """tree_for: a function that returns the TraceTree of a backend."""
        self.tree_for = tree_for
        self.capturing: Any = None  # the recording backend of the entry that is being captured
        self.has_captured = False  # True if this call has captured anything
        self.has_varying_number = False  # True if a number has differed from that of other calls
        self.backward_runs_user_code = False  # True if a walk must run in Python, for a hook or an op of the user's
        self.leaves_on_loan: set = set()  # captured leaves that have the gradients of those outside, during a walk
        self.user_ops: dict = {}  # {UserOp: (inputs, outputs) of the op that ran for it in this call}
        self._begin_on(tree)

    def _begin_on(self, tree: TraceTree):
        """Start at the root of a trace tree."""
        tree.begin_call()
        self.tree, self.backend, self.space = tree, tree.backend, tree.space
        self.bindings = Bindings(tree)
        self.execution = Execution(self.bindings)

    def _choose_backend(self, backend):
        """Run the step on the backend of its first Tensor. Raises CaptureError for a second backend."""
        if backend is self.backend:
            return
        # It may change only before the first entry and the first array of the call.
        if self.execution.position is not self.tree.root or self.bindings.bound_arrays or not backend.captures:
            raise two_devices_error(self.backend, backend)
        self._begin_on(self.tree_for(backend))

    def finish(self):
        self.execution.finish()

    def abandon(self):
        self.execution.abandon()

    def run_pending(self):
        self.execution.run_pending()

    # -- ops

    def apply_op(self, op, inputs, params):
        if self.execution.position is self.tree.root:
            self._choose_backend(next((x.storage.backend for x in inputs if isinstance(x, Value)), self.backend))
        if not op.primitive:
            return self._run_user_op(op, inputs, params)
        if op in (Getitem, Transfer) and inputs[0].node is None:
            place = self.bindings.place_of(inputs[0])
            if place is None or op is Transfer:
                return self._run_now(op, inputs[0], params, place)
        draws: list = []
        modes = current_modes()
        watch = modes["watch"]
        guard = modes["grad"], [(name, guard_of(value, draws)) for name, value in params.items()] if params else ()
        if modes["anomaly"]:
            refuse("detect_anomaly() inside")
        e = self._find_branch(op, guard, inputs) or self._capture_op(op, inputs, params, guard, draws)
        self.execution.advance_to(e, draws if e.varying is None else [*draws, inputs[e.varying]])
        ys = [None if output is None else self._tensor(*output) for output in e.outputs]
        if watch is not None:
            watch(e.op or op(), inputs, ys)
        return tuple(ys) if e.returns_tuple else ys[0]

    def _run_now(self, op, x, params, place):
        """Compute a Getitem on an array from outside, whose index may differ at each call, or a Transfer to another
        device, and return its output, which comes into the step as a Tensor from outside."""
        if place is not None:
            self.run_pending()
            x = tensor_around(self.bindings.memory.array(place, x.array), None, Storage(self.backend))
        with uncaptured(after=self.execution.writes_outside):
            return op.apply(x, **params)

    def _capture_op(self, op, inputs, params, guard, draws):
        """Capture an op that no branch matches, as a new entry. Return the entry."""
        e = OpEntry(op, guard)
        e.per_call_values = [PerCallValue(draw) for draw in draws]

        def run():
            """Run the op on captured inputs, which captures its launches. Return the arrays that it has made."""
            captured = tuple([self.bindings.captured_tensor(e, x) if isinstance(x, Value) else x for x in inputs])
            e.inputs = [pattern_of(x) for x in captured]
            recording = recording_for(self.backend, self.space, e)
            if op in (Add, Sub, Mul, Div):
                captured = self._with_varying_number(e, captured, recording)
            self.capturing = recording
            result = op.apply(*captured, **params)
            e.returns_tuple = isinstance(result, tuple)
            ys = as_tuple(result)
            for y in ys:
                if y is not None:
                    self._remember_result(op.name, y.array, [x.array for x in captured if isinstance(x, Value)])
                    self.tree.storages.add(y.storage)
                    e.op = y.node.op if y.node is not None and y.node.op is not None else e.op
            e.outputs = [None if y is None else parts_of(y) for y in ys]
            arrays = [y.array for y in ys if y is not None]
            if e.op is not None and e.op not in self.tree.ops:
                self.tree.ops.add(e.op)
                arrays += e.op.saved_arrays()
            return arrays

        return self._capture(e, run)

    def _with_varying_number(self, e, operands, recording):
        """The inputs of a sum, difference, product or quotient. If another call had another Python number here, or at
        an earlier op, the number becomes a per-call value, in a parameter buffer."""
        i = next((i for i, x in enumerate(operands) if may_vary(x)), None)
        if i is None:
            return operands
        other = operands[1 - i]
        if not isinstance(other, Value) or other.dtype.char not in "fd":
            return operands
        self.has_varying_number = self.has_varying_number or any(
            branch.kind is e.kind and type(branch.inputs[i]) is not TensorParts
            for branch in self.execution.position.branches
        )
        if not self.has_varying_number:
            return operands
        number = PerCallValue(operands[i])
        e.per_call_values.append(number)
        e.varying, e.inputs[i] = i, VARYING_NUMBER
        array = recording.parameter_buffer(lambda: number.value, (), other.dtype)
        storage = Storage(self.backend)
        self.tree.storages.add(storage)
        return (*operands[:i], tensor_around(array, None, storage), *operands[i + 1 :])

    # -- ops of the user's, which may compute in NumPy

    def _run_user_op(self, op, inputs, params):
        """Run an op of the user's now, on the values of its inputs.

        Its outputs come into the rest of the step as arrays from outside, so the guard asks only that their shapes and
        dtypes are those of other calls. In the captured graph a UserOp stands for it."""
        if current_modes()["anomaly"]:
            refuse("detect_anomaly() inside")
        self.run_pending()
        real_inputs = [self._with_values(x) if isinstance(x, Value) else x for x in inputs]
        with uncaptured(after=False), switched(watch=None):
            result = op.apply(*real_inputs, **params)
        ys = as_tuple(result)
        guard = [None if y is None else (y.shape, y.dtype, y.node is not None) for y in ys]
        tensors = [x for x in inputs if isinstance(x, Value)]
        e = self._find_branch(op, guard, tensors) or self._capture_user_op(op, guard, inputs, ys, params)
        self.execution.advance_to(e, ())
        if e.op is not None:
            self.user_ops[e.op] = real_inputs, ys
            self.backward_runs_user_code = True
        nodes = [None if output is None else output.node for output in e.outputs]
        pairs = zip(ys, nodes)
        outputs = [None if y is None else self._from_outside(y, node, inputs, real_inputs) for y, node in pairs]
        watch = current_modes()["watch"]
        if watch is not None:
            watch(e.op or op(), inputs, outputs)
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]

    def _with_values(self, x):
        """A Tensor around the values of x, after run_pending(): a leaf, if x is in the graph."""
        place, node = self.bindings.place_of(x), None
        if x.node is not None:
            node = Node(None, 0, x.node.shape, x.node.dtype, x.node.device)
        return tensor_around(x.array if place is None else self.bindings.memory.array(place, x.array), node, x.storage)

    def _from_outside(self, y, node, inputs, real_inputs):
        """The Tensor that the step gets for y, an output of an op that ran on `real_inputs`, which have values, in
        place of `inputs`."""
        for x, values in zip(inputs, real_inputs):
            if isinstance(x, Value) and y.storage is x.storage:
                if y.array is values.array:
                    return self._tensor(x.array, node, x.storage)
                with uncaptured(after=False):  # two captured arrays must not share memory, so a view becomes a copy
                    y = y.detach().clone()
        return self._tensor(y.array, node, y.storage)

    def _capture_user_op(self, op, guard, inputs, ys, params):
        """Capture an op of the user's that no branch matches, as a new entry. Return the entry."""
        e = OpEntry(op, guard)

        def run():
            """Put a UserOp into the captured graph for it. No launch is captured, so there are no arrays to return."""
            captured = [self.bindings.captured_tensor(e, x) if isinstance(x, Value) else None for x in inputs]
            e.inputs = [pattern_of(x) for x in captured if x is not None]
            if any(y is not None and y.node is not None for y in ys):
                parents = [None if x is None else x.node for x in captured]
                e.op = UserOp.standing_for(op, params, parents, ys, self.backend)
                self.tree.ops.add(e.op)
            for i, y in enumerate(ys):
                node = Node(e.op, i, y.shape, y.dtype, y.device) if y is not None and y.node is not None else None
                e.outputs.append(None if y is None else TensorParts(None, node, None))
            return []

        return self._capture(e, run)

    def backward_of_user_op(self, op, dys):
        """The gradients of the inputs of a UserOp: the op that ran for it in this call computes them, from the values
        of dys."""
        if is_grad_enabled():
            raise CaptureError(
                f"{op.name} is an op of your own that runs at each call: a captured step gives its first derivative "
                f"only, so create_graph=True must stay outside of it ({user_line()})"
            )
        self.run_pending()
        leaves, ys = self.user_ops[op._original or op]
        pairs = [(y.node, self._with_values(dy)) for y, dy in zip(ys, dys) if dy is not None and y.node is not None]
        wanted = [x.node for x, need in zip(leaves, op.needs) if need]
        with uncaptured(after=False):
            dxs = iter(backward([node for node, _ in pairs], [dy for _, dy in pairs], wanted, True))
        return tuple([next(dxs) if need else None for need in op.needs])

    # -- backward walks, hooks, changes in place

    def backward(self, roots, cotangents, inputs, retain_graph, create_graph, inspect):
        """Do a backward walk. A walk in which no code of the user's runs is one entry; any other runs in Python."""
        bindings = self.bindings
        retain = create_graph or inspect is not None if retain_graph is None else retain_graph
        targets = None if inputs is None else [bindings.captured_for.get(node, node) for node in inputs]
        roots = [bindings.captured_for.get(node, node) for node in roots]
        modes = current_modes()
        is_inspected = inspect is not None or modes["inspecting"] or modes["watch"] is not None
        has_hooks = any(outside.hooks for outside in bindings.captured_for if type(outside) is Node)
        runs_user_code = create_graph or is_inspected or has_hooks or self.backward_runs_user_code
        if runs_user_code or any(node.op is None for node in roots):
            return self._walk_in_python(roots, cotangents, targets, retain, create_graph, inspect)
        if any(node.op not in self.tree.ops and node.op is not FINISHED for node in roots):
            raise CaptureError(f"a graph that began before the captured step cannot be walked in it ({user_line()})")
        guard = tuple(roots), targets, retain
        branches = self.execution.position.branches
        leaves = next((e.leaves for e in branches if isinstance(e, WalkEntry) and e.guard == guard), ())
        gradients = [*cotangents, *[bindings.outside_for[leaf].grad for leaf, _ in leaves]]
        e = self._find_branch("walk", guard, gradients) or self._capture_walk(guard, cotangents)
        self.execution.advance_to(e, ())
        self.execution.spent |= e.spent
        for leaf, grad in e.leaves:
            if grad is not None:
                bindings.outside_for[leaf].grad = self._tensor(*grad)
        return None if targets is None else [None if out is None else self._tensor(*out) for out in e.outputs]

    def _capture_walk(self, guard, cotangents):
        """Capture a backward walk that no branch matches, as a new entry. Return the entry."""
        roots, targets, retain = guard
        ops = reachable(roots, 0)
        walked = ops if targets is None else leading_to({*targets}, sorted(ops, key=lambda op: op.serial, reverse=True))
        for op in walked:
            if op.spent or op in self.execution.spent:
                raise op.spent_error()
        e = WalkEntry(guard)
        leaves = {}  # {leaf: its .grad before the walk}
        if targets is None:
            leaves = {node: None for op in ops for node in op.parents if node is not None and node.op is None}

        def run():
            """Walk from captured cotangents, with captured .grads at the leaves. Return the arrays of the gradients."""
            before = [self.bindings.outside_for[leaf].grad for leaf in leaves]
            captured = [None if g is None else self.bindings.captured_tensor(e, g) for g in (*cotangents, *before)]
            e.inputs = [pattern_of(g) for g in captured]
            for leaf, g in zip(leaves, captured[len(cotangents) :]):
                leaf.grad = leaves[leaf] = g
            self.capturing = recording_for(self.backend, self.space, e)
            gradients = self._walk(roots, captured[: len(cotangents)], targets, retain, False, None, e.spent)
            e.leaves = [(leaf, None if leaf.grad is g else parts_of(leaf.grad)) for leaf, g in leaves.items()]
            e.outputs = [None if g is None else parts_of(g) for g in gradients or ()]
            made = [parts for parts in (*[grad for _, grad in e.leaves], *e.outputs) if parts is not None]
            self.tree.storages.update([parts.storage for parts in made])
            return [parts.array for parts in made]

        try:
            return self._capture(e, run)
        finally:
            for leaf in leaves:
                leaf.grad = None

    def _walk_in_python(self, roots, cotangents, targets, retain, create_graph, inspect):
        """Walk in Python, so that hooks and ops of the user's run, and all other ops are captured one by one.

        The walk goes through captured nodes and ops. Hooks and the user's code must see there the state of an
        uncaptured walk: the .grad and hooks of the leaves outside. The captured leaves get these for the time of the
        walk. A walk within another, as in the backward of a formula, finds them there already."""
        outside_for, on_loan = self.bindings.outside_for, self.leaves_on_loan
        leaves = [x for x in outside_for if type(x) is Node and x.op is None and x not in on_loan]
        on_loan.update(leaves)
        try:
            for leaf in leaves:
                leaf.grad, leaf.hooks = outside_for[leaf].grad, outside_for[leaf].hooks
            return self._walk(roots, cotangents, targets, retain, create_graph, inspect, self.execution.spent)
        finally:
            for leaf in leaves:
                outside_for[leaf].grad = leaf.grad
                leaf.grad = leaf.hooks = None
            on_loan.difference_update(leaves)

    def _walk(self, roots, cotangents, targets, retain, create_graph, inspect, spent):
        """Walk through captured ops. Those that earlier walks of this call have freed raise, as in an uncaptured walk.
        Add to the set `spent` those that this walk frees; they keep what they saved, for other calls."""
        earlier = [op for op in self.execution.spent if not op.spent]
        freed: list = []
        try:
            for op in earlier:
                op.spent = True
            return run_walk(roots, cotangents, targets, retain, create_graph, inspect, freed.append)
        finally:
            for op in earlier:
                op.spent = False
            spent.update(op for op in freed if op.has_saved())

    def node_observed(self, node):
        if node.op is not None:
            self.backward_runs_user_code = True
            self.tree.observed.append(node)

    def storage_changed(self, storage, times):
        if self.capturing is not None:
            return
        is_captured = storage in self.tree.storages
        outside = self.bindings.outside_for.get(storage) if is_captured else storage
        captured = storage if is_captured else self.bindings.captured_for.get(storage)
        for partner in (outside, captured):
            if partner is not None and partner is not storage:
                partner.version += times
        if captured is not None:
            self.tree.changed.add(captured)
        if outside is not None:
            self.execution.writes_outside = True

    def storage_outdated(self, storage):
        """Outdate the storage that stands for this one too, and pass an entry of its own: what follows must differ from
        what follows in a call that used these Tensors further."""
        partner = self.bindings.captured_for.get(storage) or self.bindings.outside_for.get(storage)
        for each in (storage, partner):
            if each in self.tree.storages:
                self.tree.changed.add(each)
        if partner is not None:
            partner.backend = storage.backend
        e = self._find_branch("outdate", (), ()) or self._capture(TraceEntry("outdate"), list)
        self.execution.advance_to(e, ())

    # -- Tensors that are made, and read

    def tensor_created(self, x):
        if x.storage.backend is self.backend:
            x.storage = self.tree.raw_storages.get(id(x.array), x.storage)
            self.execution.created.append(x)

    def _tensor(self, array, node, storage):
        y = tensor_around(array, node, storage)
        self.execution.created.append(y)
        return y

    def read_values(self, x):
        refuse_within("reading values on the host")
        place = self.bindings.place_of(x)
        if place is None:
            if self.execution.writes_outside:
                self.run_pending()
            return x.storage.backend.to_numpy(x.array)
        if self.execution.writes_outside or place[0] not in self.tree.outside:
            self.run_pending()
        return self.backend.to_numpy(self.bindings.memory.array(place, x.array)).copy()

    # -- primitives of the backend outside of ops: in-place changes, new arrays, updates of optimizers

    def primitive(self, name, function, backend, args, kwargs):
        if self.capturing is not None:
            return function(self.capturing, *args, **kwargs)
        self._choose_backend(backend)
        per_call: list = []
        arrays: list = []
        index = args[1:2] if name in ("getitem", "setitem") else ()  # the arrays in an index lie on the host
        rest = args[:1] + args[2:] if index else args
        guard = guard_of(index), guard_of((rest, kwargs), per_call, arrays)

        def run(on, arrays, per_call):
            positional, named = substituted((rest, kwargs), iter(arrays), iter(per_call), backend.array_type)
            return function(on, *positional[:1], *index, *positional[1:], **named)

        changes_memory = name == "setitem" or name.endswith("_") or kwargs.get("out") is not None
        if self._must_run_now(name, args, arrays, changes_memory):
            return self._run_on_memory(arrays, lambda in_memory: run(backend, in_memory, per_call))
        e = self._find_branch(name, guard, arrays) or self._capture_primitive(name, guard, arrays, per_call, run)
        self.execution.advance_to(e, per_call)
        if changes_memory and e.changes_outside:
            self.execution.writes_outside = True
        return e.result

    def _must_run_now(self, name, args, arrays, changes_memory):
        """True if a primitive cannot be captured, and is computed on the memory of its arrays."""
        if name == "flatnonzero":  # the size of its result depends on values
            return True
        if not changes_memory:
            return False
        if name == "setitem" and any(isinstance(part, np.ndarray) for part in args[1]):
            return True  # the guard has the values of index arrays, so each batch of indices would be captured anew
        # Only the update of an optimizer has more than three arrays. They are whole parameters and buffers.
        return len(arrays) < 4 and self.bindings.share_memory_unseen(arrays)

    def _capture_primitive(self, name, guard, arrays, per_call, call):
        """Capture a primitive that no branch matches, as a new entry. Return the entry."""
        e = PrimitiveEntry(name, guard)
        e.per_call_values = [PerCallValue(value) for value in per_call]

        def run():
            """Run the primitive on captured arrays, which captures its launches. Return its results."""
            captured = [self.bindings.array_for(e, x) for x in arrays]
            e.inputs = [pattern_of(x) for x in captured]
            places = [self.space.place(x) for x in captured]
            e.changes_outside = any(place is not None and place[0] in self.tree.outside for place in places)
            self.capturing = recording_for(self.backend, self.space, e)
            e.result = call(self.capturing, captured, e.per_call_values)
            made = [y for y in as_tuple(e.result) if isinstance(y, self.backend.array_type)]
            for y in made:
                self._remember_result(name, y, captured)
                if not any(y is x for x in captured):
                    storage = self.tree.raw_storages[id(y)] = Storage(self.backend)
                    self.tree.storages.add(storage)
            return made

        return self._capture(e, run)

    def _run_on_memory(self, arrays, run):
        """Return run(arrays), computed now, after everything pending, on the memory of the arrays."""
        self.run_pending()
        places = [(x, self.space.place(x)) for x in arrays]
        in_memory = [x if place is None else self.bindings.memory.array(place, x) for x, place in places]
        with uncaptured(after=False):
            return run(in_memory)

    # -- matching an action with the captured ones

    def _find_branch(self, kind, guard, inputs):
        """The branch that does the same to the same inputs, or None. Inputs from outside are bound."""
        for e in self.execution.position.branches:
            if e.kind == kind and e.guard == guard and len(e.inputs) == len(inputs):
                mark = len(self.bindings.journal)
                if self._match_inputs(e, inputs):
                    return e
                self.bindings.undo(mark)
        return None

    def _match_inputs(self, e, inputs):
        """True if all inputs match those of the entry e. If not, some may be bound already."""
        for x, pattern in zip(inputs, e.inputs):
            if type(pattern) is not TensorParts:
                if not pattern.matches(x):
                    return False
            elif isinstance(x, Value):
                array, node, _ = pattern
                is_captured = x.array is array and x.node is node  # the usual case: made by an earlier entry
                if not is_captured and not self.bindings.match_tensor(e, x, pattern):
                    return False
            elif x is not pattern.array and not (
                isinstance(x, self.backend.array_type) and self.bindings.match_array(e, x, pattern.array)
            ):
                return False
        return True

    # -- capturing

    def _capture(self, e, run):
        """Capture the entry e as a branch. run() sets self.capturing when it has bound all inputs, and returns the
        arrays that the entry leaves behind. After an error nothing stays bound."""
        self.has_captured = True
        self.tree.size += 1
        mark, created = len(self.bindings.journal), len(self.execution.created)
        try:
            places = [self.space.place(x) for x in run()]
        except BaseException:
            self.bindings.undo(mark)
            raise
        finally:
            self.capturing = None
            del self.execution.created[created:]
        e.allocations = list(dict.fromkeys(place[0] for place in places if place is not None))
        self.execution.position.branches.append(e)
        return e

    def _remember_result(self, name, y, inputs):
        """Remember the array y, which an op or a primitive has made from the arrays `inputs`."""
        if y.size and self.space.place(y) is None and not any(y is x for x in inputs):
            raise CaptureError(
                f"{name} was not computed by a kernel, so it cannot be captured ({user_line()}). If this op of yours "
                f"computes in NumPy, leave out its primitive = True"
            )
        self.space.remember(y)


def as_tuple(x):
    """x, or (x,) if it is no tuple."""
    return x if type(x) is tuple else (x,)
