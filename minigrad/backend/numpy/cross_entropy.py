"""Cross-entropy of logits against class indices."""

import numpy as np

from .elementwise import log
from .precision import in_float32
from .reduce import Reduce, row_sums
from .softmax import finite_max


class CrossEntropy(Reduce):
    @in_float32
    def cross_entropy(self, logits, target, ignore_index, smoothing):
        """logits (N, V), target (N,) -> loss of each row (N,), and softmax(logits) (N, V) for the backward.

        loss = -Σ q log p with q = (1 - smoothing) onehot(target) + smoothing / V; 0 for a row to be ignored."""
        x = logits - finite_max(logits)  # a row that is all -∞ has p = 0 and a loss of ∞
        kept = target != ignore_index
        picked = x[np.arange(len(target)), np.where(kept, target, 0)]
        e = np.exp(x)
        total = row_sums(e)
        total = total + (total == 0)
        loss = log(total[:, 0]) - (1 - smoothing) * picked  # log p = x - log Σ e^x, and Σ q = 1
        if smoothing:
            loss = loss - smoothing * self.sum(x, (-1,), False) / x.shape[1]
        return np.where(kept, loss, 0).astype(logits.dtype), e / total

    @in_float32
    def cross_entropy_backward(self, dloss, p, target, ignore_index, smoothing):
        """dlogits = (p - q) * dloss, row by row."""
        kept = target != ignore_index
        difference = p - p.dtype.type(smoothing / p.shape[1]) if smoothing else p.copy()
        difference[np.arange(len(target)), np.where(kept, target, 0)] -= p.dtype.type(1 - smoothing)
        return np.where(kept[:, None], difference * dloss[:, None], 0).astype(p.dtype)
