"""Checks for what differences at one point cannot show: a backward that is wrong at the second call, in another layout,
at other sizes, numbers or dtypes, or that writes where it must not.

A probe is a generator of Findings that takes a Probed, or raises NotApplicable. PROBES has all, the cheapest first."""

import functools
import zlib

import numpy as np

from ..budget import attempt
from ..report import FAIL, NONFINITE, PASS, Finding, NotApplicable, failure
from ..where import raised
from .base import Probed
from .calls import (
    accumulation, interleaved, linearity, modes, overwritten, repeatable, scaling, second_order, single_outputs,
    unchanged,
)  # fmt: skip
from .coverage import Lines, unchecked
from .dtypes import device, float16, float32
from .inputs import alone, repeated_input, shared_memory
from .layouts import cotangents, layouts
from .parameters import parameters
from .sizes import growth, sizes
from .values import indices, values

PROBES = {
    f.__name__: f
    for f in (
        linearity, scaling, unchanged, overwritten, repeatable, accumulation, single_outputs, modes, cotangents,
        repeated_input, shared_memory, interleaved, layouts, alone, device, float32, float16, sizes, second_order,
        indices, parameters, values, growth,
    )
}  # fmt: skip
SALT = 0x6772616463686B  # inputs drawn from default_rng(seed) must differ from our cotangents
EXPLORING = ("second_order", "indices", "parameters", "values", "growth")  # left out after a failure
CHEAP = tuple(name for name in PROBES if name not in EXPLORING)


def run_probes(comparison, report, names, call):
    """Run the named probes, and add the findings of each: failures, or else the closest call.

    After a failure, those that look at other points, or at the gradient as a function, are left out."""
    verdicts = {f.verdict for f in comparison.findings}
    if NONFINITE in verdicts and FAIL not in verdicts:
        report.left_out |= dict.fromkeys(names, "the gradient is not finite here")
        return
    start = functools.cache(lambda: _start(comparison, report.strict, call))
    for name in names:
        if name in EXPLORING and report.verdict == FAIL:
            report.left_out[name] = "it has failed already"
        else:
            run_probe(name, start, report)
    if set(names) == set(PROBES) and start.cache_info().currsize:
        probed, lines = start()
        if never := lines.note():
            report.left_out["lines that never ran"] = never
        if others := unchecked(probed):
            report.left_out["gradients that are not checked"] = f"{others}: pass it as an input"


def _start(comparison, strict, call):
    probed = Probed(comparison, strict, *call)
    return probed, Lines(probed)


def run_probe(name, start, report):
    """Run one probe. start() makes what all share; it counts as the first one's time."""
    found, done = [], True
    try:
        done = attempt("probe", name, _collect, name, start, report.seed, found)
    except NotApplicable as why:
        report.left_out[name] = str(why)
        return
    except Exception as error:  # it worked at the point itself, so it is reported as a failure
        found.append(failure(name, raised(error)))
    wrong = [f for f in found if f.verdict != PASS]
    if not (wrong or done):  # there was no time for it
        return
    found = found or [Finding(name, PASS, note="nothing finite to compare")]
    if not wrong:
        closest = max(found, key=lambda f: f.excess)
        closest.check, closest.note = name, closest.note or f"{len(found)} comparisons"
    for f in wrong or [closest]:
        f.probe = name
        report.findings.append(f)


def _collect(name, start, seed, found):
    """One by one, so that findings are kept if the probe then raises."""
    probed, lines = start()
    probed.rng = np.random.default_rng([SALT, seed, zlib.crc32(name.encode())])  # the same in any company
    probed.subject.rest()  # or another call of the same Module would begin where the last probe went
    with lines.watched():
        for finding in PROBES[name](probed):
            found.append(finding)
    return True
