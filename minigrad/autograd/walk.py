"""The backward walk: from outputs to leaves, each op once, after everything that used its output."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..base.recording import thread
from .anomaly import check_backward
from .graph import Node, Storage, Value
from .modes import enable_grad, mode, switched

# An op is Any here: op.py imports this module.
Reached = dict[Any, dict[int, Node]]  # {Op: {output index: node}}
Inspect = Callable[[Any, tuple[Any, ...], list[Any]], object]


def reachable(nodes: Iterable[Node], floor: int) -> "Reached":
    """{op: {output index: node}} of everything at or above `nodes`, without ops older than serial `floor`."""
    found: Reached = {}
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


def _unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum g over the dimensions that broadcasting added to `shape`."""
    extra = len(g.shape) - len(shape)
    dims = tuple(range(extra)) + tuple(d + extra for d, n in enumerate(shape) if n == 1 and g.shape[d + extra] != 1)
    return g.sum(dims).reshape(shape) if dims else g


def _fitted(op: Any, i: int, g: Any, node: Node) -> Any:
    """The gradient for input i of op, with exactly its input's shape, dtype and device, or an error that says why."""
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
    """One backward pass. Gradients wait in `pending` until every op that contributes has run."""

    def __init__(self, create_graph: bool, targets: set[Node] | None, inspect: "Inspect | None"):
        self.began = Storage.begin_walk()
        self.create_graph = create_graph
        self.inspect = inspect
        self.targets = targets  # nodes whose gradients go to `results`; None: leaves, to their .grad
        self.results: dict[Node, Value] = {}
        self.pending: dict[Node, Any] = {}  # node -> sum of the contributions so far
        self.owned: set[Node] = set()  # nodes whose pending array nobody else has, so we can add to it in place
        self.handed_out: set[Storage] = set()  # storages that a .grad or the caller's cotangent already uses

    def add(self, node: Node, g: Value) -> None:
        """Borrow the first contribution, allocate at the second, add in place from the third on."""
        before = self.pending.get(node)
        if before is None:
            self.pending[node] = g
        elif node in self.owned and not self.create_graph:
            g.storage.backend.add(before.array, g.array, out=before.array)
        else:
            self.pending[node] = before + g
            self.owned.add(node)

    def collect(self, node: Node) -> Any:
        """The whole gradient of node, after its hooks; stored if it is a target or a leaf."""
        g = self.pending.pop(node, None)
        if g is None:
            return None
        if node.hooks and not mode.inspecting:
            for hook in list(node.hooks.values()):
                self.handed_out.add(g.storage)  # a hook may keep its argument, and what it returns
                g = _hooked(hook, g)
            self.handed_out.add(g.storage)
        if self.targets is None:
            if node.retain and not mode.inspecting:
                node.accumulate(g, self.exclusive)
        elif node in self.targets:
            self.results[node] = g
        return g

    def exclusive(self, g: Any) -> Any:
        """g, or a copy if anything else uses its memory: no .grad shares an array."""
        fresh = g.storage.born >= self.began and g.storage not in self.handed_out
        if not (fresh and g.storage.backend.is_compact(g.array)):
            g = g.clone()
        self.handed_out.add(g.storage)
        return g


def _hooked(hook: Callable[[Any], Any], g: Any) -> Any:
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
    """Walk from the nodes `roots` with their `cotangents` to the leaves.

    inputs=None: add to .grad of leaves and retained nodes, return None. Otherwise: return the list of gradients of
    the nodes `inputs` (None where the roots do not depend on one) and touch no .grad.
    inspect: call inspect(op, dys, dxs) at each step, with the whole gradients of the op's outputs and its
    contribution to each input (None: nothing). No .grad changes, no hook, watch or search for NaN runs, and the graph
    is kept."""
    recorder = thread.recorder
    walk: Callable[..., Any] = walked if recorder is None or recorder.capturing is not None else recorder.backward
    return walk(roots, cotangents, inputs, retain_graph, create_graph, inspect)


def walked(roots: Sequence[Node], cotangents: Sequence[Any], inputs: Sequence[Node] | None, retain_graph: bool | None,
           create_graph: bool, inspect: Inspect | None) -> Any:  # fmt: skip
    """backward() with all its arguments, captured or not."""
    retain_graph = inspect is not None or create_graph if retain_graph is None else retain_graph
    targets = None if inputs is None else set(inputs)
    walk = _Walk(create_graph, targets, inspect)
    floor = 0 if inputs is None else min((n.op.serial if n.op else 0 for n in inputs), default=0)
    ops = reachable(roots, floor)
    order = sorted(ops, key=lambda op: op.serial, reverse=True)  # creation order is a topological order
    useful = None if walk.targets is None else _leading_to(walk.targets, order)
    inspecting = inspect is not None or mode.inspecting
    anomaly, watch = mode.anomaly and not inspecting, None if inspect is not None else mode.watch
    with switched(grad=create_graph, anomaly=False, inspecting=inspecting, watch=watch):
        for root, g in zip(roots, cotangents):
            walk.handed_out.add(g.storage)
            walk.add(root, g if create_graph else g.detach())
        for op in order:
            nodes = ops[op]
            dys = {index: g for index, node in nodes.items() if (g := walk.collect(node)) is not None}
            if dys and (useful is None or op in useful):
                if create_graph:
                    mode.scope = op.scope
                needs = op.needs if useful is None else useful[op]
                _step(walk, op, dys, needs, anomaly)
                if not retain_graph:
                    op.release()
        for leaf in list(walk.pending):  # only leaves remain
            walk.collect(leaf)
        if inputs is None:
            return None
        return [None if (g := walk.results.get(node)) is None else walk.exclusive(g) for node in inputs]


def _leading_to(targets: set[Node], order: Sequence[Any]) -> dict[Any, tuple[bool, ...]]:
    """{op: which of its inputs lead to a target}, for the ops that have such an input."""
    useful: dict[Any, tuple[bool, ...]] = {}
    for op in reversed(order):
        needs = tuple([p is not None and (p in targets or p.op in useful) for p in op.parents])
        if True in needs or (op.spent and not op.parents):  # a captured step that is over: where did it lead?
            useful[op] = needs
    return useful


def _step(walk: _Walk, op: Any, dys: dict[int, Any], needs: tuple[bool, ...], anomaly: bool) -> None:
    """Run one op's backward and pass the results on to its inputs."""
    if op.spent:
        raise op.already_spent()
    if op.outputs is None:
        arguments: tuple[Any, ...] = (dys[0],)
    else:
        zeros = {i: meta for i, meta in enumerate(op.outputs) if i not in dys and meta}
        dys |= {i: op.wrap(op.backend.zeros(*meta), Storage(op.backend)) for i, meta in zeros.items()}
        arguments = tuple([dys.get(i) for i in range(len(op.outputs))])
    try:
        dxs = (op if needs == op.needs else op.narrowed(needs)).backward(*arguments)
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
            passed[i] = g = _fitted(op, i, g, node)
            if anomaly:
                check_backward(op, i, g, arguments)
            walk.add(node, g)
    if walk.inspect is not None:
        walk.inspect(op, arguments, passed)


def vjp(fn: Callable[..., Any], inputs: Sequence[Any], dys: Sequence[Any], needs: Sequence[bool]) -> tuple[Any, ...]:
    """Gradients of fn(*inputs) against dys, through the graph of fn; differentiable again while grad is enabled.

    A tuple: for each input a Tensor of its shape, or None where `needs` is false."""
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
