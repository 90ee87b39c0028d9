"""What cannot be captured raises an error that names the line. What came before it has happened, and the next call is
right."""

import copy
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad.backend.runners.native import Native
from minigrad.ops.elementwise import Mul

from .steps import same, supported

pytestmark = supported


def searched(x):
    with mg.autograd.detect_anomaly():
        return x.log()


OUTSIDE = []
REFUSED = {
    "float16": (lambda x: (x.half() * 2).float(), "float16"),
    "a graph from outside": (lambda x: x * OUTSIDE[0], "a graph older than the captured step: detach"),
    "a search for NaN": (searched, "detect_anomaly"),
    "a deep copy": (lambda x: copy.deepcopy(x * 2), "deepcopy"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_line(kernels, case):
    function, message = REFUSED[case]
    before, x, OUTSIDE[:] = mg.zeros(3), mg.ones(3), [mg.ones(3).requires_grad_() * 2]

    def step(x, refused):
        before.add_(1)
        y = x * 2
        return function(x) if refused else y

    f = mg.capture(step)
    if case == "float16" and not isinstance(kernels, Native):
        assert same(f(x, True), function(x))  # it has kernels for it
        return
    for i in range(3):
        with pytest.raises(mg.CaptureError, match=message) as caught:
            f(x, True)
        assert re.search(r"(test_refusals|copy)\.py:\d+", str(caught.value))
        assert before.tolist() == [2 * i + 1] * 3 and f(x, False).tolist() == [2, 2, 2]
    assert (mg.ones(3) * 2).tolist() == [2, 2, 2]  # nothing is captured any more


def test_arguments_and_results_of_any_kind(kernels):
    f = mg.capture(lambda x: {"a": (x, np.ones(2), {1, 2}), "b": (y for y in [x])})
    for given in (np.ones(3), {1, 2}, [np.ones(2)], mg.ones(3), mg.ones(2).requires_grad_()):
        found = f(given)
        assert found["a"][0] is given and next(found["b"]) is given


def test_an_op_without_a_tensor_raises_its_own_error(kernels):
    """As the first action of a step, where no Tensor says on which backend it runs."""
    f = mg.capture(lambda: Mul.apply(2.0, 3.0))
    for _ in range(2):
        with pytest.raises(TypeError, match="mul needs at least one Tensor"):
            f()
