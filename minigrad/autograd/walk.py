"""The backward walk: from outputs to leaves, each op once, after everything that used its output.

`backward` is the entry. Ops are numbered in the order in which they ran, so their order by falling number is a
topological order. Each step calls one op's backward and adds what it returns to the gradients of its inputs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..base.capturing import thread
from .anomaly import check_backward
from .graph import Node, Storage, Value
from .modes import current_modes, enable_grad, is_grad_enabled, switched

# An op is typed Any here, because op.py imports this module.
Reached = dict[Any, dict[int, Node]]  # {op: {output index: node}}
Inspect = Callable[[Any, tuple[Any, ...], list[Any]], object]  # called with (op, dys, dxs)


def reachable(nodes: Iterable[Node], floor: int) -> "Reached":
    """Return {op: {output index: node}} for the ops that lead to `nodes`, with the outputs that do so.

    The search stops at ops whose serial is below `floor`."""
    reached: Reached = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        op = node.op
        if op is None or op.serial < floor:
            continue
        if op not in reached:
            reached[op] = {}
            stack.extend(parent for parent in op.parents if parent is not None)
        reached[op][node.index] = node
    return reached


def _unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum g over the dims that broadcasting added to `shape`, or widened from 1."""
    extra = len(g.shape) - len(shape)
    dims = tuple(range(extra)) + tuple(d + extra for d, n in enumerate(shape) if n == 1 and g.shape[d + extra] != 1)
    return g.sum(dims).reshape(shape) if dims else g


def _fit_to_input(op: Any, i: int, g: Any, node: Node) -> Any:
    """Return g, the gradient for input i of op, in exactly the shape, dtype and device of that input, or raise."""
    if not isinstance(g, Value):
        raise TypeError(f"backward of {op.describe()} returned {type(g).__name__} for input {i}, not a Tensor")
    if g.array.shape != node.shape and op.broadcasts:
        g = _unbroadcast(g, node.shape)
    if g.array.shape != node.shape or g.array.dtype != node.dtype or g.storage.backend.device != node.device:
        raise RuntimeError(
            f"backward of {op.describe()} returned a gradient of shape {g.shape}, {g.dtype} on {g.device!r} "
            f"for input {i}, which has shape {node.shape}, {node.dtype} on {node.device!r}"
        )
    return g


class _Walk:
    """The state of one backward pass. A gradient waits in `pending` until every op that contributes to it has run.

    During a walk gradients may share memory: the backward of an addition returns dy itself for both inputs. So a
    gradient is changed in place only if it is a sum that this walk has made (`sums`). A gradient that leaves the walk,
    as a .grad or a result, gets its own memory (`with_own_memory`)."""

    def __init__(self, create_graph: bool, targets: set[Node] | None, inspect: "Inspect | None"):
        self.began = Storage.begin_walk()
        self.create_graph = create_graph
        self.inspect = inspect
        self.targets = targets  # nodes whose gradients go to `results`; None: leaves, to their .grad
        self.results: dict[Node, Value] = {}
        self.pending: dict[Node, Any] = {}  # node -> sum of the contributions so far
        self.sums: set[Node] = set()  # nodes whose pending gradient is a sum that this walk has made
        self.seen_outside: set[Storage] = set()  # storages that a .grad, a hook or the caller refers to

    def add(self, node: Node, g: Value) -> None:
        """Add g to the gradient of node: borrow the first contribution, allocate at the second, then add in place."""
        before = self.pending.get(node)
        if before is None:
            self.pending[node] = g
        elif node in self.sums and not self.create_graph:
            g.storage.backend.add(before.array, g.array, out=before.array)
        else:
            self.pending[node] = before + g
            self.sums.add(node)

    def collect(self, node: Node) -> Any:
        """Return the whole gradient of node after its hooks, or None; store it if node is a target or a leaf."""
        g = self.pending.pop(node, None)
        if g is None:
            return None
        if node.hooks and not current_modes()["inspecting"]:
            for hook in list(node.hooks.values()):
                self.seen_outside.add(g.storage)  # a hook may keep its argument, and what it returns
                g = _call_hook(hook, g)
            self.seen_outside.add(g.storage)
        if self.targets is None:
            if node.retain and not current_modes()["inspecting"]:
                node.accumulate(g, self.with_own_memory)
        elif node in self.targets:
            self.results[node] = g
        return g

    def with_own_memory(self, g: Any) -> Any:
        """Return g, or a copy if anything outside this walk uses its memory, or if it is not compact."""
        made_here = g.storage.born >= self.began and g.storage not in self.seen_outside
        if not (made_here and g.storage.backend.is_compact(g.array)):
            g = g.clone()
        self.seen_outside.add(g.storage)
        return g


