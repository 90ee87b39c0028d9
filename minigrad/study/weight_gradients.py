"""The gradient of a head's weights, token by token: which positions of a batch pull at a matrix, how hard, whereto.

A matrix that takes x to y = x W gets dW = Σ_t x_t ⊗ dy_t, a sum over the positions t of all sequences of what came in
there times the gradient of what went out. For a head:

    dW_Q = Σ x_q ⊗ dq    dW_K = Σ x_k ⊗ dk    dW_V = Σ x_v ⊗ dv    dW_O = Σ gate z ⊗ dy

over queries for W_Q and W_O and over keys for W_K and W_V. dq and dk are taken before rotary positions. Heads that
share keys add up to the gradient of what they share. The gradient of a bias is Σ dy alone, and is not part of dW.

A step of size η changes what the matrix makes of an input x by -η Σ_t ⟨x, x_t⟩ dy_t: in so far as x is like x_t, the
result moves away from dy_t. The unembedding W_U turns what lies in the residual stream into tokens, so backward_lens
reads off what a step teaches (Katz et al. 2024). What the head adds to that stream moves

    for W_O by -dy_t        in so far as its z is like z_t, with which it wrote z_t W_O
    for W_V by -dv_t W_O    where it attends to an input like x_t

It is the direct way to the logits: what later layers make of a change is left out."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import unknown
from ..gradcheck.report import aligned
from ..typing import Array
from .layers import WEIGHTS, as_float64
from .models import unembedding
from .report import texts_of
from .trace import LayerTrace

if TYPE_CHECKING:
    from ..nn.module import Module


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
        return "\n".join([title, *aligned(rows), *more])


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


@dataclass(eq=False)
class BackwardLens:
    """What backward_lens returns. print() shows the positions that pull hardest.

    reads, raised, lowered: (B, T, top) ints, the first the strongest: the tokens that the input there is most like (for
    W_O what the head wrote there), and those whose logits a step raises and lowers most. changes: (B, T, C), what a
    step with η = 1 adds to the output, to be multiplied by ⟨x, x_t⟩. gradients: a TokenGradients, whose factors add up
    to dW. W_U: unembedding(model), (C, V)."""

    gradients: TokenGradients
    changes: np.ndarray
    W_U: np.ndarray
    reads: np.ndarray
    raised: np.ndarray
    lowered: np.ndarray
    text: Callable | None  # of a token's number

    def logits(self, sequence: int, position: int) -> Array:
        """By how much `changes` there changes the logits, but for the divisor of a final norm: (V,)."""
        return self.changes[sequence, position] @ self.W_U

    def __str__(self) -> str:
        norms, shown = self.gradients.norms, 20
        order = np.argsort(-norms, axis=None, kind="stable")[:shown]
        rows = [("size", "sequence", "position", "token", "reads", "raises", "lowers")]
        for b, t in zip(*np.unravel_index(order, norms.shape)):
            tokens = (self._named(ids[b, t]) for ids in (self.reads, self.raised, self.lowered))
            rows.append((f"{norms[b, t]:.3g}", str(b), str(t), self.gradients.label(b, t), *tokens))
        more = [f"… and {norms.size - shown} smaller ones"] if norms.size > shown else []
        return "\n".join([f"{self.gradients.name}: a step of training", *aligned(rows), *more])

    def _named(self, ids):
        return " ".join(str(i) if self.text is None else repr(self.text(i)) for i in ids)


def backward_lens(
    model: "Module",
    seen: LayerTrace,
    head: int,
    weight: str = "W_O",
    top: int = 5,
    vocab: Any = None,
    labels: Any = None,
) -> BackwardLens:
    """The BackwardLens of "W_O" or "W_V" of a head, from a LayerTrace of `model`, such as an nn.GPT or AttentionOnly.
    Where heads share values, it is of the head's own part of the gradient.

    vocab: the text of a token's number, a list or str of V, a CharVocab or a function. labels: as in token_gradients.
    Raises ValueError for another matrix, head, size or vocab, TypeError for a model without head(x); RuntimeError
    without gradients.
    """
    if weight not in ("W_O", "W_V"):
        raise ValueError(f"{unknown('matrix', weight, ('W_O', 'W_V'))}: the others write nothing")
    if (top := operator.index(top)) < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    gradients, W_U = token_gradients(seen, head, weight, labels), unembedding(model)
    if hasattr(vocab, "__len__") and len(vocab) != W_U.shape[1]:
        raise ValueError(f"the vocabulary has {len(vocab)} names, for {W_U.shape[1]} logits")
    i = _place(seen, head)
    W_O = seen.W_O[i]
    if weight == "W_O":
        inputs, changes = as_float64(seen.z[:, i]) @ W_O, -gradients.dy
    else:
        inputs, changes = gradients.x, -gradients.dy @ W_O
    if {inputs.shape[-1], changes.shape[-1]} != {len(W_U)}:
        sizes = f"{inputs.shape[-1]} and {changes.shape[-1]}"
        raise ValueError(
            f"input and output of {seen.path or 'the layer'} are of size {sizes}, the stream of {len(W_U)}"
        )
    return BackwardLens(gradients, changes, W_U, _largest(inputs, W_U, top), _largest(changes, W_U, top),
                        _largest(-changes, W_U, top), None if vocab is None else texts_of(vocab))  # fmt: skip


def _largest(x, W_U, top):
    """The numbers of the largest logits of x W_U, (B, T, top), a sequence at a time."""
    return np.stack([np.argsort(-(rows @ W_U), axis=-1, kind="stable")[:, :top] for rows in x])
