"""What differences cannot see: a backward that is right here and now, and wrong at the second call, under another grad
mode, or because it writes where it must not. The probes here make the same call in other circumstances; those of
variants.py change its inputs. Each is a function of a Probed that yields Findings, or raises NotApplicable."""

import itertools

import numpy as np

from .. import autograd
from .compare import difference_of
from .numeric import EPS
from .report import FAIL, NONFINITE, PASS, Finding, NotApplicable, failure
from .rounding import unsteadiness
from .subject import PRECISION, host, joined, wrapped
from .variants import device, float32, layouts, repeated_input, sizes


class Probed:
    """What all probes start from: a function at one point, its gradient there for one random cotangent, and how much
    rounding may change that."""

    def __init__(self, comparison, fn, inputs, wrt, order):
        self.comparison, self.subject, self.rng = comparison, comparison.subject, comparison.rng
        self.fn, self.inputs, self.wrt, self.order = fn, inputs, wrt, order
        self.coarsest = EPS  # of the float dtypes on the way: a function may compute in float32 inside

        def note_dtype(op, inputs, outputs):
            for y in outputs:
                if y is not None and y.dtype.kind == "f":
                    self.coarsest = max(self.coarsest, PRECISION[y.dtype])

        with autograd.watch(note_dtype):
            self.run = self.subject.run()
        if not self.run.roots:
            raise NotApplicable("no output depends on the inputs")
        self.dys = [self.rng.standard_normal(y.shape).astype(y.dtype) for y in self.run.outputs]
        self.gradient, self.noise, self.flow = comparison.rounding.gradient([dy.copy() for dy in self.dys])
        self._spread: dict = {}

    def at(self, arrays=None, dys=None, on=None):
        """(outputs as one vector, gradient of each leaf) of a fresh run at `arrays`, in the layouts that they have.

        The defaults, the point itself and `self.dys`, are copied, since fn may write into what it is given."""
        run = self.subject.run(arrays, on, copy=arrays is None)
        return run.y, self.backward(run, dys)

    def backward(self, run, dys=None, **options):
        """The gradient of each leaf."""
        return run.gradient([dy.copy() for dy in self.dys] if dys is None else dys, **options)

    # -- by how much two results may differ

    def spread(self, eps=EPS):
        """By how much the outputs, and each leaf's gradient, change when the inputs change by eps of themselves."""
        if eps not in self._spread:
            changes = []
            for _ in range(3):
                moved = [x * (1 + eps * self.rng.choice([-1.0, 1.0], x.shape)) for x in self.subject.arrays]
                y, gradient = self.at(moved)
                pairs = zip([y, *gradient], [self.run.y, *self.gradient])
                changes.append([np.nan_to_num(np.abs(a - b)).max(initial=0) for a, b in pairs])
            self._spread[eps] = np.max(changes, axis=0)
        return self._spread[eps]

    def terms(self, leaf):
        """The size of what adds up to the gradient of a leaf, before anything cancels."""
        return self.flow / max(np.abs(leaf.array[np.isfinite(leaf.array)]).max(initial=0), 1e-300)

    def unsteadiness(self, arrays=None):
        """What rounding inside does to the outputs, and to each leaf's gradient. Slow: ask only in doubt."""
        change, changes = unsteadiness(self.subject, joined(self.dys), arrays)
        return np.nan_to_num(change), [np.nan_to_num(g) for g in changes]

    # -- Findings for two results

    def same_bits(self, check, expected, found, note):
        """For two gradients that must be equal to the last bit."""
        for leaf, a, b in zip(self.subject.leaves, expected, found):
            yield self.finding(check, leaf, a, b, np.where(difference_of(a, b) > 0, np.inf, 0.0), note)

    def same(self, check, expected, found, note, slack=1e-10, arrays=None):
        """For two gradients, at the point or at `arrays`, that may differ by rounding: by `slack` of the largest
        element, by 64 times what a relative change of EPS in the inputs does, or by what rounding inside does."""
        if self.coarsest > EPS:
            slack = max(slack, 64 * self.coarsest)
        for i, (leaf, a, b, spread) in enumerate(zip(self.subject.leaves, expected, found, self.spread()[1:])):
            allowed = slack * np.abs(a[np.isfinite(a)]).max(initial=0) + 64 * (spread + EPS * self.terms(leaf))
            difference = difference_of(a, b)
            if (difference > allowed).any():
                allowed += 64 * self.unsteadiness(arrays)[1][i].max(initial=0)
            yield self.finding(check, leaf, a, b, difference / (allowed or 1e-300), note)

    def same_outputs(self, check, expected, found, note):
        """For outputs that must be the same but for rounding. A single Finding."""
        difference = difference_of(expected, found)
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=0)
        allowed = max(1e-10, 64 * self.coarsest) * largest + 64 * self.noise
        if (difference > allowed).any():
            allowed += 64 * (self.unsteadiness()[0] + self.spread()[0])
        if (difference <= allowed).all():
            return Finding(check, PASS)
        m = int(np.argmax(difference))
        f = failure(check, f"an output is {note} ('numeric' is what it should equal)")
        f.output, f.analytic, f.numeric = self.run.output_name(m), float(found[m]), float(expected[m])
        return f

    def finding(self, check, leaf, expected, found, excess, note):
        """For the gradient of one leaf, whose element j exceeds what is allowed excess[j] times."""
        if not np.size(excess):
            return Finding(check, PASS, leaf.name)
        j = int(np.argmax(excess))
        f = Finding(check, PASS if excess.flat[j] <= 1 else FAIL, leaf.name, excess=float(excess.flat[j]))
        f.analytic, f.numeric = float(found.flat[j]), float(expected.flat[j])
        if f.verdict == FAIL:
            f.index = tuple(int(n) for n in np.unravel_index(j, leaf.array.shape))
            f.note = f"{note} ({int((excess > 1).sum())} of {excess.size} elements; 'numeric' is what it should equal)"
        return f


