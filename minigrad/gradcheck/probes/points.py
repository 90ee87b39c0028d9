"""Probes that make up other calls of the same function: with other numbers, indices, sizes, ranks and options.

Each probe takes a Probed, the user's call, and yields Points; at_point.py checks the gradient at each. What they try
is a fixed list: they do not read the function's code, nor what it holds."""

import inspect
import itertools
import math
from dataclasses import dataclass
from functools import partial
from reprlib import repr as shortened
from typing import Any

import numpy as np

from ... import autograd
from ...autograd import FormulaOp
from ...backend import reference
from ...nn import Module
from ...tensor import Tensor, from_backend
from ..call import Keywords, argument_names, op_of, subject_of, unbound
from ..report import NotApplicable
from ..subject import flat, host, joined, mapped, to_tensor

LARGE = 2**14  # the numbers of more elements than this are not changed
MOST_SIZES = 6  # sizes of dims that are changed
MOST_APART = 24  # choices of some of the dims of one size
GROWN = (2, 3, 8, 17, 64, 65, 256, 1024, 1025)  # even, odd, blocks of kernels, and one element more than a block
MOST_ELEMENTS = 2**15  # elements of all inputs together after they have grown
MOST_TRIES = 40  # other values of options
WORDS = "mean", "sum", "none", "max", "min", "tanh", "same", "valid", "full", "constant", "reflect", "edge", "linear"
UNKNOWN_WORD = "no option of this name"
NAMES_OF_DIMS = ("dims", "axes")  # options that take several dims
NAMES_OF_DIM = ("dim", "axis", *NAMES_OF_DIMS)


@dataclass
class Point:
    """A call at which the gradient is compared with differences."""

    name: str
    fn: Any
    inputs: tuple
    may_be_invalid: bool = False  # the function may not be meant for this call: a failure is a WARN
    backward_may_raise: bool = False  # an exception of the backward counts for nothing
    may_be_out_of_bounds: bool = False  # NumPy computes, which refuses such an index; a kernel would not look
    cut_size: int = 0  # the size that no dim of an input has any more
    has_grown: bool = False  # a dim has more elements than the user gave it
    arrays: Any = None  # an array for each leaf, in place of the numbers of inputs and parameters


# -- numbers


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
    seen = {joined(arrays).tobytes()}
    for name, change in VALUES.items():
        there = [np.array(a) for a in arrays]
        there = [np.asarray(change(a), np.float64) if a.size and np.isfinite(a).all() else a for a in there]
        if joined(there).tobytes() not in seen:
            seen.add(joined(there).tobytes())
            yield Point(f"values {name}", p.fn, p.inputs, arrays=there)


def other_constants(a):
    """Return {name: array} of other numbers for an array that does not vary: an index, counts, classes, signs, weights
    or a mask. They change its order, repeat numbers, set a count to 0, or a sign."""
    x, first = a.ravel(), np.arange(a.size) == 0
    if a.dtype.kind == "b":
        found = {"all true": x | True, "all false": x & False, "inverted": ~x}
    elif a.dtype.kind == "f":
        found = {"backwards": x[::-1], "growing": x * np.linspace(0.5, 1.5, x.size), "one 0": np.where(first, 0, x)}
    else:
        x = x.astype(np.int64)
        found = {
            "all the first": np.full_like(x, x[0]),
            "all twice": np.repeat(x, 2)[: x.size],
            "backwards": x[::-1],
            "one 0": np.where(first, 0, x),
            "one more": x + (np.arange(x.size) == x.argmin()),
            "negative": x - 1 - x.max(),
            "beyond": x + 1 + x.max(),
        }
    return {name: y for name, x in found.items() if not np.array_equal(y := x.astype(a.dtype).reshape(a.shape), a)}


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
    found = [x for x in dict.fromkeys(flat(p.inputs)) if not x.is_floating_point() and x.numel()]
    if not found:
        raise NotApplicable("all inputs are floats")
    for x in found:
        a = host(x)
        for name, array in other_constants(a).items():
            inputs = mapped_once(p.inputs, lambda y, x=x, array=array: like(y, array) if y is x else y)
            beyond = out_of_range(a, array)
            if not (beyond and is_bare_op(p)):
                yield Point(
                    f"indices {name}", p.fn, inputs,
                    may_be_invalid=beyond or out_of_order(a, array), may_be_out_of_bounds=beyond,
                )  # fmt: skip


