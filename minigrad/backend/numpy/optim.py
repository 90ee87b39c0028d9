"""Optimizer steps and gradient clipping, in place, for all parameters at once."""

import math

import numpy as np

from .precision import is_half
from .reduce import Reduce


class Optim(Reduce):
    """For all parameters at once. Their arrays are compact; those of a slot have one dtype.

    Options that may change from step to step come from a function, which returns rows of numbers; the last entry of a
    slot is the number of its row."""

    def adam_(self, slots, options, beta1, beta2, eps, decoupled):
        """One step of Adam or AdamW (decoupled). slots: (p, g, m, v, row). A row is (lr, weight_decay, step), step
        counted from 1."""
        rows = options()
        for p, g, m, v, row in slots:
            lr, weight_decay, step = rows[row]
            _adam_one(p, g, m, v, lr, beta1, beta2, eps, weight_decay, decoupled, step)

    def sgd_(self, slots, options, momentum, nesterov):
        """One step of SGD. slots: (p, g, buffer, row). A row is (lr, weight_decay). The buffer starts as zeros; it is
        not touched without momentum, and may be None then."""
        rows = options()
        for p, g, buffer, row in slots:
            lr, weight_decay = rows[row]
            if weight_decay:
                g = g + p * weight_decay
            if momentum:
                buffer *= momentum
                buffer += g
                g = g + buffer * momentum if nesterov else buffer
            p -= g * lr

    def muon_(self, slots, options, nesterov, steps, eps):
        """One step of Muon. slots: (p, g, momentum buffer, row, n, scale), where p holds matrices of n rows. A row is
        (lr, weight_decay, momentum). steps and eps: see orthogonal()."""
        rows = options()
        for slot, g, buffer, row, n, scale in slots:
            lr, weight_decay, momentum = rows[row]
            p, g, m = (x.astype(np.float32) if is_half(x) else x for x in (slot, g, buffer))
            m = m * momentum + g * (1 - momentum)
            x = m * momentum + g * (1 - momentum) if nesterov else m
            x = orthogonal(x.reshape(-1, n, p.shape[-1]), steps, eps) if x.size else x
            buffer[...], slot[...] = m, p * (1 - lr * weight_decay) - x.reshape(p.shape) * (lr * scale)

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
    has fewer rows; float64 holds squares that float32 does not."""
    if x.shape[1] > x.shape[2]:
        return orthogonal(x.mT, steps, eps).mT
    norm = np.sqrt(np.square(x, dtype=np.float64).sum((1, 2), keepdims=True))
    x = x / np.maximum(norm, eps).astype(x.dtype)
    for a, b, c in steps:
        squares = np.matmul(x, x.mT)
        x = x * a + np.matmul(squares * b + np.matmul(squares, squares) * c, x)
    return x


def _adam_one(p, g, m, v, lr, beta1, beta2, eps, weight_decay, decoupled, step):
    if is_half(p):  # eps would be 0: computed in float32, and kept in float16
        p32, g32, m32, v32 = (x.astype(np.float32) for x in (p, g, m, v))
        _adam_one(p32, g32, m32, v32, lr, beta1, beta2, eps, weight_decay, decoupled, step)
        p[...], m[...], v[...] = p32, m32, v32
        return
    if weight_decay and decoupled:
        p *= 1 - lr * weight_decay
    elif weight_decay:
        g = g + p * weight_decay
    m *= beta1
    m += g * (1 - beta1)
    v *= beta2
    v += g * g * (1 - beta2)
    p -= m * (lr / (1 - beta1**step)) / (np.sqrt(v) * (1 / math.sqrt(1 - beta2**step)) + eps)
