"""The smallest inputs that still show a bug: fewer elements first, then simpler numbers. Greedy, as QuickCheck is."""

import numpy as np

from ... import autograd
from ...tensor import Tensor
from ..subject import flat, host, mapped, wrapped
from .base import Refused

TRIES = 40


def smallest(inputs, finding, examine):
    """(inputs, Finding) after cutting and simplifying while examine(inputs) fails in the same way."""
    left = TRIES
    progress = True
    while progress and left > 0:
        progress = False
        for candidate in _simpler(inputs):
            if left == 0:
                break
            left -= 1
            try:
                found = examine(candidate)
            except Refused:
                continue
            if found.verdict == finding.verdict and (found.analytic is None) == (finding.analytic is None):
                inputs, finding, progress = candidate, found, True
                break
    shapes = ", ".join(str(x.shape) for x in dict.fromkeys(flat(inputs)))
    finding.note = f"{finding.note}; " * bool(finding.note) + f"also with inputs as small as {shapes}"
    return inputs, finding


def _simpler(inputs):
    """Inputs that are a little smaller or simpler, the boldest first."""
    tensors = list(dict.fromkeys(flat(inputs)))
    for n in sorted({n for x in tensors for n in x.shape if n > 1}, reverse=True):
        for m in dict.fromkeys((1, 2, 3, n // 2, n - 1)):
            if 0 < m < n:
                yield resized(inputs, n, lambda x, axis, m=m: np.take(x, range(m), axis))
    for x in tensors:
        array = host(x)
        if x.is_floating_point() and array.size <= 64:
            for simple in (np.zeros_like(array), np.ones_like(array), np.round(array), np.round(array, 1)):
                if _complexity(simple) < _complexity(array):
                    yield mapped(inputs, lambda y, x=x, simple=simple: like(y, simple) if y is x else y)


def _complexity(array):
    """How many digits it takes to write the numbers down."""
    return sum(len(f"{abs(v):.17g}") - (v == 0) for v in np.ravel(array))


def resized(inputs, n, change, chosen=None):
    """The inputs after change(array, axis) of every dim of n elements; chosen: in these Tensors only."""

    def resize(x):
        if chosen is not None and not any(x is y for y in chosen):
            return x
        array = host(x)
        for axis, size in enumerate(x.shape):
            if size == n:
                array = change(array, axis)
        return like(x, array) if n in x.shape else x

    return mapped_once(inputs, resize)


def mapped_once(inputs, change):
    """inputs with change(x) for each Tensor: what was one Tensor twice stays one."""
    done: dict[int, Tensor] = {}
    return mapped(inputs, lambda x: done[id(x)] if id(x) in done else done.setdefault(id(x), change(x)))


def like(x, array):
    """array as a Tensor that requires a gradient as x does."""
    with autograd.no_grad():
        y = wrapped(np.array(array), x)
    return y.requires_grad_() if x.requires_grad else y
