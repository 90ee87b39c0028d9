"""One comparison at one point: gradients on one side, differences on the other, and the verdict on each pair."""

from dataclasses import dataclass

import numpy as np

from .numeric import EPS, STEP, Derivative, derivative
from .report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS, SEVERITY, Finding, ratio_hint
from .rounding import Rounding

CODE = {verdict: code for code, verdict in enumerate(SEVERITY)}  # verdicts as numbers, for arrays of them
MEANING = {
    KINK: "a kink or jump of the function; the gradient lies between its slopes",
    INCONCLUSIVE: "too much rounding to tell: is something ill-conditioned, or in float32, or is a kink very near?",
    NONFINITE: "NaN or Inf here or a step away: the edge of the domain?",
}
WIDE = 1e-4  # a bar wider than this part of the gradient decides nothing;
WIDE_BY_ROUNDING = 1e-2  # this part, where the bar is no more than rounding in float64 explains


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


class Comparison:
    """A Subject's backward against differences of its forward, at its point. What is found collects in `findings`."""

    def __init__(self, subject, rng, rtol=1e-7, numeric="ridders", kinks="report"):
        self.subject, self.rng, self.rtol, self.kinks = subject, rng, rtol, kinks
        self.complex = numeric == "complex"
        self.findings: list = []
        self.rounding = Rounding(subject)
        self.forward = self.rounding.run
        self.y = self.forward.y
        if self.complex:
            subject.require_analytic()
        self.defined = np.flatnonzero(np.isfinite(self.y))  # an output of ±∞ (a mask, say) has no derivative
        nan = np.isnan(self.y)
        if nan.any():
            output, note = self.forward.output_name(int(nan.argmax())), f"{nan.sum()} of {nan.size} outputs are NaN"
            self.add(Finding("output", NONFINITE, output=output, note=note, excess=np.inf))

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
        """For each of K cotangents: the gradients of the leaves, and as arrays of K, noise and flow (see Rounding)."""
        found = [self.rounding.gradient(self.forward.dys(cotangent)) for cotangent in cotangents]
        noise, flow = (np.array([f[k] for f in found], float) for k in (1, 2))
        return [f[0] for f in found], noise, flow

    def slope(self, direction, cotangents, noise, step):
        """The Derivative along `direction` of cotangents @ outputs; cotangents None: of each defined output."""

        def contracted(change):
            change = change[self.defined]
            return change if cotangents is None else cotangents[:, self.defined] @ change

        if self.complex:
            exact = contracted(self.subject.complex_step(direction))
            bar = 16 * EPS * np.abs(exact).max(initial=0) + noise
            never = np.zeros(exact.shape, bool)
            return Derivative(exact, bar, bar, exact, exact, never, never, never, np.abs(exact), never)

        def phi(t):
            y = self.subject.values(self.subject.shifted(direction, t))
            if y.shape != self.y.shape:
                raise ValueError(f"gradcheck: {self.y.size} output elements here, but {y.size} a step away")
            return contracted(y - self.y)

        moving = [np.abs(a[u != 0]).max() for a, u in zip(self.subject.arrays, direction) if u is not None and u.any()]
        return derivative(phi, noise, step, least=64 * EPS * max(moving, default=0.0))

    def step_for(self, direction):
        """Smaller when many elements move at once."""
        moving = sum(np.count_nonzero(u) for u in direction if u is not None)
        return STEP / 2 ** np.round(np.log2(max(1, moving)) / 4)

    # -- and their judgement

    def compare(self, direction, cotangents, noise, analytic, scale=None):
        """Compared: the analytic derivatives along one direction, one for each cotangent, against differences.

        What fails gets further opinions from other steps: a function may live on a much smaller scale than 1 (`scale`:
        the size of x), or round worse than the bar supposed. Those steps are no powers of two apart, or an oscillation
        could deceive them all alike. What none of them confirms has not failed."""
        step = self.step_for(direction)
        d = self.slope(direction, cotangents, noise, step)
        codes, excess = self.judge(analytic, d)
        if self.complex:
            return Compared(analytic, d, codes, excess)
        confirmed = np.zeros(codes.shape, bool)
        for factor in (1 / 64, 16, scale, 1 / 2**12, 1 / 2**18):
            if factor is None:
                continue
            other_step = 0.75 * factor * step
            doubtful = codes >= CODE[INCONCLUSIVE]
            disputed = np.abs(analytic - d.value)
            if 0.75 * factor < 2**-10:  # a step so small is left out where it would see nothing but rounding
                doubtful &= ~(40 * noise > disputed * other_step)
            if not np.isfinite(analytic[doubtful]).any():
                continue
            other = self.slope(direction, cotangents, noise, other_step)
            other_codes, other_excess = self.judge(analytic, other)
            confirmed = confirmed | (np.abs(d.value - other.value) <= 3 * (d.bar + other.bar))
            decides = 10 * other.bar <= disputed  # it would have seen this difference
            better = doubtful & (other_codes < codes) & (decides | ~np.isfinite(d.bar))
            d.replace(better, other)
            codes, excess = np.where(better, other_codes, codes), np.where(better, other_excess, excess)
        codes[(codes == CODE[FAIL]) & ~confirmed] = CODE[INCONCLUSIVE]
        return Compared(analytic, d, codes, excess)

    def judge(self, analytic, d):
        """(codes, excess): does each analytic value agree with its numeric one? A numeric value that the slopes at the
        smallest steps contradict decides nothing."""
        difference = np.abs(analytic - d.value)
        allowed = self.rtol * np.maximum(np.abs(analytic), np.abs(d.value)) + 3 * d.bar
        excess = np.where(difference == 0, 0.0, difference / allowed)
        steepest = np.maximum(np.abs(d.left), np.abs(d.right))
        strange = np.abs(d.value - (d.left + d.right) / 2) > 3 * d.bar + 0.01 * steepest
        codes = np.where(excess <= 1, CODE[PASS], np.where(d.flat | strange, CODE[INCONCLUSIVE], CODE[FAIL]))
        low, high, margin = np.minimum(d.left, d.right), np.maximum(d.left, d.right), 1e-6 * steepest + 32 * d.floor
        between = (low - margin <= analytic) & (analytic <= high + margin)
        codes[d.jump | (d.kink & (excess <= 1)) | (d.bent & between & (excess > 1))] = CODE[KINK]
        unknown = ~np.isfinite(analytic + d.value + d.bar)
        codes[unknown] = CODE[NONFINITE]
        return codes, np.where(unknown, np.inf, excess)

    def negligible(self, gradient, flow):
        """An error of this size means nothing: no element of a gradient is known better than the largest one, and the
        terms that cancel in it, allow."""
        return 8 * EPS * max(np.abs(gradient).max(initial=0), np.max(flow, initial=0))

    def too_wide(self, compared, flow):
        """Where is the bar so wide, for the size of the gradient, that it decides nothing? Where the gradient is 0 as
        far as one can tell, its size is that of the terms which cancel."""
        analytic, d = compared.analytic, compared.d
        size = np.maximum(max(np.abs(analytic).max(initial=0), np.abs(d.value).max(initial=0)), d.swing)
        size = np.where(np.abs(analytic) <= 3 * d.bar, np.maximum(size, flow), size)
        allowed = np.where(d.bar <= 1e-9 * flow, WIDE_BY_ROUNDING, WIDE)
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
        if verdict != PASS:
            f.left, f.right = float(d.left[at]), float(d.right[at])
        if verdict == FAIL:
            sizes = [*shape, *(n for y in self.forward.outputs for n in y.shape)]
            f.hints = [hint] if (hint := ratio_hint(f.analytic, f.numeric, sizes)) else []
        return f


def difference_of(a, b):
    """|a - b|: 0 where both are NaN or the same infinity, and infinite where only one is."""
    equal = (a == b) | ((a != a) & (b != b))
    return np.where(equal, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))


def scale_of(x):
    """The size of x as a power of two, or None where there is none."""
    return 2.0 ** np.round(np.log2(abs(x))) if x and np.isfinite(x) else None
