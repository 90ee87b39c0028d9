"""What differences cannot see: a backward that is right here and now, and wrong in another layout, at the second call,
for a shared input … Each probe is a function of a Probed that yields Findings, or raises NotApplicable."""

import itertools

import numpy as np

from .. import autograd, backend
from ..autograd import reachable
from .kinks import piece
from .probed import EPS32, NotApplicable, difference_of
from .report import FAIL, PASS, Finding
from .rounding import unsteadiness
from .sizes import sizes
from .subject import host, joined, wrapped


def linearity(p):
    """A backward is linear in its cotangent, and exactly 0 for a cotangent of zeros."""
    c, d = p.cotangents, [p.rng.standard_normal(x.shape).astype(x.dtype) for x in p.cotangents]
    gd = p.at(None, d)[1]
    combined = p.at(None, [2 * x - 3 * y for x, y in zip(c, d)])[1]
    expected = [2 * a - 3 * b for a, b in zip(p.gradient, gd)]
    yield from p.same("linearity", expected, combined, "not linear in the cotangent", slack=1e-9)
    zeros = p.at(None, [np.zeros_like(x) for x in c])[1]
    yield from p.same_bits(
        "zero cotangent", [np.zeros_like(g) for g in zeros], zeros, "a cotangent of zeros must give 0"
    )


def unchanged(p):
    """Forward and backward leave alone what they are given: inputs, outputs, cotangents, also those on the way."""
    arrays, cotangents = [a.copy() for a in p.subject.arrays], [c.copy() for c in p.cotangents]
    run = p.subject.run(arrays, copy=False)
    watched = [(f"input {leaf.name}", a, b) for leaf, a, b in zip(p.subject.leaves, arrays, p.subject.arrays)]
    watched += [(f"the cotangent of output {i}", a, b) for i, (a, b) in enumerate(zip(cotangents, p.cotangents))]
    watched += [(f"output {i}", y.array, host(y).copy()) for i, y in enumerate(run.outputs)]
    for op, nodes in reachable(run.roots, 0).items():
        for node in nodes.values():
            node.hooks = {
                None: lambda g, op=op: watched.append(
                    (f"the gradient for the output of {op.name}", g.array, host(g).copy())
                )
            }
    p.backward(run, cotangents)
    watched += [(f"input {name}", array, before) for name, array, before in p.subject.passed]
    for what, array, before in watched:
        now = run.outputs[0].storage.backend.to_numpy(array)
        if not np.array_equal(now, before, equal_nan=True):
            yield Finding("unchanged", FAIL, note=f"{what} was changed in place", excess=np.inf)
    yield Finding("unchanged", PASS)


def interleaved(p):
    """Calls at other points, with other random numbers, between forward and backward change nothing: no buffer is
    shared between calls."""
    run = p.subject.run()
    state = p.subject.random_state
    p.subject.random_state = {"seed": state["seed"] + 1, "offset": state["offset"]}
    arrays = [x * (1 + p.rng.integers(1, 8, x.shape) / 64) for x in p.subject.arrays]
    p.at(arrays, [1.5 * c for c in p.cotangents])
    p.subject.random_state = state
    if not np.array_equal(joined([host(y) for y in run.outputs]), run.y, equal_nan=True):
        yield Finding("interleaved", FAIL, note="another call changes the outputs of this one", excess=np.inf)
    between = p.backward(run)
    yield from p.same_bits("interleaved", p.gradient, between, "another call before the backward changes the gradient")


def repeatable(p):
    """The same call gives the same bits, and so does a second backward through one graph."""
    y, again = p.at()
    if not np.array_equal(y, p.run.y, equal_nan=True):
        note = "two calls at one point differ: does it draw random numbers that are not from the default generator?"
        yield Finding("repeatable", FAIL, note=note, excess=np.inf)
        return
    yield from p.same_bits("repeatable", p.gradient, again, "the same call twice gives two gradients")
    run = p.subject.run()
    for _ in range(2):
        second = p.backward(run, retain_graph=True)
    yield from p.same_bits("second backward", p.gradient, second, "a second backward through the same graph differs")


