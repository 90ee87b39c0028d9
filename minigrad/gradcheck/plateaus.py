"""The second look at a doubtful slope: estimates at many step sizes, their measured noise, and their plateaus.

A single difference is easily wrong. Large steps reach beyond the point (a pole, an oscillation, a kink near by); at
small steps, rounding turns any function into stairs or a flat. In between, estimates agree over many steps: that
plateau is the derivative. So an estimate counts only as part of a plateau. Of several plateaus, the one at the smallest
steps counts, since a derivative is a limit. A flat stretch below a plateau decides nothing: if the function is ragged
just above it, rounding caused it.

Sources: Moré and Wild 2011, Estimating computational noise (the difference table); 2012, Estimating derivatives of
noisy functions; Ridders 1982 (the extrapolation)."""

import math

import numpy as np

from .numeric import EPS, Derivative, sides

RATIO = 4  # of one step to the next
LEAST = 3  # estimates that agree, one after the other, make a plateau: over a range of 16 in the step
TIGHT = 0.1  # with bars of at most this part of the slope
OWN = 2.0**-20  # rounding of terms of size 1, also in float32, makes no jump that is larger
RAGGED = 1e-3  # noise of this part of the change: smooth functions show 1e-10 of it


def rungs(step, highest, lowest):
    """The steps of a ladder, falling by RATIO: step among them, the others between lowest and highest."""
    above = max(0, math.floor(math.log(highest / step, RATIO)))
    below = max(0, math.floor(math.log(step / lowest, RATIO)))
    return [step * float(RATIO) ** k for k in range(above, -below - 1, -1)]


def survey(phi, noise, steps):
    """The Derivative of phi at 0 from all of `steps`, and whether each component is on a plateau (bool).

    phi: t -> array, the change from phi(0). noise: what rounding does to it, as far as its graph tells. What it really
    does is measured at the step that the value is from."""
    values, bars, swings, moves = _estimates(phi, noise, steps)
    best, last, plateau = _plateaus(values, bars, _good(steps, bars, swings, noise))
    columns = np.arange(best.size)
    h = np.array(steps)[best]
    value, bar, swing = values[best, columns], bars[best, columns], swings[best, columns]
    measured = np.zeros(best.size)
    left, right, bent, kink = np.zeros((4, best.size))
    for k in np.unique(best):
        measured = np.where(best == k, measured_noise(phi, steps[k] / 4), measured)
    for k in np.unique(last):
        pairs = [(phi(t), phi(-t)) for t in (2 * steps[k], steps[k])]
        found = sides(pairs[0], pairs[1], steps[k], np.maximum(noise, measured))
        left, right, bent, kink = (np.where(last == k, new, old) for new, old in zip(found, (left, right, bent, kink)))
    rounding = 2 * np.maximum(measured, noise + EPS * swing * h) / h
    seen = swing * h > np.maximum(noise, 4 * measured)
    still = (swings[-1] == 0) & moves.any(axis=0)
    d = Derivative(
        value, np.maximum(bar, rounding), rounding, left, right, kink > 0, bent > 0, np.zeros(best.size, bool), swing,
        still, seen, h,
    )  # fmt: skip
    return d, plateau


def _estimates(phi, noise, steps):
    """For each step, as arrays (steps, components): the best extrapolated difference that ends there, its bar, the
    larger |change| / step of the two sides, and whether both sides change by more than noise."""
    found, row = [], []
    for h in steps:
        up, down = phi(h), phi(-h)
        change = np.maximum(np.abs(up), np.abs(down))
        rounding = 2 * (noise + EPS * (np.abs(up) + np.abs(down))) / h
        above, row = row, [(up - down) / (2 * h)]
        value, bar = row[0], np.full(up.shape, np.inf)
        for order in range(1, min(len(above), 3) + 1):
            row.append(row[-1] + (row[-1] - above[order - 1]) / (RATIO ** (2 * order) - 1))
            error = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - above[order - 1])) + rounding
            better = error < bar
            value, bar = np.where(better, row[-1], value), np.where(better, error, bar)
        found.append((value, bar, change / h, np.minimum(np.abs(up), np.abs(down)) > noise))
    return [np.array(part) for part in zip(*found)]


