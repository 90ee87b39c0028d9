"""The probes of which inputs need a gradient, and of inputs that are the same Tensor or share memory."""

import itertools

import numpy as np

from ..report import PASS, Finding, NotApplicable
from ..subject import joined
from .base import Refused, attempts

MOST_GROUPS = 5  # of leaves of which every combination is tried
MOST_PAIRS = 10


def alone(p):
    """The gradient of each input is the same whichever others need one: every combination of up to five inputs. The
    parameters of a Module count as one."""
    groups = _groups(p.subject.leaves)
    n = len(groups)
    if n < 2:
        raise NotApplicable("there is one input")
    if p.order > 1:
        raise NotApplicable("of the first order only: a gradient has an output for each input that is asked for")
    for size in range(1, n if n <= MOST_GROUPS else 2):
        for some in itertools.combinations(groups, size):
            chosen = sorted(i for group in some for i in group)
            run = p.subject.run(needs=[i in chosen for i in range(len(p.subject.leaves))])
            if not run.roots:
                continue
            found = list(p.gradient)
            for i, g in zip(chosen, p.backward(run, chosen=chosen)):
                found[i] = g
            yield from p.same("alone", p.gradient, found, "differs when not all inputs need a gradient")


def _groups(leaves):
    """Numbers of leaves: each by itself, or all parameters together where there are more than MOST_GROUPS leaves."""
    if len(leaves) <= MOST_GROUPS:
        return [[i] for i in range(len(leaves))]
    groups = [[i] for i, leaf in enumerate(leaves) if not leaf.parameter]
    return [*groups, *filter(None, [[i for i, leaf in enumerate(leaves) if leaf.parameter]])]


def repeated_input(p):
    """fn(x, x): the gradient is the sum of those of fn(x1, x2) at x1 = x2 = x, for all pairs that fit."""
    if p.order > 1:
        raise NotApplicable("of the first order only: the outputs of a gradient would be tied too")
    pairs = _pairs(p.subject.leaves)
    if not pairs:
        raise NotApplicable("no two inputs have the same shape")
    yield from attempts(lambda pair=pair: _tied(p, *pair) for pair in pairs[:MOST_PAIRS])


def _pairs(leaves):
    free = [i for i, leaf in enumerate(leaves) if not leaf.parameter]
    return [(i, j) for i in free for j in free if i < j and leaves[i].array.shape == leaves[j].array.shape]


def _tied(p, i, j):
    leaves, arrays = p.subject.leaves, list(p.subject.arrays)
    arrays[j] = arrays[i]
    y, expected = p.at([a.copy() for a in arrays])
    if np.isnan(y).any() or not np.isfinite(joined(expected)).all():
        raise Refused(f"{leaves[i].name} is outside the domain of {leaves[j].name}")
    tied = p.backward(p.forward(arrays, tie=(i, j)))
    expected[i] = expected[i] + expected[j]
    note = f"fn(x, x) for {leaves[i].name} and {leaves[j].name} differs from the sum of the two gradients"
    yield list(p.same("repeated input", expected, tied, note, arrays=arrays))[i]


def shared_memory(p):
    """Two inputs that are the same memory, one as it is and one transposed, or all rows of one in the other."""
    pairs = _pairs(p.subject.leaves)
    if not pairs:
        raise NotApplicable("no two inputs have the same shape")
    yield from attempts(
        lambda i=i, j=j, view=view: _overlapping(p, i, j, view)
        for i, j in pairs[:MOST_PAIRS]
        for view in (np.ndarray.view, _transposed, np.flip)
    )


def _transposed(x):
    """x with its last two dims exchanged, where that leaves the shape as it is."""
    return x.swapaxes(-1, -2) if x.ndim > 1 and x.shape[-1] == x.shape[-2] else x.view()


def _overlapping(p, i, j, view):
    apart = list(p.subject.arrays)
    apart[j] = view(apart[i]).copy()
    y, expected = p.at([a.copy() for a in apart])
    if np.isnan(y).any() or not np.isfinite(joined(expected)).all():
        raise Refused("outside its domain")
    shared = [a.copy() for a in apart]
    shared[j] = view(shared[i])
    found = p.at(shared)[1]
    note = f"wrong where {p.subject.leaves[j].name} is a view of the memory of {p.subject.leaves[i].name}"
    for f in p.same("shared memory", expected, found, note, arrays=apart):
        yield f if f.verdict != PASS else Finding("shared memory", PASS, excess=f.excess)
