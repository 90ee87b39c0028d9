"""What is compared: every element of the Jacobian, or random directions, bisected to the element where one is wrong."""

import numpy as np

from .compare import CODE, scale_of
from .numeric import bisect, side_by_side
from .report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS, Finding, patterns
from .rounding import unsteadiness
from .subject import joined, split

MOST_KINKS = 8  # elements at kinks that are taken out of one direction


# -- element by element


def check_elements(comparison, combinations=None):
    """Compare each output, or so many random combinations of them, with respect to each element of each input. Adds one
    finding for each leaf."""
    c = comparison
    drawn = None if combinations is None else c.draw_cotangents(combinations)
    cotangents = np.eye(c.y.size)[c.defined] if drawn is None else drawn
    gradients, noise, flow = c.gradients(cotangents)
    tables = {}
    for i, leaf in enumerate(c.subject.leaves):
        if not gradients or not leaf.array.size:
            c.add(Finding("Jacobian", PASS, leaf.name, note="no elements"))
            continue
        analytic = np.array([g[i].ravel() for g in gradients])  # (cotangents, elements)
        scales = [scale_of(x) for x in leaf.array.flat]
        columns = [c.compare(c.unit(i, j), drawn, noise, analytic[:, j], scale) for j, scale in enumerate(scales)]
        table = side_by_side(columns)
        codes = table.codes
        small = table.difference <= c.negligible(analytic, flow)
        codes[small & ((codes == CODE[FAIL]) | (codes == CODE[INCONCLUSIVE]))] = CODE[PASS]
        _allow_for_backward(c.subject, i, cotangents, table)
        codes[(codes == CODE[PASS]) & c.too_wide(table, flow[:, None]) & ~small] = CODE[INCONCLUSIVE]
        tables[leaf] = table
    for leaf in tables:
        c.add(_worst(c, leaf, tables, of_outputs=drawn is None))


def _allow_for_backward(subject, i, cotangents, table):
    """A FAIL in leaf i that rounding within the backward explains is not decided."""
    for codes, difference, cotangent in zip(table.codes, table.difference, cotangents):
        if CODE[FAIL] in codes:
            allowed = 8 * unsteadiness(subject, cotangent)[1][i].ravel()
            codes[(codes == CODE[FAIL]) & (difference <= allowed)] = CODE[INCONCLUSIVE]
            if CODE[FAIL] in codes:  # the leaf fails, whatever becomes of the other cotangents
                return


def _worst(comparison, leaf, tables, of_outputs):
    """The finding for one leaf: its gravest element, and what the others of its kind have in common."""
    table = tables[leaf]
    codes = table.codes
    k, j = np.unravel_index(np.lexsort((table.excess.ravel(), codes.ravel()))[-1], codes.shape)
    output = comparison.forward.output_name(comparison.defined[k]) if of_outputs else f"combination {k}"
    f = comparison.finding("Jacobian", table, (k, j), (leaf, j), output)
    alike = codes == codes[k, j]
    if f.verdict != PASS:
        f.note = f"{alike.sum()} of {codes.size} elements of this Jacobian" + (f"; {f.note}" if f.note else "")
    if f.verdict == FAIL:
        others = {other.name: t.d.value for other, t in tables.items() if other is not leaf}
        f.hints = patterns(leaf, table.analytic, table.d.value, alike, others) + f.hints
    return f


# -- along random directions, which is cheap for many elements


def check_directions(comparison, count):
    """Compare along `count` random directions that move all leaves at once, then along one in each leaf alone. Ends at
    the first that is wrong."""
    leaves = comparison.subject.leaves
    tasks = [(f"direction {k}", leaves) for k in range(count)]
    tasks += [(f"direction in {leaf.name}", [leaf]) for leaf in leaves if len(leaves) > 1]
    for name, active in tasks:
        u = joined([_draw(comparison.rng, leaf.array.shape) * (leaf in active) for leaf in leaves])
        if CODE[_Directional(comparison, name).check(u)] >= CODE[NONFINITE]:
            return


