"""The gradient at a Point, a call that a probe made up, against differences there.

It is wrong only where nothing excuses it: a kink, noise, or the edge of a domain counts for nothing, since the user did
not ask about this point."""

from contextlib import nullcontext
from dataclasses import replace
from reprlib import repr as shortened

import numpy as np

from ... import autograd
from ...tensor import Tensor
from ..call import Keywords, label_of, subject_of
from ..compare import Comparison, Directional, check_ties, draw, norm_of
from ..culprit import at_nearby_point, excuse_kinks, find_culprit, is_at_kink, is_isolated
from ..differences import EPS, STEP
from ..report import Finding, exception_text, failure
from ..subject import host, split, to_vector
from ..verdicts import FAIL, NONFINITE, PASS, SEVERITY, point_verdict
from .points import is_bare_op, map_tensors_once, on_numpy_backend

SINGLES = 2  # elements that are checked one by one, the smallest and the largest
MANY_OPS = 64  # only one element is checked if this many ops run: in a loop all elements go through the same ops
MOST_KINKS = 2  # removed from a direction before it is given up: another point may have many
SMALL = 2.0**-13  # a step at which functions that vary on a scale of 1 are straight, and not lost in rounding
STEP_FACTOR = 0.8541  # a second comparison multiplies its steps by this
ISOLATED = "a comparison holds at this point alone: close by, where the gradient is right, another branch runs"
SHOWN = 8  # elements of an input in the text of a call: it has to fit a screen


def check_point(p, point):
    """Return the Finding for the gradient at a Point, or None if the forward raises there or gives NaN."""
    with _subject_at(p, point) as subject:
        try:
            for _ in range(p.order - 1):
                subject = subject.derivative(p.rng)
            run, sizes = _run_with_sizes(subject) if point.cut_size else (subject.run(), set())
        except Exception:  # whatever fn says to what it is not made for
            return None
        if point.cut_size in sizes:  # fn holds an array of that size, against which the cut inputs broadcast
            point = replace(point, may_be_invalid=True, backward_may_raise=True)
        f = None if np.isnan(run.y).any() else _finding_at(p, point, subject, run)
        p.subject.evaluations += subject.evaluations
    if not f or f.verdict == PASS:
        return f
    f.check, f.call = point.name, call_as_text(p, point)
    is_ignored = point.has_grown and f.numeric == f.left == f.right == 0  # fn reads only as many as it was given
    is_sure = f.analytic is not None and not (point.may_be_invalid or is_ignored)
    f.verdict = point_verdict(f.verdict, is_sure, p.strict)
    return f


def _subject_at(p, point):
    """A context manager that gives the Subject of the Point's call."""
    if point.arrays:
        return nullcontext(p.subject.moved(point.arrays))
    inputs = point.inputs
    if point.may_be_out_of_bounds and not p.pair:
        inputs = map_tensors_once(inputs, on_numpy_backend)
    return subject_of(point.fn, inputs, p.wrt)


def _run_with_sizes(subject):
    """Return (a run of the Subject, the set of the sizes of all dims of its ops' inputs and outputs)."""
    sizes: set = set()

    def look(op, inputs, outputs):
        sizes.update(n for x in (*inputs, *outputs) if isinstance(x, Tensor) for n in x.shape)

    with autograd.watch(look):
        return subject.run(), sizes


def _finding_at(p, point, subject, run):
    """The Finding at a point where the forward runs: a FAIL, or a PASS; None if the backward may raise there.

    Most points are settled by a cheap central difference along each direction (`_agrees`). The rest is compared with
    error bars."""
    dys = [p.rng.standard_normal(y.shape).astype(y.dtype) for y in run.outputs]
    try:
        gradient = run.gradient(dys) if run.roots else [np.zeros(leaf.array.shape) for leaf in subject.leaves]
    except Exception as error:
        return None if _may_raise(p, point, error) else failure(
            point.name, f"the forward runs, but the backward raises {exception_text(error)}"
        )  # fmt: skip
    if not run.y.size or not subject.size:
        return Finding(point.name, PASS)
    doubtful = _doubtful_directions(p, subject, run, dys, to_vector(gradient))
    return _compare_twice(p, subject, doubtful) if doubtful else Finding(point.name, PASS)


def _may_raise(p, point, error):
    """True if an exception of the backward counts for nothing at this point."""
    overflow = p.pair and isinstance(error, OverflowError)  # where NumPy's numbers are infinite
    return isinstance(error, NotImplementedError) or overflow or is_bare_op(p) or point.backward_may_raise


