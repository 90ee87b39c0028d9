"""The cells of one head's pattern: what each weight adds to the loss, and what if the head had looked elsewhere.

A gradient dP_ij alone answers neither question. Where a head is sure of itself its gradient is small although all rests
on it; and a row of P always sums to 1, so that no weight grows alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...nn.positions import alibi
from ...tensor import Tensor, tensor
from ...typing import Array
from ..layers import as_float64, attention_layers, path_of, undisturbed
from .importance import check_batch, check_steps, returned_loss, value_of
from .patching import gradients_at, values_at

if TYPE_CHECKING:
    from ...nn.module import Module


def attention_attribution(
    model: "Module",
    batch: Sequence[Any],
    layer: int | str,
    head: int,
    steps: int = 20,
    loss: Callable[..., Tensor] = returned_loss,
) -> Array:
    """What each weight of a head's pattern P adds to loss(model, *batch): (B, T, S) float64, P ⊙ ∫₀¹ dL/dP(αP) dα.

    All cells together give L - L(without the head), by the midpoints of `steps` intervals of α, with one backward for
    each: what lowers the loss is negative. layer: a path or a number. The model runs in eval mode; neither it nor any
    .grad is changed. Raises KeyError for an unknown layer, ValueError for an unknown head.

    Source: Hao, Dong, Wei and Xu 2021, Self-attention attribution."""
    check_steps(steps)
    check_batch(batch)
    attention = _known(model, layer, head)
    with undisturbed(model):
        P = _only(values_at(model, [attention], batch, loss, "pattern")[0][attention], head)
        total = np.zeros_like(P)
        for alpha in (np.arange(steps) + 0.5) / steps:
            total += as_float64(
                gradients_at(model, [attention], batch, loss, "pattern", {attention: (alpha - 1) * P})[attention]
            )
    return (P * total / steps)[:, head]


@dataclass(eq=False)
class WhatIf:
    """What what_if returns, for one query: arrays (S,), nan for keys that it does not see."""

    weights: np.ndarray  # of the pattern, as it is
    slope: np.ndarray  # how the loss changes as the query begins to look at key j instead
    change: np.ndarray  # L(the query looks at key j, and at nothing else) - L
    loss: float

    def __str__(self) -> str:
        """A line for each key that the query sees."""
        lines = ["key  weight   slope    change"]
        for j in map(int, np.flatnonzero(~np.isnan(self.slope))):
            lines.append(f"{j:3}  {self.weights[j]:6.3f}  {self.slope[j]:+.1e}  {self.change[j]:+.1e}")
        return "\n".join(lines)


def what_if(
    model: "Module",
    batch: Sequence[Any],
    layer: int | str,
    head: int,
    query: int,
    sequence: int = 0,
    amount: float = 1.0,
    loss: Callable[..., Tensor] = returned_loss,
) -> WhatIf:
    """What if a query of a head had looked somewhere else? A WhatIf of the query's row P_i of one sequence.

    slope is dP_ij - D_i with D_i = Σ_k P_ik dP_ik, from one backward: the derivative of the loss on the way from P_i to
    e_j, all on key j. change is exact, a forward for each key that the query sees: L(P_i := (1 - a) P_i + a e_j) - L,
    where a is `amount`. Signed and causal: what is negative would have helped. Raises KeyError for an unknown layer,
    ValueError for an unknown head, query or sequence."""
    check_batch(batch)
    attention = _known(model, layer, head)
    with undisturbed(model):
        values, before = values_at(model, [attention], batch, loss, "pattern")
        P = values[attention]
        for what, number, n in ("query", query, P.shape[2]), ("sequence", sequence, len(P)):
            if number not in range(n):
                raise ValueError(f"there is no {what} {number}: there are {n}, from 0 on")
        row = P[sequence, head, query]
        dP = as_float64(gradients_at(model, [attention], batch, loss, "pattern", {})[attention])[sequence, head, query]
        sees = _visible(model, attention, batch, loss)[sequence, head, query]
        change = np.full(row.shape, np.nan)
        for j in np.flatnonzero(sees):

            def looks(_, pattern, j=j):
                array = pattern.numpy().copy()
                array[sequence, head, query] *= 1 - amount
                array[sequence, head, query, j] += amount
                return tensor(array, device=pattern.device)

            handle = attention.register_head_hook("pattern", looks)
            try:
                change[j] = value_of(loss, model, batch).item() - before
            finally:
                handle.remove()
    return WhatIf(row, np.where(sees, dP - (row * dP).sum(), np.nan), change, before)


def _known(model, layer, head):
    layers = attention_layers(model)
    layer = layers[path_of(layer, layers)]
    layer.head(head)  # raises ValueError for an unknown one
    return layer


def _visible(model, layer, batch, loss):
    """Which keys each query sees (B, nh, T, S): those that have a weight where all scores are equal, ALiBi's biases
    taken back. As it is, a weight may be rounded to 0."""

    def equal(layer, x):
        if layer.positions != "alibi":
            return x * 0.0
        T, S = x.shape[2:]
        return x * 0.0 - alibi(layer.slopes, T, S, 0, x.dtype, x.device) / layer.score_scale

    handle = layer.register_head_hook("qk", equal)
    try:
        return values_at(model, [layer], batch, loss, "pattern")[0][layer] > 0
    finally:
        handle.remove()


def _only(values, head):
    """values (B, nh, …), 0 for all other heads."""
    kept = np.zeros_like(values)
    kept[:, head] = values[:, head]
    return kept
