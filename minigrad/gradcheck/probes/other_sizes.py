"""Probes that change the sizes of dims, and the number of dims."""

import itertools
import math

import numpy as np

from ... import autograd
from ...autograd import FormulaOp
from ...nn import Module
from ..call import op_of, subject_of
from ..report import NotApplicable
from ..subject import host, tensors_in
from .points import Point, like, map_tensors_once

MOST_SIZES = 6  # sizes of dims that are changed
MOST_APART = 24  # choices of some of the dims of one size
GROWN = (2, 3, 8, 17, 64, 65, 256, 1024, 1025)  # even, odd, blocks of kernels, and one element more than a block
MOST_ELEMENTS = 2**15  # elements of all inputs together after they have grown


def sizes(p):
    """Yield Points where every dim of n elements is cut to 1 or to 0, and where it is cut to 1 in one input only, which
    then broadcasts against the others."""
    if _has_modules(p):
        raise NotApplicable("the shapes of a Module are its own")
    tensors, every = list(dict.fromkeys(tensors_in(p.inputs))), _free_sizes(p)
    for m in (0, 1):
        for name, inputs, n in cuts(p, m):
            yield Point(name, p.fn, inputs, cut_size=n)
    for i, x in enumerate(tensors[:MOST_SIZES] if len(tensors) > 1 and not _is_formula_op(p) else ()):
        for n in sorted(set(x.shape) & set(every)):
            if not _too_small(tensors, 1):
                cut = resize_dims(p.inputs, n, lambda a, axis: np.take(a, [0], axis), [x])
                name = f"size {n} -> 1 in input {i} alone"
                yield Point(name, p.fn, cut, may_be_invalid=_has_index(tensors), backward_may_raise=True)


def cuts(p, m):
    """[(name, inputs, n)] of the same call with m elements along each dim of n, for all n."""
    if _has_modules(p) or _too_small(tensors_in(p.inputs), m):
        return []

    def cut(n):
        return resize_dims(p.inputs, n, lambda a, axis: np.take(a, range(m), axis))

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
    tensors = list(dict.fromkeys(tensors_in(p.inputs)))
    for name, inputs in () if _has_modules(p) or _is_formula_op(p) or _has_index(tensors) else _ranks(p, tensors):
        yield Point(name, p.fn, inputs, may_be_invalid=True, backward_may_raise=True)
    yield from _grow_apart(p, tensors)
    for n in _free_sizes(p):
        # where a loop in Python runs over a dim, 1025 might take 1025! ops, and no kernel would see more for it
        has_loop = (_count_ops(p, _grow(p, n, n + 1)) or 0) > (_count_ops(p, p.inputs) or 0)
        for m in [n + 1] if has_loop else sorted({*GROWN} - {n}):
            elements = sum(math.prod(m if size == n else size for size in x.shape) for x in tensors)
            if elements <= MOST_ELEMENTS and (m > n or not _too_small(tensors, m)):
                yield Point(f"size {n} -> {m}", p.fn, _grow(p, n, m), has_grown=m > n)


def _grow(p, n, m):
    return resize_dims(p.inputs, n, lambda a, axis: _resample(p.rng, a, axis, m))


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
            yield f"{lead} more dims", map_tensors_once(p.inputs, lambda x, lead=lead: more(x, lead))
        if len(tensors) > 1:
            one = map_tensors_once(p.inputs, lambda x, lead=lead: more(x, lead) if x is tensors[0] else x)
            yield f"{lead} more dims of input 0", one
            for n in _free_sizes(p):  # prepended dims and a dim of 1 at once
                cut = resize_dims(one, n, lambda a, axis: np.take(a, [0], axis), tensors_in(one)[1:])
                yield f"{lead} more dims of input 0, size {n} -> 1 in the others", cut
    if all(x.ndim and x.numel() for x in tensors):
        yield "no dims", map_tensors_once(p.inputs, lambda x: like(x, host(x).reshape(-1)[0]))
        yield "one dim", map_tensors_once(p.inputs, lambda x: like(x, host(x).reshape(-1)))


def _grow_apart(p, tensors):
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
                    array = _resample(p.rng, array, k + x.ndim, m) if tensors[i] is x else array
                return like(x, array)

            where = " and ".join(f"dim {k} of input {i}" for i, k in some)
            yield Point(
                f"size {n} -> {m} in {where} alone", p.fn, map_tensors_once(p.inputs, grown), has_grown=True,
                may_be_invalid=indices or (n == 1 and len(tensors) > 1), backward_may_raise=indices or n == 1,
            )  # fmt: skip


def _resample(rng, a, axis, m):
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
    return sorted({n for x in tensors_in(p.inputs) for n in x.shape if n >= least} - bound)[:MOST_SIZES]


def _is_formula_op(p):
    """True for an op that only minigrad's own ops call: it never broadcasts."""
    op = op_of(p.fn)
    return op is not None and issubclass(op, FormulaOp)


def resize_dims(inputs, n, change, chosen=None):
    """Return the inputs after change(array, axis) of every dim of n elements. chosen: in these Tensors only."""

    def resize(x):
        if n not in x.shape or (chosen is not None and not any(x is y for y in chosen)):
            return x
        array = host(x)
        for axis, size in enumerate(x.shape):
            array = change(array, axis) if size == n else array
        return like(x, array)

    return map_tensors_once(inputs, resize)
