"""What cannot be captured is refused, with the line; what came before it has happened, and the next call is right."""

import copy
import math
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad.backend.runners.native import Native
from minigrad.nn import functional as F

from .steps import same, supported

pytestmark = supported


class Doubled(mg.Op):
    """y = 2x, in NumPy"""

    def forward(self, x):
        return np.multiply(x, 2)

    def backward(self, dy):
        return dy * 2


def searched(x):
    with mg.autograd.detect_anomaly():
        return x.log()


OUTSIDE = []
REFUSED = {
    "an op in NumPy": (Doubled.apply, "doubled, an op that may compute in NumPy,"),
    "float16": (lambda x: (x.half() * 2).float(), "float16"),
    "a graph from outside": (lambda x: x * OUTSIDE[0], "a graph that began before the captured step: detach"),
    "a search for NaN": (searched, "detect_anomaly"),
    "a deep copy": (lambda x: copy.deepcopy(x * 2), "deepcopy"),
    "DLPack": (lambda x: np.from_dlpack(x * 2), "DLPack"),
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


def test_gradients_add_up_from_call_to_call(kernels):
    w = mg.ones(3).requires_grad_()
    f = mg.capture(lambda x: (w * x).sum().backward())
    for i in range(1, 4):
        f(mg.ones(3))
        assert w.grad.tolist() == [i, i, i]
    w.grad = None
    f(mg.full((3,), 5.0))
    assert w.grad.tolist() == [5, 5, 5]


def test_arguments_and_results_of_any_kind(kernels):
    f = mg.capture(lambda x: {"a": (x, np.ones(2), {1, 2}), "b": (y for y in [x])})
    for given in (np.ones(3), {1, 2}, [np.ones(2)], mg.ones(3), mg.ones(2).requires_grad_()):
        found = f(given)
        assert found["a"][0] is given and next(found["b"]) is given


def test_what_may_be_made_in_a_step(kernels):
    def step(x):
        y = x + mg.arange(3) + mg.zeros(3) + mg.ones(3) * mg.full((3,), 2.0) + mg.eye(3).sum(0)
        z = mg.zeros(3)
        z += 1
        return y + z.masked_fill(x > 1, 0.0), F.cross_entropy(x.reshape(1, 3), mg.arange(1))

    f = mg.capture(step)
    for k in (0.5, 1.0, 2.0):
        x = mg.full((3,), k)
        assert all(same(a, b) for a, b in zip(f(x), step(x)))


def test_random_numbers_are_new_at_each_call(kernels):
    generator = mg.Generator(5)

    def draw(x):
        return x + mg.randn(3), mg.rand(2, generator=generator), F.dropout(x, 0.5)

    f = mg.capture(draw)
    mg.manual_seed(3)
    captured = [f(mg.ones(3)) for _ in range(3)]
    mg.manual_seed(3)
    generator.manual_seed(5)
    for got in captured:
        assert all(same(a, b) for a, b in zip(got, draw(mg.ones(3))))


def test_nan_and_infinity_are_like_other_numbers(kernels):
    f = mg.capture(lambda x: (x.log(), x.softmax(0), x / 0))
    for values in ([0.0, -1.0, math.inf], [math.nan, 1.0, -math.inf]):
        x = mg.tensor(values)
        assert all(same(a, b) for a, b in zip(f(x), (x.log(), x.softmax(0), x / 0)))
