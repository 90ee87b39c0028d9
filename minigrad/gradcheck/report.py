"""The result of a check: its findings, a table of them, and a message with hints at the cause."""

import math
import site
import sysconfig
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..base.tables import columns
from .verdicts import FAIL, INCONCLUSIVE, KINK, PASS, SEVERITY, passes

OURS = str(Path(__file__).parents[1])
INSTALLED = {*sysconfig.get_paths().values(), *site.getsitepackages()}


class NotApplicable(Exception):
    """Raised by a probe that makes no sense for a function; the message says why."""


class GradcheckWarning(UserWarning):
    """A WARN: a failure at a point that a probe made up, for which the function may not be meant."""


class GradcheckError(AssertionError):
    """A check failed; `.report` has all findings."""

    def __init__(self, report: Any) -> None:
        super().__init__(report.message())
        self.report = report


@dataclass
class Finding:
    """The result of one check, of a leaf's Jacobian, a direction, or a probe, with the numbers of its worst element."""

    check: str  # "Jacobian", "direction 2", "layout fortran", …
    verdict: str
    leaf: str = ""  # the input or parameter
    index: tuple[int, ...] | None = None  # the element of it
    output: str = ""  # the output element, if it is about one alone
    analytic: float | None = None
    numeric: float | None = None
    bar: float | None = None
    excess: float = 0.0  # |analytic - numeric| / allowed: more than 1 fails
    left: float | None = None  # one-sided slopes
    right: float | None = None
    jump: bool = False  # the function itself jumps there
    note: str = ""
    hints: list[str] = field(default_factory=list)
    probe: str = ""  # the probe that found it, if one did
    call: str = ""  # the call that it is about, if that is not the user's

    @property
    def error(self) -> float | None:
        """|analytic - numeric|, relative to the larger one."""
        if self.analytic is None or self.numeric is None:
            return None
        difference, size = abs(self.analytic - self.numeric), max(abs(self.analytic), abs(self.numeric))
        return difference / size if difference else 0.0

    @property
    def place(self) -> str:
        """The element that it is about, such as "weight[0, 1]"."""
        index = "" if self.index is None else f"[{', '.join(map(str, self.index))}]"
        return f"{self.leaf}{index}"


def failure(check, note):
    """Return a FAIL without numbers to show."""
    return Finding(check, FAIL, note=note, excess=math.inf)


@dataclass
class GradcheckReport:
    """All findings of one gradcheck. True if it passed."""

    label: str
    order: int
    mode: str
    seed: int
    rtol: float
    kinks: str
    findings: list["Finding"] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # probe -> why it does not apply here
    ops: list[str] = field(default_factory=list)  # names of the ops that the function recorded
    leaves: list = field(default_factory=list)  # (name, shape, dtype as given, strides)
    strict: bool = False  # a WARN fails
    culprit: str = ""  # the op that fails when checked alone
    evaluations: int = 0
    seconds: float = 0.0

    def __bool__(self):
        return bool(self.findings) and all(passes(f.verdict, self.kinks, self.strict) for f in self.findings)

    @property
    def verdict(self) -> str:
        """The worst verdict of the findings; INCONCLUSIVE if there are none."""
        return max((f.verdict for f in self.findings), key=SEVERITY.index, default=INCONCLUSIVE)

    @property
    def worst(self) -> Finding | None:
        """The worst finding: by verdict, then differences before probes, then by the excess of its error."""
        return max(self.findings, key=_gravity, default=None)

    @property
    def error(self) -> float:
        """The largest |analytic - numeric| / allowed. Above 1 the check fails."""
        return max((f.excess for f in self.findings if f.analytic is not None), default=0.0)

    def table(self) -> str:
        """Return a line for each finding, the worst first, and the checks that did not apply."""
        rows = [("check", "where", "verdict", "analytic", "numeric", "± bar", "error/allowed", "")]
        for f in sorted(self.findings, key=_gravity, reverse=True):
            numbers = [number(f.analytic), number(f.numeric), number(f.bar, ".1e")]
            rows.append((f.check, f.place, f.verdict, *numbers, f"{f.excess:.2g}", f.note))
        lines = columns(rows)
        reasons: dict[str, list[str]] = {}
        for what, why in self.left_out.items():
            reasons.setdefault(why, []).append(what)
        return "\n".join([*lines, *(f"not applicable: {', '.join(what)}: {why}" for why, what in reasons.items())])

    def __str__(self) -> str:
        return f"{self.summary()}\n{self.table()}"

    def summary(self) -> str:
        """Return one line: the verdict, the function and mode, the cost, and the seed."""
        order = {1: "", 2: ", second order"}.get(self.order, f", order {self.order}")
        cost = f"{len(self.findings)} checks, {self.evaluations} evaluations, {self.seconds:.2f} s"
        return f"{self.verdict} {self.label}{order} ({self.mode}): {cost}, seed {self.seed}"

    def message(self) -> str:
        """What failed and where, the numbers, a hint at the cause, and the call if it is not the user's own."""
        f = self.worst
        if f is None:
            return "\n  ".join([self.summary(), *(f"{what}: {why}" for what, why in self.left_out.items())])
        lines = [self.summary(), f"  {f.check}: {f.verdict}" + (f" at {f.place}" if f.leaf else "")]
        if f.output:
            lines[-1] += f", output {f.output}"
        if f.analytic is not None:
            lines.append(f"  analytic  {number(f.analytic, '.17g')}")
            lines.append(f"  numeric   {number(f.numeric, '.17g')} ± {number(f.bar, '.1e')}")
            lines.append(f"  ratio     {number(_ratio(f.analytic, f.numeric), '.9g')}, error / allowed {f.excess:.3g}")
        if f.left is not None and f.right is not None and (f.verdict == KINK or f.jump or _differ(f.left, f.right)):
            lines.append(f"  slopes    {number(f.left, '.9g')} from the left, {number(f.right, '.9g')} from the right")
        lines += [f"  note      {f.note}"] if f.note else []
        lines += [f"  hint      {hint}" for hint in f.hints]
        lines += [f"  culprit   {self.culprit}"] if self.culprit else []
        lines += [f"  ops       {', '.join(self.ops)}"] if self.ops else []
        for name, shape, dtype, strides in self.leaves:
            if name == f.leaf:
                lines.append(f"  {name}: shape {shape}, given as {dtype} with strides {strides}; checked in float64")
        others = sum(g.verdict == f.verdict for g in self.findings) - 1
        lines += [f"  and {others} more {f.verdict}: print(report.table())"] if others else []
        lines += [f"  in the call {f.call}"] if f.call else []
        return "\n".join(lines)


