"""Right functions that gradcheck failed once, each for a reason of its own."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.gradcheck import FAIL, gradcheck
from minigrad.gradcheck.call import subject_of
from minigrad.gradcheck.culprit import find_culprit
from minigrad.nn import functional as F


class Sorted(mg.Op, abstract=True):
    """Breaks ties at random, as sorting networks do."""

    factor = 1.0

    def forward(self, x):
        self.order = np.lexsort((np.random.default_rng(x.size).permutation(x.size), x))
        return x[self.order]

    def backward(self, dy):
        return dy[mg.tensor(np.argsort(self.order))] * self.factor


class WronglySorted(Sorted, abstract=True):
    factor = 1.5


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5)]])
def test_ties_of_many_numbers_are_no_failure(seed):
    """The gradient of one of twenty equal numbers is seldom between those of 32 points close by."""
    x = mg.tensor(np.round(np.random.default_rng(seed).standard_normal(40)))
    assert gradcheck(Sorted, x, seed=seed, raise_on_fail=False).verdict != FAIL
    assert gradcheck(WronglySorted, x, seed=seed, raise_on_fail=False).verdict == FAIL


class SortedSquares(mg.Op, abstract=True):
    """Smooth but for its ties, close to which its gradient changes too."""

    def forward(self, x):
        self.save_inputs(x)
        self.order = np.argsort(x * x, kind="stable")
        return (x * x)[self.order]

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy[mg.tensor(np.argsort(self.order))] * 2 * x


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 10, 30])
def test_ties_between_which_the_gradient_changes(n):
    x = mg.tensor(np.random.default_rng(n).standard_normal(n))
    assert gradcheck(SortedSquares, x, mode="directional", raise_on_fail=False).verdict != FAIL


def test_underflow_in_float16_is_no_nonlinearity():
    x = mg.tensor([3.9, 4.0, -3.8], dtype=mg.float64)
    assert gradcheck(lambda x: (-(x * x)).half().exp().double(), x, raise_on_fail=False).verdict != FAIL


def test_a_gradient_of_zero_is_compared_in_other_layouts():
    class Variance(mg.Op, abstract=True):
        def forward(self, x):
            self.save_inputs(x)
            return x.var(0)

        def backward(self, dy):
            (x,) = self.saved_inputs()
            array = x.detach().numpy()
            mean = 0.0 if x.stride(0) == 0 else array.mean(0)  # wrong where all rows are one
            return dy * mg.tensor(2 / len(array) * (array - mean))

    assert gradcheck(Variance, mg.randn(4, 3, dtype=mg.float64), raise_on_fail=False).verdict == FAIL


def test_values_that_a_backward_op_takes_from_the_forward_are_not_moved():
    """cross_entropy_backward is handed the softmax of its logits: moving those alone would blame it."""
    logits, target = mg.randn(4, 3, dtype=mg.float64), mg.tensor([0, 2, 1, 1])
    for name, fn in {
        "cross_entropy": lambda x: F.cross_entropy(x, target),
        "gelu": lambda x: F.gelu(x),
        "layer_norm": lambda x: F.layer_norm(x, 3),
        "rms_norm": lambda x: F.rms_norm(x, 3),
        "attention": lambda x: F.scaled_dot_product_attention(*[x.reshape(1, 1, 4, 3)] * 3),
    }.items():
        with subject_of(fn, (logits,), None) as subject:
            second = subject.derivative(np.random.default_rng(0))
            assert find_culprit(second) == "", name
