"""gradcheck fails no function that is right, made up at random, with awkward numbers."""

from collections import Counter

import pytest

import minigrad as mg
from minigrad.gradcheck import gradcheck
from minigrad.gradcheck.verdicts import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS

from .generated import generated

pytestmark = pytest.mark.slow


def verdicts(seeds, probes):
    """How often each verdict came; the report of a function that was failed is raised."""
    counts: Counter = Counter()
    for seed in seeds:
        mg.manual_seed(seed)
        description, function, inputs = generated(seed)
        order = 2 if seed % 10 == 0 else 1
        report = gradcheck(function, *inputs, order=order, probes=probes, seed=seed, raise_on_fail=False)
        assert report.verdict != FAIL, f"seed {seed}, {description}\n{report.message()}"
        counts[report.verdict] += 1
    return counts


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 200), marks=pytest.mark.long)], ids=repr)
def test_no_false_alarm_with_all_probes(seeds):
    counts = verdicts(seeds, probes="all")
    assert counts[PASS] + counts[KINK] >= 0.96 * len(seeds), counts


NEEDED = {  # for each rule a program that is failed, or whose verdict is another, without it
    212: "far off it changes on one side only",
    389: "does not change at all, and its gradient is 0",
    1441: "terms that cancel, known to 1e-9 of their size",
    166: "in float16 it overflows inside, where a mask hides it",
    338: "numbers so near that the points close by have kinks within a step",
    1744: "kinks so near that a second look, at larger steps than the first, jumped over them",
    1940: "what is small beside the rounding of 1 changes faster than any step",
    4410: "kinks so near, to the second order",
}


@pytest.mark.parametrize("seed", NEEDED)
def test_each_rule_is_needed(seed):
    found = verdicts([seed], probes="all" if seed == 166 else ())
    assert found[PASS] or seed not in (212, 389, 1441), NEEDED[seed]


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_no_false_alarm_in_10_000(part):
    """Where the differences cannot decide, it says so; that is rare."""
    counts = verdicts(range(1000 * part, 1000 * (part + 1)), probes=())
    print(dict(counts))
    assert counts[INCONCLUSIVE] + counts[NONFINITE] <= 0.02 * 1000, counts
