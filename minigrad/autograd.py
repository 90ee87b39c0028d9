"""The graph, the backward walk and the grad modes.

    Tensor ──> Node ──> Op ──> the Nodes of its inputs

References run one way only, so a graph is freed the moment its last Tensor is. A Node is what the graph knows about
a value: its shape, dtype and device, but never the value. An Op keeps an array only by saying so (`save_inputs`,
`save_output`, `save`), and the walk frees it as soon as it has been used.

An op's backward takes Tensors and returns Tensors. So it needs no second language, the backward pass is itself a
graph (`create_graph=True`), and this file needs not know what a Tensor is: `Value` is all the engine sees of one.
"""

import itertools
import os
import re
import sys
import threading
import weakref
from contextlib import ContextDecorator
from types import SimpleNamespace

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


# ---------------------------------------------------------------------------------------------------------- the modes


class _Mode(threading.local):
    grad = True  # are ops recorded?
    inference = False  # are new arrays barred from ever entering a graph?
    anomaly = False  # is every result searched for NaN and Inf?
    scope = ""  # path of the module whose forward is running, such as "blocks.1.attn"


mode = _Mode()


class _Switch(ContextDecorator):
    """Sets attributes of `mode` inside a with-block or a decorated function; thread-local, re-entrant."""

    settings: dict = {}

    def __init__(self):
        self._before = []

    def _recreate_cm(self):  # a decorated function may call itself: each call gets a switch of its own
        return type(self)()

    def __enter__(self):
        self._before.append({key: getattr(mode, key) for key in self.settings})
        for key, value in self.settings.items():
            setattr(mode, key, value)
        return self

    def __exit__(self, *exc):
        for key, value in self._before.pop().items():
            setattr(mode, key, value)


class no_grad(_Switch):
    """Ops inside are not recorded."""

    settings = {"grad": False}


class enable_grad(_Switch):
    """Ops inside are recorded, even within `no_grad`."""

    settings = {"grad": True}


class inference(_Switch):
    """Like `no_grad`, and what is computed inside can never enter a graph later: an op that would have to save it
    raises. So nothing is ever kept by mistake."""

    settings = {"grad": False, "inference": True}


class detect_anomaly(_Switch):
    """Raise where the first NaN or Inf appears, forward or backward, naming op, module path and the user's line.

    An Inf is reported only when every input was finite: a mask of -inf is meant, log(0) is not."""

    settings = {"anomaly": True}


def is_grad_enabled():
    """True if ops are being recorded in this thread."""
    return mode.grad


class AnomalyError(ArithmeticError):
    """A NaN or Inf was found under `detect_anomaly`."""


class GraphError(RuntimeError):
    """The graph cannot answer: it was freed, was never recorded, or holds an array that has changed since."""


# ------------------------------------------------------------------------------------------------------- the graph


class Storage:
    """Memory that views share: where it is, how often it was changed in place, and in which walk it was born."""

    __slots__ = ("backend", "version", "born")

    walk = 0  # number of backward walks begun so far, in all threads

    def __init__(self, backend):
        self.backend = backend
        self.version = None if mode.inference else 0  # None: an array made under inference()
        self.born = Storage.walk

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


class Value:
    """What the engine sees of a Tensor: an array, the storage it lies in, and its node if it requires a gradient."""

    __slots__ = ("array", "storage", "node", "__weakref__")

    @staticmethod
    def _wrap(array, storage, node=None):
        raise TypeError("ops take Tensors")


