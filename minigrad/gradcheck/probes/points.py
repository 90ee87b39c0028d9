"""Other points of the same function: with other numbers, indices, sizes, ranks, and values of its options.

Each probe takes a Probed and yields Points, at which new differences are taken (see elsewhere.py)."""

import dis
import inspect
import itertools
import math
import types
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

LARGE = 2**14  # more elements than this keep their numbers
MOST_SIZES, MOST_APART = 6, 24  # sizes, and choices of some of the dims of one size, that are tried
GROWN = (2, 3, 8, 17, 65, 1025)  # even, odd, and one more than the blocks that kernels work in
MOST_ELEMENTS = 2**15  # elements of all inputs together after they have grown
MOST_ELEMENTS_KNOWN = 2**19  # where the new size is in the code: there it matters
MOST_TRIES = 40  # other values of options
MOST_FUNCTIONS = 64  # functions whose code is read
LOADS, COMPARES = ("LOAD_CONST", "LOAD_SMALL_INT", "RETURN_CONST"), ("COMPARE_OP", "CONTAINS_OP")
PLURAL = ("dims", "axes")
DIMS = ("dim", "axis", *PLURAL)


@dataclass
class Point:
    """A call at which the gradient is compared with differences."""

    name: str
    fn: Any
    inputs: tuple
    doubted: bool = False  # may it mean nothing to the function? Then a failure is a WARN
    lenient: bool = False  # may the backward raise where the forward runs?
    far: bool = False  # may an index lie out of bounds? Then NumPy computes, which refuses that, and no kernel
    arrays: Any = None  # an array for each leaf, in place of the values of inputs and parameters


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
NEAR = {"at": 0.0, "near": 0.01, "around": 0.5}  # a number in the code


def values(p):
    """The gradient at other points: large, small, negated, rounded, zeros, ties, near a number that appears in the code
    of the function's ops. Points where the function is undefined, kinks or is lost in rounding don't count."""
    p.require_first_order()
    leaves, arrays = p.subject.leaves, p.subject.arrays
    if not 0 < p.subject.size <= LARGE:
        raise NotApplicable("no elements" if not p.subject.size else "too many elements")
    tries = list(VALUES.items())
    for c in numbers(p)[:12]:
        tries += [(f"{word} {c:g}", lambda x, c=c, by=by: c + by * abs(c) * np.tanh(x)) for word, by in NEAR.items()]
    seen = {joined(arrays).tobytes()}
    for name, change in tries:
        there = [np.array(a) for a in arrays]
        there = [np.asarray(change(a), np.float64) if a.size and np.isfinite(a).all() else a for a in there]
        if joined(there).tobytes() not in seen:
            seen.add(joined(there).tobytes())
            new = {id(leaf.tensor): like(leaf.tensor, a) for leaf, a in zip(leaves, there)}
            inputs = mapped_once(p.inputs, lambda x, new=new: new.get(id(x), x))
            yield Point(f"values {name}", p.fn, inputs, arrays=there)


def constants_elsewhere(a):
    """{name: array} of other numbers in place of an array that does not vary: an index, counts, classes, signs, weights
    or a mask. What is wrong in the order, in repeats, in a count of 0, or for a sign needs one of them."""
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


def beyond(a, other):
    """Does `other` go below or above the user's index a, where an index may be out of range?"""
    return other.dtype.kind in "iu" and (other.min() < a.min() or other.max() > a.max())


def out_of_order(a, other):
    """Are the user's numbers a sorted, as offsets are, and the others not?"""
    ordered = a.dtype.kind in "iu" and a.size > 2 and (np.diff(a.ravel()) >= 0).all()
    return ordered and (np.diff(other.ravel()) < 0).any()


def indices(p):
    """The same function with other numbers in its inputs that are no floats: an index, counts or classes all the same,
    backwards, repeated, negative or too large, and other masks."""
    p.require_first_order()
    found = [x for x in dict.fromkeys(flat(p.inputs)) if not x.is_floating_point() and x.numel()]
    if not found:
        raise NotApplicable("all inputs are floats")
    for x in found:
        a = host(x)
        for name, array in constants_elsewhere(a).items():
            inputs = mapped_once(p.inputs, lambda y, x=x, array=array: like(y, array) if y is x else y)
            far = beyond(a, array)
            if not (far and checks_nothing(p)):
                yield Point(f"indices {name}", p.fn, inputs, far or out_of_order(a, array), far=far)


