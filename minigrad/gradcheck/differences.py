"""Derivatives from function values, each with an error bar that covers its error; kinks and jumps told from slopes.

`derivatives` is the first look, at small steps. Where it leaves a doubt, `survey` takes steps of all sizes: large ones
reach beyond the point (a pole, a kink near by), and at small ones rounding turns any function into stairs. In between,
estimates agree over many steps: that plateau is the derivative.

A path is a function t -> array (K,): the change of K numbers where the point has moved by t along a direction.

Sources: Ridders 1982 (Numerical Recipes 5.7); Moré and Wild 2012, Estimating derivatives of noisy functions."""

import math
from dataclasses import dataclass, fields

import numpy as np

EPS = float(np.finfo(np.float64).eps)
STEP = 2.0**-9  # balances truncation and rounding after some extrapolation. As a power of two it makes x ± h exact
LEVELS = 10  # halvings of the step, if all components are settled by then
MOST = 60  # halvings at most, after which the step is 1e-21: a change that has not shrunk by then is a jump
NEAR = 2.0**-17  # a kink must show at this step too, where noise allows
JUMP = 8  # at a jump, the change stays as large as it was for so many halvings
LEAST_JUMP = 2.0**-20  # a jump is at least so high: rounding of terms of size 1, also in float32, makes smaller ones
RATIO = 4  # ratio of a step of the survey to the next
PLATEAU = 3  # a plateau has so many estimates in a row that agree: over a range of 16 in the step
TIGHT = 0.1  # bars on a plateau are at most this part of the slope
RELATIVE_STEP = 2.0**-40  # the smallest exact step is this part of the last step that is tried
AGREES = 1e-9  # two steps are enough if they agree with the expected slope to this part of it


@dataclass
class Arrays:
    """The base of dataclasses whose fields are arrays of one shape: their rows can be read and replaced together."""

    def __getitem__(self, rows):
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def __setitem__(self, rows, other):
        for f in fields(self):
            getattr(self, f.name)[rows] = getattr(other, f.name)

    @classmethod
    def concatenate(cls, parts):
        """The rows of all parts, one after the other."""
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}
        return cls(**{name: _concatenate(column) for name, column in columns.items()})


def _concatenate(parts):
    return type(parts[0]).concatenate(parts) if isinstance(parts[0], Arrays) else np.concatenate(parts)


@dataclass
class Derivative(Arrays):
    """The derivatives of the K numbers along a path at t = 0, as arrays (K,); along n paths (n, K)."""

    value: np.ndarray
    bar: np.ndarray  # 3 bars cover the error
    floor: np.ndarray  # the part of the bar that is rounding in float64: no other step would make it smaller
    left: np.ndarray  # slopes from each side: they differ at a kink. At a jump, the slopes of the two pieces
    right: np.ndarray
    is_kink: np.ndarray  # bool: the slopes differ by a thousandth at least
    slopes_differ: np.ndarray  # bool: they differ at all
    is_jump: np.ndarray  # bool: the function itself jumps: its change does not shrink with the step
    steepest: np.ndarray  # the largest |change| / step on one side: how much there was to see
    above_noise: np.ndarray  # bool: the function changes by more than its noise at the steps that the value is from
    is_stair: np.ndarray  # bool: it changes at larger steps and not at all at smaller ones, as rounding makes it

    @property
    def contradicts_slopes(self):
        """bool: the slopes at the smallest steps contradict the value, which then decides nothing."""
        steepest = np.maximum(np.abs(self.left), np.abs(self.right))
        return np.abs(self.value - (self.left + self.right) / 2) > 3 * self.bar + 0.01 * steepest

    def replace_where(self, where, other):
        """A Derivative with the components of `other` where the mask is True, and of this one elsewhere."""
        parts = {f.name: np.where(where, getattr(other, f.name), getattr(self, f.name)) for f in fields(self)}
        return Derivative(**parts)


class Tableau:
    """Central differences at falling steps, extrapolated to step 0."""

    def __init__(self, noise, ratio):
        self.noise, self.ratio, self.row = noise, ratio, []

    def add(self, h, up, down):
        """Add step h, with the changes at h and -h. Return (the best value that this step gives, its bar, the rounding
        in the value).

        The bar is the value's largest difference from its two neighbours in the tableau, plus the rounding."""
        rounding = 2 * (self.noise + EPS * (np.abs(up) + np.abs(down))) / h
        above, self.row = self.row, [(up - down) / (2 * h)]
        value, bar = self.row[0], np.full(up.shape, np.inf)
        for order in range(1, min(len(above), 3) + 1):
            self.row.append(self.row[-1] + (self.row[-1] - above[order - 1]) / (self.ratio ** (2 * order) - 1))
            error = np.maximum(np.abs(self.row[-1] - self.row[-2]), np.abs(self.row[-1] - above[order - 1])) + rounding
            better = error < bar
            value, bar = np.where(better, self.row[-1], value), np.where(better, error, bar)
        return value, bar, rounding

    def keep(self, rows):
        """Drop all paths but these."""
        self.row = [values[rows] for values in self.row]


