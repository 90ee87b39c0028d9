"""A captured step that is interrupted leaves no parameter half updated, and its next calls are right."""

import gc
import signal
import sys
import time

import pytest

import minigrad as mg
from minigrad import backend, nn, optim

from ..devices import backend_of
from .steps import batch, net, supported

pytestmark = supported


@pytest.fixture
def no_collections():
    """Switch off garbage collection: what other packages do then (Hypothesis measures the time) must not be
    interrupted."""
    gc.disable()
    yield
    gc.enable()


def made():
    """A model, and a captured step of its training."""
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


def after(steps):
    """The weights before the first step and after each step."""
    model, step = made()
    return [weights(model)] + [step(*batch(i)) and weights(model) for i in range(steps)]


def test_ctrl_c_at_any_moment(monkeypatch, no_collections):
    """Every weight is that of some whole number of steps: no kernel stops in the middle."""
    on = backend_of("native")
    monkeypatch.setattr(backend, "cpu", lambda: on)
    right, (model, step) = after(12), made()
    begun = time.perf_counter()
    step(*batch(0))
    duration, done = time.perf_counter() - begun, 1
    for k in range(10):
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, duration * (k + 1) / 40)
            try:
                for i in range(done, min(done + 3, 12)):
                    step(*batch(i))
                    done += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)  # from here on no alarm comes: a late one is caught below
        except KeyboardInterrupt:
            assert weights(model) in right[done : done + 2], "a step was left half done"
            done = right.index(weights(model))
        finally:
            signal.signal(signal.SIGALRM, before)
    assert weights(model) == right[done]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python swallows one in a generator
@pytest.mark.parametrize("every", [41, pytest.param(1, marks=pytest.mark.long)])
def test_an_interrupt_at_any_call(every):
    """After the interrupt, everything before it has happened, or nothing of the step; the next steps are right."""

    def interrupted(step, x, y, at):
        """Run a step with an interrupt at call number `at`, where the call begins or returns from C. True if there was
        one."""
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

    right = after(5)
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
