"""gradcheck(budget=seconds): what comes first, what is left out and said, and what may go beyond it.
The seconds are counted in forwards: each takes one."""

from types import SimpleNamespace

import pytest

import minigrad as mg
from minigrad.gradcheck import budget as module
from minigrad.gradcheck import gradcheck
from minigrad.gradcheck.budget import NO_TIME

from .wrong_sin import WrongSin, data


@pytest.fixture
def slow(monkeypatch):
    """slow(fn) -> fn, each call of which takes a second."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr("minigrad.gradcheck.check.time", module.time)

    def slowed(fn):
        def slow_fn(*inputs):
            clock.now += 1
            return fn(*inputs)

        return slow_fn

    return slowed


def product(x, y):
    return (x * y).tanh()


def inputs():
    return data(30, 20), data(30, 20)  # too many for a full Jacobian


def test_what_is_left_out_is_said(slow):
    report = gradcheck(slow(product), *inputs(), budget=200)
    left = [name for name, why in report.left_out.items() if why == NO_TIME]
    assert report and left and left == report.unfinished and not any("direction" in name for name in left)
    assert report.summary().startswith("PASS ") and f" within 200 s, {len(left)} left out: " in report.summary()
    assert f"left out: {left[0]}: {NO_TIME}" in report.table()


def test_probes_get_a_third_of_the_time(slow):
    report = gradcheck(slow(product), *inputs(), budget=45)
    assert "direction" in report.unfinished[0] and "linearity" not in report.unfinished


def test_one_direction_is_always_compared(slow):
    report = gradcheck(slow(product), *inputs(), budget=1e-3)
    assert [f.check for f in report.findings] == ["direction 0"]
    assert sum("direction" in name for name in report.unfinished) == 5


def test_a_full_jacobian_only_if_it_fits(slow):
    x = data(5)
    assert gradcheck(slow(mg.tanh), x).mode == "full"
    assert gradcheck(slow(mg.tanh), x, budget=1000).mode == "full"
    assert gradcheck(slow(mg.tanh), x, budget=100).mode == "directional"


def test_a_full_jacobian_that_was_asked_for_stops_between_leaves(slow):
    report = gradcheck(slow(product), data(3), data(3), mode="full", budget=40)
    assert [f.leaf for f in report.findings if f.check == "Jacobian"] == ["inputs[0]"]
    assert report.unfinished[0] == "Jacobian of inputs[1]"


def test_a_difference_is_followed_to_its_element_beyond_the_budget(slow):
    """Found in the first direction, when all the time is spent."""

    def one_wrong(x):
        factor = mg.ones(*x.shape, dtype=mg.float64)
        factor[7, 3] = 1.5
        return WrongSin.apply(x, factor=factor)

    report = gradcheck(slow(one_wrong), data(30, 20), budget=400, raise_on_fail=False)
    assert (report.verdict, report.worst.index) == ("FAIL", (7, 3))
    report = gradcheck(slow(one_wrong), data(30, 20), budget=2, raise_on_fail=False)
    assert report.verdict == "INCONCLUSIVE" and not report  # nor does it pass where the element was not found
    assert "FAIL along this direction; no time was left to find where" in report.message()


def test_what_a_probe_found_before_the_time_was_up_is_kept(slow, monkeypatch):
    from minigrad.gradcheck.probes import PROBES
    from minigrad.gradcheck.report import failure

    def finds(p):
        yield failure("finds", "found")

    def endless(p):
        while True:
            p.again()
        yield

    monkeypatch.setitem(PROBES, "finds", finds)
    monkeypatch.setitem(PROBES, "endless", endless)
    for names in (["endless", "finds"], ["finds", "endless"]):
        report = gradcheck(slow(mg.sin), data(3), probes=names, budget=1000, raise_on_fail=False)
        assert "endless" in report.unfinished
        assert [f.note for f in report.findings if f.probe] == (["found"] if names[0] == "finds" else [])
        assert bool(report) == (names[0] == "endless")


def test_no_function_takes_it_for_an_error_of_its_own(slow):
    inner = slow(mg.sin)

    def catches(x):
        try:
            return inner(x)
        except Exception:
            return x

    assert gradcheck(catches, data(600), budget=100)


def test_ctrl_c_is_ctrl_c():
    calls = []

    def interrupted(x):
        calls.append(x)
        if len(calls) == 30:
            raise KeyboardInterrupt
        return x.sin()

    with pytest.raises(KeyboardInterrupt):
        gradcheck(interrupted, data(3), budget=100)
    assert gradcheck(mg.sin, data(3)).unfinished == []  # nothing of the stopped check stays


@pytest.mark.parametrize("budget", [0, -1, "60", float("nan")])
def test_budgets_that_make_no_sense(budget):
    with pytest.raises(ValueError, match="budget must be"):
        gradcheck(mg.sin, data(2), budget=budget)