def _good(steps, bars, swings, noise):
    """Which estimates may be part of a plateau? The change is clear of the noise, shrinks with the step, as that of a
    jump does not, and the bar is tight."""
    shrinks = np.concatenate([np.ones_like(swings[:1], bool), swings[1:] <= RATIO / 2 * swings[:-1]])
    return (swings * np.array(steps)[:, None] > 2 * noise) & shrinks & (bars <= TIGHT * swings)


def _plateaus(values, bars, good):
    """For each component (the step of its value, the last step of its plateau, is it on one?): the tightest
    estimate on the plateau of the smallest steps, or else of all."""
    best = np.argmin(np.where(np.isfinite(values), bars, np.inf), axis=0)
    last, plateau = best.copy(), np.zeros(best.size, bool)
    length, here, columns = np.zeros(best.size, int), np.zeros(best.size, int), np.arange(best.size)
    for k in range(len(values)):
        agree = np.abs(values[k] - values[k - 1]) <= 3 * (bars[k] + bars[k - 1]) if k else good[k]
        length = np.where(good[k], np.where(agree, length + 1, 1), 0)
        here = np.where((length == 1) | (bars[k] < bars[here, columns]), k, here)
        long = length >= LEAST
        best, last, plateau = np.where(long, here, best), np.where(long, k, last), plateau | long
    return best, last, plateau


def flattened(phi, steps, widest):
    """Did rounding cause the flat at the end of these steps (bool)? At steps where phi changes by a few units of
    rounding, it is ragged; a function with a flat of its own, such as a dead zone, is smooth up to its edge. A flat
    wider than `widest` that ends in a jump of more than OWN is the function's own, as a quantiser's."""
    changes = np.array([np.maximum(np.abs(phi(h)), np.abs(phi(-h))) for h in steps])
    edge = np.array([max(np.flatnonzero(column), default=0) for column in changes.T], int)  # the last that moves
    found, before = np.zeros(edge.size, bool), np.maximum(edge - 1, 0)
    for k in np.unique(before):
        start = 1.07 * steps[k]  # of many digits, with which nothing is exact by luck
        ragged = measured_noise(phi, 0.11 * start, start) > RAGGED * changes[k]
        found |= ragged & (before == k)
    own = (np.array(steps)[edge] > widest) & (changes[edge, np.arange(edge.size)] > OWN)
    return found & ~own


def measured_noise(phi, h, start=0.0):
    """The standard deviation of the rounding in phi, from nine values h apart on each side; 0 where none shows. The
    first ones are at ±start.

    The k-th differences of a smooth function shrink fast with k; those of noise, scaled by √(k!² / (2k)!), all have its
    size, and alternate in sign. Three scaled differences in a row within a factor of 4 are noise (Moré and Wild). None
    are taken across 0, where there may be a kink."""
    zero = np.zeros_like(phi(start + h))
    differences = np.array([[phi(t) if t else zero for t in sign * (start + h * np.arange(9))] for sign in (-1, 1)])
    sizes, alternates = [], []
    for k in range(1, 7):
        differences = np.diff(differences, axis=1)
        scale = math.factorial(k) / math.sqrt(math.factorial(2 * k))
        sizes.append(scale * np.sqrt(np.mean(differences**2, axis=(0, 1))))
        alternates.append((differences.min(axis=(0, 1)) < 0) & (differences.max(axis=(0, 1)) > 0))
    noise = zero
    for k in reversed(range(len(sizes) - 2)):
        three = np.array(sizes[k : k + 3])
        found = alternates[k] & (three.max(axis=0) <= 4 * three.min(axis=0))
        noise = np.where(found, sizes[k], noise)
    return noise
