"""What must hold in the backward of every head, whatever the loss: a trace that checks itself.

With the scale s, scores S = s q kᵀ, the pattern P and z = P v, the chain rule gives each gradient from the one before:

    dP = dz vᵀ    dv = Pᵀ dz    dS = P ⊙ (dP - D), D_i = Σ_j P_ij dP_ij    dq = s dS k    dk = s dSᵀ q

From these follow identities whose two sides are computed in different ways:

    Σ_j dS_ij = 0                                       a constant added to a row of scores does not change its softmax
    D_i = ⟨dz_i, z_i⟩
    ⟨dz, z⟩ = ⟨dv, v⟩ = ⟨dW_O, W_O⟩ = ⟨dW_V, W_V⟩       z is linear in each: all are the gradient of a gate on the head
    ⟨dS, S⟩ = ⟨dq, q⟩ = ⟨dk, k⟩ = ⟨dW_Q, W_Q⟩ = ⟨dW_K, W_K⟩

Each W is the head's own part of the weights, ⟨dW, W⟩ includes its bias, and all are summed over the layer's forwards.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..gradcheck.report import columns
from .layers import WEIGHTS

RTOL = {8: 1e-10, 4: 1e-5, 2: 2e-2}  # itemsize -> the error allowed, relative to the sum of the terms' absolute values


class IdentityError(AssertionError):
    """An identity does not hold, so a backward is wrong. `.report` is the IdentityReport of all that was compared."""

    def __init__(self, report: Any) -> None:
        outside = all("⟨dW" in row[2] for row in report.failed)
        hint = "\nOnly weights disagree: did a backward go through a forward from outside the trace?" if outside else ""
        super().__init__(f"{len(report.failed)} of {len(report.rows)} identities do not hold:\n{report}{hint}")
        self.report = report


@dataclass
class IdentityReport:
    """What was compared. rows: (layer, head, identity, error), the error relative to the sum of absolute values.

    skipped: what could not be compared, and why. worst: the largest error. str() shows the worst of each identity."""

    rows: list
    skipped: list
    rtol: dict  # layer -> the largest error allowed

    @property
    def failed(self) -> list[Any]:
        """The rows whose error is larger than allowed, or NaN."""
        return [row for row in self.rows if not row[3] <= self.rtol[row[0]]]  # NaN fails

    @property
    def worst(self) -> float:
        """The largest error; NaN if there is one."""
        return float(np.max([row[3] for row in self.rows]))  # NaN, if there is one

    def __str__(self) -> str:
        lines = [("", "identity", "largest error", "in")]
        for identity in dict.fromkeys(row[2] for row in self.rows):
            rows = [row for row in self.rows if row[2] == identity]
            layer, head, _, error = max(rows, key=lambda row: np.nan_to_num(row[3], nan=np.inf))
            holds = "holds" if error <= self.rtol[layer] else "FAILS"
            lines.append((holds, identity, f"{error:.1e}", layer if head is None else f"{layer} head {head}".strip()))
        return "\n".join([*columns(lines), *(f"not checked: {each}" for each in self.skipped)])


def check(trace, rtol=None):
    """Compare all that a HeadTrace kept; returns an IdentityReport, raises IdentityError if something does not hold.

    rtol: the largest error allowed (None: RTOL, by the dtype). What is compared is the batched form, from the layer's
    weights to its output. It is assumed that the pattern and z are used for nothing but that output (a loss that reads
    the pattern, by need_weights, adds to dP), that all gradients of the weights come from forwards within the trace,
    and that none are second derivatives. Raises RuntimeError if no gradient has come yet."""
    rows, skipped, allowed = [], [], {}
    for path, layer in trace.layers.items():
        calls, name = [call for call in trace.calls(path) if call.has_grads], path or "the layer"
        if not calls:
            skipped.append(f"{name}: no grad yet")
        elif any(call.altered for call in calls):
            skipped.append(f"{name}: it has hooks that may have replaced what it computes")
        else:
            allowed[path] = RTOL[calls[0].z.itemsize] if rtol is None else rtol
            compared = [pair for call in calls for pair in _formulas(call)]
            sums, missing = _inner_products(layer, calls, trace._products, trace._shared)
            if any(call.dropout for call in calls):
                missing.append("dP = dz vᵀ and dv = Pᵀ dz: dropout lies between pattern and v")
            skipped += [f"{name}: {each}" for each in missing]
            rows += [(path, h, what, float(e)) for what, es in compared + sums for h, e in zip(calls[0].heads, es)]
    if not rows:
        raise RuntimeError(f"nothing to check: {'; '.join(skipped)}")
    report = IdentityReport(rows, skipped, allowed)
    if report.failed:
        raise IdentityError(report)
    return report


def _formulas(call):
    """[(formula, error of each head)] of one forward."""
    P, dP, dS = (x.astype(np.float64) for x in (call.pattern, call.pattern_grad, call.scores_grad))
    q, k, v, z, dz = (x.astype(np.float64) for x in (call.q, call.k, call.v, call.z, call.z_grad))
    s, D = call.scale, (P * dP).sum(-1, keepdims=True)  # (B, n, T, 1)
    size_D = np.abs(P * dP).sum(-1, keepdims=True)  # (B, n, T, 1): D's rounding error is relative to this
    found = [
        ("dS = P ⊙ (dP - D)", _error(dS, P * (dP - D), np.abs(P) * (np.abs(dP) + size_D))),
        ("dq = s dS k", _error(call.q_grad, s * dS @ k, np.abs(s * dS) @ np.abs(k))),
        ("dk = s dSᵀ q", _error(call.k_grad, s * dS.swapaxes(2, 3) @ q, np.abs(s * dS).swapaxes(2, 3) @ np.abs(q))),
        ("Σ dS = 0", _error(dS.sum(-1), 0, size_D[..., 0])),
        ("D = ⟨dz, z⟩", _error((dz * z).sum(-1), D[..., 0], size_D[..., 0])),
    ]
    if not call.dropout:
        found += [
            ("dP = dz vᵀ", _error(dP, dz @ v.swapaxes(2, 3), np.abs(dz) @ np.abs(v).swapaxes(2, 3))),
            ("dv = Pᵀ dz", _error(call.v_grad, P.swapaxes(2, 3) @ dz, P.swapaxes(2, 3) @ np.abs(dz))),
        ]
    return found


def _inner_products(layer, calls, products, shared):
    """([(identity, error of each head)], what could not be compared) of all ⟨dx, x⟩, summed over the forwards."""
    z, v, S, q, k = (_inner(calls, point) for point in ("z", "v", "scores", "q", "k"))  # (2, n): sum and size
    found = [
        ("⟨dz, z⟩ = ⟨dv, v⟩", _distance(z, v)),
        ("⟨dS, S⟩ = ⟨dq, q⟩", _distance(S, q)),
        ("⟨dS, S⟩ = ⟨dk, k⟩", _distance(S, k)),
    ]
    if layer is None:
        return found, ["⟨dW, W⟩: the weights are not known"]
    missing, heads = [], list(calls[0].heads)
    own_parts = [layer.head(h).parts for h in heads]
    for name in WEIGHTS:
        what, of_heads = ("⟨dz, z⟩", z) if name in ("W_O", "W_V") else ("⟨dS, S⟩", S)
        owner = np.array(layer.kv_of_head if name in ("W_K", "W_V") else range(layer.num_heads))
        if any(p not in products or p in shared for p, _ in own_parts[0][name]):
            missing.append(f"⟨d{name}, {name}⟩: no gradient of it came back within the trace, or others share it")
        elif not set(np.flatnonzero(np.isin(owner, owner[heads]))) <= set(heads):
            missing.append(f"⟨d{name}, {name}⟩: heads that share it were not traced")
        else:
            together = owner[heads] == owner[heads, None]  # (n, n) bool: which heads have their part in common
            of_weights = np.stack([_of_part(products, parts[name]) for parts in own_parts], 1)
            found.append((f"{what} = ⟨d{name}, {name}⟩", _distance(of_heads @ together, of_weights)))
    return found, missing


def _of_part(products, part):
    """⟨dW, W⟩ + ⟨db, b⟩ of a head's part of the weights, and the sum of the terms' absolute values: (2,).

    products: {parameter: dp ⊙ p and its absolute value, (2, …)}. part: a value of nn.heads.Head.parts."""
    return sum(products[p][(slice(None), *index)].reshape(2, -1).sum(1) for p, index in part)


def _inner(calls, point):
    """⟨dx, x⟩ of each head, and the sum of the terms' absolute values: (2, n)."""
    products = [getattr(call, point).astype(np.float64) * getattr(call, f"{point}_grad") for call in calls]
    return np.sum([(x.sum((0, 2, 3)), np.abs(x).sum((0, 2, 3))) for x in products], 0)


def _distance(one, other):
    """The difference of two inner products, relative to the larger of their sizes: (2, n), (2, n) -> (n,)."""
    return _relative(np.abs(one[0] - other[0]), np.maximum(one[1], other[1]))


def _error(x, expected, size):
    """The largest |x - expected| of each head, relative to the largest of `size`: (B, n, …) -> (n,)."""
    over = tuple(axis for axis in range(x.ndim) if axis != 1)
    return _relative(np.abs(x - expected).max(over), size.max(over))


def _relative(error, size):
    return np.where(error == 0, 0.0, error / np.where(size > 0, size, 1.0))
