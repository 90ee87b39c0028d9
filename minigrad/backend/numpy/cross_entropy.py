"""Cross-entropy of logits against class indices."""

import numpy as np

from .elementwise import log
from .precision import in_single
from .reduce import Reduce, row_sums
from .softmax import finite_top


class CrossEntropy(Reduce):
    @in_single
    def cross_entropy(self, logits, target, ignore_index, smoothing):
        """logits (N, V), target (N,) -> loss of each row (N,), and softmax(logits) (N, V) for the backward.

        loss = -Σ q log p with q = (1 - smoothing) onehot(target) + smoothing / V; 0 for a row to be ignored."""
        p = logits - finite_top(logits)  # a row that is all -inf has p = 0 and a loss of inf
        rows = np.arange(len(target))
        kept = target != ignore_index
        safe = np.where(kept, target, 0)
        loss = -(1 - smoothing) * p[rows, safe]
        if smoothing:
            loss -= smoothing * self.sum(p, (-1,), False) / p.shape[1]
        np.exp(p, out=p)
        total = row_sums(p)
        total += total == 0
        p /= total
        loss += log(total[:, 0])  # Σ q = 1, so the normaliser enters once
        loss[~kept] = 0
        return loss.astype(logits.dtype), p

    @in_single
    def cross_entropy_backward(self, dloss, p, target, ignore_index, smoothing):
        """dlogits = (p - q) * dloss, row by row."""
        kept = target != ignore_index
        dlogits = p - p.dtype.type(smoothing / p.shape[1]) if smoothing else p.copy()
        dlogits[np.arange(len(target)), np.where(kept, target, 0)] -= p.dtype.type(1 - smoothing)
        dlogits *= dloss[:, None]
        dlogits[~kept] = 0
        return dlogits
