"""Checks right functions, and says what a checker must answer.

The demand: no FAIL and no error; KINK only where the function has a kink; WARN, INCONCLUSIVE and NONFINITE without a
reason for less than 2 % of each kind."""

import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import minigrad as mg
from minigrad.gradcheck import gradcheck

from . import right

VERDICTS = ["PASS", "KINK", "WARN", "INCONCLUSIVE", "NONFINITE", "FAIL", "ERROR"]
UNDECIDED = 0.02  # the part of a kind that may be INCONCLUSIVE or NONFINITE without a reason


@dataclass
class Answer:
    seed: int
    kind: str
    name: str
    verdict: str
    order: int
    wrong: bool  # a verdict that this function does not deserve
    message: str = ""

    def __str__(self):
        return f"{self.verdict} of {self.kind}, {self.name}, seed {self.seed}, order {self.order}:\n{self.message}"


def answer(seed, kind=None, probes="all"):
    """What gradcheck says of right(seed, kind)."""
    return answer_of(right(seed, kind), seed, probes)


def answer_of(f, seed, probes="all"):
    """What it says of a Right. One in ten is checked to the second order, where that is right too."""
    order = 2 if seed % 10 == 0 and 2 in f.orders else 1
    mg.manual_seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            report = gradcheck(f.fn, *f.inputs, order=order, probes=probes, seed=seed, raise_on_fail=False)
        verdict, message = report.verdict, report.message()
    except Exception as error:  # a checker that raises has failed a right function
        verdict, message = "ERROR", f"{type(error).__name__}: {error}"
    return Answer(seed, f.kind, f.name, verdict, order, verdict not in f.allowed, message)


@dataclass
class Tally:
    counts: dict = field(default_factory=lambda: defaultdict(Counter))
    offenders: list = field(default_factory=list)

    def add(self, a):
        self.counts[a.kind][a.verdict] += 1
        if a.wrong:
            self.offenders.append(a)

    def table(self):
        """Kinds down, verdicts across; in brackets how many of them are undeserved."""
        width = max(map(len, self.counts))
        lines = [" " * width + "".join(f"{v:>15}" for v in VERDICTS)]
        for kind, counts in sorted(self.counts.items()):
            undeserved = Counter(a.verdict for a in self.offenders if a.kind == kind)
            cells = [f"{counts[v]}" + (f" ({undeserved[v]})" if undeserved[v] else "") for v in VERDICTS]
            lines.append(f"{kind:{width}}" + "".join(f"{cell:>15}" for cell in cells))
        return "\n".join(lines)

    def broken(self):
        """The offenders that break the demand."""
        undecided = [a for a in self.offenders if a.verdict in ("WARN", "INCONCLUSIVE", "NONFINITE")]
        kinds = Counter(a.kind for a in undecided)
        many = {kind for kind, n in kinds.items() if n > UNDECIDED * sum(self.counts[kind].values())}
        return [a for a in self.offenders if a not in undecided or a.kind in many]


def tally(seeds, kind=None, probes="all"):
    result = Tally()
    for seed in seeds:
        result.add(answer(seed, kind, probes))
    return result
