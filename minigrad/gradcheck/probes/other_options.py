"""The probe that gives options of the function other values."""

import inspect
from functools import partial
from reprlib import repr as shortened

import numpy as np

from ...nn import Module
from ...tensor import Tensor
from ..call import Keywords, argument_names, op_of, subject_of, without_partial
from ..report import NotApplicable
from ..subject import tensors_in
from .other_numbers import other_constants, out_of_order, out_of_range
from .points import Point, is_bare_op, is_library_code, is_ours, user_ops

MOST_TRIES = 40  # other values of options
WORDS = "mean", "sum", "none", "max", "min", "tanh", "same", "valid", "full", "constant", "reflect", "edge", "linear"
UNKNOWN_WORD = "no option of this name"
NAMES_OF_DIMS = ("dims", "axes")  # options that take several dims
NAMES_OF_DIM = ("dim", "axis", *NAMES_OF_DIMS)


def parameters(p):
    """Yield Points where an option has another value: each dim, counted from the front and from the back; the other
    bool; a larger, a smaller and a negative number, and 0; each word of WORDS."""
    p.require_first_order()
    if is_bare_op(p) and any(x.dtype.kind in "iu" for x in tensors_in(p.inputs)):
        raise NotApplicable("the op does not look whether an index fits")
    tries = []
    for fn, inputs, options in _calls_with_options(p):
        ndim = next((x.ndim for x in tensors_in(inputs)), 0)
        for name, value in options.items():
            tries += [(fn, inputs, name, value, other) for other in _other_values(p, name, value, ndim)]
    if not tries:
        raise NotApplicable("no parameters are known")
    for fn, inputs, name, value, other in tries[:MOST_TRIES]:
        beyond = isinstance(other, (list, np.ndarray)) and out_of_range(np.asarray(value), np.asarray(other))
        invalid = beyond or _may_be_invalid(value, other)
        changed = _with_option(fn, inputs, name, other)
        if isinstance(other, str):
            invalid = _same_outputs(p, fn, changed, _with_option(fn, inputs, name, UNKNOWN_WORD))
        yield Point(f"{name}={shortened(other)}", fn, changed, may_be_invalid=invalid, may_be_out_of_bounds=beyond)


def _same_outputs(p, fn, inputs, others):
    """True if both calls run and give the same outputs.

    A function may take any word that it does not know for a default. Then this word may mean nothing to it either."""
    try:
        with subject_of(fn, inputs, p.wrt) as subject, subject_of(fn, others, p.wrt) as other:
            return np.array_equal(subject.run().y, other.run().y, equal_nan=True)
    except Exception:  # the function refuses one of the two
        return False


def _calls_with_options(p):
    """[(function, inputs, options)] of the function itself if it has options, or of each op of the user's in it."""
    op = op_of(p.fn)
    options = _options(p)
    if options:
        return [(p.fn if op is not p.fn else op.apply, p.inputs, options)]
    calls = []
    for inner, xs in user_ops(p)[:4] if op is None else ():
        given = argument_names(type(inner).apply, len(xs))
        options = {name: x for name, x in _defaults(inner.forward).items() if name not in given} | inner.params
        xs = [x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in xs]
        calls.append((partial(type(inner).apply, **inner.params), xs, options))
    return calls


def _options(p):
    """Return {name: value} of the options of the user's call: bound by partial(), passed beside the Tensors, or
    defaults of the user's function or op. For a Pair: only options that both functions take."""
    op, fn = op_of(p.fn), without_partial(p.fn)
    bound = dict(getattr(fn.__wrapped__ if p.pair else p.fn, "keywords", {}))
    given = dict(zip(argument_names(p.fn, len(p.inputs)), p.inputs))
    if p.inputs and isinstance(p.inputs[-1], Keywords):
        given.popitem()
        given |= p.inputs[-1]
    function = op.forward if op else inspect.unwrap(p.fn)
    has_no_defaults = is_ours(op) if op else is_library_code(without_partial(function))
    options = {} if has_no_defaults else _defaults(function)
    options = {name: x for name, x in options.items() if name not in given}
    options |= bound | {name: x for name, x in given.items() if not tensors_in(x, of=(Tensor, Module))}
    return {name: x for name, x in options.items() if not p.pair or p.pair.vjp_takes(name)}


def _defaults(function):
    try:
        signature = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {name: q.default for name, q in signature.items() if q.default is not q.empty}


def _with_option(fn, inputs, name, value):
    """Return the inputs with another value of an option."""
    options, inputs = {name: value}, list(inputs)
    keywords = inputs.pop() if inputs and isinstance(inputs[-1], Keywords) else {}
    inputs = [options.pop(name, x) for name, x in zip(argument_names(fn, len(inputs)), inputs)]
    return (*inputs, Keywords(keywords | options))


def _may_be_invalid(value, other):
    """True if the function may not be meant for this other value of an option."""
    if isinstance(value, (list, np.ndarray)):
        return out_of_order(np.asarray(value), np.asarray(other))
    return type(other) is float and other < 0 <= value  # Huber's delta is a size


def _other_values(p, name, value, ndim):
    """Return a list of other values for an option that has this value; the input has ndim dims.

    A bare op of minigrad checks nothing: its sizes, shapes and indices are not changed."""
    is_unsafe = is_bare_op(p)
    if name in NAMES_OF_DIM:
        return _other_dims(name, value, ndim, is_unsafe)
    if isinstance(value, (list, tuple, np.ndarray)):
        return [] if is_unsafe else _other_sequences(value)
    if value is None:  # a scale, say, whose default is a number of the function's own
        return [0.5, 2] if user_ops(p) or p.pair else []
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        ints = [value + 1, value - 1, 2 * value, 0, 1, 2, 3]
        return [] if is_unsafe else [v for v in dict.fromkeys(ints) if v != value and v < 1000]
    if isinstance(value, float):
        floats = [2 * value, value / 2, -value, 0.0, 1.0, 0.5, 2.0, 3.0]
        return [v for v in dict.fromkeys(floats) if v != value and np.isfinite(v)]
    if isinstance(value, str) and value in WORDS:  # another string may be the name of a file
        return [word for word in WORDS if word != value]
    return []


def _other_dims(name, value, ndim, is_unsafe):
    """Every dim, also counted from the end; for an option that takes several also all of them."""
    every = list(range(0 if is_unsafe else -ndim, ndim))
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (tuple, list)) or name in NAMES_OF_DIMS:
        return [(d,) for d in every] + [tuple(range(ndim))] + ([] if is_unsafe else [(0, -1)])
    return [d for d in every if d != value] if isinstance(value, int) or value is None else []


def _other_sequences(value):
    """Other lists, tuples or arrays in place of one of numbers. A tuple of ints is a shape, or strides."""
    if isinstance(value, tuple) and value and all(type(v) is int for v in value):
        return [tuple(v + 1 for v in value), tuple(range(1, len(value) + 1)), value[::-1]]
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    is_rectangular = is_array or (isinstance(value, (list, tuple)) and len({*map(np.shape, value)}) == 1)
    a = np.asarray(value) if is_rectangular else np.empty(0)
    if not a.size or a.dtype.kind not in "fiub":
        return []
    others = other_constants(a).values()
    return list(others) if is_array else [type(value)(x.tolist()) for x in others]