@dataclass
class _Look(Arrays):
    """The state of n paths after some steps: arrays (n, K), and the step h, (n, 1)."""

    h: np.ndarray
    up: np.ndarray  # the change at h
    down: np.ndarray  # the change at -h
    up_before: np.ndarray  # the change at 2h
    down_before: np.ndarray
    value: np.ndarray  # the best value so far, its bar, and the rounding in it
    bar: np.ndarray
    floor: np.ndarray
    floor_now: np.ndarray  # the rounding in a value at this step
    steepest: np.ndarray  # the largest |change| / step so far
    above_noise: np.ndarray  # see Derivative
    is_stair: np.ndarray
    has_changed: np.ndarray  # bool: there was a change at some step
    not_shrinking: np.ndarray  # steps in a row at which the change has not shrunk with the step
    left_piece: np.ndarray  # slopes of the two sides if this is a jump
    right_piece: np.ndarray


def derivative(path, noise, step, smallest_step=0.0):
    """Return the Derivative along one path, (K,). See `derivatives`."""
    return derivatives([path], noise, [step], [smallest_step])[0]


def derivatives(paths, noise, steps, smallest_steps, expected=None, rtol=AGREES):
    """Return the Derivative along n paths, (n, K).

    The step of path i begins at steps[i]. It is halved until every component is known to 1e-10, or rounding dominates.
    After LEVELS halvings only components go on that are not settled, as at a kink or near a pole; no step is below
    smallest_steps[i], where x + h would be rounded. noise, (K,): the error of rounding in one value.

    expected, (n, K): the analytic slopes. No third step is taken if the value extrapolated from the first two agrees
    with the expected one to rtol, which no wrong slope does, and the one-sided slopes agree."""
    running, finished = np.arange(len(paths)), []
    smallest, tableau = np.array(smallest_steps, float), Tableau(noise, 2)
    look = _first_step(paths, steps, smallest_steps, tableau)
    for level in range(1, MOST):
        _halve(look, [paths[i] for i in running], tableau, noise)
        if level == JUMP:  # where rounding is still small
            look.left_piece = (look.down - look.down_before) / look.h
            look.right_piece = (look.up_before - look.up) / look.h
        precise = look.bar <= 1e-10 * np.abs(look.value)
        settled = (precise | (look.floor_now >= look.bar / 2)) & (look.not_shrinking == 0)
        if level == 1 and expected is not None:
            settled |= _agree_at_once(look, expected, rtol, noise)
        ends = settled.all(axis=1) | (look.h[:, 0] / 2 < smallest[running]) | (level == MOST - 1)
        if level >= LEVELS:
            ends |= (settled | (look.bar <= 1e-6 * np.abs(look.value))).all(axis=1)
        if ends.any():
            rows = running[ends]
            finished.append((rows, _finish(look[ends], [paths[i] for i in rows], noise, smallest[rows])))
            running, look = running[~ends], look[~ends]
            tableau.keep(~ends)
        if not running.size:
            break
    order = np.argsort(np.concatenate([rows for rows, _ in finished]))
    return Derivative.concatenate([estimate for _, estimate in finished])[order]


def _agree_at_once(look, expected, rtol, noise):
    """bool (n, K): two steps settle the value, whose bar is then its distance from the expected one plus rounding."""
    off = np.abs(look.value - expected)
    before = look.up_before, look.down_before
    *_, differ, _ = one_sided_slopes(before, (look.up, look.down), look.h, noise)
    agree = (off <= rtol * np.abs(expected) + look.floor_now) & ~differ & (look.not_shrinking == 0)
    look.bar = np.where(agree, np.minimum(look.bar, off + look.floor_now), look.bar)
    return agree


