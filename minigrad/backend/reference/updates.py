"""Optimizer steps, in place."""

import math

import numpy as np

_CHUNK = 1 << 14  # elements that an update touches at a time: five such arrays fit in a core's second-level cache


def adam_(p, g, m, v, lr, beta1, beta2, eps, weight_decay, decoupled, step):
    """One step of Adam or AdamW (decoupled) on compact arrays, in place. `step` counts from 1."""
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


def sgd_(p, g, buffer, lr, momentum, weight_decay, nesterov):
    """One step of SGD on compact arrays, in place. The buffer starts as zeros and is not touched without momentum."""
    if weight_decay:
        g = g + p * weight_decay
    if momentum:
        buffer *= momentum
        buffer += g
        g = g + buffer * momentum if nesterov else buffer
    p -= g * lr
