"""Random steps: each call is a random walk through ops, changes in place, reads, kept Tensors, backward, optimizers.

What a call does depends on few bits, so that calls repeat each other in part."""

import random

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim

from .steps import supported

pytestmark = supported
CALLS = 14


class World:
    """What a step reads and changes besides its arguments."""

    def __init__(self, seed):
        mg.manual_seed(seed)
        self.constants, self.buffer = [mg.randn(4, 4), mg.randn(4)], mg.zeros(4, 4)
        self.kept, self.log, self.number = [], [], 1.0
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.3))
        self.w = [*(mg.randn(4, 4, requires_grad=True) for _ in range(2)), *self.model.parameters()]
        plan = random.Random(seed)
        kind = plan.choice([optim.SGD, optim.Adam, optim.AdamW])
        self.optimizer = kind([{"params": self.w[:3]}, {"params": self.w[3:]}], lr=0.01)
        self.script = [(plan.choice(STATEMENTS), plan.random()) for _ in range(plan.randrange(4, 16))]

    def seen(self):
        grads = [p.grad for p in self.w]
        drawn = mg.default_generator.state["offset"]
        return [*self.w, *grads, *self.kept, self.buffer, *self.constants, *map(repr, self.log), drawn]


def forgotten(s, h, x, r):
    with mg.no_grad():
        s.buffer.mul_(0.5).add_(h.detach() * 0.1)
        return h + (s.w[1] * 2).relu()


def kept(s, h, x, r):
    s.kept = [*s.kept[-2:], h.detach()]
    return h


def logged(s, h, x, r):
    s.log.append(h.mean().item())
    return h


def walked(s, h, x, r):
    if not h.requires_grad:
        return h
    (h**2).mean().backward()
    return h.detach()


def stepped(s, h, x, r):
    if any(p.grad is not None for p in s.w):
        s.optimizer.step()
    return h


def cleared(s, h, x, r):
    s.optimizer.zero_grad(set_to_none=r.random() < 0.7)
    return h


def hooked(s, h, x, r):
    if h.requires_grad:
        h.register_hook(lambda g: g * 0.5)
    return h


def rated(s, h, x, r):
    s.optimizer.param_groups[0]["lr"] = 0.01 * (1 + r.randrange(3))
    s.model.train(r.random() < 0.7)
    return h


def scaled(s, h, x, r):
    for p in s.w:
        if p.grad is not None:
            p.grad.mul_(0.5)
    return h


def clipped(s, h, x, r):
    if s.w[0].grad is None:
        return h
    nn.utils.clip_grad_norm_(s.w, 0.5)
    return h + s.w[0].grad


def frozen(s, h, x, r):
    s.w[1].requires_grad_(r.random() < 0.7)
    return h + s.w[1]


def replaced(s, h, x, r):
    if r.random() < 0.2:
        s.constants[1] = mg.randn(4)
    if s.kept:
        s.kept[0].mul_(0.9)
    return h


def argued(s, h, x, r):
    x.mul_(0.5)
    return h + x


STATEMENTS = [
    forgotten, kept, logged, walked, walked, stepped, stepped, cleared, hooked, rated, scaled, clipped, frozen,
    replaced, argued,
    lambda s, h, x, r: h @ s.w[0],
    lambda s, h, x, r: h * s.number,
    lambda s, h, x, r: (h + s.constants[r.randrange(2)]).tanh(),
    lambda s, h, x, r: s.model(h),
    lambda s, h, x, r: h + mg.randn(4, 4) * 0.1,
    lambda s, h, x, r: h + mg.tensor(np.full((4, 4), r.random(), np.float32)),
    lambda s, h, x, r: h + s.buffer,
    lambda s, h, x, r: h + (s.kept[-1] if s.kept else 0.0),
    lambda s, h, x, r: h.T,
    lambda s, h, x, r: h[:, ::2].repeat(1, 2),
    lambda s, h, x, r: h + h.mean(0, keepdim=True) if h.sum() > 0 else h - 1,
]  # fmt: skip


def run(seed, capture):
    """The bytes of everything that can be seen after each call."""
    s, r = World(seed), random.Random(seed + 1)

    def body(x, r):
        h = x
        for statement, chance in s.script:
            if r.random() >= 0.15 * chance:
                h = statement(s, h, x, r)
        if r.random() < 0.05:
            raise KeyError("at random")
        return h, h.sum()

    step, found = capture(body), []
    for i in range(CALLS):
        s.number = [1.0, 1.0, 0.5, r.random()][r.randrange(4)]
        x = mg.tensor(np.random.default_rng(i).normal(size=(4, 4)).astype(np.float32))
        try:
            out = step(x, random.Random(r.randrange(3) if i % 3 else r.randrange(10**6)))
        except (KeyError, mg.GraphError) as error:
            out = (type(error).__name__,)
        if i % 4 == 3 and len(out) == 2:
            s.kept.append(out[0].detach())
        found.append([v.numpy(force=True).tobytes() if isinstance(v, mg.Tensor) else v for v in [*out, x, *s.seen()]])
    return found, step


FEW = [pytest.param(range(first, first + 20), id=f"{first}-") for first in (0, 20)]
MANY = [pytest.param(range(first, first + 500), id=f"{first}-", marks=pytest.mark.long) for first in (1000, 1500)]


@pytest.mark.parametrize("seeds", [*FEW, *MANY])
def test_a_random_step_sees_what_it_sees_without(seeds):
    followed = 0
    for seed in seeds:
        expected, _ = run(seed, lambda function: function)
        got, step = run(seed, mg.capture)
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert a == b, (seed, i, [k for k, pair in enumerate(zip(a, b)) if pair[0] != pair[1]])
        followed += step.calls["replayed"]
    assert followed > 3 * len(seeds)
