"""The probes that call the same function with inputs of another form: other memory layouts, one Tensor as two inputs,
dims of size 1 and 0, float32, another device."""

import numpy as np

from .. import backend
from ..autograd import FormulaOp
from ..nn import Module
from .call import op_of, subject_of
from .compare import Comparison, difference_of
from .failures import excuse, piece
from .jacobian import check_directions
from .report import FAIL, PASS, Finding, NotApplicable, failure
from .rounding import unsteadiness
from .subject import PRECISION, flat, joined, mapped

EPS32 = PRECISION[np.dtype("float32")]
MOST_SIZES = 6  # sizes, and inputs, that are tried


# -- memory


def layouts(p):
    """The same numbers in other memory layouts, of the inputs and of the cotangents, give the same gradients."""
    arrays = p.subject.arrays
    for name, layout in LAYOUTS.items():
        tried: list = [(f"layout {name}", "inputs", (0, 1))]
        if len(arrays) > 1:
            tried += [(f"layout {name}, mixed", "some inputs", (odd,)) for odd in (0, 1)]
        for check, which, parity in tried:
            y, gradient = p.at([layout(a) if i % 2 in parity else a.copy() for i, a in enumerate(arrays)])
            note = f"wrong where {which} are {name}"
            yield p.same_outputs(check, p.run.y, y, note)
            yield from p.same(check, p.gradient, gradient, note)
        gradient = p.at(None, [layout(dy) for dy in p.dys])[1]
        yield from p.same(f"cotangent {name}", p.gradient, gradient, f"wrong where the cotangent is {name}")
    if any(not leaf.given.flags.c_contiguous for leaf in p.subject.leaves):
        given = [leaf.given if leaf.given.dtype == np.float64 else leaf.array for leaf in p.subject.leaves]
        yield from p.same("layout as given", p.gradient, p.at(given)[1], "wrong in the layout that was passed")
    for axis in (0, -1):
        equal = [_broadcast(a, axis) for a in arrays]
        if any(_is_broadcast(a) for a in equal):
            contiguous, broadcast = p.at([a.copy() for a in equal])[1], p.at(equal)[1]
            note = f"wrong where dim {axis} is broadcast"
            yield from p.same(f"layout broadcast {axis}", contiguous, broadcast, note, arrays=equal)
    equal = [np.broadcast_to(dy[(slice(0, 1),) * dy.ndim], dy.shape) for dy in p.dys]  # as that of a sum() is
    contiguous, broadcast = p.at(arrays, [dy.copy() for dy in equal])[1], p.at(arrays, equal)[1]
    yield from p.same("cotangent broadcast", contiguous, broadcast, "wrong where the cotangent is broadcast")


def _strided(a):
    """Every second element of something larger, with NaN in between."""
    wide = np.full(a.shape[:-1] + (2 * a.shape[-1],), np.nan if a.dtype.kind == "f" else 0, a.dtype)
    wide[..., ::2] = a
    return wide[..., ::2]


LAYOUTS = {
    "fortran": lambda a: a.copy(order="F"),
    "strided": lambda a: _strided(a) if a.ndim else a.copy(),
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a.copy(),
}


def _broadcast(a, axis):
    """a with its first slice along axis repeated, stride 0."""
    return np.broadcast_to(np.take(a, [0], axis), a.shape) if a.ndim and a.shape[axis] else a


def _is_broadcast(a):
    return a.size > 0 and any(stride == 0 and n > 1 for stride, n in zip(a.strides, a.shape))


def repeated_input(p):
    """fn(x, x): the gradient is the sum of those of fn(x1, x2) at x1 = x2 = x."""
    if p.order > 1:
        raise NotApplicable("of the first order only: the outputs of a gradient would be tied too")
    leaves = p.subject.leaves
    free = [i for i, leaf in enumerate(leaves) if not leaf.parameter]
    pairs = [(i, j) for i in free for j in free if i < j and leaves[i].array.shape == leaves[j].array.shape]
    if not pairs:
        raise NotApplicable("no two inputs have the same shape")
    for i, j in pairs[:3]:
        arrays = list(p.subject.arrays)
        arrays[j] = arrays[i]
        expected = p.at([a.copy() for a in arrays])[1]
        if not np.isfinite(joined(expected)).all():
            yield Finding("repeated input", PASS, note=f"{leaves[i].name} is outside the domain of {leaves[j].name}")
            continue
        tied = p.backward(p.subject.run(arrays, tie=(i, j)))
        expected[i] = expected[i] + expected[j]
        note = f"fn(x, x) for {leaves[i].name} and {leaves[j].name} differs from the sum of the two gradients"
        yield list(p.same("repeated input", expected, tied, note))[i]


# -- sizes


def sizes(p):
    """The same function where every dim of n elements is cut to 1 or to 0, and where it is cut to 1 in one input only,
    which then broadcasts against the others. What fn does not accept, or answers with NaN, is left out. So are sizes
    that occur in a parameter bound with partial(), which is not cut with the inputs."""
    if any(isinstance(x, Module) for x in (p.fn, *p.inputs)):
        raise NotApplicable("the shapes of a Module are its own")
    changes = _changes(p.fn, p.inputs)
    if not changes:
        raise NotApplicable("there is no dim to shrink")
    refused = []
    for name, inputs, broadcasts in changes:
        with subject_of(p.fn, inputs, p.wrt) as subject:
            try:
                run = subject.run()
                why = "its value is NaN" if np.isnan(run.y).any() else ""
            except Exception as error:  # whatever fn says to a shape that it is not made for
                why = type(error).__name__
            if why:
                refused.append(f"{name}: {why}")
            elif run.roots:
                try:
                    yield from _shrunk_findings(p, name, subject)
                except Exception as error:
                    if broadcasts:  # a backward that says that it does not broadcast is right to say so
                        refused.append(f"{name}: {type(error).__name__}")
                    else:
                        yield failure(name, f"{type(error).__name__}: {error}")
    if len(refused) == len(changes):
        raise NotApplicable("; ".join(refused))


