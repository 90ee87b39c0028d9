"""One comparison at one point: gradients on one side, differences on the other, and the verdict on each pair."""

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
WIDE = 1e-6  # a bar wider than this part of the gradient decides nothing;
WIDE_BY_ROUNDING = 1e-2  # this part, where the bar is no more than rounding explains, of it or of terms that cancel
# or this part, if they cancel but for 1e-12: of a saturated tanh a digit is known or none, but it is not 0
WIDE_BY_CANCELLING = 0.6
COARSE = 16  # rtol in ulps, of a function that computes in float32 or float16 inside
FAR = 2.0**-3  # the second look begins there, or at an eighth of x


@dataclass
class Compared:
    """Analytic values beside numeric ones, and what was found. Arrays of one shape: one value for each cotangent, or
    for each cotangent and element."""

    analytic: np.ndarray
    d: Derivative
    codes: np.ndarray  # verdicts, see CODE
    excess: np.ndarray  # |analytic - numeric| / allowed

    @property
    def difference(self):
        return np.abs(self.analytic - self.d.value)

    @property
    def is_wrong(self):
        """What a first look would not let pass (bool)."""
        return self.codes >= CODE[INCONCLUSIVE]


class Comparison:
    """A Subject's backward against differences of its forward, at its point. What is found collects in `findings`."""

    def __init__(self, subject, rng, rtol=1e-7, numeric="ridders", kinks="report", atol=0.0, eps=None, stretch=1.0):
        self.subject, self.rng, self.rtol, self.kinks = subject, rng, rtol, kinks
        self.atol, self.first_step = atol, eps
        self.stretch = stretch  # what all steps are multiplied by: see path
        self.complex = numeric == "complex"
        self.findings: list = []
        self.rounding = Rounding(subject)
        self.forward, self.coarsest = self.rounding.run, self.rounding.coarsest
        self.coarse = next(dtype for dtype, eps in PRECISION.items() if eps == self.coarsest)
        if self.coarsest > EPS:  # a backward in float32 is no better than that
            self.rtol = max(rtol, COARSE * self.coarsest)
        self.y = self.forward.y
        if self.complex:
            subject.require_analytic()
        self.defined = np.flatnonzero(np.isfinite(self.y))  # an output of ±∞ (a mask, say) has no derivative
        self.each_output = np.eye(self.y.size)[self.defined] if subject.expected else None
        nan = np.isnan(self.y)
        if nan.any():
            output, note = self.forward.output_name(int(nan.argmax())), f"{nan.sum()} of {nan.size} outputs are NaN"
            self.add(Finding("output", NONFINITE, output=output, note=note, excess=np.inf))
        elif self.y.size and not self.defined.size:
            self.add(Finding("output", NONFINITE, note="all outputs are infinite", excess=np.inf))

    def add(self, finding):
        if finding.verdict == KINK and self.kinks == "skip":
            finding.verdict, finding.note = PASS, ""
        self.findings.append(finding)

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
        return self.complex or self.subject.expected is not None

    def contracted(self, change, cotangents):
        change = change[self.defined]
        return change if cotangents is None else cotangents[:, self.defined] @ change

    def exact(self, direction, cotangents, noise):
        """The Derivative along `direction` by the complex step, or what it is meant to be."""
        if self.complex:
            value = self.contracted(self.subject.complex_step(direction), cotangents)
        else:
            rows = self.each_output if cotangents is None else cotangents
            value = self.subject.expected_slopes(direction, rows)
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
        """Does the gradient itself vary so fast along this direction that no step could tell slopes that differ by what
        is disputed? The point itself is left out: what is wrong there alone is not rough.

        A difference is as good as the mean of two gradients at its ends, extrapolated alike."""
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

        What is in doubt after a first look gets a second, at steps of all sizes."""
        if self.is_exact:
            d = self.exact(direction, cotangents, noise)
            return Compared(analytic, d, *self.judge(analytic, d))
        path = self.path(direction, cotangents, noise, gain)
        d = path.first_look()
        found = Compared(analytic, d, *self.judge(analytic, d))
        doubtful = self.doubtful(path, found, size)
        if doubtful.any():
            self.look_again(path, found, doubtful)
        return found

    def doubtful(self, path, found, size):
        """What needs a second look (bool): what disagrees, what cannot be told for rounding, and what rounding may have
        flattened."""
        analytic, d, wrong = found.analytic, found.d, found.is_wrong
        size = np.maximum(size, np.maximum(np.abs(analytic), np.abs(d.value)))
        loose = (3 * d.bar > WIDE * np.maximum(size, d.swing)) & ~wrong & ~d.jump
        unseen = (loose & ~d.seen) | (d.flat & ~wrong)
        if unseen.any():  # is there more to see far off?
            unseen &= path.changes_on_both_sides(path.highest)
        return np.isfinite(analytic) & (wrong | (loose & d.seen) | unseen)

    def look_again(self, path, found, doubtful):
        """Look at steps of all sizes, and judge what is doubtful by what they show. What is not the same in both looks
        has not failed."""
        analytic, d, codes = found.analytic, found.d, found.codes
        passed = doubtful & ~found.is_wrong & d.seen & (self.coarsest == EPS)  # the noise of float32 could be anything
        disputed = np.where(found.is_wrong, found.difference, np.where(d.flat, d.swing, np.where(passed, d.bar, 0)))
        noise = np.broadcast_to(path.noise, codes.shape)
        steps, other, plateau = path.second_look(disputed[doubtful], noise[doubtful], d.step[passed])
        seen = d.seen | other.seen
        same = np.abs(d.value - other.value) <= 3 * (d.bar + other.bar)
        d.flat = np.where(doubtful, other.flat, d.flat)
        better = plateau | (~d.flat & (other.bar < d.bar))
        d.replace(doubtful & better & np.isfinite(other.value + other.bar) & ~d.jump, other)
        for old, new in zip((codes, found.excess), self.judge(analytic, d)):
            old[doubtful] = new[doubtful]
        unsettled = doubtful & ~plateau & ~d.jump & (d.flat | ((codes == CODE[FAIL]) & (seen | ~same)))
        unsettled |= (codes == CODE[FAIL]) & (d.swing == 0) & (np.abs(analytic) <= 3 * path.lost)
        codes[unsettled & (codes != CODE[KINK])] = CODE[INCONCLUSIVE]
        self._settle_flats(path, steps, found, doubtful & d.flat & ~(d.jump | d.bent), plateau)

    def _settle_flats(self, path, steps, found, flat, plateau):
        """A flat stretch that rounding made decides nothing; one that the function has by itself does."""
        analytic, d, codes = found.analytic, found.d, found.codes
        flat = flat & (codes == CODE[INCONCLUSIVE])
        still = flat & (analytic == 0) & (d.value == 0)
        contrary = flat & plateau & (found.difference > self.allowed(analytic, d))
        if still.any() or contrary.any():
            rounded = path.flattened(steps) & (not self.rounding.steps)
            codes[still & ~rounded] = CODE[PASS]
            codes[contrary & rounded] = CODE[FAIL]

    def judge(self, analytic, d):
        """(codes, excess): does each analytic value agree with its numeric one?"""
        difference = np.abs(analytic - d.value)
        excess = np.where(difference == 0, 0.0, difference / self.allowed(analytic, d))
        steepest = np.maximum(np.abs(d.left), np.abs(d.right))
        codes = np.where(
            excess <= 1, CODE[PASS], np.where((d.flat | d.strange) & ~d.jump, CODE[INCONCLUSIVE], CODE[FAIL])
        )
        low, high, margin = np.minimum(d.left, d.right), np.maximum(d.left, d.right), 1e-6 * steepest + 32 * d.floor
        between = (low - margin <= analytic) & (analytic <= high + margin)
        codes[d.jump & ~between] = CODE[FAIL]
        codes[(d.kink & (excess <= 1)) | (d.bent & between & (excess > 1)) | (d.jump & between)] = CODE[KINK]
        excess = np.where(d.jump & ~between, np.inf, excess)
        unknown = ~np.isfinite(analytic + d.value + d.bar)
        codes[unknown] = CODE[NONFINITE]
        firm = np.isfinite(d.value) & (3 * d.bar <= 1e-3 * d.swing) & ~(d.jump | d.bent)
        # at the edge of a domain, 0 times an infinite slope is NaN in any backward
        if np.isfinite(self.y).all() and np.isfinite(d.value + d.bar).all():
            codes[~np.isfinite(analytic) & firm] = CODE[FAIL]
        return codes, np.where(unknown, np.inf, excess)

    def allowed(self, analytic, d):
        return self.atol + self.rtol * np.maximum(np.abs(analytic), np.abs(d.value)) + 3 * d.bar

    def negligible(self, gradient, flow):
        """An error of this size means nothing: no element of a gradient is known better than the largest one, and half
        an ulp of the terms that cancel in it, allow. gradient: (..., elements), flow: (...)."""
        return EPS * np.maximum(
            8 * np.abs(gradient).max(axis=-1, keepdims=True, initial=0), np.expand_dims(flow, -1) / 2
        )

    def too_wide(self, compared, flow):
        """Where is the bar so wide, for the size of the gradient, that it decides nothing? Where the gradient is 0 as
        far as one can tell, its size is that of the terms which cancel."""
        analytic, d = compared.analytic, compared.d
        size = np.maximum(np.abs(analytic), np.abs(d.value)).max(axis=-1, keepdims=True, initial=0)
        size = np.maximum(size, d.swing)
        nothing = ~d.seen & (np.abs(analytic) <= 3 * d.bar)
        size = np.where(nothing, np.maximum(size, np.maximum(flow, 1)), size)
        allowed = np.where((d.bar <= 2 * d.floor) | (d.bar <= 1e-9 * flow), WIDE_BY_ROUNDING, WIDE)
        allowed = np.where(d.bar <= 1e-12 * flow, WIDE_BY_CANCELLING, allowed)
        return (3 * d.bar > allowed * size) & (not self.complex)

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
