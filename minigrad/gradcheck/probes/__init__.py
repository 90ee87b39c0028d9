"""Probes: checks for what differences at one point cannot show. A backward may be wrong at the second call, in another
layout, at other sizes, numbers or dtypes, or it may write where it must not.

PROBES has all, the cheapest first. A probe takes a ProbeContext, the user's call, and yields Findings about calls that
must agree, or Points at which differences are taken. It raises NotApplicable where it makes no sense."""

import functools
import zlib

import numpy as np

from ..report import Finding, NotApplicable, failure, describe_exception
from ..verdicts import FAIL, NONFINITE, PASS
from .at_point import call_as_text, check_point
from .conditions import (
    ProbeContext, alone, cotangents, device, float16, float32, interleaved, layouts, linearity, modes, repeatable,
    repeated_input, unchanged,
)  # fmt: skip
from .other_numbers import indices, values
from .other_options import parameters
from .other_sizes import growth, sizes
from .points import Point

PROBES = {
    f.__name__: f
    for f in (
        linearity, unchanged, repeatable, modes, cotangents, repeated_input, interleaved, layouts, alone, device,
        float32, float16, sizes, indices, parameters, values, growth,
    )
}  # fmt: skip
SALT = 0x6772616463686B  # makes our cotangents differ from inputs that the user drew from default_rng(seed)
EXPLORING = ("indices", "parameters", "values", "growth")  # left out after a failure
CHEAP = tuple(name for name in PROBES if name not in EXPLORING)
# The probes that may find something wrong in a function of minigrad's own ops, each of which has passed all probes: a
# change in place, other random numbers, a dependence on the grad mode, a detached value, a NaN at other inputs.
FOR_COMPOSITIONS = ("unchanged", "repeatable", "modes", "sizes", "indices", "parameters", "values")
OPS_ONLY = "it tests ops, and only ops of minigrad ran here; probes='all' runs it"


def run_probes(comparison, report, names, call):
    """Run the named probes, and add the findings of each: its failures, or the one that came closest to failing.

    names: a tuple, or "auto" for the probes that can find something. After a failure, the probes that look at other
    points are left out."""
    verdicts = {f.verdict for f in comparison.findings}
    if NONFINITE in verdicts and FAIL not in verdicts:
        names = tuple(PROBES) if names == "auto" else names
        report.left_out |= dict.fromkeys(names, "the gradient is not finite here")
        return
    start = functools.cache(lambda: ProbeContext(comparison, call))
    if names == "auto":
        names = tuple(PROBES)
        if _is_composition(start):
            report.left_out |= {name: OPS_ONLY for name in PROBES if name not in FOR_COMPOSITIONS}
            names = FOR_COMPOSITIONS
    for name in names:
        if name in EXPLORING and report.verdict == FAIL:
            report.left_out[name] = "it has failed already"
            continue
        findings: list = []
        try:
            _run(name, start, report.seed, findings)
        except NotApplicable as why:
            report.left_out[name] = str(why)
            continue
        except Exception as error:  # the same call worked before: an exception now is a failure
            findings.append(failure(name, describe_exception(error)))
        wrong = [f for f in findings if f.verdict != PASS]
        if not wrong:
            closest = max(findings, key=lambda f: f.excess, default=Finding(name, PASS, note="nothing to compare"))
            closest.check, closest.note = name, closest.note or f"{len(findings)} comparisons"
            wrong = [closest]
        for f in wrong:
            f.probe = name
            report.findings.append(f)


def _is_composition(start):
    """True if only ops of minigrad ran. start: returns a ProbeContext."""
    try:
        return start().is_composition
    except NotApplicable:
        return False


def _run(name, start, seed, findings):
    """Add the probe's findings to `findings` one by one: those before an exception are kept. Stops at the first Point
    that fails."""
    p = start()
    p.rng = np.random.default_rng([SALT, seed, zlib.crc32(name.encode())])  # the same in any company
    p.subject.restore_parameters()  # a probe before may have left other parameters in a Module
    refused = False
    for x in PROBES[name](p):
        try:
            finding = check_point(p, x) if isinstance(x, Point) else x
        except KeyboardInterrupt as interrupt:  # a loop inside may not end at these numbers
            interrupt.add_note(f"the probe {name!r} was calling {call_as_text(p, x)}; probes=(…) can leave it out")
            raise
        if finding is None:
            refused = True
            continue
        findings.append(finding)
        if isinstance(x, Point) and finding.verdict == FAIL:
            break
    if refused and not findings:
        raise NotApplicable("the forward raises, or gives NaN, wherever it looks")
