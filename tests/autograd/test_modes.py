"""no_grad, enable_grad and set_grad_enabled: nested, as decorators, in threads, interrupted; detect_anomaly."""

import contextlib
import inspect
import signal
import threading

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.autograd import AnomalyError
from minigrad.nn.utils import evaluating


def leaf(*shape):
    return mg.randn(*shape, dtype=mg.float64, requires_grad=True)


# ----------------------------------------------------------------------------------------------------------- grad modes


def test_nothing_is_recorded_under_no_grad():
    x = leaf(3)
    with mg.no_grad():
        y = x * 2
        assert not mg.is_grad_enabled() and not y.requires_grad and y.is_leaf
    assert mg.is_grad_enabled() and (x * 2).requires_grad and x.requires_grad


def test_modes_nest_and_are_restored_after_an_exception():
    x = leaf(3)
    with mg.no_grad():
        with mg.enable_grad():
            assert (x * 2).requires_grad
            with pytest.raises(KeyError), mg.no_grad():
                raise KeyError
            assert mg.is_grad_enabled()
        assert not (x * 2).requires_grad
        with mg.no_grad():
            pass
        assert not mg.is_grad_enabled()
    assert mg.is_grad_enabled()


def test_a_decorated_generator_is_refused():
    def numbers():
        yield leaf(2) * 2

    with pytest.raises(TypeError, match="generator"):
        mg.no_grad()(numbers)


def test_set_grad_enabled_sets_the_mode_at_once_and_a_block_restores_it():
    x = leaf(3)
    with mg.set_grad_enabled(False):
        assert not (x * 2).requires_grad
        with mg.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not mg.is_grad_enabled()
    assert mg.is_grad_enabled()
    mg.set_grad_enabled(False)
    assert not mg.is_grad_enabled()
    mg.set_grad_enabled(True)
    assert mg.is_grad_enabled()

    @mg.set_grad_enabled(False)
    def double(x):
        return x * 2

    assert mg.is_grad_enabled() and not double(x).requires_grad and mg.is_grad_enabled()


def test_modes_belong_to_their_thread():
    seen = []
    with mg.no_grad():
        thread = threading.Thread(target=lambda: seen.append(mg.is_grad_enabled()))
        thread.start()
        thread.join()
        assert not mg.is_grad_enabled()
    assert seen == [True]


def test_backward_under_no_grad_with_create_graph():
    x = leaf(3)
    ys = [(x**3).sum() for _ in range(2)]
    with mg.no_grad():
        for y in ys:
            y.backward(create_graph=True)
    assert x.grad.requires_grad
    (second,) = mg.grad(x.grad.sum(), x)
    np.testing.assert_allclose(second.numpy(), 12 * x.detach().numpy())


def test_one_instance_is_entered_repeatedly():
    off = mg.no_grad()
    with off, off:
        assert not mg.is_grad_enabled()
        with mg.enable_grad(), off:
            assert not mg.is_grad_enabled()
        assert not mg.is_grad_enabled()
    assert mg.is_grad_enabled()

    @off
    def depth(n):
        return depth(n - 1) if n else mg.is_grad_enabled()

    assert depth(5) is False and mg.is_grad_enabled()


def test_modes_in_an_exit_stack():
    with contextlib.ExitStack() as stack:
        stack.enter_context(mg.no_grad())
        with mg.enable_grad():
            assert mg.is_grad_enabled()
        assert not mg.is_grad_enabled()
        stack.enter_context(mg.enable_grad())
        assert mg.is_grad_enabled()
        stack.pop_all().close()
        assert mg.is_grad_enabled()
    assert mg.is_grad_enabled()


def test_a_module_has_its_path_again_after_a_block():
    """The end of a block restores modes late: it must not undo what was set in between."""
    scopes = []

    class Inner(nn.Module):
        def forward(self, x):
            with mg.no_grad(), mg.autograd.switched(scope="other"):
                pass
            scopes.append(mg.autograd.current_modes()["scope"])
            return x

    class Outer(nn.Module):
        def __init__(self):
            self.inner = Inner()

        def forward(self, x):
            y = self.inner(x)
            scopes.append(mg.autograd.current_modes()["scope"])
            return y

    nn.Sequential(Outer())(mg.ones(1))
    assert scopes == ["0.inner", "0"] and mg.autograd.current_modes()["scope"] == ""


def test_a_block_within_an_ops_forward_ends_there():
    seen = []

    class Doubled(mg.Op, abstract=True):
        def forward(self, x):
            with mg.autograd.watch(lambda op, inputs, outputs: seen.append("inside")), mg.autograd.detect_anomaly():
                mg.ones(1) * 2
            return x * np.inf

        def backward(self, dy):
            return dy * 2

    def outside(op, inputs, outputs):
        seen.append(op.name)

    Doubled.apply(leaf(2))  # Inf is not searched for, and the watching function has gone
    with mg.autograd.watch(outside):
        Doubled.apply(leaf(2))
    assert seen == ["inside", "inside", "doubled"]


