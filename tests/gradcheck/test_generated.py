"""gradcheck fails no function that is right: generated ones, with awkward numbers, and shapes drawn by hypothesis."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad.gradcheck import gradcheck
from minigrad.gradcheck.probes import CHEAP
from minigrad.gradcheck.report import FAIL, INCONCLUSIVE, KINK, NONFINITE, PASS
from minigrad.nn import functional as F

from .generated import generated

pytestmark = pytest.mark.slow
quick = settings(max_examples=25, deadline=None, derandomize=True, database=None)
sizes = st.integers(0, 3)
shapes = st.lists(sizes, max_size=3).map(tuple)
orders = st.sampled_from([1, 2])


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


NEEDED = {  # for each rule of compare.py and path.py programs whose verdict is another without it
    "far off it changes on one side only": (212, [PASS]),
    "does not change at all, and its gradient is 0": (389, [PASS]),
    "terms that cancel, known to 1e-9 of their size": (1441, [PASS]),
}


@pytest.mark.parametrize("rule", NEEDED)
def test_each_rule_is_needed(rule):
    seed, right = NEEDED[rule]
    assert verdicts([seed], probes=()).keys() <= {*right}


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_no_false_alarm_in_10_000(part):
    """Where the differences cannot decide, it says so; that is rare."""
    counts = verdicts(range(1000 * part, 1000 * (part + 1)), probes=())
    print(dict(counts))
    assert counts[INCONCLUSIVE] + counts[NONFINITE] <= 0.02 * 1000, counts


def normal(shape):
    return mg.tensor(np.random.default_rng(len(shape)).standard_normal(shape))


@st.composite
def broadcastable(draw):
    full = draw(shapes)
    return [tuple(n if draw(st.booleans()) else 1 for n in full[draw(st.integers(0, len(full))) :]) for _ in range(2)]


@quick
@given(broadcastable(), st.sampled_from([mg.add, mg.sub, mg.mul, mg.maximum]), orders)
def test_broadcasts(pair, op, order):
    assert gradcheck(op, *map(normal, pair), order=order, raise_on_fail=False).verdict in (PASS, KINK)


@quick
@given(shapes, st.sampled_from([mg.exp, mg.tanh, F.gelu, F.silu, mg.sigmoid, mg.sin, mg.erf]), orders)
def test_elementwise(shape, op, order):
    assert gradcheck(op, normal(shape), order=order).verdict == PASS


@quick
@given(shapes.filter(len), st.data(), st.sampled_from([mg.softmax, mg.log_softmax, mg.cumsum, mg.sum, mg.prod]), orders)
def test_along_a_dim(shape, data, op, order):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    assert gradcheck(lambda x: op(x, dim), normal(shape), order=order).verdict == PASS


@quick
@given(st.lists(sizes, min_size=0, max_size=2), sizes, sizes, sizes, orders)
def test_matmul(batch, n, k, m, order):
    assert gradcheck(mg.matmul, normal((*batch, n, k)), normal((k, m)), order=order).verdict == PASS


@quick
@given(shapes, st.data(), orders)
def test_movement(shape, data, order):
    dims = data.draw(st.permutations(range(len(shape))))
    assert gradcheck(lambda x: mg.cat([x.permute(*dims).reshape(-1), x.flatten()]), normal(shape), order=order)


@quick
@given(st.integers(0, 2), st.integers(0, 2), st.integers(2, 4), orders)  # of a single number, rms_norm is its sign
def test_norms_and_losses(B, T, C, order):
    x, target = normal((B, T, C)), mg.tensor(np.zeros(B * T, int))
    for fn in (
        lambda x: F.layer_norm(x, C) + F.rms_norm(x, C),
        lambda x: F.cross_entropy(x.reshape(B * T, C), target, reduction="sum"),
    ):
        assert gradcheck(fn, x, order=order, probes=CHEAP).verdict == PASS
