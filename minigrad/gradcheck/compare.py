"""Comparing gradients with differences at one point, and the verdict on each pair."""

import functools
from dataclasses import dataclass

import numpy as np

from .numeric import EPS, STEP, Derivative
from .path import LOWEST, Path
from .plateaus import LEAST, rungs
from .report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS, SEVERITY, Finding, ratio_hint
from .rounding import Rounding
from .subject import PRECISION

CODE = {verdict: code for code, verdict in enumerate(SEVERITY)}  # verdicts as numbers, for arrays of them
MEANING = {
    KINK: "a kink or jump of the function; the gradient lies between its slopes",
    INCONCLUSIVE: "too much rounding to tell: is something ill-conditioned, or in float32, or is a kink very near?",
    NONFINITE: "NaN or Inf here or a step away: the edge of the domain?",
}
WIDE = 1e-6  # an error bar wider than this part of the gradient decides nothing;
WIDE_BY_ROUNDING = 1e-2  # this part, where the bar is no more than rounding explains, of it or of terms that cancel
# or this part, if they cancel but for 1e-12: of a saturated tanh a digit is known or none, but it is not 0
WIDE_BY_CANCELLING = 0.6
COARSE = 16  # rtol in ulps, for a function that computes in float32 or float16 inside
FAR = 2.0**-3  # the second look begins there, or at an eighth of x


@dataclass
class Compared:
    """Analytic and numeric values, and what is known about each pair. Arrays of one shape: one value for each
    cotangent, or for each cotangent and element.

    Three questions decide. Do the two agree? If they do, is the numeric one resolved: is its error bar narrow enough?
    If not, is it reliable, or may rounding, or steps too large for the function, explain the difference?"""

    analytic: np.ndarray
    d: Derivative
    excess: np.ndarray  # |analytic - numeric| / allowed; infinite where there is no such number
    agrees: np.ndarray  # bool, as the others
    resolved: np.ndarray
    reliable: np.ndarray
    between: np.ndarray  # is the analytic one between the slopes of the two sides?
    smooth: np.ndarray  # do the differences show beyond doubt that there is a gradient?

    @property
    def difference(self):
        return np.abs(self.analytic - self.d.value)

    @property
    def codes(self):
        """The verdicts, see CODE."""
        d, here = self.d, ~self.d.jump
        codes = np.where(self.reliable, CODE[FAIL], CODE[INCONCLUSIVE])
        for verdict, where in (  # the last that holds counts
            (KINK, here & d.bent & self.between),
            (INCONCLUSIVE, here & self.agrees),
            (PASS, here & self.agrees & self.resolved),
            (KINK, here & self.agrees & d.kink),
            (KINK, d.jump & self.between),
            (NONFINITE, ~np.isfinite(self.analytic + d.value + d.bar)),
            (FAIL, ~np.isfinite(self.analytic) & self.smooth),
        ):
            codes[where] = CODE[verdict]
        return codes


