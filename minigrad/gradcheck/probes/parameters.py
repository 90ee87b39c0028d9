"""The probe of parameters: the same op with other values of dim, keepdim, eps, reduction, …"""

import inspect
from functools import partial

import numpy as np

from ...random import default_generator
from ..call import op_of, plain
from ..report import FAIL, Finding, NotApplicable
from ..subject import flat, joined
from .base import Refused, attempts, refusal
from .constants import checks_nothing, is_ours, may_read_anywhere, user_ops, words
from .fresh import check_call

PLURAL = ("dims", "axes")
DIMS = ("dim", "axis", *PLURAL)
MOST_TRIES = 40


def parameters(p):
    """The gradient where a parameter has another value: each dim in turn, from the front and from the back, a bool the
    other way round, numbers larger, smaller, 0 and negative, and strings in the code."""
    p.require_first_order()
    if may_read_anywhere(p):
        raise NotApplicable("the op does not look whether an index fits")
    tries = [t for call in _calls(p) for t in _tries(p, *call)]
    if not tries:
        raise NotApplicable("no parameters are known")
    yield from attempts(tries[:MOST_TRIES], p)


def _calls(p):
    """[(function, inputs, parameters)]: the function itself, if it is an op, a partial() or has defaults;
    otherwise the user's ops that it is made of."""
    op = op_of(p.fn)
    if known := _keywords(p.fn, len(p.inputs)):
        return [(p.fn if op is not p.fn else op.apply, p.inputs, known)]
    if op is not None:
        return []
    return [(partial(type(op).apply, **op.params), _detached(inputs), op.params) for op, inputs in user_ops(p)][:4]


def _detached(inputs):
    return [x.detach().clone().requires_grad_(x.requires_grad) if hasattr(x, "detach") else x for x in inputs]


def _keywords(fn, given):
    """What is bound by partial(), and the defaults of what is not, nor among the `given` first arguments; of a user's
    functions and ops only."""
    op, bound = op_of(fn), dict(getattr(fn, "keywords", {}))
    function = op.forward if op else plain(fn)
    if (op is None or not is_ours(op)) and not (getattr(function, "__module__", "") or "").startswith("minigrad."):
        try:
            signature = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            signature = {}.values()
        defaults = {
            q.name: q.default for i, q in enumerate(signature) if q.default is not q.empty and (op or i >= given)
        }
        bound = defaults | bound
    return bound


def _tries(p, fn, inputs, known):
    tensors = flat(inputs)
    n = tensors[0].ndim if tensors else 0
    for name, value in known.items():
        for other in _others(p, name, value, n):
            yield lambda name=name, value=value, other=other: _check(p, fn, inputs, name, value, other)
        if name in ("dim", "axis") and isinstance(value, int) and not checks_nothing(p):
            for k in range(n):
                yield lambda name=name, k=k: _from_both_ends(p, fn, inputs, name, k, n)


def _check(p, fn, inputs, name, known, value):
    fn = partial(fn, **{name: value})
    yield check_call(p, f"{name}={value!r}", fn, inputs)


def _others(p, name, value, n):
    """Other values of a parameter of this value, for an input of n dims."""
    if isinstance(value, bool):
        return [not value]
    if name in DIMS:
        every = list(range(0 if checks_nothing(p) else -n, n))
        if isinstance(value, (tuple, list)) or name in PLURAL:
            given = value if isinstance(value, (tuple, list)) else ()
            several = [tuple(range(n)), tuple(v - n for v in given if v >= 0), (0, -1)]
            return [(d,) for d in every] + (several[:1] if checks_nothing(p) else several)
        return [d for d in every if d != value] if isinstance(value, int) or value is None else []
    if value is None:  # a scale, say, whose default is a number of the function's own
        return [0.5, 2.0] if user_ops(p) else []
    if checks_nothing(p) and not isinstance(value, (float, str)):  # a size or a shape has to fit the inputs
        return []
    if isinstance(value, int):
        return [v for v in dict.fromkeys((value + 1, value - 1, 2 * value, 0, 1, 2, 3)) if v != value and v < 1000]
    if isinstance(value, float):
        near = (2 * value, value / 2, -value, 0.0, 1.0, 0.5, 2.0, 3.0)
        return [v for v in dict.fromkeys(near) if v != value and np.isfinite(v)]
    if isinstance(value, str):
        return [word for word in words(p) if word != value]
    if isinstance(value, tuple) and value and all(type(v) is int for v in value):
        return [tuple(v + 1 for v in value), tuple(range(1, len(value) + 1)), value[::-1]]
    return []


def _values(p, fn, inputs):
    default_generator.state = p.subject.random_state
    return flat(fn(*inputs))


def _from_both_ends(p, fn, inputs, name, k, n):
    """dim k, and the same dim counted from the end: the same values, unless the result has more dims than the input."""
    try:
        front, back = (_values(p, partial(fn, **{name: d}), inputs) for d in (k, k - n))
    except Exception as error:
        raise refusal(error) from None
    if any(y.ndim > n for y in (*front, *back)):
        raise Refused("it adds a dim")
    a, b = (joined([y.detach().numpy() for y in ys]) for ys in (front, back))
    if a.shape != b.shape or not np.allclose(a, b, rtol=1e-6, equal_nan=True):
        yield Finding(f"{name}={k}", FAIL, note=f"the values for {name}={k} and {name}={k - n} differ", excess=np.inf)