def by_numpy(x):
    """x as a Tensor of the NumPy backend."""
    return from_backend(reference.from_numpy(host(x)), reference).requires_grad_(x.requires_grad)


# -- sizes


def sizes(p):
    """The same function where every dim of n elements is cut to 1 or to 0, and where it is cut to 1 in one input only,
    which then broadcasts against the others. Sizes that occur in a parameter bound with partial(), which is not cut
    with the inputs, are left out."""
    if _modules(p):
        raise NotApplicable("the shapes of a Module are its own")
    held = held_sizes(p)
    tensors, every = list(dict.fromkeys(flat(p.inputs))), _free_sizes(p)
    indices = any(x.dtype.kind in "iu" for x in tensors)
    for m in (0, 1):
        for name, inputs, n in cuts(p, m):
            yield Point(name, p.fn, inputs, doubted=n in held, lenient=m == 1 and n in held)
    for i, x in enumerate(tensors[:MOST_SIZES] if len(tensors) > 1 and not _fused(p) else ()):
        for n in sorted(set(x.shape) & set(every)):
            if not _too_small(tensors, 1):
                cut = resized(p.inputs, n, lambda a, axis: np.take(a, [0], axis), [x])
                name = f"size {n} -> 1 in input {i} alone"
                yield Point(name, p.fn, cut, doubted=indices or n in held, lenient=True)


def cuts(p, m):
    """[(name, inputs, n)] of the same call with m elements along each dim of n, for all n."""
    if _modules(p) or _too_small(flat(p.inputs), m):
        return []

    def cut(n):
        return resized(p.inputs, n, lambda a, axis: np.take(a, range(m), axis))

    return [(f"size {n} -> {m}", cut(n), n) for n in _free_sizes(p)]


def _too_small(tensors, m):
    """Would an index lie beyond a dim of m elements? No kernel looks whether it fits."""
    return any(x.dtype.kind in "iu" and x.numel() and host(x).max() >= m for x in tensors)


def growth(p):
    """The same function where every dim of n elements has 2, 3, 8, 17, 65 or 1025, or a number in the code of its ops,
    where only some of them grow, and where inputs have one or two dims more, or none."""
    p.require_first_order()
    held, tensors = held_sizes(p), list(dict.fromkeys(flat(p.inputs)))
    indices = any(x.dtype.kind in "iu" for x in tensors)
    for name, inputs in () if _modules(p) or _fused(p) or indices else _ranks(p, tensors):
        yield Point(name, p.fn, inputs, doubted=True, lenient=True)
    yield from _apart(p, tensors, held)
    known = {n + more for n in whole_numbers(p) if 1 < n < MOST_ELEMENTS_KNOWN for more in (0, 1)}
    every = _free_sizes(p)
    for n in every:
        # where a loop in Python runs over a dim, 1025 might take 1025! ops, and no kernel would see more for it
        loops = (_ops(p, _grown(p, n, n + 1)) or 0) > (_ops(p, p.inputs) or 0)
        for m in [n + 1] if loops else sorted({*GROWN, *known} - {n, 1}):
            elements = sum(math.prod(m if size == n else size for size in x.shape) for x in tensors)
            fits = m > n or not _too_small(tensors, m)
            if fits and elements <= (MOST_ELEMENTS_KNOWN if m in known else MOST_ELEMENTS):
                yield Point(f"size {n} -> {m}", p.fn, _grown(p, n, m), doubted=n in held)


def _grown(p, n, m):
    return resized(p.inputs, n, lambda a, axis: _resampled(p.rng, a, axis, m))


def _ops(p, inputs):
    """How many ops run, there and back; None if the function refuses that."""
    ran: list = []
    try:
        with subject_of(p.fn, inputs, p.wrt) as subject, autograd.watch(lambda *op: ran.append(op)):
            run = subject.run()
            run.gradient([np.ones(y.shape) for y in run.outputs])
    except Exception:  # whatever it raises for an unsupported shape
        return None
    return len(ran)


def _ranks(p, tensors):
    """Inputs with one or two leading dims more, in all of them or in the first alone, and without any."""

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


