"""optim.lr_scheduler: rates beside formulas, in sequence, saved and restored."""

import math

import pytest

import minigrad as mg
from minigrad import optim
from minigrad.optim import lr_scheduler

from .leaves import leaf


def two_groups():
    return optim.SGD([{"params": [leaf(2)]}, {"params": [leaf(2)], "lr": 0.03}], lr=0.1)


def rates(scheduler, n):
    """The rates of all groups before each of n steps."""
    found = []
    for _ in range(n):
        found.append(scheduler.get_last_lr())
        scheduler.step()
    return found


SCHEDULES = {
    "LambdaLR": (lambda o: lr_scheduler.LambdaLR(o, lambda t: 0.9**t), lambda base, t: base * 0.9**t),
    "StepLR": (lambda o: lr_scheduler.StepLR(o, 3, gamma=0.5), lambda base, t: base * 0.5 ** (t // 3)),
    "CosineAnnealingLR": (
        lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=8, eta_min=0.01),
        lambda base, t: 0.01 + (base - 0.01) * (1 + math.cos(math.pi * t / 8)) / 2,
    ),
    "LinearLR": (
        lambda o: lr_scheduler.LinearLR(o, start_factor=0.2, end_factor=0.7, total_iters=5),
        lambda base, t: base * (0.2 + 0.1 * min(t, 5)),
    ),
    "SequentialLR": (
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.1, total_iters=4), lr_scheduler.StepLR(o, 3)], milestones=[4]
        ),
        lambda base, t: base * (0.1 + 0.9 * t / 4 if t < 4 else 0.1 ** ((t - 4) // 3)),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates(name):
    make, expected = SCHEDULES[name]
    for t, found in enumerate(rates(make(two_groups()), 20)):
        assert found == pytest.approx([expected(0.1, t), expected(0.03, t)], rel=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_saved_schedule_goes_on(name):
    make, _ = SCHEDULES[name]
    whole = rates(make(two_groups()), 12)
    first, optimizer = make(two_groups()), two_groups()
    rates(first, 5)
    optimizer.load_state_dict(first.optimizer.state_dict())
    second = make(optimizer)  # the optimizer's rates are those of step 5, and its first rates are kept
    second.load_state_dict(first.state_dict())
    assert rates(second, 7) == whole[5:]


def test_a_function_for_each_group_and_what_is_refused():
    found = rates(lr_scheduler.LambdaLR(two_groups(), [lambda t: 1.0, lambda t: t + 1]), 2)
    assert found == [pytest.approx([0.1, 0.03]), pytest.approx([0.1, 0.06])]
    with pytest.raises(ValueError, match="a function for each of 2 groups, got 1"):
        lr_scheduler.LambdaLR(two_groups(), [lambda t: 1.0])
    optimizer = two_groups()
    parts = [lr_scheduler.StepLR(optimizer, 3), lr_scheduler.StepLR(optimizer, 3)]
    with pytest.raises(ValueError, match="got 2 schedulers and 2 milestones"):
        lr_scheduler.SequentialLR(optimizer, parts, [3, 6])
    with pytest.raises(ValueError, match="schedulers of this optimizer"):
        lr_scheduler.SequentialLR(two_groups(), parts, [3])
    with pytest.raises(NotImplementedError, match=r"LRScheduler must define rate\(base, t\)"):
        lr_scheduler.LRScheduler(optimizer)
    with pytest.raises(AttributeError, match=r"no attribute 'OneCycleLR'; instead: optim.lr_scheduler.LambdaLR"):
        lr_scheduler.OneCycleLR  # noqa: B018


def test_several_optimizers_follow_one_schedule():
    a, b = leaf(2, 2), leaf(2)
    together = optim.Optimizers(optim.Muon([a], lr=0.02), optim.AdamW([b], lr=6e-3))
    assert rates(lr_scheduler.StepLR(together, 1, gamma=0.5), 2)[1] == pytest.approx([0.01, 3e-3])


def test_a_captured_step_takes_the_rate_of_each_call():
    p = mg.ones(2, requires_grad=True)
    optimizer = optim.SGD([p], lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    @mg.capture
    def step():
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
        scheduler.step()
    assert p.tolist() == [1 - 1.75] * 2
