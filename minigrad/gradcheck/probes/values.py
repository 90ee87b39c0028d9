"""The probes of numbers: the same function at other kinds of points, with new differences."""

import numpy as np

from ..report import NotApplicable
from ..subject import flat, host, joined
from .base import attempts
from .constants import may_read_anywhere, numbers
from .fresh import check_call, check_point
from .shrink import like, mapped_once

SINGLES = 2  # elements that are checked one by one, the smallest and the largest,
MANY_OPS = 64  # or only one, if at least this many ops run: in a loop, say, all elements go through the same
MOST_LEAVES = 4  # that are also changed one at a time
LARGE = 2.0**14  # more elements than this are left as they are


def _every_other(value):
    def change(x, rng):
        x.flat[::2] = value
        return x

    return change


def _one_large(x, rng):
    x = x / 8
    x.flat[int(rng.integers(x.size))] *= 1e3
    return x


def _paired(x, rng):
    x.flat[1::2] = x.flat[: x.size // 2 * 2 : 2] if x.size > 1 else x.flat[1::2]
    return x


# Each is a function of (a copy of an array with at least one element, rng).
VALUES = {
    "x 30": lambda x, rng: 30 * x,
    "x 1e-4": lambda x, rng: 1e-4 * x,
    "negated": lambda x, rng: -x,
    "all large": lambda x, rng: 30 * (np.abs(x) + 0.5),
    "all large and negative": lambda x, rng: -30 * (np.abs(x) + 0.5),
    "all very large": lambda x, rng: 1000 * (np.abs(x) + 0.5),
    "all very large and negative": lambda x, rng: -1000 * (np.abs(x) + 0.5),
    "x 1e-8": lambda x, rng: 1e-8 * x,
    "x 1e-180": lambda x, rng: 1e-180 * x,
    "rounded": lambda x, rng: np.round(x),
    "whole numbers": lambda x, rng: np.round(3 * x),
    "zeros": lambda x, rng: np.zeros_like(x),
    "ones": lambda x, rng: np.ones_like(x),
    "some zeros": _every_other(0.0),
    "some negative zeros": _every_other(-0.0),
    "all equal": lambda x, rng: np.full_like(x, x.flat[0]),
    "equal pairs": _paired,
    "sorted": lambda x, rng: np.sort(x, None).reshape(x.shape),
    "sorted backwards": lambda x, rng: np.sort(x, None)[::-1].reshape(x.shape),
    "one large among small": _one_large,
    "near 1": lambda x, rng: np.sign(x) * (1 - 1e-3 * np.abs(np.tanh(x))),
    "offset by 1e4": lambda x, rng: x + 1e4,
}
ALONE = ("x 30", "negated", "rounded", "zeros", "ones", "all equal")  # of one input at a time, too


def values(p):
    """The gradient at other points: large, small, negated, rounded, zeros, ties, in order, near a number that appears
    in the code of the function's ops. Points where the function is undefined, kinks or is lost in rounding don't
    count."""
    p.require_first_order()
    arrays = p.subject.arrays
    if not 0 < p.subject.size <= LARGE:
        raise NotApplicable("no elements" if not p.subject.size else "too many elements")
    changes = dict(VALUES) | {f"{word} {c:g}": _near(c, by) for c in numbers(p) for word, by in NEAR.items()}
    tries = [(name, change, list(range(len(arrays)))) for name, change in changes.items()]
    seen = {joined(arrays).tobytes()}
    if 1 < len(arrays) <= MOST_LEAVES:
        tries += [(name, VALUES[name], [i]) for name in ALONE for i in range(len(arrays))]
    yield from attempts([lambda t=t: _elsewhere(p, seen, *t) for t in tries], p)


NEAR = {"at": 0.0, "near": 0.01, "around": 0.5}


def _near(c, by):
    return lambda x, rng: c + by * abs(c) * np.tanh(x)


def _elsewhere(p, seen, name, change, chosen):
    """Findings at the point that `change` makes of the chosen leaves, unless it has been `seen`."""
    subject = p.subject
    arrays = [np.array(a) for a in subject.arrays]
    for i in chosen:
        finite = np.isfinite(arrays[i]).all() and arrays[i].size
        arrays[i] = np.asarray(change(arrays[i], p.rng)) if finite else arrays[i]
    point = joined(arrays).tobytes()
    if point in seen:
        return
    seen.add(point)
    where = "" if len(chosen) == len(arrays) else f" in {subject.leaves[chosen[0]].name}"
    check = f"values {name}{where}"
    singles = SINGLES if len(p.ran) < MANY_OPS else 1
    if not any(leaf.parameter for leaf in subject.leaves):
        new = {id(leaf.tensor): like(leaf.tensor, a.astype(np.float64)) for leaf, a in zip(subject.leaves, arrays)}
        inputs = mapped_once(p.inputs, lambda x: new.get(id(x), x))
        yield check_call(p, check, p.fn, inputs, singles=singles)
    else:
        there = subject.moved(arrays)
        f = check_point(p, check, there, singles=singles)
        subject.evaluations = there.evaluations  # it is a copy, which has counted on
        yield f


def indices(p):
    """The same function with other numbers in its inputs that are no floats: an index all of one value, backwards,
    negative, out of order; a mask that is all true, all false, or the other way round."""
    p.require_first_order()
    others = [x for x in dict.fromkeys(flat(p.inputs)) if not x.is_floating_point() and x.numel()]
    if not others:
        raise NotApplicable("all inputs are floats")

    def check(x, name, array):
        inputs = mapped_once(p.inputs, lambda y: like(y, array.astype(y.dtype)) if y is x else y)
        a = host(x)  # others may be invalid, and so are offsets out of order
        doubted = not np.isin(array, a).all() or (a.size > 2 and (np.diff(a) >= 0).all() and (np.diff(array) < 0).any())
        yield check_call(p, f"indices {name}", p.fn, inputs, doubted=a.dtype.kind != "b" and doubted)

    tries = []
    for x in others:
        a = host(x)
        for name, array in (_masks(a) if a.dtype.kind == "b" else _indices(a, p.rng)).items():
            beyond = may_read_anywhere(p) and not np.isin(array, a).all()
            if not np.array_equal(array, a) and not beyond:
                tries.append(lambda x=x, name=name, array=array: check(x, name, array))
    yield from attempts(tries, p)


def _masks(a):
    first = np.zeros_like(a)
    first.flat[0] = True
    return {"all true": np.ones_like(a), "all false": np.zeros_like(a), "inverted": ~a, "one true": first}


def _indices(a, rng):
    return {
        "all the first": np.full_like(a, a.flat[0]),
        "all the largest": np.full_like(a, a.max()),
        "all 0": np.zeros_like(a),  # the smallest index that there is
        "negative": a - 1 - a.max(),
        "one negative": np.where(np.arange(a.size).reshape(a.shape) == 0, -1, a),
        "sorted": np.sort(a, None).reshape(a.shape),
        "permuted": rng.permutation(a.ravel()).reshape(a.shape),
    }