def _changes(fn, inputs):
    """[(what is changed, the inputs after it, does one input broadcast against the others?)]"""
    tensors = list(dict.fromkeys(flat(inputs)))
    shapes = [value for value in getattr(fn, "keywords", {}).values() if isinstance(value, tuple)]  # bound by partial()
    bound = {n for shape in shapes for n in shape if isinstance(n, int)}
    every = sorted({n for x in tensors for n in x.shape if n > 1} - bound)[:MOST_SIZES]
    changes = [(f"size {n} -> {m}", _shrunk(inputs, n, m, tensors), False) for n in every for m in (0, 1)]
    op = op_of(fn)
    fused = op is not None and issubclass(op, FormulaOp)  # called by our own ops only, which never broadcast
    for i, x in enumerate(tensors[:MOST_SIZES] if len(tensors) > 1 and not fused else ()):
        for n in sorted(set(x.shape) & set(every)):
            changes.append((f"size {n} -> 1 in input {i} alone", _shrunk(inputs, n, 1, [x]), True))
    return changes


def _shrunk(inputs, n, m, chosen):
    """The inputs with the first m of every dim of size n, in the Tensors that are chosen."""

    def cut(x):
        if n not in x.shape or not any(x is y for y in chosen):
            return x
        part = x.detach()[tuple(slice(0, m) if size == n else slice(None) for size in x.shape)]
        return part.requires_grad_() if x.requires_grad else part

    return mapped(inputs, cut)


def _shrunk_findings(p, name, subject):
    """What is wrong with the gradient of the shrunk function."""
    for _ in range(p.order - 1):
        subject = subject.derivative(p.rng)
    comparison = Comparison(subject, p.rng, p.comparison.rtol)
    check_directions(comparison, 1)
    excuse(comparison)
    p.subject.evaluations += subject.evaluations
    for f in comparison.findings:
        if f.verdict == FAIL:
            f.check = name
            yield f
        else:  # a kink, noise, the edge of the domain: nothing that shrinking brought about
            yield Finding(name, PASS, excess=min(f.excess, 1.0))


# -- dtype and device


def float32(p):
    """The gradient in float32 is float32, and off by no more ulps than its conditioning explains. An element that is
    1e-5 of its cotangent or less may be off by all of itself: 1 - y² of a saturated tanh is 0 in float32."""
    if p.order > 1:
        raise NotApplicable("of the first order only")
    if any(np.abs(x[np.isfinite(x)]).max(initial=0) > 1e30 for x in p.subject.arrays):
        raise NotApplicable("inputs beyond the range of float32")
    arrays, dys = [a.astype(np.float32) for a in p.subject.arrays], [dy.astype(np.float32) for dy in p.dys]
    exact_arrays, exact_dys = [a.astype(np.float64) for a in arrays], [dy.astype(np.float64) for dy in dys]
    exact = p.at([a.copy() for a in exact_arrays], exact_dys)[1]
    try:
        p.subject.run(arrays)
    except (TypeError, ValueError) as why:
        raise NotApplicable(f"it refuses float32: {why}") from None
    y, single = p.at(arrays, dys)
    if np.abs(y - p.run.y).max(initial=0) > 1e-3 * np.abs(p.run.y).max(initial=0):
        raise NotApplicable("in float32 its values are already off by a thousandth")
    if piece(p.subject, arrays) != piece(p.subject, exact_arrays):
        raise NotApplicable("in float32 it is on the other side of a kink")
    unsteady = unsteadiness(p.subject, joined(dys), arrays)[1]
    largest = max((np.abs(dy).max(initial=0) for dy in p.dys), default=0)
    for leaf, a, g, rough, spread in zip(p.subject.leaves, exact, single, unsteady, p.spread(EPS32)[1:]):
        if not np.abs(a).max(initial=0) < 1e30:
            continue
        g = g.astype(np.float64)
        ulp = EPS32 * np.abs(a).max(initial=0)
        spread = max(spread, np.abs(rough).max(initial=0), EPS32 * p.terms(leaf))  # conditioning, rounding on the way
        allowed = (64 + 4 * np.sqrt(p.run.y.size + leaf.array.size)) * ulp + 64 * (spread + EPS32 * largest)
        f = p.finding("float32", leaf, a, g, difference_of(a, g) / (allowed or 1e-300), "far off in float32")
        f.note = f.note or (f"{np.abs(g - a).max(initial=0) / ulp:.1f} ulps of the largest" if ulp else "")
        yield f


def device(p):
    """The same outputs and gradients on the device as on the cpu."""
    if all(leaf.backend.device == "cpu" for leaf in p.subject.leaves):
        raise NotApplicable("the inputs are on the cpu, which is the reference")
    y, gradient = p.at(None, on=backend.get("cpu"))
    yield p.same_outputs("device", y, p.run.y, "not what it is on the cpu")
    yield from p.same("device", gradient, p.gradient, "differs from the cpu")
