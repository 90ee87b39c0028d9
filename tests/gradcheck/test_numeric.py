"""The differences of gradcheck: their bars cover their errors; kinks and jumps are told from slopes."""

import math

import numpy as np
import pytest

from minigrad.gradcheck.differences import EPS, STEP, derivative, derivatives


def at(f, x):
    """(value, bar, Derivative) of f at x."""
    with np.errstate(all="ignore"):
        d = derivative(
            lambda t: np.array([f(x + t) - f(x)]), 2 * EPS * np.abs(np.array([f(x)])), STEP, 64 * EPS * abs(x)
        )
    return d.value[0], d.bar[0], d


@pytest.mark.parametrize(
    "f, df",
    [
        (np.exp, np.exp),
        (np.log, lambda x: 1 / x),
        (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
        (np.sin, np.cos),
        (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
        (lambda x: 1 / x, lambda x: -1 / x**2),
        (lambda x: x**7, lambda x: 7 * x**6),
    ],
    ids=["exp", "log", "tanh", "sin", "sqrt", "1/x", "x^7"],
)
def test_three_bars_cover_the_error(f, df):
    errors = []
    for x in np.exp(np.random.default_rng(0).uniform(math.log(1e-3), math.log(10), 300)):
        value, bar, _ = at(f, x)
        assert abs(value - df(x)) <= 3 * bar, x
        errors.append(abs(value - df(x)) / abs(df(x)))
    assert np.median(errors) < 1e-11


def test_at_the_edge_of_a_domain_other_outputs_keep_their_slope():
    """At x = 0 no step down is finite for the first output, and none is a part of x."""
    d = derivative(lambda t: np.array([t**1.5 if t >= 0 else np.nan, 3 * t]), np.zeros(2), STEP, 0.0)
    assert d.value[1] == 3 and d.bar[1] < 1e-9


@pytest.mark.parametrize("x", [1e-3, 1e-5, 1e-7])
def test_a_kink_near_by_is_stepped_around(x):
    value, bar, d = at(np.abs, x)
    assert abs(value - 1) <= 3 * bar and (bar < 1e-3 or d.is_kink[0])


def test_kinks_and_jumps_are_told_from_slopes():
    _, _, d = at(np.abs, 0.0)
    assert d.is_kink[0] and not d.is_jump[0] and d.left[0] == pytest.approx(-1) and d.right[0] == pytest.approx(1)
    assert at(np.floor, 2.0)[2].is_jump[0]
    for smooth in (np.sin, np.exp, lambda x: x**2, lambda x: x**4, lambda x: x**3, lambda x: 0 * x):
        _, _, d = at(smooth, 0.0)
        assert not d.is_kink[0] and not d.is_jump[0]


def test_the_step_shrinks_into_the_domain():
    value, bar, _ = at(np.log, 1e-6)
    assert abs(value - 1e6) <= 3 * bar < 1


def test_two_steps_settle_a_slope_that_is_expected():
    def evaluations(f, x, expected):
        calls = []

        def path(t):
            calls.append(t)
            return np.array([f(x + t) - f(x)])

        d = derivatives([path], 2 * EPS * np.abs(np.array([f(x)])), [STEP], [0.0], np.array([[expected]]))
        return len(calls), d

    assert evaluations(np.sin, 0.3, math.cos(0.3))[0] == 4
    assert evaluations(np.sin, 0.3, math.cos(0.3) * (1 + 1e-8))[0] > 4
    taken, d = evaluations(np.abs, 0.0, 0.0)  # the central difference is 0 too, but the one-sided slopes differ
    assert taken > 4 and d.is_kink[0, 0]


def test_paths_are_independent_of_each_other():
    """Each of several paths gets the Derivative that it gets alone, whatever steps the others need."""
    fs, x = (np.sin, np.abs, np.floor, np.exp, lambda x: 1e-9 / (x + 1e-4)), 0.0
    noise = np.array([4 * EPS])
    paths = [lambda t, f=f: np.array([f(x + t) - f(x)]) for f in fs]
    together = derivatives(paths, noise, [STEP] * len(fs), [0.0] * len(fs))
    for i, path in enumerate(paths):
        alone = derivative(path, noise, STEP)
        for name, value in vars(alone).items():
            np.testing.assert_array_equal(getattr(together, name)[i], value, err_msg=name)
