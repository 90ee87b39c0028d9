"""Programs as users write them: captured, each gives the same bits at every call as uncaptured."""

import argparse
import collections
import copy
import dataclasses
import functools
import itertools
import os
import random
import subprocess
import sys

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

from .. import ROOT
from .steps import batch, net, same, supported

pytestmark = supported
CALLS = 8


def mse(p, y):
    return ((p - y) ** 2).mean()


# ---------------------------------------------------------------------------------- what the Python of a step may read


@dataclasses.dataclass
class Config:
    factor: float = 1.0

    @property
    def doubled(self):
        return 2 * self.factor


NAMESPACE, CONFIG = argparse.Namespace(alpha=1.0), Config()
NUMBERS, NESTED, HISTORY = [1.0, 2.0], {"a": {"b": 1.0}}, collections.deque(maxlen=3)
RNG, OWN = np.random.default_rng(0), mg.Generator()
PICKED = itertools.cycle([1.0, 2.0, 0.5])
CALLBACKS: list = []


class Scaled(nn.Module):
    def __init__(self):
        self.calls, self.config = 0, CONFIG

    def forward(self, x):
        self.calls += 1
        return x * self.config.factor + self.calls


@functools.lru_cache
def looked_up(key):
    return CONFIG.factor


def counted(x, calls=[0]):  # noqa: B006
    calls[0] += 1
    return x * calls[0]


READS = {
    "an argparse namespace": lambda x: x * NAMESPACE.alpha,
    "an attribute": lambda x: x * CONFIG.factor,
    "a property": lambda x: x * CONFIG.doubled,
    "a class attribute": lambda x: x * Config.factor,
    "an element of a list": lambda x: x * NUMBERS[0],
    "a nested dict": lambda x: x * NESTED["a"]["b"],
    "a deque": lambda x: x * (HISTORY[-1] if HISTORY else 0.0),
    "a length": lambda x: x * len(HISTORY),
    "random": lambda x: x * random.random() + random.choice([0, 1]),
    "a generator of NumPy": lambda x: x * float(RNG.normal()),
    "an iterator": lambda x: x * next(PICKED),
    "the environment": lambda x: x * float(os.environ["MINIGRAD_TEST_FACTOR"]),
    "a cache": lambda x: x * looked_up(len(HISTORY)),
    "a module's attribute": Scaled(),
    "a default that changes": counted,
    "callbacks": lambda x: functools.reduce(lambda y, f: f(y), CALLBACKS, x * 1),
    "an array of NumPy": lambda x: x * np.float32(NUMBERS[0]) + np.full(3, NUMBERS[0], np.float32),
    "a new Tensor": lambda x: x + mg.tensor(NUMBERS[:1]) + mg.from_numpy(np.full(3, NUMBERS[0], np.float32)),
    "an index": lambda x: x[int(NUMBERS[0]) % 3] + x[np.array([0, int(NUMBERS[0]) % 3])].sum(),
    "a computed index": lambda x: x[x.argmax()] + x[x > x.mean()].sum() + F.embedding(x.argmax(), mg.ones(3, 2)),
    "a value": lambda x: x * x.sum().item() if x.sum() > 0 else x - 1,
    "another path": lambda x: x.exp() if NUMBERS[0] > 2 else (x * 2).tanh() if NUMBERS[0] > 1 else x + 1,
    "a mode": lambda x: F.dropout(x, 0.5, training=NUMBERS[0] > 1),
    "random numbers": lambda x: x + mg.randn(3) * mg.rand(3, generator=OWN) + mg.randperm(3),
    "a new seed": lambda x: x + (mg.manual_seed(int(NUMBERS[0])), mg.rand(3))[1],
}


def change(i):
    """What happens before call i."""
    NAMESPACE.alpha = CONFIG.factor = Config.factor = NUMBERS[0] = NESTED["a"]["b"] = [1.0, 10.0, 0.0, -0.0, 2.5][i % 5]
    HISTORY.append(float(i))
    os.environ["MINIGRAD_TEST_FACTOR"] = str(1 + i % 3)
    CALLBACKS[:] = [lambda x, k=k: x + k for k in range(i % 3)]


def begin(monkeypatch):
    global RNG, PICKED
    RNG, PICKED = np.random.default_rng(0), itertools.cycle([1.0, 2.0, 0.5])
    monkeypatch.setenv("MINIGRAD_TEST_FACTOR", "1")
    HISTORY.clear(), looked_up.cache_clear(), random.seed(0), mg.manual_seed(0), OWN.manual_seed(5)
    counted.__defaults__[0][0] = READS["a module's attribute"].calls = 0


