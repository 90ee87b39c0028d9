"""gradcheck fails no right function of the kinds that people write; a sample here, all with -m long or the script."""

from collections import Counter

import pytest

from .right_functions import FAMILIES, right
from .right_functions.judge import tally

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
