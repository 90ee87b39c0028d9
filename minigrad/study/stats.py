"""Statistics of heads, from patterns, gradients and weights, and a table with a row for each head.

A pattern (…, T, S) has a row for each query, which sums to 1, or to 0 if the query sees nothing. A statistic of a
pattern is a mean over the queries to which it applies, and nan if there are none.

STATS declares each statistic once: formula, unit, meaning, and the function that computes it. HeadTrace.table and the
report use it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..base.errors import unknown
from ..base.tables import columns
from ..typing import Array
from .names import HeadNumbers, Part, layer_names

# ------------------------------------------------------------------------------------------------------------ patterns


def entropy(pattern: Array, normalised: bool = True) -> Array:
    """Return the mean over queries of the entropy -Σ P ln P: (…, T, S) -> (…). In nats; normalised: divided by ln n,
    the entropy of n equal weights.

    In a causal pattern, which is 0 above the diagonal, n is the query's position + 1, minus the number of keys at the
    start that no query sees (padding on the left). In other patterns n is S, padding included. Queries that see nothing
    are left out; if normalised, also queries with n = 1."""
    pattern = np.asarray(pattern, np.float64)
    entropies = -(pattern * np.log(np.where(pattern > 0, pattern, 1.0))).sum(-1)  # (…, T)
    if not normalised:
        return _mean(entropies, pattern.sum(-1) > 0)
    n, sees_several, _ = _visible_keys(pattern)
    return _mean(entropies / np.log(np.maximum(n, 2)), sees_several)


def sink(pattern: Array) -> Array:
    """Return the mean attention to the first key, over queries that also see others: (…, T, S) -> (…). Heads with
    nothing to attend to often attend to it (Xiao et al. 2023). In a causal pattern, padding on the left is skipped."""
    pattern = np.asarray(pattern, np.float64)
    _, sees_several, first = _visible_keys(pattern)
    return _mean(np.take_along_axis(pattern, first[..., None], -1)[..., 0], sees_several)


def previous(pattern: Array) -> Array:
    """Return the mean attention of a query to the previous position: (…, T, T) -> (…)."""
    return attention_to(pattern, np.eye(np.shape(pattern)[-2], k=-1, dtype=bool))


def duplicate(pattern: Array, tokens: Array) -> Array:
    """Return the mean attention of a query to the earlier copies of its token, over the queries that have one.

    pattern (B, nh, T, T), tokens (B, T) -> (nh,)."""
    return _over_sequences(pattern, _earlier_copies(tokens))


def induction(pattern: Array, tokens: Array) -> Array:
    """Return the mean attention of a query to the positions after earlier copies of its token, over the queries that
    have one: prefix matching (Olsson et al. 2022).

    pattern (B, nh, T, T), tokens (B, T) -> (nh,)."""
    copies = _earlier_copies(tokens)
    after = np.zeros_like(copies)
    after[..., 1:] = copies[..., :-1]
    return _over_sequences(pattern, after)


def attention_to(pattern: Array, wanted: Array) -> Array:
    """Return the mean attention of a query to its keys in `wanted` (…, T, S) bool, over the queries that have any.

    pattern (…, T, S) -> (…)."""
    pattern, wanted = np.asarray(pattern, np.float64), np.broadcast_to(wanted, np.shape(pattern))
    return _mean((pattern * wanted).sum(-1), wanted.any(-1))


def _visible_keys(pattern):
    """(n, sees_several, padding). n (…, T): the largest number of keys that each query can see. sees_several (…, T):
    True where a query sees more than one. padding (…, 1): the number of keys at the start of a causal pattern that no
    query sees."""
    T, S = pattern.shape[-2:]
    causal = T == S and not np.any(pattern, where=~np.tri(T, dtype=bool))
    padding = (pattern > 0).any(-2).argmax(-1)[..., None] * causal
    n = (np.arange(1, T + 1) if causal else np.full(T, S)) - padding
    return n, (pattern.sum(-1) > 0) & (n > 1), padding


def _earlier_copies(tokens):
    """(B, T, T) bool: True where the token of key j is that of query i, and j < i."""
    tokens = np.asarray(tokens)
    return np.tril(tokens[..., :, None] == tokens[..., None, :], -1)


def _over_sequences(pattern, wanted):
    """attention_to, as one mean over the queries of all sequences: pattern (B, nh, T, S), wanted (B, T, S) -> (nh,)."""
    pattern, wanted = np.asarray(pattern, np.float64), wanted[:, None]
    attention = (pattern * wanted).sum(-1)  # (B, nh, T)
    has_any = np.broadcast_to(wanted.any(-1), attention.shape)
    return _mean(attention.swapaxes(0, 1), has_any.swapaxes(0, 1), (-2, -1))


def _mean(values, where, axes=-1):
    """The mean over axes of the values for which `where` is True; nan if there are none."""
    n = where.sum(axes)
    return np.where(n > 0, np.where(where, values, 0.0).sum(axes) / np.maximum(n, 1), np.nan)


# ---------------------------------------------------------------------------------------------------------- statistics

GRADIENTS, TOKENS, POSITIONS = "gradients", "tokens", "positions"  # values of Stat.needs


class TraceData(Protocol):
    """What a statistic reads of a LayerTrace, which is defined above this file."""

    pattern: Array
    pattern_grad: Array
    scores_grad: Array
    z: Array
    z_grad: Array
    W_O: Array

    @property
    def has_grads(self) -> bool: ...
    @property
    def is_cross(self) -> bool: ...
    def weight_grad(self, weight: str, /) -> Array: ...


@dataclass(frozen=True)
class Stat:
    """A statistic: a number for each head. compute(trace, tokens) returns (n,), for the n heads of a LayerTrace.

    needs: GRADIENTS; POSITIONS: keys at the same positions as the queries; TOKENS: these positions and their tokens."""

    formula: str
    unit: str
    meaning: str
    compute: Callable[[TraceData, Any], Array]  # Any: the tokens are None unless `needs` has TOKENS
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.formula} ({self.unit}): {self.meaning}"

    def of(self, trace: TraceData, tokens: Array | None = None) -> Array:
        """Return (n,) for the n heads of a LayerTrace; nan if a need is not met. tokens: (B, T) ints."""
        B, n, T, S = trace.pattern.shape
        same_positions = T == S and not trace.is_cross
        available = {
            GRADIENTS: trace.has_grads,
            POSITIONS: same_positions,
            TOKENS: same_positions and tokens is not None and tokens.shape == (B, T),
        }
        return self.compute(trace, tokens) if all(available[need] for need in self.needs) else np.full(n, np.nan)


def _norm(x, *axes):
    """The Euclidean norm over axes, in float64."""
    return np.sqrt((np.asarray(x, np.float64) ** 2).sum(axes))


def _mean_over_sequences(x):
    """(B, n) -> (n,): the mean over the sequences whose number is finite. It is nan for a sequence of padding only."""
    return _mean(x, np.isfinite(x), 0)


def _norm_of_writes(trace, tokens):
    R = np.linalg.qr(trace.W_O.swapaxes(1, 2), mode="r")  # W_O = Rᵀ Qᵀ, so ‖z W_O‖ = ‖z Rᵀ‖, which has fewer columns
    return np.linalg.norm(trace.z @ np.swapaxes(R, 1, 2), axis=-1).mean((0, 2))


def _gate_grad(trace, tokens):
    return (trace.z_grad.astype(np.float64) * trace.z).sum((0, 2, 3))


def _softmax_gain(trace, tokens):
    dP = _norm(np.where(trace.pattern > 0, trace.pattern_grad, 0.0), 0, 2, 3)
    return _norm(trace.scores_grad, 0, 2, 3) / np.where(dP > 0, dP, np.nan)


def _weight_gradient(weight, purpose):
    """The Stat of the size of a weight's gradient. purpose: what the head computes with the weight."""

    def compute(trace, tokens):
        return _norm(trace.weight_grad(weight), 1, 2)

    meaning = f"the size of the gradient of the head's {weight}, which {purpose}"
    return Stat(f"‖d{weight}‖", "loss per weight", meaning, compute, (GRADIENTS,))


