"""The norms of all gradients in a graph, from a backward walk that changes nothing."""

from functools import reduce
from operator import add

import numpy as np

from ..autograd import backward
from ..nn.hooks import Tap
from ..tensor import ones
from .fold import START, use


def norm(x):
    """The Euclidean norm of a Tensor, as a float. It is scaled first, so that squares neither overflow nor vanish."""
    array = np.abs(x.detach().cpu().numpy().astype(np.float64))
    top = float(array.max(initial=0.0))
    return top * float(np.linalg.norm(array / top)) if 0 < top < np.inf else top


def norms(roots, ops, box):
    """{value: |its gradient|, (value, use): |what came by that use|} of the sum of `roots`; for uses see `fold.uses`.

    ops: {op: {output index: value}}, as `reachable` gives it. What a value gets within its own folded box is left out.
    A value that gets nothing has no entry. No .grad changes, no hook runs, and nothing that ops saved is freed.
    Raises GraphError if what they saved was freed before, or changed in place."""
    found, pending = {}, {}  # pending: {value: {use: sum of the contributions by that use}}, until all have come

    def arrive(node, by, g):
        if by[0] != box[node.op or node]:
            before = pending.setdefault(node, {})
            before[by] = before[by] + g if by in before else g

    def measure(node):
        if parts := pending.pop(node, None):
            found.update({(node, by): norm(g) for by, g in parts.items()})
            found[node] = norm(reduce(add, parts.values()))

    def inspect(op, dys, dxs):
        for node in ops[op].values():  # all that use them came before
            measure(node)
        for i, g in enumerate(dxs):
            if g is not None:
                arrive(op.parents[i], use(box, op, i), g)

    cotangents = [ones(root.shape, dtype=root.dtype, device=root.device) for root in roots]
    for root, g in zip(roots, cotangents):
        arrive(root, (START, None), g)
    backward(roots, cotangents, inspect=inspect)
    for leaf in list(pending):
        measure(leaf)
    return found


def has_hooks(ops):
    """True if hooks would take part in a backward through these ops."""
    outputs = [node for found in ops.values() for node in found.values()]
    inputs = [node for op in ops for node in op.parents if node is not None]
    return any(node.hooks for node in outputs + inputs) or any(isinstance(op, Tap) for op in ops)