@pytest.mark.parametrize("what", READS)
def test_values_that_a_step_reads_are_read_at_each_call(kernels, monkeypatch, what):
    seen = []
    for run in (READS[what], mg.capture(READS[what])):
        begin(monkeypatch)
        seen.append([])
        for i in range(2 * CALLS):
            change(i)
            seen[-1].append(run(mg.tensor([1.0, -2.0, 0.5 + i])).detach())
    assert [same(a, b) for a, b in zip(*seen, strict=True)] == [True] * 2 * CALLS


# ------------------------------------------------------------------------------------------- what training loops do

PROGRAMS = {}


def program(f):
    """A function of `capture` that returns call(i), which runs a program's call i and returns the Tensors it sees."""
    PROGRAMS[f.__name__] = f
    return f


def trainer(capture, model, optimizer, loss_of):
    """The plain loop around a loss."""

    @capture
    def step(*args):
        optimizer.zero_grad()
        loss = loss_of(*args)
        loss.backward()
        optimizer.step()
        return loss

    return step


def state(model, *more):
    params = list(model.parameters())
    return [*params, *(p.grad for p in params if p.grad is not None), *more]


@program
def a_rate_that_falls_inside(capture):
    model = net()
    optimizer = optim.AdamW(model.parameters(), lr=0.1)

    @capture
    def step(x, y):
        optimizer.zero_grad()
        loss = mse(model(x), y) * (1 + optimizer.param_groups[0]["lr"])
        loss.backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.5
        return loss

    return lambda i: state(model, step(*batch(i)))


@program
def nanogpts_learning_rate_and_clipping(capture):
    model = net()
    optimizer = optim.AdamW(model.parameters(), lr=0.1)

    @capture
    def step(x, y, lr):
        for group in optimizer.param_groups:
            group["lr"] = lr
        mse(model(x), y).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norm

    return lambda i: state(model, step(*batch(i), 0.1 / (1 + i)))


@program
def accumulation_in_one_function(capture):
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @capture
    def step(i):
        for k in range(3):
            (mse(*[f(z) for f, z in zip((model, lambda y: y), batch(3 * i + k))]) / 3).backward()
        optimizer.step()
        optimizer.zero_grad()

    return lambda i: [step(i), *state(model)][1:]


@program
def accumulation_in_two_functions(capture):
    model = net()
    optimizer = optim.Adam(model.parameters())
    micro = capture(lambda x, y: (mse(model(x), y) / 2).backward())
    update = capture(lambda: (optimizer.step(), optimizer.zero_grad()))

    def call(i):
        micro(*batch(2 * i)), micro(*batch(2 * i + 1))
        grads = [p.grad.clone() for p in model.parameters()]
        update()
        return state(model, *grads)

    return call


@program
def a_gan(capture):
    maker, judge = net(1, 4, 8, 6), net(2, 6, 8, 1)
    optimizers = [optim.Adam(m.parameters(), lr=0.01) for m in (maker, judge)]

    @capture
    def step(x):
        fake = maker(mg.randn(8, 4))
        optimizers[1].zero_grad()
        (mg.log1p(judge(fake.detach()).exp()) + mg.log1p((-judge(x)).exp())).mean().backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        mg.log1p((-judge(fake)).exp()).mean().backward()
        optimizers[0].step()

    return lambda i: [step(batch(i)[0]), *state(maker), *state(judge)][1:]


@program
def averages_of_weights_and_losses(capture):
    model, mean = net(), {}
    average = copy.deepcopy(model)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @capture
    def step(x, y):
        optimizer.zero_grad()
        loss = mse(model(x), y)
        loss.backward()
        optimizer.step()
        with mg.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.mul_(0.9).add_(p, alpha=0.1)
        mean["loss"] = loss.detach() if "loss" not in mean else 0.9 * mean["loss"] + 0.1 * loss.detach()

    return lambda i: [step(*batch(i)), *state(model), *average.parameters(), mean["loss"]][1:]


@program
def a_hidden_state(capture):
    model, memory = net(0, 9, 8, 3), {"h": mg.zeros(8, 3)}
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @capture
    def step(x, y):
        optimizer.zero_grad()
        memory["h"] = h = model(mg.cat([x, memory["h"].detach()], 1)).tanh()
        mse(h, y).backward()
        optimizer.step()

    return lambda i: [step(*batch(i)), *state(model), memory["h"].detach()][1:]