class Comparison:
    """A Subject's backward against differences of its forward, at its point. `findings` collects the results."""

    def __init__(self, subject, rng, rtol=1e-7, atol=0.0, eps=None, stretch=1.0, hidden=None):
        self.subject, self.rng, self.rtol = subject, rng, rtol
        self.atol, self.first_step = atol, eps
        self.stretch = stretch  # what all steps are multiplied by: see path
        self.findings: list = []
        self.rounding = Rounding(subject, hidden)
        self.forward, self.coarsest = self.rounding.run, self.rounding.coarsest
        self.coarse = next(dtype for dtype, eps in PRECISION.items() if eps == self.coarsest)
        if self.coarsest > EPS:  # a float32 backward cannot be more precise
            self.rtol = max(rtol, COARSE * self.coarsest)
        self.y = self.forward.y
        self.defined = np.flatnonzero(np.isfinite(self.y))  # an output of ±∞ (a mask, say) has no derivative
        self.each_output = np.eye(self.y.size)[self.defined] if subject.expected else None
        nan = np.isnan(self.y)
        if nan.any():
            output, note = self.forward.output_name(int(nan.argmax())), f"{nan.sum()} of {nan.size} outputs are NaN"
            self.findings.append(Finding("output", NONFINITE, output=output, note=note, excess=np.inf))
        elif self.y.size and not self.defined.size:
            self.findings.append(Finding("output", NONFINITE, note="all outputs are infinite", excess=np.inf))

    # -- what to compare

    def draw_cotangents(self, count):
        """`count` random cotangents as rows, 0 at outputs without a derivative."""
        cotangents = np.zeros((count, self.y.size))
        cotangents[:, self.defined] = self.rng.standard_normal((count, self.defined.size))
        return cotangents

    def unit(self, i, j):
        """The direction that moves element j of leaf i by 1 and nothing else."""
        direction = [None] * len(self.subject.leaves)
        direction[i] = np.zeros(self.subject.leaves[i].array.shape)
        direction[i].flat[j] = 1.0
        return direction

    # -- the two sides

    def gradients(self, cotangents):
        """For each of K cotangents: the gradients of the leaves, and as arrays of K, noise, flow and gain (see
        Rounding)."""
        found = [(*self.rounding.gradient(self.forward.dys(row)), self.rounding.gain) for row in cotangents]
        return [f[0] for f in found], *(np.array([f[k] for f in found], float) for k in (1, 2, 3))

    def path(self, direction, cotangents, noise, gain=0.0):
        """The Path along `direction` of cotangents @ outputs; cotangents None: of each defined output. It computes each
        value once. noise and gain: see gradients.

        Steps are powers of two, for which x + t is exact. Rounding inside may then be the same at each of them, as that
        of a mean of numbers near 1e8 is, and no noise shows. Steps that are stretched by an odd factor see it."""
        known: dict = {}

        def phi(t):
            if t not in known:
                y = self.subject.values(self.subject.shifted(direction, self.stretch * t))
                if y.shape != self.y.shape:
                    raise ValueError(f"gradcheck: {self.y.size} output elements here, but {y.size} a step away")
                known[t] = self.contracted(y - self.y, cotangents) / self.stretch
            return known[t]

        return Path(phi, noise, gain, *self.steps(direction))

    @property
    def is_exact(self):
        """Are no differences taken?"""
        return self.subject.expected is not None

    def contracted(self, change, cotangents):
        change = change[self.defined]
        return change if cotangents is None else cotangents[:, self.defined] @ change

    def exact(self, direction, cotangents, noise):
        """The expected Derivative along `direction`."""
        value = self.subject.expected_slopes(direction, self.each_output if cotangents is None else cotangents)
        bar, never = 16 * EPS * np.abs(value).max(initial=0) + noise, np.zeros(value.shape, bool)
        return Derivative(value, bar, bar, value, value, never, never, never, np.abs(value), never, ~never, bar)

    def slope(self, direction, cotangents, noise):
        """The Derivative along `direction` from a first look, without a second opinion."""
        if self.is_exact:
            return self.exact(direction, cotangents, noise)
        return self.path(direction, cotangents, noise).first_look()

    def steps(self, direction):
        """(first step, highest step, largest |x|) along a direction: the first is smaller when many elements move at
        once, and larger where float32 or float16 rounds."""
        moving = [a[u != 0] for a, u in zip(self.subject.arrays, direction) if u is not None]
        sizes = np.abs(np.concatenate(moving)) if moving else np.zeros(0)
        step = STEP / 2 ** np.round(np.log2(max(1, sizes.size)) / 4)
        if self.first_step is not None:
            step = 2.0 ** np.round(np.log2(self.first_step))
        step *= 2 ** np.round(np.log2(self.coarsest / EPS) / 6)
        sizes = sizes[np.isfinite(sizes)]
        highest = max(4 * step, FAR, sizes[sizes > 0].min(initial=np.inf) / 8 if sizes.any() else 0)
        return step, highest, sizes.max(initial=0)

    def too_rough(self, direction, cotangent, disputed, noise):
        """Does the gradient vary so fast along this direction that no step could resolve a slope to within `disputed`?
        The point itself is left out: a gradient that is wrong only there is not rough.

        A difference is as precise as the mean of two gradients at its ends, extrapolated alike."""
        if self.is_exact or not np.isfinite(disputed):
            return False

        @functools.cache
        def slope(t):
            run = self.subject.run(self.subject.shifted(direction, t))
            parts = zip(run.gradient(run.dys(cotangent)), direction)
            return sum(float((g * u).sum()) for g, u in parts if u is not None)

        def mean(h):
            near, far = ((slope(t) + slope(-t)) / 2 for t in (h, 2 * h))
            return near + (near - far) / 3

        step, highest, _ = self.steps(direction)
        steady = 0
        for h in rungs(step, highest, max(LOWEST, 16 * noise / disputed)):
            steady = steady + 1 if abs(mean(h) - mean(2 * h)) < disputed / 8 else 0
            if steady == LEAST:  # once may be luck
                return False
        return True

    # -- and their judgement

    def compare(self, direction, cotangents, noise, gain, analytic, size=0.0):
        """Compared: the analytic derivatives along one direction, one for each cotangent, against differences. size:
        how large the derivatives for the same cotangent are along others.

        Doubtful pairs get a second look, at steps of all sizes."""
        if self.is_exact:
            return self.judged(analytic, self.exact(direction, cotangents, noise))
        path = self.path(direction, cotangents, noise, gain)
        found = self.judged(analytic, path.first_look())
        wrong = found.codes >= CODE[INCONCLUSIVE]
        doubtful = self.doubtful(path, found, wrong, size)
        return self.look_again(path, found, wrong, doubtful) if doubtful.any() else found

    def doubtful(self, path, found, wrong, size):
        """Which pairs need a second look (bool): those that disagree, that rounding hides, or that rounding may have
        flattened."""
        analytic, d = found.analytic, found.d
        size = np.maximum(size, np.maximum(np.abs(analytic), np.abs(d.value)))
        loose = (3 * d.bar > WIDE * np.maximum(size, d.swing)) & ~wrong & ~d.jump
        unseen = (loose & ~d.seen) | (d.flat & ~wrong)
        if unseen.any():  # does more show at larger steps?
            unseen &= path.changes_on_both_sides(path.highest)
        return np.isfinite(analytic) & (wrong | (loose & d.seen) | unseen)

    def look_again(self, path, found, wrong, doubtful):
        """The doubtful pairs again, at steps of all sizes. A value that differs between both looks is not reliable. A
        flat stretch caused by rounding resolves nothing; the function's own flat stretch does."""
        analytic, d = found.analytic, found.d
        passed = doubtful & ~wrong & d.seen & (self.coarsest == EPS)  # the noise of float32 could be anything
        disputed = np.where(wrong, found.difference, np.where(d.flat, d.swing, np.where(passed, d.bar, 0)))
        noise = np.broadcast_to(path.noise, wrong.shape)
        steps, other, plateau = path.second_look(disputed[doubtful], noise[doubtful], d.step[passed])
        seen = d.seen | other.seen
        same = np.abs(d.value - other.value) <= 3 * (d.bar + other.bar)
        d.flat = np.where(doubtful, other.flat, d.flat)
        better = plateau | (~d.flat & (other.bar < d.bar))
        d.replace(doubtful & better & np.isfinite(other.value + other.bar) & ~d.jump, other)
        found = self.judged(analytic, d)
        fails = found.codes == CODE[FAIL]
        unsettled = doubtful & ~plateau & ~d.jump & (d.flat | (fails & (seen | ~same)))
        unsettled |= fails & (d.swing == 0) & (np.abs(analytic) <= 3 * path.lost)
        found.reliable &= ~unsettled
        found.resolved &= ~unsettled
        flat = doubtful & d.flat & ~(d.jump | d.bent) & (found.codes == CODE[INCONCLUSIVE])
        still, contrary = flat & (analytic == 0) & (d.value == 0), flat & plateau & ~found.agrees
        if still.any() or contrary.any():
            rounded = path.flattened(steps) & (not self.rounding.steps)
            found.resolved |= still & ~rounded
            found.reliable |= contrary & rounded
        return found

    def judged(self, analytic, d):
        """Compared, by the numbers alone."""
        difference = np.abs(analytic - d.value)
        excess = np.where(difference == 0, 0.0, difference / self.allowed(analytic, d))
        steepest = np.maximum(np.abs(d.left), np.abs(d.right))
        low, high, margin = np.minimum(d.left, d.right), np.maximum(d.left, d.right), 1e-6 * steepest + 32 * d.floor
        between = (low - margin <= analytic) & (analytic <= high + margin)
        smooth = np.isfinite(d.value) & (3 * d.bar <= 1e-3 * d.swing) & ~(d.jump | d.bent)
        # at the edge of a domain, 0 times an infinite slope is NaN in any backward
        smooth &= np.isfinite(self.y).all() and np.isfinite(d.value + d.bar).all()
        unknown = (d.jump & ~between) | ~np.isfinite(analytic + d.value + d.bar)
        reliable, resolved = d.jump | ~(d.flat | d.strange), np.ones(excess.shape, bool)
        return Compared(
            analytic, d, np.where(unknown, np.inf, excess), excess <= 1, resolved, reliable, between, smooth
        )

    def allowed(self, analytic, d):
        return self.atol + self.rtol * np.maximum(np.abs(analytic), np.abs(d.value)) + 3 * d.bar

    def settle(self, found, gradient, flow):
        """Adjust `found` to the size of the whole gradient (…, elements). Differences below the rounding of its largest
        element, or half an ulp of the terms that cancel in it (flow: (…)), count as agreement. Other agreement is not
        resolved if the error bar is too wide for the gradient's size."""
        codes, flow = found.codes, np.expand_dims(flow, -1)
        least = EPS * np.maximum(8 * np.abs(gradient).max(axis=-1, keepdims=True, initial=0), flow / 2)
        small = (found.difference <= least) & ~found.d.flat & ((codes == CODE[FAIL]) | (codes == CODE[INCONCLUSIVE]))
        found.agrees |= small
        found.resolved = small | (found.resolved & ~(self.too_wide(found, flow) & (found.difference > least)))

    def too_wide(self, found, flow):
        """Where is the error bar too wide for the gradient's size to decide anything? A gradient that seems to be 0 has
        the size of the terms that cancel."""
        analytic, d = found.analytic, found.d
        size = np.maximum(np.abs(analytic), np.abs(d.value)).max(axis=-1, keepdims=True, initial=0)
        size = np.maximum(size, d.swing)
        nothing = ~d.seen & (np.abs(analytic) <= 3 * d.bar)
        size = np.where(nothing, np.maximum(size, np.maximum(flow, 1)), size)
        allowed = np.where((d.bar <= 2 * d.floor) | (d.bar <= 1e-9 * flow), WIDE_BY_ROUNDING, WIDE)
        allowed = np.where(d.bar <= 1e-12 * flow, WIDE_BY_CANCELLING, allowed)
        return 3 * d.bar > allowed * size

    def finding(self, check, compared, at, element=None, output=""):
        """The Finding with the numbers at position `at`. element: (leaf, j) if it is about a single one."""
        d, verdict, shape = compared.d, SEVERITY[compared.codes[at]], ()
        f = Finding(check, verdict, output=output, note=MEANING.get(verdict, ""))
        if element is not None:
            leaf, j = element
            f.leaf, shape = leaf.name, leaf.array.shape
            f.index = tuple(int(n) for n in np.unravel_index(j, shape))
        f.analytic, f.numeric, f.bar, f.excess = (
            float(x[at]) for x in (compared.analytic, d.value, d.bar, compared.excess)
        )
        if self.coarsest > EPS:
            f.note += ("; " if f.note else "") + f"{self.coarse} inside: compared to rtol {self.rtol:.2g}"
        if verdict == INCONCLUSIVE:
            f.op = self.rounding.roughest
        if verdict != PASS:
            f.left, f.right, f.jump = float(d.left[at]), float(d.right[at]), bool(d.jump[at])
        if verdict == FAIL and not np.isfinite(f.analytic):
            f.note = "the backward gives NaN or Inf where the function and its differences are finite"
        elif verdict == FAIL:
            sizes = [*shape, *(n for y in self.forward.outputs for n in y.shape)]
            f.hints = [hint] if (hint := ratio_hint(f.analytic, f.numeric, sizes)) else []
        return f