def by_numpy(x):
    """Return x as a Tensor of the NumPy backend."""
    return from_backend(reference.from_numpy(host(x)), reference).requires_grad_(x.requires_grad)


# -- sizes


def sizes(p):
    """Yield Points where every dim of n elements is cut to 1 or to 0, and where it is cut to 1 in one input only, which
    then broadcasts against the others."""
    if _has_modules(p):
        raise NotApplicable("the shapes of a Module are its own")
    tensors, every = list(dict.fromkeys(flat(p.inputs))), _free_sizes(p)
    for m in (0, 1):
        for name, inputs, n in cuts(p, m):
            yield Point(name, p.fn, inputs, cut_size=n)
    for i, x in enumerate(tensors[:MOST_SIZES] if len(tensors) > 1 and not _is_formula_op(p) else ()):
        for n in sorted(set(x.shape) & set(every)):
            if not _too_small(tensors, 1):
                cut = resized(p.inputs, n, lambda a, axis: np.take(a, [0], axis), [x])
                name = f"size {n} -> 1 in input {i} alone"
                yield Point(name, p.fn, cut, may_be_invalid=_has_index(tensors), backward_may_raise=True)


def cuts(p, m):
    """[(name, inputs, n)] of the same call with m elements along each dim of n, for all n."""
    if _has_modules(p) or _too_small(flat(p.inputs), m):
        return []

    def cut(n):
        return resized(p.inputs, n, lambda a, axis: np.take(a, range(m), axis))

    return [(f"size {n} -> {m}", cut(n), n) for n in _free_sizes(p)]


def _has_index(tensors):
    """True if one of the Tensors has ints: they may be an index."""
    return any(x.dtype.kind in "iu" for x in tensors)


def _too_small(tensors, m):
    """True if an index would lie beyond a dim of m elements. A kernel does not look whether it fits."""
    return any(x.dtype.kind in "iu" and x.numel() and host(x).max() >= m for x in tensors)


def growth(p):
    """Yield Points where every dim of n elements gets one of the sizes GROWN, where only some of these dims grow, and
    where the inputs have one or two dims more, or none."""
    p.require_first_order()
    tensors = list(dict.fromkeys(flat(p.inputs)))
    for name, inputs in () if _has_modules(p) or _is_formula_op(p) or _has_index(tensors) else _ranks(p, tensors):
        yield Point(name, p.fn, inputs, may_be_invalid=True, backward_may_raise=True)
    yield from _grown_apart(p, tensors)
    for n in _free_sizes(p):
        # where a loop in Python runs over a dim, 1025 might take 1025! ops, and no kernel would see more for it
        has_loop = (_count_ops(p, _grown(p, n, n + 1)) or 0) > (_count_ops(p, p.inputs) or 0)
        for m in [n + 1] if has_loop else sorted({*GROWN} - {n}):
            elements = sum(math.prod(m if size == n else size for size in x.shape) for x in tensors)
            if elements <= MOST_ELEMENTS and (m > n or not _too_small(tensors, m)):
                yield Point(f"size {n} -> {m}", p.fn, _grown(p, n, m), has_grown=m > n)


def _grown(p, n, m):
    return resized(p.inputs, n, lambda a, axis: _resampled(p.rng, a, axis, m))


def _count_ops(p, inputs):
    """The number of ops that run in the forward and the backward; None if the function refuses the inputs."""
    ran: list = []
    try:
        with subject_of(p.fn, inputs, p.wrt) as subject, autograd.watch(lambda *op: ran.append(op)):
            run = subject.run()
            run.gradient([np.ones(y.shape) for y in run.outputs])
    except Exception:  # whatever it raises for an unsupported shape
        return None
    return len(ran)


