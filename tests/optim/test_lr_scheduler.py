"""Schedules: their rates, beside formulas; saved, and in captured steps."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim
from minigrad.optim import lr_scheduler as L

pytestmark = pytest.mark.filterwarnings("ignore:.*no parameter has a gradient")  # rates alone are looked at


def made(lr=0.1, **options):
    groups = [{"params": [mg.ones(2, requires_grad=True)]}, {"params": [mg.ones(1, requires_grad=True)], "lr": lr / 2}]
    return optim.SGD(groups, lr=lr, **options)


def rates(optimizer, scheduler, n):
    """(n, groups) of learning rates, at each step."""
    found = []
    for _ in range(n):
        found.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return np.array(found)


class Halving(L.LRScheduler):
    """base / 2^⌊t / every⌋"""

    def __init__(self, optimizer, every):
        self.every = every
        super().__init__(optimizer)

    def rate(self, base, t):
        return base * 0.5 ** (t // self.every)


def cosine(base, t, T, low):
    return low + (base - low) * (1 + math.cos(math.pi * t / T)) / 2


SCHEDULES = {  # a scheduler of an optimizer, and the rate of a group that began with `base` after t steps
    "LambdaLR": (lambda o: L.LambdaLR(o, lambda t: 0.9**t), lambda base, t: base * 0.9**t),
    "lambdas": (lambda o: L.LambdaLR(o, [lambda t: 1.0, lambda t: 1.0 / (t + 1)]),
                lambda base, t: base if base == 0.1 else base / (t + 1)),
    "CosineAnnealingLR": (lambda o: L.CosineAnnealingLR(o, 8), lambda base, t: cosine(base, t, 8, 0.0)),
    "eta_min": (lambda o: L.CosineAnnealingLR(o, 8, eta_min=0.01), lambda base, t: cosine(base, t, 8, 0.01)),
    "one's own": (lambda o: Halving(o, 4), lambda base, t: base * 0.5 ** (t // 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates(name):
    make, rate = SCHEDULES[name]
    optimizer = made()
    scheduler = make(optimizer)
    expected = np.array([[rate(0.1, t), rate(0.05, t)] for t in range(20)])
    np.testing.assert_allclose(rates(optimizer, scheduler, 20), expected, rtol=1e-14, atol=1e-17)
    np.testing.assert_allclose(scheduler.get_last_lr(), [rate(0.1, 20), rate(0.05, 20)], rtol=1e-14, atol=1e-17)


def test_what_is_said_of_the_last_rate_is_what_the_schedule_set():
    """As in PyTorch: not what somebody has set since, and after loading what was saved, with the options."""
    optimizer = made()
    scheduler = L.CosineAnnealingLR(optimizer, 8, eta_min=0.01)
    rates(optimizer, scheduler, 3)
    found = scheduler.get_last_lr()
    optimizer.param_groups[0]["lr"] = 5.0
    assert scheduler.get_last_lr() == found == [cosine(base, 3, 8, 0.01) for base in (0.1, 0.05)]
    other = L.CosineAnnealingLR(made(), 100)
    other.load_state_dict(scheduler.state_dict())
    assert other.get_last_lr() == found and (other.T_max, other.eta_min) == (8, 0.01)


def test_a_state_that_does_not_fit_changes_nothing():
    scheduler = L.CosineAnnealingLR(made(), 8)
    before = scheduler.state_dict()
    for wrong in ({"last_epoch": "3"}, {"last_epoch": -1}, {"base_lrs": [0.1]}, {"base_lrs": [0.1, "x"]}, {"T_max": 0},
                  {"_last_lr": None}, {"gamma": 0.1}):  # fmt: skip
        with pytest.raises(ValueError, match="CosineAnnealingLR: the state"):
            scheduler.load_state_dict(before | wrong)
        assert scheduler.state_dict() == before


def test_a_captured_step_follows_the_schedule():
    w = mg.ones(3, requires_grad=True)
    optimizer = optim.SGD([w], lr=1.0)
    scheduler = L.LambdaLR(optimizer, lambda t: 0.5**t)

    @mg.capture
    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    for _ in range(4):
        step(mg.ones(3))
        scheduler.step()
    np.testing.assert_allclose(w.detach().numpy(), 1 - (1 + 0.5 + 0.25 + 0.125))


def test_a_group_that_comes_later():
    optimizer = made()
    scheduler = L.CosineAnnealingLR(optimizer, 8)
    optimizer.add_param_group({"params": [mg.ones(1, requires_grad=True)]})
    with pytest.raises(ValueError, match="was made for 2 parameter groups, and there are 3"):
        scheduler.step()


WRONG = {
    "no optimizer": (lambda o: L.CosineAnnealingLR([1], 2), TypeError, "needs an Optimizer, got list"),
    "lambdas": (lambda o: L.LambdaLR(o, [abs]), ValueError, "1 functions do not fit 2"),
    "no steps": (lambda o: L.CosineAnnealingLR(o, 0), ValueError, "T_max must be at least 1, got 0"),
    "nesterov": (lambda o: made(nesterov=True), ValueError, "give momentum=0.9"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call(made())


def test_warmup_and_cosine():
    def rate(step):
        return optim.warmup_cosine(step, lr=1e-3, min_lr=1e-4, warmup=100, total=2000)

    assert rate(0) == pytest.approx(1e-3 / 101) and rate(49) == pytest.approx(1e-3 * 50 / 101)
    assert rate(99) == pytest.approx(1e-3 * 100 / 101) and rate(100) == pytest.approx(1e-3)
    assert rate(1050) == pytest.approx((1e-3 + 1e-4) / 2)
    assert rate(100 + 475) == pytest.approx(1e-4 + 9e-4 * (1 + math.sqrt(0.5)) / 2)
    assert rate(2000) == rate(10**9) == 1e-4 and rate(1999) > 1e-4
    found = [rate(step) for step in range(2001)]
    assert found[:101] == sorted(found[:101]) and found[100:] == sorted(found[100:], reverse=True)
    assert optim.warmup_cosine(0, lr=1.0, min_lr=0.5, warmup=0, total=10) == 1.0
    assert optim.warmup_cosine(5, lr=1.0, min_lr=0.5, warmup=5, total=5) == 0.5


def test_warmup_linear():
    def found(**more):
        return [optim.warmup_linear(step, lr=1.0, min_lr=0.2, warmup=3, total=10, **more) for step in range(12)]

    begin = [0.25, 0.5, 0.75]
    np.testing.assert_allclose(found(), [*begin, 0.76, 0.68, 0.6, 0.52, 0.44, 0.36, 0.28, 0.2, 0.2])
    np.testing.assert_allclose(found(fall=0.5), [*begin, 1, 1, 1, 0.84, 0.68, 0.52, 0.36, 0.2, 0.2])
    np.testing.assert_allclose(found(fall=0), [*begin, *[1] * 7, 0.2, 0.2])