def user_line():
    """'file.py:12' of the innermost caller outside minigrad. Cheap enough to be called for every recorded op."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class Op:
    """One differentiable operation. The instance that ran is the node of the graph and the context of its backward.

    A subclass gives
        forward(self, *arrays, **params)   raw arrays of self.backend in, raw array (or tuple of arrays) out;
        backward(self, *dys)               Tensors in, one Tensor (or None) per input out, as more Tensor maths;
        cases                              inputs on which its gradient is checked: see `case`.
    Keyword arguments of `apply` are parameters: forward gets them, and they become attributes for backward to read.
    Positional ones are inputs: Tensors, Python numbers, or None.

    self.needs[i] says whether input i needs a gradient: compute no other. Nothing but what is saved lives on:
        save_inputs(x, None, …)  ->  saved_inputs()    Tensors again, connected to the graph
        save_output(y)           ->  saved_output()    likewise
        save(a, b, …)            ->  saved()           private arrays, constants to the graph
    """

    cases: list = []
    name = "Op"
    broadcasts = False  # inputs were broadcast against each other: the engine sums gradients back to their shapes
    view = False  # the output may share memory with input 0
    differentiable = True  # False: never recorded (comparisons, argmax)
    composed = None  # for Fused: the same formula on Tensors

    # What apply() fills in when the op is recorded; class values stand for "not recorded".
    serial = -1
    scope = ""
    line = ("?", 0)
    parents: tuple = ()
    spent = False
    _inputs: tuple | None = None
    _saved_inputs: tuple | None = None
    _saved_output: tuple | None = None
    _saved: tuple | None = None
    _out = None

    _serials = itertools.count()

    def __init_subclass__(cls, abstract=False, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.name = cls.__dict__.get("name", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower())
        if abstract:  # a base for other ops, not an op
            return
        register(Declaration(cls.name, cls, cls.apply, cls.__doc__, cls.__dict__.get("cases", [])))

    def forward(self, *arrays, **params):
        raise TypeError(f"{self.name}: an op must define forward(self, *arrays, **params)")

    def backward(self, *dys):
        raise TypeError(f"{self.name} has no gradient")

    # -- what an op keeps

    def save_inputs(self, *arrays):
        """Keep these inputs for backward. Position i stands for input i; None keeps nothing of it."""
        if self._inputs is not None:
            self._saved_inputs = tuple(
                None if array is None else self._entry(array, x) for array, x in zip(arrays, self._inputs)
            )

    def _entry(self, array, x):
        if not isinstance(x, Value):
            return array  # a Python number
        if x.storage.version is None:
            raise GraphError(
                f"{self.name} must save a tensor made under inference(); make it under no_grad() or clone() it outside"
            )
        return array, x.storage, x.storage.version, x.node

    def saved_inputs(self):
        return tuple(self._unpack(entry) if isinstance(entry, tuple) else entry for entry in self._saved_inputs)

    def save_output(self, y):
        """Keep the output for backward; returns it. The raw array is kept, not the Tensor, so there is no cycle."""
        if self._inputs is not None:
            self._saved_output = (y,)  # apply() completes the entry once the output has its storage
        return y

    def saved_output(self):
        array, storage, version = self._saved_output
        node = self._out()
        if node is None:  # nobody else holds the output any more; there is still at most one node for it
            node = Node(self, 0, array.shape, array.dtype, storage.backend.device)
            self._out = weakref.ref(node)
        return self._unpack((array, storage, version, node))

    def save(self, *arrays):
        """Keep private arrays, such as a mask. To the graph they are constants."""
        if self._inputs is not None:
            self._saved = arrays

    def saved(self):
        return tuple(a if a is None else self.wrap(a, Storage(self.backend)) for a in self._saved)

    def _unpack(self, entry):
        array, storage, version, node = entry
        if storage.version != version:
            raise GraphError(
                f"{self.describe()} saved an array of shape {array.shape} and dtype {array.dtype} for its backward, and "
                f"{storage.version - version} in-place change(s) were made to it (or to a view of it) since; "
                f"clone() it before changing it"
            )
        return self.wrap(array, storage, node)

    def release(self):
        self._saved_inputs = self._saved_output = self._saved = None
        self.spent = True

    def describe(self):
        """'Softmax in blocks.1.attn, made at train.py:12'."""
        place = f" in {self.scope}" if self.scope else ""
        made = f", made at {self.line[0]}:{self.line[1]}" if self.line[1] else ""
        return f"{self.name}{place}{made}"

    # -- running one

    @classmethod
    def apply(cls, *inputs, **params):
        """Run the op on Tensors; record it if a gradient will be wanted. Returns a Tensor or a tuple of Tensors."""
        op = cls()
        op.params = params
        op.__dict__.update(params)
        first, arrays, needs = None, [], []
        for x in inputs:
            if isinstance(x, Value):
                if first is None:
                    first = x
                elif x.storage.backend is not first.storage.backend:
                    raise RuntimeError(
                        f"{cls.name}: inputs on different devices, {first.storage.backend.device!r} and "
                        f"{x.storage.backend.device!r}; move one with .to(device)"
                    )
                arrays.append(x.array)
                needs.append(x.node is not None)
            else:
                arrays.append(x)
                needs.append(False)
        if first is None:
            raise TypeError(f"{cls.name} needs at least one Tensor, got {', '.join(type(x).__name__ for x in inputs)}")
        op.backend = backend = first.storage.backend
        op.wrap = first._wrap
        recorded = mode.grad and cls.differentiable and True in needs
        if recorded:
            op.needs = tuple(needs)
            op._inputs = inputs
        else:
            op.needs = (False,) * len(needs)

        y = op.forward(*arrays, **params)

        outputs = y if isinstance(y, tuple) else (y,)
        if recorded:
            op._inputs = None
            op.parents = tuple([x.node if isinstance(x, Value) else None for x in inputs])
            op.serial = next(Op._serials)
            op.scope = mode.scope
            op.line = user_line()
            if len(outputs) > 1:
                op.outputs = tuple([None if a is None else (a.shape, a.dtype) for a in outputs])
        results = []
        for index, array in enumerate(outputs):
            if array is None:  # an output that was not wanted
                results.append(None)
                continue
            if type(array) is not backend.Array:
                array = backend.asarray(array)  # NumPy returns scalars for 0-d results
            if cls.view and backend.overlap(array, first.array):
                storage = first.storage
            else:
                storage = Storage(backend)
            node = None
            if recorded and array.dtype.kind == "f":
                node = Node(op, index, array.shape, array.dtype, backend.device)
            if op._saved_output is not None:
                op._saved_output = (array, storage, storage.version)
                op._out = weakref.ref(node)
            results.append(first._wrap(array, storage, node))
        if mode.anomaly:
            _check_forward(op, arrays, results)
        return tuple(results) if isinstance(y, tuple) else results[0]


class Fused(Op, abstract=True):
    """An op computed by one primitive whose derivative is that of the formula `composed` on Tensors.

    Used for the backward of fused ops: their own backward (the second derivative) needs to be right, not fast.
    Inputs must be saved whole with save_inputs()."""

    @staticmethod
    def composed(*inputs, **params):
        raise TypeError("a Fused op must define composed(*inputs, **params)")

    def backward(self, *dys):
        return vjp(lambda *xs: self.composed(*xs, **self.params), self.saved_inputs(), dys, self.needs)


# -------------------------------------------------------------------------------------------------------- the walk


def _reachable(nodes, floor):
    """{op: {output index: node}} of everything at or above `nodes`. Ops older than serial `floor` are left out."""
    found: dict = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        op = node.op
        if op is None or op.serial < floor:
            continue
        if op not in found:
            found[op] = {}
            stack.extend(parent for parent in op.parents if parent is not None)
        found[op][node.index] = node
    return found


def _unbroadcast(g, shape):
    """Sum g over the dimensions that broadcasting added to `shape`."""
    extra = len(g.shape) - len(shape)
    dims = tuple(range(extra)) + tuple(
        d + extra for d, n in enumerate(shape) if n == 1 and g.shape[d + extra] != 1
    )
    return g.sum(dims).reshape(shape) if dims else g


def _fitted(op, i, g, node):
    """The gradient for input i of op, with exactly its input's shape, dtype and device, or an error that says why."""
    if not isinstance(g, Value):
        raise TypeError(f"backward of {op.describe()} returned {type(g).__name__} for input {i}, not a Tensor")
    if g.shape != node.shape and op.broadcasts:
        g = _unbroadcast(g, node.shape)
    if g.shape != node.shape or g.dtype != node.dtype or g.device != node.device:
        raise RuntimeError(
            f"backward of {op.describe()} returned a gradient of shape {g.shape}, {g.dtype} on {g.device!r} for input {i}, "
            f"which has shape {node.shape}, {node.dtype} on {node.device!r}"
        )
    return g


