"""Derivatives from function values, each with an error bar that covers its error; kinks and jumps told from slopes.

`derivative` is the first look, at small steps. Where it leaves a doubt, `survey` takes steps of all sizes: large ones
reach beyond the point (a pole, a kink near by), and rounding turns any function into stairs at small ones. In between,
estimates agree over many steps: that plateau is the derivative.

Sources: Ridders 1982 (Numerical Recipes 5.7); Moré and Wild 2012, Estimating derivatives of noisy functions."""

import math
from dataclasses import dataclass, fields

import numpy as np

EPS = float(np.finfo(np.float64).eps)
STEP = 2.0**-9  # balances truncation and rounding after some extrapolation. As a power of two it makes x ± h exact
LEVELS = 10  # halvings of the step; up to MOST where components stay unsettled
MOST = 60  # the step is 1e-21 then: a change that has not shrunk by then, or before x + h is x, is a jump
NEAR = 2.0**-17  # a kink must show at this step too, where noise allows
JUMP = 8  # the last halvings, which all leave the change of phi as large as it was
LEAST_JUMP = 2.0**-20  # rounding of terms of size 1, also in float32, makes none that is larger
RATIO = 4  # ratio of a step of the survey to the next
PLATEAU = 3  # estimates that agree, one after the other: over a range of 16 in the step
TIGHT = 0.1  # their bars are at most this part of the slope


@dataclass
class Derivative:
    """d phi/dt at 0 for each component of phi. All arrays have phi's shape."""

    value: np.ndarray
    bar: np.ndarray  # 3 bars cover the error
    floor: np.ndarray  # the part of the bar that is rounding in float64: no other step would make it smaller
    left: np.ndarray  # slopes from each side: they differ at a kink. At a jump, those of the two pieces
    right: np.ndarray
    kink: np.ndarray  # bool: the slopes differ, by a thousandth at least
    bent: np.ndarray  # bool: they differ at all
    jump: np.ndarray  # bool: phi itself jumps, its differences do not shrink with the step
    swing: np.ndarray  # the largest |change| / step on one side: how much there was to see
    seen: np.ndarray  # bool: phi changes by more than its noise at the steps that the value is from
    flat: np.ndarray  # bool: phi changes at larger steps and not at all at smaller ones: rounding?

    @property
    def strange(self):
        """bool: the slopes at the smallest steps contradict the value, which then decides nothing"""
        steepest = np.maximum(np.abs(self.left), np.abs(self.right))
        return np.abs(self.value - (self.left + self.right) / 2) > 3 * self.bar + 0.01 * steepest

    def replaced(self, where, other):
        """A Derivative with the components of another one where the mask says so."""
        pairs = ((getattr(other, f.name), getattr(self, f.name)) for f in fields(self))
        return Derivative(*(np.where(where, *pair) for pair in pairs))


class Tableau:
    """Central differences at falling steps, extrapolated. add() gives the best value that ends at a step and its bar:
    its largest change against its two neighbours, plus the rounding of the quotient."""

    def __init__(self, noise, ratio):
        self.noise, self.ratio, self.row = noise, ratio, []

    def add(self, h, up, down):
        rounding = 2 * (self.noise + EPS * (np.abs(up) + np.abs(down))) / h
        above, self.row = self.row, [(up - down) / (2 * h)]
        value, bar = self.row[0], np.full(up.shape, np.inf)
        for order in range(1, min(len(above), 3) + 1):
            self.row.append(self.row[-1] + (self.row[-1] - above[order - 1]) / (self.ratio ** (2 * order) - 1))
            error = np.maximum(np.abs(self.row[-1] - self.row[-2]), np.abs(self.row[-1] - above[order - 1])) + rounding
            better = error < bar
            value, bar = np.where(better, self.row[-1], value), np.where(better, error, bar)
        return value, bar, rounding


def derivative(phi, noise, step, least=0.0):
    """Differences of phi (t -> array, the change from phi(0)), the step halved until every component is known to 1e-10
    or rounding dominates; beyond LEVELS while a component is unsettled, as at a kink, or near a pole.

    noise: what rounding does to one phi(t). least: the step below which x + h would be rounded."""
    h, up, down = _finite_step(phi, step)
    tableau, before = Tableau(noise, 2), (up, down)
    best, bar, floor, swing = tableau.add(h, up, down)[0], np.full(up.shape, np.inf), np.zeros(up.shape), np.abs(up) / h
    unshrunk = np.zeros(up.shape, int)  # levels in a row at which phi has not shrunk with the step
    seen, flat, changed = np.zeros((3, *up.shape), bool)
    pieces = 0 * up, 0 * up
    for level in range(MOST):
        if level:
            h, before = h / 2, (up, down)
            up, down = phi(h), phi(-h)
            value, error, rounding = tableau.add(h, up, down)
        change = np.maximum(np.abs(up), np.abs(down))
        swing = np.fmax(swing, change / h)
        changed |= change > 0
        if not level:
            continue
        better = error < bar
        best, bar, floor = (np.where(better, *pair) for pair in ((value, best), (error, bar), (rounding, floor)))
        seen, flat = np.where(better, change > noise, seen), np.where(better, changed & (change == 0), flat)
        shrunk = change <= np.maximum(64 * noise, 0.9 * np.maximum(np.abs(before[0]), np.abs(before[1])))
        unshrunk = np.where(shrunk | (change < LEAST_JUMP), 0, unshrunk + 1)
        if level == JUMP:  # where rounding is still small
            pieces = (down - before[1]) / h, (before[0] - up) / h
        settled = ((bar <= 1e-10 * np.abs(best)) | (rounding >= bar / 2)) & (unshrunk == 0)
        if settled.all() or h / 2 < least or (level >= LEVELS and (settled | (bar <= 1e-6 * np.abs(best))).all()):
            break
    jump = (unshrunk >= JUMP) & np.isfinite(up - down)
    left, right, bent, kink = sides(before, (up, down), h, noise)
    if bent.any() and h > NEAR > least:  # two kinks, one on each side, would look like a kink at 0
        wider, closer = [(phi(t), phi(-t)) for t in (2 * NEAR, NEAR)]
        here, there, still_bent, _ = sides(wider, closer, NEAR, noise)
        smooth = bent & ~still_bent & (np.abs(right - left) * NEAR > 256 * noise)
        left, right = np.where(smooth, here, left), np.where(smooth, there, right)
        bent, kink = bent & ~smooth, kink & ~smooth
        bar = np.where(smooth, np.maximum(bar, np.abs(best - (left + right) / 2)), bar)
    left, right = np.where(jump, pieces[0], left), np.where(jump, pieces[1], right)
    return Derivative(best, bar, floor, left, right, kink, bent, jump, swing, seen, flat)


