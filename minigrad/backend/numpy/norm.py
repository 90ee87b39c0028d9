"""LayerNorm and RMSNorm."""

import numpy as np

from .matmul import as_matrix
from .precision import in_single
from .reduce import column_dots, column_sums, row_dots, row_sums


class Norm:
    @in_single
    def layer_norm(self, x, weight, bias, eps):
        """x (…, C); weight, bias (C,) or None -> y (…, C), mean (…, 1), rstd (…, 1) = 1 / √(variance + eps)."""
        C = x.shape[-1]
        mean = row_sums(x) / C
        y = x - mean
        rstd = 1 / np.sqrt(row_dots(y, y) / C + x.dtype.type(eps))
        y *= rstd
        if weight is not None:
            y *= weight
        if bias is not None:
            y += bias
        return y, mean, rstd

    @in_single
    def layer_norm_backward(self, dy, x, weight, mean, rstd, wanted):
        """dx, dweight, dbias, those that are wanted."""
        C = x.shape[-1]
        xhat = x - mean
        xhat *= rstd
        dbias = column_sums(as_matrix(dy)) if wanted[2] else None
        dweight = column_dots(as_matrix(dy), as_matrix(xhat)) if wanted[1] else None
        if not wanted[0]:
            return None, dweight, dbias
        # y = xhat w + b, and xhat has mean 0 and variance 1: dx is dxhat less its parts along 1 and along xhat
        dx = dy * weight if weight is not None else dy.copy()
        along_one, along_xhat = row_sums(dx) / C, row_dots(dx, xhat) / C
        xhat *= along_xhat
        dx -= along_one
        dx -= xhat
        dx *= rstd
        return dx, dweight, dbias

    @in_single
    def rms_norm(self, x, weight, eps):
        """x (…, C), weight (C,) or None -> y (…, C), rstd (…, 1) = 1 / √(mean x² + eps)."""
        rstd = 1 / np.sqrt(row_dots(x, x) / x.shape[-1] + x.dtype.type(eps))
        y = x * rstd
        if weight is not None:
            y *= weight
        return y, rstd

    @in_single
    def rms_norm_backward(self, dy, x, weight, rstd, wanted):
        """dx, dweight, those that are wanted."""
        xhat = x * rstd
        dweight = column_dots(as_matrix(dy), as_matrix(xhat)) if wanted[1] else None
        if not wanted[0]:
            return None, dweight
        dx = dy * weight if weight is not None else dy.copy()
        xhat *= row_dots(dx, xhat) / x.shape[-1]
        dx -= xhat
        dx *= rstd
        return dx, dweight
