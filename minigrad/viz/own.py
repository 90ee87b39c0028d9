"""The graph of somebody's own engine, by the attributes that base/engines.py names."""

import math
from collections import deque

import numpy as np

from ..base.engines import Own, parents_of
from .labels import DARK, DIM, GREY, count, small
from .picture import STYLES, boxed, styled


def digraph(graphviz, ends, names, notes, max_nodes):
    """(graphviz.Digraph, how many ops it has, how many leaves, how many nodes are left out, those furthest from the
    ends). See viz.graph."""
    waiting, found = deque(ends), {}
    while waiting:
        x = waiting.popleft()
        if id(x) not in found:
            found[id(x)] = x
            waiting += [parent for parent in parents_of(x) if isinstance(parent, Own)]
    drawn = dict(list(found.items())[:max_nodes])
    leaves = sum(not parents_of(x) for x in found.values())
    held = f"{count(leaves, 'leaf')}, {count(len(found) - leaves, 'op')}"
    left_out = len(found) - len(drawn)
    caption = held + f"; {count(left_out, 'node')} further away left out (max_nodes={max_nodes})" * bool(left_out)
    dot = styled(graphviz, f"<{small(caption, GREY)}>")
    titles = {id(x): name for name, x in (names or {}).items()}
    texts = {id(x): text for x, text in (notes or {}).items()}
    ids = {key: f"n{i}" for i, key in enumerate(drawn)}
    for key, x in drawn.items():
        op = getattr(x, "op", "") or getattr(x, "_op", "")
        title = titles.get(key) or str(op or ("op" if parents_of(x) else "leaf"))
        lines = [(f"data {_shown(x.data)}", DIM), (f"grad {_shown(x.grad)}", DIM)]
        lines += [(text, DARK) for text in texts.get(key, "").splitlines()]
        dot.node(ids[key], label=boxed(title, lines), **STYLES["op" if parents_of(x) else "leaf"])
        for parent in parents_of(x):
            if id(parent) in ids:
                dot.edge(ids[id(parent)], ids[key])
    return dot, len(found) - leaves, leaves, left_out


def _shown(x):
    """A number, or the shape and the norm of an array; the gradient of some engines is one of their tensors."""
    x = getattr(x, "data", x) if isinstance(x, Own) else x
    if x is None:
        return "none"
    x = np.asarray(x)
    return f"{x.item():.4g}" if x.ndim == 0 else f"{x.shape}, norm {math.sqrt(float((x.astype(float) ** 2).sum())):.3g}"
