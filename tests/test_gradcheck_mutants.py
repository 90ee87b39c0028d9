"""gradcheck finds every planted bug, and finds nothing wrong with what it was planted in."""

import engine_mutants  # adds to MUTANTS
import numpy as np
import pytest
from mutants import MUTANTS

from minigrad.gradcheck import FAIL, NONFINITE, PASS, GradcheckError, gradcheck

assert engine_mutants
BY_NAME = {m.name: m for m in MUTANTS}
RIGHT = {(m.right, m.case, m.order, m.reference): m for m in MUTANTS}.values()  # each once
seeds = pytest.mark.parametrize("seed", [0, 1])


def check(mutant, function, seed):
    return gradcheck(function, *mutant.inputs(seed), order=mutant.order, reference=mutant.reference, seed=seed)


def caught(mutant, seed=0):
    """The error that the wrong one raises."""
    expected = GradcheckError if isinstance(mutant.by, str) else (GradcheckError, mutant.by)
    with mutant.patch(), pytest.raises(expected) as error:
        check(mutant, mutant.wrong, seed)
    return error.value


def test_there_are_enough():
    assert len(MUTANTS) >= 100


@seeds
@pytest.mark.parametrize("mutant", RIGHT, ids=lambda m: m.name)
def test_the_right_one_passes(mutant, seed):
    assert check(mutant, mutant.right, seed).verdict == PASS


@seeds
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_wrong_one_is_caught(mutant, seed):
    """By the check that is meant to see it, not by chance; and the message tells the cause, where it can."""
    error = caught(mutant, seed)
    if isinstance(mutant.by, str):
        failed = [f.check for f in error.report.findings if f.verdict in (FAIL, NONFINITE)]
        assert any(name.startswith(mutant.by) for name in failed), failed
        assert mutant.hint in str(error)


@seeds
def test_one_wrong_element_of_4096_is_named(seed):
    report = caught(BY_NAME["1 of 4096 elements off by 50 %"], seed).report
    found = next(f for f in report.findings if f.verdict == FAIL)
    assert (found.leaf, found.index) == ("x", (41, 7))
    np.testing.assert_allclose(found.analytic / found.numeric, 1.5, rtol=1e-9)
    assert report.evaluations < 200
