"""Probed, the argument of every probe: a function at one point, and comparisons of two results there."""

import multiprocessing
import os
import signal
import warnings
from typing import Any

import numpy as np

from ... import autograd
from ..adapters.foreign import Adapted
from ..budget import check_time
from ..call import plain
from ..numeric import EPS
from ..report import FAIL, PASS, WARN, Finding, NotApplicable, failure
from ..rounding import difference_of, unsteadiness
from ..subject import PRECISION, joined
from .constants import trusts_an_index


class Refused(NotApplicable):
    """The forward raises or gives NaN for a probe's input: nothing to check, and nothing wrong."""


class Probed:
    """A function at one point, its gradient there for one random cotangent, and how much rounding may change it."""

    def __init__(self, comparison, strict, fn, inputs, wrt, order):
        self.comparison, self.subject, self.rng = comparison, comparison.subject, comparison.rng
        self.fn, self.inputs, self.wrt, self.order = fn, inputs, wrt, order
        self.strict = strict
        self.framework = plain(fn).framework if isinstance(plain(fn), Adapted) else None  # of fn, if not ours
        self.may_crash = self.framework is not None and self.framework.may_crash
        self.coarsest = comparison.coarsest  # eps of the coarsest float dtype on the way
        self.ran: list = []  # (op, inputs) of what ran on the way

        self.trusts_an_index = False  # see constants.py

        def note(op, inputs, outputs):
            self.ran.append((op, inputs))
            self.trusts_an_index |= trusts_an_index(op, inputs)
            for y in outputs:
                if y is not None and y.dtype.kind == "f":
                    self.coarsest = max(self.coarsest, PRECISION[y.dtype])

        with autograd.watch(note):
            self.run = self.subject.run()
        if not self.run.roots:
            raise NotApplicable("no output depends on the inputs")
        self.dys = [self.rng.standard_normal(y.shape).astype(y.dtype) for y in self.run.outputs]
        self.gradient, self.noise, self.flow = comparison.rounding.gradient([dy.copy() for dy in self.dys])
        self._spread: dict = {}

    def require_first_order(self):
        """Raise NotApplicable for the gradient of a gradient: too slow, or covered by the first order."""
        if self.order > 1:
            raise NotApplicable("of the first order only")

    def at(self, arrays=None, dys=None, on=None):
        """(outputs as one vector, gradient of each leaf) of a fresh run at `arrays`, in the layouts that they have.

        The defaults, the point itself and `self.dys`, are copied, since fn may write into what it is given. Raises
        Refused if the forward raises at `arrays`."""
        run = self.forward(arrays, on=on, copy=False) if arrays is not None else self.subject.run(None, on)
        return run.y, self.backward(run, dys)

    def forward(self, arrays, **options):
        """A run at other arrays. Raises Refused if the forward raises."""
        try:
            return self.subject.run(arrays, **options)
        except Exception as error:  # whatever fn raises for unsupported inputs
            raise refusal(error) from None

    def backward(self, run, dys=None, **options):
        """The gradient of each leaf."""
        return run.gradient([dy.copy() for dy in self.dys] if dys is None else dys, **options)

    def doubted(self, finding):
        """A Finding at a point that the function may not support: a failure there is a WARN."""
        if finding.verdict == FAIL and not self.strict:
            finding.verdict = WARN
        return finding

    # -- by how much two results may differ

    def spread(self, eps=EPS, arrays=None):
        """By how much the outputs, and each leaf's gradient, change when the inputs change by eps of themselves: at the
        point, or at `arrays`."""
        key = eps if arrays is None else None
        if arrays is None and key in self._spread:
            return self._spread[key]
        base = [self.run.y, *self.gradient]
        if arrays is not None:
            y, gradient = self.at([a.copy() for a in arrays])
            base = [y, *gradient]
        changes = []
        for _ in range(3):
            moved = [x * (1 + eps * self.rng.choice([-1.0, 1.0], x.shape)) for x in arrays or self.subject.arrays]
            y, gradient = self.at(moved)
            difference = difference_of if arrays is not None else _finite_difference
            changes.append([difference(a, b).max(initial=0) for a, b in zip([y, *gradient], base)])
        found = np.max(changes, axis=0)
        if arrays is None:
            self._spread[key] = found
        return found

    def terms(self, leaf):
        """The size of the terms of a leaf's gradient, before they cancel."""
        return self.flow / max(np.abs(leaf.array[np.isfinite(leaf.array)]).max(initial=0), 1e-300)

    def unsteadiness(self, arrays=None):
        """How much rounding inside changes the outputs, and each leaf's gradient. Slow: only for doubtful cases."""
        return unsteadiness(self.subject, joined(self.dys), arrays)

    # -- Findings for two results

    def same_bits(self, check, expected, found, note):
        """For two gradients that must be equal to the last bit; but for their rounding, if another framework's order of
        additions may depend on where memory lies."""
        slack = 8 * EPS if self.framework else 0.0
        for leaf, a, b in zip(self.subject.leaves, expected, found):
            allowed = slack * np.abs(a[np.isfinite(a)]).max(initial=0)
            yield self.finding(check, leaf, a, b, np.where(difference_of(a, b) > allowed, np.inf, 0.0), note)

    def same(self, check, expected, found, note, slack=1e-10, arrays=None):
        """For two gradients, at the point or at `arrays`, that may differ by rounding: by `slack` of the largest
        element, by 64 times what a relative change of EPS in the inputs does, or by what rounding inside does."""
        underflown = 0.0
        if self.coarsest > EPS:
            slack = max(slack, 64 * self.coarsest)
            underflown = 16 * float(np.finfo(self.comparison.coarse).smallest_subnormal)
        for i, (leaf, a, b, spread) in enumerate(zip(self.subject.leaves, expected, found, self.spread()[1:])):
            largest = np.abs(a[np.isfinite(a)]).max(initial=0)
            allowed = underflown + slack * largest + 64 * (spread + EPS * self.terms(leaf))
            difference = difference_of(a, b)
            if (difference > allowed).any():
                allowed += 64 * self.unsteadiness(arrays)[1][i].max(initial=0)
                if arrays is not None:
                    allowed += 64 * self.spread(EPS, arrays)[1 + i]
                    if not np.isfinite(a).all() or 0 < largest <= allowed:  # it is singular there, say
                        yield Finding(check, PASS, leaf.name)
                        continue
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
        excess = np.nan_to_num(excess, nan=np.inf, posinf=np.inf)  # infinite, beside a bar that is infinite too
        j = int(np.argmax(excess))
        f = Finding(check, PASS if excess.flat[j] <= 1 else FAIL, leaf.name, excess=float(excess.flat[j]))
        f.analytic, f.numeric = float(found.flat[j]), float(expected.flat[j])
        if f.verdict == FAIL:
            f.index = tuple(int(n) for n in np.unravel_index(j, leaf.array.shape))
            f.note = f"{note} ({int((excess > 1).sum())} of {excess.size} elements; 'numeric' is what it should equal)"
        return f