def _ranks(p, tensors):
    """Yield (name, inputs): one or two leading dims more, in all inputs or in the first alone; no dims; one dim."""

    def more(x, lead):
        a = np.repeat(host(x)[None], math.prod(lead), 0).reshape(*lead, *x.shape)
        return like(x, a * p.rng.uniform(0.9, 1.0, a.shape) if a.dtype.kind == "f" else a)

    for lead in ((1,), (2, 3)):
        if sum(x.numel() for x in tensors) * math.prod(lead) <= MOST_ELEMENTS:
            yield f"{lead} more dims", mapped_once(p.inputs, lambda x, lead=lead: more(x, lead))
        if len(tensors) > 1:
            one = mapped_once(p.inputs, lambda x, lead=lead: more(x, lead) if x is tensors[0] else x)
            yield f"{lead} more dims of input 0", one
            for n in _free_sizes(p):  # prepended dims and a dim of 1 at once
                cut = resized(one, n, lambda a, axis: np.take(a, [0], axis), flat(one)[1:])
                yield f"{lead} more dims of input 0, size {n} -> 1 in the others", cut
    if all(x.ndim and x.numel() for x in tensors):
        yield "no dims", mapped_once(p.inputs, lambda x: like(x, host(x).reshape(-1)[0]))
        yield "one dim", mapped_once(p.inputs, lambda x: like(x, host(x).reshape(-1)))


def _grown_apart(p, tensors):
    """Yield Points where some of the dims of n elements grow and the others do not. They may be equal by accident, as
    height and width may.

    Each dim grows alone, with one other, and with the dims at the same place in all inputs. If two dims belong
    together, the forward refuses that; a backward that then raises took one size for another. Dims of 1 may grow too,
    as the dim of a batch; but where another input's do not, a function may mean a number by it."""
    indices, every = _has_index(tensors), _free_sizes(p, 1)
    for n in every if 3 * sum(x.numel() for x in tensors) <= MOST_ELEMENTS else ():
        m = next(m for m in itertools.count(max(3, 2 * n), n) if m not in every)
        places = [(i, k - x.ndim) for i, x in enumerate(tensors) for k, size in enumerate(x.shape) if size == n]
        together = [tuple(at for at in places if at[1] == k) for k in {k for _, k in places}]
        chosen = [*itertools.combinations(places, 1), *together, *itertools.combinations(places, 2)]
        for some in [some for some in dict.fromkeys(chosen) if n == 1 or len(some) < len(places)][:MOST_APART]:

            def grown(x, some=some, m=m):
                array = host(x)
                for i, k in some:
                    array = _resampled(p.rng, array, k + x.ndim, m) if tensors[i] is x else array
                return like(x, array)

            where = " and ".join(f"dim {k} of input {i}" for i, k in some)
            yield Point(
                f"size {n} -> {m} in {where} alone", p.fn, mapped_once(p.inputs, grown), has_grown=True,
                may_be_invalid=indices or (n == 1 and len(tensors) > 1), backward_may_raise=indices or n == 1,
            )  # fmt: skip


def _resampled(rng, a, axis, m):
    """Return m slices along an axis: some of the array's own, or numbers between two of them, which stay in the domain.

    Sorted numbers, such as offsets, stay sorted. Where two axes grow, each element has a weight of its own: with one
    weight for each slice, a square matrix would become singular."""
    n = a.shape[axis]
    if m <= n or a.dtype.kind != "f":
        some = np.take(a, np.arange(m) if m <= n else rng.integers(0, n, m), axis)
        return np.sort(some, axis) if m > n and (np.sort(a, axis) == a).all() else some
    if n == 1:
        return np.repeat(a, m, axis) * rng.uniform(0.5, 1.0, [m if k == axis else 1 for k in range(a.ndim)])
    has_grown = m in a.shape
    weight = rng.uniform(0.05, 0.95, [m if k == axis else size if has_grown else 1 for k, size in enumerate(a.shape)])
    first = rng.integers(0, n, m)
    second = (first + rng.integers(1, n, m)) % n  # another one: two equal slices would be a tie
    return weight * np.take(a, first, axis) + (1 - weight) * np.take(a, second, axis)


def _has_modules(p):
    return any(isinstance(x, Module) for x in (p.fn, *p.inputs))


def _free_sizes(p, least=2):
    """The sizes of dims that may change: at least `least`, not bound by partial(), and not those of a parameter."""
    values = getattr(p.fn, "keywords", {}).values()
    bound = {n for value in values if isinstance(value, (tuple, list)) for n in value if isinstance(n, int)}
    bound |= {n for leaf in p.subject.leaves if leaf.parameter for n in leaf.array.shape}
    return sorted({n for x in flat(p.inputs) for n in x.shape if n >= least} - bound)[:MOST_SIZES]


