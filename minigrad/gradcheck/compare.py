"""Comparing gradients with differences at one point: the verdict on each pair, element by element or along random
directions, of which a wrong one is bisected down to its element.

Three numbers decide whether an analytic and a numeric value agree: the error `bar` of the differences; the `rounding`
of the analytic one, which may cancel; and the tolerance rtol. `Compared.codes` is the table of verdicts."""

import functools
from dataclasses import dataclass

import numpy as np

from ..autograd import Value, watch
from .differences import EPS, LEAST_JUMP, PLATEAU, RATIO, STEP, Derivative, derivative, rungs, survey
from .report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS, SEVERITY, Finding, patterns, ratio_hint
from .subject import PRECISION, host, joined, split

CODE = {verdict: code for code, verdict in enumerate(SEVERITY)}  # verdicts as numbers, for arrays of them
MEANING = {
    KINK: "a kink or jump of the function; the gradient lies between its slopes",
    INCONCLUSIVE: "too much rounding to tell: is something ill-conditioned, or in float32, or is a kink very near?",
    NONFINITE: "NaN or Inf here or a step away: the edge of the domain?",
}
# An error bar decides nothing if it is wider than this part of the gradient:
WIDE = 1e-6  # the general rule
WIDE_BY_ROUNDING = 1e-2  # where rounding alone explains the bar
WIDE_BY_CANCELLING = 0.6  # where terms cancel to 1e-12 of their size: a saturated tanh has one known digit, or none
COARSE = 16  # rtol in ulps, for a function that computes in float32 or float16 inside
FAR = 2.0**-3  # first step of the second look, or an eighth of x
LOWEST = 2.0**-64  # last step of the second look for x = 0
MOST_KINKS = 8  # elements at kinks that are removed from one direction


@dataclass
class Compared:
    """Analytic and numeric values of one shape, and what is known about each pair."""

    analytic: np.ndarray
    d: Derivative
    allowed: np.ndarray  # the difference at which they still agree
    narrow: np.ndarray  # bool: is the error bar narrow enough to decide something?
    reliable: np.ndarray  # bool: or may steps too large, or rounding, explain a difference?
    smooth: np.ndarray  # bool: do the differences show beyond doubt that there is a gradient?

    @functools.cached_property
    def difference(self):
        return np.abs(self.analytic - self.d.value)

    @property
    def excess(self):
        """|analytic - numeric| / allowed; infinite where there is no such number."""
        excess = np.where(self.difference == 0, 0.0, self.difference / self.allowed)
        unknown = (self.d.jump & ~self.between) | ~np.isfinite(self.analytic + self.d.value + self.d.bar)
        return np.where(unknown, np.inf, excess)

    @functools.cached_property
    def between(self):
        """Is the analytic one between the slopes of the two sides?"""
        left, right = self.d.left, self.d.right
        margin = np.where(self.d.jump, 1e-4, 1e-6) * np.maximum(np.abs(left), np.abs(right)) + 32 * self.d.floor
        return (np.minimum(left, right) - margin <= self.analytic) & (self.analytic <= np.maximum(left, right) + margin)

    @property
    def codes(self):
        """The verdicts, see CODE."""
        d, here, agrees = self.d, ~self.d.jump, self.difference <= self.allowed
        codes = np.full(self.analytic.shape, CODE[FAIL])
        for verdict, where in (  # the last that holds counts
            (INCONCLUSIVE, here & ~self.reliable),
            (KINK, here & d.bent & self.between),
            (INCONCLUSIVE, here & agrees),
            (PASS, here & agrees & self.narrow),
            (KINK, here & agrees & d.kink),
            (KINK, d.jump & self.between),
            (NONFINITE, ~np.isfinite(self.analytic + d.value + d.bar)),
            (FAIL, ~np.isfinite(self.analytic) & self.smooth),
        ):
            codes[where] = CODE[verdict]
        return codes


