"""Probes that change the numbers of the inputs: of those that vary, and of an index, a mask or counts."""

import numpy as np

from ..report import NotApplicable
from ..subject import host, tensors_in, to_vector
from .points import Point, is_bare_op, like, map_tensors_once

LARGE = 2**14  # the numbers of more elements than this are not changed


def _every_other(value):
    def change(x):
        x.flat[::2] = value
        return x

    return change


VALUES = {  # each takes a copy of an array with at least one element
    "x 30": lambda x: 30 * x,
    "negated": lambda x: -x,
    "all large": lambda x: 30 * (np.abs(x) + 0.5),
    "all very large": lambda x: 1000 * (np.abs(x) + 0.5),
    "all very large and negative": lambda x: -1000 * (np.abs(x) + 0.5),
    "x 1e-8": lambda x: 1e-8 * x,
    "x 1e-180": lambda x: 1e-180 * x,
    "rounded": lambda x: np.round(x),
    "zeros": lambda x: np.zeros_like(x),
    "ones": lambda x: np.ones_like(x),
    "some zeros": _every_other(0.0),
    "all equal": lambda x: np.full_like(x, x.flat[0]),
    "near 1": lambda x: np.sign(x) * (1 - 1e-3 * np.abs(np.tanh(x))),
    "offset by 1e4": lambda x: x + 1e4,
}


def values(p):
    """Yield Points with other numbers: large, small, negated, rounded, zeros, equal ones. Where the function is
    undefined, has a kink or is lost in rounding, a Point counts for nothing."""
    p.require_first_order()
    arrays = p.subject.arrays
    if not 0 < p.subject.size <= LARGE:
        raise NotApplicable("no elements" if not p.subject.size else "too many elements")
    seen = {to_vector(arrays).tobytes()}
    for name, change in VALUES.items():
        there = [np.array(a) for a in arrays]
        there = [np.asarray(change(a), np.float64) if a.size and np.isfinite(a).all() else a for a in there]
        if to_vector(there).tobytes() not in seen:
            seen.add(to_vector(there).tobytes())
            yield Point(f"values {name}", p.fn, p.inputs, arrays=there)


def other_constants(a):
    """Return {name: array} of other numbers for an array that does not vary: an index, counts, classes, signs, weights
    or a mask. They change its order, repeat numbers, set a count to 0, or a sign."""
    x, first = a.ravel(), np.arange(a.size) == 0
    if a.dtype.kind == "b":
        constants = {"all true": x | True, "all false": x & False, "inverted": ~x}
    elif a.dtype.kind == "f":
        constants = {"backwards": x[::-1], "growing": x * np.linspace(0.5, 1.5, x.size), "one 0": np.where(first, 0, x)}
    else:
        x = x.astype(np.int64)
        constants = {
            "all the first": np.full_like(x, x[0]),
            "all twice": np.repeat(x, 2)[: x.size],
            "backwards": x[::-1],
            "one 0": np.where(first, 0, x),
            "one more": x + (np.arange(x.size) == x.argmin()),
            "negative": x - 1 - x.max(),
            "beyond": x + 1 + x.max(),
        }
    constants = {name: x.astype(a.dtype).reshape(a.shape) for name, x in constants.items()}
    return {name: x for name, x in constants.items() if not np.array_equal(x, a)}


def out_of_range(a, other):
    """True if the ints `other` go below or above those of the user's index a: an index may then be out of bounds."""
    return other.dtype.kind in "iu" and (other.min() < a.min() or other.max() > a.max())


def out_of_order(a, other):
    """True if the user's ints a are sorted, as offsets are, and the others are not."""
    ordered = a.dtype.kind in "iu" and a.size > 2 and (np.diff(a.ravel()) >= 0).all()
    return ordered and (np.diff(other.ravel()) < 0).any()


def indices(p):
    """Yield Points with other numbers in the inputs that are not floats. An index, counts or classes become all equal,
    reversed, repeated, negative or too large; masks are inverted or constant."""
    p.require_first_order()
    tensors = [x for x in dict.fromkeys(tensors_in(p.inputs)) if not x.is_floating_point() and x.numel()]
    if not tensors:
        raise NotApplicable("all inputs are floats")
    for x in tensors:
        a = host(x)
        for name, array in other_constants(a).items():
            inputs = map_tensors_once(p.inputs, lambda y, x=x, array=array: like(y, array) if y is x else y)
            beyond = out_of_range(a, array)
            if not (beyond and is_bare_op(p)):
                yield Point(
                    f"indices {name}", p.fn, inputs,
                    may_be_invalid=beyond or out_of_order(a, array), may_be_out_of_bounds=beyond,
                )  # fmt: skip
