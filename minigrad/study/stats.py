"""The statistics of heads: what patterns show, and what gradients and weights say, as a table with a row for each head.

Functions of patterns (…, T, S), a row for each query, are means over the queries to which they apply, and nan where
there are none. Rows of a pattern sum to 1, or to 0 for a query that sees nothing.

STATS declares each statistic once: formula, unit, meaning, and the function that computes it. HeadTrace.table and the
report take statistics from there."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import unknown
from ..typing import Array

# ------------------------------------------------------------------------------------------------------------ patterns


def entropy(pattern: Array, normalised: bool = True) -> Array:
    """Mean over queries of -Σ P ln P, (…, T, S) -> (…): in nats, or divided by ln n, its largest value over n keys.

    In a causal pattern, where all is 0 above the diagonal, n is the query's position + 1, less the keys at the start
    that no query sees: padding on the left. In others it is S, which counts padding too. Queries that see nothing are
    left out; if normalised, so are those for which n is 1."""
    pattern = np.asarray(pattern, np.float64)
    each = -(pattern * np.log(np.where(pattern > 0, pattern, 1.0))).sum(-1)  # (…, T)
    if not normalised:
        return _mean(each, pattern.sum(-1) > 0)
    n, choose, _ = _visible(pattern)
    return _mean(each / np.log(np.maximum(n, 2)), choose)


def openness(pattern: Array) -> Array:
    """Mean over queries that see more than one key of 1 - Σ P², (…, T, S) -> (…): from 0, where one key gets all, to
    1 - 1/n, where n keys get the same. It is the trace of the softmax's Jacobian, Σ_j ∂P_j/∂S_j = Σ_j P_j (1 - P_j):
    where it is near 0 the head is saturated, and hardly any gradient reaches its scores. Which keys a query sees is
    taken as in entropy."""
    pattern = np.asarray(pattern, np.float64)
    return _mean(1 - (pattern**2).sum(-1), _visible(pattern)[1])


def sink(pattern: Array) -> Array:
    """Mean attention to the first key, over the queries that see others too, (…, T, S) -> (…). Heads that have nothing
    to do often rest there (Xiao et al. 2023). In a causal pattern the first key is the first that is not padding."""
    pattern = np.asarray(pattern, np.float64)
    _, several, first = _visible(pattern)
    return _mean(np.take_along_axis(pattern, first[..., None], -1)[..., 0], several)


def previous(pattern: Array) -> Array:
    """Mean attention of a query to the position before its own, (…, T, T) -> (…)."""
    return attention_to(pattern, np.eye(np.shape(pattern)[-2], k=-1, dtype=bool))


def duplicate(pattern: Array, tokens: Array) -> Array:
    """Mean attention of a query to the earlier copies of its token, over the queries that have one.

    pattern (B, nh, T, T), tokens (B, T) -> (nh,)."""
    return _over_sequences(pattern, _earlier_copies(tokens))


def induction(pattern: Array, tokens: Array) -> Array:
    """Prefix matching (Olsson et al. 2022): mean attention of a query to the positions after the earlier copies of its
    token, over the queries that have one. pattern (B, nh, T, T), tokens (B, T) -> (nh,)."""
    after = np.zeros_like(copies := _earlier_copies(tokens))
    after[..., 1:] = copies[..., :-1]
    return _over_sequences(pattern, after)


def attention_to(pattern: Array, wanted: Array) -> Array:
    """Mean attention of a query to the keys that are `wanted`, (…, T, S) bool, over the queries that want any.

    pattern (…, T, S) -> (…)."""
    pattern, wanted = np.asarray(pattern, np.float64), np.broadcast_to(wanted, np.shape(pattern))
    return _mean((pattern * wanted).sum(-1), wanted.any(-1))


def _visible(pattern):
    """How many keys each query can see at most (…, T) int, whether it sees several (…, T) bool, and the number of keys
    at the start of a causal pattern that no query sees (…, 1) int, or 0."""
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
    """attention_to over all queries of all sequences: pattern (B, nh, T, S), wanted (B, T, S) -> (nh,)."""
    pattern, wanted = np.asarray(pattern, np.float64), wanted[:, None]
    each = (pattern * wanted).sum(-1)  # (B, nh, T)
    return _mean(each.swapaxes(0, 1), np.broadcast_to(wanted.any(-1), each.shape).swapaxes(0, 1), (-2, -1))


def _mean(values, where, axes=-1):
    """The mean over axes of the values at the places `where`; nan where there are none."""
    n = where.sum(axes)
    return np.where(n > 0, np.where(where, values, 0.0).sum(axes) / np.maximum(n, 1), np.nan)


# ---------------------------------------------------------------------------------------------------------- statistics

GRADIENTS, TOKENS, POSITIONS = "gradients", "tokens", "positions"  # requirements of a statistic


@dataclass(frozen=True)
class Stat:
    """A number of each head. compute(seen, tokens) -> (n,), of the n heads of a LayerTrace. needs: GRADIENTS;
    POSITIONS, the same ones of queries and keys; TOKENS at these."""

    formula: str
    unit: str
    meaning: str
    compute: Callable
    needs: tuple = ()

    def __str__(self) -> str:
        return f"{self.formula} ({self.unit}): {self.meaning}"

    def of(self, seen: Any, tokens: Any = None) -> Array:
        """(n,) for the n heads of a LayerTrace, nan if that lacks what the statistic needs. tokens: (B, T) ints."""
        B, n, T, S = seen.pattern.shape
        has = {
            GRADIENTS: seen.has_grads,
            POSITIONS: T == S and not seen.crossed,
            TOKENS: T == S and not seen.crossed and tokens is not None and tokens.shape == (B, T),
        }
        return self.compute(seen, tokens) if all(has[need] for need in self.needs) else np.full(n, np.nan)


def _norm(x, *axes):
    """Euclidean, in float64."""
    return np.sqrt((np.asarray(x, np.float64) ** 2).sum(axes))


def _of_sequences(x):
    """(B, n) -> (n,): the mean over the sequences that have a number; in one that is all padding no query has."""
    return _mean(x, np.isfinite(x), 0)


def _written(seen, tokens):
    R = np.linalg.qr(seen.W_O.swapaxes(1, 2), mode="r")  # W_O = Rᵀ Qᵀ, so ‖z W_O‖ = ‖z Rᵀ‖, a smaller product
    return np.linalg.norm(seen.z @ np.swapaxes(R, 1, 2), axis=-1).mean((0, 2))


def _gate_grad(seen, tokens):
    return (seen.z_grad.astype(np.float64) * seen.z).sum((0, 2, 3))


def _softmax_gain(seen, tokens):
    into = _norm(np.where(seen.pattern > 0, seen.pattern_grad, 0.0), 0, 2, 3)
    return _norm(seen.scores_grad, 0, 2, 3) / np.where(into > 0, into, np.nan)


def _of_weight(weight, meaning):
    compute = lambda seen, tokens: _norm(seen.weight_grad(weight), 1, 2)  # noqa: E731
    return Stat(f"‖d{weight}‖", "loss per weight", f"how hard training pulls at {meaning}", compute, (GRADIENTS,))


STATS: dict[str, Stat] = {
    "norm": Stat("mean ‖z W_O‖", "size in the residual stream", "how much the head writes", _written),
    "entropy": Stat(
        "mean -Σ P ln P / ln n",
        "0 to 1",
        "how evenly a query reads its n keys, padding on the right included: 0 is one key, 1 all alike",
        lambda seen, tokens: _of_sequences(entropy(seen.pattern)),
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
        "what the softmax lets through of the gradient, to queries and keys",
        lambda seen, tokens: _norm(seen.scores_grad, 0, 2, 3),
        (GRADIENTS,),
    ),
    "induction": Stat(
        "mean Σ P_ij, token j - 1 = token i",
        "0 to 1",
        "attention to what followed earlier copies of the token",
        lambda seen, tokens: induction(seen.pattern, tokens),
        (TOKENS,),
    ),
    "previous": Stat(
        "mean P_i,i-1",
        "0 to 1",
        "attention to the position before",
        lambda seen, tokens: previous(seen.pattern).mean(0),
        (POSITIONS,),
    ),
    "openness": Stat(
        "mean 1 - Σ P²",
        "0 to 1",
        "how strongly the softmax still responds to its scores, over queries with a choice: 0 is saturated",
        lambda seen, tokens: _of_sequences(openness(seen.pattern)),
    ),
    "sink": Stat(
        "mean P_i0",
        "0 to 1",
        "attention to the first key, over queries that see others: the attention sink",
        lambda seen, tokens: _of_sequences(sink(seen.pattern)),
    ),
    "softmax_gain": Stat(
        "‖dS‖ / ‖dP‖ where P > 0",
        "0 to 1/2",
        "how much of dP the softmax lets through: 0 is saturated",
        _softmax_gain,
        (GRADIENTS,),
    ),
    "dW_Q": _of_weight("W_Q", "what the head asks for"),
    "dW_K": _of_weight("W_K", "what its keys offer; of shared keys, the head's own part"),
    "dW_V": _of_weight("W_V", "what it carries over"),
    "dW_O": _of_weight("W_O", "where it writes that"),
}


# --------------------------------------------------------------------------------------------------------------- table

WIDTH = 120  # characters of a printed line


class HeadTable:
    """Statistics of heads, {stat: {path: array (nh,)}}; nan where there is no number.

        table["induction"]["blocks.1.attn"][3]   one number
        table.best("induction")                  (path, head, number) of the largest
        print(table.sorted("induction"))         a row per head, the largest first

    heads: {path: numbers of the heads in its arrays}, for layers where these are not 0 … nh - 1. A layer may lack some
    stats. Unknown stats raise KeyError, naming near matches."""

    def __init__(
        self, stats: Mapping[str, Mapping[str, Array]], heads: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        self._stats, self._heads, self.rows = {}, dict(heads or {}), []
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
        self._stats[stat] = of

    @property
    def stats(self) -> tuple[str, ...]:
        """The names of the stats."""
        return tuple(self._stats)

    def __getitem__(self, stat: str) -> dict[str, Array]:
        if stat not in self._stats:
            raise KeyError(unknown("stat", stat, self._stats))
        return self._stats[stat]

    def best(self, stat: str) -> tuple[str, int, float]:
        """(path, head, number) of the largest number. Raises ValueError if all are nan."""
        top = self.sorted(stat).rows[:1]
        numbers = [self._number(stat, *row) for row in top]
        if not numbers or math.isnan(numbers[0]):
            raise ValueError(f"no head has {stat!r}")
        return (*top[0], numbers[0])

    def sorted(self, stat: str) -> "HeadTable":
        """The same table with its rows in the order of a stat, the largest first and nan last."""
        result = HeadTable(self._stats, self._heads)
        result.rows = sorted(self.rows, key=lambda row: _descending(self._number(stat, *row)))
        return result

    def _number(self, stat, path, head):
        of = self[stat]
        return float(of[path][list(self._heads[path]).index(head)]) if path in of else math.nan

    def __repr__(self):
        """Lines of at most WIDTH characters: columns that do not fit go into another block below."""
        rows = [["layer", *(path or "-" for path, _ in self.rows)], ["head", *(str(head) for _, head in self.rows)]]
        blocks = [[*rows]]
        for stat in self._stats:
            numbers = [self._number(stat, *row) for row in self.rows]
            column = [stat, *_cells(numbers)]
            if len(blocks[-1]) > 2 and sum(_width(each) + 2 for each in blocks[-1]) + _width(column) > WIDTH:
                blocks.append([*rows])
            blocks[-1].append(column)
        return "\n\n".join(map(_block, blocks))


def _block(columns):
    layers, *others = ([cell.rjust(_width(column)) for cell in column] for column in columns)
    layers = [cell.strip().ljust(len(cell)) for cell in layers]
    return "\n".join("  ".join(line) for line in zip(layers, *others))


def _width(column):
    return max(map(len, column))


def _descending(number):
    return (math.isnan(number), -number)


def _cells(numbers):
    """The numbers of a column: with three decimals, or with exponents if the largest of them is below 0.01 or huge."""
    largest = max((abs(x) for x in numbers if math.isfinite(x)), default=0.0)
    spec = ".3f" if largest == 0 or 0.01 <= largest < 1e5 else ".2e"
    return ["-" if math.isnan(x) else format(x, spec) for x in numbers]
