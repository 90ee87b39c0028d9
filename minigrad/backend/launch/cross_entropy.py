"""Cross-entropy of logits against class indices."""

from .launcher import INT64, Launcher
from .rules import KERNEL


class CrossEntropy(Launcher):
    @KERNEL
    def cross_entropy(self, logits, target, ignore_index, smoothing):
        x = self.compact(logits)
        loss, p = self.empty(x.shape[:1], x.dtype), self.empty(x.shape, x.dtype)
        self._cross_entropy("cross_entropy", x, (loss, p, x), target, ignore_index, smoothing)
        return loss, p

    @KERNEL
    def cross_entropy_backward(self, dloss, p, target, ignore_index, smoothing):
        p, dloss = self.compact(p), self.operand(dloss, p.dtype, p.shape[:1])
        dlogits = self.empty(p.shape, p.dtype)
        self._cross_entropy("cross_entropy_backward", p, (dlogits, dloss, p), target, ignore_index, smoothing)
        return dlogits

    def _cross_entropy(self, entry, x, arrays, target, ignore_index, smoothing):
        target = self.operand(target, INT64, x.shape[:1])
        rows, n = x.shape
        if rows and not n:
            raise ValueError("cross-entropy over no classes")
        self.launch_rows(rows, n, "cross_entropy", entry, x.dtype, *arrays, target, rows, n, ignore_index, smoothing)
