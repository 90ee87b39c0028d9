"""The probes of shapes: the same function of inputs with smaller, larger, more and fewer dims."""

import contextlib
import itertools
import math

import numpy as np

from ... import autograd
from ...autograd import FormulaOp
from ...nn import Module
from ..call import op_of, subject_of
from ..report import NotApplicable
from ..subject import flat, host
from .base import attempts
from .constants import held_sizes, may_read_anywhere, whole_numbers
from .fresh import check_call
from .shrink import like, mapped_once, resized

MOST_SIZES = 6  # sizes, and inputs, that are tried
MOST_APART = 24  # choices of some of the dims of one size
GROWN = (2, 3, 8, 17, 65, 1025)  # even, odd, and one more than the blocks that kernels work in
MOST_ELEMENTS = 2**15  # of all inputs, after they have grown
MOST_ELEMENTS_KNOWN = 2**19  # where the new size is in the code: there it matters


def sizes(p):
    """The same function where every dim of n elements is cut to 1 or to 0, and where it is cut to 1 in one input only,
    which then broadcasts against the others. Inputs for which fn raises or gives NaN are left out. So are sizes
    that occur in a parameter bound with partial(), which is not cut with the inputs."""
    if _modules(p):
        raise NotApplicable("the shapes of a Module are its own")
    changes = _cuts(p)
    if not changes:
        raise NotApplicable("there is no dim to shrink")
    yield from attempts(_checks(p, changes), p)


def growth(p):
    """The same function where every dim of n elements has 2, 3, 8, 17, 65 or 1025, or a number in the code
    of its ops, where only some of them grow, and where inputs have one or two dims more, or none."""
    p.require_first_order()
    if may_read_anywhere(p):
        raise NotApplicable("the op does not look whether an index fits")
    changes = [*_ranks(p), *_apart(p), *_growths(p)]
    if not changes:
        raise NotApplicable("there is no dim to grow")
    yield from attempts(_checks(p, changes), p)


def resized_calls(p):
    """[(name, inputs)] of the same call with other sizes, for another call in between."""
    if _modules(p):
        return []
    return [(name, inputs) for name, inputs, *_ in _cuts(p) if name.endswith(" -> 1")]


def _checks(p, changes):
    held = tuple(f"size {n} ->" for n in held_sizes(p))

    def check(name, inputs, broadcasts, doubted):
        def lenient():
            """A backward that says that it does not broadcast is right to say so; inputs cut to 1 may do that too,
            against what fn holds itself."""
            return broadcasts or (name.endswith(" -> 1") and _ops_of_more(p, int(name.split()[1])) is None)

        yield check_call(p, name, p.fn, inputs, lenient, doubted=doubted or name.startswith(held))

    return [lambda change=change: check(*change) for change in changes]


def _ops_of_more(p, n):
    """How many ops run, there and back, where dims of n elements have n + 1; None if the function refuses that."""
    return _ops(p, resized(p.inputs, n, lambda a, axis: _resampled(p.rng, a, axis, n + 1)))


def _ops(p, inputs):
    ran = []
    with contextlib.ExitStack() as stack:
        try:
            subject = stack.enter_context(subject_of(p.fn, inputs, p.wrt))
            stack.enter_context(autograd.watch(lambda op, inputs, outputs: ran.append(op)))
            run = subject.run()
        except Exception:  # whatever it raises for an unsupported shape
            return None
        with contextlib.suppress(Exception):  # the check there reports it
            run.gradient([np.ones(y.shape) for y in run.outputs])
    return len(ran)


def _modules(p):
    return any(isinstance(x, Module) for x in (p.fn, *p.inputs))


def _free_sizes(p, least=2):
    """The sizes of dims that may change, from `least` on: not those bound by partial(), nor those of a parameter."""
    values = getattr(p.fn, "keywords", {}).values()
    bound = {n for value in values if isinstance(value, (tuple, list)) for n in value if isinstance(n, int)}
    bound |= {n for leaf in p.subject.leaves if leaf.parameter for n in leaf.array.shape}
    return sorted({n for x in flat(p.inputs) for n in x.shape if n >= least} - bound)[:MOST_SIZES]


def _fused(p):
    """Is it an op that is called by our own ops only? Those never broadcast."""
    op = op_of(p.fn)
    return op is not None and issubclass(op, FormulaOp)


def _cuts(p):
    """[(what is changed, the inputs after it, does one input broadcast against the others? Do they perhaps mean
    nothing, as the numbers of an index may where sizes are cut?)]"""

    def cut(n, m, chosen):
        return resized(p.inputs, n, lambda a, axis: np.take(a, range(m), axis), chosen)

    tensors, every = list(dict.fromkeys(flat(p.inputs))), _free_sizes(p)
    indices = [host(x) for x in tensors if x.dtype.kind in "iu"]

    def beyond(m):
        return any(a.max(initial=-1) >= m for a in indices)

    changes = [(f"size {n} -> {m}", cut(n, m, None), False, beyond(m)) for n in every for m in (0, 1)]
    for i, x in enumerate(tensors[:MOST_SIZES] if len(tensors) > 1 and not _fused(p) else ()):
        for n in sorted(set(x.shape) & set(every)):
            changes.append((f"size {n} -> 1 in input {i} alone", cut(n, 1, [x]), True, bool(indices)))
    return [change for change in changes if not may_read_anywhere(p) or not beyond(int(change[0].split()[3]))]


