"""A reported mistake: a function whose gradient is wrong somewhere, as a user of some framework once found it."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import Op
from minigrad.autograd.cases import Case


class NumpyOp(Op):
    """forward f(*arrays) and backward df(dy, *arrays), both in NumPy; df returns an array, or a tuple of them."""

    name = "reported"

    def forward(self, *arrays, f, df):
        self.save_inputs(*arrays)
        return f(*arrays)

    def backward(self, dy):
        xs = [x.array if isinstance(x, mg.Tensor) else x for x in self.saved_inputs()]
        with np.errstate(all="ignore"):
            dxs = self.df(dy.array, *xs)
        dxs = dxs if isinstance(dxs, tuple) else (dxs,)
        dxs = dxs + (None,) * (len(xs) - len(dxs))
        return tuple(None if dx is None else mg.tensor(np.asarray(dx, x.dtype)) for dx, x in zip(dxs, xs))


def op(f, df):
    """f with the gradient df, as a function of Tensors. Keyword arguments go to both."""

    def function(*inputs, **options):
        def forward(*arrays):
            return np.asarray(f(*arrays, **options))

        def backward(dy, *xs):
            return df(dy, *xs, **options)

        return NumpyOp.apply(*inputs, f=forward, df=backward)

    return function if isinstance(f, np.ufunc) else functools.wraps(f)(function)  # with the options of its signature


@dataclass(frozen=True, eq=False)
class Report:
    name: str
    source: str  # repository#number of the issue or pull request
    wrong: str  # the mistake, in one line
    bug: Callable[..., Any]  # the function of Tensors that makes it
    right: Callable[..., Any]  # the same values, with the right gradient
    natural: Case  # the test that one writes without knowing the mistake: a small random input, options left alone
    forget: Callable[[], Any] = lambda: None  # clears what calls have left behind, where that is the mistake


def mistake(name, source, wrong, f, bad, good, natural, **rest):
    """A Report of f with the gradient `bad` instead of `good`, all in NumPy."""
    return Report(name, source, wrong, op(f, bad), op(f, good), natural, **rest)


def drawn(report, seed=0):
    """The arrays of the natural input: new ones with the same numbers each time, so that changing them does no harm."""
    return report.natural.draw(np.random.default_rng(seed))


def tensors(arrays):
    """The arrays as Tensors; all else as it is."""
    return [mg.from_numpy(x) if isinstance(x, np.ndarray) else x for x in arrays]