# -- the probes that make the same call


def linearity(p):
    """A backward is linear in its cotangent, and exactly 0 for a cotangent of zeros."""
    others = [p.rng.standard_normal(dy.shape).astype(dy.dtype) for dy in p.dys]
    other = p.at(None, others)[1]
    combined = p.at(None, [2 * a - 3 * b for a, b in zip(p.dys, others)])[1]
    expected = [2 * a - 3 * b for a, b in zip(p.gradient, other)]
    yield from p.same("linearity", expected, combined, "not linear in the cotangent", slack=1e-9)
    found = p.at(None, [np.zeros_like(dy) for dy in p.dys])[1]
    zeros = [np.zeros_like(g) for g in found]
    yield from p.same_bits("zero cotangent", zeros, found, "a cotangent of zeros must give 0")


def unchanged(p):
    """Forward and backward leave alone what they are given: inputs, outputs and cotangents, also those on the way."""
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


def interleaved(p):
    """A call at another point, with other random numbers, between forward and backward changes nothing: no buffer is
    shared between calls."""
    run = p.subject.run()
    state = p.subject.random_state
    p.subject.random_state = {"seed": state["seed"] + 1, "offset": state["offset"]}
    p.at([x * (1 + p.rng.integers(1, 8, x.shape) / 64) for x in p.subject.arrays], [1.5 * dy for dy in p.dys])
    p.subject.random_state = state
    if not np.array_equal(joined([host(y) for y in run.outputs]), run.y, equal_nan=True):
        yield failure("interleaved", "another call changes the outputs of this one")
    found = p.backward(run)
    yield from p.same_bits("interleaved", p.gradient, found, "another call before the backward changes the gradient")


def repeatable(p):
    """The same call gives the same bits, and so does a second backward through one graph."""
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


def alone(p):
    """The gradient of one input at a time (and of two of three) is the one that it has among all."""
    n = len(p.subject.leaves)
    if n < 2:
        raise NotApplicable("there is one input")
    if p.order > 1:
        raise NotApplicable("of the first order only: a gradient has an output for each input that is asked for")
    for size in range(1, n if n <= 3 else 2):
        for chosen in itertools.combinations(range(n), size):
            run = p.subject.run(needs=[i in chosen for i in range(n)])
            if not run.roots:
                continue
            found = list(p.gradient)
            for i, g in zip(chosen, p.backward(run, chosen=chosen)):
                found[i] = g
            yield from p.same("alone", p.gradient, found, "differs when not all inputs need a gradient")


def modes(p):
    """Forward gives the same bits under no_grad, and backward the same gradient under create_graph."""
    with autograd.no_grad():
        try:
            y = p.subject.run().y
        except autograd.GraphError as why:
            raise NotApplicable(f"it needs a graph of its own ({why})") from None
    if y.shape == p.run.y.shape:
        same = np.array_equal(y, p.run.y, equal_nan=True)
        yield Finding("no_grad", PASS) if same else failure("no_grad", "outputs differ under no_grad")
    again = p.backward(p.subject.run(), create_graph=True)
    yield from p.same("create_graph", p.gradient, again, "the gradient differs under create_graph")


# -- all of them

PROBES = {
    f.__name__: f
    for f in (
        linearity, unchanged, interleaved, repeatable, layouts, repeated_input, accumulation, alone, modes, sizes,
        float32, device,
    )
}  # fmt: skip


def run_probes(comparison, report, names, call):
    """Run the probes of these names, and add what each finds: what is wrong, or else the closest call."""
    verdicts = {f.verdict for f in comparison.findings}
    if NONFINITE in verdicts and FAIL not in verdicts:
        report.left_out |= dict.fromkeys(names, "the gradient is not finite here")
        return
    try:
        probed = Probed(comparison, *call) if names else None
    except NotApplicable as why:
        report.left_out |= dict.fromkeys(names, str(why))
        return
    for name in names:
        found = []
        try:
            for finding in PROBES[name](probed):
                found.append(finding)
        except NotApplicable as why:
            report.left_out[name] = str(why)
            continue
        except Exception as error:  # what worked at the point itself fails here, and is to be reported with the rest
            found.append(failure(name, f"{type(error).__name__}: {error}"))
        found = found or [Finding(name, PASS, note="nothing finite to compare")]
        wrong = [f for f in found if f.verdict != PASS]
        if not wrong:
            closest = max(found, key=lambda f: f.excess)
            closest.check, closest.note = name, closest.note or f"{len(found)} comparisons"
        for f in wrong or [closest]:
            f.probe = name
            report.findings.append(f)
