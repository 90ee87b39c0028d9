"""Heads that are not minigrad's, but PyTorch's or those of an engine of your own, as a HeadTrace.

seen = study.trace_of({"blocks.0.attn": {"q": q, "k": k, "v": v, "scores": s, "pattern": p, "z": z}})
seen.check(); print(seen.table()); seen.to_html("heads.html")
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.errors import unknown
from .trace import NAMES, VALUES, HeadTrace, LayerTrace

NO_LAYER: Any = None  # of minigrad
SHAPES = dict.fromkeys(VALUES, "(B, n, T, S)") | {
    "q": "(B, n, T, d_k)", "k": "(B, n, S, d_k)", "v": "(B, n, S, d_v)", "z": "(B, n, T, d_v)",
}  # fmt: skip


def trace_of(layers: Mapping[str, Mapping[str, Any]], scale: float | None = None, tokens: Any = None) -> HeadTrace:
    """A HeadTrace of heads of any framework: its check(), table() and to_html() show what does not need the weights.

    layers: {name: {"q": x, "k": x, "v": x, "scores": x, "pattern": x, "z": x}}, of the shapes that LayerTrace says,
        with scores before the mask. Each x has .data, an array or a tensor, and .grad, the same or None (PyTorch keeps
        it after retain_grad()). Both are copied.
    scale: of the scores, q kᵀ times it. None: 1/√d_k. tokens: (B, T) ints, for statistics and labels.
    Raises ValueError for a value that is missing or has another shape, TypeError for one without .grad."""
    return _Trace(layers, scale, tokens)


class _Trace(HeadTrace):
    def __init__(self, layers, scale, tokens):
        self._calls = {path: [_Layer(path, values, scale)] for path, values in layers.items()}
        if not self._calls:
            raise ValueError("trace_of needs at least one layer")
        self._paths, self.layers = list(layers), dict.fromkeys(layers, NO_LAYER)
        self._products, self._shared = {}, set()
        self._heads = {path: calls[0].heads for path, calls in self._calls.items()}
        self.tokens = None if tokens is None else np.array(tokens)
        self._targets = self._logits = None


class _Layer(LayerTrace):
    def __init__(self, path, values, scale):
        if wrong := [name for name in values if name not in VALUES]:
            raise ValueError(unknown("value of heads", wrong[0], VALUES))
        if missing := [name for name in VALUES if name not in values]:
            raise ValueError(f"{path}: {', '.join(missing)} missing, trace_of needs {', '.join(VALUES)}")
        for name, x in values.items():
            if not hasattr(x, "grad"):
                raise TypeError(f"{path}: {name} must have .data and .grad, got {type(x).__name__}")
            setattr(self, name, _array(x.data))
            if x.grad is not None:
                setattr(self, f"{name}_grad", _array(x.grad))
        self._check_shapes(path)
        self.path, self.layer, self.heads = path, NO_LAYER, tuple(range(self.q.shape[1]))
        self.scale = self.q.shape[-1] ** -0.5 if scale is None else scale
        self.dropout, self.altered, self.twice = 0.0, False, False

    def _check_shapes(self, path):
        for name, dims in SHAPES.items():
            if getattr(self, name).ndim != 4:
                raise ValueError(f"{path}: {name} must have 4 dims, {dims}, got shape {getattr(self, name).shape}")
        (B, n, T, d_k), S, d_v = self.q.shape, self.k.shape[2], self.v.shape[3]
        sizes = {"B": B, "n": n, "T": T, "S": S, "d_k": d_k, "d_v": d_v}
        for name, dims in SHAPES.items():
            wanted = tuple(sizes[dim] for dim in dims.strip("()").split(", "))
            for each in (name, f"{name}_grad"):
                if each in vars(self) and getattr(self, each).shape != wanted:
                    raise ValueError(f"{path}: {each} must be {dims}, {wanted}, got {getattr(self, each).shape}")

    def __getattr__(self, name):
        if name not in NAMES:
            raise AttributeError(unknown("value", name, NAMES))
        value = name.removesuffix("_grad")
        why = "its .grad was None: in PyTorch, call retain_grad() before backward()" if value in VALUES else "not given"
        raise RuntimeError(f"no {name} in {self.path}: {why}")

    @property
    def has_grads(self):
        return all(f"{name}_grad" in vars(self) for name in VALUES)

    @property
    def crossed(self):
        return self.q.shape[2] != self.k.shape[2]


def _array(x):
    """A copy, also of a tensor; the .grad of some engines is one."""
    if not isinstance(x, np.ndarray):
        x = x.cpu() if hasattr(x, "cpu") else getattr(x, "data", x)
    return np.array(x)