def _apart(p, tensors, held):
    """Where dims have n elements by accident, as height and width may: each of them grown alone, with one other, and
    with those at the same place in all inputs. What belongs together the forward refuses: a backward that then raises
    took one size for another. Dims of 1 may grow too, as that of a batch; but where another input's do not, a function
    may mean a number by it."""
    indices, every = any(x.dtype.kind in "iu" for x in tensors), _free_sizes(p, 1)
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
            doubted = indices or n in held or (n == 1 and len(tensors) > 1)
            inputs = mapped_once(p.inputs, grown)
            yield Point(f"size {n} -> {m} in {where} alone", p.fn, inputs, doubted, lenient=indices or n == 1)


def _resampled(rng, a, axis, m):
    """m slices along an axis: existing ones, or numbers between two of them, which stay in the domain. Numbers in
    order, such as offsets, stay in order. Where two axes grow, each element is between two others by a weight of its
    own: by one weight for each slice, a square matrix would become singular."""
    n = a.shape[axis]
    if m <= n or a.dtype.kind != "f":
        some = np.take(a, np.arange(m) if m <= n else rng.integers(0, n, m), axis)
        return np.sort(some, axis) if m > n and (np.sort(a, axis) == a).all() else some
    if n == 1:
        return np.repeat(a, m, axis) * rng.uniform(0.5, 1.0, [m if k == axis else 1 for k in range(a.ndim)])
    grown = a.shape.count(m) > 0
    weight = rng.uniform(0.05, 0.95, [m if k == axis else size if grown else 1 for k, size in enumerate(a.shape)])
    first = rng.integers(0, n, m)
    second = (first + rng.integers(1, n, m)) % n  # another one: two equal slices would be a tie
    return weight * np.take(a, first, axis) + (1 - weight) * np.take(a, second, axis)


def _modules(p):
    return any(isinstance(x, Module) for x in (p.fn, *p.inputs))


def _free_sizes(p, least=2):
    """Sizes of dims, `least` or more, that may change: partial() does not bind them, and no parameter has them."""
    values = getattr(p.fn, "keywords", {}).values()
    bound = {n for value in values if isinstance(value, (tuple, list)) for n in value if isinstance(n, int)}
    bound |= {n for leaf in p.subject.leaves if leaf.parameter for n in leaf.array.shape}
    return sorted({n for x in flat(p.inputs) for n in x.shape if n >= least} - bound)[:MOST_SIZES]


def _fused(p):
    """Is it an op that is called by our own ops only? Those never broadcast."""
    op = op_of(p.fn)
    return op is not None and issubclass(op, FormulaOp)


def resized(inputs, n, change, chosen=None):
    """The inputs after change(array, axis) of every dim of n elements; chosen: in these Tensors only."""

    def resize(x):
        if n not in x.shape or (chosen is not None and not any(x is y for y in chosen)):
            return x
        array = host(x)
        for axis, size in enumerate(x.shape):
            array = change(array, axis) if size == n else array
        return like(x, array)

    return mapped_once(inputs, resize)


def mapped_once(inputs, change):
    """inputs with change(x) for each Tensor: what was one Tensor twice stays one."""
    done: dict[int, Tensor] = {}
    return mapped(inputs, lambda x: done[id(x)] if id(x) in done else done.setdefault(id(x), change(x)))


def like(x, array):
    """array as a Tensor that requires a gradient as x does."""
    with autograd.no_grad():
        y = to_tensor(np.array(array, x.dtype if x.dtype.kind != "f" else None), x)
    return y.requires_grad_() if x.requires_grad else y


# -- options


def parameters(p):
    """The gradient where an option has another value: each dim in turn, from the front and from the back, a bool the
    other way round, numbers larger, smaller, 0 and negative, and strings in the code."""
    p.require_first_order()
    if checks_nothing(p) and any(x.dtype.kind in "iu" for x in flat(p.inputs)):
        raise NotApplicable("the op does not look whether an index fits")
    tries = []
    for fn, inputs, known in _calls(p):
        n = next((x.ndim for x in flat(inputs)), 0)
        for name, value in known.items():
            tries += [(fn, inputs, name, value, other) for other in _others(p, name, value, n)]
    if not tries:
        raise NotApplicable("no parameters are known")
    for fn, inputs, name, value, other in tries[:MOST_TRIES]:
        far = isinstance(other, (list, np.ndarray)) and beyond(np.asarray(value), np.asarray(other))
        changed = _changed(fn, inputs, name, other)
        yield Point(f"{name}={shortened(other)}", fn, changed, far or _strange(value, other), far=far)