def _finite_difference(a, b):
    """At the edge of a domain, a moved input may leave it, which says nothing about the others."""
    return np.nan_to_num(np.abs(a - b))


def refusal(error):
    """Refused, with the beginning of the function's message."""
    said = str(error).partition("\n")[0]
    return Refused(f"{type(error).__name__}: {said[:80]}")


def attempts(tries, p=None):
    """The Findings of several attempts, functions that yield some, up to the first that fails. Those that are refused
    are left out, and if all of them are, so is the probe.

    p: they pass p.fn inputs that it may not validate. If that may crash the process, they run in a separate one."""
    refused, found = [], False
    for results in _outcomes(list(tries), p):
        if isinstance(results, Refused):
            refused.append(str(results))
        for finding in results if isinstance(results, list) else ():
            found = True
            yield finding
            if finding.verdict == FAIL:
                return
    if refused and not found:
        raise NotApplicable("; ".join(dict.fromkeys(refused)))


def _outcomes(tries, p):
    """For each attempt a list of Findings, or Refused. Raises what it raises."""
    if p is not None and p.may_crash and hasattr(os, "fork"):
        yield from _of_children(tries, p)
        return
    for attempt in tries:
        try:
            yield list(attempt())
        except Refused as why:
            yield why


def _of_children(tries, p):
    """The same from a fork of this process, and from a new one after each attempt that crashes it."""
    waiting = list(tries)
    while waiting:
        here, there = multiprocessing.Pipe(duplex=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which a child does not have: it uses none
            child = os.fork()
        if not child:
            _work(waiting, p, there)
        there.close()
        try:
            while waiting:
                while not here.poll(1):  # it may be stuck where it cannot check the time
                    check_time()
                result, p.subject.evaluations = here.recv()
                waiting.pop(0)
                if not isinstance(result, (list, Refused)):
                    raise result
                yield result
        except EOFError:
            waiting.pop(0)
            yield Refused("it ends the process")
        finally:
            here.close()
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _work(tries, p, parent):
    """The child: it sends the result of each attempt, and never returns."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # messages about a crash do not concern the check
        p.framework.forked()
        for attempt in tries:
            result: Any
            try:
                result = list(attempt())
            except BaseException as why:
                result = why
            parent.send((result, p.subject.evaluations))
    finally:
        os._exit(0)