def _first_step(paths, steps, smallest_steps, tableau):
    """Return the _Look after one step: for each path, the largest step at which its changes are finite."""
    h = np.array(steps, float)
    up, down = _changes(paths, steps)
    for i in np.flatnonzero(~np.isfinite(up - down).all(axis=1)):
        h[i], up[i], down[i] = _finite_step(paths[i], steps[i], smallest_steps[i])
    h = h[:, None]
    change = np.maximum(np.abs(up), np.abs(down))
    value, _, _ = tableau.add(h, up, down)
    zeros, false = np.zeros(up.shape), np.zeros(up.shape, bool)
    unknown = dict(bar=np.full(up.shape, np.inf), floor=zeros, floor_now=zeros, left_piece=zeros, right_piece=zeros)
    flags = dict(above_noise=false, is_stair=false, has_changed=change > 0, not_shrinking=np.zeros(up.shape, int))
    return _Look(
        h=h, up=up, down=down, up_before=up, down_before=down, value=value,
        steepest=np.fmax(np.abs(up), change) / h, **unknown, **flags,
    )  # fmt: skip


def _changes(paths, steps):
    """Return (the changes at +h, those at -h), (n, K) each, for a path and its step h in each row."""
    up = np.array([path(h) for path, h in zip(paths, steps)])
    down = np.array([path(-h) for path, h in zip(paths, steps)])
    return up, down


def _halve(look, paths, tableau, noise):
    """Take the next step, half as large."""
    look.h, look.up_before, look.down_before = look.h / 2, look.up, look.down
    look.up, look.down = _changes(paths, look.h[:, 0].tolist())
    value, bar, look.floor_now = tableau.add(look.h, look.up, look.down)
    better = bar < look.bar
    look.value, look.bar = np.where(better, value, look.value), np.where(better, bar, look.bar)
    look.floor = np.where(better, look.floor_now, look.floor)
    change = np.maximum(np.abs(look.up), np.abs(look.down))
    look.steepest = np.fmax(look.steepest, change / look.h)
    look.has_changed = look.has_changed | (change > 0)
    look.above_noise = np.where(better, change > noise, look.above_noise)
    look.is_stair = np.where(better, look.has_changed & (change == 0), look.is_stair)
    before = np.maximum(np.abs(look.up_before), np.abs(look.down_before))
    shrinks = (change <= np.maximum(64 * noise, 0.9 * before)) | (change < LEAST_JUMP)
    look.not_shrinking = np.where(shrinks, 0, look.not_shrinking + 1)


def _finish(look, paths, noise, smallest):
    """The Derivative at the end of a _Look. smallest: the smallest exact step of each path."""
    is_jump = (look.not_shrinking >= JUMP) & np.isfinite(look.up - look.down)
    before = look.up_before, look.down_before
    left, right, differ, is_kink = one_sided_slopes(before, (look.up, look.down), look.h, noise)
    for i in np.flatnonzero(differ.any(axis=1) & (look.h[:, 0] > NEAR) & (smallest < NEAR)):
        # Two kinks, one on each side of 0, look like a kink at 0 from steps that reach beyond them.
        wider, closer = [(paths[i](h), paths[i](-h)) for h in (2 * NEAR, NEAR)]
        left_near, right_near, still_differ, _ = one_sided_slopes(wider, closer, NEAR, noise)
        smooth = differ[i] & ~still_differ & (np.abs(right[i] - left[i]) * NEAR > 256 * noise)
        left[i], right[i] = np.where(smooth, left_near, left[i]), np.where(smooth, right_near, right[i])
        differ[i], is_kink[i] = differ[i] & ~smooth, is_kink[i] & ~smooth
        off = np.abs(look.value[i] - (left[i] + right[i]) / 2)
        look.bar[i] = np.where(smooth, np.maximum(look.bar[i], off), look.bar[i])
    return Derivative(
        value=look.value, bar=look.bar, floor=look.floor, is_kink=is_kink, slopes_differ=differ, is_jump=is_jump,
        left=np.where(is_jump, look.left_piece, left), right=np.where(is_jump, look.right_piece, right),
        steepest=look.steepest, above_noise=look.above_noise, is_stair=look.is_stair,
    )  # fmt: skip


def _finite_step(path, step, smallest_step):
    """Return (h, the change at h, the change at -h) for the largest h among step, step/16, … at which all values are
    finite; if there is none, for the one with most finite values. The last h is a part of x, which may be tiny, unless
    x is 0."""
    tried = []
    below_x = [smallest_step / RELATIVE_STEP] if smallest_step else []
    for k, h in enumerate([*(step / 16**k for k in range(9)), *below_x]):
        up, down = path(h), path(-h)
        tried.append((np.count_nonzero(~np.isfinite(up - down)), k, h, up, down))
        if tried[-1][0] == 0:
            break
    return min(tried, key=lambda t: t[:2])[2:]


