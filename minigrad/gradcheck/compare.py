"""Compare gradients with differences at one point: element by element, or along random directions, of which a wrong one
is bisected down to its element. verdicts.py has the rules for each pair of numbers."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..autograd import Value, watch
from .differences import (
    AGREES,
    EPS,
    LEAST_JUMP,
    LEVELS,
    PLATEAU,
    RATIO,
    STEP,
    derivative,
    derivatives,
    survey,
    survey_steps,
)
from .report import Finding, patterns, ratio_hint
from .subject import PRECISION, host, split, to_vector
from .verdicts import CODE, FAIL, INCONCLUSIVE, KINK, MEANING, NONFINITE, PASS, SEVERITY, Pairs

# An error bar decides nothing if it is wider than this part of the gradient:
WIDE = 1e-6  # the general rule
WIDE_BY_ROUNDING = 1e-2  # where rounding alone explains the bar
WIDE_BY_CANCELLING = 0.6  # where terms cancel to 1e-12 of their size: a saturated tanh has one known digit, or none
COARSE = 16  # rtol in ulps, for a function that computes in float32 or float16 inside
FEW_BITS = 12  # numbers with no more significant bits may be exact in float32 by accident
SMALLEST_EXACT = 64 * EPS  # the smallest step at which x + h is exact, as a part of x
LARGE_FACTOR = 2**10  # a function may multiply x by so much before a value saturates
FAR = 2.0**-3  # first step of the second look, or an eighth of x
LOWEST = 2.0**-64  # last step of the second look for x = 0
MOST_KINKS = 8  # elements at kinks that are removed from one direction
CHUNK = 2**16  # numbers that are compared at once
TINIEST_SQUARE = 1e-280  # a sum of squares that is smaller may have lost digits


@dataclass
class Gradients:
    """The gradients of the leaves for K cotangents, and how they round."""

    cotangents: Any  # (K, elements of the outputs); None: each defined output alone
    arrays: list  # for each cotangent, the gradient of each leaf
    noise: np.ndarray  # (K,): the error that rounding makes in the weighted outputs; see Comparison
    terms: np.ndarray  # (K,): the size of the terms that add up to the weighted outputs, before any of them cancels


class Steps(NamedTuple):
    """The steps along a direction."""

    first: float  # the first step of the first look
    largest: float  # the first step of the second look
    max_abs_x: float  # the largest |x| that moves

    @property
    def smallest_exact(self):
        """The smallest step at which x + h is still exact."""
        return SMALLEST_EXACT * self.max_abs_x

    @property
    def below_tiny_x(self):
        """A step that is smaller than a tiny x, or 0 if the first look takes such steps anyway, or x is 0."""
        return self.max_abs_x / 2**12 if self.max_abs_x < self.first / 2**LEVELS else 0.0

    @property
    def scale(self):
        """What the size of intermediate terms is divided by for the size of their slopes, which are smaller where x is
        large. A function may multiply x by some LARGE_FACTOR, so this is |x| / LARGE_FACTOR, and 1 at least."""
        return max(1.0, self.max_abs_x / LARGE_FACTOR)


class Comparison:
    """A Subject's backward against differences of its forward, at its point. `findings` collects the results.

    The noise of the differences is estimated from all intermediate values v and their gradients dv (Iri 1984). Rounding
    changes each v by about eps |v|. So the differences have four times this noise:

        noise = √Σ (eps |v| |dv|)²        terms = √Σ (|v| |dv|)²

    The outputs alone would not tell: 1 - erf(5) is 1e-12, and its error is 1e-16."""

    def __init__(self, subject, rng, rtol=1e-7, atol=0.0, first_step=None, step_factor=1.0):
        self.subject, self.rng, self.atol, self.first_step = subject, rng, atol, first_step
        self.step_factor = step_factor  # not 1: rounding may be the same at all powers of two
        self.findings: list = []
        self.noise = self.terms = 0.0  # see above; these are for the latest backward
        self.coarsest_eps = EPS  # eps of the coarsest float dtype of an intermediate value
        values = {}  # node -> (the array that an op computed, eps of its numbers, the size of terms that cancel in it)

        def keep(op, inputs, outputs):
            least = max((largest_of(x) for x in inputs), default=0.0) if op.rounds_inside else op.rounds_as
            for y in outputs:
                if y is not None and y.node is not None:
                    values[y.node] = host(y), eps_of(op, host(y)), least

        with watch(keep):
            self.forward = subject.run()
        for _, node in self.forward.results():
            if node in values:
                array, eps, least = values[node]
                self.coarsest_eps = max(self.coarsest_eps, eps)
                size = np.maximum(np.abs(array), least, dtype=np.float64)
                node.add_hook(lambda g, size=size, eps=eps: self._add_terms(host(g) * size, eps))
        self.coarsest_dtype = next(dtype for dtype, eps in PRECISION.items() if eps == self.coarsest_eps)
        self.rtol = max(rtol, COARSE * self.coarsest_eps) if self.coarsest_eps > EPS else rtol
        self.y = self.forward.y
        self.defined = np.flatnonzero(np.isfinite(self.y))  # an output of ±∞ (a mask, say) has no derivative
        nan = np.isnan(self.y)
        if nan.any():
            output, note = self.forward.output_name(int(nan.argmax())), f"{nan.sum()} of {nan.size} outputs are NaN"
            self.findings.append(Finding("output", NONFINITE, output=output, note=note, excess=np.inf))
        elif self.y.size and not self.defined.size:
            self.findings.append(Finding("output", NONFINITE, note="all outputs are infinite", excess=np.inf))

    def _add_terms(self, terms, eps):
        size = norm_of(terms)
        self.noise = math.hypot(self.noise, eps * size)
        self.terms = math.hypot(self.terms, size)

    def gradients(self, cotangents=None):
        """The Gradients for these cotangents, or for each defined output alone."""
        results = []
        for row in np.eye(self.y.size)[self.defined] if cotangents is None else cotangents:
            self.noise = self.terms = 0.0
            if self.coarsest_eps > EPS:  # float32 or float16 may round the outputs where no graph shows it
                self.noise = self.coarsest_eps * norm_of((row * self.y)[self.defined])
            arrays = self.forward.gradient(self.forward.dys(row), retain_graph=True)
            results.append((arrays, self.noise, self.terms))
        noise, terms = 4 * np.array([f[1] for f in results]), np.array([f[2] for f in results])
        return Gradients(cotangents, [f[0] for f in results], noise, terms)

    def draw_cotangents(self, count):
        """`count` random cotangents as rows, 0 at outputs without a derivative."""
        cotangents = np.zeros((count, self.y.size))
        cotangents[:, self.defined] = self.rng.standard_normal((count, self.defined.size))
        return cotangents

    def path(self, direction, cotangents):
        """t -> the change of cotangents @ outputs (None: of each defined output) at t along `direction`. It computes
        each value once."""
        differences: dict = {}
        defined = self.defined if self.defined.size < self.y.size else slice(None)  # a slice is read faster

        def change(t):
            if t not in differences:
                y = self.subject.values(self.subject.point_along(direction, self.step_factor * t))
                if y.shape != self.y.shape:
                    raise ValueError(f"gradcheck: {self.y.size} output elements here, but {y.size} a step away")
                difference = (y - self.y)[defined] / self.step_factor
                differences[t] = difference if cotangents is None else cotangents[:, defined] @ difference
            return differences[t]

        return change

    def steps(self, direction):
        """The Steps along a direction: the first is smaller when many elements move at once, and larger where float32
        or float16 rounds, or where x is so large that it could not be halved LEVELS times."""
        moving = [np.abs(a[u != 0]) for a, u in zip(self.subject.arrays, direction) if u is not None]
        sizes = moving[0] if len(moving) == 1 else np.concatenate([np.zeros(0), *moving])
        step = STEP / 2 ** round(math.log2(max(1, sizes.size)) / 4)
        if self.first_step is not None:
            step = 2.0 ** round(math.log2(self.first_step))
        step *= 2 ** round(math.log2(self.coarsest_eps / EPS) / 6)
        sizes = sizes[np.isfinite(sizes)]
        max_abs_x = float(sizes.max(initial=0))
        step = max(step, power_of_two(SMALLEST_EXACT * max_abs_x) * 2**LEVELS)
        smallest = sizes[sizes > 0].min(initial=np.inf)
        largest = max(4 * step, FAR, smallest / 8 if smallest < np.inf else 0)
        return Steps(step, largest, max_abs_x)

    def slope(self, direction, cotangents, noise):
        """The Derivative along a direction, at the first look."""
        steps = self.steps(direction)
        return derivative(self.path(direction, cotangents), noise, steps.first, steps.smallest_exact)

    def compare(self, directions, analytic, size, gradients, least_terms=0.0):
        """The Pairs for the derivatives along n directions, a row for each direction.

        analytic, (n, K): the derivatives by `gradients`. size, (K,): the size of the derivatives for the same cotangent
        along other directions. least_terms: the size of the terms that add up to a derivative is at least this. A pair
        that disagrees, or whose error bar is wide, gets a second look, at steps of all sizes."""
        noise = gradients.noise
        paths = [self.path(direction, gradients.cotangents) for direction in directions]
        steps = [self.steps(direction) for direction in directions]
        first_steps, smallest_steps = [s.first for s in steps], [s.smallest_exact for s in steps]
        first = derivatives(paths, noise, first_steps, smallest_steps, analytic, min(AGREES, self.rtol / 100))
        terms = np.maximum(gradients.terms / np.array([[s.scale] for s in steps]), least_terms)
        pairs = self.pairs(analytic, first, size, terms)
        doubtful = self._doubtful(pairs, size, noise, paths, steps)
        for i in np.flatnonzero(doubtful.any(axis=1)):
            pairs[i] = self._second_look(pairs[i], doubtful[i], size, noise, terms[i], paths[i], steps[i])
        return pairs

    def _doubtful(self, pairs, size, noise, paths, steps):
        """bool (n, K): the pair needs a second look. Either it disagrees; or the function changes, and the bar is wide;
        or the function does not change at the first steps, but it does at the largest one; or x is tiny, and the slope
        is another one at a step that is smaller still."""
        numeric, analytic = pairs.numeric, pairs.analytic
        disagrees = pairs.numeric_verdicts() == CODE[FAIL]
        is_wide = 3 * numeric.bar > WIDE * np.maximum(np.maximum(size, np.abs(analytic)), numeric.steepest)
        changes_later = (is_wide & ~numeric.above_noise) | numeric.is_stair
        for i in np.flatnonzero(changes_later.any(axis=1)):
            largest = steps[i].largest
            changes_later[i] &= np.minimum(np.abs(paths[i](largest)), np.abs(paths[i](-largest))) > noise
        doubtful = (disagrees | (is_wide & numeric.above_noise) | changes_later) & ~numeric.is_jump
        for k, step in enumerate(s.below_tiny_x for s in steps):
            if step:
                doubtful[k] |= self._changes_below(step, paths[k], pairs[k], noise)
        return doubtful & np.isfinite(analytic)

    def _changes_below(self, h, path, pairs, noise):
        """bool (K,): the slope at the step h is not the analytic one, or not the numeric one of larger steps."""
        slope = (path(h) - path(-h)) / (2 * h)
        difference = np.maximum(np.abs(slope - pairs.numeric.value), np.abs(slope - pairs.analytic))
        return difference > 1e-6 * np.abs(slope) + 8 * noise / h

    def _second_look(self, pairs, doubtful, size, noise, terms, path, steps):
        """The Pairs along one direction, (K,), after a survey of steps of all sizes.

        A doubtful pair takes the survey's derivative if that is better. A difference counts only if both looks see
        it."""
        first = pairs.numeric
        smallest = self._smallest_step(pairs, doubtful, noise, steps)
        # Rounding of float16 and float32 makes stairs of any height, and none of them is a jump of the function.
        least_jump = LEAST_JUMP if self.coarsest_eps == EPS else np.inf
        second, is_plateau = survey(path, noise, survey_steps(steps.first, steps.largest, smallest), least_jump)
        is_better = (is_plateau | (second.bar < first.bar)) & np.isfinite(second.value + second.bar)
        merged = self.pairs(pairs.analytic, first.replace_where(doubtful & is_better, second), size, terms)
        survey_alone = self.pairs(pairs.analytic, second, size, terms)
        confirmed = self._is_confirmed(merged, survey_alone, is_plateau) | self._is_constant(pairs, second, steps)
        merged.is_reliable = ~doubtful | confirmed
        # A gradient of 0 at stairs: rounding may have made the function flat.
        merged.has_narrow_bar &= ~(doubtful & second.is_stair & (pairs.analytic == 0))
        return merged

    def _smallest_step(self, pairs, doubtful, noise, steps):
        """The smallest step of a survey: the one at which noise hides the disputed difference, but at least so small
        that a plateau fits below the first step, and below a tiny x."""
        disputed = np.maximum(pairs.difference, pairs.numeric.bar)[doubtful]
        hidden_below = 40 * np.broadcast_to(noise, pairs.analytic.shape)[doubtful] / np.maximum(disputed, 1e-300)
        highest = min(steps.first, steps.below_tiny_x or np.inf) / RATIO**PLATEAU
        return max(steps.smallest_exact or LOWEST, min(hidden_below.min(), highest))

    def _is_confirmed(self, merged, survey_alone, is_plateau):
        """bool (K,): the survey by itself sees the difference, on a plateau that the slopes do not contradict."""
        fails = survey_alone.numeric_verdicts() == CODE[FAIL]
        return fails & is_plateau & ~(survey_alone.numeric.is_stair | merged.numeric.contradicts_slopes)

    def _is_constant(self, pairs, second, steps):
        """bool (K,): the function does not change at any step, and the gradient is not 0."""
        never_changes = (pairs.numeric.steepest == 0) & (second.steepest == 0) & ~second.is_stair
        return never_changes & (np.abs(pairs.analytic) > 3 * EPS * max(1.0, steps.max_abs_x) / steps.largest)

    def changes_too_fast(self, direction, cotangent, disputed, noise):
        """True if the gradient changes so fast, on both sides, that no step could tell a difference of `disputed`
        from the noise."""
        steps = self.steps(direction)
        smallest = max(steps.smallest_exact or LOWEST, min(steps.first, 16 * noise / disputed))
        steady = 0

        def slope(t):
            run = self.subject.run(self.subject.point_along(direction, t))
            parts = zip(run.gradient(run.dys(cotangent)), direction)
            return sum(float((g * u).sum()) for g, u in parts if u is not None)

        for h in survey_steps(steps.first, steps.largest, smallest):
            steady = steady + 1 if all(abs(slope(t) - slope(2 * t)) <= disputed / 8 for t in (h, -h)) else 0
            if steady == 2:  # once may be luck
                return False
        return True

    def pairs(self, analytic, numeric, size, terms):
        """The Pairs of analytic numbers and one Derivative, (K,) or (n, K). size, terms: see `compare`."""
        larger = np.maximum(np.abs(analytic), np.abs(numeric.value))
        size = np.maximum(size, larger)
        rounding = EPS * np.maximum(8 * size, terms / 2)  # 8 ulps of the size, or half an ulp of terms that cancel
        allowed = self.atol + self.rtol * larger + 3 * numeric.bar + np.where(numeric.is_stair, 0, rounding)
        # If both are 0, the bar is compared with the terms that cancel, or else with the steepest change.
        is_still = ~numeric.above_noise | (numeric.bar <= 1e-13 * np.maximum(terms, 1))
        both_zero = is_still & (np.abs(analytic) <= 3 * numeric.bar)
        size = np.maximum(size, np.where(both_zero, np.maximum(terms, 1), numeric.steepest))
        is_rounding = (numeric.bar <= 4 * numeric.floor) | (numeric.bar <= 1e-9 * terms)
        wide = np.where(is_rounding, WIDE_BY_ROUNDING, WIDE)
        wide = np.where(numeric.bar <= 1e-12 * terms, WIDE_BY_CANCELLING, wide)
        narrow = (3 * numeric.bar <= wide * size) | (np.abs(analytic - numeric.value) <= rounding)
        finite = np.isfinite(numeric.value + numeric.bar).all(axis=-1, keepdims=True)
        # At the edge of a domain, 0 times an infinite slope is NaN in any backward.
        smooth = (3 * numeric.bar <= 1e-3 * numeric.steepest) & ~(numeric.is_jump | numeric.slopes_differ)
        smooth &= finite & np.isfinite(self.y).all()
        reliable = np.ones(analytic.shape, bool)
        return Pairs(analytic, numeric, allowed, has_narrow_bar=narrow, is_reliable=reliable, is_smooth=smooth)

    def finding(self, check, pairs, at, element=None, output=""):
        """The Finding with the numbers at the index `at` of pairs. element: (leaf, j) if it is about a single one."""
        verdict, shape = SEVERITY[pairs.numeric_verdicts()[at]], ()
        f = Finding(check, verdict, output=output, note=MEANING.get(verdict, ""))
        if element is not None:
            leaf, j = element
            f.leaf, shape = leaf.name, leaf.array.shape
            f.index = tuple(int(n) for n in np.unravel_index(j, shape))
        numeric = pairs.numeric
        numbers = (pairs.analytic, numeric.value, numeric.bar, pairs.excess)
        f.analytic, f.numeric, f.bar, f.excess = (float(x[at]) for x in numbers)
        if self.coarsest_eps > EPS:
            f.note += ("; " if f.note else "") + f"{self.coarsest_dtype} inside: compared to rtol {self.rtol:.2g}"
        if verdict != PASS:
            f.left, f.right, f.jump = float(numeric.left[at]), float(numeric.right[at]), bool(numeric.is_jump[at])
        if verdict == FAIL and not np.isfinite(f.analytic):
            f.note = "the backward gives NaN or Inf where the function and its differences are finite"
        elif verdict == FAIL:
            sizes = [*shape, *(n for y in self.forward.outputs for n in y.shape)]
            hint = ratio_hint(f.analytic, f.numeric, sizes, self.forward.uses_a_value_twice())
            f.hints = [hint] if hint else []
        return f


def power_of_two(x):
    """The power of two next to x, and 0 for 0."""
    return 2.0 ** round(math.log2(x)) if x else 0.0


def norm_of(x):
    """The Euclidean norm of the finite numbers in x. Their squares may overflow or underflow."""
    square = float(np.vdot(x, x))
    if TINIEST_SQUARE < square < math.inf:
        return math.sqrt(square)
    x = np.abs(x[np.isfinite(x)])
    largest = x.max(initial=0)
    return float(largest * np.linalg.norm(x / largest)) if largest else 0.0


def largest_of(x):
    """The largest |number| in an input of an op; 0 if it holds no floats."""
    return float(np.abs(host(x)).max(initial=0)) if isinstance(x, Value) and x.dtype.kind == "f" else 0.0


def eps_of(op, v):
    """eps of the dtype in which an op computed v. An op that hides its inside may compute in float32: then all numbers
    of v are float32 numbers, and eps is float32's. Numbers of few digits, such as 0.5 or the rounding error 2⁻⁵⁴, show
    nothing."""
    eps = PRECISION.get(v.dtype, 0.0)
    if eps == EPS and not op.primitive and v.size and (v.astype(np.float32) == v).all():
        has_digits = np.frexp(v)[0] * 2**FEW_BITS % 1 != 0
        if has_digits.any() and (v * 2**10 % 1).any():
            return PRECISION[np.dtype("float32")]
    return eps


# -- element by element


def check_elements(comparison, combinations=None):
    """Compare each output, or this many random combinations of all, with respect to each element of each input. Adds
    one finding for each leaf: its worst element."""
    gradients = comparison.gradients(None if combinations is None else comparison.draw_cotangents(combinations))
    jacobians: dict = {}  # leaf -> (finding, analytic, numeric)
    for i, leaf in enumerate(comparison.subject.leaves):
        if not gradients.arrays or not leaf.array.size:
            comparison.findings.append(Finding("Jacobian", PASS, leaf.name, note="no elements"))
            continue
        analytic = np.array([g[i].ravel() for g in gradients.arrays]).T  # (elements, K)
        pairs = _compare_elements(comparison, i, analytic, gradients)
        codes = pairs.numeric_verdicts()
        if (codes == CODE[FAIL]).any():
            _allow_for_rounding(comparison, i, gradients, pairs)
            codes = pairs.numeric_verdicts()
        by_output = codes.T
        worst = np.lexsort((pairs.excess.T.ravel(), by_output.ravel()))[-1]
        k, j = np.unravel_index(worst, by_output.shape)
        output = comparison.forward.output_name(comparison.defined[k]) if combinations is None else f"combination {k}"
        f = comparison.finding("Jacobian", pairs, (j, k), (leaf, j), output)
        if f.verdict != PASS:
            same = int((codes == codes[j, k]).sum())
            f.note = f"{same} of {codes.size} elements of this Jacobian" + (f"; {f.note}" if f.note else "")
        comparison.findings.append(f)
        jacobians[leaf] = f, analytic.T, pairs.numeric.value.T
    for leaf, (f, analytic, numeric) in jacobians.items():
        if f.verdict == FAIL:
            others = {other.name: values for other, (*_, values) in jacobians.items() if other is not leaf}
            f.hints = patterns(leaf.array.shape, analytic, numeric, others) + f.hints


def _compare_elements(comparison, i, analytic, gradients):
    """The Pairs, (elements, K), for all elements of leaf i."""
    size = np.abs(np.where(np.isfinite(analytic), analytic, 0)).max(axis=0)
    rows = max(1, CHUNK // analytic.shape[1])
    parts = []
    for start in range(0, len(analytic), rows):
        some = analytic[start : start + rows]
        directions = [unit(comparison.subject, i, start + j) for j in range(len(some))]
        parts.append(comparison.compare(directions, some, size, gradients))
    return Pairs.concatenate(parts)


def unit(subject, i, j):
    """The direction that moves element j of leaf i by 1 and nothing else."""
    direction = [None] * len(subject.leaves)
    direction[i] = np.zeros(subject.leaves[i].array.shape)
    direction[i].flat[j] = 1.0
    return direction


def _allow_for_rounding(comparison, i, gradients, pairs):
    """A FAIL in leaf i is not reliable if the rounding of its inputs explains it, or if no step could resolve it."""
    fails = pairs.numeric_verdicts() == CODE[FAIL]
    for k in np.flatnonzero(fails.any(axis=0)):
        if gradients.cotangents is None:
            cotangent = np.eye(comparison.y.size)[comparison.defined[k]]
        else:
            cotangent = gradients.cotangents[k]
        spread = 8 * comparison.subject.spread(comparison.forward.dys(cotangent))[1 + i].ravel()
        for j in np.flatnonzero(fails[:, k]):
            difference = pairs.difference[j, k]
            direction = unit(comparison.subject, i, j)
            too_fast = comparison.changes_too_fast(direction, cotangent, difference, gradients.noise[k])
            pairs.is_reliable[j, k] &= not (difference <= spread[j] or too_fast)
            if pairs[j].numeric_verdicts()[k] == CODE[FAIL]:
                return  # the leaf fails, whatever becomes of its other elements


# -- along random directions, which is cheap for many elements


def check_directions(comparison, count):
    """Compare along `count` random directions that move all leaves at once, then along one in each leaf alone. Ends at
    the first that is wrong."""
    leaves = comparison.subject.leaves
    tasks = [(f"direction {k}", leaves) for k in range(count)]
    tasks += [(f"direction in {leaf.name}", [leaf]) for leaf in leaves if len(leaves) > 1]
    for name, active in tasks:
        u = to_vector([draw(comparison.rng, leaf.array.shape) * (leaf in active) for leaf in leaves])
        if Directional(comparison, name).check(u) in (NONFINITE, FAIL):
            return


def check_ties(comparison):
    """Compare along directions that move all numbers equal to one at a kink, so that ties stay ties.

    Among equal numbers max may give the gradient to any of them, or share it out, but not give it to each: where all
    grow together, so does the maximum. Elements that move alone do not show that. Only failures are added."""
    leaves = {leaf.name: leaf.array for leaf in comparison.subject.leaves}
    at_kinks = [f for f in comparison.findings if f.verdict == KINK and f.leaf]
    for value in dict.fromkeys(float(leaves[f.leaf][f.index]) for f in at_kinks):
        u = to_vector([(array == value).astype(float) for array in leaves.values()])
        if np.count_nonzero(u) > 1:
            name = f"all numbers equal to {value:.6g}"
            f = Directional(comparison, name).along(u, name)
            if f.verdict == FAIL:
                comparison.findings.append(f)


def draw(rng, shape):
    """Numbers that are not small, with so few binary digits that x ± t u is exact."""
    return rng.integers(8, 25, shape) / 16 * rng.choice([-1.0, 1.0], shape)


class Directional:
    """The derivative of one random combination of the outputs, along directions that are given as one vector u."""

    def __init__(self, comparison, name, most_kinks=MOST_KINKS):
        self.comparison, self.subject, self.name = comparison, comparison.subject, name
        self.most_kinks = most_kinks
        self.gradients = comparison.gradients(comparison.draw_cotangents(1))
        self.gradient = to_vector(self.gradients.arrays[0])

    def check(self, u):
        """Add the finding along u; return the verdict. An element at a kink is reported and removed from u, and the
        rest is checked again."""
        for _ in range(self.most_kinks + 1):
            f = self.along(u, self.name)
            passed = f.verdict == PASS or (f.verdict == INCONCLUSIVE and f.excess <= 1)
            if passed or np.isnan(self.comparison.y).any() or not u.any():
                break
            position, single = self.bisect(u)
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

    def bisect(self, u):
        """Return (position of an element that is wrong, the Finding for that element alone)."""
        suspects = np.flatnonzero(u)
        while suspects.size > 1:
            half = suspects[: suspects.size // 2]
            part = np.zeros(u.size)
            part[half] = u[half]
            numeric = self.comparison.slope(self.direction(part), self.gradients.cotangents, self.gradients.noise)
            total = np.array([self.terms(part).sum()])
            agrees = self.comparison.pairs(total, numeric, 0.0, 0.0).numeric_verdicts()[0] == CODE[PASS]
            suspects = suspects[half.size :] if agrees else half
        only = np.zeros(u.size)
        only[suspects] = 1.0
        return int(suspects[0]), self.along(only, f"{self.name}, bisected", self.element(suspects[0]))

    def along(self, u, name, element=None):
        """Return the Finding for the derivative along u. element: (leaf, j) if u moves only element j of a leaf."""
        comparison, terms, direction = self.comparison, self.terms(u), self.direction(u)
        noise, cotangent = self.gradients.noise, self.gradients.cotangents[0]
        size = np.abs(self.gradient[np.isfinite(self.gradient)]).max(initial=0)
        pairs = comparison.compare([direction], np.array([[terms.sum()]]), size, self.gradients, norm_of(terms))
        if pairs.numeric_verdicts()[0, 0] == CODE[FAIL]:
            difference = pairs.difference[0, 0]
            spread = to_vector(self.subject.spread(comparison.forward.dys(cotangent))[1:])
            is_rounding = not difference > 8 * np.linalg.norm(spread[u != 0] * u[u != 0])
            is_too_steep = element is not None and comparison.changes_too_fast(
                direction, cotangent, difference, noise[0]
            )
            pairs.is_reliable &= not (is_rounding or is_too_steep)
        return comparison.finding(name, pairs, (0, 0), element)

    def terms(self, u):
        """The terms whose sum is the analytic derivative along u. (Elements that do not move are left out, since they
        may be infinite.)"""
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
