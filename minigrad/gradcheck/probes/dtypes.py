"""The probes of dtypes and devices: float32 and float16, both among the inputs, and another device than the cpu."""

import numpy as np

from ... import autograd, backend
from ..failures import piece
from ..report import NotApplicable, failure
from ..rounding import difference_of, unsteadiness
from ..subject import PRECISION, host, joined
from ..where import raised
from .base import Refused, attempts, refusal

RANGE = {"float16": 1e3, "float32": 1e30}  # inputs and gradients beyond it are left alone


def float32(p):
    """The gradient in float32 is float32, and off by no more ulps than its conditioning explains. An element that is
    1e-5 of its cotangent or less may be off by all of itself: 1 - y² of a saturated tanh is 0 in float32. So it is
    where only one input is float32, which not all functions accept."""
    p.require_first_order()
    dtypes = ["float32"] * len(p.subject.leaves)
    tries: list = [lambda: _in_lower_precision(p, "float32", dtypes)]
    if 1 < len(dtypes) <= 4:
        for i in range(len(dtypes)):
            mixed = ["float32" if i == j else "float64" for j in range(len(dtypes))]
            tries.append(lambda mixed=mixed: _in_lower_precision(p, "float32 mixed", mixed))
    yield from attempts(tries)


def float16(p):
    """The same in float16, where the function accepts it and its values stay in range."""
    p.require_first_order()
    yield from _in_lower_precision(p, "float16", ["float16"] * len(p.subject.leaves))


def _in_lower_precision(p, check, dtypes):
    """Findings for the gradient where leaf i has dtype dtypes[i], against that of float64 at the same numbers."""
    lowest = min(dtypes, key=lambda name: RANGE.get(name, np.inf))
    eps, limit = PRECISION[np.dtype(lowest)], RANGE[lowest]
    if any(np.abs(x[np.isfinite(x)]).max(initial=0) > limit for x in p.subject.arrays):
        raise Refused(f"inputs beyond the range of {lowest}")
    arrays = [a.astype(dtype) for a, dtype in zip(p.subject.arrays, dtypes)]
    run = p.forward([a.copy() for a in arrays], copy=False)
    dys = [dy.astype(lowest) for dy in p.dys]
    exact_arrays, exact_dys = [a.astype(np.float64) for a in arrays], [dy.astype(np.float64) for dy in dys]
    exact = p.at([a.copy() for a in exact_arrays], exact_dys)[1]
    off = np.abs(run.y - p.run.y).max(initial=0)
    if not off <= (1e-3 if lowest == "float32" else 2e-2) * np.abs(p.run.y).max(initial=0):
        raise Refused(f"in {lowest} its values are already far off")
    if piece(p.subject, arrays) != piece(p.subject, exact_arrays):
        raise Refused(f"in {lowest} it is on the other side of a kink")
    try:
        found = p.backward(run, dys)
    except Exception as error:
        if len(set(dtypes)) > 1:  # it does not take both: it says so, later than it could
            raise refusal(error) from None
        if lowest != "float16":  # for which many functions have no backward on a CPU
            raise
        yield p.doubted(failure(check, raised(error)))
        return
    overflown = len(p.ran) > 1 and any((~np.isfinite(g) & np.isfinite(a)).any() for g, a in zip(found, exact))
    if overflown and _largest_on_the_way(p, exact_arrays, exact_dys) > np.finfo(lowest).max:
        raise Refused(f"beyond the range of {lowest} on the way")
    unsteady = unsteadiness(p.subject, joined(dys), arrays)[1]
    largest = max((np.abs(dy).max(initial=0) for dy in p.dys), default=0)
    for leaf, x, a, g, rough, spread in zip(
        p.subject.leaves, arrays, exact, found, unsteady, p.spread(eps)[1:], strict=True
    ):
        if g.dtype != x.dtype and g.any():
            yield p.finding(check, leaf, a, a, np.full(a.shape, np.inf), f"its dtype is {g.dtype}, not {x.dtype}")
        if not np.abs(a).max(initial=0) < limit or not np.isfinite(rough).all():
            continue
        g = g.astype(np.float64)
        ulp = eps * np.abs(a).max(initial=0)
        spread = max(spread, np.abs(rough).max(initial=0), eps * p.terms(leaf))  # conditioning, rounding on the way
        allowed = (64 + 4 * np.sqrt(p.run.y.size + leaf.array.size)) * ulp + 64 * (spread + eps * largest)
        f = p.finding(check, leaf, a, g, difference_of(a, g) / (allowed or 1e-300), f"far off in {lowest}")
        f = f if np.isfinite(g[np.isfinite(a)]).all() else p.doubted(f)
        f.note = f.note or (f"{np.abs(g - a).max(initial=0) / ulp:.1f} ulps of the largest" if ulp else "")
        yield f


def _largest_on_the_way(p, arrays, dys):
    """The largest finite number that an op computes there, or in the backward."""
    largest = [0.0]

    def look(op, inputs, outputs):
        for y in outputs:
            if y is not None and y.dtype.kind == "f" and np.isfinite(y := host(y)).any():
                largest.append(float(np.abs(y[np.isfinite(y)]).max()))

    with autograd.watch(look):
        p.at([a.copy() for a in arrays], dys)
    return max(largest)


def device(p):
    """The same outputs and gradients on the device as on the cpu."""
    if all(leaf.backend.device == "cpu" for leaf in p.subject.leaves):
        raise NotApplicable("the inputs are on the cpu, which is the reference")
    y, gradient = p.at(None, on=backend.get("cpu"))
    yield p.same_outputs("device", y, p.run.y, "not what it is on the cpu")
    yield from p.same("device", gradient, p.gradient, "differs from the cpu")