def test_an_interrupt_leaves_no_mode_behind():
    """The alarm comes 500 times, at moments that differ: while blocks begin, run and end."""
    model, parameter = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), leaf(3)
    recorded = mg.no_grad()(lambda: (parameter * 2).requires_grad)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for interrupt in range(500):
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 2e-4 + interrupt * 1e-6)
                for _ in range(1000):  # an interrupt within a callback of the garbage collector is lost
                    with evaluating(model), mg.no_grad():
                        pass
                    with mg.no_grad(), mg.enable_grad():
                        pass
                    recorded()
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert mg.is_grad_enabled() and all(module.training for module in model.modules())
    finally:
        signal.signal(signal.SIGALRM, before)


def test_eval_mode_of_a_block_belongs_to_its_thread():
    model, seen = nn.Sequential(nn.Dropout(0.5)), {}
    inside, outside = threading.Event(), threading.Event()

    def evaluate():
        with evaluating(model):
            seen["inside"] = model[0].training
            inside.set()
            outside.wait(10)
            seen["still inside"] = model[0].training
        seen["after"] = model[0].training

    thread = threading.Thread(target=evaluate)
    thread.start()
    inside.wait(10)
    with evaluating(model):
        pass
    seen["the other thread"] = model[0].training
    outside.set()
    thread.join()
    assert seen == {"inside": False, "still inside": False, "after": True, "the other thread": True}


# ------------------------------------------------------------------------------------------------------- detect_anomaly


class Log(nn.Module):
    def forward(self, x):
        return x.log()


class Net(nn.Module):
    def __init__(self):
        self.blocks = nn.ModuleList([Log()])

    def forward(self, x):
        return self.blocks[0](x * 1.0)


@pytest.fixture
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("requires_grad", [False, True])
def test_anomaly_forward_names_op_module_and_line(quiet, requires_grad):
    net = Net()
    with (
        mg.autograd.detect_anomaly(),
        pytest.raises(AnomalyError, match=r"Inf in the output of log in blocks\.0") as caught,
    ):
        net(mg.tensor([1.0, 0.0], requires_grad=requires_grad))
    assert "test_modes.py:" in str(caught.value)  # the line of x.log() above
    line = inspect.getsourcelines(Log.forward)[1] + 1
    assert f":{line}" in str(caught.value)
    assert net(mg.tensor([1.0, 0.0]))[1].item() == -np.inf  # outside, nothing is searched


def test_anomaly_backward_names_op_module_and_line(quiet):
    x = mg.tensor([1.0, 0.0], requires_grad=True)

    class Root(nn.Module):
        def forward(self, x):
            return x.sqrt()

    class Outer(nn.Module):
        def __init__(self):
            self.root = Root()

        def forward(self, x):
            return self.root(x)

    y = Outer()(x * 1.0).sum()
    line = inspect.getsourcelines(Root.forward)[1] + 1
    with (
        mg.autograd.detect_anomaly(),
        pytest.raises(AnomalyError, match="gradient for input 0 of sqrt in root") as caught,
    ):
        y.backward()
    assert f"test_modes.py:{line}" in str(caught.value) and "Inf" in str(caught.value)


def test_anomaly_tells_a_nan_that_came_in_from_one_that_was_made(quiet):
    with mg.autograd.detect_anomaly():
        with pytest.raises(AnomalyError, match=r"NaN in the output of mul.*input 0 held NaN already"):
            mg.tensor([np.nan]) * 2
        with pytest.raises(AnomalyError, match="NaN in the output of sub") as caught:
            mg.tensor([np.inf]) - mg.tensor([np.inf])
        assert "already" not in str(caught.value)


def test_anomaly_accepts_infinite_masks(quiet):
    with mg.autograd.detect_anomaly():
        x = mg.randn(2, 3, requires_grad=True)
        y = x.masked_fill(mg.tensor([True, False, False]), -np.inf).softmax(-1)
        y[:, 1].sum().backward()
    assert x.grad.isfinite().all()


def test_anomaly_in_a_backward_with_unwanted_outputs(quiet):
    x, w = leaf(2, 3), leaf(3)
    (g,) = mg.grad((nn.functional.layer_norm(x, 3, w) ** 2).sum(), x, create_graph=True)
    cotangent = mg.full((2, 3), 1e308, dtype=mg.float64)
    with mg.autograd.detect_anomaly(), pytest.raises(AnomalyError, match="layer_norm_backward"):
        g.backward(cotangent)


def test_anomaly_tells_a_nan_from_an_infinity_that_came_from_above(quiet):
    """An Inf that comes with dy is not the op's fault; a NaN that the op makes of it is."""
    x = leaf(2)
    with mg.autograd.detect_anomaly():
        (x * 2.0).backward(mg.full((2,), np.inf, dtype=mg.float64))
        assert x.grad.isinf().all()
        zero = mg.zeros(2, dtype=mg.float64)
        with pytest.raises(AnomalyError, match="NaN in the gradient for input 0 of mul"):
            (x * zero).backward(mg.full((2,), np.inf, dtype=mg.float64))