class Comparison:
    """A Subject's backward against differences of its forward, at its point. `findings` collects the results.

    A value v on the way is off by about eps |v|, and the weighted outputs then by |dv| eps |v|, where dv is v's
    gradient. Four times the root of the sum of their squares is the `noise` of the differences; that root without eps
    is the `flow`: the size of the terms that add up to the result, before any of them cancel. The outputs alone would
    not tell: 1 - erf(5) is 1e-12, and off by 1e-16. (Iri 1984)"""

    def __init__(self, subject, rng, rtol=1e-7, atol=0.0, eps=None, stretch=1.0):
        self.subject, self.rng, self.atol, self.first_step = subject, rng, atol, eps
        self.stretch = stretch  # factor of all steps: rounding may be the same at all powers of two
        self.findings: list = []
        self.squares = np.zeros(2)  # squared noise and flow of the latest walk
        self.coarsest = EPS  # eps of the coarsest float dtype on the way
        values = {}  # node -> (the array that an op computed, eps of its numbers, the size of terms that cancel in it)

        def keep(op, inputs, outputs):
            least = max((size_of(x) for x in inputs), default=0.0) if op.rounds_inside else op.rounds_as
            for y in outputs:
                if y is not None and y.node is not None:
                    values[y.node] = host(y), eps_of(op, host(y)), least

        with watch(keep):
            self.forward = subject.run()
        for _, node in self.forward.results():
            if node in values:
                self.coarsest = max(self.coarsest, values[node][1])
                node.add_hook(lambda g, v=values[node]: self._add(host(g), *v))
        self.coarse = next(dtype for dtype, eps in PRECISION.items() if eps == self.coarsest)
        self.rtol = max(rtol, COARSE * self.coarsest) if self.coarsest > EPS else rtol
        self.y = self.forward.y
        self.defined = np.flatnonzero(np.isfinite(self.y))  # an output of ±∞ (a mask, say) has no derivative
        nan = np.isnan(self.y)
        if nan.any():
            output, note = self.forward.output_name(int(nan.argmax())), f"{nan.sum()} of {nan.size} outputs are NaN"
            self.findings.append(Finding("output", NONFINITE, output=output, note=note, excess=np.inf))
        elif self.y.size and not self.defined.size:
            self.findings.append(Finding("output", NONFINITE, note="all outputs are infinite", excess=np.inf))

    def _add(self, g, v, eps, least):
        term = np.multiply(g, np.maximum(np.abs(v), least), dtype=np.float64)
        square = float(np.square(term, where=np.isfinite(term), out=np.zeros(term.shape)).sum())
        self.squares += (eps**2 * square, square)

    def gradients(self, cotangents):
        """For each of K cotangents: the gradients of the leaves, and as arrays of K, noise and flow."""
        found = []
        for row in cotangents:
            self.squares[:] = 0
            if self.coarsest > EPS:  # float32 or float16 may round the outputs where no graph shows it
                self.squares[0] = np.square(self.coarsest * (row * self.y)[self.defined]).sum()
            found.append((self.forward.gradient(self.forward.dys(row), retain_graph=True), *np.sqrt(self.squares)))
        return [f[0] for f in found], 4 * np.array([f[1] for f in found]), np.array([f[2] for f in found])

    def draw_cotangents(self, count):
        """`count` random cotangents as rows, 0 at outputs without a derivative."""
        cotangents = np.zeros((count, self.y.size))
        cotangents[:, self.defined] = self.rng.standard_normal((count, self.defined.size))
        return cotangents

    def path(self, direction, cotangents):
        """phi: t -> the change of cotangents @ outputs (None: of each defined output) at t along `direction`. It
        computes each value once."""
        known: dict = {}

        def phi(t):
            if t not in known:
                y = self.subject.values(self.subject.shifted(direction, self.stretch * t))
                if y.shape != self.y.shape:
                    raise ValueError(f"gradcheck: {self.y.size} output elements here, but {y.size} a step away")
                change = (y - self.y)[self.defined] / self.stretch
                known[t] = change if cotangents is None else cotangents[:, self.defined] @ change
            return known[t]

        return phi

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

    def slope(self, direction, cotangents, noise):
        """The Derivative along `direction` from a first look."""
        step, _, largest = self.steps(direction)
        return derivative(self.path(direction, cotangents), noise, step, 64 * EPS * largest)

    def compare(self, direction, cotangents, noise, flow, analytic, size):
        """Compared: the analytic derivatives along one direction, one for each cotangent, against differences. size:
        how large the derivatives for the same cotangent are along others.

        Those that disagree, or that rounding hides, get a second look, at steps of all sizes. A difference counts only
        where both looks see it."""
        phi, (step, highest, largest) = self.path(direction, cotangents), self.steps(direction)
        first = derivative(phi, noise, step, 64 * EPS * largest)
        found = self.judged(analytic, first, size, flow)
        doubtful = self._doubtful(found, size, noise, phi, highest)
        if not doubtful.any():
            return found
        # the survey ends where noise hides the dispute, or a plateau below the first step has been passed
        disputed = np.where(doubtful, np.maximum(found.difference, first.bar), 0)[doubtful]
        blind = 40 * np.broadcast_to(noise, analytic.shape)[doubtful] / np.maximum(disputed, 1e-300)
        lowest = max(64 * EPS * largest or LOWEST, min(blind.min(), step / RATIO**PLATEAU))
        least_jump = LEAST_JUMP if self.coarsest == EPS else np.inf  # rounding of float16 makes stairs of any height
        second, plateau = survey(phi, noise, rungs(step, highest, lowest), least_jump)
        again = self.judged(analytic, second, size, flow)
        tighter = (plateau | (second.bar < first.bar)) & np.isfinite(second.value + second.bar)
        merged = self.judged(analytic, first.replaced(doubtful & tighter, second), size, flow)
        # a difference counts if the survey sees it on a plateau, or if nothing ever moves and the gradient is not 0
        confirmed = (again.codes == CODE[FAIL]) & plateau & ~(second.flat | merged.d.strange)
        still = (first.swing == 0) & (second.swing == 0) & ~second.flat
        constant = still & (np.abs(analytic) > 3 * EPS * max(1.0, largest) / highest)
        merged.reliable = ~doubtful | confirmed | constant
        merged.narrow &= ~(doubtful & second.flat & (analytic == 0))  # rounding may have made it flat
        return merged

    def _doubtful(self, found, size, noise, phi, highest):
        """Which components get a second look? Those that disagree; those that move, with a wide bar; and those that do
        not move at the first steps, but at the highest one."""
        analytic, d = found.analytic, found.d
        wide = 3 * d.bar > WIDE * np.maximum(np.maximum(size, np.abs(analytic)), d.swing)
        still = (wide & ~d.seen) | d.flat
        if still.any():
            still &= np.minimum(np.abs(phi(highest)), np.abs(phi(-highest))) > noise
        return ((found.codes == CODE[FAIL]) | (wide & d.seen) | still) & np.isfinite(analytic) & ~d.jump

    def too_rough(self, direction, cotangent, disputed, noise):
        """Does the gradient change so fast, on both sides, that no step clear of the noise could tell `disputed`?"""
        step, highest, largest = self.steps(direction)
        lowest = max(64 * EPS * largest, LOWEST, min(step, 16 * noise / disputed))
        steady = 0

        def slope(t):
            run = self.subject.run(self.subject.shifted(direction, t))
            parts = zip(run.gradient(run.dys(cotangent)), direction)
            return sum(float((g * u).sum()) for g, u in parts if u is not None)

        for h in rungs(step, highest, lowest):
            steady = steady + 1 if all(abs(slope(t) - slope(2 * t)) <= disputed / 8 for t in (h, -h)) else 0
            if steady == 2:  # once may be luck
                return False
        return True

    def judged(self, analytic, d, size, flow):
        """Compared, by the numbers of one Derivative alone."""
        size = np.maximum(size, np.maximum(np.abs(analytic), np.abs(d.value)))
        rounding = EPS * np.maximum(8 * size, flow / 2)  # ulps of it, or of terms that cancel
        tolerance = self.atol + self.rtol * np.maximum(np.abs(analytic), np.abs(d.value))
        allowed = tolerance + 3 * d.bar + np.where(d.flat, 0, rounding)
        # both may be 0: then the bar is measured by the terms that cancel, or else by how much the function changes
        nothing = (~d.seen | (d.bar <= 1e-13 * np.maximum(flow, 1))) & (np.abs(analytic) <= 3 * d.bar)
        size = np.maximum(size, np.where(nothing, np.maximum(flow, 1), d.swing))
        rounds = (d.bar <= 4 * d.floor) | (d.bar <= 1e-9 * flow)  # no more than rounding makes it
        wide = np.where(d.bar <= 1e-12 * flow, WIDE_BY_CANCELLING, np.where(rounds, WIDE_BY_ROUNDING, WIDE))
        narrow = (3 * d.bar <= wide * size) | (np.abs(analytic - d.value) <= rounding)
        smooth = np.isfinite(d.value) & (3 * d.bar <= 1e-3 * d.swing) & ~(d.jump | d.bent)
        # at the edge of a domain, 0 times an infinite slope is NaN in any backward
        smooth &= np.isfinite(self.y).all() and np.isfinite(d.value + d.bar).all()
        return Compared(analytic, d, allowed, narrow, np.ones(analytic.shape, bool), smooth)

    def finding(self, check, compared, at, element=None, output=""):
        """The Finding with the numbers at position `at`. element: (leaf, j) if it is about a single one."""
        d, verdict, shape = compared.d, SEVERITY[compared.codes[at]], ()
        f = Finding(check, verdict, output=output, note=MEANING.get(verdict, ""))
        if element is not None:
            leaf, j = element
            f.leaf, shape = leaf.name, leaf.array.shape
            f.index = tuple(int(n) for n in np.unravel_index(j, shape))
        numbers = (compared.analytic, d.value, d.bar, compared.excess)
        f.analytic, f.numeric, f.bar, f.excess = (float(x[at]) for x in numbers)
        if self.coarsest > EPS:
            f.note += ("; " if f.note else "") + f"{self.coarse} inside: compared to rtol {self.rtol:.2g}"
        if verdict != PASS:
            f.left, f.right, f.jump = float(d.left[at]), float(d.right[at]), bool(d.jump[at])
        if verdict == FAIL and not np.isfinite(f.analytic):
            f.note = "the backward gives NaN or Inf where the function and its differences are finite"
        elif verdict == FAIL:
            sizes = [*shape, *(n for y in self.forward.outputs for n in y.shape)]
            f.hints = [hint] if (hint := ratio_hint(f.analytic, f.numeric, sizes)) else []
        return f