def _finite_step(phi, step):
    """(h, phi(h), phi(-h)) for the largest h of step, step/16, … at which all values are finite, or most of them."""
    tried = []
    for k in range(9):
        h = step / 16**k
        up, down = phi(h), phi(-h)
        tried.append((np.count_nonzero(~np.isfinite(up - down)), k, h, up, down))
        if tried[-1][0] == 0:
            break
    return min(tried, key=lambda t: t[:2])[2:]


def sides(before, here, h, noise):
    """(left slope, right slope, do they differ, and by much?), from (phi(2h), phi(-2h)) and (phi(h), phi(-h)). Unless
    they differ, (phi(h) + phi(-h)) / h tends to 0."""
    up, down = here
    right, left = 2 * up / h - before[0] / (2 * h), before[1] / (2 * h) - 2 * down / h
    bend, bend_before = (up + down) / h, (before[0] + before[1]) / (2 * h)
    bent = (np.abs(bend) > 32 * noise / h) & (np.abs(bend - bend_before) < 0.25 * np.abs(bend))
    return left, right, bent, bent & (np.abs(bend) > 1e-3 * (np.abs(up) + np.abs(down)) / (2 * h))


def rungs(step, highest, lowest):
    """The steps of a survey, falling by RATIO: step among them, the others between lowest and highest."""
    above, below = (max(0, math.floor(math.log(ratio, RATIO))) for ratio in (highest / step, step / lowest))
    return [step * float(RATIO) ** k for k in range(above, -below - 1, -1)]


def survey(phi, noise, steps, least_jump=LEAST_JUMP):
    """(the Derivative from all of `steps`, is each component on a plateau?). Of several plateaus the one at the
    smallest steps counts, since a derivative is a limit; without one, the tightest estimate. Where phi does not change
    at the smallest steps, it is flat, or its stairs are the function's own: 0 is their slope, and a plateau."""
    tableau, found = Tableau(noise, RATIO), []
    for h in steps:
        up, down = phi(h), phi(-h)
        found.append((*tableau.add(h, up, down), np.maximum(np.abs(up), np.abs(down)) / h))
    values, bars, roundings, swings = (np.array(part) for part in zip(*found))
    # a part of a plateau is clear of the noise, shrinks with the step, as a jump does not, and has a tight bar
    shrinks = np.concatenate([np.ones_like(swings[:1], bool), swings[1:] <= RATIO / 2 * swings[:-1]])
    good = (swings * np.array(steps)[:, None] > 2 * noise) & shrinks & (bars <= TIGHT * swings)
    best = np.argmin(np.where(np.isfinite(values), bars, np.inf), axis=0)
    last, plateau = best.copy(), np.zeros(best.size, bool)
    length, here, columns = np.zeros(best.size, int), np.zeros(best.size, int), np.arange(best.size)
    for k in range(len(values)):
        agree = np.abs(values[k] - values[here, columns]) <= 3 * (bars[k] + bars[here, columns])
        length = np.where(good[k], np.where(agree, length + 1, 1), 0)
        here = np.where((length == 1) | (bars[k] < bars[here, columns]), k, here)
        long = length >= PLATEAU
        best, last, plateau = np.where(long, here, best), np.where(long, k, last), plateau | long
    left, right, bent, kink = np.zeros((4, best.size))
    for k in np.unique(last):
        wider, closer = [(phi(t), phi(-t)) for t in (2 * steps[k], steps[k])]
        now = sides(wider, closer, steps[k], noise)
        left, right, bent, kink = (np.where(last == k, new, old) for new, old in zip(now, (left, right, bent, kink)))
    value, bar, floor, swing = (table[best, columns] for table in (values, bars, roundings, swings))
    changes = swings * np.array(steps)[:, None]
    edge = np.where(changes > 0, changes, np.inf).min(axis=0)  # the smallest change that there is
    still, seen = (swings[-1] == 0) & np.isfinite(edge), changes[best, columns] > noise
    stairs = still & (edge > least_jump)
    value, bar = np.where(stairs, 0, value), np.where(stairs, 0, bar)
    never = np.zeros(best.size, bool)
    d = Derivative(value, bar, floor, left, right, kink > 0, bent > 0, never, swing, seen, still & ~stairs)
    return d, plateau | stairs
