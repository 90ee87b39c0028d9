"""no_grad, enable_grad and set_grad_enabled: nested, as decorators, in threads; detect_anomaly."""

import inspect
import threading

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.autograd import AnomalyError, mode


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
    with mg.set_grad_enabled(False) as entered:
        assert entered is not None and not (x * 2).requires_grad
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


# ------------------------------------------------------------------------------------ what a walk sets, and sets back


def modes():
    return {name: getattr(mode, name) for name in ("grad", "anomaly", "scope", "inspecting", "watch")}


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
