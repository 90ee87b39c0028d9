"""The cause of a FAIL: a kink of an op inside, which excuses it, or a single wrong op, which is named.

Where a function has no derivative, any generalized gradient is right: a limit of nearby gradients, or an average of
such limits (Clarke 1983, Optimization and nonsmooth analysis). Differences along one element need not show the kink:
among three equal numbers, sort() gives the middle one a slope that it has on neither side.

But gradients at kinks do not compose: relu(x) - relu(-x) is x, its backward gives 0 at 0, and no nearby gradient is 0.
No op is wrong then, but the gradient is not right either: that is INCONCLUSIVE."""

import numpy as np

from ..autograd import FormulaOp, Value, watch
from .compare import Comparison, check_directions, check_ties
from .subject import Leaf, Subject, host, to_vector
from .verdicts import FAIL, kink_verdict

MOST_OPS = 64  # distinct ops that are tested for a culprit
CLOSE = 1e-5  # distance, as a part of 1 + |x|, of the gradients between which one at a kink must lie
CLOSEST = 1e-9  # distance of half of them: so near that smooth parts do not change
NEIGHBOURS = 64
LIES_BETWEEN = "an op inside is at a kink here; the gradient lies between those close by, which are right"
LIES_OUTSIDE = "ops inside are at kinks, where gradients do not compose: none close by is like this one"
DIRECTION_PAIRS = 6  # has_kink tries so many: along three, one of several equal numbers may stay the median


def excuse_kinks(comparison):
    """Replace each FAIL by the `kink_verdict` if three conditions hold. An op inside is at a kink at this point. No op
    is wrong by itself. The gradient at a point close by is right."""
    subject, rng = comparison.subject, comparison.rng
    failed = [f for f in comparison.findings if f.verdict == FAIL and (f.analytic is None or np.isfinite(f.analytic))]
    if not failed or not is_at_kink(subject, rng) or find_culprit(subject) or not has_kink(subject):
        return
    if first_failure(at_nearby_point(subject, rng, 1e-2)):
        return
    lies_between = lies_between_nearby_gradients(subject, rng)
    for f in failed:
        f.verdict, f.note, f.hints = kink_verdict(lies_between), LIES_BETWEEN if lies_between else LIES_OUTSIDE, []


def lies_between_nearby_gradients(subject, rng):
    """True if, for a random cotangent, nearly each element of the gradient lies between those at random nearby points.
    So must the sum over equal numbers.

    Nearly: sort() may put one of twenty equal numbers in a place that it has at none of those points."""
    run = subject.run()
    cotangent = rng.standard_normal(run.y.size)
    cotangent[~np.isfinite(run.y)] = 0
    others = [at_nearby_point(subject, rng, CLOSE if k % 2 else CLOSEST).run() for k in range(NEIGHBOURS)]
    here, *close_by = (to_vector(r.gradient(r.dys(cotangent))) for r in (run, *others))
    _, group = np.unique(to_vector(subject.arrays), return_inverse=True)  # equal numbers are one group
    sum_here, *sums_close_by = (np.bincount(group, g) for g in (here, *close_by))
    return np.count_nonzero(_is_outside(here, close_by, 1e-7)) <= here.size // 8 and not (
        _is_outside(sum_here, sums_close_by, 1e-3).any()
    )


def _is_outside(x, others, margin):
    """bool: the number is less than all others at its place, or larger. margin: a part of the largest of them."""
    low, high = np.min(others, axis=0), np.max(others, axis=0)
    margin = margin * np.maximum(np.abs(low), np.abs(high))
    return (x < low - margin) | (x > high + margin)


def has_kink(subject, pairs=DIRECTION_PAIRS):
    """True if the function, or an op inside by itself, has a kink along random directions.

    At a kink the two one-sided slopes along a direction differ, or the slopes along two directions do not add up to the
    slope along their sum. (The median of three equal numbers shows only the second.)"""
    rng = np.random.default_rng(0)
    parts = subject, *(alone for _, alone in ops_alone(subject))
    return any(_has_kink_along_random_directions(Comparison(part, rng)) for part in parts for _ in range(pairs))


def _has_kink_along_random_directions(c):
    """True if the function of a Comparison has a kink along u or v, random directions, or between them: its slopes
    along u and v do not add up to its slope along u + v."""

    def draw():
        return [c.rng.choice([-1.0, 1.0], x.shape) * c.rng.uniform(0.5, 1.5, x.shape) for x in c.subject.arrays]

    u, v = draw(), draw()
    both = [a + b for a, b in zip(u, v)]
    a, b, ab = (c.slope(direction, None, 4 * c.coarsest_eps * np.abs(c.y[c.defined])) for direction in (u, v, both))
    if any(d.is_kink.any() for d in (a, b, ab)):
        return True
    size = np.abs(a.value) + np.abs(b.value) + np.abs(ab.value)
    differs = np.abs(a.value + b.value - ab.value) > 1e-3 * size + 3 * (a.bar + b.bar + ab.bar)
    undecided = a.contradicts_slopes | b.contradicts_slopes | ab.contradicts_slopes
    return bool((differs & ~undecided).any())


