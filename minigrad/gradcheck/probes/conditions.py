"""Probes that repeat the call under other conditions, such as other memory layouts or float32. The results must be
the same.

Each probe takes a ProbeContext, the user's call, and yields Findings."""

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import autograd, backend
from ..call import op_of, subject_of
from ..culprit import piece_signature
from ..differences import EPS
from ..pair import Pair
from ..report import Finding, NotApplicable, failure
from ..subject import PRECISION, difference_of, host, to_vector
from ..verdicts import FAIL, PASS
from .other_sizes import cuts
from .points import is_ours

TINY = float(np.finfo(np.float64).tiny)
LARGE = 10  # a cotangent is multiplied by 2^10, and by 2^-10
MOST_GROUPS, MOST_PAIRS, MOST_AXES = 5, 10, 4  # groups of leaves, pairs of leaves and dims that are tried


@dataclass
class UserCall:
    """What gradcheck was called with."""

    fn: Any
    inputs: tuple
    wrt: Any
    order: int
    strict: bool


class ProbeContext:
    """What a probe is given: the user's call, a Subject of it, and its outputs and gradient for a random cotangent."""

    def __init__(self, comparison, call):
        self.comparison, self.subject, self.rng = comparison, comparison.subject, comparison.rng
        self.fn, self.inputs, self.wrt = call.fn, call.inputs, call.wrt
        self.order, self.strict = call.order, call.strict
        self.pair = call.fn if isinstance(call.fn, Pair) else None
        self.coarsest_eps = comparison.coarsest_eps  # eps of the coarsest float dtype of an intermediate value
        self.ran: list = []  # (op, inputs) of each op that ran
        with autograd.watch(lambda op, inputs, outputs: self.ran.append((op, inputs))):
            self.run = self.subject.run()
        if not self.run.roots:
            raise NotApplicable("no output depends on the inputs")
        self.dys = [self.rng.standard_normal(y.shape).astype(y.dtype) for y in self.run.outputs]
        gradients = comparison.gradients([to_vector(self.dys)])
        (self.gradient,), (self.terms,) = gradients.arrays, gradients.terms
        self.result = [self.run.y, *self.gradient]

    @functools.cached_property
    def is_composition(self):
        """True if the function and its gradient consist of minigrad's ops only, without an op or hook of the user's
        own and without a function of NumPy arrays. False for an op class, since then the op itself is under test."""
        if self.pair or op_of(self.fn) or any(node.hooks for node in self.run.nodes):
            return False
        hooks = any(node.hooks for _, node in self.run.results())
        return not hooks and all(op.primitive and is_ours(type(op)) for op, _ in self.ran)

    def require_first_order(self):
        """Raise NotApplicable at a higher order, where the probe would be slow and find nothing new."""
        if self.order > 1:
            raise NotApplicable("of the first order only")

    def backward(self, run, dys=None, **options):
        """The gradient of each leaf. The cotangents are copied, since a backward may write into them."""
        return run.gradient([dy.copy() for dy in self.dys] if dys is None else dys, retain_graph=True, **options)

    def again(self, arrays=None, **options):
        """Return [outputs as one vector, gradient of each leaf] of another run, at `arrays` with the strides that they
        have; None if the forward raises there, as it may."""
        try:
            run = self.subject.run(arrays, copy=arrays is None, **options)
        except Exception:
            if arrays is None:
                raise
            return None
        return [run.y, *self.backward(run)]

    @functools.cached_property
    def spread(self):
        """The largest change that rounding may make in the outputs, and in each leaf's gradient: rounding of the
        inputs, and of terms that cancel."""
        changes = [x.max(initial=0) for x in self.subject.spread(self.dys)]
        sizes = [np.abs(a[np.isfinite(a)]).max(initial=1e-300) for a in self.subject.arrays]
        return [changes[0], *(change + EPS * self.terms / size for change, size in zip(changes[1:], sizes))]

    def same(self, check, expected, actual, note, slack=1e-10, arrays=None, terms=1):
        """Yield a Finding for each part of two results, [outputs, *gradient] or the gradient alone.

        They may differ by `slack` of the largest element, plus the rounding that is estimated at `arrays`, or else at
        the point. slack 0: not at all. terms: the number of gradients that were added up, each with this rounding."""
        names = ["", *(leaf.name for leaf in self.subject.leaves)][-len(expected) :]
        if slack:
            slack = max(slack, 64 * self.coarsest_eps)
        elif self.pair:  # the order of NumPy's additions may depend on addresses
            slack = 8 * EPS
        tiny = 0.0
        if self.coarsest_eps > EPS and slack:
            tiny = 16 * float(np.finfo(self.comparison.coarsest_dtype).smallest_subnormal)
        for k, (name, a, b) in enumerate(zip(names, expected, actual), -len(names)):
            largest, difference = np.abs(a[np.isfinite(a)]).max(initial=0), difference_of(a, b)
            allowed = slack * largest + tiny
            if slack and (difference > allowed).any():
                allowed += 64 * terms * self.spread[k]
                if arrays is not None:
                    allowed += 64 * self.subject.spread(self.dys, arrays, ties=False)[k].max(initial=0)
                    if not np.isfinite(a).all() or 0 < largest <= allowed:  # singular there, say
                        continue
            yield self.finding(check, name, a, b, difference / (allowed or TINY), note)

    def finding(self, check, name, expected, actual, excess, note):
        """Return the Finding for one leaf's gradient, or for the outputs (name "").

        excess[j]: the difference of element j, divided by the allowed difference."""
        excess = np.nan_to_num(excess, nan=np.inf, posinf=np.inf)
        worst = excess.max(initial=0)
        f = Finding(check, PASS if worst <= 1 else FAIL, name, excess=float(worst))
        if f.verdict == FAIL:
            j = int(np.argmax(excess))
            f.analytic, f.numeric = float(actual.flat[j]), float(expected.flat[j])
            if name:
                f.index = tuple(int(n) for n in np.unravel_index(j, excess.shape))
            else:
                f.output = self.run.output_name(j)
            f.note = f"{note} ({(excess > 1).sum()} of {excess.size} elements; 'numeric' is what it should equal)"
        return f