class _Walk:
    """One backward pass. Gradients wait in `pending` until every op that contributes has run."""

    def __init__(self, create_graph):
        Storage.walk += 1
        self.began = Storage.walk
        self.create_graph = create_graph
        self.pending = {}  # node -> sum of the contributions so far
        self.owned = set()  # nodes whose pending array is ours alone: from the third contribution on, add in place
        self.handed_out = set()  # storages that a .grad or the caller's cotangent already shares

    def add(self, node, g):
        """Borrow the first contribution, allocate at the second, add in place from the third on."""
        before = self.pending.get(node)
        if before is None:
            self.pending[node] = g
        elif node in self.owned and not self.create_graph:
            g.storage.backend.add(before.array, g.array, out=before.array)
        else:
            self.pending[node] = before + g
            self.owned.add(node)

    def take(self, node):
        """The whole gradient of node, after its hooks."""
        g = self.pending.pop(node, None)
        for hook in list(node.hooks.values()) if g is not None and node.hooks else ():
            replaced = hook(g)
            if replaced is not None:
                if not isinstance(replaced, Value) or (replaced.shape, replaced.dtype) != (g.shape, g.dtype):
                    raise RuntimeError(
                        f"hook {getattr(hook, '__name__', hook)} must return None or a Tensor of shape {g.shape} and "
                        f"{g.dtype}, got {getattr(replaced, 'shape', type(replaced).__name__)}"
                    )
                g = replaced
        return g

    def exclusive(self, g):
        """g, or a copy of it where its memory is not its own: no two .grads share an array with anything."""
        if self.create_graph:
            return g
        fresh = g.storage.born >= self.began and g.storage not in self.handed_out
        if not (fresh and g.storage.backend.is_compact(g.array)):
            g = g.clone()
        self.handed_out.add(g.storage)
        return g if g.node is None else g.detach()

    def accumulate(self, node, g):
        """Add g to node.grad: a new array, never one that somebody may hold."""
        node.grad = self.exclusive(g) if node.grad is None else node.grad + g