def size_of(x):
    """The largest number in what an op is given."""
    return float(np.abs(host(x)).max(initial=0)) if isinstance(x, Value) and x.dtype.kind == "f" else 0.0


def eps_of(op, v):
    """eps of the dtype in which an op computed v: float32's where its inside is hidden and all numbers look like it."""
    eps = PRECISION.get(v.dtype, 0.0)
    if eps == EPS and not op.primitive and v.size and (v.astype(np.float32) == v).all() and (v * 2**10 % 1).any():
        return PRECISION[np.dtype("float32")]
    return eps


# -- element by element


def check_elements(c, combinations=None):
    """Compare each output, or this many random combinations of all, with respect to each element of each input. Adds
    one finding for each leaf: its worst element."""
    drawn = None if combinations is None else c.draw_cotangents(combinations)
    cotangents = np.eye(c.y.size)[c.defined] if drawn is None else drawn
    gradients, noise, flow = c.gradients(cotangents)
    tables: dict = {}
    for i, leaf in enumerate(c.subject.leaves):
        if not gradients or not leaf.array.size:
            c.findings.append(Finding("Jacobian", PASS, leaf.name, note="no elements"))
            continue
        analytic = np.array([g[i].ravel() for g in gradients])  # (cotangents, elements)
        size = np.abs(np.where(np.isfinite(analytic), analytic, 0)).max(axis=1)

        units = (unit(c.subject, i, j) for j in range(analytic.shape[1]))
        found = [c.compare(u, drawn, noise, flow, column, size) for u, column in zip(units, analytic.T)]
        codes = np.array([column.codes for column in found]).T
        if (codes == CODE[FAIL]).any():
            _allow_for_rounding(c, i, cotangents, noise, found, codes)
            codes = np.array([column.codes for column in found]).T
        excess = np.array([column.excess for column in found]).T
        k, j = np.unravel_index(np.lexsort((excess.ravel(), codes.ravel()))[-1], codes.shape)
        output = c.forward.output_name(c.defined[k]) if drawn is None else f"combination {k}"
        f = c.finding("Jacobian", found[j], k, (leaf, j), output)
        if f.verdict != PASS:
            alike = int((codes == codes[k, j]).sum())
            f.note = f"{alike} of {codes.size} elements of this Jacobian" + (f"; {f.note}" if f.note else "")
        c.findings.append(f)
        tables[leaf] = f, analytic, np.array([column.d.value for column in found]).T
    for leaf, (f, analytic, numeric) in tables.items():
        if f.verdict == FAIL:
            others = {other.name: values for other, (*_, values) in tables.items() if other is not leaf}
            f.hints = patterns(leaf.array.shape, analytic, numeric, others) + f.hints