def find_culprit(subject):
    """Describe the first op in a run of `subject` that is wrong by itself too; "" if there is none."""
    rng = np.random.default_rng(0)
    for op, alone in ops_alone(subject):
        failure = first_failure(alone)
        at_ties = failure and is_at_kink(alone, rng) and lies_between_nearby_gradients(alone, rng)
        if failure and not (at_ties and not first_failure(at_nearby_point(alone, rng, CLOSE))):
            numbers = f"{failure.place}: {failure.analytic:.9g}, should be {failure.numeric:.9g}"
            return f"{op.describe()}: wrong by itself too ({numbers})"
    return ""


def ops_alone(subject):
    """Yield (op, a Subject of this op alone, at its inputs in a run of `subject`) for each recorded op."""
    ran = {}

    def remember(op, inputs, results):
        if op.serial < 0:  # not recorded
            return
        key = type(op), repr(op.params), tuple(getattr(x, "shape", x) for x in inputs)
        if key not in ran and len(ran) < MOST_OPS:
            ran[key] = op, [x.detach().clone() if isinstance(x, Value) else x for x in inputs]

    with watch(remember):
        subject.run()
    for op, inputs in ran.values():
        if isinstance(op, FormulaOp):
            inputs = [None if i in op.from_forward else x for i, x in enumerate(inputs)]
        leaves = [Leaf(f"input {i}", x) for i, (x, needed) in enumerate(zip(inputs, op.needs)) if needed]

        def call(tensors, op=op, inputs=inputs):
            tensors = iter(tensors)
            return type(op).apply(*[next(tensors) if n else x for x, n in zip(inputs, op.needs)], **op.params)

        yield op, Subject(call, leaves, op.name)


def first_failure(subject):
    """The first FAIL of a Subject along a few directions, or None."""
    comparison = Comparison(subject, np.random.default_rng(0))
    check_directions(comparison, 2)
    check_ties(comparison)
    return next((f for f in comparison.findings if f.verdict == FAIL), None)


def is_at_kink(subject, rng):
    """True if a tiny step in some direction leads to another piece of the function.

    For an op that hides what it computes, such as one in NumPy, only its slopes show that."""
    here = piece_signature(subject)
    return any(piece_signature(at_nearby_point(subject, rng, 1e-7)) != here for _ in range(4)) or (
        subject.run().has_hidden_ops and has_kink(subject, pairs=1)
    )


def is_isolated(subject, rng):
    """True if each tiny step leads to another branch of the function, and the gradient at a point close by is right.

    A comparison such as x == 0 then holds at this point alone, so that differences show only the other branch."""
    here = branch_signature(subject)
    is_alone = all(branch_signature(at_nearby_point(subject, rng, 1e-7)) != here for _ in range(4))
    return is_alone and not first_failure(at_nearby_point(subject, rng, 1e-2))


def at_nearby_point(subject, rng, by, signs=(-1, 1)):
    """The same Subject at another point: x moves by between half of and all of by (1 + |x|), up or down."""
    return subject.moved(
        [x + by * rng.uniform(0.5, 1, x.shape) * rng.choice(signs, x.shape) * (1 + np.abs(x)) for x in subject.arrays]
    )


def piece_signature(subject, arrays=None):
    """Return a list that identifies the piece of a piecewise smooth function on which a point lies.

    It holds the results of ops without a gradient (argmax, floor, >), and the places where an op returns an input
    unchanged (relu, maximum, amax). The point is the Subject's own, or `arrays`."""

    def of_op(op, inputs, outputs):
        for y in outputs:
            if op.differentiable:
                yield from (_unchanged_places(host(x), y) for x in inputs if isinstance(x, Value))
            else:
                yield y.tobytes()

    return _signature(of_op, subject, arrays)


def branch_signature(subject):
    """Return a list that identifies the branches that a function takes at its point: the names of the ops that run, and
    the results of those without a gradient, such as comparisons."""

    def of_op(op, inputs, outputs):
        yield op.name
        if not op.differentiable:
            yield from (y.tobytes() for y in outputs)

    return _signature(of_op, subject)


def _signature(of_op, subject, arrays=None):
    """Return a list of what of_op(op, inputs, arrays of the outputs) yields for each op that runs."""
    signature = []

    def add_op(op, inputs, outputs):
        signature.extend(of_op(op, inputs, [host(y) for y in outputs if y is not None]))

    with watch(add_op):
        subject.run(arrays)
    return signature


def _unchanged_places(x, y):
    """The places where the output y of an op equals its input x, as bytes; b"" if y is x or their shapes differ."""
    try:
        return b"" if x is y else np.packbits(np.equal(*np.broadcast_arrays(x, y))).tobytes()
    except ValueError:  # x and y do not broadcast
        return b""