def backward(roots, cotangents, inputs=None, retain_graph=None, create_graph=False):
    """Walk from the nodes `roots` with their `cotangents` to the leaves.

    inputs=None: add to .grad of leaves and retained nodes, return None. Otherwise: return the list of gradients of
    the nodes `inputs` (None where the roots do not depend on one) and touch no .grad."""
    retain_graph = create_graph if retain_graph is None else retain_graph
    walk = _Walk(create_graph)
    floor = 0 if inputs is None else min((n.op.serial if n.op else 0 for n in inputs), default=0)
    ops = _reachable(roots, floor)
    order = sorted(ops, key=lambda op: op.serial, reverse=True)  # creation order is a topological order
    targets = None if inputs is None else set(inputs)
    useful: set = set()
    if targets is not None:
        for op in reversed(order):
            if any(p is not None and (p in targets or p.op in useful) for p in op.parents):
                useful.add(op)
    results = {}
    for root, g in zip(roots, cotangents):
        walk.handed_out.add(g.storage)
        walk.add(root, g)
    for op in order:
        nodes = ops[op]
        dys = {index: g for index, node in nodes.items() if (g := walk.take(node)) is not None}
        if not dys:
            continue
        for index, g in dys.items():
            node = nodes[index]
            if targets is not None:
                if node in targets:
                    results[node] = g
            elif node.retain:
                walk.accumulate(node, g)
        if targets is None:
            _step(walk, op, dys, op.needs)
        elif op in useful:
            needs = tuple([p is not None and (p in targets or p.op in useful) for p in op.parents])
            _step(walk, op, dys, needs)
        else:
            continue
        if not retain_graph:
            op.release()
    for leaf in list(walk.pending):  # only leaves are left
        g = walk.take(leaf)
        if targets is None:
            walk.accumulate(leaf, g)
        elif leaf in targets:
            results[leaf] = g
    if inputs is None:
        return None
    return [None if (g := results.get(node)) is None else walk.exclusive(g) for node in inputs]


