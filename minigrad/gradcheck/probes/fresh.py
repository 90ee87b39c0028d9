"""Checks of the gradient at another point, or of the function with other inputs, with new differences."""

import numpy as np

from ... import autograd
from ..call import subject_of
from ..compare import Comparison
from ..failures import at_a_kink, culprit, excuse, nearby
from ..jacobian import Directional, draw
from ..numeric import EPS, NEAR, STEP
from ..report import FAIL, KINK, NONFINITE, PASS, SEVERITY, Finding, failure
from ..snippet import snippet_of_prepared
from ..subject import host, joined, split
from ..where import told
from .base import Refused, refusal
from .constants import checks_nothing
from .shrink import smallest

MOST_KINKS = 2  # removed from a direction before it is given up: another point may have many
SMALL = 2.0**-13  # a step at which functions that vary on a scale of 1 are straight, and not lost in rounding
CLOSE, CLOSEST = 14, 30  # halvings of the first step, after which float32 sees every change; and float64
STRETCH = 0.8541  # of the steps in a second opinion


def never():
    return False


def check_call(p, check, fn, inputs, lenient=never, singles=0, doubted=False):
    """A Finding for the gradient of fn(*inputs), another call than the user's. A failure is reduced, and shown.
    lenient(): may a backward raise here? doubted: may these inputs be invalid for fn? Then smaller ones would tell
    no more. Raises Refused."""

    def examine(inputs):
        with subject_of(fn, inputs, p.wrt) as subject:
            try:
                for _ in range(p.order - 1):
                    subject = subject.derivative(p.rng)
            except Exception as error:
                raise refusal(error) from None
            found = check_point(p, check, subject, lenient, singles)
            p.subject.evaluations += subject.evaluations
            return p.doubted(found) if doubted else found

    f = examine(inputs)
    if f.verdict != PASS and p.order == 1:
        inputs, f = (inputs, f) if p.may_crash or doubted else smallest(inputs, f, examine)
        f.snippet = snippet_of_prepared(fn, inputs, {"wrt": p.wrt})
    return f


def check_point(p, check, subject, lenient=never, singles=0):
    """A Finding for the gradient of a Subject at its point: FAIL for a different slope, WARN for a missing one, PASS
    also for kinks and noise, which another point may have. Raises Refused if the forward raises or gives NaN.

    singles: the number of elements that are also checked one by one. Most points need at most four evaluations along
    each direction; the full comparison with error bars follows only if these do not agree with the gradient."""
    try:
        run = subject.run()
    except Exception as error:  # whatever fn says to what it is not made for
        raise refusal(error) from None
    if np.isnan(run.y).any():
        raise Refused("its value is NaN")
    if not run.y.size or not subject.size:
        return _backward_only(p, check, run, lenient)
    dys = [p.rng.standard_normal(y.shape).astype(y.dtype) for y in run.outputs]
    try:
        gradient = run.gradient(dys) if run.roots else [np.zeros(leaf.array.shape) for leaf in subject.leaves]
    except Exception as error:
        return _raised(p, check, error, lenient)
    gradient, undefined = joined(gradient), ~np.isfinite(joined(gradient))
    directions = [u * ~undefined for u in _directions(p.rng, subject, singles)]
    seen = [_seen(p, subject, run, dys, gradient, u) if u.any() else PASS for u in directions]
    if KINK in seen:  # at ties all elements kink together: what is left without them could take long to find
        seen[0] = PASS
    doubtful = [u for u, verdict in zip(directions, seen) if verdict == FAIL]
    if undefined.any():
        doubtful.append(_unit(joined(subject.arrays), int(p.rng.choice(np.flatnonzero(undefined)))))
    try:
        return _in_doubt(p, check, subject, doubtful) if doubtful else Finding(check, PASS)
    except Exception as error:  # of the forward, close by: the backward has run here
        raise refusal(error) from None


def _backward_only(p, check, run, lenient):
    try:
        run.gradient([np.zeros(y.shape) for y in run.outputs]) if run.roots else None
    except Exception as error:
        return _raised(p, check, error, lenient)
    return Finding(check, PASS)


def _raised(p, check, error, lenient):
    """A backward that raises where the forward ran may be wrong, unless it says itself that it does not support this,
    or the forward does not validate its inputs. An engine of Python's numbers raises OverflowError where NumPy's are
    infinite."""
    overflow = p.framework is not None and isinstance(error, OverflowError)
    if isinstance(error, NotImplementedError) or overflow or checks_nothing(p) or lenient():
        raise refusal(error) from None
    return p.doubted(failure(check, f"the forward runs, but the backward raises {told(error)}"))


