"""A captured step that is interrupted leaves parameters whole, and goes on."""

import signal
import time

import numpy as np

import minigrad as mg
from minigrad import backend, nn, optim

from ..devices import backend_of
from .steps import supported

pytestmark = supported


def test_ctrl_c_at_any_moment(monkeypatch):
    """Every weight is what it is after some whole number of steps: no kernel stops in the middle."""
    on = backend_of("native")
    monkeypatch.setattr(backend, "cpu", lambda: on)
    x, y = mg.randn(16, 8), mg.randn(16, 8)

    def made():
        mg.manual_seed(3)
        model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        optimizer = optim.SGD(model.parameters(), lr=1e-3)

        def step(x, y):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return model, mg.capture(step)

    def weights(model):
        return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])

    model, step = made()
    after = [weights(model)]
    for _ in range(12):
        step(x, y)
        after.append(weights(model))

    model, step = made()
    begun = time.perf_counter()
    step(x, y)
    duration, done = time.perf_counter() - begun, 1
    for k in range(10):
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, duration * (k + 1) / 40)
            try:
                for _ in range(3):
                    if done == 12:
                        break
                    step(x, y)
                    done += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)  # from here on no alarm comes: a late one is caught below
        except KeyboardInterrupt:
            found = [i for i, w in enumerate(after) if (w == weights(model)).all()]
            assert found and found[0] in (done, done + 1), "a step was left half done"
            done = found[0]
        finally:
            signal.signal(signal.SIGALRM, before)
    assert (weights(model) == after[done]).all()
