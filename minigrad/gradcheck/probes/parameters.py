"""The probe of parameters: the same op with other values of dim, keepdim, eps, reduction, …"""

import inspect
import itertools
from functools import partial

import numpy as np

from ...nn import Module
from ...random import default_generator
from ...tensor import Tensor
from ..call import Expecting, Keywords, argument_names, called, op_of, plain, signed
from ..report import FAIL, Finding, NotApplicable
from ..subject import flat, joined
from .base import Refused, attempts, refusal
from .constants import checks_nothing, is_ours, is_theirs, may_read_anywhere, user_ops, words
from .fresh import check_call

PLURAL = ("dims", "axes")
DIMS = ("dim", "axis", *PLURAL)
MOST_TRIES, MOST_PAIRS = 40, 24


def parameters(p):
    """The gradient where a parameter has another value: each dim in turn, from the front and from the back, a bool the
    other way round, numbers larger, smaller, 0 and negative, and strings in the code. Then where two parameters have:
    padding, say, may be wrong only with a stride."""
    p.require_first_order()
    if may_read_anywhere(p):
        raise NotApplicable("the op does not look whether an index fits")
    if isinstance(p.fn, Expecting):
        raise NotApplicable("expected_vjp holds for these parameters")
    calls = _calls(p)
    tries, pairs = ([t for call in calls for t in some(p, *call)] for some in (_tries, _pairs))
    if not tries:
        raise NotApplicable("no parameters are known")
    yield from attempts(tries[:MOST_TRIES] + pairs[:MOST_PAIRS], p)


def _calls(p):
    """[(function, inputs, options)]: the function itself, if any are known; otherwise the user's ops that it runs."""
    op = op_of(p.fn)
    if known := _options(p):
        return [(p.fn if op is not p.fn else op.apply, p.inputs, known)]
    if op is not None:
        return []
    return [(partial(type(op).apply, **op.params), _detached(xs), _parameters(op, xs)) for op, xs in user_ops(p)][:4]


def _parameters(op, inputs):
    """Of a call of an op, with defaults."""
    given = argument_names(type(op).apply, len(inputs))
    return {name: x for name, x in _defaults(op.forward).items() if name not in given} | op.params


def _detached(inputs):
    return [x.detach().clone().requires_grad_(x.requires_grad) if hasattr(x, "detach") else x for x in inputs]


def _options(p):
    """{name: value} of what is bound by partial() or passed beside the Tensors, and of a user's function or op the
    defaults of the rest. Of a pair of functions, those that both take."""
    op, fn = op_of(p.fn), plain(p.fn)
    if p.framework and p.framework.public(fn.__wrapped__):
        return {}
    bound = dict(getattr(fn.__wrapped__ if p.framework else p.fn, "keywords", {}))
    given = dict(zip(argument_names(p.fn, len(p.inputs)), p.inputs))
    if p.inputs and isinstance(p.inputs[-1], Keywords):
        given.popitem()
        given |= p.inputs[-1]
    function = op.forward if op else signed(p.fn)
    known = {} if (is_ours(op) if op else is_theirs(plain(function))) else _defaults(function)
    known = {name: x for name, x in known.items() if name not in given}
    known |= bound | {name: x for name, x in given.items() if not flat(x, of=(Tensor, Module))}
    return {name: x for name, x in known.items() if not p.framework or p.framework.takes(name)}


def _defaults(function):
    try:
        signature = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {name: q.default for name, q in signature.items() if q.default is not q.empty}


def _changed(fn, inputs, options):
    """The inputs with other values of options."""
    options, inputs = dict(options), list(inputs)
    keywords = inputs.pop() if inputs and isinstance(inputs[-1], Keywords) else {}
    inputs = [options.pop(name, x) for name, x in zip(argument_names(fn, len(inputs)), inputs)]
    return (*inputs, Keywords(keywords | options))


def _tries(p, fn, inputs, known):
    n = _dims_of(inputs)
    for name, value in known.items():
        for other in _others(p, name, value, n):
            yield lambda name=name, other=other: _check(p, fn, inputs, known, {name: other})
        if name in ("dim", "axis") and isinstance(value, int) and not checks_nothing(p):
            for k in range(n):
                yield lambda name=name, k=k: _from_both_ends(p, fn, inputs, name, k, n)


def _pairs(p, fn, inputs, known):
    """The first other values of each two parameters, together."""
    others = [[(name, v) for v in _others(p, name, value, _dims_of(inputs))[:2]] for name, value in known.items()]
    for pair in itertools.chain(*(itertools.product(*two) for two in itertools.combinations(others, 2))):
        yield lambda pair=pair: _check(p, fn, inputs, known, dict(pair))


def _dims_of(inputs):
    return next((x.ndim for x in flat(inputs)), 0)


def _check(p, fn, inputs, known, changed):
    name = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    doubted = any(type(v) is float and v < 0 <= known[key] for key, v in changed.items())  # Huber's delta is a size
    yield check_call(p, name, fn, _changed(fn, inputs, changed), doubted=doubted)


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
        return [0.5, 2] if user_ops(p) or p.framework else []
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
    return flat(called(fn, inputs))


def _from_both_ends(p, fn, inputs, name, k, n):
    """dim k, and the same dim counted from the end: the same values, unless the result has more dims than the input."""
    try:
        front, back = (_values(p, fn, _changed(fn, inputs, {name: d})) for d in (k, k - n))
    except Exception as error:
        raise refusal(error) from None
    if any(y.ndim > n for y in (*front, *back)):
        raise Refused("it adds a dim")
    a, b = (joined([y.detach().numpy() for y in ys]) for ys in (front, back))
    if a.shape != b.shape or not np.allclose(a, b, rtol=1e-6, equal_nan=True):
        yield Finding(f"{name}={k}", FAIL, note=f"the values for {name}={k} and {name}={k - n} differ", excess=np.inf)