# -- the same numbers


def linearity(p):
    """A backward is linear in its cotangent, also where some of it is 0 or absent, or all of it is 1. For zeros it
    gives zeros."""
    others = [p.rng.standard_normal(dy.shape).astype(dy.dtype) for dy in p.dys]
    other, combined = (p.backward(p.run, dys) for dys in (others, [2 * a - 3 * b for a, b in zip(p.dys, others)]))
    expected = [2 * a - 3 * b for a, b in zip(p.gradient, other)]
    yield from p.same("linearity", expected, combined, "not linear in the cotangent", slack=1e-9, terms=10)
    for what, parts in (
        ("0 at some outputs", [dy * (p.rng.random(dy.shape) < 0.5) for dy in p.dys]),
        ("1 at all outputs", [np.ones_like(dy) for dy in p.dys]),
        ("positive", [np.abs(dy) for dy in p.dys]),
    ):
        rest = [dy - part for dy, part in zip(p.dys, parts)]
        total = [a + b for a, b in zip(p.backward(p.run, parts), p.backward(p.run, rest))]
        note = f"not linear where the cotangent is {what}"
        yield from p.same("linearity", p.gradient, total, note, slack=1e-9, terms=3)
    for power in (-LARGE, LARGE) if p.coarsest_eps == EPS else ():  # float16 might overflow
        scaled = p.backward(p.run, [2.0**power * dy for dy in p.dys])
        actual = [g / 2.0**power for g in scaled]
        yield from p.same("linearity", p.gradient, actual, f"not linear for a cotangent times 2^{power}", slack=1e-6)
    n = len(p.dys)
    for i in range(n if n > 2 else n - 1)[:MOST_AXES]:  # two outputs: one alone is the other left out
        parts = [[dy if (j == i) == only else None for j, dy in enumerate(p.dys)] for only in (True, False)]
        total = [a + b for a, b in zip(*(p.backward(p.run, part) for part in parts))]
        yield from p.same("linearity", p.gradient, total, f"wrong where output {i} alone is used, or alone is not")
    actual = p.backward(p.run, [np.zeros_like(dy) for dy in p.dys])
    zeros = [0 * g for g in p.gradient]
    yield from p.same("zero cotangent", zeros, actual, "a cotangent of zeros must give 0", slack=0)


