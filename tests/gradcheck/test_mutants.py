"""gradcheck finds every planted bug. It passes the functions without the bugs, and right functions that are
delicate."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.gradcheck import FAIL, NONFINITE, PASS, GradcheckError, gradcheck
from minigrad.nn import functional as F

from .mutants import MUTANTS

pytestmark = pytest.mark.slow
BY_NAME = {m.name: m for m in MUTANTS}
RIGHT = {(m.right, m.case, m.order): m for m in MUTANTS}.values()  # each once
seeds = pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])


def check(mutant, function, seed):
    return gradcheck(function, *mutant.inputs(seed), order=mutant.order, seed=seed)


def caught(mutant, seed=0):
    """The error that the wrong one raises."""
    expected = GradcheckError if isinstance(mutant.by, str) else (GradcheckError, mutant.by)
    with pytest.raises(expected) as error:
        check(mutant, mutant.wrong, seed)
    return error.value


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


# ------------------------------------------------------------------------------------------------ right, but delicate


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape)


DELICATE = {
    # the gradient is 0 but for rounding
    "sum of softmax": (lambda x: x.softmax(-1).sum(), numbers(2, 3)),
    "sum of exp of log_softmax": (lambda x: x.log_softmax(-1).exp().sum(-1), numbers(2, 3)),
    "sum of layer_norm": (lambda x: F.layer_norm(x, 3).sum(), numbers(1, 3)),
    "x / x": (lambda x: x / x, numbers(3)),
    "sin² + cos²": (lambda x: x.sin() ** 2 + x.cos() ** 2, numbers(3)),
    "x / |x|": (lambda x: x / (x * x).sum(-1, keepdim=True).sqrt(), numbers(2, 3)),
    "x - 3x / 3": (lambda x: x - x * 3 / 3, numbers(5)),
    "x³ at 0": (lambda x: x**3, np.array([0.0, 1e-5])),
    "a loss at its minimum": (lambda x: ((x - 2.0) ** 2).mean(), np.full(3, 2.0)),
    # without elements, or with one, it is at the edge of its domain
    "|x|": (lambda x: (x * x).sum(-1).sqrt(), numbers(2, 3)),
    # more rounding inside than eps times the output
    "tail of 1 - erf": (lambda x: 1 - x.erf(), np.array([3.0, 4, 5])),
    "tail of gelu": (F.gelu, np.array([-8.0, -7, -6])),
    "tail of tanh's gelu": (lambda x: F.gelu(x, approximate="tanh"), np.array([-8.0, -4, -3])),
    "saturated tanh": (lambda x: x.tanh(), np.array([10.0, 15, -12])),
    "saturated sigmoid": (lambda x: x.sigmoid(), np.array([20.0, 30, -30])),
    "softplus of large negative numbers": (lambda x: (1 + x.exp()).log(), np.array([-20.0, -30, 0, 20])),
    "layer_norm of numbers near 1e6": (lambda x: F.layer_norm(x, 4), 1e6 + numbers(2, 4)),
    "sharp softmax": (lambda x: (30 * x).softmax(-1), numbers(2, 3)),
    # others
    "a pole near by": (lambda x: 1 / x, np.array([1e-8, 1e8, -1e-3])),
    "a constant of its own in float64": (lambda x: (x * mg.tensor(np.array([1.0, 0, 1]))).sum() / 2, numbers(2, 3)),
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", DELICATE)
def test_delicate_right_functions_pass(name, order):
    function, x = DELICATE[name]
    assert gradcheck(function, mg.tensor(x), order=order).verdict == PASS
