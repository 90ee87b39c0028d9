"""What a step of training teaches a head, in tokens: the gradient of its weights, projected to the vocabulary.

dW = Σ_t x_t ⊗ dy_t (token_gradients.py), so a step of size η changes what the matrix makes of an input x by
-η Σ_t ⟨x, x_t⟩ dy_t: in so far as x is like x_t, the result moves away from dy_t. The unembedding W_U turns what lies
in the residual stream into tokens (Katz et al. 2024, Backward Lens). What the head adds to that stream moves

    for W_O by -dy_t        in so far as its z is like z_t, with which it wrote z_t W_O
    for W_V by -dv_t W_O    where it attends to an input like x_t

The paper projects the x_t of W_V and the dy_t of W_O, which lie in the stream as they are. dv_t and z_t are a head's
own, but W_O takes them there, so both factors of both matrices can be read. It is the direct way to the logits: what
later layers make of a change is left out."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.errors import unknown
from ...gradcheck.report import aligned
from ...typing import Array
from ..layers import as_float64
from ..models import unembedding
from ..report.outcome import texts_of
from .token_gradients import TokenGradients, place, token_gradients

if TYPE_CHECKING:
    from ...nn.module import Module
    from ..trace import LayerTrace


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
    seen: "LayerTrace",
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
    i = place(seen, head)
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