def unchanged(p):
    """Forward and backward do not change inputs, outputs, cotangents or gradients in place."""
    arrays, dys = [a.copy() for a in p.subject.arrays], [dy.copy() for dy in p.dys]
    run = p.subject.run(arrays, copy=False)
    kept = [(f"input {leaf.name}", a, b) for leaf, a, b in zip(p.subject.leaves, arrays, p.subject.arrays)]
    kept += [(f"the cotangent of output {i}", a, b) for i, (a, b) in enumerate(zip(dys, p.dys))]
    kept += [(f"output {i}", y.array, host(y).copy()) for i, y in enumerate(run.outputs)]
    for op, node in run.results():
        what = f"the gradient for the output of {op.name}"
        node.add_hook(lambda g, what=what: kept.append((what, g.array, host(g).copy())))
    p.backward(run, dys)
    kept += [(f"input {name}", array, before) for name, array, before in p.subject.constants]
    for what, array, before in kept:
        now = run.outputs[0].storage.backend.to_numpy(array)
        if not np.array_equal(now, before, equal_nan=True):
            yield failure("unchanged", f"{what} was changed in place")


def repeatable(p):
    """The same call gives the same bits, and so does a second backward through one graph."""
    again = p.again()
    if not np.array_equal(again[0], p.run.y, equal_nan=True):
        note = "two calls at one point differ: does it draw random numbers that are not from the default generator?"
        yield failure("repeatable", note)
        return
    yield from p.same("repeatable", p.result, again, "the same call twice gives two gradients", slack=0)
    run = p.subject.run()
    second = [p.backward(run) for _ in range(2)][1]
    yield from p.same("second backward", p.gradient, second, "a second backward through one graph differs", slack=0)


def interleaved(p):
    """Another call between forward and backward, with other numbers or sizes, changes nothing: no buffer is shared."""

    def other_numbers():
        p.again([x * (1 + p.rng.integers(1, 8, x.shape) / 64) for x in p.subject.arrays])

    def other_sizes(inputs):
        with subject_of(p.fn, inputs, p.wrt) as subject:
            run = subject.run()
            run.gradient([np.ones(y.shape) for y in run.outputs])

    calls = [("another call", other_numbers)]
    if p.order == 1:
        calls += [(f"a call with {name}", functools.partial(other_sizes, inputs)) for name, inputs, _ in cuts(p, 1)[:2]]
    for name, call in calls:
        run, state = p.subject.run(), p.subject.random_state
        before = [host(y).copy() for y in run.outputs]
        p.subject.random_state = {"seed": state["seed"] + 1, "offset": state["offset"]}
        try:
            call()
        except Exception:  # whatever it raises for unsupported inputs
            continue
        finally:
            p.subject.random_state = state
        if not all(np.array_equal(host(y), b, equal_nan=True) for y, b in zip(run.outputs, before)):
            yield failure("interleaved", f"{name} changes the outputs of this one")
        note = f"{name} before the backward changes the gradient"
        yield from p.same("interleaved", p.gradient, p.backward(run), note, slack=0)


