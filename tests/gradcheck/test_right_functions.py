"""gradcheck fails no right function of the kinds that people write; a sample here, all with -m long or the script."""

from collections import Counter

import numpy as np
import pytest

from .right_functions import FAMILIES, right
from .right_functions.judge import tally
from .right_functions.verify import wrong_element

EXTENDED = np.finfo(np.longdouble).nmant >= 63
SAMPLE = 3  # of each kind
FULL = 5000


def demand(seeds, kind=None):
    result = tally(seeds, kind)
    print(result.table())
    assert not result.broken(), "\n\n".join(map(str, result.broken()[:3]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILIES)
def test_no_false_alarm(kind):
    demand(range(0, 51 * SAMPLE, 51), kind)  # every fifty-first seed, and one to the second order


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_no_false_alarm_in_5000(part):
    demand(range(part * FULL // 10, (part + 1) * FULL // 10))


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_maker_has_its_turn_and_the_same_seed_makes_the_same(kind):
    makers = FAMILIES[kind].MAKERS
    seeds = range(0, len(makers) * len(FAMILIES), len(FAMILIES))
    assert Counter(right(s, kind).name for s in seeds) == Counter(maker.__name__ for maker in makers)
    assert repr(right(7, kind).inputs) == repr(right(7, kind).inputs)


@pytest.mark.slow
@pytest.mark.skipif(not EXTENDED, reason="np.longdouble has no more digits than float64 here")
@pytest.mark.parametrize("kind", FAMILIES)
def test_they_are_right_in_extended_precision(kind):
    for seed in range(0, len(FAMILIES[kind].MAKERS) * len(FAMILIES), 2 * len(FAMILIES) + 1):
        assert wrong_element(seed, kind) is None, (seed, right(seed, kind).name)


@pytest.mark.skipif(not EXTENDED, reason="np.longdouble has no more digits than float64 here")
def test_extended_precision_would_see_a_wrong_one():
    for kind in ("linear algebra", "recurrences", "losses", "layers"):
        assert all(wrong_element(seed, kind, factor=1.01) for seed in (3, 40, 77)), kind
