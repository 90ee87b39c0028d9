"""Learning-rate schedules beside PyTorch's: rates, momenta and get_last_lr() at every step, alone and combined."""

import numpy as np
import pytest

import minigrad as mg

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore:.*no parameter has a gradient")]

SCHEDULES = {  # from the module lr_scheduler and an optimizer: a scheduler, or several that are stepped together
    "LambdaLR": lambda L, o: L.LambdaLR(o, [lambda t: 0.95**t, lambda t: t / 10]),
    "StepLR": lambda L, o: L.StepLR(o, 4, 0.5),
    "CosineAnnealingLR": lambda L, o: L.CosineAnnealingLR(o, 10, 0.001),
    "OneCycleLR": lambda L, o: L.OneCycleLR(o, [0.5, 0.2], total_steps=26),
    "OneCycleLR, three phases": lambda L, o: L.OneCycleLR(
        o, 0.5, epochs=2, steps_per_epoch=13, three_phase=True, anneal_strategy="linear"
    ),
    "OneCycleLR, the rate alone": lambda L, o: L.OneCycleLR(o, 0.5, 30, pct_start=0.1, cycle_momentum=False),
    "two at once": lambda L, o: [L.StepLR(o, 1, 0.9), L.StepLR(o, 3, 0.5)],
    "steps and a cosine": lambda L, o: [L.StepLR(o, 6, 0.5), L.CosineAnnealingLR(o, 30)],
}


def run(m, make, kind):
    groups = [{"params": [m.nn.Parameter(m.ones(2))]}, {"params": [m.nn.Parameter(m.ones(2))], "lr": 0.03}]
    optimizer = getattr(m.optim, kind)(groups, lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))
    made = make(m.optim.lr_scheduler, optimizer)
    schedulers = made if isinstance(made, list) else [made]
    found = []
    for _ in range(25):
        now = optimizer.param_groups
        momenta = [group.get("momentum", group.get("betas", (0,))[0]) for group in now]
        found.append([*(group["lr"] for group in now), *momenta, *schedulers[-1].get_last_lr()])
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return np.array(found, float)


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(torch, name, kind):
    theirs = run(torch, SCHEDULES[name], kind)
    np.testing.assert_allclose(run(mg, SCHEDULES[name], kind), theirs, rtol=1e-12, atol=1e-15)
