"""Which part of each value in the graph of an attention layer belongs to one head."""

import numpy as np

from ...nn.heads import known_heads


def head_parts(graph, scope, head):
    """{node: index of the head's part of it} for the values that heads divide among them, in one attention layer.

    graph: {op: {index of an output: node}} of the layer. The keys and values of a head are those of its group. Raises
    ValueError if that is not exactly one layer, if it took the per-head form, or if it has no such head."""
    merges = [op for op in graph if op.name == "merge_heads"]
    if len({op.scope for op in merges}) != 1:
        here = ", ".join(sorted({op.scope for op in merges})) or "none of impl 'batched' or 'fused'"
        raise ValueError(f"head= needs the scope of one attention layer; in {scope!r} there is {here}")
    (nh,), d_v = merges[0].heads, merges[0].d
    known_heads([head], nh)
    splits = [op for op in graph if op.name == "split_heads"]
    nkv = min(n for op in splits for n in op.heads)
    group = next((int(np.asarray(op.index[1])[head]) for op in graph if _repeats(op, nkv)), head * nkv // nh)

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
            if outputs[0] in parts:  # these rows of W make the head's columns of the result
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


def _repeats(op, nkv):
    """True if this op gives each head its keys or values, by an index along dim 1."""
    return (
        op.name == "getitem"
        and len(op.parents[0].shape) == 4
        and op.parents[0].shape[1] == nkv
        and (len(op.index) == 2 and isinstance(op.index[1], np.ndarray))
    )


def _columns(head, d):
    return list(range(head * d, (head + 1) * d))
