"""What cannot be recorded is refused, with the line, and leaves everything as it was."""

import math
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.backend.runners.native import Native
from minigrad.nn import functional as F
from tests.emulated import Emulated

from .steps import same, supported

pytestmark = supported


class Doubled(mg.Op):
    """y = 2x, in NumPy"""

    def forward(self, x):
        return np.multiply(x, 2)

    def backward(self, dy):
        return dy * 2


STORE = []
ARRAY = np.zeros(3, np.float32)


def keeps(x):
    y = x * 2
    STORE.append(y)
    return y


def in_place(x):
    x.mul_(2)
    return x


REFUSED = {
    "item": (lambda x: x * x.sum().item(), "reading a Tensor's values"),
    "numpy": (lambda x: mg.zeros(3) + float(x.numpy().sum()), "reading a Tensor's values"),
    "float": (lambda x: x * float(x[0]), "reading a Tensor's values"),
    "if": (lambda x: x * 2 if (x > 0).all() else x, "reading a Tensor's values"),
    "print": (lambda x: print(x), "reading a Tensor's values"),
    "tolist": (lambda x: x * len(x.tolist()), "reading a Tensor's values"),
    "tensor": (lambda x: x * mg.tensor([1.0, 2.0, 3.0]), r"tensor\(\)"),
    "as_tensor": (lambda x: x * mg.as_tensor(np.ones(3, np.float32)), r"as_tensor\(\)"),
    "as_tensor of a list": (lambda x: x * mg.as_tensor([1.0, 2.0, 3.0]), r"as_tensor\(\)"),
    "from_numpy": (lambda x: x * mg.from_numpy(np.ones(3, np.float32)), r"from_numpy\(\)"),
    "an array in place": (lambda x: mg.ones(3).add_(ARRAY) + x, "a NumPy array beside"),
    "an array copied in": (lambda x: mg.zeros(3).copy_(ARRAY) + x, "a NumPy array beside"),
    "an array as an index": (lambda x: x[ARRAY > 0], "an index that is a NumPy array"),
    "an index": (lambda x: x[mg.arange(2)], r"x\[index\]"),
    "a mask": (lambda x: x[x > 0], r"x\[index\]"),
    "a computed index": (lambda x: F.embedding(x.argmax(0, keepdim=True), mg.ones(5, 2)), "an index that the step"),
    "an op in NumPy": (lambda x: Doubled.apply(x), "doubled"),
    "float16": (lambda x: (x.half() * 2).float(), "float16"),
    "seeding": (lambda x: x * mg.manual_seed(1).seed, "seeding a generator"),
    "numbers of the host": (lambda x: x * mg.randperm(3).float(), "random numbers on the host"),
    "kept": (keeps, "is kept outside"),
    "in place": (in_place, "changes its arguments in place"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_line(kernels, case):
    function, message = REFUSED[case]
    f = mg.capture(function)
    x = mg.ones(3)
    if (case == "float16" and not isinstance(kernels, Native)) or (
        case == "a computed index" and kernels.device == "cuda"
    ):
        assert same(f(x), function(x))  # it has kernels for it, or checks indices as the step runs
        return
    for _ in range(2):  # the second time too
        with pytest.raises(mg.CaptureError, match=message) as caught:
            f(x)
    assert x.tolist() == [1, 1, 1]
    if case != "in place" and not isinstance(kernels, Emulated):  # whose own lines are no part of minigrad
        assert re.search(r"test_refusals\.py:\d+", str(caught.value))
    assert (mg.ones(3) * 2).tolist() == [2, 2, 2]  # nothing is being recorded any more
    STORE.clear()


def test_gradients_of_an_earlier_backward_are_not_added_to(kernels):
    w = mg.ones(3).requires_grad_()

    def step(x):
        (w * x).sum().backward()

    f = mg.capture(step)
    f(mg.ones(3))
    with pytest.raises(mg.CaptureError, match="without zero_grad"):
        f(mg.ones(3))
    w.grad = None
    f(mg.full((3,), 5.0))
    assert w.grad.tolist() == [5, 5, 5]


def test_two_backwards_of_one_step_add_up(kernels):
    w = mg.ones(3).requires_grad_()

    def step(x):
        w.grad = None
        (w * x).sum().backward()
        (w * w * x).sum().backward()
        return w.grad

    f = mg.capture(step)
    for k in (1.0, 2.0):
        x = mg.full((3,), k)
        assert same(f(x), step(x))


def test_clipping_that_reads_the_norm_is_refused(kernels):
    model = nn.Linear(3, 2)

    def step(x):
        model.zero_grad()
        model(x).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)

    with pytest.raises(mg.CaptureError, match="error_if_nonfinite"):
        mg.capture(step)(mg.ones(2, 3))
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("wrong", [np.ones(3), {1, 2}, [np.ones(2)], {"a": np.ones(2)}])
def test_arguments_that_are_no_tensors(kernels, wrong):
    with pytest.raises(TypeError, match=r"captured function"):
        mg.capture(lambda x: 1)(wrong)


def test_results_that_are_no_tensors(kernels):
    with pytest.raises(TypeError, match="not NumPy arrays"):
        mg.capture(lambda x: np.ones(2))(mg.ones(2))


def test_an_argument_that_requires_a_gradient(kernels):
    with pytest.raises(mg.CaptureError, match="requires a gradient"):
        mg.capture(lambda x: x * 2)(mg.ones(2).requires_grad_())


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


def test_a_step_after_a_new_seed(kernels):
    f = mg.capture(lambda x: F.dropout(x, 0.5))
    x = mg.ones(50)
    mg.manual_seed(1)
    first = [f(x), f(x)]
    mg.manual_seed(1)
    assert same(f(x), first[0]) and same(f(x), first[1]) and not same(first[0], first[1])


def test_an_optimizer_of_ones_own(kernels):
    class Momentum(optim.Optimizer):
        buffers = ("b",)

        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def update(self, p, g, state, group):
            state["b"].mul_(0.9).add_(g)
            p -= group["lr"] * state["b"]

    def run(captured):
        w = mg.ones(3).requires_grad_()
        optimizer = Momentum([w], 0.1)

        def step(x):
            optimizer.zero_grad()
            ((w * x) ** 2).sum().backward()
            optimizer.step()

        f = mg.capture(step) if captured else step
        for i in range(4):
            optimizer.param_groups[0]["lr"] = 0.1 / (i // 2 + 1)
            f(mg.full((3,), 1.0 + i))
        return w

    assert same(run(True), run(False))


def test_nan_and_infinity_are_like_other_numbers(kernels):
    f = mg.capture(lambda x: (x.log(), x.softmax(0), x / 0))
    for values in ([0.0, -1.0, math.inf], [math.nan, 1.0, -math.inf]):
        x = mg.tensor(values)
        assert all(same(a, b) for a, b in zip(f(x), (x.log(), x.softmax(0), x / 0)))
