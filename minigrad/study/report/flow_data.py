"""A Flow as the report's page draws it."""

import math

from ..residual.picture import rows_of

EACH = 12  # how many edges of a node are kept, the largest ones, of those that leave it and of those that lead to it


def flow_data(flows, paths, heads):
    """The flows of all snapshots, which may be None, as a dict for JSON.

    nodes: [name, number of the layer, place of the head], -1 for what is no head of the report, {paths: heads}.
    method: what edges are. rows: lists of nodes, by their numbers. edges: [snapshot][source, target, input, edge, the
    same to first order], the largest of each node. totals: [snapshot][node]{input: sum of all first-order edges that
    leave the node}."""
    given = next((flow for flow in flows if flow is not None), None)
    if given is None:
        return None
    rows = rows_of(given)
    number = {node: i for i, node in enumerate(node for row in rows for node in row)}
    for flow in flows:
        if flow is not None and {*flow.sources, *(v for v, _ in flow.inputs)} != number.keys():
            raise ValueError("the flows of the snapshots are of different models")
        if flow is not None and flow.method != given.method:
            raise ValueError(f"the flows of the snapshots are by {given.method} and by {flow.method}")
    place = {(path, head): (i, j) for i, path in enumerate(paths) for j, head in enumerate(heads[i])}
    return {
        "method": given.method,
        "nodes": [[str(node), *place.get((node.path, node.head), (-1, -1))] for node in number],
        "rows": [[number[node] for node in row] for row in rows],
        "edges": [[] if flow is None else _largest(flow, number) for flow in flows],
        "totals": [[] if flow is None else _totals(flow, number) for flow in flows],
    }


def _largest(flow, number):
    kept, leaving, leading = [], dict.fromkeys(number, 0), dict.fromkeys(number, 0)
    found = flow.all
    for (u, v, p, edge), first in zip(found, found.first_order):
        if math.isfinite(edge) and (leaving[u] < EACH or leading[v] < EACH):
            leaving[u] += 1
            leading[v] += 1
            kept.append([number[u], number[v], p, float(f"{edge:.4g}"), float(f"{first:.4g}")])
    return kept


def _totals(flow, number):
    found = [{} for _ in number]
    for u, row in zip(flow.sources, flow.first_order):
        for p in dict.fromkeys(p for _, p in flow.inputs):
            total = float(row[[q == p for _, q in flow.inputs]].sum())
            if total and math.isfinite(total):
                found[number[u]][p] = float(f"{total:.4g}")
    return found