def unit(subject, i, j):
    """The direction that moves element j of leaf i by 1 and nothing else."""
    direction = [None] * len(subject.leaves)
    direction[i] = np.zeros(subject.leaves[i].array.shape)
    direction[i].flat[j] = 1.0
    return direction


def _allow_for_rounding(c, i, cotangents, noise, found, codes):
    """A FAIL in leaf i is not reliable if the rounding of its inputs explains it, or if no step could resolve it."""
    for k in np.flatnonzero((codes == CODE[FAIL]).any(axis=1)):
        spread = 8 * c.subject.spread(c.forward.dys(cotangents[k]))[1 + i].ravel()
        for j in np.flatnonzero(codes[k] == CODE[FAIL]):
            difference = found[j].difference[k]
            found[j].reliable[k] &= not difference <= spread[j]
            found[j].reliable[k] &= not c.too_rough(unit(c.subject, i, j), cotangents[k], difference, noise[k])
            if found[j].codes[k] == CODE[FAIL]:
                return  # the leaf fails, whatever becomes of its other elements


# -- along random directions, which is cheap for many elements


def check_directions(comparison, count):
    """Compare along `count` random directions that move all leaves at once, then along one in each leaf alone. Ends at
    the first that is wrong."""
    leaves = comparison.subject.leaves
    tasks = [(f"direction {k}", leaves) for k in range(count)]
    tasks += [(f"direction in {leaf.name}", [leaf]) for leaf in leaves if len(leaves) > 1]
    for name, active in tasks:
        u = joined([draw(comparison.rng, leaf.array.shape) * (leaf in active) for leaf in leaves])
        if Directional(comparison, name).check(u) in (NONFINITE, FAIL):
            return


