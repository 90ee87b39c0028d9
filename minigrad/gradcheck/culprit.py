"""Which op is to blame when a function made of many fails: each is checked alone, at the inputs that it saw."""

import numpy as np

from ..autograd import Value, reachable, watch
from .compare import Comparison
from .directions import directions
from .report import FAIL
from .subject import Leaf, Subject

MOST = 64  # distinct ops that are tried


def recorded_ops(run):
    """Names of the ops on the way from the leaves to the outputs, each once, in the order they ran."""
    ops = sorted(reachable(run.roots, 0), key=lambda op: op.serial)
    return list(dict.fromkeys(op.name for op in ops))


def failing(subject):
    """The finding that condemns a Subject along a few directions, or None."""
    comparison = Comparison(subject, np.random.default_rng(0))
    directions(comparison, 2)
    return next((f for f in comparison.findings if f.verdict == FAIL), None)


def culprit(subject):
    """Run `subject` again and describe the first recorded op that is wrong alone too, or ""."""
    seen = {}

    def remember(op, inputs, results):
        if op.serial < 0:
            return
        key = type(op), repr(op.params), tuple(getattr(x, "shape", x) for x in inputs)
        if key not in seen and len(seen) < MOST:
            seen[key] = op, [x.detach().clone() if isinstance(x, Value) else x for x in inputs]

    with watch(remember):
        subject.run()
    for op, inputs in seen.values():
        leaves = [Leaf(f"input {i}", x) for i, (x, needed) in enumerate(zip(inputs, op.needs)) if needed]

        def call(points, op=op, inputs=inputs):
            points = iter(points)
            return type(op).apply(*[next(points) if n else x for x, n in zip(inputs, op.needs)], **op.params)

        finding = failing(Subject(call, leaves, op.name))
        if finding is not None:
            numbers = f"{finding.place}: {finding.analytic:.9g}, should be {finding.numeric:.9g}"
            return f"{op.describe()}: wrong by itself too ({numbers})"
    return ""
