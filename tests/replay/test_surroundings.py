"""What a captured function finds outside of its arguments: whatever changes there is seen, or refused."""

import logging

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

from .steps import numbers, same, supported

pytestmark = supported


# --------------------------------------------------------------------------------------------------------- surroundings


def test_a_number_of_the_closure_is_seen(kernels):
    scale = 2.0

    def f(x):
        return x * scale

    g = mg.capture(f)
    x = numbers(3)
    assert same(g(x), x * 2)
    scale = 5.0
    assert same(g(x), x * 5)


def test_a_tensor_of_the_closure_is_seen(kernels):
    w = numbers(3)
    g = mg.capture(lambda x: x * w)
    x = numbers(3, seed=1)
    g(x)
    w.fill_(3)
    assert same(g(x), x * 3)
    w = numbers(3, seed=9)
    assert same(g(x), x * w)


SCALE = 2.0


def test_a_global_is_seen(kernels, monkeypatch):
    g = mg.capture(lambda x: x * SCALE)
    x = numbers(3)
    assert same(g(x), x * 2)
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    assert same(g(x), x * 4)


def test_a_global_that_has_the_name_of_an_attribute_is_none_of_the_functions(kernels, monkeypatch, caplog):
    """A loop `for step in range(…)` at module level beside a captured function that calls optimizer.step()."""
    layer = nn.Linear(3, 2)
    optimizer = optim.SGD(layer.parameters(), lr=0.1)

    @mg.capture
    def train(x):
        optimizer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()

    for i in range(20):
        monkeypatch.setitem(globals(), "step", i)
        train(numbers(4, 3))
    assert not [record for record in caplog.records if "recorded more than" in record.getMessage()]


def test_an_attribute_of_the_object_of_a_method_is_seen(kernels):
    class Scaler:
        by = 1.0

        def __init__(self):
            self.by = 2.0

        @mg.capture
        def __call__(self, x):
            return x * self.by

    scaler, other = Scaler(), Scaler()
    other.by = 3.0
    x = numbers(3)
    for _ in range(2):
        assert same(scaler(x), x * 2) and same(other(x), x * 3)
    scaler.by = 4.0
    assert same(scaler(x), x * 4)


def test_what_changes_at_each_call_is_right_and_warned_of(kernels, caplog):
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * n

    g = mg.capture(f)
    with caplog.at_level(logging.WARNING):
        for i in range(1, 15):
            assert (g(mg.ones(2)).numpy() == i).all()
    assert "what changes each time?" in caplog.text


# -------------------------------------------------------------------------------- found by those who wanted to break it


def test_gradients_from_outside_are_those_of_the_call(kernels):
    w = mg.ones(3).requires_grad_()
    optimizer = optim.SGD([w], lr=0.1)
    step = mg.capture(lambda: optimizer.step())
    expected = np.ones(3, np.float32)
    for k in (1.0, 2.0, 3.0):
        w.grad = mg.full((3,), k)
        step()
        expected = expected - np.float32(0.1) * np.float32(k)
        np.testing.assert_allclose(w.detach().numpy(), expected, rtol=1e-6)


def test_an_optimizer_that_takes_the_place_of_another_is_seen(kernels):
    w = mg.ones(3).requires_grad_()
    optimizer = optim.SGD([w], lr=0.0)

    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    run = mg.capture(step)
    run(mg.ones(3))
    optimizer = optim.SGD([w], lr=1.0)
    run(mg.ones(3))
    assert w.tolist() == [0, 0, 0]


def test_a_module_that_is_not_called_is_seen(kernels):
    layers = nn.ModuleList([nn.Linear(3, 3)])
    model = nn.Linear(3, 3)

    def run(x):
        for layer in layers:
            x = layer(x)
        return F.linear(x, model.weight)

    f, x = mg.capture(run), numbers(2, 3)
    f(x)
    layers.append(nn.Linear(3, 3))
    assert same(f(x), run(x))
    model.weight = nn.Parameter(numbers(3, 3, seed=8))
    assert same(f(x), run(x))


def test_helpers_partials_and_defaults_are_looked_into(kernels, monkeypatch):
    import functools

    def helper(x):
        return x * SCALE

    f = mg.capture(mg.no_grad()(lambda x: helper(x)))
    g = mg.capture(functools.partial(lambda by, x: x * by["n"], {"n": 3.0}))

    def with_default(x, by=2.0):
        return x * by

    h = mg.capture(with_default)
    x = numbers(3)
    assert same(f(x), x * 2) and same(g(x), x * 3) and same(h(x), x * 2)
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    g.function.args[0]["n"] = 5.0
    with_default.__defaults__ = (6.0,)
    assert same(f(x), x * 4) and same(h(x), x * 6)


def test_strided_and_expanded_arguments_have_the_bits_of_eager(kernels):
    for x in (
        numbers(300, 300)[:64, :64].T,
        numbers(1, 64).expand(64, 64),
        numbers(64, 64)[::-1],
        numbers(90, 90)[::3],
    ):
        f = mg.capture(lambda x: (x.sum(0), x.sum(), (x * x).sum(1)))
        for _ in range(2):
            assert all(same(a, b) for a, b in zip(f(x), (x.sum(0), x.sum(), (x * x).sum(1))))


def test_objects_are_told_apart_by_identity(kernels):
    class Scaler:
        def __init__(self, by):
            self.by = by

        def __eq__(self, other):
            return True

        @mg.capture
        def run(self, x):
            return x * self.by

    x = numbers(3)
    a, b = Scaler(2.0), Scaler(3.0)
    for _ in range(2):
        assert same(a.run(x), x * 2) and same(b.run(x), x * 3)


def test_no_more_recordings_than_fit(kernels, caplog):
    f = mg.capture(lambda x, by: x * by)
    for i in range(80):
        assert same(f(mg.ones(2), float(i)), mg.ones(2) * float(i))
    assert len(f._recordings) <= 64 and "kinds of arguments" in caplog.text


def test_arrays_and_copies_are_refused(kernels):
    import copy

    a = np.ones(3, np.float32)
    for function in (lambda x: x * a, lambda x: copy.deepcopy(x * 2)):
        with pytest.raises(mg.CaptureError):
            mg.capture(function)(mg.ones(3))
    with pytest.raises(TypeError):
        mg.capture(lambda x: (x for _ in range(2)))(mg.ones(3))
