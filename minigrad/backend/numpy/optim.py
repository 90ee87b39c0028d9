"""Optimizer steps and gradient clipping, in place, for all parameters at once."""

import math

import numpy as np

from .precision import as_float32
from .reduce import Reduce


class Optim(Reduce):
    """Each primitive changes all parameters. Their arrays are compact, and those of a slot have one dtype; float16 is
    computed in float32.

    Options that may change from step to step come from a function, which returns rows of numbers. The last entry of a
    slot, or the one that is named, is the number of its row."""

    def adam_(self, slots, options, beta1, beta2, eps, decoupled):
        """One step of Adam or AdamW (decoupled). slots: (p, g, m, v, row). A row is (lr, weight_decay, step), step
        counted from 1."""
        rows = options()
        for *arrays, row in slots:
            lr, weight_decay, step = rows[row]
            p, g, m, v = map(as_float32, arrays)
            if weight_decay and decoupled:
                p = p * (1 - lr * weight_decay)
            elif weight_decay:
                g = g + p * weight_decay
            m = m * beta1 + g * (1 - beta1)
            v = v * beta2 + g * g * (1 - beta2)
            root = np.sqrt(v) * (1 / math.sqrt(1 - beta2**step)) + eps
            p = p - m * (lr / (1 - beta1**step)) / root
            arrays[0][...], arrays[2][...], arrays[3][...] = p, m, v

    def sgd_(self, slots, options, momentum, nesterov):
        """One step of SGD. slots: (p, g, buffer, row). A row is (lr, weight_decay). The buffer starts as zeros; without
        momentum it is not touched, and may be None."""
        rows = options()
        for p, g, buffer, row in slots:
            lr, weight_decay = rows[row]
            if weight_decay:
                g = g + p * weight_decay
            if momentum:
                buffer[...] = buffer * momentum + g
                g = g + buffer * momentum if nesterov else buffer
            p[...] = p - g * lr

    def muon_(self, slots, options, nesterov, steps, eps):
        """One step of Muon. slots: (p, g, momentum buffer, row, n, scale), where p holds matrices of n rows. A row is
        (lr, weight_decay, momentum). steps and eps: see orthogonal()."""
        rows = options()
        for *arrays, row, n, scale in slots:
            lr, weight_decay, momentum = rows[row]
            p, g, m = map(as_float32, arrays)
            m = m * momentum + g * (1 - momentum)
            x = m * momentum + g * (1 - momentum) if nesterov else m
            x = orthogonal(x.reshape(-1, n, p.shape[-1]), steps, eps) if x.size else x
            p = p * (1 - lr * weight_decay) - x.reshape(p.shape) * (lr * scale)
            arrays[0][...], arrays[2][...] = p, m

    def global_norm(self, arrays):
        """The 2-norm of all their elements: (), float64."""
        return np.array(math.sqrt(sum(self.dot(x, x) for x in arrays)))

    def clip_(self, arrays, norm, most):
        """Scale all by most / (norm + 1e-6), unless that is above 1; norm: (), float64. All become NaN if it is."""
        factor = most / (float(norm) + 1e-6)
        for x in () if factor >= 1 else arrays:
            x *= x.dtype.type(factor)


def orthogonal(x, steps, eps):
    """Matrices x (N, n, k) with their singular values brought near 1: see optim/muon.py. xᵀ takes the place of x if it
    has fewer rows. Squares are summed in float64, which has room for squares that float32 has not."""
    if x.shape[1] > x.shape[2]:
        return orthogonal(x.mT, steps, eps).mT
    norm = np.sqrt(np.square(x, dtype=np.float64).sum((1, 2), keepdims=True))
    x = x / np.maximum(norm, eps).astype(x.dtype)
    for a, b, c in steps:
        squares = np.matmul(x, x.mT)
        x = x * a + np.matmul(squares * b + np.matmul(squares, squares) * c, x)
    return x