def _growths(p):
    tensors, every, changes = list(dict.fromkeys(flat(p.inputs))), _free_sizes(p), []
    known = {n + more for n in whole_numbers(p) if 1 < n < MOST_ELEMENTS_KNOWN for more in (0, 1)}
    # where a loop in Python runs over a dim, 1025 might take 1025! ops, and no kernel would see more for it
    here = _ops(p, p.inputs) or 0
    loops = {n for n in every if (_ops_of_more(p, n) or 0) > here}
    for n, m in itertools.product(every, sorted({*GROWN, *known, *(n + 1 for n in loops)} - {1})):
        if n in loops and m > n + 1:
            continue
        elements = sum(math.prod(m if size == n else size for size in x.shape) for x in tensors)
        if m != n and elements <= (MOST_ELEMENTS_KNOWN if m in known else MOST_ELEMENTS):
            inputs = resized(p.inputs, n, lambda a, axis, m=m: _resampled(p.rng, a, axis, m))
            changes.append((f"size {n} -> {m}", inputs, False, False))
    return changes


def _apart(p):
    """Where dims have n elements by accident, as height and width may: each of them grown alone, with one other, and
    with those at the same place in all inputs. What belongs together the forward refuses: a backward that then
    raises took one size for another. Dims of 1 may grow too, as that of a batch; but where another input's do not, a
    function may mean a number by it."""
    tensors, every, changes = list(dict.fromkeys(flat(p.inputs))), _free_sizes(p, 1), []
    indices = any(x.dtype.kind in "iu" for x in tensors)
    for n in every if 3 * sum(x.numel() for x in tensors) <= MOST_ELEMENTS else ():
        m = next(m for m in itertools.count(max(3, 2 * n), n) if m not in every)
        places = [(i, k - x.ndim) for i, x in enumerate(tensors) for k, size in enumerate(x.shape) if size == n]
        aligned = [tuple(at for at in places if at[1] == k) for k in {k for _, k in places}]
        chosen = [*itertools.combinations(places, 1), *aligned, *itertools.combinations(places, 2)]
        for some in [some for some in dict.fromkeys(chosen) if n == 1 or len(some) < len(places)][:MOST_APART]:

            def grown(x, some=some, m=m):
                array = host(x)
                for i, k in some:
                    array = _resampled(p.rng, array, k + x.ndim, m) if tensors[i] is x else array
                return like(x, array)

            name = f"size {n} -> {m} in {' and '.join(f'dim {k} of input {i}' for i, k in some)} alone"
            doubted = indices or (n == 1 and len(tensors) > 1)
            changes.append((name, mapped_once(p.inputs, grown), indices or n == 1, doubted))
    return changes


def _resampled(rng, a, axis, m):
    """m slices along an axis: those that are there, or between two of them, so that all stay in the domain. Numbers in
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


def _ranks(p):
    """Inputs with one or two leading dims more, in all of them or in the first alone, and without any."""
    if _modules(p) or _fused(p):
        return []
    tensors = list(dict.fromkeys(flat(p.inputs)))
    changes = []

    def more(lead):
        def change(x):
            a = np.repeat(host(x)[None], math.prod(lead), 0).reshape(*lead, *x.shape)
            if a.dtype.kind == "f":
                a = a * p.rng.uniform(0.9, 1.0, a.shape)
            return like(x, a.astype(x.dtype))

        return change

    for lead in ((1,), (2,), (2, 3)):
        if sum(x.numel() for x in tensors) * math.prod(lead) > MOST_ELEMENTS:
            continue
        changes.append((f"{lead} more dims", mapped_once(p.inputs, more(lead)), True, True))
        if len(tensors) > 1:
            one = mapped_once(p.inputs, lambda x, lead=lead: more(lead)(x) if x is tensors[0] else x)
            changes.append((f"{lead} more dims of input 0", one, True, True))
            others = flat(one)[1:]
            for n in _free_sizes(p) if lead == (2,) else ():  # prepended dims and a dim of 1 at once
                cut = resized(one, n, lambda a, axis: np.take(a, [0], axis), others)
                changes.append((f"{lead} more dims of input 0, size {n} -> 1 in the others", cut, True, True))
    if all(x.ndim and x.numel() for x in tensors):
        first = mapped_once(p.inputs, lambda x: like(x, host(x).reshape(-1)[0]))
        fewer = mapped_once(p.inputs, lambda x: like(x, host(x)[0]) if x.ndim > 1 else x)
        flattened = mapped_once(p.inputs, lambda x: like(x, host(x).reshape(-1)))
        fewer_dims = {"no dims": first, "a dim less": fewer, "one dim": flattened}
        changes += [(name, inputs, True, True) for name, inputs in fewer_dims.items()]
    return changes