def _directions(rng, subject, singles):
    """One random direction in all leaves, of the size of each, and `singles` that move one element."""
    x = joined(subject.arrays)
    sizes = [_scale_of(np.abs(a[np.isfinite(a)]).max(initial=0)) or 1.0 for a in subject.arrays]
    directions = [joined([size * draw(rng, a.shape) for size, a in zip(sizes, subject.arrays)])]
    chosen = dict.fromkeys([int(np.abs(x).argmin()), int(np.abs(x).argmax()), *rng.permutation(x.size)[:singles]])
    for j in list(chosen)[:singles] if x.size > 1 else ():
        directions.append(_unit(x, j))
    return directions


def _unit(x, j):
    """The direction that moves element j, by about its size."""
    u = np.zeros(x.size)
    u[j] = _scale_of(x[j]) or 1.0
    return u


def _seen(p, subject, run, dys, gradient, u):
    """PASS, FAIL for doubt, or KINK along a single element, by few differences.

    PASS where a central one agrees with the gradient to a ten-millionth of what there is to see, at a step small beside
    x or beside 1, or where two to four at larger steps do, extrapolated: no wrong gradient would. A gradient of 0 is
    also right where the function does not change at all close by, as floor does not. If it is 0 at the user's own point
    too, where that was found right, close is very close. KINK where the gradient lies between two slopes that are the
    same at two steps."""
    cotangent, parts = joined(dys), gradient[u != 0] * u[u != 0]
    if not np.isfinite(run.y).all():
        return FAIL
    direction = [part if part.any() else None for part in split(u, [a.shape for a in subject.arrays])]
    h, analytic = STEP / 2 ** np.round(np.log2(max(1, int(np.count_nonzero(u)))) / 4), parts.sum()

    def difference(t):
        up, down = (subject.values(subject.shifted(direction, step)) - run.y for step in (t, -t))
        return cotangent @ (up - down) / (2 * t), -(cotangent @ down) / t, cotangent @ up / t, up.any() or down.any()

    try:
        bent = np.count_nonzero(u) == 1
        for t in (h / 64, SMALL / np.abs(u).max()):
            slope, left, right, moves = difference(t)
            if moves and abs(analytic - slope) <= 1e-7 * max(abs(left), abs(right)):
                return PASS
            bent &= bool(abs(left - right) > 1e-3 * (abs(left) + abs(right)))
            if not (moves or analytic):
                break
        if bent and _kinks(analytic, *(difference(NEAR / k / np.abs(u).max())[1:3] for k in (1, 2))):
            return KINK
        row: list = []
        for k in range(4):
            slope, left, right, _ = difference(h / 2**k)
            above, row = row, [slope]
            for order, before in enumerate(above, 1):  # Richardson's extrapolation
                row.append(row[-1] + (row[-1] - before) / (4**order - 1))
            if k and (left or right) and abs(analytic - row[-1]) <= 1e-7 * max(abs(left), abs(right)):
                return PASS
            if not (analytic or moves or any(row)):
                return PASS
        close = CLOSE if any(g.any() for g in p.gradient) else CLOSEST
        return FAIL if analytic or difference(h / 2**close)[3] else PASS
    except Exception:  # a step away, fn raises or has another number of outputs
        return FAIL


def _kinks(analytic, slopes, closer):
    """Are the (left, right) slopes those of a kink, equal at both steps but not to each other, and analytic between?"""
    low, high = sorted(closer)
    margin = 1e-6 * max(abs(low), abs(high))
    still = max(abs(a - b) for a, b in zip(slopes, closer)) <= 10 * margin
    return still and high - low > 1000 * margin and low - margin <= analytic <= high + margin


def _in_doubt(p, check, subject, doubtful):
    """The Finding for those directions, each compared with error bars and all excuses: where the function jumps, no
    gradient is right. A real error shows also at steps that are stretched by an odd factor."""
    f = _worst_along(p, check, subject, doubtful, 1.0)
    if f.verdict == PASS:
        return f
    return min(f, _worst_along(p, check, subject, doubtful, STRETCH), key=lambda f: SEVERITY.index(f.verdict))


