"""Schedules: their rates, beside formulas; combined, saved, and in captured steps."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim
from minigrad.optim import lr_scheduler as L


def made(lr=0.1, kind=optim.SGD, **options):
    groups = [{"params": [mg.ones(2, requires_grad=True)]}, {"params": [mg.ones(1, requires_grad=True)], "lr": lr / 2}]
    return kind(groups, lr=lr, **options)


def rates(optimizer, schedulers, n):
    """(n, groups) of learning rates, at each step."""
    found = []
    for _ in range(n):
        found.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return np.array(found)


def cosine(t, T, low=0.0):
    return low + (1 - low) * (1 + math.cos(math.pi * t / T)) / 2


SCHEDULES = {  # a scheduler of an optimizer, and its factor of the first rate after t steps
    "LambdaLR": (lambda o: L.LambdaLR(o, lambda t: 0.9**t), lambda t: 0.9**t),
    "StepLR": (lambda o: L.StepLR(o, 4, 0.5), lambda t: 0.5 ** (t // 4)),
    "MultiStepLR": (lambda o: L.MultiStepLR(o, [7, 3, 7], 0.5), lambda t: 0.5 ** ((t >= 3) + 2 * (t >= 7))),
    "ExponentialLR": (lambda o: L.ExponentialLR(o, 0.9), lambda t: 0.9**t),
    "ConstantLR": (lambda o: L.ConstantLR(o, 0.2, 6), lambda t: 0.2 if t < 6 else 1),
    "LinearLR": (lambda o: L.LinearLR(o, 0.1, 0.8, 6), lambda t: 0.1 + 0.7 * min(t, 6) / 6),
    "LinearLR at once": (lambda o: L.LinearLR(o, 0.1, total_iters=0), lambda t: 1),
    "PolynomialLR": (lambda o: L.PolynomialLR(o, 7, 2.0), lambda t: (1 - min(t, 7) / 7) ** 2),
    "CosineAnnealingLR": (lambda o: L.CosineAnnealingLR(o, 8), lambda t: cosine(t, 8)),
    "WarmRestarts": (
        lambda o: L.CosineAnnealingWarmRestarts(o, 3, 2),
        lambda t: cosine(t, 3) if t < 3 else cosine(t - 3, 6) if t < 9 else cosine(t - 9, 12),
    ),
    "SequentialLR": (
        lambda o: L.SequentialLR(o, [L.LinearLR(o, 0.1, total_iters=5), L.CosineAnnealingLR(o, 15)], [5]),
        lambda t: 0.1 + 0.9 * t / 5 if t < 5 else cosine(t - 5, 15),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates(name):
    make, factor = SCHEDULES[name]
    optimizer = made()
    scheduler = make(optimizer)
    expected = np.array([[0.1 * factor(t), 0.05 * factor(t)] for t in range(20)])
    np.testing.assert_allclose(rates(optimizer, [scheduler], 20), expected, rtol=1e-14, atol=1e-17)
    np.testing.assert_allclose(scheduler.get_last_lr(), [0.1 * factor(20), 0.05 * factor(20)], rtol=1e-14, atol=1e-17)


def test_one_cycle():
    optimizer = made(momentum=0.9)
    scheduler = L.OneCycleLR(optimizer, max_lr=[1.0, 0.5], total_steps=21, pct_start=0.5)
    momenta, found = [], []
    for _ in range(20):
        found.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[1]["momentum"])
        scheduler.step()
    assert found[0] == pytest.approx(1 / 25) and max(found) == pytest.approx(1.0, abs=0.01)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1 / 25e4)
    assert momenta[0] == 0.95 and min(momenta) == pytest.approx(0.85, abs=0.001)
    with pytest.raises(ValueError, match="made for 21 steps"):
        scheduler.step()
    adam = made(kind=optim.AdamW)
    L.OneCycleLR(adam, 1.0, epochs=2, steps_per_epoch=5, anneal_strategy="linear", three_phase=True)
    assert adam.param_groups[0]["betas"] == (0.95, 0.999)


def test_several_schedulers_multiply():
    optimizer = made()
    both = [L.ExponentialLR(optimizer, 0.9), L.ConstantLR(optimizer, 0.1, 3)]
    expected = [0.1 * 0.9**t * (0.1 if t < 3 else 1) for t in range(8)]
    np.testing.assert_allclose(rates(optimizer, both, 8)[:, 0], expected, rtol=1e-14)
    optimizer = made()
    scheduler = L.StepLR(optimizer, 100)
    optimizer.param_groups[0]["lr"] = 7.0  # by hand
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 7.0


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "LambdaLR"] + ["LambdaLR"])
def test_a_schedule_that_is_saved_goes_on(name, tmp_path):
    make, _ = SCHEDULES[name]
    optimizer = made()
    scheduler = make(optimizer)
    rates(optimizer, [scheduler], 6)
    mg.save({"optimizer": optimizer, "scheduler": scheduler}, tmp_path / "run")
    rest = rates(optimizer, [scheduler], 6)
    again = made()
    other = make(again)
    saved = mg.load(tmp_path / "run")
    again.load_state_dict(saved["optimizer"])
    other.load_state_dict(saved["scheduler"])
    assert (rates(again, [other], 6) == rest).all()


def test_a_captured_step_follows_the_schedule():
    w = mg.ones(3, requires_grad=True)
    optimizer = optim.SGD([w], lr=1.0)
    scheduler = L.ExponentialLR(optimizer, 0.5)

    @mg.capture
    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    for _ in range(4):
        step(mg.ones(3))
        scheduler.step()
    np.testing.assert_allclose(w.detach().numpy(), 1 - (1 + 0.5 + 0.25 + 0.125))


WRONG = {
    "no optimizer": (lambda o: L.StepLR([1], 2), TypeError, "needs an Optimizer, got list"),
    "lambdas": (lambda o: L.LambdaLR(o, [abs]), ValueError, "1 values do not fit 2"),
    "factor": (lambda o: L.LinearLR(o, 0.0), ValueError, "start_factor"),
    "milestones": (lambda o: L.SequentialLR(o, [L.StepLR(o, 1)], [3]), ValueError, "one milestone fewer"),
    "another's": (lambda o: L.SequentialLR(made(), [L.StepLR(o, 1)], []), ValueError, "of the optimizer that is given"),
    "steps": (lambda o: L.OneCycleLR(o, 1.0), ValueError, "give total_steps"),
    "no steps": (lambda o: L.CosineAnnealingLR(o, 0), ValueError, "T_max must be at least 1, got 0"),
    "resumed": (lambda o: L.StepLR(o, 1, last_epoch=3), ValueError, "load its state first"),
    "state": (lambda o: L.StepLR(o, 1).load_state_dict({"gamma": 1}), ValueError, "belong"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call(made())
