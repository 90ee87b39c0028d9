"""optim.warmup_cosine and warmup_linear beside formulas."""

import math

import numpy as np
import pytest

from minigrad import optim


def test_warmup_and_cosine():
    def rate(step):
        return optim.warmup_cosine(step, lr=1e-3, min_lr=1e-4, warmup=100, total=2000)

    assert rate(0) == pytest.approx(1e-3 / 101) and rate(49) == pytest.approx(1e-3 * 50 / 101)
    assert rate(99) == pytest.approx(1e-3 * 100 / 101) and rate(100) == pytest.approx(1e-3)
    assert rate(1050) == pytest.approx((1e-3 + 1e-4) / 2)
    assert rate(100 + 475) == pytest.approx(1e-4 + 9e-4 * (1 + math.sqrt(0.5)) / 2)
    assert rate(2000) == rate(10**9) == 1e-4 and rate(1999) > 1e-4
    found = [rate(step) for step in range(2001)]
    assert found[:101] == sorted(found[:101]) and found[100:] == sorted(found[100:], reverse=True)
    assert optim.warmup_cosine(0, lr=1.0, min_lr=0.5, warmup=0, total=10) == 1.0
    assert optim.warmup_cosine(5, lr=1.0, min_lr=0.5, warmup=5, total=5) == 0.5


def test_warmup_linear():
    def found(**more):
        return [optim.warmup_linear(step, lr=1.0, min_lr=0.2, warmup=3, total=10, **more) for step in range(12)]

    begin = [0.25, 0.5, 0.75]
    np.testing.assert_allclose(found(), [*begin, 0.76, 0.68, 0.6, 0.52, 0.44, 0.36, 0.28, 0.2, 0.2])
    np.testing.assert_allclose(found(fall=0.5), [*begin, 1, 1, 1, 0.84, 0.68, 0.52, 0.36, 0.2, 0.2])
    np.testing.assert_allclose(found(fall=0), [*begin, *[1] * 7, 0.2, 0.2])
