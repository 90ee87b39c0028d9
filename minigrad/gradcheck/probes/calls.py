"""The probes that repeat the same call under other conditions: a backward that is right once may be wrong at the second
call, in another grad mode or thread, or because it writes where it must not."""

import threading

import numpy as np

from ... import autograd
from ..call import subject_of
from ..numeric import EPS
from ..report import PASS, Finding, NotApplicable, failure
from ..snippet import snippet_of_prepared
from ..subject import PRECISION, host, joined, wrapped
from .base import Refused, attempts, refusal
from .fresh import check_point
from .sizes import resized_calls

SMALLEST = {eps: float(np.finfo(dtype).smallest_subnormal) for dtype, eps in PRECISION.items()}


def linearity(p):
    """A backward is linear in its cotangent, also where some of it is 0 or all of it is 1, and 0 for zeros."""
    others = [p.rng.standard_normal(dy.shape).astype(dy.dtype) for dy in p.dys]
    run = p.subject.run()

    def gradient(dys):
        return p.backward(run, dys, retain_graph=True)

    other, combined = gradient(others), gradient([2 * a - 3 * b for a, b in zip(p.dys, others)])
    expected = [2 * a - 3 * b for a, b in zip(p.gradient, other)]
    yield from p.same("linearity", expected, combined, "not linear in the cotangent", slack=1e-9)
    for what, parts in (
        ("0 at some outputs", [dy * (p.rng.random(dy.shape) < 0.5) for dy in p.dys]),
        ("1 at all outputs", [np.ones_like(dy) for dy in p.dys]),
        ("positive", [np.abs(dy) for dy in p.dys]),
    ):
        rest = [dy - part for dy, part in zip(p.dys, parts)]
        total = [a + b for a, b in zip(gradient(parts), gradient(rest))]
        yield from p.same("linearity", p.gradient, total, f"not linear where the cotangent is {what}", slack=1e-9)
    found = gradient([np.zeros_like(dy) for dy in p.dys])
    zeros = [np.zeros_like(g) for g in found]
    yield from p.same_bits("zero cotangent", zeros, found, "a cotangent of zeros must give 0")


def scaling(p):
    """A cotangent 2^k times as large gives 2^k times the gradient, but for rounding: no constant is added to it, it is
    not clipped, and it is not compared with anything. What is below the normal numbers of a dtype on the way, as 6e-5
    in float16, loses bits."""
    run = p.subject.run()
    largest = max((np.abs(dy).max(initial=0) for dy in p.dys), default=0.0)
    least = SMALLEST[p.coarsest]
    for k in (-24, 24, -60, 60) if p.coarsest == EPS else (-8, 8):
        scale = 2.0**k
        found = p.backward(run, [dy * scale for dy in p.dys], retain_graph=True)
        for leaf, a, b in zip(p.subject.leaves, p.gradient, found):
            lost = 64 * least * max(1.0, scale) * max(1.0, p.terms(leaf)) if p.coarsest > EPS else 0.0
            lost += max(64 * p.coarsest, p.comparison.rtol) * scale * np.abs(a[np.isfinite(a)]).max(initial=0)
            known = (np.abs(a) > 1e-200 * largest) & (np.abs(a) < 1e200)
            exact = np.where(known, ~(np.abs(b - a * scale) <= lost), False)
            note = f"a cotangent 2^{k} times as large gives another gradient than 2^{k} times it"
            f = p.finding("scaling", leaf, a * scale, b, np.where(exact, np.inf, 0.0), note)
            yield p.doubted(f) if abs(k) > 24 else f  # an algorithm may lose digits that far away


def single_outputs(p):
    """A cotangent for one output alone, None for the others, gives that output's part of the gradient."""
    if len(p.dys) < 2:
        raise NotApplicable("there is one output")
    run = p.subject.run()
    total = [np.zeros_like(g) for g in p.gradient]
    for i, y in enumerate(run.outputs):
        if y.node is None:
            continue
        alone = p.backward(run, [dy if i == j else dy * 0 for j, dy in enumerate(p.dys)], retain_graph=True)
        dys = [wrapped(dy.copy(), y) if i == j else None for j, (dy, y) in enumerate(zip(p.dys, run.outputs))]
        given = run.backward(dys, run.nodes, retain_graph=True)
        found = [np.zeros_like(a) if g is None else host(g) for a, g in zip(alone, given)]
        yield from p.same("single outputs", alone, found, f"wrong where only output {i} has a cotangent")
        total = [a + b for a, b in zip(total, found)]
    yield from p.same("single outputs", p.gradient, total, "the gradients for single outputs do not add up", slack=1e-9)


