"""The gradient of a head's weights, token by token: which positions of a batch pull at a matrix, and how hard.

A matrix that takes x to y = x W gets dW = Σ_t x_t ⊗ dy_t, a sum over the positions t of all sequences of what came in
there times the gradient of what went out. For a head:

    dW_Q = Σ x_q ⊗ dq    dW_K = Σ x_k ⊗ dk    dW_V = Σ x_v ⊗ dv    dW_O = Σ gate z ⊗ dy

over queries for W_Q and W_O and over keys for W_K and W_V. dq and dk are taken before rotary positions. Heads that
share keys add up to the gradient of what they share. The gradient of a bias is Σ dy alone, and is not part of dW."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..base.errors import unknown
from ..gradcheck.report import columns
from ..typing import Array
from .layers import WEIGHTS
from .trace import LayerTrace


@dataclass(eq=False)
class TokenGradients:
    """What token_gradients returns: the two factors of dW = Σ_t x_t ⊗ dy_t, float64. print() ranks the tokens.

    name: of the matrix, in words. x: (B, T, m). dy: (B, T, d). labels: B lists of T str, or None. total: dW, (m, d)."""

    name: str
    x: np.ndarray
    dy: np.ndarray
    labels: list | None = None

    @cached_property
    def total(self):
        """dW (m, d), the head's part of .grad, transposed as in head_weights."""
        return np.tensordot(self.x, self.dy, ([0, 1], [0, 1]))

    def of(self, sequence: int, position: int) -> Array:
        """The part of one token, x_t ⊗ dy_t: (m, d)."""
        return np.outer(self.x[sequence, position], self.dy[sequence, position])

    @property
    def norms(self) -> Array:
        """The size of each token's part, ‖x_t‖ ‖dy_t‖: (B, T)."""
        return np.linalg.norm(self.x, axis=-1) * np.linalg.norm(self.dy, axis=-1)

    @property
    def share(self) -> Array:
        """How much of dW is each token's, ⟨x_t ⊗ dy_t, dW⟩ / ‖dW‖²: (B, T), which adds up to 1. It is negative for a
        token that pulls the other way than all together, and nan if dW is 0."""
        size = (self.total**2).sum()
        return ((self.x @ self.total) * self.dy).sum(-1) / (size if size else np.nan)

    def label(self, sequence: int, position: int) -> str:
        """The token's text, "" if none was given."""
        return "" if self.labels is None else self.labels[sequence][position]

    def __str__(self) -> str:
        share, norms, shown = self.share, self.norms, 20
        order = np.argsort(-np.abs(np.nan_to_num(share)), axis=None, kind="stable")
        sizes = np.linalg.norm(self.x, axis=-1), np.linalg.norm(self.dy, axis=-1)
        rows: list[tuple[str, ...]] = [("share", "size", "‖x‖", "‖dy‖", "sequence", "position", "token")]
        for b, t in zip(*np.unravel_index(order[:shown], share.shape)):
            numbers = (f"{share[b, t]:+.1%}", *(f"{a[b, t]:.3g}" for a in (norms, *sizes)))
            rows.append((*numbers, str(b), str(t), self.label(b, t)))
        more = [f"… and {share.size - shown} with smaller shares"] if share.size > shown else []
        title = f"{self.name}: dW = Σ x ⊗ dy, ‖dW‖ = {np.linalg.norm(self.total):.4g}"
        return "\n".join([title, *columns(rows), *more])


def token_gradients(seen: LayerTrace, head: int, weight: str, labels: Any = None) -> TokenGradients:
    """The TokenGradients of one matrix of a head, "W_Q", "W_K", "W_V" or "W_O", from a LayerTrace.

    labels: the tokens' text, a list of T str for each sequence, or one list or str for a single sequence. Raises
    ValueError for a head that was not traced, an unknown matrix, or labels of another shape; RuntimeError without
    gradients. If a layer ran several times, each LayerTrace has the part of its own forward. Head
    hooks that replace q, k or v are not known of: dq is the gradient of what was used."""
    if weight not in WEIGHTS:
        raise ValueError(unknown("matrix", weight, WEIGHTS))
    i = _place(seen, head)
    x, dy = (each[:, i] if each.ndim == 4 else each for each in seen.factors(weight))
    name = f"{seen.path or 'the layer'} head {head}, {weight}"
    return TokenGradients(name, x, dy, None if labels is None else _as_labels(labels, x.shape[:2]))


def _place(seen, head):
    """Where a head, by its number, stands among those of a LayerTrace. Raises ValueError."""
    if not hasattr(seen, "heads"):
        raise TypeError(f"a LayerTrace is needed, such as trace[0], not a {type(seen).__name__}")
    if head not in seen.heads:
        raise ValueError(f"head {head!r} was not traced in {seen.path or 'the layer'}: there are {list(seen.heads)}")
    return seen.heads.index(head)


def _as_labels(labels, shape):
    """B lists of T str, from these or, if B is 1, from a single list or str; numbers become str. Raises ValueError."""
    labels = labels.tolist() if hasattr(labels, "tolist") else labels
    alone = len(labels) and not isinstance(labels[0], (list, tuple))
    labels = [[str(label) for label in sequence] for sequence in ([labels] if alone else labels)]
    if (lengths := [len(sequence) for sequence in labels]) != [shape[1]] * shape[0]:
        raise ValueError(f"labels must be {shape[0]} lists of {shape[1]}, got lists of {lengths}")
    return labels