def layouts(p):
    """The same numbers in other memory layouts, of the inputs and of the cotangents, give the same gradients."""
    arrays = p.subject.arrays
    for name, layout in LAYOUTS.items():
        y, gradient = p.at([layout(a) for a in arrays])
        yield p.same_outputs(f"layout {name}", p.run.y, y, f"wrong where inputs are {name}")
        yield from p.same(f"layout {name}", p.gradient, gradient, f"wrong where inputs are {name}")
        for odd in (0, 1) if len(arrays) > 1 else ():
            mixed = [layout(a) if i % 2 == odd else a.copy() for i, a in enumerate(arrays)]
            y, gradient = p.at(mixed)
            yield p.same_outputs(f"layout {name}, mixed", p.run.y, y, f"wrong where some inputs are {name}")
            yield from p.same(f"layout {name}, mixed", p.gradient, gradient, f"wrong where some inputs are {name}")
        gradient = p.at(None, [layout(c) for c in p.cotangents])[1]
        yield from p.same(f"cotangent {name}", p.gradient, gradient, f"wrong where the cotangent is {name}")
    if any(not leaf.given.flags.c_contiguous for leaf in p.subject.leaves):
        given = [leaf.given if leaf.given.dtype == np.float64 else leaf.array for leaf in p.subject.leaves]
        yield from p.same("layout as given", p.gradient, p.at(given)[1], "wrong in the layout that was passed")
    for axis in (0, -1):
        equal = [_broadcast(a, axis) for a in arrays]
        if any(a.size > b.size for a, b in zip(arrays, map(_distinct, equal))):
            contiguous, broadcast = p.at([a.copy() for a in equal])[1], p.at(equal)[1]
            note = f"wrong where dim {axis} is broadcast"
            yield from p.same(f"layout broadcast {axis}", contiguous, broadcast, note, arrays=equal)
    equal = [np.broadcast_to(c[(slice(0, 1),) * c.ndim], c.shape) for c in p.cotangents]  # as that of a sum() is
    contiguous, broadcast = p.at(arrays, [c.copy() for c in equal])[1], p.at(arrays, equal)[1]
    yield from p.same("cotangent broadcast", contiguous, broadcast, "wrong where the cotangent is broadcast")


def _strided(a):
    wide = np.full(a.shape[:-1] + (2 * a.shape[-1],), np.nan if a.dtype.kind == "f" else 0, a.dtype)
    wide[..., ::2] = a
    return wide[..., ::2]


LAYOUTS = {
    "fortran": lambda a: a.copy(order="F"),
    "strided": lambda a: _strided(a) if a.ndim else a.copy(),  # every second element of something larger; NaN between
    "reversed": lambda a: np.flip(np.flip(a).copy()) if a.ndim else a.copy(),
}


def _broadcast(a, axis):
    """a with its first slice along axis repeated, stride 0."""
    return np.broadcast_to(np.take(a, [0], axis), a.shape) if a.ndim and a.shape[axis] else a


def _distinct(a):
    return a[tuple(slice(0, 1) if s == 0 else slice(None) for s in a.strides)]


def repeated_input(p):
    """fn(x, x): the gradient is the sum of those of fn(x1, x2) at x1 = x2 = x."""
    if p.source[3] > 1:
        raise NotApplicable("of the first order only: what is asked for would be tied too")
    leaves = p.subject.leaves
    free = [i for i, leaf in enumerate(leaves) if not leaf.parameter]
    pairs = [(i, j) for i in free for j in free if i < j and leaves[i].array.shape == leaves[j].array.shape]
    if not pairs:
        raise NotApplicable("no two inputs have the same shape")
    for i, j in pairs[:3]:
        arrays = list(p.subject.arrays)
        arrays[j] = arrays[i]
        apart = p.at([a.copy() for a in arrays])[1]
        if not np.isfinite(joined(apart)).all():
            yield Finding("repeated input", PASS, note=f"{leaves[i].name} is outside the domain of {leaves[j].name}")
            continue
        run = p.subject.run(arrays, tie=(i, j))
        shared = p.backward(run)
        expected = [a.copy() for a in apart]
        expected[i] = apart[i] + apart[j]
        note = f"fn(x, x) for {leaves[i].name} and {leaves[j].name} differs from the sum of the two gradients"
        yield from list(p.same("repeated input", expected, shared, note))[i : i + 1]


def accumulation(p):
    """backward() twice leaves exactly twice the gradient in .grad, in memory of its own."""
    run = p.subject.run()
    pairs = [(y, wrapped(c.copy(), y)) for y, c in zip(run.outputs, p.cotangents) if y.node is not None]
    for times in (1, 2):
        autograd.backward([y.node for y, _ in pairs], [c for _, c in pairs], retain_graph=True)
        found = [np.zeros(n.shape) if n.grad is None else host(n.grad).copy() for n in run.nodes]
        note = f".grad after {times} backward(s)"
        yield from p.same_bits("accumulation", [times * g for g in p.gradient], found, note)
        if times == 1:  # adding makes a new array
            yield from _memory(p, run, [c for _, c in pairs])


def _memory(p, run, cotangents):
    """Is any .grad in the memory of another, of an input or of a cotangent?"""
    named = [(f".grad of {leaf.name}", n.grad) for leaf, n in zip(p.subject.leaves, run.nodes) if n.grad is not None]
    named += [(f"input {leaf.name}", x) for leaf, x in zip(p.subject.leaves, run.leaves)]
    named += [(f"cotangent {i}", c) for i, c in enumerate(cotangents)]
    for i, (a, x) in enumerate(named):
        for b, y in named[:i]:
            if ".grad" in a + b and x.array.size and np.shares_memory(host(x), host(y)):
                yield Finding("memory", FAIL, note=f"{a} shares memory with {b}", excess=np.inf)
    yield Finding("memory", PASS)


