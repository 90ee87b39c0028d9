"""What attention patterns show: functions of arrays (…, T, S), a row for each query.

Rows sum to 1, or to 0 for a query that sees nothing. Each function returns means over the queries to which it applies,
and nan where it applies to none."""

import numpy as np

from ..typing import Array


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


def openness(pattern):
    """Mean over queries that see more than one key of 1 - Σ P², (…, T, S) -> (…): from 0, where one key gets all, to
    1 - 1/n, where n keys get the same. It is the trace of the softmax's Jacobian, Σ_j ∂P_j/∂S_j = Σ_j P_j (1 - P_j):
    where it is near 0 the head is saturated, and hardly any gradient reaches its scores. Which keys a query sees is
    taken as in entropy."""
    pattern = np.asarray(pattern, np.float64)
    return _mean(1 - (pattern**2).sum(-1), _visible(pattern)[1])


def sink(pattern):
    """Mean attention to the first key, over the queries that see others too, (…, T, S) -> (…). Heads that have nothing
    to do often rest there (Xiao et al. 2023). Which keys a query sees is taken as in entropy: in a causal pattern the
    first key is the first that is not padding."""
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
