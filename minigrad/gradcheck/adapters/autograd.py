"""HIPS autograd: functions written with autograd.numpy, of NumPy arrays."""

import numpy as np
from autograd.builtins import tuple as tuple_
from autograd.core import make_vjp
from autograd.tracer import Box

from ..subject import flat
from .numpy import Pair
from .traced import Traced


class Autograd(Pair):
    """Inputs are those of a pair of NumPy functions."""

    array = "autograd.numpy array"

    def function(self, call, label):
        return Traced(call, label, _derived, np.asarray, np.asarray, np.zeros_like)

    def outputs(self, y):
        found = flat(y, of=(np.ndarray, np.floating, Box))
        return [x for x in found if np.issubdtype(x.dtype, np.floating)]


def _derived(f, xs):
    pull, ys = make_vjp(lambda xs: tuple_(f(xs)), tuple_(xs))
    return ys, lambda dys: pull(tuple_(dys))


framework = Autograd()
