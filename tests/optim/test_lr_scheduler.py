"""Schedules: their rates, beside formulas; combined, saved, and in captured steps."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim
from minigrad.optim import lr_scheduler as L

pytestmark = pytest.mark.filterwarnings("ignore:.*no parameter has a gradient")  # rates alone are looked at


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
    "CosineAnnealingLR": (lambda o: L.CosineAnnealingLR(o, 8), lambda t: cosine(t, 8)),
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
    for _ in range(21):
        found.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[1]["momentum"])
        scheduler.step()  # the last one too, whose rate nobody uses
    assert found[0] == pytest.approx(1 / 25) and max(found) == pytest.approx(1.0, abs=0.01)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1 / 25e4)
    assert momenta[0] == 0.95 and min(momenta) == pytest.approx(0.85, abs=0.001)
    with pytest.raises(ValueError, match="made for 21 steps"):
        scheduler.step()
    adam = made(kind=optim.AdamW)
    L.OneCycleLR(adam, 1.0, epochs=2, steps_per_epoch=5, anneal_strategy="linear", three_phase=True)
    assert adam.param_groups[0]["betas"] == (0.95, 0.999)


ONE_CYCLE = {  # rates and first momenta as PyTorch 2.13 has them
    "by default": (
        dict(total_steps=11),
        [0.04, 0.422341, 0.960261, 0.979747, 0.884476, 0.726087, 0.530583, 0.330058, 0.157433, 0.041046, 4e-6],
        [0.95, 0.9102, 0.8541, 0.852, 0.8616, 0.8774, 0.8969, 0.917, 0.9343, 0.9459, 0.95],
    ),
    "three phases": (
        dict(epochs=1, steps_per_epoch=11, three_phase=True, pct_start=0.4, anneal_strategy="linear"),
        [0.04, 0.322353, 0.604706, 0.887059, 0.830588, 0.548235, 0.265882, 0.0375, 0.025002, 0.012503, 4e-6],
        None,
    ),
}


@pytest.mark.parametrize("name", ONE_CYCLE)
def test_one_cycle_step_by_step(name):
    options, lrs, momenta = ONE_CYCLE[name]
    for kind, given in (optim.SGD, dict(momentum=0.5)), (optim.Adam, dict(betas=(0.5, 0.98))):
        optimizer = made(kind=kind, **given)
        scheduler = L.OneCycleLR(optimizer, 1.0, cycle_momentum=momenta is not None, **options)
        found = []
        for _ in range(11):
            group = optimizer.param_groups[0]
            beta, *rest = group["betas"] if kind is optim.Adam else (group["momentum"],)
            found.append((group["lr"], beta))
            scheduler.step()
        np.testing.assert_allclose(np.array(found).T, [lrs, momenta or [0.5] * 11], atol=6e-5)
        assert rest == [0.98] * (kind is optim.Adam)


def test_several_schedulers_multiply():
    optimizer = made()
    both = [L.StepLR(optimizer, 1, 0.9), L.StepLR(optimizer, 3, 10.0)]
    expected = [0.1 * 0.9**t * 10.0 ** (t // 3) for t in range(8)]
    np.testing.assert_allclose(rates(optimizer, both, 8)[:, 0], expected, rtol=1e-14)
    optimizer = made()
    scheduler = L.StepLR(optimizer, 100)
    optimizer.param_groups[0]["lr"] = 7.0  # by hand
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 7.0


def test_a_cosine_beside_another_keeps_its_lowest_rate():
    """What is above eta_min is scaled, as in PyTorch, whose rates these are (2.13), and not eta_min too."""
    optimizer = made()
    both = [L.CosineAnnealingLR(optimizer, 4, eta_min=0.01), L.StepLR(optimizer, 1, 0.9)]
    expected = [0.1, 0.07813782, 0.04492279, 0.01820578, 0.009, 0.01996218]
    np.testing.assert_allclose(rates(optimizer, both, 6)[:, 0], expected, rtol=1e-6)


def test_schedules_of_one_optimizer_share_its_first_rate():
    optimizer = made()
    L.StepLR(optimizer, 1, 0.5).step()
    assert L.StepLR(optimizer, 1, 0.9).base_lrs == [0.1, 0.05]


@pytest.mark.parametrize("make, steps, expected", [
    (lambda o: L.StepLR(o, 1, 0.0), 1, 0.0),
    (lambda o: L.CosineAnnealingLR(o, 5), 5, 0.5 + 0.1 * (1 - math.cos(math.pi / 5)) / 2),
    (lambda o: L.CosineAnnealingLR(o, 5, eta_min=0.01), 5, 0.5 + 0.09 * (1 - math.cos(math.pi / 5)) / 2),
])  # fmt: skip
def test_a_rate_set_by_hand_at_the_lowest_point_goes_on_from_there(make, steps, expected):
    """As in PyTorch, whose formulas step from the rate before."""
    optimizer = made()
    scheduler = make(optimizer)
    for _ in range(steps):
        scheduler.step()
    optimizer.param_groups[0]["lr"] = 0.5
    scheduler.step()
    assert scheduler.get_last_lr()[0] == pytest.approx(expected, rel=1e-12)


def test_a_step_from_a_rate_of_0_scales_what_was_set_by_hand():
    optimizer = optim.SGD([mg.ones(1, requires_grad=True)], lr=0.0)
    scheduler = L.StepLR(optimizer, 2, 0.1)
    optimizer.param_groups[0]["lr"] = 0.5
    found = []
    for _ in range(4):
        scheduler.step()
        found += scheduler.get_last_lr()
    np.testing.assert_allclose(found, [0.5, 0.05, 0.05, 0.005], rtol=1e-14)


def test_what_is_asked_of_a_schedule_is_a_copy():
    scheduler = L.StepLR(made(), 4)
    scheduler.get_last_lr()[0] = 7.0
    assert scheduler.get_last_lr() == [0.1, 0.05] and "optimizer" not in scheduler.state_dict()
    assert "lr_lambdas" not in L.LambdaLR(made(), float).state_dict()


def test_one_cycle_refuses_a_group_that_comes_later():
    optimizer = made(momentum=0.9)
    scheduler = L.OneCycleLR(optimizer, 1.0, 10)
    optimizer.add_param_group({"params": [mg.ones(1, requires_grad=True)]})
    with pytest.raises(ValueError, match="which has no max_lr for it"):
        scheduler.step()


@pytest.mark.parametrize("name", SCHEDULES)
def test_groups_that_come_later_are_scheduled(name):
    optimizer = optim.SGD([mg.ones(2, requires_grad=True)], lr=0.1)
    scheduler = SCHEDULES[name][0](optimizer)
    optimizer.add_param_group({"params": [mg.ones(1, requires_grad=True)], "lr": 0.05})
    if name == "LambdaLR":
        with pytest.raises(ValueError, match=r"which has no lr_lambda for it; make the scheduler after add_param"):
            scheduler.step()
        return
    found = rates(optimizer, [scheduler], 30)[:, 1]
    assert found[0] == 0.05 and len(scheduler.get_last_lr()) == 2
    assert len(set(found)) > 1


def test_a_state_that_does_not_fit_changes_nothing():
    wrong = {
        "last_epoch": "3", "base_lrs": [0.1], "_last_lr": [0.1, "x"], "step_size": 0, "gamma": [0.1],
    }  # fmt: skip
    scheduler = L.StepLR(made(), 4)
    before = scheduler.state_dict()
    for name, value in wrong.items():
        with pytest.raises(ValueError, match="StepLR: the state does not fit"):
            scheduler.load_state_dict({**before, name: value})
        assert scheduler.state_dict() == before


@pytest.mark.parametrize("name", SCHEDULES)
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
    scheduler = L.StepLR(optimizer, 1, 0.5)

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
    "pct_start": (lambda o: L.OneCycleLR(o, 1.0, 10, pct_start=1.5), ValueError, "pct_start must lie in .* got 1.5"),
    "strategy": (lambda o: L.OneCycleLR(o, 1.0, 10, anneal_strategy="exp"), ValueError, "'cos' or 'linear', got 'exp'"),
    "steps": (lambda o: L.OneCycleLR(o, 1.0), ValueError, "give total_steps"),
    "no steps": (lambda o: L.CosineAnnealingLR(o, 0), ValueError, "T_max must be at least 1, got 0"),
    "resumed": (lambda o: L.StepLR(o, 1, last_epoch=3), ValueError, "load its state first"),
    "nesterov": (lambda o: made(nesterov=True), ValueError, "give momentum=0.9"),
    "state": (lambda o: L.StepLR(o, 1).load_state_dict({"gamma": 1}), ValueError, "belong"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call(made())