def modes(p):
    """The forward gives the same outputs under no_grad, and the backward the same gradient under no_grad and with
    create_graph."""
    y = p.subject.values(p.subject.arrays)
    if p.subject.needs_graph:
        raise NotApplicable("it needs a graph of its own")
    if y.shape == p.run.y.shape:
        yield from p.same("no_grad", [p.run.y, *p.gradient], [y, *p.gradient], "outputs differ under no_grad", slack=0)
    run = p.subject.run()
    with autograd.no_grad():
        actual = p.backward(run)
    note = "the gradient differs where backward() runs under no_grad"
    yield from p.same("no_grad", p.gradient, actual, note, slack=0)
    try:
        actual = p.backward(p.subject.run(), create_graph=True)
    except Exception as error:  # a backward in NumPy, say, has no derivative, and nobody asked for one
        yield Finding("create_graph", PASS, note=f"not under create_graph: {type(error).__name__}")
        return
    yield from p.same("create_graph", p.gradient, actual, "the gradient differs under create_graph")


# -- in other memory


def _strided(a):
    """Every second element of a larger array, with NaN in between."""
    wide = np.full(a.shape[:-1] + (2 * a.shape[-1],), np.nan if a.dtype.kind == "f" else 0, a.dtype)
    wide[..., ::2] = a
    return wide[..., ::2]


def _offset(a):
    """A copy in the middle of a larger array, with NaN around it."""
    wide = np.full([n + 3 for n in a.shape], np.nan if a.dtype.kind == "f" else 0, a.dtype)
    inside = wide[tuple(slice(2, 2 + n) for n in a.shape)]
    inside[...] = a
    return inside


def _read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


LAYOUTS = {  # each takes an array with at least one dim
    "fortran": lambda a: a.copy(order="F"),
    "strided": _strided,
    "reversed": lambda a: np.flip(np.flip(a).copy()),
    "reversed along dim 0": lambda a: a[::-1].copy()[::-1],
    "reversed along dim -1": lambda a: a[..., ::-1].copy()[..., ::-1],
    "with dims 0 and 1 exchanged": lambda a: a.swapaxes(0, 1).copy().swapaxes(0, 1) if a.ndim > 2 else a.copy("F"),
    "in a part of something larger": _offset,
    "read-only": _read_only,
}
MIXED = "fortran", "strided", "reversed"  # layouts that are also given to some inputs only


def in_layout(name, a):
    """Return a copy of the array in the layout of this name."""
    return LAYOUTS[name](a) if a.ndim else a.copy()


def layouts(p):
    """The inputs in other memory layouts give the same outputs and gradient."""
    arrays = p.subject.arrays
    for name in LAYOUTS:
        actual = p.again([in_layout(name, a) for a in arrays])
        if actual:
            yield from p.same(f"layout {name}", p.result, actual, f"wrong where inputs are {name}")
    for name in MIXED if len(arrays) > 1 else ():
        for odd in (0, 1):
            actual = p.again([in_layout(name, a) if i % 2 == odd else a.copy() for i, a in enumerate(arrays)])
            if actual:
                yield from p.same(f"layout {name}, mixed", p.result, actual, f"wrong where some inputs are {name}")
    yield from _layout_as_given(p)
    yield from _broadcast_inputs(p)


def _layout_as_given(p):
    """The inputs in the layout that the user passed give the same."""
    leaves = p.subject.leaves
    if any(not leaf.given.flags.c_contiguous for leaf in leaves):
        given = [leaf.given if leaf.given.dtype == np.float64 else leaf.array for leaf in leaves]
        actual = p.again(given) or p.result
        yield from p.same("layout as given", p.result, actual, "wrong in the layout that was passed")