def _draw(rng, shape):
    """Numbers that are not small, with so few binary digits that x ± t u is exact."""
    return rng.integers(8, 25, shape) / 16 * rng.choice([-1.0, 1.0], shape)


class _Directional:
    """The derivative of one random combination of the outputs, along directions that are given as one vector u."""

    def __init__(self, comparison, name):
        self.comparison, self.subject, self.name = comparison, comparison.subject, name
        self.cotangents = comparison.draw_cotangents(1)
        (gradient,), self.noise, self.flow = comparison.gradients(self.cotangents)
        self.gradient = joined(gradient)

    def check(self, u):
        """Adds what is found along u; returns the verdict. An element at a kink is reported and taken out of u, and the
        rest is checked again."""
        for _ in range(MOST_KINKS + 1):
            f = self.along(u, self.name)
            passed = f.verdict == PASS or (f.verdict == INCONCLUSIVE and f.excess <= 1)
            if passed or np.isnan(self.comparison.y).any() or not u.any():
                break
            position = self.guilty(u)
            only = np.zeros(u.size)
            only[position] = 1.0
            single = self.along(only, f"{self.name}, bisected", self.element(position))
            if single.verdict == PASS:
                f.verdict = INCONCLUSIVE if f.verdict == FAIL else f.verdict
                f.note = f"each element that was looked at passes by itself; the last was {single.place}"
                break
            self.comparison.add(single)
            if single.verdict != KINK:
                return single.verdict
            u[position] = 0
        else:
            f.verdict = INCONCLUSIVE
            f.note = f"more than {MOST_KINKS} elements at kinks: check at another point, or mode='full'"
        self.comparison.add(f)
        return f.verdict

    def along(self, u, name, element=None):
        """The Finding for the derivative along u. element: (leaf, j) if u is a single one."""
        c, parts = self.comparison, self.gradient * u
        found = c.compare(self.direction(u), self.cotangents, self.noise, np.array([parts.sum()]), self.scale(u))
        (difference,), codes = found.difference, found.codes
        if codes[0] == CODE[FAIL] and difference <= c.negligible(self.gradient, self.flow):
            codes[0] = CODE[PASS]
        elif codes[0] == CODE[FAIL]:  # may rounding within the backward explain it?
            if difference <= 8 * np.linalg.norm(joined(unsteadiness(self.subject, self.cotangents[0])[1]) * u):
                codes[0] = CODE[INCONCLUSIVE]
        elif codes[0] == CODE[PASS] and c.too_wide(found, np.maximum(self.flow, np.linalg.norm(parts))):
            codes[0] = CODE[INCONCLUSIVE]
        return c.finding(name, found, 0, element)

    def guilty(self, u):
        """The position in u of one element that makes this direction disagree."""
        positions = np.flatnonzero(u)

        def disagrees(chosen):
            part = np.zeros(u.size)
            part[positions[chosen]] = u[positions[chosen]]
            direction = self.direction(part)
            d = self.comparison.slope(direction, self.cotangents, self.noise, self.comparison.step_for(direction))
            return self.comparison.judge(np.array([self.gradient @ part]), d)[0][0] != CODE[PASS]

        return int(positions[bisect(disagrees, positions.size)])

    def scale(self, u):
        """The scale of the smallest number that u moves."""
        x = np.abs(joined(self.subject.arrays)[u != 0])
        return scale_of(x[x > 0].min(initial=np.inf))

    def direction(self, u):
        """u as one array for each leaf, None where it is 0."""
        parts = split(u, [leaf.array.shape for leaf in self.subject.leaves])
        return [part if part.any() else None for part in parts]

    def element(self, position):
        """(leaf, index in it) of a position in u."""
        for leaf in self.subject.leaves:
            if position < leaf.array.size:
                return leaf, position
            position -= leaf.array.size
