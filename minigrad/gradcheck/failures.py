"""What is behind a FAIL: a kink of the function, which excuses it, or one op that is wrong by itself, which is named.

Gradients at kinks do not compose: relu(x) - relu(-x) is x, and its backward says 0 at 0; among three equal numbers
sort() hands the middle one a slope that it has on neither side. The slopes of the whole function show no such kink."""

import copy

import numpy as np

from ..autograd import Value, watch
from .compare import Comparison
from .jacobian import check_directions
from .report import FAIL, KINK
from .subject import Leaf, Subject, host

MOST_OPS = 64  # distinct ops that are tried for a culprit


def excuse(comparison):
    """Turn FAILs into KINKs where an op inside is at a kink, no op is wrong alone, and close by all is well."""
    subject, rng = comparison.subject, comparison.rng
    failed = [f for f in comparison.findings if f.verdict == FAIL]
    if not failed or not at_a_kink(subject, rng) or culprit(subject):
        return
    if any(first_failure(nearby(subject, rng, 1e-2)) for _ in range(2)):
        return
    for f in failed:
        f.verdict, f.hints = KINK, []
        f.note = "an op inside is at a kink here; it is right alone, and the function is right close by"


def culprit(subject):
    """Run `subject` again and describe the first op recorded in it that is wrong by itself too, or ""."""
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
        leaves = [Leaf(f"input {i}", x) for i, (x, needed) in enumerate(zip(inputs, op.needs)) if needed]

        def call(tensors, op=op, inputs=inputs):
            tensors = iter(tensors)
            return type(op).apply(*[next(tensors) if n else x for x, n in zip(inputs, op.needs)], **op.params)

        if found := first_failure(Subject(call, leaves, op.name)):
            numbers = f"{found.place}: {found.analytic:.9g}, should be {found.numeric:.9g}"
            return f"{op.describe()}: wrong by itself too ({numbers})"
    return ""


def first_failure(subject):
    """The first FAIL of a Subject along a few directions, or None."""
    comparison = Comparison(subject, np.random.default_rng(0))
    check_directions(comparison, 2)
    return next((f for f in comparison.findings if f.verdict == FAIL), None)


def at_a_kink(subject, rng):
    """Does a tiny step in some direction lead to another piece of the function?"""
    here = piece(subject)
    return any(piece(nearby(subject, rng, 1e-7)) != here for _ in range(4))


def nearby(subject, rng, by):
    """The same Subject at another point: x moves by between half of and all of by (1 + |x|), up or down."""
    other = copy.copy(subject)
    other.leaves = [copy.copy(leaf) for leaf in subject.leaves]
    for leaf in other.leaves:
        x = leaf.array
        leaf.array = x + by * rng.uniform(0.5, 1, x.shape) * rng.choice([-1, 1], x.shape) * (1 + np.abs(x))
    return other


def piece(subject, arrays=None):
    """Which piece of a piecewise smooth function a point (its own, or `arrays`) is on: what ops without a gradient
    answer (argmax, floor, >), and where an op hands an input through unchanged (relu, maximum, amax)."""
    signature = []

    def sign(op, inputs, outputs):
        arrays = [host(x) for x in inputs if isinstance(x, Value)]
        for y in (host(y) for y in outputs if y is not None):
            if not op.differentiable:
                signature.append(y.tobytes())
                continue
            for x in arrays:
                shape = _broadcast(x.shape, y.shape)
                if shape is not None and x is not y:
                    same = np.broadcast_to(x, shape) == np.broadcast_to(y, shape)
                    signature.append(np.packbits(same).tobytes())

    with watch(sign):
        subject.run(arrays)
    return signature


def _broadcast(a, b):
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None
