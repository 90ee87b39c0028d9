"""Optimizer steps and gradient clipping, in place, for all parameters at once."""

import math

import numpy as np

from .reduce import dot

_CHUNK = 1 << 14  # elements that an update touches at a time: five such arrays fit in a core's second-level cache


def adam_(slots, beta1, beta2, eps, decoupled):
    """One step of Adam or AdamW (decoupled), in place.

    slots: (p, g, m, v, lr, weight_decay, step) for each parameter: its compact arrays, of one dtype, and its numbers;
    `step` counts from 1."""
    for p, g, m, v, lr, weight_decay, step in slots:
        _adam_one(p, g, m, v, lr, beta1, beta2, eps, weight_decay, decoupled, step)


def _adam_one(p, g, m, v, lr, beta1, beta2, eps, weight_decay, decoupled, step):
    p, g, m, v = p.reshape(-1), g.reshape(-1), m.reshape(-1), v.reshape(-1)
    rate = lr / (1 - beta1**step)
    root = 1 / math.sqrt(1 - beta2**step)
    scratch = np.empty((2, min(_CHUNK, p.size)), p.dtype)
    for start in range(0, p.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        pi, gi, mi, vi = p[part], g[part], m[part], v[part]
        a, b = scratch[:, : pi.size]
        if weight_decay and decoupled:
            pi *= 1 - lr * weight_decay
        elif weight_decay:
            gi = np.multiply(pi, weight_decay) + gi
        mi *= beta1
        mi += np.multiply(gi, 1 - beta1, out=a)
        vi *= beta2
        np.multiply(gi, gi, out=a)
        a *= 1 - beta2
        vi += a
        np.sqrt(vi, out=a)
        a *= root
        a += eps
        np.multiply(mi, rate, out=b)
        b /= a
        pi -= b


def sgd_(slots, momentum, nesterov):
    """One step of SGD, in place.

    slots: (p, g, buffer, lr, weight_decay) for each parameter: its compact arrays, of one dtype, and its numbers. The
    buffer starts as zeros; it is not touched without momentum, and may be None then."""
    for p, g, buffer, lr, weight_decay in slots:
        if weight_decay:
            g = g + p * weight_decay
        if momentum:
            buffer *= momentum
            buffer += g
            g = g + buffer * momentum if nesterov else buffer
        p -= g * lr


def norm(arrays):
    """The 2-norm of all elements of all arrays, as a Python float."""
    return math.sqrt(sum(dot(x, x) for x in arrays))


def scale_(arrays, factor):
    """Every array times a number, in place."""
    for x in arrays:
        x *= factor