def _broadcast_inputs(p):
    """Inputs that are broadcast along a dim, with stride 0, give the same as copies of them."""
    arrays = p.subject.arrays
    axes = range(max((a.ndim for a in arrays), default=0))
    for axis in dict.fromkeys((*axes[:MOST_AXES], -1)):
        views = [_broadcast(a, axis) for a in arrays]
        if any(a.size and 0 in a.strides for a in views):
            copies = [a.copy() for a in views]
            expected = _or_none(lambda copies=copies: p.again(copies))  # it may be singular there, whatever the layout
            actual = p.again(views) if expected and np.isfinite(expected[0]).all() else None
            if actual:
                note = f"wrong where dim {axis} is broadcast"
                yield from p.same(f"layout broadcast {axis}", expected, actual, note, arrays=copies)


def _or_none(f):
    """Return f(), or None if it raises."""
    try:
        return f()
    except Exception:
        return None


def _broadcast(a, axis):
    """Return a view of the first slice along axis, repeated with stride 0."""
    if not -a.ndim <= axis < a.ndim or not a.shape[axis]:
        return a
    return np.broadcast_to(np.take(a, [0], axis), a.shape)


def cotangents(p):
    """Cotangents in other memory layouts give the same gradient: also with stride 0 along one dim, or along all, as the
    cotangent of a sum's input has."""
    if not any(dy.size for dy in p.dys):
        raise NotApplicable("no output has elements")
    for name in LAYOUTS:
        actual = p.backward(p.run, [in_layout(name, dy) for dy in p.dys])
        yield from p.same(f"cotangent {name}", p.gradient, actual, f"wrong where the cotangent is {name}")
    equal = [[np.broadcast_to(dy[(slice(0, 1),) * dy.ndim], dy.shape) for dy in p.dys]]
    equal += [[_broadcast(dy, axis) for dy in p.dys] for axis in range(max(dy.ndim for dy in p.dys))[:MOST_AXES]]
    for dys in equal:
        expected, actual = p.backward(p.run, [dy.copy() for dy in dys]), p.backward(p.run, dys)
        yield from p.same("cotangent broadcast", expected, actual, "wrong where the cotangent is broadcast")


# -- of other inputs


def alone(p):
    """The gradient of each input is the same whichever other inputs need one. Every combination of up to five inputs is
    tried; the parameters of a Module count as one."""
    p.require_first_order()
    leaves = p.subject.leaves
    groups = [[i] for i, leaf in enumerate(leaves) if not leaf.parameter or len(leaves) <= MOST_GROUPS]
    rest = [i for i in range(len(leaves)) if [i] not in groups]
    if rest:
        groups.append(rest)
    n = len(groups)
    if n < 2:
        raise NotApplicable("there is one input")
    for size in range(1, n if n <= MOST_GROUPS else 2):
        for some in itertools.combinations(groups, size):
            chosen = sorted(i for group in some for i in group)
            try:
                run = p.subject.run(needs=[i in chosen for i in range(len(leaves))])
            except RuntimeError:
                if p.subject.needs_graph:  # a hook, say, of an input that needs no gradient now
                    continue
                raise
            if run.roots:
                given = dict(zip(chosen, p.backward(run, chosen=chosen)))
                actual = [given.get(i, g) for i, g in enumerate(p.gradient)]
                yield from p.same("alone", p.gradient, actual, "differs when not all inputs need a gradient")


def repeated_input(p):
    """The gradient of fn(x, x) is the sum of both gradients of fn(x1, x2) at x1 = x2 = x, for all pairs that fit."""
    p.require_first_order()
    leaves = p.subject.leaves
    free = [i for i, leaf in enumerate(leaves) if not leaf.parameter]
    pairs = [pair for pair in itertools.combinations(free, 2) if len({leaves[i].array.shape for i in pair}) == 1]
    if not pairs:
        raise NotApplicable("no two inputs have the same shape")
    for i, j in pairs[:MOST_PAIRS]:
        arrays = list(p.subject.arrays)
        arrays[j] = arrays[i]
        expected = p.again([a.copy() for a in arrays])
        if expected and all(np.isfinite(x).all() for x in expected):  # else it is outside the domain
            expected[1 + i] = expected[1 + i] + expected[1 + j]
            actual = p.again(arrays, tie=(i, j))
            actual[1 + j] = expected[1 + j]
            note = f"fn(x, x) for {leaves[i].name} and {leaves[j].name} differs from the sum of the two gradients"
            yield from p.same("repeated input", expected, actual, note, arrays=arrays)


