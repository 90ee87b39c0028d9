"""A whole model at once: the Taylor remainder of its loss must shrink with the square of the step."""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .call import alone, prepared, subject_of
from .numeric import EPS
from .report import GradcheckError
from .rounding import Rounding, unsteadiness
from .subject import joined


@dataclass
class TaylorReport:
    """True if every direction's remainder shrinks at a rate of 1.9 or more: it is 2 for a right gradient, 1 for a wrong
    one."""

    label: str
    seed: int
    steps: list[list[float]]  # for each direction, the steps h
    residuals: list[list[float]]  # and |J(x + hd) - J(x) - h ∇J·d|
    rates: list[float]  # and the rate at which these shrink, but for their cubic term, over the smallest steps above
    # rounding; inf if all drown in it, nan if what the gradient says drowns too

    @property
    def rate(self) -> float:
        """The rate of the worst direction: about 2 for a right gradient, about 1 for a wrong one."""
        return self.rates[self.worst]

    @property
    def worst(self) -> int:
        """The direction with the smallest rate; NaN is worse than any."""
        return min(range(len(self.rates)), key=lambda d: (not math.isnan(self.rates[d]), self.rates[d]))

    def __bool__(self):
        return self.rate >= 1.9  # and False for NaN

    def table(self, directions: Iterable[int] | None = None) -> str:
        """Steps, remainders and rates of all directions, or of those given."""
        lines = ["direction  step      remainder  rate"]
        for d in range(len(self.rates)) if directions is None else directions:
            steps, residuals = self.steps[d], self.residuals[d]
            for k, (h, r) in enumerate(zip(steps, residuals)):
                rate = f"{_rate(residuals[k - 1], r):.3f}" if k else ""
                lines.append(f"{d:<9}  {h:.2e}  {r:.3e}  {rate}")
        return "\n".join(lines)

    def message(self) -> str:
        """The verdict, and the table of the worst direction."""
        verdict = "PASS" if self else "FAIL"
        said = f"{verdict} {self.label}: the Taylor remainder shrinks at rate {self.rate:.3f}, seed {self.seed}"
        return f"{said}\n{self.table([self.worst])}"

    __str__ = message


def check_taylor(
    f: Callable[..., Any], *inputs: Any, wrt: Any = None, directions: int = 4, seed: int = 0, raise_on_fail: bool = True
) -> TaylorReport:
    """Check the gradient of a whole loss: |J(x + hd) - J(x) - h ∇J·d| = O(h²) along random directions d.

    J is f(*inputs), or a random combination of its outputs if it has several elements; inputs and wrt are as in
    gradcheck. h shrinks fourfold until the remainder drowns in rounding. It costs one backward and about ten forwards
    per direction, however many parameters there are. Returns a TaylorReport; raises GradcheckError if it is false, that
    is if the rate is below 1.9, unless raise_on_fail=False.

    Source: the Taylor test of adjoint PDE codes (Farrell, Ham, Funke and Rognes 2013, section 5)."""
    if directions < 1:
        raise ValueError(f"check_taylor: directions must be at least 1; got {directions!r}")
    with alone():
        f, inputs = prepared(f, inputs)
    rng = np.random.default_rng(seed)
    with alone(), subject_of(f, inputs, wrt) as subject, np.errstate(all="ignore"):
        report = TaylorReport(subject.label, seed, [], [], [])
        of_rounding = Rounding(subject)
        run = of_rounding.run
        weights = np.ones(1) if run.y.size == 1 else rng.standard_normal(run.y.size)
        found, _, flow = of_rounding.gradient(run.dys(weights))
        gradient, rounding = joined(found), 1e3 * EPS * (max(np.abs(weights * run.y).sum(), flow) or 1.0)
        for _ in range(directions):
            d = [rng.standard_normal(leaf.array.shape) for leaf in subject.leaves]
            slope, steps, residuals = gradient @ joined(d), [], []
            h = _finite_step(subject, d, 2.0**-4 / max(1, subject.size) ** 0.25)
            first = h
            while len(steps) < 14 and (not steps or abs(residuals[-1]) > rounding):
                change = weights @ (subject.values(subject.shifted(d, h)) - run.y)
                steps.append(h)
                residuals.append(float(change - h * slope))
                h /= 4
            report.steps.append(steps)
            report.residuals.append([abs(r) for r in residuals])
            above = [r for r in residuals if abs(r) > rounding]
            finite = np.isfinite(residuals).all()
            lost = (
                finite and not above and abs(first * slope) <= rounding and abs(slope) > _unsteady(subject, weights, d)
            )
            report.rates.append(math.nan if lost or not finite else _slowest(above))
    if raise_on_fail and not report:
        raise GradcheckError(report)
    return report


def _unsteady(subject, weights, d):
    """A slope along d that may be nothing but rounding in the backward."""
    return 64 * np.linalg.norm(joined(unsteadiness(subject, weights)[1]) * joined(d))


def _finite_step(subject, d, h):
    """The largest of h, h/16, … at which the function is defined."""
    for _ in range(8):
        if np.isfinite(subject.values(subject.shifted(d, h))).all():
            break
        h /= 16
    return h


def _slowest(remainders):
    """The smallest of the last three rates, infinite if there is none.

    Where the cubic term outweighs the quadratic one at first, the remainder passes through 0 on the way, and its rates
    are anything near there. So the cubic term is taken out, of which a fourth of the step leaves a 64th."""
    if len(remainders) > 2:
        remainders = [after - before / 64 for before, after in itertools.pairwise(remainders)]
    return min([_rate(abs(a), abs(b)) for a, b in itertools.pairwise(remainders)][-3:], default=math.inf)


def _rate(before, after):
    """The order of shrinking when the step shrinks fourfold."""
    return math.log(before / after, 4) if before > 0 and after > 0 else math.inf