@program
def an_early_exit(capture):
    model, log = net(), []
    optimizer = optim.SGD(model.parameters(), lr=0.2)

    @capture
    def step(x, y):
        optimizer.zero_grad()
        loss = mse(model(x), y)
        log.append(loss.item())
        if loss < 1.0:
            return loss
        loss.backward()
        if nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True) > 0.5:
            optimizer.step()
        return loss

    return lambda i: state(model, step(*batch(i)), mg.tensor(log or [0.0]))


@program
def freezing_and_unfreezing(capture):
    model = net()
    optimizer = optim.AdamW(model.parameters(), lr=0.05)
    step = trainer(capture, model, optimizer, lambda x, y: mse(model(x), y))

    def call(i):
        model[0].requires_grad_(i % 4 < 2)
        return state(model, step(*batch(i)))

    return call


@program
def a_curriculum_of_lengths(capture):
    mg.manual_seed(0)
    model = nn.GPT(nn.GPTConfig(7, block_size=8, n_layer=1, n_head=2, n_embd=8, dropout=0.2))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    step = trainer(capture, model, optimizer, lambda x, y: model(x, y)[1])
    tokens = mg.tensor(np.random.default_rng(0).integers(0, 7, (CALLS, 2, 9)))
    return lambda i: state(model, step(tokens[i, :, : 3 + i % 3], tokens[i, :, 1 : 4 + i % 3]))


@program
def an_optimizer_of_ones_own(capture):
    class Own(optim.Optimizer):
        buffers = ("b",)

        def update(self, p, g, state, group):
            state["b"] = state["b"] * group["decay"] + g
            state.setdefault("first", float(group["lr"]))
            p -= group["lr"] / state["step"] * state["b"]

    model = net()
    optimizer = Own(model.parameters(), {"lr": 0.1, "decay": 0.5})
    step = trainer(capture, model, optimizer, lambda x, y: mse(model(x), y))

    def call(i):
        optimizer.param_groups[0]["decay"] = 0.5 if i < 4 else 0.25
        return state(model, step(*batch(i)))

    return call


@program
def sgd_by_hand(capture):
    model = net()

    @capture
    def step(x, y, lr):
        loss = mse(model(x), y)
        for p, g in zip(model.parameters(), mg.grad(loss, list(model.parameters()))):
            p.data = (p - lr * g).detach()
        return loss

    return lambda i: state(model, step(*batch(i), 0.1))


@program
def hooks(capture):
    model, seen = net(), []
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    model[0].weight.register_hook(lambda g: g * 0.5)

    def loss_of(x, y):
        h = model[0](x)
        h.register_hook(lambda g: seen.append(g.sum().item()))
        h.retain_grad()
        seen.append(h)
        return mse(model[2](F.gelu(h)), y)

    step = trainer(capture, model, optimizer, loss_of)

    def call(i):
        seen.clear()
        return state(model, step(*batch(i)), seen[0], seen[0].grad, mg.tensor(seen[1:]))

    return call


@program
def second_derivatives(capture):
    """A walk in Python adds to the gradients of the call before; every second walk runs code of the user's."""
    model = net()

    @capture
    def step(i, x, y):
        loss = F.cross_entropy(model(x.requires_grad_()), y.argmax(1))
        (g,) = mg.grad(loss, x, create_graph=True)
        if i % 2:
            loss.retain_grad()
        (loss + ((g**2).sum(1) - 1).pow(2).mean()).backward()
        return loss

    return lambda i: state(model, step(i, *batch(i)))


@program
def two_backwards_of_one_graph(capture):
    model = net()

    @capture
    def step(x, y):
        model.zero_grad()
        h = model(x)
        mse(h, y).backward(retain_graph=True)
        first = [p.grad.clone() for p in model.parameters()]
        h.sum().backward()
        try:
            h.sum().backward()
        except mg.GraphError:
            return first
        raise AssertionError

    return lambda i: [*step(*batch(i)), *state(model)]


@program
def values_changed_before_backward(capture):
    w = mg.ones(3).requires_grad_()

    @capture
    def step(x, change):
        w.grad = None
        h = x * 2
        y = h.exp() * w
        if change:
            h.add_(1)
        z = (y * h).sum()
        if change == 2:
            h.mul_(2)
        try:
            z.backward()
        except mg.GraphError:
            return mg.zeros(3)
        return w.grad

    return lambda i: [step(mg.full((3,), 0.1 * i), i % 3)]


