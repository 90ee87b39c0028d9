"""The box in which an op or a leaf is drawn: its own, that of a folded module, or the hidden middle."""

import re
from itertools import takewhile

MIDDLE = "…"  # the box for the middle of a graph that is too large even with all modules folded
START = ("start",)  # represents the caller, as the user of the roots


def fold(ops, depth, max_nodes, others):
    """{op or leaf: the box to draw it in}: itself, the path of a module that is folded, or MIDDLE.

    Modules at level `depth` (None: no level) are folded first, and then the deepest ones, until at most max_nodes nodes
    are left. others(box): how many nodes the picture has besides ops, leaves and folded boxes."""

    def folded(n):
        """Each module whose path has n names is one box; so is each at level `depth`, where that is less deep."""
        box = {}
        for op in ops:
            path, at_depth = place(op), module_at(op, depth)
            cuts = [".".join(path[:n])] * (len(path) >= n) + [at_depth] * (at_depth is not None)
            box[op] = min(cuts, key=len, default=op)
        return box

    def size():
        drawn = _with_leaves(ops, box)
        return len(set(drawn.values())) + others(drawn)

    n = max((len(place(op)) for op in ops), default=0)
    box = folded(n + 1)
    while size() > max_nodes and n:
        box = folded(n)
        n -= 1
    boxes, n = list(dict.fromkeys(box.values())), max_nodes
    while size() > max_nodes and n:  # with n = 0 everything is in the middle
        n = n * 7 // 8  # the first n // 2 boxes and the last n - n // 2 stay
        middle = set(boxes[n // 2 : len(boxes) - (n - n // 2)])
        box = {op: MIDDLE if key in middle else key for op, key in box.items()}
    return _with_leaves(ops, box)


def _with_leaves(ops, box):
    """`box` with the leaves: a leaf used by a single folded box is in that box, any other has its own."""
    box = dict(box)
    for op in ops:
        for node in op.parents:
            if node is not None and node.op is None:
                key = box[op] if isinstance(box[op], str) else node
                box[node] = key if box.get(node, key) == key else node
    return box


def uses(ops, roots, box):
    """{value: its uses outside its own box}; a use is (box, number of the input, or None for a folded box)."""
    found = {}
    for op in ops:
        for i, node in enumerate(op.parents):
            if node is not None and box[node.op or node] != box[op]:
                found.setdefault(node, {})[use(box, op, i)] = None
    for root in roots:
        found.setdefault(root, {})[START, None] = None
    return {node: list(places) for node, places in found.items()}


def use(box, op, i):
    """Input i of op as a use. A folded box uses a value once, however many of its ops do."""
    return (op, i) if box[op] is op else (box[op], None)


def place(box):
    """The path of the module in whose frame a box is drawn, as a tuple."""
    if box is START:
        return ()
    scope = box.rpartition(".")[0] if isinstance(box, str) else box.scope
    return tuple(scope.split(".")) if scope else ()


def common_place(places):
    """The path of the innermost module that holds all of them."""
    return tuple(level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*places)))


def module_at(op, depth):
    """The path of the module at level `depth` in which op ran, or None. blocks.1 is one level, not two."""
    levels = re.split(r"\.(?!\d+(?:\.|$))", op.scope)
    return ".".join(levels[:depth]) if depth and op.scope and len(levels) >= depth else None
