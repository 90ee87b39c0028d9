"""A user's ops in a captured step: those in NumPy run at each call, and those that call the backend are captured."""

import mmap

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.replay.addresses import AddressSpace

from .steps import same, supported

pytestmark = supported


class Cubed(mg.Op):
    """y = x³, in NumPy;   dx = 3 x² dy"""

    runs = 0

    def forward(self, x):
        Cubed.runs += 1
        self.save_inputs(x)
        return self.backend.from_numpy(self.backend.to_numpy(x) ** 3)

    def backward(self, dy):
        return dy * 3 * self.saved_inputs()[0].square()


class Reversed(mg.Op):
    """y = x;   dx = -scale dy"""

    def forward(self, x, scale=1.0):
        return x

    def backward(self, dy):
        return dy * -self.scale


class Halves(mg.Op):
    """y, z = x[:n], x[n:], views;   dx = dy and dz, one after the other"""

    def forward(self, x):
        n = len(x) // 2
        return x[:n], x[n:]

    def backward(self, dy, dz):
        return mg.cat([dy, dz])


class Positive(mg.Op):
    """y = the positive elements of x: its size depends on values"""

    differentiable = False

    def forward(self, x):
        values = self.backend.to_numpy(x)
        return self.backend.from_numpy(values[values > 0])


class Squared(mg.Op):
    """y = x², by a primitive of the backend"""

    primitive = True

    def forward(self, x):
        self.save_inputs(x)
        return self.backend.mul(x, x)

    def backward(self, dy):
        return 2 * self.saved_inputs()[0] * dy


class Pretender(mg.Op):
    """y = 2x in NumPy, although it says that it only calls primitives"""

    primitive = True

    def forward(self, x):
        return np.multiply(x, 2)


def numbers(seed, *shape):
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def trained(step_of, capture):
    """The losses of four steps that step_of(model) makes, the weights afterwards, and the step."""
    mg.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4))
    step = step_of(model)
    step = mg.capture(step) if capture else step
    optimizer = mg.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for i in range(4):
        optimizer.zero_grad()
        losses.append(step(numbers(i, 6, 3)).detach())
        optimizer.step()
    return [*losses, *(p.detach() for p in model.parameters())], step


STEPS = {
    "alone": lambda x: Cubed.apply(x),
    "between other ops": lambda x: Cubed.apply(x * 2).tanh() + x,
    "twice": lambda x: Cubed.apply(Cubed.apply(x * 0.5)) * x,
    "the input itself": lambda x: Reversed.apply(x.exp(), scale=0.5) * x,
    "two views": lambda x: mg.cat([y * (i + 2) for i, y in enumerate(Halves.apply(x))]),
    "one of two views": lambda x: Halves.apply(x)[1].exp(),
    "captured": lambda x: Squared.apply(x),
}


@pytest.mark.parametrize("case", STEPS)
def test_training_with_an_own_op_gives_the_same_bits(kernels, case):
    def step_of(model):
        def step(x):
            loss = (STEPS[case](model[1](STEPS[case](model[0](x))))).mean()
            loss.backward()
            return loss

        return step

    expected, _ = trained(step_of, capture=False)
    got, step = trained(step_of, capture=True)
    assert all(map(same, got, expected))
    assert step.calls["replayed"] >= 2 and step.calls["uncaptured"] == 0


def test_it_runs_at_each_call_with_the_parameters_of_the_call(kernels):
    step = mg.capture(lambda x, scale: (Reversed.apply(x * 3, scale=scale) * x).sum().backward())
    Cubed.runs = 0
    cubes = mg.capture(lambda x: Cubed.apply(x + 1) - 1)
    for i in range(5):
        x = numbers(i, 4).requires_grad_()
        step(x, float(i))
        assert x.grad.allclose(x.detach() * 3 * (1 - i))
        assert same(cubes(x.detach()), Cubed.apply(x.detach() + 1) - 1)
    assert Cubed.runs == 10 and step.calls["replayed"] >= 3 and cubes.calls["captured"] == 1


def test_an_output_may_have_another_shape_at_each_call(kernels):
    step = mg.capture(lambda x: Positive.apply(x * 2) + 1)
    for seed in range(6):
        x = numbers(seed, 9)
        assert same(step(x), Positive.apply(x * 2) + 1)


def test_a_change_in_place_of_what_it_saved_is_found(kernels):
    def step(x):
        y = x * 1
        z = Cubed.apply(y)
        with mg.no_grad():
            y.detach().add_(1)
        z.sum().backward()

    step = mg.capture(step)
    for _ in range(2):
        with pytest.raises(mg.GraphError, match="in-place change"):
            step(numbers(0, 3).requires_grad_())


def test_a_second_derivative_through_it_is_refused(kernels):
    def step(x):
        (g,) = mg.grad(Cubed.apply(x).sum(), [x], create_graph=True)
        return g

    with pytest.raises(mg.CaptureError, match=r"cubed is an op of your own.*test_own_ops\.py:\d+"):
        mg.capture(step)(numbers(0, 3).requires_grad_())


def test_one_that_only_says_it_is_primitive_is_refused(kernels, monkeypatch):
    monkeypatch.setattr(AddressSpace, "protection", mmap.PROT_READ)  # it reads a captured array
    if kernels.device == "cpu":
        with pytest.raises(mg.CaptureError, match=r"pretender.*primitive = True"):
            mg.capture(lambda x: Pretender.apply(x * 2))(numbers(0, 3))


def test_one_that_is_primitive_is_captured(kernels, monkeypatch):
    runs, forward = [], Squared.forward
    monkeypatch.setattr(Squared, "forward", lambda self, x: runs.append(x) or forward(self, x))
    step = mg.capture(lambda x: Squared.apply(x) + 1)
    for seed in range(5):
        x = numbers(seed, 3)
        assert same(step(x), x * x + 1)
    assert len(runs) == 1 and step.calls == {"captured": 1, "replayed": 4, "uncaptured": 0}
