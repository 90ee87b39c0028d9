"""The verdicts, and the rules that give them. minigrad/gradcheck/README.md has the same rules as a table.

numeric_verdicts    one analytic number against one difference with its error bar
kink_verdict        a FAIL at a point where an op inside is at a kink
point_verdict       a difference at a point that a probe made up
passes              whether gradcheck raises
"""

from dataclasses import dataclass

import numpy as np

from .differences import Arrays, Derivative

PASS, KINK, WARN, INCONCLUSIVE, NONFINITE, FAIL = SEVERITY = (
    "PASS", "KINK", "WARN", "INCONCLUSIVE", "NONFINITE", "FAIL"
)  # fmt: skip
CODE = {verdict: code for code, verdict in enumerate(SEVERITY)}  # verdicts as numbers, for arrays of them
MEANING = {
    KINK: "a kink or jump of the function; the gradient lies between its slopes",
    INCONCLUSIVE: "too much rounding to tell: is something ill-conditioned, or in float32, or is a kink very near?",
    NONFINITE: "NaN or Inf here or a step away: the edge of the domain?",
}


@dataclass
class Pairs(Arrays):
    """Pairs of an analytic number and a finite difference, and facts about each pair. All arrays have one shape."""

    analytic: np.ndarray
    numeric: Derivative
    allowed: np.ndarray  # the largest difference at which the two agree
    has_narrow_bar: np.ndarray  # bool: the error bar is narrow enough to decide something
    is_reliable: np.ndarray  # bool: neither rounding nor too large a step explains a difference
    is_smooth: np.ndarray  # bool: the differences show beyond doubt that the function has a derivative

    @property
    def difference(self):
        return np.abs(self.analytic - self.numeric.value)

    @property
    def excess(self):
        """|analytic - numeric| / allowed; infinite where one of the two is not finite."""
        difference = self.difference
        excess = np.where(difference == 0, 0.0, difference / self.allowed)
        unknown = (self.numeric.is_jump & ~self.lies_between_slopes) | ~self.is_finite
        return np.where(unknown, np.inf, excess)

    @property
    def is_finite(self):
        return np.isfinite(self.analytic + self.numeric.value + self.numeric.bar)

    @property
    def lies_between_slopes(self):
        """bool: the analytic number lies between the one-sided slopes."""
        left, right = self.numeric.left, self.numeric.right
        margin = np.where(self.numeric.is_jump, 1e-4, 1e-6) * np.maximum(np.abs(left), np.abs(right))
        margin = margin + 32 * self.numeric.floor
        return (np.minimum(left, right) - margin <= self.analytic) & (self.analytic <= np.maximum(left, right) + margin)

    def numeric_verdicts(self):
        """Return the verdict on each pair, as an index into SEVERITY. The first rule that holds decides, else FAIL."""
        jumps, between = self.numeric.is_jump, self.lies_between_slopes
        agrees = self.difference <= self.allowed
        rules = (
            (FAIL, ~np.isfinite(self.analytic) & self.is_smooth),
            (NONFINITE, ~self.is_finite),
            (KINK, jumps & between),
            (FAIL, jumps),
            (KINK, agrees & self.numeric.is_kink),
            (PASS, agrees & self.has_narrow_bar),
            (INCONCLUSIVE, agrees),
            (KINK, self.numeric.slopes_differ & between),
            (INCONCLUSIVE, ~self.is_reliable),
        )
        return np.select([where for _, where in rules], [CODE[verdict] for verdict, _ in rules], CODE[FAIL])


def kink_verdict(lies_between):
    """The verdict on a gradient that differs where an op inside is at a kink and no op is wrong by itself.

    lies_between: True if the gradient lies between the gradients at points close by."""
    return KINK if lies_between else INCONCLUSIVE


def point_verdict(verdict, is_sure, strict):
    """The verdict at a point that a probe made up. A FAIL there is a WARN unless it is sure (two finite numbers differ,
    at a call that the function is meant for) or the check is strict."""
    return WARN if verdict == FAIL and not (is_sure or strict) else verdict


def passes(verdict, kinks="report", strict=False):
    """True if a finding of this verdict makes no GradcheckError. kinks and strict: arguments of gradcheck."""
    return verdict == PASS or (verdict == KINK and kinks != "error") or (verdict == WARN and not strict)
