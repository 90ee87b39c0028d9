"""LayerNorm and RMSNorm. In the backward a block has several rows; x decides the dtype."""

from .launcher import SHARED, TOTAL, TOTALS, Launcher, check_shape
from .rules import KERNEL


class Norm(Launcher):
    @KERNEL
    def layer_norm(self, x, weight, bias, eps):
        mean = self.empty((*x.shape[:-1], 1), x.dtype)
        y, rstd = self._norm(x, weight, bias, mean, eps)
        return y, mean, rstd

    @KERNEL
    def layer_norm_backward(self, dy, x, weight, mean, rstd, wanted):
        return self._norm_backward(dy, x, weight, mean, rstd, wanted)

    @KERNEL
    def rms_norm(self, x, weight, eps):
        return self._norm(x, weight, None, None, eps)

    @KERNEL
    def rms_norm_backward(self, dy, x, weight, rstd, wanted):
        return self._norm_backward(dy, x, weight, None, rstd, (*wanted, False))[:2]

    def _norm(self, x, weight, bias, mean, eps):
        """-> y, rstd. Writes the mean into `mean`; if that is None, it computes RMSNorm."""
        x = self.compact(x)
        y, rstd = self.empty(x.shape, x.dtype), self.empty((*x.shape[:-1], 1), x.dtype)
        weight, bias = self.operand(weight, x.dtype), self.operand(bias, x.dtype)
        rows, n = rstd.size, x.shape[-1]
        check_shape("weight", weight, (n,))
        check_shape("bias", bias, (n,))
        self.launch_rows(rows, n, "norm", "norm_forward", x.dtype, y, mean, rstd, x, weight, bias, rows, n, eps)
        return y, rstd

    def _norm_backward(self, dy, x, weight, mean, rstd, wanted):
        x = self.compact(x)
        dy, weight, mean, rstd = (self.operand(a, x.dtype) for a in (dy, weight, mean, rstd))
        rows, n = rstd.size, x.shape[-1]
        check_shape("dy", dy, x.shape)
        check_shape("weight", weight, (n,))
        for each in (mean, rstd):
            check_shape("mean or rstd", each, (*x.shape[:-1], 1))
        dx = self.empty(x.shape, x.dtype) if wanted[0] else None
        dweight, dbias = (self.empty((n,), x.dtype) if w else None for w in wanted[1:])
        if not x.size:
            return dx, *(None if d is None else self.zeros((n,), x.dtype) for d in (dweight, dbias))
        # If dweight and dbias are wanted, a block takes many rows, so that there are few sums to add up; otherwise one.
        blocks = min(rows, self.sums_of(x.size)) if any(wanted[1:]) else rows
        parts = self.empty((2, blocks, n), TOTALS) if any(wanted[1:]) else None
        shared = 2 * n * TOTAL
        threads = self.row_threads(n)
        in_shared = parts is not None and 4 * threads < n and shared <= SHARED  # shorter rows are held in registers
        args = dx, parts, dy, x, weight, mean, rstd, rows, n, *wanted[1:], in_shared
        self.launch("norm", "norm_backward", x.dtype, blocks, threads, *args, shared=shared if in_shared else 0)
        if parts is not None:
            self.launch("norm", "add_parts", x.dtype, (-(-n // 32), 2), 1024, dweight, dbias, parts, blocks, n)
        return dx, dweight, dbias
