"""A function along one direction: the step sizes, and the two looks at its slope."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .numeric import EPS, derivative
from .plateaus import LEAST, RATIO, flattened, measured_noise, rungs, survey

WIDEST = 2.0**-20  # of x: rounding, also that of float32, makes no flat that is wider
LOWEST = 2.0**-64  # where the second look ends for x = 0


@dataclass
class Path:
    """phi: t -> the change of weighted outputs from the point to t along a direction, an array with one value for each
    weighting. The others are arrays of that shape, or numbers."""

    phi: Callable
    noise: np.ndarray  # the rounding in phi, according to its graph
    gain: np.ndarray  # how a loss of 1 on the way shows in phi: see Rounding
    step: float  # the first step,
    highest: float  # and the largest one of the second look
    largest: float  # the largest |x| of what moves

    @property
    def least(self):
        """The step below which x + h would be rounded."""
        return 64 * EPS * self.largest

    def first_look(self):
        """The Derivative from a few steps near the first. Almost always enough."""
        d = derivative(self.phi, self.noise, self.step, self.least)
        if d.jump.any():  # or is it rounding, where nothing is rounded at the point itself?
            start = 1.07 * self.step
            d.jump &= self.change(start) > 64 * measured_noise(self.phi, 0.11 * start, start)
        return d

    def second_look(self, disputed, noise, passed):
        """(the steps, the Derivative from all of them, is each component of it on a plateau?).

        Steps of all sizes, except those so small that rounding (noise) would hide a difference in slope of `disputed`;
        and down to a plateau at the steps at which something has `passed`."""
        blind = np.where(disputed > 0, 40 * noise / disputed, np.inf)
        lowest = min(blind.min(), self.step, passed.min(initial=np.inf) / RATIO**LEAST)
        lowest = max(self.least or LOWEST, lowest)
        steps = rungs(self.step, self.highest, lowest)
        return steps, *survey(self.phi, self.noise, steps)

    def change(self, h):
        """|phi| at ±h, the larger one."""
        return np.maximum(np.abs(self.phi(h)), np.abs(self.phi(-h)))

    def changes_on_both_sides(self, h):
        """Does phi change by more than its noise at h, and at -h?"""
        return np.minimum(np.abs(self.phi(h)), np.abs(self.phi(-h))) > self.noise

    def flattened(self, steps):
        """Did rounding make the flat at the end of these steps, rather than the function itself?"""
        return flattened(self.phi, steps, WIDEST * max(1.0, self.largest))

    @property
    def lost(self):
        """The slope that rounding may hide where phi does not change: any op may lose half an ulp of terms of size 1,
        or of x."""
        return EPS / 2 * max(1.0, self.largest) * self.gain / self.highest
