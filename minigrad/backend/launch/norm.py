"""LayerNorm and RMSNorm. x decides the dtype."""

from .launcher import TOTALS, Launcher
from .rules import KERNEL


class Norm(Launcher):
    @KERNEL
    def layer_norm(self, x, weight, bias, eps):
        mean = self.empty((*x.shape[:-1], 1), x.dtype)
        y, rstd = self._norm(x, weight, bias, mean, eps)
        return y, mean, rstd

    @KERNEL
    def layer_norm_backward(self, dy, x, weight, mean, rstd, wanted):
        mean = self.operand(mean, x.dtype, (*x.shape[:-1], 1))
        return self._norm_backward(dy, x, weight, mean, rstd, wanted)

    @KERNEL
    def rms_norm(self, x, weight, eps):
        return self._norm(x, weight, None, None, eps)

    @KERNEL
    def rms_norm_backward(self, dy, x, weight, rstd, wanted):
        return self._norm_backward(dy, x, weight, None, rstd, (*wanted, False))[:2]

    def _norm(self, x, weight, bias, mean, eps):
        """y and rstd. The mean is written to `mean`; if that is None, this is RMSNorm."""
        x = self.compact(x)
        y, rstd = self.empty(x.shape, x.dtype), self.empty((*x.shape[:-1], 1), x.dtype)
        rows, n = rstd.size, x.shape[-1]
        weight, bias = (self.operand(a, x.dtype, (n,), optional=True) for a in (weight, bias))
        self.launch_rows(rows, n, "norm", "norm_forward", x.dtype, y, mean, rstd, x, weight, bias, rows, n, eps)
        return y, rstd

    def _norm_backward(self, dy, x, weight, mean, rstd, wanted):
        """Return dx, dweight and dbias, None where `wanted` is False. mean is None for RMSNorm."""
        x = self.compact(x)
        n = x.shape[-1]
        dy, weight = self.operand(dy, x.dtype, x.shape), self.operand(weight, x.dtype, (n,), optional=True)
        rstd = self.operand(rstd, x.dtype, (*x.shape[:-1], 1))
        rows = rstd.size
        dx = self.empty(x.shape, x.dtype) if wanted[0] else None
        dweight, dbias = (self.empty((n,), x.dtype) if w else None for w in wanted[1:])
        if not x.size:
            return dx, *(None if d is None else self.zeros((n,), x.dtype) for d in (dweight, dbias))
        is_fused = self.one_thread and any(wanted[1:])  # then norm_sums computes dx too
        if dx is not None and not is_fused:
            self.launch_rows(rows, n, "norm", "norm_dx", x.dtype, dx, dy, x, weight, mean, rstd, rows, n)
        if any(wanted[1:]):
            blocks = min(rows, self.partial_sums(x.size))  # each sums many rows, so that few sums are left to add up
            parts = self.empty((2, blocks, n), TOTALS)
            args = parts, dx if is_fused else None, dy, x, weight, mean, rstd, rows, n, *wanted[1:]
            self.launch("norm", "norm_sums", x.dtype, blocks, self.row_threads(n), *args)
            self.launch("norm", "add_parts", x.dtype, (-(-n // 32), 2), 1024, dweight, dbias, parts, blocks, n)
        return dx, dweight, dbias
