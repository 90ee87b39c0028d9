"""A captured step that is interrupted leaves parameters whole, and goes on."""

import gc
import signal
import sys
import time

import numpy as np
import pytest

import minigrad as mg
from minigrad import backend, nn, optim

from ..devices import backend_of
from .steps import batch, net, supported

pytestmark = supported


@pytest.fixture
def no_collections():
    """What another package does when garbage is collected (Hypothesis takes the time) must not be interrupted."""
    gc.disable()
    yield
    gc.enable()


def test_ctrl_c_at_any_moment(monkeypatch, no_collections):
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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python swallows one in a generator
@pytest.mark.parametrize("every", [41, pytest.param(1, marks=pytest.mark.long)])
def test_an_interrupt_at_any_call(every):
    """What came before it has happened, or nothing of the step: no other state, and the next steps are right."""

    def made():
        model = net()
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        @mg.capture
        def step(x, y):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()
            optimizer.step()
            return loss, norm

        return model, step

    def weights(model):
        return b"".join(p.detach().numpy().tobytes() for p in model.parameters())

    def interrupted(step, x, y, at):
        """Run a step, with an interrupt at call number `at`, where it begins, or returns from C. -> was there one?"""
        count = 0

        def look(frame, event, arg):
            nonlocal count
            if event in ("call", "c_return"):
                count += 1
                if count == at:
                    sys.setprofile(None)
                    raise KeyboardInterrupt

        try:
            sys.setprofile(look)
            step(x, y)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        return count >= at

    model, step = made()
    right = [weights(model)]
    for i in range(5):
        step(*batch(i))
        right.append(weights(model))
    for begun in (0, 3):  # while it is captured, and where it is followed
        at, hit = 1, True
        while hit:
            model, step = made()
            for i in range(begun):
                step(*batch(i))
            hit, at = interrupted(step, *batch(begun), at), at + every
            assert weights(model) in right[begun : begun + 2], at
            done = right.index(weights(model))
            for i in range(done, 5):
                step(*batch(i))
            assert weights(model) == right[5] and mg.is_grad_enabled(), at
        assert at > 300
