"""Derivatives from function values, each with an error bar that covers its error; kinks and jumps told from them."""

from dataclasses import dataclass, fields

import numpy as np

EPS = np.finfo(np.float64).eps
WIDE = 1e-4  # a bar wider than this part of the gradient decides nothing


@dataclass
class Derivative:
    """d phi/dt at 0 for each component of phi. All arrays have phi's shape."""

    value: np.ndarray
    bar: np.ndarray  # 3 bars cover the error
    floor: np.ndarray  # the part of the bar that is float rounding and cannot be had smaller
    left: np.ndarray  # slopes from each side: they differ at a kink
    right: np.ndarray
    kink: np.ndarray  # bool: the slopes differ
    jump: np.ndarray  # bool: phi itself jumps, its differences do not shrink with the step

    def take(self, other, where):
        """Replace components by those of another opinion."""
        for f in fields(self):
            setattr(self, f.name, np.where(where, getattr(other, f.name), getattr(self, f.name)))


def side_by_side(columns):
    """Derivatives of shape (K,) as one of shape (K, number of columns)."""
    return Derivative(*[np.stack([getattr(c, f.name) for c in columns], axis=1) for f in fields(Derivative)])


def first_step(eps=EPS):
    """The step that balances truncation and rounding after some extrapolation, as a power of two (2^-9 for float64).

    Powers of two make x ± h exact for all x that matter, so a large x (sin at 1e6) costs no accuracy."""
    return 2.0 ** np.round(np.log2(4 * eps**0.2) - 0.5)


def derivative(phi, noise, step, levels=10):
    """Central differences, the step halved and the results extrapolated (Ridders 1982; Numerical Recipes 5.7).

    phi: t -> array, the change from phi(0). noise: what rounding does to one phi(t). The bar of a tableau entry is its
    largest change against its two neighbours plus the rounding of the quotient; the entry with the smallest bar wins.
    Stops once every component is known to 1e-10 or rounding dominates; goes on for up to 2 `levels` more while a
    component is still unsettled (a kink, a pole or a fast oscillation near by)."""
    h, up, down = _finite_step(phi, step)
    best, bar, floor = np.zeros_like(up), np.full(up.shape, np.inf), np.zeros_like(up)
    still = np.zeros(up.shape, int)  # for how many levels the difference has not shrunk
    entries: list = []
    before = None
    for level in range(3 * levels):
        if level:
            h /= 2
            before = up, down
            up, down = phi(h), phi(-h)
        row = [(up - down) / (2 * h)]
        for order in range(1, min(level, 3) + 1):
            row.append(row[-1] + (row[-1] - entries[order - 1]) / (4**order - 1))
        if level:
            rounding = 2 * (noise + EPS * (np.abs(up) + np.abs(down))) / h
            error = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - entries[-1])) + rounding
            error = np.where(np.isfinite(error), error, np.inf)
            better = error < bar
            best, bar = np.where(better, row[-1], best), np.where(better, error, bar)
            floor = np.where(better, rounding, floor)
            shrunk = np.abs((up - down) - (before[0] - before[1])) > 0.1 * np.abs(up - down) + 16 * noise
            still = np.where(shrunk | (np.abs(up - down) <= 64 * noise), 0, still + 1)
            settled = (bar <= 1e-10 * np.abs(best)) | (rounding >= bar / 2) | (still >= 3)
            if settled.all() or (level >= levels and (settled | (bar <= 1e-6 * np.abs(best))).all()):
                break
        entries = row
    jump = (still >= 3) & np.isfinite(up - down)
    return Derivative(best, bar, floor, *_sides(before, up, down, h, noise), jump)


def _finite_step(phi, step):
    """The largest of step, step/16, … at which phi is finite on both sides, as far as it can be."""
    h, fewest = step, None
    for _ in range(9):
        up, down = phi(h), phi(-h)
        bad = int((~np.isfinite(up - down)).sum())
        if fewest is None or bad < fewest[0]:
            fewest = bad, h, up, down
        if bad == 0:
            break
        h /= 16
    return fewest[1:]


def _sides(before, up, down, h, noise):
    """(left slope, right slope, do they differ?). The second difference over h tends to 0 unless they do."""
    right, left = 2 * up / h - before[0] / (2 * h), before[1] / (2 * h) - 2 * down / h
    bend, bend_before = (up + down) / h, (before[0] + before[1]) / (2 * h)
    real = np.abs(bend) > 32 * noise / h + 1e-3 * (np.abs(up) + np.abs(down)) / (2 * h)
    return left, right, real & (np.abs(bend - bend_before) < 0.25 * np.abs(bend))


def bisect(disagrees, size):
    """The one index of `size` that makes disagrees(indices) true, halving the suspects."""
    suspects = np.arange(size)
    while suspects.size > 1:
        half = suspects[: suspects.size // 2]
        suspects = half if disagrees(half) else suspects[half.size :]
    return int(suspects[0])