def _gravity(f):
    return SEVERITY.index(f.verdict), f.verdict != PASS and not f.probe, f.excess


def describe_exception(error):
    """Return an exception in words, with the innermost line of its traceback that is neither in minigrad nor in an
    installed package."""
    return exception_text(error) + users_line(error)


def exception_text(error):
    """Return 'ValueError: too long', or 'ValueError' if the error has no message, or if its str() raises."""
    kind = type(error).__name__
    try:
        said = str(error)
    except Exception:
        return kind
    return f"{kind}: {said}" if said else kind


def users_line(error):
    """Return ', at my_ops.py:12 in backward: return dy / 0', or ''. Without a line of the user's it is one of an
    installed package, or of our own ops."""
    frames = traceback.extract_tb(error.__traceback__)
    for others in ((OURS, *INSTALLED), (OURS,), (str(Path(__file__).parent),)):
        for frame in reversed(frames):
            inside = any(Path(frame.filename).is_relative_to(folder) for folder in others)
            if not (inside or frame.filename.startswith("<")):
                return f", at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    return ""


def number(x, form=".6g"):
    return "" if x is None else format(x, form)


def _differ(left, right):
    """True if two one-sided slopes differ by more than 1 %. (A curve, at the steps taken, explains less.)"""
    return abs(left - right) > 1e-2 * max(abs(left), abs(right))


def _ratio(analytic, numeric):
    return analytic / numeric if numeric else math.copysign(math.inf, analytic) if analytic else 1.0


# -- hints: what a wrong gradient looks like, in words


def ratio_hint(analytic, numeric, sizes, has_two_uses):
    """Return what usually causes an error of this ratio, or "".

    sizes: of all dims of the input and the outputs. has_two_uses: True if a value in the graph is used twice, so that
    two contributions add up."""
    if analytic == 0:
        return "no gradient arrives: a contribution is missing, a mask is the wrong way round, or it was not recorded"
    if numeric == 0:
        return "a gradient where the function does not change"
    r = analytic / numeric
    causes = {
        0.5: "half: one of two uses is missing" if has_two_uses else "the ratio is 0.5",
        2.0: "double: one of two uses is counted twice" if has_two_uses else "the ratio is 2",
        -1.0: "the sign is wrong",
    }
    for n in sorted({n for n in sizes if n > 1}):
        root = math.sqrt(n)
        causes.setdefault(n, f"{n} times too large: a sum instead of a mean over {n}, or counted {n} times")
        causes.setdefault(1 / n, f"{n} times too small: a mean instead of a sum over {n}, or one of {n} contributions")
        causes.setdefault(root, f"√{n} times too large: a scale of 1/√{n} was left out")
        causes.setdefault(1 / root, f"√{n} times too small: a scale of 1/√{n} was applied twice")
    for value, cause in causes.items():
        if math.isclose(r, value, rel_tol=1e-6):
            return cause
    return f"off by {r - 1:.3g} of itself: a constant or a small term is wrong" if abs(r - 1) < 1e-2 else ""


def patterns(shape, analytic, numeric, others):
    """Return sentences that say what the wrong Jacobian of a leaf is instead: that of another leaf, or transposed.

    shape: of the leaf. analytic, numeric: (outputs, elements). others: {name of another leaf: its numeric Jacobian}."""
    hints = [
        f"this is the gradient of {name}: two inputs are swapped"
        for name, theirs in others.items()
        if _is_close(analytic, theirs) and not _is_close(numeric, theirs)
    ]
    if len(shape) > 1 and shape[-1] == shape[-2]:
        square = (-1, *shape)
        if _is_close(analytic.reshape(square).swapaxes(-1, -2), numeric.reshape(square)):
            hints.append("this is the gradient transposed")
    return hints


def _is_close(a, b):
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-9 * np.abs(b).max(initial=0))
