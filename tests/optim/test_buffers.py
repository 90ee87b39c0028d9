"""Buffers that no longer match their parameter are converted or refused before a kernel gets them."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import backend, nn, optim
from minigrad.tensor import from_backend

from ..devices import backend_of


class Momentum(optim.Optimizer):
    buffers = ("b",)

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def update(self, p, g, state, group):
        state["b"].mul_(0.9).add_(g)
        p -= group["lr"] * state["b"]


OPTIMIZERS = {
    "adamw": lambda p: optim.AdamW(p, lr=0.1),
    "adam": lambda p: optim.Adam(p, lr=0.1, weight_decay=0.1),
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "own": lambda p: Momentum(p, lr=0.1),
}


def to_buffers(change):
    """Return a function that changes each buffer of every parameter."""

    def apply(model, optimizer):
        for state in optimizer.state.values():
            for name in optimizer.buffers:
                state[name] = change(state[name])

    return apply


def frozen(buffer):
    array = buffer.numpy()
    array.flags.writeable = False
    return from_backend(array, buffer.storage.backend)


def forget(model, optimizer):
    for state in optimizer.state.values():
        del state[optimizer.buffers[-1]]


TAKEN = {  # what happens to a model and its optimizer between two steps, and changes no number
    "double": lambda model, optimizer: model.double(),
    "buffers of another dtype": to_buffers(lambda b: b.double()),
    "arrays of NumPy": to_buffers(lambda b: b.numpy().astype("f8")),
    "transposed": to_buffers(lambda b: b.T.contiguous().T),
    "every other element": to_buffers(lambda b: mg.stack([b, b], -1)[..., 0]),
    "read-only": to_buffers(frozen),
}
REFUSED = {
    "another shape": (to_buffers(lambda b: mg.zeros(3, dtype=b.dtype)), r"has \(3,\) for .*'s shape \(8, 4\)"),
    "fewer elements": (to_buffers(lambda b: b[:1]), r"has \(1, 4\) for .* parameter's shape \(8, 4\)"),
    "whole numbers": (to_buffers(lambda b: b.to(mg.int64)), "not an array of floats"),
    "a number": (to_buffers(lambda b: 0.0), "has 0.0 for .*, not an array of floats"),
    "none": (forget, "has None for"),
}


def train(kind, change=None, at=3):
    """Return (model, optimizer, None) after 8 steps, or (model, optimizer, message) when a step raised."""
    mg.manual_seed(0)
    model = nn.Linear(4, 8)
    optimizer = OPTIMIZERS[kind](model.parameters())
    for i in range(8):
        if i == at and change:
            change(model, optimizer)
        optimizer.zero_grad()
        (model(mg.ones(6, 4, dtype=model.weight.dtype)) ** 2).mean().backward()
        try:
            optimizer.step()
        except ValueError as error:
            return model, optimizer, str(error)
    return model, optimizer, None


def numbers(model):
    return [p.detach().numpy() for p in model.parameters()]


@pytest.fixture(params=[pytest.param("native", marks=pytest.mark.needs("g++")), "numpy"], autouse=True)
def on(request, monkeypatch):
    used = backend.reference if request.param == "numpy" else backend_of(request.param)
    monkeypatch.setattr(backend, "cpu", lambda: used)


@pytest.mark.parametrize("change", TAKEN)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_buffers_follow_their_parameter(kind, change):
    model, optimizer, error = train(kind, TAKEN[change])
    assert error is None
    for p, wanted in zip(model.parameters(), numbers(train(kind)[0])):
        np.testing.assert_allclose(p.detach().numpy(), wanted, rtol=1e-4, atol=1e-5)
        state = optimizer.state[p]
        assert state["step"] == 8 and all(state[name].dtype == p.dtype for name in optimizer.buffers)


@pytest.mark.parametrize("change", REFUSED)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_others_are_refused_before_anything_has_changed(kind, change):
    change, words = REFUSED[change]
    before = []
    model, optimizer, error = train(kind, lambda m, o: (before.extend(numbers(m)), change(m, o)))
    with pytest.raises(ValueError, match=f"optimizer state 0 .*{words}"):
        raise ValueError(error)
    for p, array in zip(model.parameters(), before):
        np.testing.assert_array_equal(p.detach().numpy(), array)
        assert optimizer.state[p]["step"] == 3


def test_a_captured_step_takes_them_too():
    mg.manual_seed(0)
    model = nn.Linear(4, 8)
    optimizer = optim.AdamW(model.parameters(), lr=0.1)

    @mg.capture
    def step(x):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()

    for i in range(8):
        if i in (2, 5):
            TAKEN["double" if i == 2 else "transposed"](model, optimizer)
        step(mg.ones(6, 4, dtype=model.weight.dtype))
    for x, wanted in zip(numbers(model), numbers(train("adamw")[0])):
        np.testing.assert_allclose(x, wanted, rtol=1e-4, atol=1e-5)