STATS: dict[str, Stat] = {
    "norm": Stat(
        "mean ‖z W_O‖", "size in the residual stream", "the mean size of what the head writes", _norm_of_writes
    ),
    "entropy": Stat(
        "mean -Σ P ln P / ln n",
        "0 to 1",
        "how evenly a query attends to its n keys, padding on the right included: 0 for one key, 1 for equal weights",
        lambda trace, tokens: _mean_over_sequences(entropy(trace.pattern)),
    ),
    "gate_grad": Stat(
        "⟨dz, z⟩",
        "loss",
        "the gradient of a gate on the head: minus its importance, to first order",
        _gate_grad,
        (GRADIENTS,),
    ),
    "dS": Stat(
        "‖dS‖",
        "loss per score",
        "the size of the gradient of the scores, which goes on to queries and keys",
        lambda trace, tokens: _norm(trace.scores_grad, 0, 2, 3),
        (GRADIENTS,),
    ),
    "induction": Stat(
        "mean Σ P_ij, token j - 1 = token i",
        "0 to 1",
        "attention to the tokens after earlier copies of the current token",
        lambda trace, tokens: induction(trace.pattern, tokens),
        (TOKENS,),
    ),
    "previous": Stat(
        "mean P_i,i-1",
        "0 to 1",
        "attention to the previous position",
        lambda trace, tokens: previous(trace.pattern).mean(0),
        (POSITIONS,),
    ),
    "sink": Stat(
        "mean P_i0",
        "0 to 1",
        "attention to the first key, over queries that also see others: the attention sink",
        lambda trace, tokens: _mean_over_sequences(sink(trace.pattern)),
    ),
    "softmax_gain": Stat(
        "‖dS‖ / ‖dP‖ where P > 0",
        "0 to 1/2",
        "the share of dP that passes the softmax: 0 is saturated",
        _softmax_gain,
        (GRADIENTS,),
    ),
    "dW_Q": _weight_gradient("W_Q", "makes queries"),
    "dW_K": _weight_gradient("W_K", "makes keys (if keys are shared, the head's own part)"),
    "dW_V": _weight_gradient("W_V", "makes values (if they are shared, the head's own part)"),
    "dW_O": _weight_gradient("W_O", "writes into the residual stream"),
}