def draw(rng, shape):
    """Numbers that are not small, with so few binary digits that x ± t u is exact."""
    return rng.integers(8, 25, shape) / 16 * rng.choice([-1.0, 1.0], shape)


class Directional:
    """The derivative of one random combination of the outputs, along directions that are given as one vector u."""

    def __init__(self, comparison, name, most_kinks=MOST_KINKS):
        self.comparison, self.subject, self.name = comparison, comparison.subject, name
        self.most_kinks = most_kinks
        self.cotangents = comparison.draw_cotangents(1)
        (gradient,), self.noise, self.flow = comparison.gradients(self.cotangents)
        self.gradient = joined(gradient)

    def check(self, u):
        """Add the finding along u; return the verdict. An element at a kink is reported and removed from u, and the
        rest is checked again."""
        for _ in range(self.most_kinks + 1):
            f = self.along(u, self.name)
            passed = f.verdict == PASS or (f.verdict == INCONCLUSIVE and f.excess <= 1)
            if passed or np.isnan(self.comparison.y).any() or not u.any():
                break
            position, single = self.bisected(u)
            if single.verdict == PASS:
                f.verdict = INCONCLUSIVE if f.verdict == FAIL else f.verdict
                f.note = f"each element that was looked at passes by itself; the last was {single.place}"
                break
            self.comparison.findings.append(single)
            if single.verdict != KINK:
                return single.verdict
            u[position] = 0
        else:
            f.verdict = INCONCLUSIVE
            f.note = f"more than {self.most_kinks} elements at kinks: check at another point, or mode='full'"
        self.comparison.findings.append(f)
        return f.verdict

    def bisected(self, u):
        """(position of an element that is wrong, the Finding for that element alone)"""
        suspects = np.flatnonzero(u)
        while suspects.size > 1:
            half = suspects[: suspects.size // 2]
            part = np.zeros(u.size)
            part[half] = u[half]
            d = self.comparison.slope(self.direction(part), self.cotangents, self.noise)
            total = np.array([self.terms(part).sum()])
            agrees = self.comparison.judged(total, d, 0.0, 0.0).codes[0] == CODE[PASS]
            suspects = suspects[half.size :] if agrees else half
        only = np.zeros(u.size)
        only[suspects] = 1.0
        return int(suspects[0]), self.along(only, f"{self.name}, bisected", self.element(suspects[0]))

    def along(self, u, name, element=None):
        """The Finding for the derivative along u. element: (leaf, j) if u is a single one."""
        c, parts = self.comparison, self.terms(u)
        flow = np.maximum(self.flow, np.linalg.norm(parts))
        size = np.abs(self.gradient[np.isfinite(self.gradient)]).max(initial=0)
        found = c.compare(self.direction(u), self.cotangents, self.noise, flow, np.array([parts.sum()]), size)
        if found.codes[0] == CODE[FAIL]:  # may rounding within the backward explain it?
            spread = joined(self.subject.spread(self.forward_dys())[1:])
            found.reliable &= found.difference > 8 * np.linalg.norm(spread[u != 0] * u[u != 0])
            disputed = found.difference[0], self.noise[0]
            found.reliable &= not (element and c.too_rough(self.direction(u), self.cotangents[0], *disputed))
        return c.finding(name, found, 0, element)

    def forward_dys(self):
        return self.comparison.forward.dys(self.cotangents[0])

    def terms(self, u):
        """What adds up to the analytic derivative along u: infinite elements that do not move have no part in it."""
        return self.gradient[u != 0] * u[u != 0]

    def direction(self, u):
        """u as one array for each leaf, None where it is 0."""
        parts = split(u, [leaf.array.shape for leaf in self.subject.leaves])
        return [part if part.any() else None for part in parts]

    def element(self, position):
        """(leaf, index in it) of a position in u."""
        for leaf in self.subject.leaves:
            if position < leaf.array.size:
                return leaf, int(position)
            position -= leaf.array.size
