"""A reported mistake: a function whose gradient is wrong somewhere, as a user of some framework once found it.

`natural` is the test that one writes without knowing the mistake: a small random input, options left alone. `targeted`
is an input that reaches the mistake, and says nothing about how a checker should find it."""

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
        xs = [x.detach().numpy() if isinstance(x, mg.Tensor) else x for x in self.saved_inputs()]
        with np.errstate(all="ignore"):
            dxs = self.df(dy.detach().numpy(), *xs)
        dxs = dxs if isinstance(dxs, tuple) else (dxs,)
        dxs = dxs + (None,) * (len(xs) - len(dxs))
        return tuple(None if dx is None else _tensor(dx, x.dtype, dy.array) for dx, x in zip(dxs, xs))


def _tensor(dx, dtype, dy):
    """dx as a Tensor. A view of dy is copied: from_numpy() would hide from the engine that they share memory."""
    dx = np.array(dx, dtype, copy=True if np.may_share_memory(dx, dy) else None)
    return mg.from_numpy(dx)


def op(f, df, of=NumpyOp):
    """f with the gradient df, as a function of Tensors. Keyword arguments go to both."""

    def function(*inputs, **options):
        def forward(*arrays):
            return np.asarray(f(*arrays, **options))

        def backward(dy, *xs):
            return df(dy, *xs, **options)

        return of.apply(*inputs, f=forward, df=backward)

    return function if isinstance(f, np.ufunc) else functools.wraps(f)(function)  # with the options of its signature


# ------------------------------------------------------------------------------------------- ways to look at a gradient


def tensors(arrays):
    """The arrays as Tensors that share their memory; all else as it is."""
    return [mg.from_numpy(x) if isinstance(x, np.ndarray) else x for x in arrays]


def leaves(arrays):
    """The same, and what is float requires a gradient."""
    inputs = tensors(arrays)
    return [x.requires_grad_() if isinstance(x, mg.Tensor) and x.is_floating_point() else x for x in inputs]


def cotangent(y, seed=1):
    return mg.from_numpy(np.random.default_rng(seed).standard_normal(y.shape).astype(y.dtype))


def floats(inputs):
    return [x for x in inputs if isinstance(x, mg.Tensor) and x.is_floating_point()]


def pulled(y, xs, dy, **how):
    found = mg.grad(y, xs, dy, allow_unused=True, **how)
    return [x.zeros_like() if g is None else g for x, g in zip(xs, found)]


def gradients(function, arrays, dy=cotangent):
    """The gradient for each float input, against a random cotangent."""
    inputs = leaves(arrays)
    y = function(*inputs)
    return [g.numpy() for g in pulled(y, floats(inputs), dy(y))]


def with_cotangent(make):
    """gradients() against the cotangent make(y)."""
    return lambda function, arrays: gradients(function, arrays, lambda y: mg.from_numpy(make(y.detach().numpy())))


def second_order(function, arrays):
    """The gradient of a random combination of the gradients."""
    inputs = leaves(arrays)
    xs = floats(inputs)
    y = function(*inputs)
    dxs = pulled(y, xs, cotangent(y), create_graph=True)
    total = sum((dx * cotangent(dx, seed=2)).sum() for dx in dxs)
    if not total.requires_grad:
        return [np.zeros(x.shape) for x in xs]
    return [g.numpy() for g in pulled(total, xs, mg.from_numpy(np.ones(())))]


def second_backward(function, arrays):
    """The gradient that a second walk through the same graph finds."""
    inputs = leaves(arrays)
    y = function(*inputs)
    pulled(y, floats(inputs), cotangent(y), retain_graph=True)
    return [g.numpy() for g in pulled(y, floats(inputs), cotangent(y))]


def after_another_call(function, arrays):
    """The gradient of a call after which the function was called once more, on other values."""
    inputs = leaves(arrays)
    y = function(*inputs)
    function(*leaves([_shifted(x) for x in arrays]))
    return [g.numpy() for g in pulled(y, floats(inputs), cotangent(y))]