def _call_hook(hook: Callable[[Any], Any], g: Any) -> Any:
    """Call hook(g), and return the gradient that it returns, or g if it returns None."""
    replaced = hook(g)
    if replaced is None:
        return g
    if not isinstance(replaced, Value) or (replaced.shape, replaced.dtype) != (g.shape, g.dtype):
        raise RuntimeError(
            f"hook {getattr(hook, '__name__', hook)} must return None or a Tensor of shape {g.shape} and {g.dtype}, "
            f"got {getattr(replaced, 'shape', type(replaced).__name__)}"
        )
    return replaced


def backward(
    roots: Sequence[Node],
    cotangents: Sequence[Any],
    inputs: Sequence[Node] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inspect: Inspect | None = None,
) -> Any:
    """Walk from the nodes `roots`, whose gradients are `cotangents`, to the leaves. In a captured step, the session
    decides how.

    inputs: None adds to the .grad of leaves and retained nodes, and returns None. Given nodes, no .grad changes, and
    their gradients are returned as a list; None where the roots do not depend on one.
    inspect: called as inspect(op, dys, dxs) at each step, with the whole gradients of the op's outputs and its
    contribution to each input, or None. Then no .grad changes, no hook, watch or search for NaN runs, and the graph is
    kept."""
    session = thread.session
    walk: Callable[..., Any] = run_walk if session is None or session.capturing is not None else session.backward
    return walk(roots, cotangents, inputs, retain_graph, create_graph, inspect)


def _release(op: Any) -> None:
    op.release()


def run_walk(
    roots: Sequence[Node],
    cotangents: Sequence[Any],
    inputs: Sequence[Node] | None,
    retain_graph: bool | None,
    create_graph: bool,
    inspect: Inspect | None,
    release: Callable[[Any], object] = _release,
) -> Any:
    """The walk itself: `backward` calls it unless a captured step is running, which then decides what to compute.

    release: called with each op whose backward has run, unless the graph is retained."""
    retain_graph = inspect is not None or create_graph if retain_graph is None else retain_graph
    targets = None if inputs is None else set(inputs)
    walk = _Walk(create_graph, targets, inspect)
    floor = 0 if inputs is None else min((n.op.serial if n.op else 0 for n in inputs), default=0)
    ops = reachable(roots, floor)
    order = sorted(ops, key=lambda op: op.serial, reverse=True)
    useful = None if walk.targets is None else leading_to(walk.targets, order)
    modes = current_modes()
    inspecting = inspect is not None or modes["inspecting"]
    anomaly, watch = modes["anomaly"] and not inspecting, None if inspect is not None else modes["watch"]
    with switched(grad=create_graph, anomaly=False, inspecting=inspecting, watch=watch):
        for root, g in zip(roots, cotangents):
            walk.seen_outside.add(g.storage)
            walk.add(root, g if create_graph else g.detach())
        for op in order:
            nodes = ops[op]
            dys = {index: g for index, node in nodes.items() if (g := walk.collect(node)) is not None}
            if dys and (useful is None or op in useful):
                if create_graph:
                    current_modes()["scope"] = op.scope
                needs = op.needs if useful is None else useful[op]
                _step(walk, op, dys, needs, anomaly)
                if not retain_graph:
                    release(op)
        for leaf in list(walk.pending):  # only leaves remain
            walk.collect(leaf)
        if inputs is None:
            return None
        gradients = [walk.results.get(node) for node in inputs]
        return [None if g is None else walk.with_own_memory(g) for g in gradients]