# -- computed otherwise


def device(p):
    """The same outputs and gradients on the device as on the cpu."""
    if all(leaf.backend.device == "cpu" for leaf in p.subject.leaves):
        raise NotApplicable("the inputs are on the cpu, which is the reference")
    yield from p.same("device", p.again(on=backend.get("cpu")), p.result, "differs from the cpu")


def float32(p):
    """The gradient in float32 is float32, and close to that in float64.

    The error must stay below what rounding of the inputs explains, a number of ulps. A single float32 input is tried
    too; functions that refuse mixed dtypes are left out. An element of at most 1e-5 of its cotangent may have any error
    up to its own size: 1 - y² of a saturated tanh is 0 in float32."""
    p.require_first_order()
    n = len(p.subject.leaves)
    yield from _in_dtype(p, "float32", range(n))
    for i in range(n) if 1 < n <= 4 else ():
        yield from _in_dtype(p, "float32", [i])


def float16(p):
    """The gradient in float16 is float16, and close to that in float64: on a GPU, which has kernels for it."""
    p.require_first_order()
    if all(leaf.backend.device == "cpu" for leaf in p.subject.leaves):
        raise NotApplicable("on a CPU many functions have no backward in float16")
    yield from _in_dtype(p, "float16", range(len(p.subject.leaves)))


def _in_dtype(p, dtype, chosen):
    """Yield Findings for the gradient with the chosen leaves in this dtype, against the float64 gradient at the same
    numbers."""
    eps, mixed = PRECISION[np.dtype(dtype)], len(chosen) < len(p.subject.leaves)
    check = f"{dtype} mixed" if mixed else dtype
    arrays = [a.astype(dtype if i in chosen else "float64") for i, a in enumerate(p.subject.arrays)]
    run = _or_none(lambda: p.subject.run([a.copy() for a in arrays], copy=False))
    exact_arrays, dys = [a.astype(np.float64) for a in arrays], [dy.astype(dtype) for dy in p.dys]
    off = 1e-3 if dtype == "float32" else 2e-2
    if run is None or not np.abs(run.y - p.run.y).max(initial=0) <= off * np.abs(p.run.y).max(initial=0):
        return  # it is undefined there, or its values are already far off
    if piece_signature(p.subject, arrays) != piece_signature(p.subject, exact_arrays):  # on the other side of a kink
        return
    exact = p.backward(p.subject.run(exact_arrays), [dy.astype(np.float64) for dy in dys])
    try:
        actual = p.backward(run, dys)
    except Exception:
        if not mixed:
            raise
        return  # fn refuses mixed dtypes, though only in its backward
    if any((~np.isfinite(g) & np.isfinite(a)).any() for g, a in zip(actual, exact)) and len(p.ran) > 1:
        return  # beyond its range on the way
    spread = p.subject.spread(dys, arrays, eps)[1:]
    largest = max((np.abs(dy).max(initial=0) for dy in dys), default=0)
    for leaf, x, a, g, rough in zip(p.subject.leaves, arrays, exact, actual, spread):
        if g.dtype != x.dtype and g.any():
            yield failure(check, f"the dtype of the gradient of {leaf.name} is {g.dtype}, not {x.dtype}")
        ulp = eps * np.abs(a).max(initial=0)
        allowed = (64 + 4 * np.sqrt(p.run.y.size + a.size)) * ulp + 64 * (rough.max(initial=0) + eps * largest)
        if np.isfinite(allowed):
            yield p.finding(check, leaf.name, a, g.astype(np.float64), difference_of(a, g) / (allowed or TINY),
                            f"far off in {dtype}")  # fmt: skip