def unchanged(p):
    """Forward and backward do not change inputs, outputs or cotangents, also intermediate ones."""
    arrays, dys = [a.copy() for a in p.subject.arrays], [dy.copy() for dy in p.dys]
    run = p.subject.run(arrays, copy=False)
    kept = [(f"input {leaf.name}", a, b) for leaf, a, b in zip(p.subject.leaves, arrays, p.subject.arrays)]
    kept += [(f"the cotangent of output {i}", a, b) for i, (a, b) in enumerate(zip(dys, p.dys))]
    kept += [(f"output {i}", y.array, host(y).copy()) for i, y in enumerate(run.outputs)]
    for op, node in run.results():
        what = f"the gradient for the output of {op.name}"
        node.add_hook(lambda g, what=what: kept.append((what, g.array, host(g).copy())))
    p.backward(run, dys)
    kept += [(f"input {name}", array, before) for name, array, before in p.subject.constants]
    for what, array, before in kept:
        now = run.outputs[0].storage.backend.to_numpy(array)
        if not np.array_equal(now, before, equal_nan=True):
            yield failure("unchanged", f"{what} was changed in place")
    yield Finding("unchanged", PASS)


def overwritten(p):
    """An input or output changed in place between forward and backward: an error, or the right gradient."""
    p.require_first_order()
    run = p.subject.run()
    targets: list = [(f"input {leaf.name}", i, None) for i, leaf in enumerate(p.subject.leaves)]
    targets += [(f"output {i}", None, i) for i in range(len(run.outputs))]
    for what, leaf, output in targets:
        run = p.subject.run()
        x = run.outputs[output] if leaf is None else run.leaves[leaf]
        if not x.numel():
            continue
        with autograd.no_grad():
            try:
                x.mul_(1.5).add_(0.25)
            except Exception as error:  # a view of what is broadcast cannot be written to
                yield Finding("overwritten", PASS, note=f"{type(error).__name__}: {error}")
                continue
        try:
            found = p.backward(run)
        except RuntimeError:  # the engine's GraphError, or the op's own
            continue
        note = f"{what} was changed in place before the backward, which neither noticed nor kept what it needs"
        yield from p.same("overwritten", p.gradient, found, note)


def interleaved(p):
    """A call at another point, with other random numbers, between forward and backward changes nothing: no buffer is
    shared between calls. Nor does one of other sizes, or in another dtype."""
    calls = [("another call", _call_elsewhere), *_other_calls(p)]
    yield from attempts([lambda call=call: _between(p, *call) for call in calls], p)


def _between(p, name, call):
    run = p.subject.run()
    state = p.subject.random_state
    p.subject.random_state = {"seed": state["seed"] + 1, "offset": state["offset"]}
    try:
        call(p)
    finally:
        p.subject.random_state = state
    if not np.array_equal(joined([host(y) for y in run.outputs]), run.y, equal_nan=True):
        yield failure("interleaved", f"{name} changes the outputs of this one")
    found = p.backward(run)
    yield from p.same_bits("interleaved", p.gradient, found, f"{name} before the backward changes the gradient")


def _call_elsewhere(p):
    dys = [1.5 * dy for dy in p.dys]
    try:
        p.at([x * (1 + p.rng.integers(1, 8, x.shape) / 64) for x in p.subject.arrays], dys)
    except Refused:  # it leaves the domain: then with other random numbers only
        p.at(None, dys)


def _other_calls(p):
    """(name, call) of calls in float32, and of sizes that the function accepts."""

    def in_float32(p):
        run = p.forward([a.astype(np.float32) for a in p.subject.arrays])
        try:
            p.backward(run)
        except Exception as error:
            raise Refused(str(error)) from None  # float32's own probe will say so

    calls = [("a call in float32", in_float32)] if p.order == 1 else []
    for name, inputs in resized_calls(p)[:2] if p.order == 1 else ():

        def at_other_sizes(p, inputs=inputs):
            try:
                with subject_of(p.fn, inputs, p.wrt) as subject:
                    run = subject.run()
                    run.gradient([np.ones(y.shape) for y in run.outputs])
            except Exception as error:
                raise Refused(str(error)) from None

        calls.append((f"a call with {name}", at_other_sizes))
    return calls


