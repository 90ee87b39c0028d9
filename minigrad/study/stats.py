"""The statistics of a head, each declared once: its formula, its unit, what it means, and a function that computes it.

A declaration is all that is needed. HeadTrace.table, the report with its bars and their explanations, and Recorder are
all made from STATS."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..typing import Array
from . import patterns
from .weights.token_gradients import totals

GRADIENTS, TOKENS, POSITIONS, LAYER = "gradients", "tokens", "positions", "layer"  # what a statistic may need

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Stat:
    """A number of each head. needs: GRADIENTS; POSITIONS, the same ones of queries and keys; TOKENS at these; LAYER,
    the weights."""

    name: str
    formula: str
    unit: str
    meaning: str
    needs: frozenset
    compute: Callable

    def __str__(self) -> str:
        return f"{self.formula} ({self.unit}): {self.meaning}"

    def of(self, seen: Any, tokens: Any = None) -> Array:
        """(n,) for the n heads of a LayerTrace, nan if that lacks what the statistic needs. tokens: (B, T) ints."""
        B, n, T, S = seen.pattern.shape
        has = {
            GRADIENTS: seen.has_grads,
            POSITIONS: T == S and not seen.crossed,
            LAYER: seen.layer is not None,
            TOKENS: T == S and not seen.crossed and tokens is not None and tokens.shape == (B, T),
        }
        return self.compute(seen, tokens) if all(has[need] for need in self.needs) else np.full(n, np.nan)


STATS: dict[str, Stat] = {}


def stat(formula: str, unit: str, meaning: str, *needs: str) -> Callable[[F], F]:
    """Declare a statistic by decorating function(seen, tokens) -> (n,), which lends it its name. See Stat.of.

    Raises ValueError if there is one of that name."""

    def declare(compute):
        if compute.__name__ in STATS:
            raise ValueError(f"there is a statistic called {compute.__name__} already")
        STATS[compute.__name__] = Stat(compute.__name__, formula, unit, meaning, frozenset(needs), compute)
        return compute

    return declare


@stat("mean ‖z W_O‖", "size in the residual stream", "how much the head writes", LAYER)
def norm(seen, tokens):
    R = np.linalg.qr(seen.W_O.swapaxes(1, 2), mode="r")  # W_O = Rᵀ Qᵀ, so ‖z W_O‖ = ‖z Rᵀ‖, a smaller product
    return np.linalg.norm(seen.z @ np.swapaxes(R, 1, 2), axis=-1).mean((0, 2))


@stat(
    "mean -Σ P ln P / ln n",
    "0 to 1",
    "how evenly a query reads its n keys, padding on the right included: 0 is one key, 1 all alike",
)
def entropy(seen, tokens):
    return _over_sequences(patterns.entropy(seen.pattern))


@stat("⟨dz, z⟩", "loss", "the gradient of a gate on the head: minus its importance, to first order", GRADIENTS)
def gate_grad(seen, tokens):
    return (seen.z_grad.astype(np.float64) * seen.z).sum((0, 2, 3))


@stat("‖dS‖", "loss per score", "what the softmax lets through of the gradient, to queries and keys", GRADIENTS)
def dS(seen, tokens):
    return np.sqrt((seen.scores_grad.astype(np.float64) ** 2).sum((0, 2, 3)))


@stat("mean Σ P_ij, token j - 1 = token i", "0 to 1", "attention to what followed earlier copies of the token", TOKENS)
def induction(seen, tokens):
    return patterns.induction(seen.pattern, tokens)


@stat("mean P_i,i-1", "0 to 1", "attention to the position before", POSITIONS)
def previous(seen, tokens):
    return patterns.previous(seen.pattern).mean(0)


@stat(
    "mean 1 - Σ P²",
    "0 to 1",
    "how strongly the softmax still responds to its scores, over queries with a choice: 0 is saturated",
)
def openness(seen, tokens):
    return _over_sequences(patterns.openness(seen.pattern))


@stat("mean P_i0", "0 to 1", "attention to the first key, over queries that see others: the attention sink")
def sink(seen, tokens):
    return _over_sequences(patterns.sink(seen.pattern))


@stat("‖dS‖ / ‖dP‖ where P > 0", "0 to 1/2", "how much of dP the softmax lets through: 0 is saturated", GRADIENTS)
def softmax_gain(seen, tokens):
    dP = np.where(seen.pattern > 0, seen.pattern_grad, 0.0)
    into = np.sqrt((dP.astype(np.float64) ** 2).sum((0, 2, 3)))
    return dS(seen, tokens) / np.where(into > 0, into, np.nan)


@stat("‖dW_Q‖", "loss per weight", "how hard training pulls at what the head asks for", GRADIENTS, LAYER)
def dW_Q(seen, tokens):
    return _weight_grad(seen, "W_Q")


@stat(
    "‖dW_K‖",
    "loss per weight",
    "how hard training pulls at what its keys offer; of shared keys, the head's own part",
    GRADIENTS,
    LAYER,
)
def dW_K(seen, tokens):
    return _weight_grad(seen, "W_K")


@stat("‖dW_V‖", "loss per weight", "how hard training pulls at what it carries over", GRADIENTS, LAYER)
def dW_V(seen, tokens):
    return _weight_grad(seen, "W_V")


@stat("‖dW_O‖", "loss per weight", "how hard training pulls at where it writes that", GRADIENTS, LAYER)
def dW_O(seen, tokens):
    return _weight_grad(seen, "W_O")


def _over_sequences(x):
    """(B, n) -> (n,): the mean over the sequences that have a number; in one that is all padding no query has."""
    n = np.isfinite(x).sum(0)
    return np.where(n > 0, np.nansum(x, 0) / np.maximum(n, 1), np.nan)


def _weight_grad(seen, weight):
    """The size of the head's own part of a weight's gradient."""
    return np.linalg.norm(totals(seen, weight), axis=(1, 2))