def only(*wanted):
    """gradients() where only some of the inputs require one."""

    def look(function, arrays):
        inputs = tensors(arrays)
        xs = [inputs[i].requires_grad_() for i in wanted]
        y = function(*inputs)
        return [g.numpy() for g in pulled(y, xs, cotangent(y))]

    return look


def kept_cotangent(function, arrays):
    """The cotangent itself, after the backward."""
    inputs = leaves(arrays)
    y = function(*inputs)
    dy = cotangent(y)
    pulled(y, floats(inputs), dy)
    return [dy.numpy()]


def kept_inputs(function, arrays):
    """The inputs, after a forward and a backward."""
    inputs = leaves(arrays)
    y = function(*inputs)
    pulled(y, floats(inputs), cotangent(y))
    return [x.detach().numpy() for x in floats(inputs)]


def _shifted(x):
    return 0.5 * x + 0.25 if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


# ---------------------------------------------------------------------------------------------------------- the reports


@dataclass(frozen=True, eq=False)
class Report:
    name: str
    source: str  # repository#number of the issue or pull request
    wrong: str  # the mistake, in one line
    bug: Callable[..., Any]  # the function of Tensors that makes it
    right: Callable[..., Any]  # the same values, with the right gradient
    natural: Case
    targeted: Case
    look: Callable[..., Any] = gradients  # what of the two differs at the targeted input
    order: int = 1  # 2: the test that one writes is one of second derivatives
    forget: Callable[[], Any] = lambda: None  # clears what calls have left behind, where that is the mistake
    smooth: bool = True  # differences tell the right gradient at the targeted input: no kink there, no float16


def mistake(name, source, wrong, f, bad, good, natural, targeted, of=NumpyOp, **rest):
    """A Report of f with the gradient `bad` instead of `good`."""
    return Report(name, source, wrong, op(f, bad, of), op(f, good, of), natural, targeted, **rest)


def seen(report, function, case):
    """What report.look sees of function at the inputs of the case."""
    report.forget()
    with np.errstate(all="ignore"):
        return report.look(lambda *inputs: function(*inputs, **case.params), drawn(case))


def drawn(case, seed=0):
    """The arrays of a case: new copies with the same numbers each time, so that changing them does no harm."""
    arrays = case.draw(np.random.default_rng(seed))
    return [_copied(x) if isinstance(x, np.ndarray) else x for x in arrays]


def _copied(x):
    """A copy with the same strides: laid out as x is."""
    if x.flags.c_contiguous:
        return x.copy()
    base = x if x.base is None else x.base
    if not isinstance(base, np.ndarray):
        return x
    offset = x.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    memory = base.copy(order="K")
    return np.ndarray(x.shape, x.dtype, memory, offset, x.strides)


def error(found, expected):
    """The largest difference, relative to the largest number; infinite if one of them is not finite alone."""
    if not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return np.inf
    found, expected = (np.nan_to_num(x.astype(np.float64), nan=0, posinf=1, neginf=-1) for x in (found, expected))
    scale = max(np.abs(found).max(initial=0), np.abs(expected).max(initial=0))
    return float(np.abs(found - expected).max(initial=0) / scale) if scale else 0.0


def combined(function):
    """<dy, function> as a function of arrays that gives a number, and whose gradient gradients() is."""

    def value(arrays):
        y = function(*tensors(arrays))
        return float((y.detach().numpy() * cotangent(y).numpy()).sum())

    return value


def combined_gradients(function):
    """The combination of first derivatives whose gradient second_order() is."""

    def value(arrays):
        return sum(float((g * cotangent(g, seed=2).numpy()).sum()) for g in gradients(function, arrays))

    return value


def slopes(value, arrays, gradient, seed=3):
    """(found, by differences): the slope of value(arrays) along one direction, from its gradient and from itself."""
    rng = np.random.default_rng(seed)
    moving = [i for i, x in enumerate(arrays) if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    directions = [rng.standard_normal(arrays[i].shape) * np.maximum(np.abs(arrays[i]), 1e-3) for i in moving]

    def along(t):
        at = list(arrays)
        for i, v in zip(moving, directions):
            at[i] = arrays[i] + t * v
        return value(at)

    h = 1e-5
    by_differences = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
    return sum(float((g * v).sum()) for g, v in zip(gradient, directions)), by_differences
