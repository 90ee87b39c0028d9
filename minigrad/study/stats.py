"""Statistics of heads, from patterns, gradients and weights, and a table with a row for each head.

A function of a pattern (…, T, S), which has a row for each query, is a mean over the queries to which it applies, and
nan where there are none. The rows of a pattern sum to 1, or to 0 for a query that sees nothing.

STATS declares each statistic once: formula, unit, meaning, and the function that computes it. HeadTrace.table and the
report take their statistics from there."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import unknown
from ..base.tables import columns
from ..typing import Array
from .names import HeadNumbers, Node, layer_names

# ------------------------------------------------------------------------------------------------------------ patterns


def entropy(pattern: Array, normalised: bool = True) -> Array:
    """Return the mean over queries of -Σ P ln P, (…, T, S) -> (…): in nats, or normalised, divided by ln n, the largest
    value that n keys allow.

    In a causal pattern, which is 0 above the diagonal, n is the query's position + 1, less the keys at the start that
    no query sees: padding on the left. In other patterns n is S, which counts padding too. Queries that see nothing are
    left out; if normalised, so are queries with n = 1."""
    pattern = np.asarray(pattern, np.float64)
    each = -(pattern * np.log(np.where(pattern > 0, pattern, 1.0))).sum(-1)  # (…, T)
    if not normalised:
        return _mean(each, pattern.sum(-1) > 0)
    n, choose, _ = _visible(pattern)
    return _mean(each / np.log(np.maximum(n, 2)), choose)


def sink(pattern: Array) -> Array:
    """Return the mean attention to the first key, over the queries that see others too, (…, T, S) -> (…). Heads that
    have nothing to do often rest there (Xiao et al. 2023). In a causal pattern the first key is the first that is not
    padding."""
    pattern = np.asarray(pattern, np.float64)
    _, several, first = _visible(pattern)
    return _mean(np.take_along_axis(pattern, first[..., None], -1)[..., 0], several)


def previous(pattern: Array) -> Array:
    """Return the mean attention of a query to the position before its own, (…, T, T) -> (…)."""
    return attention_to(pattern, np.eye(np.shape(pattern)[-2], k=-1, dtype=bool))


def duplicate(pattern: Array, tokens: Array) -> Array:
    """Return the mean attention of a query to the earlier copies of its token, over the queries that have one.

    pattern (B, nh, T, T), tokens (B, T) -> (nh,)."""
    return _over_sequences(pattern, _earlier_copies(tokens))


def induction(pattern: Array, tokens: Array) -> Array:
    """Return the mean attention of a query to the positions after the earlier copies of its token, over the queries
    that have one: prefix matching (Olsson et al. 2022). pattern (B, nh, T, T), tokens (B, T) -> (nh,)."""
    after = np.zeros_like(copies := _earlier_copies(tokens))
    after[..., 1:] = copies[..., :-1]
    return _over_sequences(pattern, after)


def attention_to(pattern: Array, wanted: Array) -> Array:
    """Return the mean attention of a query to the keys that are `wanted`, (…, T, S) bool, over the queries that want
    any.

    pattern (…, T, S) -> (…)."""
    pattern, wanted = np.asarray(pattern, np.float64), np.broadcast_to(wanted, np.shape(pattern))
    return _mean((pattern * wanted).sum(-1), wanted.any(-1))


def _visible(pattern):
    """(n, several, padding): the largest number of keys that each query can see, (…, T) int; True where a query sees
    more than one, (…, T) bool; the number of keys at the start of a causal pattern that no query sees, (…, 1) int."""
    T, S = pattern.shape[-2:]
    causal = T == S and not np.any(pattern, where=~np.tri(T, dtype=bool))
    padding = (pattern > 0).any(-2).argmax(-1)[..., None] * causal
    n = (np.arange(1, T + 1) if causal else np.full(T, S)) - padding
    return n, (pattern.sum(-1) > 0) & (n > 1), padding


def _earlier_copies(tokens):
    """(B, T, T) bool, True where key j is an earlier copy of query i's token."""
    tokens = np.asarray(tokens)
    return np.tril(tokens[..., :, None] == tokens[..., None, :], -1)


def _over_sequences(pattern, wanted):
    """attention_to, as one mean over the queries of all sequences: pattern (B, nh, T, S), wanted (B, T, S) -> (nh,)."""
    pattern, wanted = np.asarray(pattern, np.float64), wanted[:, None]
    each = (pattern * wanted).sum(-1)  # (B, nh, T)
    return _mean(each.swapaxes(0, 1), np.broadcast_to(wanted.any(-1), each.shape).swapaxes(0, 1), (-2, -1))


def _mean(values, where, axes=-1):
    """The mean over axes of the values at the places `where`; nan where there are none."""
    n = where.sum(axes)
    return np.where(n > 0, np.where(where, values, 0.0).sum(axes) / np.maximum(n, 1), np.nan)


# ---------------------------------------------------------------------------------------------------------- statistics

GRADIENTS, TOKENS, POSITIONS = "gradients", "tokens", "positions"  # the needs that a statistic may have