def repeatable(p):
    """The same call gives the same bits, also in another thread, and so does a second backward through one graph."""
    y, again = p.at()
    if not np.array_equal(y, p.run.y, equal_nan=True):
        note = "two calls at one point differ: does it draw random numbers that are not from the default generator?"
        yield failure("repeatable", note)
        return
    yield from p.same_bits("repeatable", p.gradient, again, "the same call twice gives two gradients")
    run = p.subject.run()
    for _ in range(2):
        second = p.backward(run, retain_graph=True)
    yield from p.same_bits("second backward", p.gradient, second, "a second backward through the same graph differs")
    run = p.subject.run()
    found = _in_a_thread(lambda: p.backward(run))
    yield from p.same_bits("thread", p.gradient, found, "a backward in another thread than the forward's differs")


def _in_a_thread(function):
    """What the function returns, or raises, in another thread."""
    result, errors = [], []

    def work():
        try:
            with np.errstate(all="ignore"):
                result.append(function())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return result[0]


def accumulation(p):
    """backward() twice leaves exactly twice the gradient in .grad, in memory of its own."""
    run = p.subject.run()
    dys = [wrapped(dy.copy(), y) for dy, y in zip(p.dys, run.outputs)]
    for times in (1, 2):
        run.backward(dys, retain_graph=True)
        found = [np.zeros(n.shape) if n.grad is None else host(n.grad).copy() for n in run.nodes]
        note = f".grad after {times} backward(s)"
        yield from p.same_bits("accumulation", [times * g for g in p.gradient], found, note)
        if times == 1:  # the second backward makes a new array of the sum
            yield from _memory(p, run, dys)


def _memory(p, run, dys):
    """Is any .grad in the memory of another, of an input or of a cotangent?"""
    named = [(f".grad of {leaf.name}", n.grad) for leaf, n in zip(p.subject.leaves, run.nodes) if n.grad is not None]
    named += [(f"input {leaf.name}", x) for leaf, x in zip(p.subject.leaves, run.leaves)]
    named += [(f"cotangent {i}", dy) for i, dy in enumerate(dys)]
    for i, (a, x) in enumerate(named):
        for b, y in named[:i]:
            if ".grad" in a + b and x.array.size and np.shares_memory(host(x), host(y)):
                yield failure("memory", f"{a} shares memory with {b}")
    yield Finding("memory", PASS)


def modes(p):
    """Forward gives the same bits under no_grad; the same but for rounding, if it is of another framework, which may
    choose another algorithm then. Backward gives the same gradient under no_grad and create_graph."""
    with autograd.no_grad():
        try:
            y = p.subject.run().y
        except autograd.GraphError as why:
            raise NotApplicable(f"it needs a graph of its own ({why})") from None
    if y.shape == p.run.y.shape:
        if p.framework:
            yield p.same_outputs("no_grad", p.run.y, y, "not the same under no_grad")
        else:
            same = np.array_equal(y, p.run.y, equal_nan=True)
            yield Finding("no_grad", PASS) if same else failure("no_grad", "outputs differ under no_grad")
    run = p.subject.run()
    with autograd.no_grad():
        found = p.backward(run)
    yield from p.same_bits("no_grad", p.gradient, found, "the gradient differs where backward() runs under no_grad")
    run = p.subject.run()
    try:
        again = p.backward(run, create_graph=True)
    except Exception as error:  # a backward in NumPy, say, has no derivative, and nobody asked for one
        yield Finding("create_graph", PASS, note=f"not under create_graph: {type(error).__name__}")
        return
    yield from p.same("create_graph", p.gradient, again, "the gradient differs under create_graph")


def second_order(p):
    """The gradient of the gradient, along a few directions; order=2 checks all of it. It is wrong where the backward
    uses an intermediate result of the forward, which has no graph. A WARN, since the first order is right."""
    p.require_first_order()
    if p.subject.expected is not None:
        raise NotApplicable("the intended gradient is no derivative")
    derived = p.subject.derivative(p.rng)
    try:
        run = derived.run()
        found = run.gradient([np.ones(y.shape) for y in run.outputs]) if run.roots else []
    except Exception as error:  # a backward in NumPy, say
        raise refusal(error) from None
    if not any(g.any() for g in found[len(p.subject.leaves) :]):  # a gradient is linear in dy
        raise NotApplicable("the backward leaves no graph")
    f = check_point(p, "second order", derived)
    p.subject.evaluations += derived.evaluations
    if f.verdict != PASS:
        f.note = "the gradient is right, its own gradient is not (order=2): does the backward use what has no graph?"
        f.snippet = snippet_of_prepared(p.fn, p.inputs, {"wrt": p.wrt, "order": 2})
    yield p.doubted(f)
