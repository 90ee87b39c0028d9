"""The ledger of a backward pass: a readable entry for each step, in the order in which the steps happen.

    print(study.ledger(lambda: loss_fn(model(x), y), head="1.2", names=model))

It runs a backward that changes no .grad (see autograd.backward). The formulas are those in the ops' docstrings.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..autograd import GraphError, backward, reachable
from ..base.errors import UnknownName, unknown
from ..nn import Module
from ..nn.attention import force_impl
from ..nn.heads import check_heads
from ..ops.derivatives import argument, derivative, letters_of
from ..tensor import Tensor, ones_like
from .layers import attention_layers, numbers_of_heads
from .names import head_of


@dataclass(eq=False)  # arrays compare element by element
class Gradient:
    """A gradient in the ledger. array: the whole gradient, or one head's part of it. shape: of the whole gradient.

    number, of: if a value has several users, this is contribution `number` of `of` to its gradient, in the order of the
    steps. Both are 0 for a complete gradient."""

    name: str
    array: np.ndarray
    shape: tuple
    number: int = 0
    of: int = 0

    @property
    def norm(self):
        return float(np.linalg.norm(self.array.astype(np.float64)))

    def __str__(self):
        part = "" if self.array.shape == self.shape else f", of {self.shape}"
        which = f"contribution {self.number} of {self.of}" if self.of > 1 else ""
        cells = f"|d{self.name}| = {self.norm:.4g}", f"{self.array.shape}{part}", which
        return "   ".join(filter(None, cells))


@dataclass
class Entry:
    """A step of backward: its op, the gradients of the op's outputs and inputs, and the formula between them.

    made: "file.py:12", the line of the forward that ran the op; "" if it is unknown, or the same for all steps."""

    op: str
    scope: str
    made: str
    upstream: list[Gradient]
    formula: str
    gives: list[Gradient]

    def text(self, full=False):
        """Return the entry as lines of text. full: with all numbers."""
        where = f" in {self.scope}" * bool(self.scope) + f"   made at {self.made}" * bool(self.made)
        lines = [f"{self.op}{where}"]
        lines += self._section("upstream", self.upstream, full)
        lines += [f"    formula   {self.formula}"] if self.formula else []
        return "\n".join(lines + self._section("gives", self.gives, full))

    @staticmethod
    def _section(title, gradients, full):
        lines = []
        for g in gradients:
            lines.append(f"    {'' if lines else title:9} {g}")
            lines += [f"{'':18}{line}" for line in _numbers(g.array)] if full else []
        return lines


@dataclass
class Ledger:
    """The entries of a backward pass, in order. str() is the text to read."""

    title: str
    entries: list[Entry]
    full: bool

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"{i:3} {entry.text(self.full)}" for i, entry in enumerate(self.entries, 1))])


def ledger(
    loss: Tensor | Callable[[], Tensor], scope: str = "", head: str | int | None = None, values: str = "summary",
    names: "Module | Mapping[str, Tensor] | None" = None,
) -> Ledger:  # fmt: skip
    """Return a Ledger of the steps of backward in the module at path `scope` and below it ("": everywhere).

        loss    a Tensor of one element whose graph has not been freed, or a function without arguments that returns
                one. A function runs its attention layers with impl="batched"; impl="fused" would be a single step,
                without dpattern and dqk
        head    "1.2", or a number in the layer at `scope`: show only this layer, and of values with an axis of heads
                only this head. Without names=model, layers are counted in the order in which they ran
        values  "summary", or "full" to show all numbers
        names   a Module, or {name: Tensor}, for the names of parameters

    Values have the names of a trace and of head hooks; qk is q kᵀ, before the scale makes it scores. No .grad changes,
    no hook runs, and the graph is kept. Raises KeyError for an unknown scope or name of a head, ValueError for an
    unknown number or an unsuitable loss, and GraphError if there is no graph or it has been freed."""
    if values not in ("summary", "full"):
        raise ValueError(f"values must be 'summary' or 'full', got {values!r}")
    if callable(loss):
        with force_impl("batched"):
            loss = loss()
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        given = getattr(loss, "shape", type(loss).__name__)
        raise ValueError(f"the ledger begins with a loss of one element, not {given}")
    if loss.node is None:
        raise GraphError("no graph was recorded for this loss: made under no_grad(), or nothing requires a gradient")
    ops = reachable([loss.node], 0)
    if isinstance(head, (str, tuple)):
        scope, head = head_of(head, _heads_in(ops, names))
    graph = {op: nodes for op, nodes in ops.items() if _within(op.scope, scope)}
    if not graph:
        raise UnknownName(unknown("module", scope, _scopes(ops)))
    parts = {} if head is None else head_parts(graph, scope, head)
    steps, arrived = [], Counter()  # {node: number of contributions to its gradient so far}

    def inspect(op, dys, dxs):
        numbers = []
        for node, dx in zip(op.parents, dxs):
            arrived[node] += dx is not None
            numbers.append(arrived[node])
        if op in graph:
            steps.append((op, dys, dxs, numbers))

    backward([loss.node], [ones_like(loss.detach())], inspect=inspect)
    letters = letters_of(graph)
    names_of = letters | {node: name.removeprefix(scope + ".") for node, name in _names(names).items()}

    def gradient(node, g, fallback, number=0):
        part, of = parts.get(node, ...), arrived[node] if number else 0
        array = g.numpy(force=True)
        return Gradient(names_of.get(node, fallback), array[part], array.shape, number, of)

    entries = []
    for op, dys, dxs, numbers in steps:
        outputs, gives = sorted(graph[op].items()), []
        upstream = [gradient(node, dys[i], f"y[{i}]" if len(dys) > 1 else "y") for i, node in outputs]
        for i, (node, dx) in enumerate(zip(op.parents, dxs)):
            if dx is not None:
                gives.append(gradient(node, dx, argument(op, i), numbers[i]))
        entries.append(Entry(op.name, op.scope, _made_at(op), upstream, derivative(op, graph[op], letters), gives))
    title = f"backward of {scope or 'all'}" + ("" if head is None else f", head {head}")
    title += f": {len(entries)} of {len(ops)} steps"
    lines = {entry.made for entry in entries}
    if len(lines) == 1 and lines != {""}:  # one line made all: it is written once, in the title
        title += f", made at {lines.pop()}"
        for entry in entries:
            entry.made = ""
    return Ledger(title, entries, values == "full")


def _heads_in(ops, names):
    """{path of an attention layer: numbers of its heads}, from the Module `names`, or from the ops in their order."""
    if isinstance(names, Module):
        return numbers_of_heads(attention_layers(names))
    merges = sorted((op for op in ops if op.name == "merge_heads"), key=lambda op: op.serial)
    return {op.scope: range(op.heads[0]) for op in merges}


def _made_at(op):
    """'file.py:12', the line of the forward that ran an op. Folders are left out, since a ledger may be published."""
    file, line = op.line
    return f"{os.path.basename(file)}:{line}" if os.path.exists(file) else ""


def _within(path, scope):
    return not scope or path == scope or path.startswith(scope + ".")


def _scopes(ops):
    """The paths of all modules that ran, and of their parents."""
    scopes = {op.scope for op in ops}
    return sorted({".".join(path.split(".")[: n + 1]) for path in scopes for n in range(path.count(".") + 1)} - {""})


def _names(names):
    """{node: name} from a Module, {name: Tensor} or None."""
    named = names.named_parameters() if hasattr(names, "named_parameters") else (names or {}).items()
    return {x.node: name for name, x in named if x.node is not None}


def _numbers(array):
    return np.array2string(array, precision=4, suppress_small=False, max_line_width=100, threshold=4096).splitlines()


# ------------------------------------------------------------------------------------------------------- a single head


def head_parts(graph, scope, head):
    """Return {node: index of the head's part of its value}, for the values of an attention layer that have such parts.

    graph: {op: {index of an output: node}} of the layer. Heads of a group have the same keys and values. Raises
    ValueError unless the graph has exactly one attention layer, whose impl is "batched" or "fused", and for an unknown
    head."""
    merges = [op for op in graph if op.name == "merge_heads"]
    if len({op.scope for op in merges}) != 1:
        layers = ", ".join(sorted({op.scope for op in merges})) or "none of impl 'batched' or 'fused'"
        raise ValueError(f"head= needs the scope of one attention layer; in {scope!r} there is {layers}")
    (nh,), d_v = merges[0].heads, merges[0].d
    check_heads([head], nh)
    splits = [op for op in graph if op.name == "split_heads"]
    nkv = min(n for op in splits for n in op.heads)
    group = head * nkv // nh

    parts: dict = {}
    for op, outputs in graph.items():
        for node in (*outputs.values(), *op.parents):
            if node is not None and len(node.shape) == 4 and node.shape[1] in (nh, nkv):
                parts[node] = np.s_[:, [head if node.shape[1] == nh else group]]
        if op.name == "mul" and op.parents[1] is not None and op.parents[1].shape == (nh, 1, 1):  # head_gates
            gates = op.parents[1]
            parts |= {gates: np.s_[[head]], **({gates.op.parents[0]: np.s_[[head]]} if gates.op in graph else {})}
    for op in merges:
        parts |= {node: np.s_[..., _columns(head, d_v)] for node in graph[op].values()}
    for op in splits:
        starts = np.cumsum([0, *op.heads[:-1]]) * op.d
        columns = [s + c for s, n in zip(starts, op.heads) for c in _columns(head if n == nh else group, op.d)]
        parts[op.parents[0]] = np.s_[..., columns]
    for op, outputs in graph.items():
        if op.name == "linear":
            x, W, b = op.parents
            if outputs[0] in parts:  # the head's columns of the result come from these rows of W
                rows = parts[outputs[0]][1]
                parts |= {p: np.s_[rows] for p in (W, b) if p is not None}
            elif x in parts:
                parts[W] = parts[x]
    for op, outputs in graph.items():
        if op.name == "split" and any(node in parts for node in outputs.values()):  # W_q, W_k and W_v, or their biases
            starts = np.cumsum([0, *op.sizes[:-1]])
            rows = [starts[i] + r for i, node in outputs.items() if node in parts for r in np.ravel(parts[node])]
            parts[op.parents[0]] = np.s_[sorted(rows)]
    return {node: index for node, index in parts.items() if node is not None}


def _columns(head, d):
    return list(range(head * d, (head + 1) * d))
