"""One call of a captured step: its Python runs, and each action is compared with the captured ones.

While the step's Python runs, the call is at an entry of the trace tree (trace.py). What Python does next is looked up
among the branches there: the entries that came next in other calls. If the guard of one fits, its captured results are
returned, and nothing is computed. If none fits, the action is captured as a new branch. When the call ends, or needs a
value, the launches of the entries that were passed are replayed (execution.py).

Captured arrays have addresses but no memory (addresses.py), so `is` tells whether two are the same value. What comes
from outside the call is bound to captured objects (bindings.py). Nearest relatives: Terra (Kim et al., NeurIPS 2021),
and PyTorch's lazy tensors, which reuse nodes.
"""

from typing import Any

import numpy as np

from ..autograd import Node, Storage, Value, mode
from ..autograd.modes import switched
from ..autograd.walk import backward, reachable, walked
from ..base.capturing import CaptureError, refuse, refuse_within, uncaptured, user_line
from ..ops.elementwise import Add, Div, Mul, Sub, Transfer
from ..ops.index import Getitem
from .execution import Execution
from .guards import guard_of, may_vary, parts_of, substituted
from .programs import Launch
from .trace import FINISHED, EagerOp, PerCallValue, TraceEntry, tensor_around


class CapturedCall(Execution):
    """A call of a captured step: the CaptureSession of its thread, whose methods base/capturing.py describes."""

    def __init__(self, tree, tree_for):
        """tree_for: a function that returns the TraceTree of a backend."""
        super().__init__(tree)
        self.tree_for = tree_for
        self.capturing: Any = None  # the entry that is being captured
        self.has_captured = False  # True if this call has captured anything
        self.has_varying_number = False  # True if a number has differed from that of other calls
        self.backward_runs_user_code = False  # True if a walk must run in Python, for a hook or an op of the user's
        self.lent_leaves: set = set()  # captured leaves that have the gradients of those outside, during a walk
        self.eager_ops: dict = {}  # {EagerOp: (inputs, outputs) of the op that ran for it in this call}
        for storage in tree.changed:
            storage.version = 0
        for node in tree.observed:
            node.grad, node.hooks, node.retain = None, None, False
        tree.changed, tree.observed = set(), []

    # -- ops

    def apply_op(self, op, inputs, params):
        if self.position is self.tree.root:
            self._choose_backend(next((x.storage.backend for x in inputs if isinstance(x, Value)), self.backend))
        if not op.primitive:
            return self._apply_eagerly(op, inputs, params)
        if op in (Getitem, Transfer) and inputs[0].node is None:
            place = self._place_of(inputs[0])
            if place is None or op is Transfer:
                return self._apply_uncaptured(op, inputs[0], params, place)
        draws: list = []
        now = mode.__dict__
        guard = now["grad"], [(name, guard_of(value, draws)) for name, value in params.items()] if params else ()
        if now["anomaly"]:
            refuse("detect_anomaly() inside")
        e = self._matching(op, guard, inputs) or self._capture_op(op, inputs, params, guard, draws)
        self._advance_to(e, [*draws, *[inputs[i] for i in e.varying]] if e.varying else draws)
        ys = [None if output is None else self._tensor(*output) for output in e.outputs]
        if now["watch"] is not None:
            now["watch"](e.op or op(), inputs, ys)
        return tuple(ys) if e.result else ys[0]

    def _apply_uncaptured(self, op, x, params, place):
        """The output of Getitem on an array from outside, whose index may differ at each call, or of a Transfer to
        another device: computed now."""
        if place is not None:
            self.run_pending()
            x = tensor_around(self.memory.array(place, x.array), None, Storage(self.backend))
        with uncaptured(after=self.writes_outside):
            return op.apply(x, **params)

    def _capture_op(self, op, inputs, params, guard, draws):
        e = TraceEntry(op, guard)
        e.per_call_values = [PerCallValue(draw) for draw in draws]

        def run():
            given = tuple([self._captured_tensor(e, x) if isinstance(x, Value) else x for x in inputs])
            e.inputs = [parts_of(x) for x in given]
            if op in (Add, Sub, Mul, Div):
                given = self._with_varying_number(e, given)
            self.capturing = e
            result = op.apply(*given, **params)
            e.result = isinstance(result, tuple)
            ys = as_tuple(result)
            for y in ys:
                if y is not None:
                    self._remember_result(op.name, y.array, [x.array for x in given if isinstance(x, Value)])
                    self.tree.storages.add(y.storage)
                    e.op = y.node.op if y.node is not None and y.node.op is not None else e.op
            e.outputs = [None if y is None else parts_of(y) for y in ys]
            arrays = [y.array for y in ys if y is not None]
            if e.op is not None and e.op not in self.tree.ops:
                self.tree.ops.add(e.op)
                arrays += e.op.saved_arrays()
            return arrays

        return self._capture(e, run)

    def _with_varying_number(self, e, given):
        """The inputs of a sum, difference, product or quotient. If another call had another Python number here, or at
        an earlier op, the number becomes a per-call value, in a parameter buffer."""
        i = next((i for i, x in enumerate(given) if may_vary(x)), None)
        if i is None:
            return given
        other = given[1 - i]
        if not isinstance(other, Value) or other.dtype.char not in "fd":
            return given
        self.has_varying_number = self.has_varying_number or any(
            branch.kind is e.kind and branch.inputs[i][0] is None for branch in self.position.branches
        )
        if not self.has_varying_number:
            return given
        number, storage = PerCallValue(given[i]), Storage(self.backend)
        host, there = self.backend.parameter_memory((), other.dtype)
        host[...] = number.value
        e.per_call_values.append(number)
        e.updates.append((host, there, lambda: number.value))
        e.varying, e.inputs[i] = (i,), (None, PerCallValue, None)
        self.tree.storages.add(storage)
        return (*given[:i], tensor_around(there, None, storage), *given[i + 1 :])

    # -- ops of the user's, which may compute in NumPy

    def _apply_eagerly(self, op, inputs, params):
        """Run an op of the user's now, on the values of its inputs.

        Its outputs come into the rest of the step as arrays from outside, so the guard asks only that their shapes and
        dtypes are those of other calls. In the captured graph an EagerOp stands for it."""
        if mode.anomaly:
            refuse("detect_anomaly() inside")
        self.run_pending()
        given = [self._with_values(x) if isinstance(x, Value) else x for x in inputs]
        with uncaptured(after=False), switched(watch=None):
            result = op.apply(*given, **params)
        ys = as_tuple(result)
        guard = [None if y is None else (y.shape, y.dtype, y.node is not None) for y in ys]
        tensors = [x for x in inputs if isinstance(x, Value)]
        e = self._matching(op, guard, tensors) or self._capture_eager_op(op, guard, inputs, ys, params)
        self._advance_to(e, ())
        if e.op is not None:
            self.eager_ops[e.op] = given, ys
            self.backward_runs_user_code = True
        nodes = [None if output is None else output[1] for output in e.outputs]
        outputs = [None if y is None else self._from_outside(y, node, inputs, given) for y, node in zip(ys, nodes)]
        if mode.watch is not None:
            mode.watch(e.op or op(), inputs, outputs)
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]

    def _with_values(self, x):
        """A Tensor around the values of x, after run_pending(): a leaf, if x is in the graph."""
        place, node = self._place_of(x), None
        if x.node is not None:
            node = Node(None, 0, x.node.shape, x.node.dtype, x.node.device)
        return tensor_around(x.array if place is None else self.memory.array(place, x.array), node, x.storage)

    def _from_outside(self, y, node, inputs, given):
        """The Tensor that the step gets for y, an output of an op that ran on `given` in place of `inputs`."""
        for x, values in zip(inputs, given):
            if isinstance(x, Value) and y.storage is x.storage:
                if y.array is values.array:
                    return self._tensor(x.array, node, x.storage)
                with uncaptured(after=False):  # two captured arrays must not share memory, so a view becomes a copy
                    y = y.detach().clone()
        return self._tensor(y.array, node, y.storage)

    def _capture_eager_op(self, op, guard, inputs, ys, params):
        e = TraceEntry(op, guard)

        def run():
            captured = [self._captured_tensor(e, x) if isinstance(x, Value) else None for x in inputs]
            e.inputs = [parts_of(x) for x in captured if x is not None]
            if any(y is not None and y.node is not None for y in ys):
                parents = [None if x is None else x.node for x in captured]
                e.op = EagerOp.standing_for(op, params, parents, ys, self.backend)
                self.tree.ops.add(e.op)
            for i, y in enumerate(ys):
                node = Node(e.op, i, y.shape, y.dtype, y.device) if y is not None and y.node is not None else None
                e.outputs.append(None if y is None else (None, node, None))
            return []

        return self._capture(e, run)

    def eager_backward(self, op, dys):
        """The backward of an EagerOp: that of the op which ran in this call, on the values of dys."""
        if mode.grad:
            raise CaptureError(
                f"{op.name} is an op of your own that runs at each call: a captured step gives its first derivative "
                f"only, so create_graph=True must stay outside of it ({user_line()})"
            )
        self.run_pending()
        given, ys = self.eager_ops[op._original or op]
        pairs = [(y.node, self._with_values(dy)) for y, dy in zip(ys, dys) if dy is not None and y.node is not None]
        wanted = [x.node for x, need in zip(given, op.needs) if need]
        with uncaptured(after=False):
            dxs = iter(backward([node for node, _ in pairs], [dy for _, dy in pairs], wanted, True))
        return tuple([next(dxs) if need else None for need in op.needs])

    # -- backward walks, hooks, changes in place

    def backward(self, roots, cotangents, inputs, retain_graph, create_graph, inspect):
        """A walk in which no code of the user's runs is one entry."""
        retain = create_graph or inspect is not None if retain_graph is None else retain_graph
        targets = None if inputs is None else [self.captured_for.get(node, node) for node in inputs]
        roots = [self.captured_for.get(node, node) for node in roots]
        is_inspected = inspect is not None or mode.inspecting or mode.watch is not None
        hooks = any(given.hooks for given in self.captured_for if type(given) is Node)
        in_python = create_graph or is_inspected or hooks or self.backward_runs_user_code
        if in_python or any(node.op is None for node in roots):
            return self._walk_in_python(roots, cotangents, targets, retain, create_graph, inspect)
        if any(node.op not in self.tree.ops and node.op is not FINISHED for node in roots):
            raise CaptureError(f"a graph that began before the captured step cannot be walked in it ({user_line()})")
        guard = tuple(roots), targets, retain
        leaves = next((e.leaves for e in self.position.branches if e.kind == "walk" and e.guard == guard), ())
        given = [*cotangents, *[self.outside_for[leaf].grad for leaf, _ in leaves]]
        e = self._matching("walk", guard, given) or self._capture_walk(guard, roots, cotangents, targets)
        self._advance_to(e, ())
        if not retain:
            self.spent.append(e.ops)
        for leaf, grad in e.leaves:
            if grad is not None:
                self.outside_for[leaf].grad = self._tensor(*grad)
        return None if targets is None else [None if out is None else self._tensor(*out) for out in e.outputs]

    def _capture_walk(self, guard, roots, cotangents, targets):
        e, ops = TraceEntry("walk", guard), reachable(roots, 0)
        for op in ops:
            if op.spent or any(op in spent for spent in self.spent):
                raise op.already_spent()
        leaves = {node: None for op in ops for node in op.parents if node is not None and node.op is None}
        leaves = leaves if targets is None else {}
        e.ops = set(ops)

        def run():
            before = [self.outside_for[leaf].grad for leaf in leaves]
            given = [None if g is None else self._captured_tensor(e, g) for g in (*cotangents, *before)]
            e.inputs = [parts_of(g) for g in given]
            for leaf, g in zip(leaves, given[len(cotangents) :]):
                leaf.grad = leaves[leaf] = g
            self.capturing = e
            found = backward(roots, given[: len(cotangents)], targets, True)
            e.leaves = [(leaf, None if leaf.grad is g else parts_of(leaf.grad)) for leaf, g in leaves.items()]
            e.outputs = [None if g is None else parts_of(g) for g in found or ()]
            made = [parts for parts in (*[grad for _, grad in e.leaves], *e.outputs) if parts is not None]
            self.tree.storages.update([storage for _, _, storage in made])
            return [array for array, _, _ in made]

        try:
            return self._capture(e, run)
        finally:
            for leaf in leaves:
                leaf.grad = None

    def _walk_in_python(self, roots, cotangents, targets, retain, create_graph, inspect):
        """A walk whose ops are captured one by one. The captured leaves are lent the hooks and gradients of the leaves
        outside; a walk within another, as in the backward of a formula, finds them lent already."""
        ops = set(reachable(roots, 0))
        leaves = [x for x in self.outside_for if type(x) is Node and x.op is None and x not in self.lent_leaves]
        spent = [op for gone in self.spent for op in gone if not op.spent]
        self.lent_leaves.update(leaves)
        try:
            for op in spent:
                op.spent = True
            for leaf in leaves:
                leaf.grad, leaf.hooks = self.outside_for[leaf].grad, self.outside_for[leaf].hooks
            return walked(roots, cotangents, targets, True, create_graph, inspect)
        finally:
            for op in spent:
                op.spent = False
            for leaf in leaves:
                self.outside_for[leaf].grad, leaf.grad, leaf.hooks = leaf.grad, None, None
            self.lent_leaves.difference_update(leaves)
            if not retain:
                self.spent.append(ops)

    def node_observed(self, node):
        if node.op is not None:
            self.backward_runs_user_code = True
            self.tree.observed.append(node)

    def storage_changed(self, storage, times):
        if self.capturing is not None:
            return
        is_captured = storage in self.tree.storages
        outside = self.outside_for.get(storage) if is_captured else storage
        captured = storage if is_captured else self.captured_for.get(storage)
        for partner in (outside, captured):
            if partner is not None and partner is not storage:
                partner.version += times
        if captured is not None:
            self.tree.changed.add(captured)
        if outside is not None:
            self.writes_outside = True

    # -- Tensors that are made, and read

    def tensor_created(self, x):
        if x.storage.backend is self.backend:
            x.storage = self.tree.raw_storages.get(id(x.array), x.storage)
            self.created.append(x)

    def _tensor(self, array, node, storage):
        y = tensor_around(array, node, storage)
        self.created.append(y)
        return y

    def read_values(self, x):
        refuse_within("reading values on the host")
        place = self._place_of(x)
        if place is None:
            if self.writes_outside:
                self.run_pending()
            return x.storage.backend.to_numpy(x.array)
        if self.writes_outside or place[0] not in self.tree.outside:
            self.run_pending()
        return self.backend.to_numpy(self.memory.array(place, x.array)).copy()

    # -- primitives of the backend outside of ops: in-place changes, new arrays, updates of optimizers

    def primitive(self, name, function, backend, args, kwargs):
        if self.capturing is not None:
            return function(backend, *args, **kwargs)
        self._choose_backend(backend)
        per_call: list = []
        arrays: list = []
        index = args[1:2] if name in ("getitem", "setitem") else ()  # the arrays in an index lie on the host
        rest = args[:1] + args[2:] if index else args
        guard = guard_of(index), guard_of((rest, kwargs), per_call, arrays)
        writes = name == "setitem" or name[-1] == "_" or kwargs.get("out") is not None

        def run(arrays, per_call):
            given, named = substituted((rest, kwargs), iter(arrays), iter(per_call), backend.array_type)
            return function(backend, *given[:1], *index, *given[1:], **named)

        has_positions = name == "setitem" and any(isinstance(part, np.ndarray) for part in args[1])  # vary with calls
        must_run = writes and (has_positions or (len(arrays) < 4 and self._alias_outside(arrays)))
        if must_run or name == "flatnonzero":  # no earlier call knows how many places flatnonzero finds
            return self._run_on_memory(arrays, lambda given: run(given, per_call))
        e = self._matching(name, guard, arrays) or self._capture_primitive(name, guard, arrays, per_call, run)
        self._advance_to(e, per_call)
        self.writes_outside = self.writes_outside or (writes and e.changes_outside)
        return e.result

    def _capture_primitive(self, name, guard, arrays, per_call, call):
        e = TraceEntry(name, guard)
        e.per_call_values = [PerCallValue(value) for value in per_call]

        def run():
            given = [self._array_for(e, x) for x in arrays]
            e.inputs = [parts_of(x) for x in given]
            places = [self.space.place(x) for x in given]
            e.changes_outside = any(place is not None and place[0] in self.tree.outside for place in places)
            self.capturing = e
            e.result = call(given, e.per_call_values)
            made = [y for y in as_tuple(e.result) if isinstance(y, self.backend.array_type)]
            for y in made:
                self._remember_result(name, y, given)
                if not any(y is x for x in given):
                    storage = self.tree.raw_storages[id(y)] = Storage(self.backend)
                    self.tree.storages.add(storage)
            return made

        return self._capture(e, run)

    def _run_on_memory(self, arrays, run):
        """run(arrays) now, after everything pending, on the memory of the arrays."""
        self.run_pending()
        places = [(x, self.space.place(x)) for x in arrays]
        given = [x if place is None else self.memory.array(place, x) for x, place in places]
        with uncaptured(after=False):
            return run(given)

    # -- launch code within an op or a primitive

    def empty(self, shape, dtype):
        if self.capturing is None:
            raise CaptureError(f"memory outside of an op cannot be captured ({user_line()})")
        return self.space.empty(shape, dtype)

    def launch(self, *args):
        launch = Launch(*args)
        self.backend.kernel(*launch[:3])  # compiled now: if that fails, nothing has happened yet
        self.capturing.launches.append(launch)

    def random_stream(self, draw):
        known = next((each for each in self.capturing.per_call_values if each.value is draw), None)
        if known is None:
            raise CaptureError(f"random numbers drawn within an op cannot be captured ({user_line()})")
        return self.parameter_buffer(lambda: (known.value.key, known.value.offset), (2,), np.uint64), 0, 0

    def parameter_buffer(self, values, shape, dtype):
        host, there = self.backend.parameter_memory(shape, dtype)
        host[...] = values()
        self.capturing.updates.append((host, there, values))
        return there

    def defer_check(self, check):
        self.capturing.checks.append(check)

    # -- matching an action with the captured ones

    def _matching(self, kind, guard, inputs):
        """The branch that does the same to the same inputs, or None. Inputs from outside are bound."""
        for e in self.position.branches:
            if e.kind != kind or e.guard != guard or len(e.inputs) != len(inputs):
                continue
            mark = len(self.journal)
            for x, (array, node, storage) in zip(inputs, e.inputs):
                if array is None:
                    if not isinstance(x, Value) and (may_vary(x) if node is PerCallValue else guard_of(x) == node):
                        continue
                elif isinstance(x, Value):
                    if x.array is array and x.node is node:
                        continue
                    if (
                        self._match_array(e, x.array, array, x)
                        and self._match_object(x.storage, storage)
                        and self._match_node(x.node, node)
                    ):
                        continue
                elif x is array or (isinstance(x, self.backend.array_type) and self._match_array(e, x, array)):
                    continue
                self._undo(mark)
                break
            else:
                return e
        return None

    def _advance_to(self, e, per_call):
        """Pass an entry that matches, with the per-call values of this call."""
        if per_call:
            for known, value in zip(e.per_call_values, per_call):
                known.value = value
            for host, _, values in e.updates:
                host[...] = values()
        self.pending.append(e)  # after everything that its launches read, since an interrupt may come in between
        self.position = e

    def _choose_backend(self, backend):
        """The step runs on the backend of its first Tensor."""
        if backend is self.backend:
            return
        if self.position is not self.tree.root or self.bound_arrays or not backend.captures:
            raise CaptureError(f"Tensors on two devices cannot be captured in one step ({user_line()})")
        vars(self).update(vars(CapturedCall(self.tree_for(backend), self.tree_for)))

    # -- capturing

    def _capture(self, e, run):
        """Capture the entry e as a branch. run() sets self.capturing when it has bound all inputs, and returns the
        arrays that the entry leaves behind. After an error nothing stays bound."""
        self.has_captured = True
        self.tree.size += 1
        mark, created = len(self.journal), len(self.created)
        try:
            places = [self.space.place(x) for x in run()]
        except BaseException:
            self._undo(mark)
            raise
        finally:
            self.capturing = None
            del self.created[created:]
        e.allocations = list(dict.fromkeys(place[0] for place in places if place is not None))
        self.position.branches.append(e)
        return e

    def _remember_result(self, name, y, given):
        """Remember the array y, which an op or a primitive has made from the arrays `given`."""
        if y.size and self.space.place(y) is None and not any(y is x for x in given):
            raise CaptureError(
                f"{name} was not computed by a kernel, so it cannot be captured ({user_line()}). If this op of yours "
                f"computes in NumPy, leave out its primitive = True"
            )
        self.space.remember(y)


def as_tuple(x):
    """x, or (x,) if it is no tuple."""
    return x if type(x) is tuple else (x,)
