"""A Flow as a picture: parts of the model from bottom to top, and edges as wide as they are large."""

import itertools

COLOURS = {"q": "#0072b2", "k": "#d55e00", "v": "#009e73", "": "#666666"}  # told apart with any colour vision
READS = {"q": "Q", "k": "K", "v": "V", "": "an MLP, or at the end"}
WIDEST = 6.0  # points


def digraph(flow, edges, least):
    """A graphviz.Digraph of `edges`, an Edges of `flow`. Left out are those below `least` of the largest."""
    try:
        import graphviz
    except ImportError as error:
        raise ImportError("a picture needs the Python package graphviz: pip install '.[viz]'") from error
    largest = max((abs(edge) for *_, edge in edges), default=0.0)
    shown = [each for each in edges if abs(each[-1]) >= least * largest]
    picture = graphviz.Digraph(
        graph_attr={
            "rankdir": "BT",
            "label": _legend(len(shown), len(edges), largest),
            "fontname": "sans-serif",
            "fontsize": "11",
        },
        node_attr={"shape": "box", "style": "rounded", "fontname": "sans-serif", "fontsize": "11"},
        edge_attr={"arrowsize": "0.6"},
    )
    used = {node for u, v, *_ in shown for node in (u, v)}
    rows = [kept for row in rows_of(flow) if (kept := [node for node in row if node in used])]
    for nodes in rows:
        with picture.subgraph(graph_attr={"rank": "same"}) as row:
            for node in nodes:
                row.node(str(node))
            for one, other in itertools.pairwise(nodes):  # in the order of their numbers
                row.edge(str(one), str(other), style="invis")
    for lower, upper in itertools.pairwise(rows):
        picture.edge(str(lower[0]), str(upper[0]), style="invis")
    for u, v, p, edge in shown:
        picture.edge(
            str(u), str(v), penwidth=f"{WIDEST * abs(edge) / largest:.2f}", color=COLOURS[p],
            style="solid" if edge > 0 else "dashed", tooltip=f"{u} → {v} {p}".strip() + f": {edge:+.4g}",
        )  # fmt: skip
    return picture


def rows_of(flow):
    """Lists of Nodes, from the bottom up: what the streams begin with, then each part where it stands in the model. The
    bias of an attention layer stands beside its heads."""
    readers = dict.fromkeys(node for node, _ in flow.inputs)
    parts = {node.path for node in readers}
    first, rows = [], {}
    for node in dict.fromkeys([*flow.sources, *readers]):  # in the order in which they write, and then the ends
        part = node.path.removesuffix(".bias")
        (rows.setdefault(part, []) if part in parts else first).append(node)
    return [first, *rows.values()]


def _legend(shown, of, largest):
    colours = "".join(f'<font color="{COLOURS[p]}"><b> {READS[p]} </b></font>' for p in COLOURS)
    return (
        f"<{shown} of {of} edges; the widest is {largest:.3g}. Read by{colours}<br/>"
        "Solid: more of it raises the loss. Dashed: more of it lowers the loss.>"
    )
