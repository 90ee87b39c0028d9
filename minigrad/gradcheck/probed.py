"""What the probes share: one function at one point, its gradient there, and what another gradient may differ by."""

import numpy as np

from .. import autograd
from .numeric import EPS
from .report import FAIL, PASS, Finding
from .rounding import unsteadiness
from .subject import PRECISION, joined

EPS32 = float(np.finfo(np.float32).eps)


class NotApplicable(Exception):
    """Why a probe says nothing about this function."""


class Probed:
    """What the probes share: the comparison, its gradient for one cotangent, and how much rounding may do to that."""

    def __init__(self, comparison, source):
        self.comparison, self.subject, self.rng = comparison, comparison.subject, comparison.rng
        self.source = source  # (fn, inputs, wrt, order)
        self.coarsest = float(EPS)  # of the float dtypes on the way: a function may compute in float32 inside
        with autograd.watch(self.look):
            self.run = self.subject.run()
        if not self.run.roots:
            raise NotApplicable("no output depends on the inputs")
        self.cotangents = [self.rng.standard_normal(y.shape).astype(y.dtype) for y in self.run.outputs]
        rounding = comparison.rounding
        rounding.begin()
        self.gradient = self.backward(comparison.forward, retain_graph=True)
        self.noise, self.flow = rounding.noise, rounding.flow
        self._spread: dict = {}

    def look(self, op, inputs, outputs):
        for y in outputs:
            if y is not None and y.dtype.kind == "f":
                self.coarsest = max(self.coarsest, float(PRECISION[y.dtype]))

    def at(self, arrays=None, cotangents=None, on=None):
        """(outputs as one vector, gradient of each leaf) of a fresh run at `arrays`, in the layouts that they have.

        The defaults, the point itself and `self.cotangents`, are copied: who knows what fn does to them."""
        run = self.subject.run(arrays, on, copy=arrays is None)
        return run.y, self.backward(run, cotangents)

    def backward(self, run, cotangents=None, retain_graph=False, **options):
        """The gradient of each leaf."""
        cotangents = [c.copy() for c in self.cotangents] if cotangents is None else cotangents
        return run.gradient(cotangents, retain_graph, **options)

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

    def same_bits(self, name, expected, found, note):
        """Findings for two gradients that must be equal to the last bit."""
        for leaf, a, b in zip(self.subject.leaves, expected, found):
            yield self.finding(name, leaf, a, b, np.where(difference_of(a, b) > 0, np.inf, 0.0), note)

    def same(self, name, expected, found, note, slack=1e-10, eps=EPS, arrays=None):
        """Findings for two gradients, at the point or at `arrays`, that may differ by rounding: by `slack` of the
        largest element, by 64 times what a relative change of eps in the inputs does, or what rounding inside does."""
        if self.coarsest > EPS:
            slack = max(slack, 64 * self.coarsest)
        for i, (leaf, a, b, spread) in enumerate(zip(self.subject.leaves, expected, found, self.spread(eps)[1:])):
            allowed = slack * np.abs(a[np.isfinite(a)]).max(initial=0) + 64 * (spread + eps * self.terms(leaf))
            difference = difference_of(a, b)
            if (difference > allowed).any():
                allowed += 64 * self.unsteady(arrays)[1][i].max(initial=0)
            yield self.finding(name, leaf, a, b, difference / (allowed or 1e-300), note)

    def unsteady(self, arrays=None):
        """What rounding inside does to the outputs, and to each leaf's gradient. It takes some runs: only in doubt."""
        change, changes = unsteadiness(self.subject, joined(self.cotangents), arrays)
        return np.nan_to_num(change), [np.nan_to_num(g) for g in changes]

    def finding(self, name, leaf, expected, found, excess, note):
        if not np.size(excess):
            return Finding(name, PASS, leaf.name)
        j = int(np.argmax(excess))
        f = Finding(name, PASS if excess.flat[j] <= 1 else FAIL, leaf.name, excess=float(excess.flat[j]))
        f.analytic, f.numeric = float(found.flat[j]), float(expected.flat[j])
        if f.verdict == FAIL:
            f.index = tuple(int(n) for n in np.unravel_index(j, leaf.array.shape))
            f.note = f"{note} ({int((excess > 1).sum())} of {excess.size} elements; 'numeric' is what it should equal)"
        return f

    def same_outputs(self, name, expected, found, note):
        """The finding for outputs that must be the same but for rounding."""
        difference = difference_of(expected, found)
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=0)
        allowed = max(1e-10, 64 * self.coarsest) * largest + 64 * self.noise
        if (difference > allowed).any():
            allowed += 64 * (self.unsteady()[0] + self.spread()[0])
        if (difference <= allowed).all():
            return Finding(name, PASS)
        m = int(np.argmax(difference))
        output = self.comparison.output_name(m)
        f = Finding(name, FAIL, output=output, analytic=float(found[m]), numeric=float(expected[m]), excess=np.inf)
        f.note = f"an output is {note} ('numeric' is what it should equal)"
        return f


def difference_of(a, b):
    """|a - b|: 0 where both are NaN, or the same Inf, and Inf where one is."""
    equal = (a == b) | ((a != a) & (b != b))
    return np.where(equal, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