def _worst_along(p, check, subject, doubtful, stretch):
    hidden = p.comparison.rounding.hidden  # of the function, and so the same here
    comparison = Comparison(subject, p.rng, p.comparison.rtol, stretch=stretch, hidden=hidden)
    at_kink = len(doubtful) > 1 and at_a_kink(subject, p.rng)
    for u in doubtful[at_kink:]:  # at ties all elements kink together: removing them one by one would take long
        Directional(comparison, check, MOST_KINKS).check(u.copy())
    excuse(comparison)
    passed = Finding(check, PASS, excess=min(1.0, max((f.excess for f in comparison.findings), default=0.0)))
    wrong = []
    for f in comparison.findings:
        undefined = f.analytic is not None and not np.isfinite(f.analytic) and f.verdict in (NONFINITE, FAIL)
        if undefined:
            if not (_is_smooth(f) or _is_level(subject, f)) or _excused(subject, p.rng, f):
                continue
            f.verdict, f.excess, f.note = FAIL, np.inf, "the function is finite and smooth here, its gradient is not"
        if (f.jump and at_a_kink(subject, p.rng)) or _at_a_joint_kink(subject, f):  # ops inside change their piece
            continue
        if f.verdict == FAIL and not _lost_in_rounding(subject, f):
            f.check = check
            wrong.append(p.doubted(f) if undefined else f)
    return next((f for f in wrong if f.verdict == FAIL), wrong[0] if wrong else passed)


def _at_a_joint_kink(subject, f):
    """May several relus inside of a hidden function kink here at once? Each has slope 0, and the sum of their one-sided
    slopes may be anything. (Where they differ by less than a tenth, it is the function that curves.)"""
    if f.analytic or f.left is None or not subject.run().hides:
        return False
    return not abs(f.left - f.right) <= 0.1 * max(abs(f.left), abs(f.right))


def _lost_in_rounding(subject, f):
    """Is the difference less than what rounding of terms as large as x may hide in a hidden function? Or does the last
    bit of x change the gradient by a thousandth, as that of sin(1e6 x) at 1e8? All numbers are scaled alike, so that
    equal ones stay equal and zeros zero.

    The cotangent is random: for a cotangent of ones the gradient of a softmax is 0, of which rounding is all there is.
    The point itself is not compared: a gradient that is wrong at x = 1 alone is not noise."""
    difference = np.inf if f.numeric is None else abs(f.analytic - f.numeric)
    if difference <= EPS / STEP * np.abs(joined(subject.arrays)).max() and subject.run().hides:
        return True
    here, close = (subject.moved([a * (1 + 4 * EPS * k) for a in subject.arrays]).run() for k in (1, 2))
    if here.y.size != close.y.size:
        return False
    cotangent = np.random.default_rng(0).standard_normal(here.y.size)
    before, after = (joined(run.gradient(run.dys(cotangent))) if run.roots else np.zeros(1) for run in (here, close))
    return before.size == after.size and bool(np.abs(after - before).max() > 1e-3 * np.abs(before).max())


def _is_smooth(f):
    """Is there a gradient, by the differences?"""
    if f.left is None:
        return False
    steepest = max(abs(f.left), abs(f.right))
    return np.isfinite([f.numeric, f.bar, f.left, f.right]).all() and (
        abs(f.left - f.right) <= 1e-3 * steepest and abs(f.numeric - f.left) <= 1e-3 * steepest
    )


def _is_level(subject, f):
    """Is the slope 0 at a smooth point: are those on both sides nothing beside the function's values?"""
    return f.verdict == FAIL and max(abs(f.left), abs(f.right)) <= 1e-6 * np.abs(subject.run().y).max()


def _excused(subject, rng, f):
    """May a composition of right ops have a gradient that is not finite here?

    Where exp(x) is beyond the range of floats, 1 / exp(x) still is 0, but no chain rule gets across; sqrt(x²)² has a
    slope of infinity times 0 at 0, but not close by; and the area of a triangle on a line, sqrt(0), does not change
    whatever its corners do. A single op has no such excuse where its value is finite, nor have the ops that it hides
    at numbers whose exp and square are finite."""
    infinite, ops = [], set()

    def look(op, inputs, outputs):
        infinite.extend(np.isinf(host(y)).any() for y in outputs if y is not None)
        ops.add(op)

    with autograd.watch(look):
        subject.run()
    if any(infinite):
        return True
    sizes = np.abs(joined(subject.arrays))
    usual = bool(((sizes == 0) | ((sizes > 1e-100) & (sizes < 100))).all())
    if len(ops) == 1 and (usual or not any(op.rounds_inside for op in ops)):
        return False
    for signs in ((-1, 1), (1,), (-1,)):  # at the edge of a domain, one side alone may be in it
        near = nearby(subject, rng, 1e-3, signs).run()
        if np.isfinite(joined([near.y, *near.gradient([np.ones(y.shape) for y in near.outputs])])).all():
            return True
    return f.left == f.right == 0 and not culprit(subject)


def _scale_of(x):
    """The size of x as a power of two, or None where there is none."""
    return 2.0 ** np.round(np.log2(abs(x))) if x and np.isfinite(x) else None