# --------------------------------------------------------------------------------------------------------------- table

WIDTH = 120  # characters of a printed line


class HeadTable:
    """Statistics of heads, {stat: {path: array (nh,)}}; nan if unknown.

        table["induction"]["1.3"]                the number of one head
        table["induction"]["blocks.1.attn"][3]   the same
        table.best("induction")                  (path, head, number) of the largest
        print(table.sorted("induction"))         a row per head, the largest first

    heads: {path: numbers of the heads in its arrays}, of all layers of the model, whose numbers name the heads; None:
    they are 0 … nh - 1. A layer may lack some stats. An unknown stat raises KeyError, with near matches. stopped: True
    if Ctrl-C ended the measurement early."""

    stopped = False

    def __init__(
        self, stats: Mapping[str, Mapping[str, Array]], heads: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        self._stats: dict[str, HeadNumbers] = {}
        self._heads: dict[str, Sequence[int]] = dict(heads or {})
        self.rows: list[tuple[str, int]] = []
        for stat, numbers in stats.items():
            self[stat] = numbers

    def __setitem__(self, stat: str, numbers: Mapping[str, Array]) -> None:
        """Add a stat, or replace it. numbers: {path: (nh,)}."""
        arrays = {path: np.asarray(x, np.float64) for path, x in numbers.items()}
        for path, x in arrays.items():
            heads = self._heads.setdefault(path, range(len(x)))
            if x.shape != (len(heads),):
                raise ValueError(f"{stat!r} of {path} has shape {x.shape}, for heads {list(heads)}")
            self.rows += [(path, head) for head in heads if (path, head) not in self.rows]
        self._stats[stat] = HeadNumbers(arrays, self._heads)

    @property
    def stats(self) -> tuple[str, ...]:
        """The names of the stats."""
        return tuple(self._stats)

    def __getitem__(self, stat: str) -> HeadNumbers:
        if stat not in self._stats:
            raise KeyError(unknown("stat", stat, self._stats))
        return self._stats[stat]

    def best(self, stat: str) -> tuple[str, int, float]:
        """Return (path, head, number) of the largest number. Raises ValueError if all are nan."""
        top = self.sorted(stat).rows[:1]
        numbers = [self._number(stat, *row) for row in top]
        if not numbers or math.isnan(numbers[0]):
            raise ValueError(f"no head has {stat!r}")
        return (*top[0], numbers[0])

    def sorted(self, stat: str) -> "HeadTable":
        """Return the table with its rows sorted by a stat, the largest first and nan last."""
        result = HeadTable(self._stats, self._heads)
        result.rows = sorted(self.rows, key=lambda row: _descending(self._number(stat, *row)))
        return result

    def _number(self, stat, path, head):
        numbers = self[stat]
        return float(numbers[path][list(self._heads[path]).index(head)]) if path in numbers else math.nan

    def __repr__(self):
        """The table as text with lines of at most WIDTH characters. Further columns go into another block below."""
        names = layer_names(self._heads)
        heads = ["head", *(str(Part(path, head, names[path])) for path, head in self.rows)]
        blocks, width = [[heads]], _width(heads)
        for stat in self._stats:
            column = [stat, *_cells([self._number(stat, *row) for row in self.rows])]
            if len(blocks[-1]) > 1 and width + 2 + _width(column) > WIDTH:
                blocks.append([heads])
                width = _width(heads)
            blocks[-1].append(column)
            width += 2 + _width(column)
        return "\n\n".join("\n".join(columns([*zip(*block)], right=range(1, len(block)))) for block in blocks)


def _width(column):
    return max(map(len, column))


def _descending(number):
    return (math.isnan(number), -number)


def _cells(numbers):
    """The numbers of a column as text: with three decimals, or with exponents if the largest is below 0.01 or huge."""
    largest = max((abs(x) for x in numbers if math.isfinite(x)), default=0.0)
    spec = ".3f" if largest == 0 or 0.01 <= largest < 1e5 else ".2e"
    return ["-" if math.isnan(x) else format(x, spec) for x in numbers]