def _calls(p):
    """[(function, inputs, options)]: the function itself, if any are known; otherwise the user's ops that it runs."""
    op = op_of(p.fn)
    if known := _options(p):
        return [(p.fn if op is not p.fn else op.apply, p.inputs, known)]
    found = []
    for inner, xs in user_ops(p)[:4] if op is None else ():
        given = argument_names(type(inner).apply, len(xs))
        known = {name: x for name, x in _defaults(inner.forward).items() if name not in given} | inner.params
        xs = [x.detach().clone().requires_grad_(x.requires_grad) if hasattr(x, "detach") else x for x in xs]
        found.append((partial(type(inner).apply, **inner.params), xs, known))
    return found


def _options(p):
    """{name: value} of options: bound by partial(), passed beside the Tensors, or defaults of the user's function
    or op. For a Pair: the options that both functions take."""
    op, fn = op_of(p.fn), unbound(p.fn)
    bound = dict(getattr(fn.__wrapped__ if p.pair else p.fn, "keywords", {}))
    given = dict(zip(argument_names(p.fn, len(p.inputs)), p.inputs))
    if p.inputs and isinstance(p.inputs[-1], Keywords):
        given.popitem()
        given |= p.inputs[-1]
    function = op.forward if op else inspect.unwrap(p.fn)
    known = {} if (is_ours(op) if op else is_theirs(unbound(function))) else _defaults(function)
    known = {name: x for name, x in known.items() if name not in given}
    known |= bound | {name: x for name, x in given.items() if not flat(x, of=(Tensor, Module))}
    return {name: x for name, x in known.items() if not p.pair or p.pair.takes(name)}


def _defaults(function):
    try:
        signature = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {name: q.default for name, q in signature.items() if q.default is not q.empty}


def _changed(fn, inputs, name, value):
    """The inputs with another value of an option."""
    options, inputs = {name: value}, list(inputs)
    keywords = inputs.pop() if inputs and isinstance(inputs[-1], Keywords) else {}
    inputs = [options.pop(name, x) for name, x in zip(argument_names(fn, len(inputs)), inputs)]
    return (*inputs, Keywords(keywords | options))


def _strange(value, other):
    """May this other value of an option mean nothing?"""
    if isinstance(value, (list, np.ndarray)):
        return out_of_order(np.asarray(value), np.asarray(other))
    return type(other) is float and other < 0 <= value  # Huber's delta is a size


def _others(p, name, value, n):
    """Other values of an option of this value, for an input of n dims."""
    unsafe = checks_nothing(p)
    if (isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim)) and not unsafe:
        a = np.asarray(value) if len({*map(np.shape, value)}) == 1 else np.empty(0)
        if a.dtype.kind == "f" or (a.dtype.kind in "iub" and not isinstance(value, tuple)):
            others = constants_elsewhere(a).values() if a.size else ()
            others = [x for x in others if not (beyond(a, x) and checks_nothing(p))]
            return others if a is value else [type(value)(x.tolist()) for x in others]
    if isinstance(value, bool):
        return [not value]
    if name in DIMS:
        every = list(range(0 if unsafe else -n, n))
        if isinstance(value, (tuple, list)) or name in PLURAL:
            return [(d,) for d in every] + [tuple(range(n))] + ([] if unsafe else [(0, -1)])
        return [d for d in every if d != value] if isinstance(value, int) or value is None else []
    if value is None:  # a scale, say, whose default is a number of the function's own
        return [0.5, 2] if user_ops(p) or p.pair else []
    if unsafe and not isinstance(value, (float, str)):  # a size or a shape has to fit the inputs
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


# -- what the user's code tells: a block size or a threshold, at which alone a bug may show


def is_theirs(x):
    """Does a function, class or object belong to minigrad, NumPy or PyTorch?"""
    module = getattr(x, "__module__", None) or type(x).__module__
    return module.startswith(("minigrad.", "numpy", "torch"))


def is_ours(op):
    """Is this op one of minigrad's own, all of whose code is?"""
    return all(base.__module__.startswith("minigrad.") for base in op.__mro__[:-1])


