"""float16 is for storage: a kernel computes in float32, so the only error of its result is the final rounding."""

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.launch import matmul as launching

from .calls import GPU, hosted

HALF = np.dtype(np.float16)


def numbers(*shape, seed=0, size=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * size).astype(HALF)


def double(x):
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == HALF else x


def rounded_once(got, exact):
    """True if each number is the half nearest to the exact result, or to the float32 nearest to that."""
    assert got.dtype == HALF and got.shape == exact.shape
    allowed = np.spacing(np.abs(exact).astype(HALF)).astype(np.float64) / 2 + 1e-5 * np.maximum(np.abs(exact), 0.1)
    worst = (np.abs(got.astype(np.float64) - exact) / allowed).max(initial=0)
    assert worst <= 1, f"{worst:.2f} of what one rounding may do"


ROW, COLUMN = numbers(4, 300), numbers(4, 1, seed=5)
POSITIVE = np.abs(numbers(4, 300, seed=6, size=0.01))
WEIGHT, BIAS = numbers(300, seed=2), numbers(300, seed=3)
PATTERN = reference.softmax(numbers(4, 300, seed=1).astype(np.float32), 1).astype(HALF)
TARGET = np.array([0, 299, -100, 7])
MEAN, RSTD = ROW.mean(1, keepdims=True, dtype=np.float64).astype(HALF), np.ones((4, 1), HALF)

CALLS = {
    "softmax": (ROW, 1),
    "softmax_backward": (ROW, PATTERN, 1),
    "log_softmax": (ROW, 1),
    "logsumexp": (ROW, 1),
    "softmax_backward far from 0": ((1000 + 10 * numbers(4, 300, seed=8)).astype(HALF), PATTERN, 1),
    "attention_pattern": (ROW, 0.3, None, True),
    "attention_pattern_backward": (ROW, PATTERN, 0.3),
    "layer_norm": (ROW, WEIGHT, BIAS, 1e-5),
    "layer_norm_backward": (numbers(4, 300, seed=4), ROW, WEIGHT, MEAN, RSTD, (True, True, True)),
    "rms_norm": (ROW, WEIGHT, 1e-5),
    "rms_norm_backward": (numbers(4, 300, seed=4), ROW, WEIGHT, RSTD, (True, True)),
    "cross_entropy": (ROW, TARGET, -100, 0.1),
    "cross_entropy_backward": (COLUMN[:, 0], PATTERN, TARGET, -100, 0.1),
    "sum": (POSITIVE, (1,), False),
    "cumsum": (POSITIVE, 1, False),
    "gelu": (ROW, "tanh"),
    "gelu_backward": (numbers(4, 300, seed=4), ROW, PATTERN, "tanh"),
    "sigmoid": (ROW,),
    "silu": (ROW,),
    "exp": (ROW,),
    "erf": (ROW,),
    "matmul": (ROW, ROW.T),
    "linear": (ROW, numbers(5, 300, seed=2), numbers(5, seed=3)),
    "linear_backward": (numbers(4, 5, seed=7), ROW, numbers(5, 300, seed=2), (True, True, True)),
    "take_add": (3, np.array([0, 2, 0, 0]), ROW),
    "scatter_add": ((4, 3), 1, np.arange(1200).reshape(4, 300) % 3, POSITIVE),
}


@pytest.fixture(params=[GPU])
def on(request):
    return hosted(request.param)


@pytest.mark.parametrize("name", CALLS)
def test_results_are_rounded_once(on, name):
    with np.errstate(all="ignore"):
        got = getattr(on, name.split()[0])(*CALLS[name])
        exact = getattr(reference, name.split()[0])(*map(double, CALLS[name]))
    for mine, right in zip(*(y if isinstance(y, tuple) else (y,) for y in (got, exact)), strict=True):
        rounded_once(mine, np.asarray(right))


@pytest.mark.parametrize("name", ["matmul", "linear", "linear_backward"])
def test_parts_of_a_product_are_added_in_single(on, name, monkeypatch):
    monkeypatch.setattr(launching, "choose_tiles", lambda *args: (64, 3))
    launching.tile_plan.cache_clear()
    test_results_are_rounded_once(on, name)
    launching.tile_plan.cache_clear()


def test_steps_of_optimizers_are_rounded_once(on):
    for step, count, options, numbers_of in (
        ("adam_", 4, (0.9, 0.99, 1e-8, True), (1e-2, 0.1, 3)),
        ("adam_", 4, (0.9, 0.99, 1e-8, False), (1e-2, 0.1, 1)),
        ("sgd_", 3, (0.9, True), (0.1, 0.1)),
        ("sgd_", 3, (0.9, False), (0.1, 0.0)),
    ):
        mine = [np.abs(numbers(300, seed=i)) for i in range(count)]
        right = [double(x) for x in mine]
        for how, arrays in ((on, mine), (reference, right)):
            getattr(how, step)([(*arrays, 0)], [numbers_of].copy, *options)
        for x, y in zip(mine, right, strict=True):
            rounded_once(x, y)
    x = numbers(300)
    exact = double(x) * 0.3
    on.clip_([x], np.array(1 - 1e-6), 0.3)
    rounded_once(x, exact)