def alone(p):
    """The gradient of one input at a time (and of two of three) is the one that it has among all."""
    if len(p.subject.leaves) < 2:
        raise NotApplicable("there is one input")
    if p.source[3] > 1:
        raise NotApplicable("of the first order only: a gradient's outputs depend on what is asked for")
    n = len(p.subject.leaves)
    for size in range(1, n if n <= 3 else 2):
        for chosen in itertools.combinations(range(n), size):
            run = p.subject.run(needs=[i in chosen for i in range(n)])
            if not run.roots:
                continue
            found = list(p.gradient)
            for i, g in zip(chosen, p.backward(run, wrt=chosen)):
                found[i] = g
            yield from p.same("alone", p.gradient, found, "differs when not all inputs need a gradient")


def modes(p):
    """Forward gives the same bits under no_grad, and backward under create_graph."""
    with autograd.no_grad():
        try:
            y = p.subject.run().y
        except autograd.GraphError as why:
            raise NotApplicable(f"it needs a graph of its own ({why})") from None
    if y.shape == p.run.y.shape:
        same = np.array_equal(y, p.run.y, equal_nan=True)
        yield Finding(
            "no_grad",
            PASS if same else FAIL,
            note="" if same else "outputs differ under no_grad",
            excess=0.0 if same else np.inf,
        )
    run = p.subject.run()
    again = p.backward(run, create_graph=True)
    yield from p.same("create_graph", p.gradient, again, "the gradient differs under create_graph")


def float32(p):
    """The gradient in float32 is float32, and off by no more ulps than its conditioning explains. An element that is
    1e-5 of its cotangent or less may be off by all of itself: 1 - y² of a saturated tanh is 0 in float32."""
    if p.source[3] > 1:
        raise NotApplicable("of the first order only")
    if any(
        leaf.array.size and np.abs(leaf.array[np.isfinite(leaf.array)]).max(initial=0) > 1e30
        for leaf in p.subject.leaves
    ):
        raise NotApplicable("inputs beyond the range of float32")
    arrays = [a.astype(np.float32) for a in p.subject.arrays]
    cotangents = [c.astype(np.float32) for c in p.cotangents]
    exact = p.at([a.astype(np.float64) for a in arrays], [c.astype(np.float64) for c in cotangents])[1]
    try:
        p.subject.run(arrays)
    except (TypeError, ValueError) as why:
        raise NotApplicable(f"it refuses float32: {why}") from None
    y, single = p.at(arrays, cotangents)
    if np.abs(y - p.run.y).max(initial=0) > 1e-3 * np.abs(p.run.y).max(initial=0):
        raise NotApplicable("in float32 its values are off by a thousandth already")
    if piece(p.subject, arrays) != piece(p.subject, [a.astype(np.float64) for a in arrays]):
        raise NotApplicable("in float32 it is on the other side of a kink")
    single = [g.astype(np.float64) for g in single]
    unsteady = unsteadiness(p.subject, joined(cotangents), arrays)[1]
    largest = max((np.abs(c).max(initial=0) for c in p.cotangents), default=0)
    for leaf, a, g, rough, spread in zip(p.subject.leaves, exact, single, unsteady, p.spread(EPS32)[1:]):
        if not np.abs(a).max(initial=0) < 1e30:
            continue
        ulp = EPS32 * np.abs(a).max(initial=0)
        spread = max(spread, np.abs(rough).max(initial=0), EPS32 * p.terms(leaf))  # conditioning, rounding on the way
        allowed = (64 + 4 * np.sqrt(p.run.y.size + leaf.array.size)) * ulp + 64 * (spread + EPS32 * largest)
        excess = difference_of(a, g) / (allowed or 1e-300)
        f = p.finding("float32", leaf, a, g, excess, "far off in float32")
        f.note = f.note or (f"{np.abs(g - a).max(initial=0) / ulp:.1f} ulps of the largest" if ulp else "")
        yield f


def device(p):
    """The same outputs and gradients on the device as on the cpu."""
    if all(leaf.backend.device == "cpu" for leaf in p.subject.leaves):
        raise NotApplicable("the inputs are on the cpu, which is the reference")
    y, gradient = p.at(None, on=backend.get("cpu"))
    yield p.same_outputs("device", y, p.run.y, "other than on the cpu")
    yield from p.same("device", gradient, p.gradient, "differs from the cpu")


PROBES = {
    f.__name__: f
    for f in (
        linearity, unchanged, interleaved, repeatable, layouts, repeated_input, accumulation, alone, modes, sizes,
        float32, device,
    )
}  # fmt: skip
