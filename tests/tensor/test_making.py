"""Functions that make tensors: each option, and which generator the random numbers come from."""

import re

import numpy as np
import pytest

import minigrad as mg

A = np.random.default_rng(0).standard_normal((3, 4))
a = mg.tensor(A)
DRAWN = {
    "rand": lambda g: mg.rand(9, generator=g), "randn": lambda g: mg.randn(9, generator=g),
    "randn_like": lambda g: mg.randn_like(a, generator=g),
    "randint": lambda g: mg.randint(99, (9,), generator=g), "randperm": lambda g: mg.randperm(9, generator=g),
    "multinomial": lambda g: mg.multinomial(mg.ones(99), 9, generator=g),
    "multinomial, replacing": lambda g: mg.multinomial(mg.ones(99), 9, True, generator=g),
    "uniform_": lambda g: mg.zeros(9).uniform_(generator=g), "normal_": lambda g: mg.zeros(9).normal_(generator=g),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_are_those_of_the_generator(name):
    state = mg.default_generator.state
    x, y, z = (DRAWN[name](mg.Generator(seed)) for seed in (1, 1, 2))
    assert mg.equal(x, y) and not mg.equal(x, z) and mg.default_generator.state == state


def test_random_tensors_have_the_stated_distribution():
    u = mg.zeros(4000).uniform_()
    assert u.min().item() >= 0 and abs(u.mean().item() - 0.5) < 0.03
    found = mg.multinomial(mg.tensor([[0.0, 10.0] + [1.0] * 10] * 2000), 2)
    assert (found != 0).all() and abs((found[:, 0] == 1).float().mean().item() - 0.5) < 0.05


LOOP: list = [1.0]
LOOP.append(LOOP)
WRONG = {
    "zeros: sizes must not be negative, got (2, -1)": lambda: mg.zeros(2, -1),
    "full: uint8 holds 0 to 255, not 300": lambda: mg.full((1,), 300, dtype=mg.uint8),
    "arange: step must not be 0": lambda: mg.arange(0, 3, 0),
    "arange: int64 holds": lambda: mg.arange(2**63),
    "full: fill_value must be a number, got an array of shape (2,)": lambda: mg.full((2,), [1, 2]),
    "tensor: lists are nested more than 64 deep; does one contain itself?": lambda: mg.tensor(LOOP),
    "generator must be a minigrad.Generator or None, got 3": lambda: mg.rand(2, generator=3),
    "fewer choices have p > 0": lambda: mg.multinomial(mg.tensor([0.0, 1.0, 1.0]), 3),
    "num_samples must not be negative, got -1": lambda: mg.multinomial(mg.ones(3), -1),
    "tensor: None is not a number": lambda: mg.tensor([2, None]),
    "each row of input, shape (2,), must be finite": lambda: mg.multinomial(mg.tensor([-1.0, 2.0]), 1),
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong(words):
    with pytest.raises((ValueError, TypeError, OverflowError, IndexError), match=re.escape(words)):
        WRONG[words]()