def _is_formula_op(p):
    """True for an op that only minigrad's own ops call: it never broadcasts."""
    op = op_of(p.fn)
    return op is not None and issubclass(op, FormulaOp)


def resized(inputs, n, change, chosen=None):
    """Return the inputs after change(array, axis) of every dim of n elements. chosen: in these Tensors only."""

    def resize(x):
        if n not in x.shape or (chosen is not None and not any(x is y for y in chosen)):
            return x
        array = host(x)
        for axis, size in enumerate(x.shape):
            array = change(array, axis) if size == n else array
        return like(x, array)

    return mapped_once(inputs, resize)


def mapped_once(inputs, change):
    """Return the inputs with change(x) for each Tensor x. A Tensor that is passed twice is changed once."""
    done: dict[int, Tensor] = {}
    return mapped(inputs, lambda x: done[id(x)] if id(x) in done else done.setdefault(id(x), change(x)))


def like(x, array):
    """Return the array as a Tensor on x's device, which requires a gradient if x does."""
    with autograd.no_grad():
        y = to_tensor(np.array(array, x.dtype if x.dtype.kind != "f" else None), x)
    return y.requires_grad_() if x.requires_grad else y


# -- options


def parameters(p):
    """Yield Points where an option has another value: each dim, counted from the front and from the back; the other
    bool; a larger, a smaller and a negative number, and 0; each word of WORDS."""
    p.require_first_order()
    if is_bare_op(p) and any(x.dtype.kind in "iu" for x in flat(p.inputs)):
        raise NotApplicable("the op does not look whether an index fits")
    tries = []
    for fn, inputs, options in _calls_with_options(p):
        ndim = next((x.ndim for x in flat(inputs)), 0)
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
    found = []
    for inner, xs in user_ops(p)[:4] if op is None else ():
        given = argument_names(type(inner).apply, len(xs))
        options = {name: x for name, x in _defaults(inner.forward).items() if name not in given} | inner.params
        xs = [x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in xs]
        found.append((partial(type(inner).apply, **inner.params), xs, options))
    return found


def _options(p):
    """Return {name: value} of the options of the user's call: bound by partial(), passed beside the Tensors, or
    defaults of the user's function or op. For a Pair: only options that both functions take."""
    op, fn = op_of(p.fn), unbound(p.fn)
    bound = dict(getattr(fn.__wrapped__ if p.pair else p.fn, "keywords", {}))
    given = dict(zip(argument_names(p.fn, len(p.inputs)), p.inputs))
    if p.inputs and isinstance(p.inputs[-1], Keywords):
        given.popitem()
        given |= p.inputs[-1]
    function = op.forward if op else inspect.unwrap(p.fn)
    has_no_defaults = is_ours(op) if op else is_library_code(unbound(function))
    options = {} if has_no_defaults else _defaults(function)
    options = {name: x for name, x in options.items() if name not in given}
    options |= bound | {name: x for name, x in given.items() if not flat(x, of=(Tensor, Module))}
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


# -- whose code it is


def is_library_code(x):
    """True if a function, class or object belongs to minigrad, NumPy or PyTorch."""
    module = getattr(x, "__module__", None) or type(x).__module__
    return module.startswith(("minigrad.", "numpy", "torch"))


def is_ours(op):
    """True if all code of this op class is minigrad's own."""
    return all(base.__module__.startswith("minigrad.") for base in op.__mro__[:-1])


def is_bare_op(p):
    """True if the function is an op class of minigrad itself. Only the public functions validate their arguments: a
    kernel would read out of bounds at an index beyond its dim."""
    op = op_of(p.fn)
    return op is not None and any(is_ours(base) for base in op.__mro__[:-2])


def user_ops(p):
    """[(op, its inputs)] of each op of the user's own that ran, once for each class and parameters."""
    found = {}
    for op, inputs in p.ran:
        cls = type(op)
        if op.serial >= 0 and not is_ours(cls) and not issubclass(cls, FormulaOp):
            found.setdefault((cls, repr(op.params)), (op, inputs))
    return list(found.values())
