"""Is what the families make right? Shown without gradcheck: in extended precision (np.longdouble, 64 bits of mantissa
on x86), where central differences have 3 more digits to give than float64, and the engine's forward alone is used.

There float casts are the identity, since the gradient is that of the function without the rounding. A derivative counts
as right if it lies within 1e-4 of a difference at one of several steps (what rounding inside the function allows, if
there is some), or within float64's rounding of the value; at a kink, if it lies between the slopes of both sides."""

import contextlib
import warnings

import numpy as np

import minigrad as mg
from minigrad import backend, dtypes
from minigrad.autograd import Storage
from minigrad.backend import reference
from minigrad.backend.numpy import reduce
from minigrad.ops.elementwise import Cast
from minigrad.tensor import Tensor

from . import right

LONG = np.dtype(np.longdouble)
STEPS = [10.0**-k for k in range(2, 15)]
RTOL = {"float16 inside": 1e-2}  # of other functions 1e-4
EPS = 2.0**-52


@contextlib.contextmanager
def extended():
    """Tensors of np.longdouble are allowed, on NumPy's backend."""
    cast, wide = Cast.forward, reduce.wide

    def uncast(op, x, dtype):
        return x.copy() if x.dtype == LONG and dtype.kind == "f" else cast(op, x, dtype)

    changed = [
        (backend, "cpu", lambda: reference),
        (dtypes, "ALL", (*dtypes.ALL, LONG)),
        (reduce, "wide", lambda dtype: dtype if dtype == LONG else wide(dtype)),  # sums grow in float64 otherwise
        (Cast, "forward", uncast),
    ]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in changed]
    for owner, name, value in changed:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def flattened(nested):
    """All the Tensors in nested tuples, lists and dicts."""
    if isinstance(nested, Tensor):
        return [nested]
    if isinstance(nested, dict):
        nested = list(nested.values())
    return [x for part in nested for x in flattened(part)] if isinstance(nested, (tuple, list)) else []


def replaced(nested, new):
    if isinstance(nested, Tensor):
        return new.get(id(nested), nested)
    if isinstance(nested, dict):
        return {key: replaced(value, new) for key, value in nested.items()}
    return type(nested)(replaced(x, new) for x in nested) if isinstance(nested, (tuple, list)) else nested


def floats(tensors):
    return [x for x in tensors if x.is_floating_point()]


class Function:
    """A right function of one flat vector of numbers, whose outputs are combined with one random cotangent."""

    def __init__(self, f, seed):
        self.f, self.seed = f, seed
        self.fn = f.fn.apply if isinstance(f.fn, type) else f.fn
        self.leaves = list({id(x): x for x in floats(flattened(f.inputs))}.values())
        self.x = np.concatenate([x.double().numpy().reshape(-1) for x in self.leaves])
        rng = np.random.default_rng(seed)
        self.dys = [rng.standard_normal(y.shape) for y in self.outputs(self.x, np.float64)[1]]
        self.size = float(np.abs(self.terms(self.x, np.float64)).sum())

    def outputs(self, x, dtype, grad=False):
        """(the leaves as Tensors, the outputs that are floats)."""
        sizes = np.cumsum([leaf.numel() for leaf in self.leaves])[:-1]
        parts = [p.astype(dtype).reshape(leaf.shape) for p, leaf in zip(np.split(x, sizes), self.leaves)]
        tensors = [Tensor._wrap(part, Storage(reference)) for part in parts]
        for tensor in tensors if grad else []:
            tensor.requires_grad_()
        mg.manual_seed(self.seed)
        new = {id(leaf): tensor for leaf, tensor in zip(self.leaves, tensors)}
        return tensors, floats(flattened(self.fn(*replaced(self.f.inputs, new))))

    def terms(self, x, dtype):
        """dy y of every output element, 0 for those that are infinite."""
        arrays = [y.detach().numpy() for y in self.outputs(x, dtype)[1]]
        return np.concatenate([(dy * np.where(np.isfinite(y), y, 0)).reshape(-1) for dy, y in zip(self.dys, arrays)])

    def value(self, x):
        return self.terms(x, LONG).sum(dtype=LONG)

    def gradient(self):
        """Of value, from the engine, in float64."""
        tensors, ys = self.outputs(self.x, np.float64, grad=True)
        pairs = [(mg.tensor(dy), y) for dy, y in zip(self.dys, ys) if y.requires_grad]
        if not pairs:
            return np.zeros_like(self.x)
        total = sum((dy * y.masked_fill(~y.isfinite(), 0.0)).sum() for dy, y in pairs)
        dxs = mg.grad(total, tensors, allow_unused=True)
        arrays = [np.zeros(x.numel()) if dx is None else dx.detach().numpy().reshape(-1) for x, dx in zip(tensors, dxs)]
        return np.concatenate(arrays)


def wrong_element(seed, kind=None, factor=1.0):
    """None, or what is wrong with right(seed, kind): (element of the flat input, analytic, nearest numeric).

    factor     what to multiply the gradient with, to see that a wrong one is found"""
    with extended(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        f = Function(right(seed, kind), seed)
        dx = f.gradient() * factor
        for i in range(len(f.x)):
            numeric = disagrees(f, i, dx[i])
            if numeric is not None:
                return i, dx[i], numeric
    return None


def disagrees(f, i, dx):
    """None if dx is the derivative of f by x[i]; else the nearest difference."""
    x = f.x.astype(LONG)
    scale = abs(x[i]) if x[i] else LONG.type(1)
    rtol, atol = RTOL.get(f.f.coarse, 1e-4), 16 * EPS * f.size / float(min(scale, 1))
    center, nearest, slopes = f.value(x), np.inf, []
    for step in STEPS:
        h = scale * LONG.type(step)
        far_below, below, above, far_above = (f.value(moved(x, i, k * h)) for k in (-2, -1, 1, 2))
        numeric = float((8 * (above - below) - (far_above - far_below)) / (12 * h))  # of the fourth order
        if abs(dx - numeric) <= rtol * max(abs(dx), abs(numeric)) + atol:
            return None
        slopes.append(sorted((float((center - below) / h), float((above - center) / h))))
        nearest = min(nearest, numeric, key=lambda n: abs(n - dx))
    if f.f.kink and any(low - 1e-6 * abs(low) <= dx <= high + 1e-6 * abs(high) for low, high in slopes[4:]):
        return None
    if f.f.nonfinite and not np.isfinite(dx):
        return None
    return nearest


def moved(x, i, h):
    x = x.copy()
    x[i] += h
    return x