def leading_to(targets: set[Node], order: Sequence[Any]) -> dict[Any, tuple[bool, ...]]:
    """Return {op: (True or False for each input: does it lead to a target)} for the ops that have such an input.

    order: the ops of the walk, the latest first."""
    useful: dict[Any, tuple[bool, ...]] = {}
    for op in reversed(order):
        needs = tuple([p is not None and (p in targets or p.op in useful) for p in op.parents])
        ended_step = op.spent and not op.parents  # a captured step that is over; _step() raises for it
        if True in needs or ended_step:
            useful[op] = needs
    return useful


def _step(walk: _Walk, op: Any, dys: dict[int, Any], needs: tuple[bool, ...], anomaly: bool) -> None:
    """Run one op's backward, with the gradients dys of its outputs, and add the results to those of its inputs."""
    if op.spent:
        raise op.spent_error()
    if op.outputs is None:
        arguments: tuple[Any, ...] = (dys[0],)
    else:
        for i, shape_and_dtype in enumerate(op.outputs):
            if i not in dys and shape_and_dtype is not None:  # an output that nothing used
                dys[i] = op.wrap(op.backend.zeros(*shape_and_dtype), Storage(op.backend))
        arguments = tuple([dys.get(i) for i in range(len(op.outputs))])
    try:
        dxs = (op if needs == op.needs else op.with_needs(needs)).backward(*arguments)
    except AttributeError as error:
        if type(error.obj) is type(op):
            error.add_note("An op keeps what its backward needs by save_inputs(…) or save(…), in its forward.")
        raise
    dxs = dxs if isinstance(dxs, tuple) else (dxs,)
    if len(dxs) != len(op.parents):
        raise RuntimeError(f"backward of {op.describe()} returned {len(dxs)} gradients for {len(op.parents)} inputs")
    passed: list[Any] = [None] * len(dxs)
    for i, (node, g) in enumerate(zip(op.parents, dxs)):
        if needs[i] and g is not None:
            passed[i] = g = _fit_to_input(op, i, g, node)
            if anomaly:
                check_backward(op, i, g, arguments)
            walk.add(node, g)
    if walk.inspect is not None:
        walk.inspect(op, arguments, passed)


def _as_leaf(x: Any) -> Any:
    """x as a leaf of another graph, in the same memory. (requires_grad_() would forbid to change x in place.)"""
    leaf = x.detach()
    leaf.node = Node(None, 0, x.shape, x.dtype, x.device)
    return leaf


def vjp(fn: Callable[..., Any], inputs: Sequence[Any], dys: Sequence[Any], needs: Sequence[bool]) -> tuple[Any, ...]:
    """The vector-Jacobian product: the gradients of fn(*inputs), weighted by dys, through the graph of fn.

    Returns a tuple with a Tensor for each input, or None where `needs` is False. While grad is enabled, the gradients
    can be differentiated again."""
    connected = is_grad_enabled()  # then the gradients are functions of the inputs in the graph
    with enable_grad():
        points = []
        for x, need in zip(inputs, needs):
            if not need:
                points.append(x)
            elif connected:
                points.append(x.alias())
            else:
                points.append(_as_leaf(x))
        ys = fn(*points)
    ys = ys if isinstance(ys, tuple) else (ys,)
    pairs = [(y.node, dy) for y, dy in zip(ys, dys) if dy is not None and y.node is not None]
    wanted = [point.node for point, need in zip(points, needs) if need]
    dxs = iter(backward([p[0] for p in pairs], [p[1] for p in pairs], inputs=wanted, create_graph=connected))
    gradients = []
    for x, need in zip(inputs, needs):
        g = next(dxs) if need else None
        gradients.append(x.zeros_like() if need and g is None else g)
    return tuple(gradients)
