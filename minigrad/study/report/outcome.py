"""What a language model says of each token: its loss, and what it would have written instead."""

from dataclasses import dataclass

import numpy as np

from ...tensor import tensor
from ..layers import as_float64

SHOWN = 5  # predictions of each token


@dataclass(eq=False)
class Outcome:
    """Of B sequences of T tokens: the predictions of what comes after each, the most probable first.

    ids, probabilities: (B, T, n). loss: (B, T), in nats, nan where there is no target; None if there are no targets at
    all. targets: (B, T) ints, or None."""

    ids: np.ndarray
    probabilities: np.ndarray
    loss: np.ndarray | None = None
    targets: np.ndarray | None = None


def texts_of(vocab):
    """The function that gives the text of a token's number, from a function, a list, a str, a dict or a CharVocab."""
    texts = getattr(vocab, "chars", vocab)

    def text(i):
        try:
            return texts[i]
        except LookupError as error:
            raise ValueError(f"the vocabulary has no text for token {i}") from error

    return texts if callable(texts) else text


def outcome_of(logits, targets=None):
    """The Outcome of logits (B, T, V) and perhaps targets (B, T) ints, of which negative ones do not count."""
    log_p = tensor(as_float64(logits)).log_softmax(-1).numpy()  # (B, T, V)
    n = min(SHOWN, log_p.shape[-1])
    ids = np.argpartition(-log_p, n - 1, axis=-1)[..., :n]
    ids = np.take_along_axis(ids, np.argsort(-np.take_along_axis(log_p, ids, -1), axis=-1, kind="stable"), -1)
    found = Outcome(ids, np.exp(np.take_along_axis(log_p, ids, -1)))
    if targets is not None:
        found.targets = np.asarray(targets)
        known = found.targets >= 0
        right = np.take_along_axis(log_p, np.where(known, found.targets, 0)[..., None], -1)
        found.loss = np.where(known, -right[..., 0], np.nan)
    return found
