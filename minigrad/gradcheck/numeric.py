"""Derivatives from function values, each with an error bar that covers its error; kinks and jumps told from slopes."""

from dataclasses import dataclass, fields

import numpy as np

EPS = float(np.finfo(np.float64).eps)
STEP = 2.0**-9  # balances truncation and rounding after some extrapolation. As a power of two it makes x ± h exact
LEVELS = 10  # halvings of the step; up to MOST where components stay unsettled
MOST = 60  # by then the step is 1e-21: what does not shrink until there, or until x + h is x, is a jump
NEAR = 2.0**-17  # a kink must show at this step too, where noise allows
JUMP = 8  # the last halvings, which all leave the change of phi as large as it was


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
    flat: np.ndarray  # bool: phi changes at larger steps and not at all at smaller ones: rounding?
    seen: np.ndarray  # bool: phi changes by more than its noise at the steps that the value is from
    step: np.ndarray  # the smallest of those

    @property
    def strange(self):
        """bool: the slopes at the smallest steps contradict the value, which then decides nothing"""
        steepest = np.maximum(np.abs(self.left), np.abs(self.right))
        return np.abs(self.value - (self.left + self.right) / 2) > 3 * self.bar + 0.01 * steepest

    def replace(self, where, other):
        """Put the components of another Derivative in place of these, where the mask says so."""
        for f in fields(self):
            setattr(self, f.name, np.where(where, getattr(other, f.name), getattr(self, f.name)))


def side_by_side(columns):
    """Arrays of shape (K,), or dataclasses made of such arrays, as one of shape (K, number of columns)."""
    if isinstance(columns[0], np.ndarray):
        return np.stack(columns, axis=1)
    parts = {f.name: side_by_side([getattr(c, f.name) for c in columns]) for f in fields(columns[0])}
    return type(columns[0])(**parts)


def derivative(phi, noise, step, least=0.0):
    """Central differences, the step halved and the results extrapolated (Ridders 1982; Numerical Recipes 5.7).

    phi: t -> array, the change from phi(0). noise: what rounding does to one phi(t). least: the step below which x + h
    would be rounded. Returns a Derivative.

    The bar of a tableau entry is its largest change against its two neighbours plus the rounding of the quotient; the
    entry with the smallest bar wins. The halving stops once every component is known to 1e-10 or rounding dominates; it
    goes on beyond LEVELS while a component is unsettled, as it is at a kink, or near a pole or a fast oscillation."""
    h, up, down = _finite_step(phi, step)
    best, bar, floor = np.zeros_like(up), np.full(up.shape, np.inf), np.zeros_like(up)
    found_at = np.full(up.shape, h)  # the step of the best entry
    swing = np.zeros(up.shape)
    unshrunk = np.zeros(up.shape, int)  # levels in a row at which phi has not shrunk with the step
    pieces = _Pieces(up.shape)
    seen = np.zeros(up.shape, bool)
    changed, flat = (up != 0) | (down != 0), np.zeros(up.shape, bool)
    row: list = []
    before: tuple = ()
    for level in range(MOST):
        if level:
            h, before = h / 2, (up, down)
            up, down = phi(h), phi(-h)
        change = np.maximum(np.abs(up), np.abs(down))
        swing = np.fmax(swing, change / h)
        above, row = row, [(up - down) / (2 * h)]
        for order in range(1, min(level, 3) + 1):
            row.append(row[-1] + (row[-1] - above[order - 1]) / (4**order - 1))
        if not level:
            continue
        rounding = 2 * (noise + EPS * (np.abs(up) + np.abs(down))) / h
        error = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - above[-1])) + rounding
        error = np.where(np.isfinite(error), error, np.inf)
        better = error < bar
        best, bar = np.where(better, row[-1], best), np.where(better, error, bar)
        floor, found_at = np.where(better, rounding, floor), np.where(better, h, found_at)
        flat = np.where(better, changed & (up == 0) & (down == 0), flat)
        seen = np.where(better, change > noise, seen)
        changed |= (up != 0) | (down != 0)
        change_before = np.maximum(np.abs(before[0]), np.abs(before[1]))
        unshrunk = np.where((change > 64 * noise) & (change > 0.9 * change_before), unshrunk + 1, 0)
        if unshrunk.any():
            pieces.add(before, (up, down), h, noise)
        settled = ((bar <= 1e-10 * np.abs(best)) | (rounding >= bar / 2)) & (unshrunk == 0)
        if settled.all() or h / 2 < least or (level >= LEVELS and (settled | (bar <= 1e-6 * np.abs(best))).all()):
            break
    jump = (unshrunk >= JUMP) & np.isfinite(up - down)
    left, right, bent, kink = sides(before, (up, down), h, noise)
    if bent.any() and h > NEAR and least < NEAR:  # or are there two kinks, one on each side?
        wider, closer = [(phi(t), phi(-t)) for t in (2 * NEAR, NEAR)]
        here, there, still_bent, _ = sides(wider, closer, NEAR, noise)
        smooth = bent & ~still_bent & (np.abs(right - left) * NEAR > 256 * noise)
        left, right = np.where(smooth, here, left), np.where(smooth, there, right)
        bent, kink = bent & ~smooth, kink & ~smooth
        bar = np.where(smooth, np.maximum(bar, np.abs(best - (left + right) / 2)), bar)
    if jump.any():
        left, right = np.where(jump, pieces.left, left), np.where(jump, pieces.right, right)
        floor = np.where(jump, pieces.error / 8, floor)
    return Derivative(best, bar, floor, left, right, kink, bent, jump, swing, flat, seen, found_at)


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


class _Pieces:
    """The slopes of the two pieces that meet at a jump: of what is left between 2h and h, on the step where they change
    least, for their size, from one step to the next."""

    def __init__(self, shape):
        self.last = self.left, self.right = np.zeros(shape), np.zeros(shape)
        self.error, self.part = np.full(shape, np.inf), np.full(shape, np.inf)

    def add(self, before, here, h, noise):
        slopes = (here[1] - before[1]) / h, (before[0] - here[0]) / h
        rounding = 2 * (noise + EPS * (np.abs(here[0]) + np.abs(here[1]))) / h
        error = np.maximum(*(np.abs(slope - last) for slope, last in zip(slopes, self.last))) + rounding
        size = np.maximum(*map(np.abs, slopes))
        part = np.where(size > 0, error / size, 1.0)
        better = part < self.part
        self.last, self.part = slopes, np.where(better, part, self.part)
        self.left, self.right = np.where(better, slopes[0], self.left), np.where(better, slopes[1], self.right)
        self.error = np.where(better, error, self.error)


def sides(before, here, h, noise):
    """(left slope, right slope, do they differ, and by much?), from (phi(2h), phi(-2h)) and (phi(h), phi(-h)). Unless
    they differ, (phi(h) + phi(-h)) / h tends to 0."""
    up, down = here
    right, left = 2 * up / h - before[0] / (2 * h), before[1] / (2 * h) - 2 * down / h
    bend, bend_before = (up + down) / h, (before[0] + before[1]) / (2 * h)
    bent = (np.abs(bend) > 32 * noise / h) & (np.abs(bend - bend_before) < 0.25 * np.abs(bend))
    return left, right, bent, bent & (np.abs(bend) > 1e-3 * (np.abs(up) + np.abs(down)) / (2 * h))


def bisect(disagrees, size):
    """The one index of `size` that makes disagrees(indices) true, halving the suspects."""
    suspects = np.arange(size)
    while suspects.size > 1:
        half = suspects[: suspects.size // 2]
        suspects = half if disagrees(half) else suspects[half.size :]
    return int(suspects[0])