@dataclass(frozen=True)
class Stat:
    """A statistic: a number for each head. compute(trace, tokens) returns (n,), for the n heads of a LayerTrace.

    needs: GRADIENTS; POSITIONS, if queries and keys must be at the same ones; TOKENS, if these must be known too."""

    formula: str
    unit: str
    meaning: str
    compute: Callable
    needs: tuple = ()

    def __str__(self) -> str:
        return f"{self.formula} ({self.unit}): {self.meaning}"

    def of(self, trace: Any, tokens: Any = None) -> Array:
        """Return (n,) for the n heads of a LayerTrace; nan if it lacks what is needed. tokens: (B, T) ints."""
        B, n, T, S = trace.pattern.shape
        has = {
            GRADIENTS: trace.has_grads,
            POSITIONS: T == S and not trace.crossed,
            TOKENS: T == S and not trace.crossed and tokens is not None and tokens.shape == (B, T),
        }
        return self.compute(trace, tokens) if all(has[need] for need in self.needs) else np.full(n, np.nan)


def _norm(x, *axes):
    """The Euclidean norm over axes, in float64."""
    return np.sqrt((np.asarray(x, np.float64) ** 2).sum(axes))


def _mean_over_sequences(x):
    """(B, n) -> (n,): the mean over the sequences that have a number. A sequence that is all padding has none."""
    return _mean(x, np.isfinite(x), 0)


def _norm_of_writes(trace, tokens):
    R = np.linalg.qr(trace.W_O.swapaxes(1, 2), mode="r")  # W_O = Rᵀ Qᵀ, so ‖z W_O‖ = ‖z Rᵀ‖, a smaller product
    return np.linalg.norm(trace.z @ np.swapaxes(R, 1, 2), axis=-1).mean((0, 2))


def _gate_grad(trace, tokens):
    return (trace.z_grad.astype(np.float64) * trace.z).sum((0, 2, 3))


def _softmax_gain(trace, tokens):
    into = _norm(np.where(trace.pattern > 0, trace.pattern_grad, 0.0), 0, 2, 3)
    return _norm(trace.scores_grad, 0, 2, 3) / np.where(into > 0, into, np.nan)


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
        "how evenly a query reads its n keys, padding on the right included: 0 for one key, 1 for all alike",
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
        "attention to the position before",
        lambda trace, tokens: previous(trace.pattern).mean(0),
        (POSITIONS,),
    ),
    "sink": Stat(
        "mean P_i0",
        "0 to 1",
        "attention to the first key, over queries that see others: the attention sink",
        lambda trace, tokens: _mean_over_sequences(sink(trace.pattern)),
    ),
    "softmax_gain": Stat(
        "‖dS‖ / ‖dP‖ where P > 0",
        "0 to 1/2",
        "the share of dP that gets through the softmax: 0 is saturated",
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
    """Statistics of heads, {stat: {path: array (nh,)}}; nan where there is no number.

        table["induction"]["1.3"]                the number of one head
        table["induction"]["blocks.1.attn"][3]   the same
        table.best("induction")                  (path, head, number) of the largest
        print(table.sorted("induction"))         a row per head, the largest first

    heads: {path: numbers of the heads in its arrays}, for layers in which these are not 0 … nh - 1. It names all layers
    of the model, since heads are named by the numbers of layers. A layer may lack some stats. Unknown stats raise
    KeyError, naming near matches."""

    def __init__(
        self, stats: Mapping[str, Mapping[str, Array]], heads: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        self._stats: dict[str, HeadNumbers] = {}
        self._heads: dict[str, Sequence[int]] = dict(heads or {})
        self.rows: list[tuple[str, int]] = []
        for stat, of in stats.items():
            self[stat] = of

    def __setitem__(self, stat: str, of: Mapping[str, Array]) -> None:
        """Add a stat, or replace it: {path: (nh,)}."""
        of = {path: np.asarray(x, np.float64) for path, x in of.items()}
        for path, x in of.items():
            heads = self._heads.setdefault(path, range(len(x)))
            if x.shape != (len(heads),):
                raise ValueError(f"{stat!r} of {path} has shape {x.shape}, for heads {list(heads)}")
            self.rows += [(path, head) for head in heads if (path, head) not in self.rows]
        self._stats[stat] = HeadNumbers(of, self._heads)

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
        """Return the same table with its rows in the order of a stat, the largest first and nan last."""
        result = HeadTable(self._stats, self._heads)
        result.rows = sorted(self.rows, key=lambda row: _descending(self._number(stat, *row)))
        return result

    def _number(self, stat, path, head):
        of = self[stat]
        return float(of[path][list(self._heads[path]).index(head)]) if path in of else math.nan

    def __repr__(self):
        """Lines of at most WIDTH characters: columns that do not fit go into another block below."""
        names = layer_names(self._heads)
        heads = ["head", *(str(Node(path, head, names[path])) for path, head in self.rows)]
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
    """The numbers of a column: with three decimals, or with exponents if the largest of them is below 0.01 or huge."""
    largest = max((abs(x) for x in numbers if math.isfinite(x)), default=0.0)
    spec = ".3f" if largest == 0 or 0.01 <= largest < 1e5 else ".2e"
    return ["-" if math.isnan(x) else format(x, spec) for x in numbers]
