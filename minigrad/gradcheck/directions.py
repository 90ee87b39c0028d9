"""The gradient along random directions: cheap for many elements. A wrong direction is bisected to its element."""

import numpy as np

from . import numeric as num
from .compare import CODE, scale
from .report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS
from .rounding import unsteadiness
from .subject import joined

MOST_KINKS = 8  # elements at kinks that are taken out of one direction


def directions(comparison, count):
    """Adds findings: all leaves at once, `count` times, then each leaf alone; ends at the first that is wrong."""
    leaves = comparison.subject.leaves
    tasks = [(f"direction {k}", leaves) for k in range(count)]
    tasks += [(f"direction in {leaf.name}", [leaf]) for leaf in leaves if len(leaves) > 1]
    for name, active in tasks:
        u = joined([_draw(comparison.rng, leaf.array.shape) * (leaf in active) for leaf in leaves])
        if Slope(comparison, name).check(u) >= CODE[NONFINITE]:
            return


def _draw(rng, shape):
    """A direction without small elements, and so short in binary that x ± t u is exact."""
    return rng.integers(8, 25, shape) / 16 * rng.choice([-1.0, 1.0], shape)


class Slope:
    """That of one random sum of the outputs, along vectors u over all leaves."""

    def __init__(self, comparison, name):
        self.comparison, self.name = comparison, name
        self.leaves = comparison.subject.leaves
        self.row = comparison.cotangents(1)
        (gradient,), self.noise, self.flow = comparison.rows(self.row)
        self.gradient = joined(gradient)

    def check(self, u):
        """Adds what is found along u; returns its code. An element at a kink is told, taken out, and the rest is
        checked again."""
        for _ in range(MOST_KINKS + 1):
            f = self.along(u, self.name)
            told = f.verdict == PASS or (f.verdict == INCONCLUSIVE and f.excess <= 1)
            if told or np.isnan(self.comparison.y).any() or not u.any():
                break
            position = self.bisect(u)
            only = np.zeros(u.size)
            only[position] = 1.0
            element = self.along(only, f"{self.name}, bisected", self.place(position))
            if element.verdict == PASS:
                f.verdict = INCONCLUSIVE if f.verdict == FAIL else f.verdict
                f.note = f"every single element passes that was looked at; near {element.place}"
                break
            self.comparison.add(element)
            if element.verdict != KINK:
                return CODE[element.verdict]
            u[position] = 0
        else:
            f.verdict = INCONCLUSIVE
            f.note = f"more than {MOST_KINKS} elements at kinks: check at another point, or mode='full'"
        self.comparison.add(f)
        return CODE[f.verdict]

    def along(self, u, name, place=None):
        """The Finding for the derivative along u. place: (leaf, j) if u is one element."""
        c, parts = self.comparison, self.gradient * u
        analytic = np.array([parts.sum()])
        d, codes, excess = c.compare(self.split(u), self.row, self.noise, analytic, self.smallest(u))
        difference = np.abs(analytic - d.value)
        if codes[0] == CODE[FAIL] and difference <= c.trivial(self.gradient, self.flow):
            codes[0] = CODE[PASS]
        elif codes[0] == CODE[FAIL]:
            allowed = 8 * np.linalg.norm(joined(unsteadiness(c.subject, self.row[0])[1]) * u)
            codes[difference <= allowed] = CODE[INCONCLUSIVE]
        elif codes[0] == CODE[PASS] and c.wide(analytic, d, np.maximum(self.flow, np.linalg.norm(parts))):
            codes[0] = CODE[INCONCLUSIVE]
        return c.finding(name, analytic, d, codes, excess, 0, place)

    def bisect(self, u):
        """The position in u of one element that makes this direction disagree."""
        places = np.flatnonzero(u)

        def disagrees(chosen):
            part = np.zeros(u.size)
            part[places[chosen]] = u[places[chosen]]
            split = self.split(part)
            d = self.comparison.slope(split, self.row, self.noise, self.comparison.step_for(split))
            return self.comparison.judge(np.array([self.gradient @ part]), d)[0][0] != CODE[PASS]

        return int(places[num.bisect(disagrees, places.size)])

    def smallest(self, u):
        """The scale of the smallest number that u moves."""
        x = np.abs(joined(self.comparison.subject.arrays)[u != 0])
        return scale(x[x > 0].min(initial=np.inf))

    def split(self, u):
        """A vector over all leaves as one array for each, None where it is 0."""
        parts, start = [], 0
        for leaf in self.leaves:
            part = u[start : start + leaf.array.size]
            parts.append(part.reshape(leaf.array.shape) if part.any() else None)
            start += leaf.array.size
        return parts

    def place(self, position):
        """(leaf, index in it) of a position in u."""
        for leaf in self.leaves:
            if position < leaf.array.size:
                return leaf, position
            position -= leaf.array.size