def one_sided_slopes(before, here, h, noise):
    """Return (the left slope, the right slope, bool: they differ, bool: they differ by a thousandth or more).

    before, here: the changes (up, down) at 2h and at h. Where the slopes are equal, (up + down) / h tends to 0."""
    up, down = here
    right, left = 2 * up / h - before[0] / (2 * h), before[1] / (2 * h) - 2 * down / h
    bend, bend_before = (up + down) / h, (before[0] + before[1]) / (2 * h)
    differ = (np.abs(bend) > 32 * noise / h) & (np.abs(bend - bend_before) < 0.25 * np.abs(bend))
    return left, right, differ, differ & (np.abs(bend) > 1e-3 * (np.abs(up) + np.abs(down)) / (2 * h))


def survey_steps(step, highest, lowest):
    """The steps of a survey, falling by RATIO: step among them, the others between lowest and highest."""
    above, below = (max(0, math.floor(math.log(ratio, RATIO))) for ratio in (highest / step, step / lowest))
    return [step * float(RATIO) ** k for k in range(above, -below - 1, -1)]


def survey(path, noise, steps, least_jump=LEAST_JUMP):
    """Return (the Derivative from all of `steps`, bool (K,): the component is on a plateau).

    If there are several plateaus, the one at the smallest steps is taken, since a derivative is a limit; if there is
    none, the estimate with the smallest error bar. If the function is constant at the smallest steps, either rounding
    has flattened it, or it is a stair function with steps above least_jump. In the second case the slope is 0, and a
    plateau."""
    tableau, estimates = Tableau(noise, RATIO), []
    for h in steps:
        up, down = path(h), path(-h)
        estimates.append((*tableau.add(h, up, down), np.maximum(np.abs(up), np.abs(down)) / h))
    values, bars, roundings, slopes = (np.array(part) for part in zip(*estimates))
    best, last, plateau = _plateaus(values, bars, slopes, np.array(steps)[:, None], noise)
    columns = np.arange(best.size)
    left, right, differ, is_kink = np.zeros((4, best.size))
    for k in np.unique(last):
        wider, closer = [(path(h), path(-h)) for h in (2 * steps[k], steps[k])]
        now = one_sided_slopes(wider, closer, steps[k], noise)
        old = left, right, differ, is_kink
        left, right, differ, is_kink = (np.where(last == k, *pair) for pair in zip(now, old))
    value, bar, floor, steepest = (table[best, columns] for table in (values, bars, roundings, slopes))
    changes = slopes * np.array(steps)[:, None]
    least_change = np.where(changes > 0, changes, np.inf).min(axis=0)
    is_still = (slopes[-1] == 0) & np.isfinite(least_change)
    has_stairs = is_still & (least_change > least_jump)
    estimate = Derivative(
        value=np.where(has_stairs, 0, value), bar=np.where(has_stairs, 0, bar), floor=floor, left=left, right=right,
        is_kink=is_kink > 0, slopes_differ=differ > 0, is_jump=np.zeros(best.size, bool), steepest=steepest,
        above_noise=changes[best, columns] > noise, is_stair=is_still & ~has_stairs,
    )  # fmt: skip
    return estimate, plateau | has_stairs


def _plateaus(values, bars, slopes, steps, noise):
    """Return three arrays (K,): the index of each component's best estimate, the index of the last step of its plateau,
    and bool: it has a plateau.

    A step is part of a plateau if its change is above the noise, shrinks with the step (at a jump it does not), and has
    a tight bar."""
    shrinks = np.concatenate([np.ones_like(slopes[:1], bool), slopes[1:] <= RATIO / 2 * slopes[:-1]])
    good = (slopes * steps > 2 * noise) & shrinks & (bars <= TIGHT * slopes)
    best = np.argmin(np.where(np.isfinite(values), bars, np.inf), axis=0)
    last, plateau = best.copy(), np.zeros(best.size, bool)
    length, here, columns = np.zeros(best.size, int), np.zeros(best.size, int), np.arange(best.size)
    for k in range(len(values)):
        agree = np.abs(values[k] - values[here, columns]) <= 3 * (bars[k] + bars[here, columns])
        length = np.where(good[k], np.where(agree, length + 1, 1), 0)
        here = np.where((length == 1) | (bars[k] < bars[here, columns]), k, here)
        is_long = length >= PLATEAU
        best, last, plateau = np.where(is_long, here, best), np.where(is_long, k, last), plateau | is_long
    return best, last, plateau
