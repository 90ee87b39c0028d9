"""LayerNorm and RMSNorm."""

import numpy as np

from .matmul import as_matrix
from .precision import in_float32
from .reduce import column_dots, column_sums, row_dots, row_sums


class Norm:
    @in_float32
    def layer_norm(self, x, weight, bias, eps):
        """x (…, C); weight, bias (C,) or None -> y (…, C), mean (…, 1), rstd (…, 1) = 1 / √(variance + eps)."""
        C = x.shape[-1]
        mean = row_sums(x) / C
        centred = x - mean
        rstd = 1 / np.sqrt(row_dots(centred, centred) / C + x.dtype.type(eps))
        y = centred * rstd
        if weight is not None:
            y = y * weight
        if bias is not None:
            y = y + bias
        return y, mean, rstd

    @in_float32
    def layer_norm_backward(self, dy, x, weight, mean, rstd, wanted):
        """dx, dweight, dbias, those that are wanted."""
        C = x.shape[-1]
        xhat = (x - mean) * rstd
        dbias = column_sums(as_matrix(dy)) if wanted[2] else None
        dweight = column_dots(as_matrix(dy), as_matrix(xhat)) if wanted[1] else None
        if not wanted[0]:
            return None, dweight, dbias
        # y = xhat w + b, and xhat has mean 0 and variance 1: dx is dxhat less its parts along 1 and along xhat
        dxhat = dy if weight is None else dy * weight
        dx = (dxhat - row_sums(dxhat) / C - xhat * (row_dots(dxhat, xhat) / C)) * rstd
        return dx, dweight, dbias

    @in_float32
    def rms_norm(self, x, weight, eps):
        """x (…, C), weight (C,) or None -> y (…, C), rstd (…, 1) = 1 / √(mean x² + eps)."""
        rstd = 1 / np.sqrt(row_dots(x, x) / x.shape[-1] + x.dtype.type(eps))
        y = x * rstd
        return y if weight is None else y * weight, rstd

    @in_float32
    def rms_norm_backward(self, dy, x, weight, rstd, wanted):
        """dx, dweight, those that are wanted."""
        xhat = x * rstd
        dweight = column_dots(as_matrix(dy), as_matrix(xhat)) if wanted[1] else None
        if not wanted[0]:
            return None, dweight
        dxhat = dy if weight is None else dy * weight
        return (dxhat - xhat * (row_dots(dxhat, xhat) / x.shape[-1])) * rstd, dweight