def _step(walk, op, dys, needs):
    """Run one op's backward and pass the results on to its inputs."""
    if op.spent:
        raise GraphError(
            f"{op.describe()} has been through a backward already and its saved arrays were freed; "
            f"pass retain_graph=True to the first backward if you need a second"
        )
    outputs = getattr(op, "outputs", None)
    if outputs is None:
        arguments = (dys[0],)
    else:  # an output that nothing used has a gradient of zeros
        arguments = tuple(
            dys.get(i) if i in dys or meta is None else op.wrap(op.backend.zeros(*meta), Storage(op.backend))
            for i, meta in enumerate(outputs)
        )
    before, anomaly, grad, scope = op.needs, mode.anomaly, mode.grad, mode.scope
    op.needs, mode.anomaly, mode.grad, mode.scope = needs, False, walk.create_graph, op.scope
    try:
        dxs = op.backward(*arguments)
        dxs = dxs if isinstance(dxs, tuple) else (dxs,)
        if len(dxs) != len(op.parents):
            raise RuntimeError(
                f"backward of {op.describe()} returned {len(dxs)} gradients for {len(op.parents)} inputs"
            )
        for i, (node, g) in enumerate(zip(op.parents, dxs)):
            if needs[i] and g is not None:
                g = _fitted(op, i, g, node)
                if anomaly:
                    _check_backward(op, i, g, arguments)
                walk.add(node, g)
    finally:
        op.needs, mode.anomaly, mode.grad, mode.scope = before, anomaly, grad, scope


def vjp(fn, inputs, dys, needs):
    """Gradients of fn(*inputs) against dys, through the graph of fn; differentiable again while grad is enabled."""
    connected = mode.grad
    with enable_grad():
        points = []
        for x, need in zip(inputs, needs):
            if not need:
                points.append(x)
            elif connected:
                points.append(x.alias())
            else:
                points.append(x.detach().requires_grad_())
        ys = fn(*points)
    ys = ys if isinstance(ys, tuple) else (ys,)
    pairs = [(y.node, dy) for y, dy in zip(ys, dys) if dy is not None and y.node is not None]
    wanted = [point.node for point, need in zip(points, needs) if need]
    found = iter(backward([p[0] for p in pairs], [p[1] for p in pairs], inputs=wanted, create_graph=connected))
    gradients = []
    for x, need in zip(inputs, needs):
        g = next(found) if need else None
        gradients.append(x.zeros_like() if need and g is None else g)
    return tuple(gradients)


# ------------------------------------------------------------------------------------------------------- anomalies


def _nonfinite(array):
    """'NaN', 'Inf' or None for an array or a Python number."""
    if not hasattr(array, "dtype"):
        array_is_nan, array_is_inf = array != array, array in (float("inf"), -float("inf"))
        return "NaN" if array_is_nan else "Inf" if array_is_inf else None
    if array.dtype.kind != "f":
        return None
    if (array != array).any():
        return "NaN"
    return "Inf" if (abs(array) == float("inf")).any() else None


def _check_forward(op, arrays, results):
    for y in results:
        if y is None:
            continue
        found = _nonfinite(y.array)
        if found is None:
            continue
        already = [_nonfinite(a) for a in arrays if a is not None]
        if found == "Inf" and any(already):
            continue
        if not op.line[1]:
            op.scope, op.line = mode.scope, user_line()
        source = f"; input {already.index('NaN')} held NaN already" if "NaN" in already else ""
        raise AnomalyError(f"{found} in the output of {op.describe()}{source}")


def _check_backward(op, i, g, dys):
    found = _nonfinite(g.array)
    if found is None or (found == "Inf" and any(_nonfinite(dy.array) for dy in dys)):
        return
    raise AnomalyError(f"{found} in the gradient for input {i} of {op.describe()}")


# -------------------------------------------------------------------------------------------------------- registry


class Declaration(SimpleNamespace):
    """An op as the docs, the gradient check and the pictures see it: name, op class or function, call, doc, cases."""

    def __init__(self, name, source, call, doc, cases):
        super().__init__(name=name, source=source, call=call, doc=doc or "", cases=cases)

    @property
    def family(self):
        return self.source.__module__.rpartition(".")[2]

    @property
    def builtin(self):
        return self.source.__module__.startswith("minigrad.")


registry: dict[str, Declaration] = {}


def register(declaration):
    old = registry.get(declaration.name)
    if old is not None and old.builtin and old.source.__module__ != declaration.source.__module__:
        return  # a user's op may reuse a name of ours; ours stays the one in the table
    registry[declaration.name] = declaration


def composite(*cases):
    """Declare a public function that is built from ops: it is checked, and listed, like an op."""

    def declare(function):
        register(Declaration(function.__name__, function, function, function.__doc__, list(cases)))
        return function

    return declare
