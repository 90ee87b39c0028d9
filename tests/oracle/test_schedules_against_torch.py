"""Learning-rate schedules beside PyTorch's: rates and get_last_lr() at every step."""

import numpy as np
import pytest

import minigrad as mg

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore:.*no parameter has a gradient")]

SCHEDULES = {  # from the module lr_scheduler and an optimizer
    "LambdaLR": lambda L, o: L.LambdaLR(o, [lambda t: 0.95**t, lambda t: t / 10]),
    "CosineAnnealingLR": lambda L, o: L.CosineAnnealingLR(o, 10, 0.001),
}


def run(m, make, kind):
    groups = [{"params": [m.nn.Parameter(m.ones(2))]}, {"params": [m.nn.Parameter(m.ones(2))], "lr": 0.03}]
    optimizer = getattr(m.optim, kind)(groups, lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))
    scheduler, found = make(m.optim.lr_scheduler, optimizer), []
    for _ in range(25):
        found.append([*(group["lr"] for group in optimizer.param_groups), *scheduler.get_last_lr()])
        optimizer.step()
        scheduler.step()
    optimizer.param_groups[0]["lr"] = 0.5  # by hand
    found.append([*scheduler.get_last_lr(), 0, 0])
    other = make(m.optim.lr_scheduler, optimizer)
    other.load_state_dict(scheduler.state_dict())
    found.append([*other.get_last_lr(), other.last_epoch, 0])
    return np.array(found, float)


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(torch, name, kind):
    theirs = run(torch, SCHEDULES[name], kind)
    np.testing.assert_allclose(run(mg, SCHEDULES[name], kind), theirs, rtol=1e-12, atol=1e-15)