def _doubtful_directions(p, subject, run, dys, gradient):
    """The directions along which a cheap difference does not agree with the gradient, and one in which the gradient is
    not finite, if there is any."""
    is_defined = np.isfinite(gradient)
    directions = [u for u in _directions(p, subject, is_defined) if u.any()]
    doubtful = [u for u in directions if not _agrees(subject, run, dys, gradient, u)]
    if not is_defined.all():
        doubtful.append(_unit(to_vector(subject.arrays), int(p.rng.choice(np.flatnonzero(~is_defined)))))
    return doubtful


def _compare_twice(p, subject, directions):
    """The Finding of a comparison with error bars, and of a second one at other steps if the first fails: a real error
    shows at both. None if the forward raises close by."""
    try:
        first = _compare_in_doubt(p, subject, directions, 1.0)
        second = _compare_in_doubt(p, subject, directions, STEP_FACTOR) if first.verdict != PASS else first
    except Exception:  # the forward raises; the backward has run at the point itself
        return None
    return min(first, second, key=lambda f: SEVERITY.index(f.verdict))


def _directions(p, subject, defined):
    """One random direction that moves all leaves, each by its size, and a few that move one element. For a function of
    minigrad's own ops the first is enough: a detached value is missing in all of its gradient."""
    x = to_vector(subject.arrays)
    sizes = [_scale_of(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in subject.arrays]
    directions = [to_vector([size * draw(p.rng, a.shape) for size, a in zip(sizes, subject.arrays)])]
    few = 0 if p.is_composition else SINGLES if len(p.ran) < MANY_OPS else 1
    if few and x.size > 1:
        singles = dict.fromkeys([int(np.abs(x).argmin()), int(np.abs(x).argmax()), *p.rng.permutation(x.size)[:few]])
        directions += [_unit(x, j) for j in list(singles)[:few]]
    return [u * defined for u in directions]


def _unit(x, j):
    """The direction that moves element j, by about its size."""
    u = np.zeros(x.size)
    u[j] = _scale_of(x[j])
    return u


def _scale_of(x):
    """The size of x as a power of two, or 1 where there is none."""
    return 2.0 ** np.round(np.log2(abs(x))) if x and np.isfinite(x) else 1.0


def _agrees(subject, run, dys, gradient, u):
    """True if a central difference along u agrees with the gradient.

    It is taken at a small step, or at larger steps with Richardson's extrapolation. It agrees if the two differ by 1e-7
    of the steepest slope seen, or by no more than float64 rounds: a wrong gradient would not.

    A gradient of 0 is also right where the function does not change at all close by."""
    cotangent, analytic = to_vector(dys), (gradient[u != 0] * u[u != 0]).sum()
    if not np.isfinite(run.y).all():
        return False
    direction = [part if part.any() else None for part in split(u, [a.shape for a in subject.arrays])]
    h = STEP / 2 ** np.round(np.log2(max(1, int(np.count_nonzero(u)))) / 4)

    def difference(t):
        up, down = (cotangent @ (subject.values(subject.point_along(direction, step)) - run.y) for step in (t, -t))
        return (up - down) / (2 * t), max(abs(up), abs(down)) / t

    rounding = EPS * norm_of(cotangent * run.y)
    try:
        for t in (h / 64, SMALL / np.abs(u).max()):
            slope, steepest = difference(t)
            if abs(analytic - slope) <= max(1e-7 * steepest, rounding / t):
                return True
        row: list = []
        for k in range(4):
            slope, steepest = difference(h / 2**k)
            above, row = row, [slope]
            for order, before in enumerate(above, 1):
                row.append(row[-1] + (row[-1] - before) / (4**order - 1))
            if k and abs(analytic - row[-1]) <= 1e-7 * steepest:
                return True
    except Exception:  # a step away, fn raises or has another number of outputs
        pass
    return False


def _compare_in_doubt(p, subject, doubtful, step_factor):
    """The Finding along these directions, with error bars, after everything that may excuse a difference: a FAIL if an
    error is certain, else a PASS. (Where the function jumps, no gradient is right.)"""
    comparison = Comparison(subject, p.rng, p.comparison.rtol, step_factor=step_factor)
    at_kink = len(doubtful) > 1 and is_at_kink(subject, p.rng)
    for u in doubtful[at_kink:]:  # at ties all elements kink together: removing them one by one would take long
        Directional(comparison, "", MOST_KINKS).check(u.copy())
    check_ties(comparison)
    excuse_kinks(comparison)
    worst = Finding("", PASS, excess=min(1.0, max((f.excess for f in comparison.findings), default=0.0)))
    for f in comparison.findings:
        undefined = f.analytic is not None and not np.isfinite(f.analytic) and f.verdict in (NONFINITE, FAIL)
        if undefined and _is_smooth(subject, f) and not _may_be_undefined(subject, p.rng, f):
            f.verdict = point_verdict(FAIL, is_sure=False, strict=p.strict)
            f.excess, f.note = np.inf, "the function is finite and smooth here, its gradient is not"
            worst = f if worst.verdict != FAIL else worst
        elif f.verdict == FAIL and not undefined and not _is_explained(comparison, f):
            if p.is_composition and is_isolated(subject, p.rng):
                f.verdict, f.note = point_verdict(FAIL, is_sure=False, strict=p.strict), ISOLATED
            return f
    return worst


def _is_explained(comparison, f):
    """True if a kink or rounding inside the function explains the difference.

    At a jump: an op inside switches to another formula here. In a function with a hidden inside: terms as large as x
    round away a difference this small, or several relus kink at once, each with slope 0. (One-sided slopes that differ
    by less than a tenth are a curve, not a kink.)"""
    subject = comparison.subject
    if f.jump:
        return is_at_kink(subject, comparison.rng)
    has_kink = f.left is not None and not abs(f.left - f.right) <= 0.1 * max(abs(f.left), abs(f.right))
    lost = abs(f.analytic - f.numeric) <= comparison.coarsest_eps / STEP * np.abs(to_vector(subject.arrays)).max()
    return subject.run().has_hidden_ops and (lost or (has_kink and not f.analytic))


def _is_smooth(subject, f):
    """True if the differences show one slope: the same on both sides, or tiny on both sides, beside the values."""
    if f.jump or f.left is None or not np.isfinite([f.numeric, f.bar, f.left, f.right]).all():
        return False
    steepest = max(abs(f.left), abs(f.right))
    smooth = abs(f.left - f.right) <= 1e-3 * steepest and abs(f.numeric - f.left) <= 1e-3 * steepest
    return smooth or (f.verdict == FAIL and steepest <= 1e-6 * np.abs(subject.run().y).max())


def _may_be_undefined(subject, rng, f):
    """True if a composition of right ops may have a gradient here that is not finite.

    Examples: if exp(x) overflows, 1 / exp(x) is 0 and finite, but the chain rule multiplies by infinity. At x = 0, the
    chain rule gives sqrt(x²)² a slope of infinity times 0. The area of a triangle whose corners lie on a line is
    sqrt(0). A single op whose value is finite is not excused."""
    infinite, ops = [], set()

    def look(op, inputs, outputs):
        infinite.extend(np.isinf(host(y)).any() for y in outputs if y is not None)
        ops.add(op)

    with autograd.watch(look):
        subject.run()
    if any(infinite) or len(ops) == 1:
        return any(infinite)
    for signs in ((-1, 1), (1,), (-1,)):  # at the edge of a domain, one side alone may be in it
        near = at_nearby_point(subject, rng, 1e-3, signs).run()
        if np.isfinite(to_vector([near.y, *near.gradient([np.ones(y.shape) for y in near.outputs])])).all():
            return True
    return f.left == f.right == 0 and not find_culprit(subject)


def call_as_text(p, point):
    """The call of a Point as text: small inputs in full, of others the shape."""
    at = {} if point.arrays is None else {id(x.tensor): a for x, a in zip(p.subject.leaves, point.arrays)}

    def text(x):
        if isinstance(x, Tensor) and x.numel() > SHOWN:
            return f"<{x.dtype} of shape {tuple(x.shape)}>"
        if isinstance(x, Tensor):
            array = at.get(id(x), host(x))
            return "".join(np.array2string(array, precision=4, separator=",").split()).replace(",", ", ")
        if isinstance(x, (list, tuple)):
            return f"[{', '.join(map(text, x))}]"
        return shortened(x)

    given, named = list(point.inputs), dict(getattr(point.fn, "keywords", {}))
    named |= given.pop() if given and isinstance(given[-1], Keywords) else {}
    return f"{label_of(point.fn)}({', '.join([*map(text, given), *(f'{key}={text(x)}' for key, x in named.items())])})"