def checks_nothing(p):
    """Is the function a bare op of minigrad? Only the public functions validate their arguments: with an index beyond
    its dim, say, a kernel would read out of bounds."""
    op = op_of(p.fn)
    return op is not None and any(is_ours(base) for base in op.__mro__[:-2])


def user_ops(p):
    """The ops of the user among those that ran, each once, with the call: [(op, its inputs)]."""
    found = {}
    for op, inputs in p.ran:
        cls = type(op)
        if op.serial >= 0 and not is_ours(cls) and not issubclass(cls, FormulaOp):
            found.setdefault((cls, repr(op.params)), (op, inputs))
    return list(found.values())


def functions(p):
    """The functions of the user's function and ops, and what those call by a global name or hold in a closure."""
    methods = ("forward", "backward")
    waiting: list = [getattr(type(op), name) for op, _ in user_ops(p) for name in methods]
    fn = unbound(p.fn)
    if p.pair:
        waiting += [unbound(inspect.unwrap(fn)), p.pair.vjp]
    elif op_of(p.fn) is None:
        waiting.append(fn)
    found: dict = {}
    while waiting and len(found) < MOST_FUNCTIONS:
        f = waiting.pop()
        f = getattr(f, "__func__", f)
        if isinstance(f, types.FunctionType) and f.__code__ not in found and not is_theirs(f):
            found[f.__code__] = f
            held = inspect.getclosurevars(f)
            waiting += [*held.nonlocals.values(), *held.globals.values()]
    return list(found.values())


def code_constants(p, compared=False):
    """What that code loads, with the parts of tuples; or only what it compares something with."""
    found: list = []
    for f in functions(p):
        for code in (f.__code__, *(c for c in f.__code__.co_consts if isinstance(c, types.CodeType))):
            instructions = list(dis.get_instructions(code))
            for i, then in itertools.pairwise([*instructions, instructions[-1]]):
                if i.opname in LOADS and (not compared or then.opname in COMPARES):
                    found.append(i.argval)
    for v in found:
        found += v if isinstance(v, (tuple, frozenset)) else ()
    return found


def numbers(p, kind=(int, float)):
    """The numbers in the code, in the defaults of arguments, and on the class of an op."""
    found = code_constants(p)
    for f in functions(p):
        found += [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
    for op, _ in user_ops(p):
        found += [v for base in type(op).__mro__ if not is_ours(base) for v in vars(base).values()]
    found = [v for v in found if isinstance(v, kind) and not isinstance(v, bool)]
    return sorted({v for v in found if v == v and abs(v) not in (0, 1, math.inf)})


def whole_numbers(p):
    """The ints among them, small ones left out: those mean a dim or a power."""
    return [v for v in numbers(p, int) if v > 3][:8]


def words(p):
    """Strings that the code compares something with: an option may be one of them."""
    found = [v for v in code_constants(p, compared=True) if isinstance(v, str) and v.isidentifier()]
    return list(dict.fromkeys(found))[:12]


def held_sizes(p):
    """The sizes of arrays and rows of numbers that the user's code holds: in closures, globals, defaults, attributes,
    and in the code itself. Fixed targets, say, fit inputs of no other size."""
    held: list = [p.fn, getattr(p.fn, "args", ()), getattr(p.fn, "keywords", {}), *(op.params for op, _ in user_ops(p))]
    held += [x for x in p.inputs if not flat(x)]
    for f in functions(p):
        variables = inspect.getclosurevars(f)
        held += [variables.nonlocals, variables.globals, f.__defaults__, f.__kwdefaults__, f.__code__.co_consts]
    fn = unbound(p.fn)
    owners = [getattr(f, "__self__", None) for f in (fn, getattr(fn, "__wrapped__", None))]
    held += [vars(x) for x in owners if hasattr(x, "__dict__") and not isinstance(x, type)]
    sizes: set = set()
    while held:
        x = held.pop()
        if isinstance(x, dict):
            held += x.values()
        elif isinstance(x, (list, tuple)):
            numeric = all(isinstance(v, (int, float, np.generic)) for v in x)
            sizes.update([len(x)] if numeric else ())
            held += () if numeric else x
        elif isinstance(shape := getattr(x, "shape", ()), tuple):
            sizes.update(shape)
    return sizes