@program
def views_that_overlap(capture):
    line = mg.arange(10).float()
    early, late = line[1:6], line[2:7]  # made outside of the step

    @capture
    def step():
        early.copy_(late)
        early.add_(late)
        line[1:] = line[:-1]
        return late * 2

    return lambda i: [step(), line]


@program
def rows_drawn_from_data(capture):
    model, rng = net(), np.random.default_rng(1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    data, targets = batch(0, size=50)
    masked = mg.zeros(50)

    def loss_of(i):
        rows, share = rng.permutation(50)[:8], float(rng.beta(0.5, 0.5))
        masked[rows] = 1
        x, y = data[rows], targets[i : i + 8]
        return mse(model(share * x + (1 - share) * x[rng.permutation(8)]), y)

    step = trainer(capture, model, optimizer, loss_of)
    return lambda i: state(model, step(i), masked)


@program
def views_kept_and_changed(capture):
    rows, kept = mg.zeros(4, 3), []

    @capture
    def step(x, i):
        row = rows[i % 4]
        row.copy_(x * 2)
        y = (x + 1).exp()
        kept[:] = [y, y[:2], y.reshape(3, 1)]
        y[0] = 5
        x.mul_(2)
        return rows.sum(0), row, x[1:]

    def call(i):
        x = mg.full((3,), float(i))
        found = [*step(x, i), x, rows, *kept]
        kept[1].add_(1)  # which y sees
        return [each.clone() for each in [*found, *kept]]

    return call


@program
def optimizers_and_states_replaced(capture):
    model, made = net(), {}
    made["optimizer"] = optim.Adam(model.parameters(), lr=0.01)

    @capture
    def step(x, y):
        made["optimizer"].zero_grad()
        mse(model(x), y).backward()
        made["optimizer"].step()

    def call(i):
        if i == 3:
            made["optimizer"].load_state_dict(copy.deepcopy(made["optimizer"].state_dict()))
        if i == 5:
            made["optimizer"] = optim.SGD(model.parameters(), lr=0.1)
            model[0].weight = nn.Parameter(model[0].weight.detach() * 2)
        step(*batch(i))
        return state(model)

    return call


@program
def an_exception_that_is_caught(capture):
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @capture
    def step(x, y, i):
        optimizer.zero_grad()
        loss = mse(model(x), y)
        try:
            loss + mg.ones(2, 5, 7)
        except ValueError:
            loss = loss * 2
        loss.backward()
        if i % 3 == 1:
            raise KeyError(i)
        optimizer.step()

    def call(i):
        try:
            step(*batch(i), i)
        except KeyError:
            return [mg.ones(1), *state(model)]
        return state(model)

    return call


@program
def evaluation_in_between(capture):
    model = nn.Sequential(net(), nn.Dropout(0.5))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def loss_of(x, y):
        with nn.utils.evaluating(model), mg.no_grad():
            before = mse(model(x), y)
        return mse(model(x), y) + before.item()

    step = trainer(capture, model, optimizer, loss_of)
    return lambda i: state(model, step(*batch(i)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sees_what_it_sees_without(kernels, name):
    seen, made = [], []

    def capture(function):
        made.append(mg.capture(function))
        return made[-1]

    for how in (lambda function: function, capture):
        mg.manual_seed(0)
        call = PROGRAMS[name](how)
        seen.append([])
        for i in range(CALLS):
            seen[-1].append([x.detach().clone() for x in call(i)])
    for i, (got, expected) in enumerate(zip(*seen, strict=True)):
        assert [same(a, b) for a, b in zip(got, expected, strict=True)] == [True] * len(got), i
    calls = sum((collections.Counter(each.calls) for each in made), collections.Counter())
    assert calls["uncaptured"] == 0 and (calls["replayed"] >= 2 or name == "hooks"), calls


LIMITED = """
import resource
import minigrad as mg
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))  # as `ulimit -v`
step = mg.capture(lambda x: (x.exp() * 2).sum())
print([round(step(mg.ones(1000, 1000)).item() / 1e6, 3) for _ in range(3)], step.calls)
"""


def test_a_step_reserves_the_addresses_that_it_needs():
    """Batch systems limit the addresses of a process."""
    done = subprocess.run([sys.executable, "-c", LIMITED], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[5.437, 5.437, 5.437] {'replayed': 2, 'captured': 1, 'uncaptured': 0}\n", done.stderr
