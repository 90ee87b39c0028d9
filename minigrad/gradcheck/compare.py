"""One comparison at one point: the analytic side, the numeric side, and their judgement."""

import numpy as np

from ..autograd import Value, watch
from . import numeric as num
from .hints import ratio_hint
from .report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS, SEVERITY, Finding
from .rounding import Rounding

CODE = {verdict: code for code, verdict in enumerate(SEVERITY)}
MEANING = {
    PASS: "",
    FAIL: "",
    KINK: "a kink or jump of the function; the gradient lies between its slopes",
    INCONCLUSIVE: "too much rounding to tell: is something ill-conditioned, or in float32, or is a kink very near?",
    NONFINITE: "NaN or Inf here or a step away: the edge of the domain?",
}


class Comparison:
    """Of a Subject's backward against its differences, at its point. Findings are collected in `findings`."""

    def __init__(self, subject, rng, rtol=1e-7, numeric="ridders", kinks="report"):
        self.subject, self.rng, self.rtol, self.kinks = subject, rng, rtol, kinks
        self.complex = numeric == "complex"
        self.findings: list = []
        self.rounding = Rounding()
        with watch(self.rounding.look):
            self.forward = subject.run()
        self.rounding.listen(self.forward)
        self.y = self.forward.y
        if self.complex:
            require_analytic(subject)
        self.defined = np.flatnonzero(np.isfinite(self.y))  # an output of ±∞ (a mask, say) has no derivative
        nan = np.isnan(self.y)
        if nan.any():
            note = f"{nan.sum()} of {nan.size} outputs are NaN"
            self.add(Finding("output", NONFINITE, output=self.output_name(int(nan.argmax())), note=note, excess=np.inf))

    def add(self, finding):
        if finding.verdict == KINK and self.kinks == "skip":
            finding.verdict, finding.note = PASS, ""
        self.findings.append(finding)

    # -- the two sides, and their judgement

    def rows(self, cotangents):
        """For each row of `cotangents`: the gradients, how rounding changes row @ outputs, the size of its terms."""
        gradients, noise, flow = [], np.zeros(len(cotangents)), np.zeros(len(cotangents))
        for k, row in enumerate(cotangents):
            self.rounding.begin()
            gradients.append(self.forward.gradient(self.forward.cotangents(row), retain_graph=True))
            noise[k], flow[k] = self.rounding.noise, self.rounding.flow
        return gradients, noise, flow

    def slope(self, directions, rows, noise, step):
        """The numeric derivative along `directions` of rows @ outputs; rows None: of each defined output."""

        def contracted(change):
            change = change[self.defined]
            return change if rows is None else rows[:, self.defined] @ change

        if self.complex:
            exact = contracted(self.subject.complex_step(directions))
            bar = 16 * num.EPS * np.abs(exact).max(initial=0) + noise
            never = np.zeros(exact.shape, bool)
            return num.Derivative(exact, bar, bar, exact, exact, never, never, never, np.abs(exact), never)

        def phi(t):
            y = self.subject.values(self.subject.moved(directions, t))
            if y.shape != self.y.shape:
                raise ValueError(f"gradcheck: {self.y.size} output elements here, but {y.size} a step away")
            return contracted(y - self.y)

        moved = [np.abs(a[u != 0]).max() for a, u in zip(self.subject.arrays, directions) if u is not None and u.any()]
        return num.derivative(phi, noise, step, least=64 * num.EPS * max(moved, default=0.0))

    def judge(self, analytic, d):
        """(codes, excess): does each analytic value agree with its numeric one? What is neither confirmed by it nor by
        the slopes at the smallest steps is not decided."""
        difference = np.abs(analytic - d.value)
        allowed = self.rtol * np.maximum(np.abs(analytic), np.abs(d.value)) + 3 * d.bar
        excess = np.where(difference == 0, 0.0, difference / allowed)
        strange = np.abs(d.value - (d.left + d.right) / 2) > 3 * d.bar + 0.01 * np.maximum(
            np.abs(d.left), np.abs(d.right)
        )
        codes = np.where(excess <= 1, CODE[PASS], np.where(d.flat | strange, CODE[INCONCLUSIVE], CODE[FAIL]))
        low, high = np.minimum(d.left, d.right), np.maximum(d.left, d.right)
        margin = 1e-6 * np.maximum(np.abs(low), np.abs(high)) + 32 * d.floor
        between = (low - margin <= analytic) & (analytic <= high + margin)
        codes[d.jump | (d.kink & (excess <= 1)) | (d.bent & between & (excess > 1))] = CODE[KINK]
        unknown = ~np.isfinite(analytic + d.value + d.bar)
        codes[unknown] = CODE[NONFINITE]
        return codes, np.where(unknown, np.inf, excess)

    def compare(self, directions, rows, noise, analytic, scale=None):
        """(Derivative, codes, excess). What fails gets further opinions from other steps: a function may live on a
        much smaller scale than 1 (`scale`: the size of x), or round worse than the bar supposed. They are no powers of
        two apart, or an oscillation could deceive them all alike. What none of them confirms has not failed."""
        step = self.step_for(directions)
        d = self.slope(directions, rows, noise, step)
        codes, excess = self.judge(analytic, d)
        confirmed = np.full(codes.shape, self.complex)
        for factor in () if self.complex else (1 / 64, 16, scale, 1 / 2**12, 1 / 2**18):
            factor = 0.75 * (factor or 0)
            doubtful = codes >= CODE[INCONCLUSIVE]
            disputed = np.abs(analytic - d.value)
            if factor < 2**-10:  # where it would see nothing but rounding, it is not worth asking
                doubtful &= ~(40 * noise > disputed * step * factor)
            if not factor or not np.isfinite(analytic[doubtful]).any():
                continue
            other = self.slope(directions, rows, noise, step * factor)
            other_codes, other_excess = self.judge(analytic, other)
            confirmed = confirmed | (np.abs(d.value - other.value) <= 3 * (d.bar + other.bar))
            decides = 10 * other.bar <= disputed  # it would have seen this difference
            taken = doubtful & (other_codes < codes) & (decides | ~np.isfinite(d.bar))
            d.take(other, taken)
            codes, excess = np.where(taken, other_codes, codes), np.where(taken, other_excess, excess)
        codes[(codes == CODE[FAIL]) & ~confirmed] = CODE[INCONCLUSIVE]
        return d, codes, excess

    def trivial(self, gradient, flow):
        """What rounding leaves of nothing: no element is known better than the largest one and the terms allow."""
        return 8 * num.EPS * max(np.abs(gradient).max(initial=0), np.max(flow, initial=0))

    def wide(self, analytic, d, flow):
        """Is a bar so wide, for the size of the gradient, that it decides nothing? Where the gradient is 0 as far as
        one can tell, its size is that of the terms which cancel."""
        size = np.maximum(max(np.abs(analytic).max(initial=0), np.abs(d.value).max(initial=0)), d.swing)
        size = np.where(np.abs(analytic) <= 3 * d.bar, np.maximum(size, flow), size)
        wide = np.where(d.bar <= 1e-9 * flow, num.WIDE_BY_ROUNDING, num.WIDE)
        return (3 * d.bar > wide * size) & (not self.complex)

    def step_for(self, directions):
        """Smaller when many elements move at once."""
        moved = sum(np.count_nonzero(u) for u in directions if u is not None)
        return num.STEP / 2 ** np.round(np.log2(max(1, moved)) / 4)

    # -- what to look at, and how to say what was seen

    def cotangents(self, count):
        """`count` random ones as rows, 0 at outputs without a derivative."""
        rows = np.zeros((count, self.y.size))
        rows[:, self.defined] = self.rng.standard_normal((count, self.defined.size))
        return rows

    def unit(self, i, j):
        directions = [None] * len(self.subject.leaves)
        directions[i] = np.zeros(self.subject.leaves[i].array.shape)
        directions[i].flat[j] = 1.0
        return directions

    def finding(self, check, analytic, d, codes, excess, at, place=None, output=""):
        """The Finding with the numbers at position `at` of the arrays. place: (leaf, j) if it is about one element."""
        verdict, shape = SEVERITY[codes[at]], ()
        f = Finding(check, verdict, output=output, note=MEANING[verdict])
        if place is not None:
            leaf, j = place
            f.leaf, shape = leaf.name, leaf.array.shape
            f.index = tuple(int(n) for n in np.unravel_index(j, shape))
        f.analytic, f.numeric, f.bar, f.excess = (float(x[at]) for x in (analytic, d.value, d.bar, excess))
        if verdict != PASS:
            f.left, f.right = float(d.left[at]), float(d.right[at])
        if verdict == FAIL:
            sizes = [*shape, *(n for y in self.forward.outputs for n in y.shape)]
            f.hints = [hint] if (hint := ratio_hint(f.analytic, f.numeric, sizes)) else []
        return f

    def output_name(self, m):
        """'[2, 3]' for element m of the outputs, '1[2, 3]' if there are several outputs, '' for the only number."""
        for i, y in enumerate(self.forward.outputs):
            if m < y.numel():
                index = ", ".join(str(int(n)) for n in np.unravel_index(m, y.shape))
                return (str(i) if len(self.forward.outputs) > 1 else "") + (f"[{index}]" if y.ndim else "")
            m -= y.numel()


def scale(x):
    """The size of x as a power of two, or None where there is none."""
    return 2.0 ** np.round(np.log2(abs(x))) if x and np.isfinite(x) else None


def require_analytic(subject):
    """Raise unless the complex step holds for every op on floats that the function runs, recorded or not."""
    names = set()

    def look(op, inputs, results):
        if not op.analytic and any(isinstance(x, Value) and x.dtype.kind == "f" for x in inputs):
            names.add(op.name)

    with watch(look):
        run = subject.run()
    if names:
        raise ValueError(
            f"gradcheck: numeric='complex' needs ops that are declared analytic; not so: {', '.join(sorted(names))}"
        )
    if any(x.device != "cpu" for x in run.leaves):
        raise ValueError("gradcheck: numeric='complex' runs on the cpu only")
