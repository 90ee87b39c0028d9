"""Comparing every element of the Jacobian, or random directions, with a wrong one bisected down to its element."""

import numpy as np

from .budget import attempt, follow
from .compare import CODE
from .numeric import bisect, side_by_side
from .report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS, Finding, patterns
from .rounding import unsteadiness
from .subject import joined, split

MOST_KINKS = 8  # elements at kinks that are removed from one direction


# -- element by element


def check_elements(comparison, combinations=None):
    """Compare each output, or this many random combinations of all, with respect to each element of each input. Adds
    one finding for each leaf."""
    c = comparison
    drawn = None if combinations is None else c.draw_cotangents(combinations)
    cotangents = np.eye(c.y.size)[c.defined] if drawn is None else drawn
    gradients, noise, flow, gain = c.gradients(cotangents)
    tables = {}
    for i, leaf in enumerate(c.subject.leaves):
        if not gradients or not leaf.array.size:
            c.findings.append(Finding("Jacobian", PASS, leaf.name, note="no elements"))
            continue
        analytic = np.array([g[i].ravel() for g in gradients])  # (cotangents, elements)
        columns = attempt("Jacobian", f"Jacobian of {leaf.name}", _columns, c, i, drawn, noise, gain, analytic)
        if columns is None:
            continue
        tables[leaf] = table = side_by_side(columns)
        c.settle(table, analytic, flow)
        what = f"whether rounding explains it in {leaf.name}"
        follow("question", what, _allow_for_rounding, c, i, cotangents, noise, table)
    for leaf in tables:
        c.findings.append(_worst(c, leaf, tables, of_outputs=drawn is None))


def _columns(c, i, drawn, noise, gain, analytic):
    """The comparison of each element of leaf i."""
    size = np.abs(analytic).max(axis=1)
    elements = range(c.subject.leaves[i].array.size)
    return [c.compare(c.unit(i, j), drawn, noise, gain, analytic[:, j], size) for j in elements]


def _allow_for_rounding(comparison, i, cotangents, noise, table):
    """A FAIL in leaf i is not reliable if rounding within the backward explains it, or if no step could resolve it."""
    rows = zip(table.codes == CODE[FAIL], table.reliable, table.difference, cotangents, noise)
    for fails, reliable, difference, cotangent, n in rows:
        if fails.any():
            allowed = 8 * unsteadiness(comparison.subject, cotangent)[1][i].ravel()
            reliable[fails & (difference <= allowed)] = False
        for j in np.flatnonzero(fails & reliable):
            if not comparison.too_rough(comparison.unit(i, j), cotangent, difference[j], n):
                return  # the leaf fails, whatever becomes of its other elements
            reliable[j] = False


def _worst(comparison, leaf, tables, of_outputs):
    """The finding for one leaf: its worst element, and what the others like it have in common."""
    table = tables[leaf]
    codes = table.codes
    k, j = np.unravel_index(np.lexsort((table.excess.ravel(), codes.ravel()))[-1], codes.shape)
    output = comparison.forward.output_name(comparison.defined[k]) if of_outputs else f"combination {k}"
    f = comparison.finding("Jacobian", table, (k, j), (leaf, j), output)
    alike = codes == codes[k, j]
    if f.verdict != PASS:
        passing = int((codes == CODE[PASS]).all(axis=0).sum())
        f.note = f"{alike.sum()} of {codes.size} elements of this Jacobian" + (f"; {f.note}" if f.note else "")
        f.note += f"; {passing} of {codes.shape[1]} columns pass" if passing else ""
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

    def check(name, active):
        u = joined([draw(comparison.rng, leaf.array.shape) * (leaf in active) for leaf in leaves])
        return Directional(comparison, name).check(u)

    for name, active in tasks:
        if CODE[attempt("direction", name, check, name, active) or PASS] >= CODE[NONFINITE]:
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
        (gradient,), self.noise, self.flow, self.gain = comparison.gradients(self.cotangents)
        self.gradient = joined(gradient)

    def check(self, u):
        """Add the finding along u; return the verdict. An element at a kink is reported and removed from u, and the
        rest is checked again."""
        for _ in range(self.most_kinks + 1):
            f = self.along(u, self.name)
            passed = f.verdict == PASS or (f.verdict == INCONCLUSIVE and f.excess <= 1)
            if passed or np.isnan(self.comparison.y).any() or not u.any():
                break
            found = follow("question", f"which element is wrong in {self.name}", self.bisected, u)
            if found is None:
                f.verdict, f.note = INCONCLUSIVE, f"{f.verdict} along this direction; no time was left to find where"
                break
            position, single = found
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
        """(position of a wrong element, the Finding for it alone)"""
        position = self.guilty(u)
        only = np.zeros(u.size)
        only[position] = 1.0
        return position, self.along(only, f"{self.name}, bisected", self.element(position))

    def along(self, u, name, element=None):
        """The Finding for the derivative along u. element: (leaf, j) if u is a single one."""
        c, parts = self.comparison, self.terms(u)
        found = c.compare(self.direction(u), self.cotangents, self.noise, self.gain, np.array([parts.sum()]))
        c.settle(found, self.gradient, np.maximum(self.flow[0], np.linalg.norm(parts)))
        if found.codes[0] == CODE[FAIL]:  # may rounding within the backward explain it?
            moving, (difference,) = u != 0, found.difference
            rounded = joined(unsteadiness(self.subject, self.cotangents[0])[1])[moving] * u[moving]
            found.reliable[:] = difference > 8 * np.linalg.norm(rounded) and not (
                element and c.too_rough(self.direction(u), self.cotangents[0], difference, self.noise[0])
            )
        return c.finding(name, found, 0, element)

    def terms(self, u):
        """What adds up to the analytic derivative along u: infinite elements that do not move have no part in it."""
        return self.gradient[u != 0] * u[u != 0]

    def guilty(self, u):
        """The position in u of one element that makes this direction disagree."""
        positions = np.flatnonzero(u)

        def disagrees(chosen):
            part = np.zeros(u.size)
            part[positions[chosen]] = u[positions[chosen]]
            direction = self.direction(part)
            d = self.comparison.slope(direction, self.cotangents, self.noise)
            return self.comparison.judged(np.array([self.terms(part).sum()]), d).codes[0] != CODE[PASS]

        return int(positions[bisect(disagrees, positions.size)])

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
