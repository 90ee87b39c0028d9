"""Long sums of float32 and float16 are right to the last digit, in every op that sums.

A float that numbers are added to one by one loses digits as it grows, and at 2^24 stays there when 1 is added (float16:
at 2048). All numbers have one sign here, so that the inputs' rounding does not enlarge the sum's relative error."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import minigrad as mg
from minigrad.backend import reference
from minigrad.backend.runners.native import Native
from minigrad.nn import functional as F

BOUND = 2e-7  # three roundings: numbers to a run, runs to a part, parts to the sum
DEVICES = {"numpy": reference, "native": Native()}


@pytest.fixture(params=DEVICES)
def on(request):
    return DEVICES[request.param]


@pytest.fixture
def length():
    return 1 << 18  # one after the other 1e-5 is lost


def positive(*shape, seed=0):
    """Return random columns, and columns of a constant: every addition of it loses the same digits."""
    x = np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)
    x[..., ::2] = np.float32(1 / 3)
    return x


def assert_exact(y, exact, bound=BOUND):
    assert y.dtype == np.float32
    error = np.abs(y - exact) / np.abs(exact)
    assert error.max() <= bound, error.max()


def wide(x):
    return x.astype(np.float64)


# ---------------------------------------------------------------------------------------------------------- sums

LAYOUTS = {
    "all": lambda n: (positive(n), (0,)),
    "constant": lambda n: (np.full(n, 0.1, np.float32), (0,)),
    "rows": lambda n: (positive(3, n // 3), (1,)),
    "columns": lambda n: (positive(n // 5, 5), (0,)),
    "many columns": lambda n: (positive(n // 70, 70), (0,)),
    "middle": lambda n: (positive(2, n // 6, 3), (1,)),
    "outer and inner": lambda n: (positive(n // 30, 3, 10), (0, 2)),
    "strided": lambda n: (positive(n, 2)[::2, 1], (0,)),
    "transposed": lambda n: (positive(n // 4, 4).T, (1,)),
    "reversed": lambda n: (positive(n // 4, 4)[::-1], (0,)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sum(on, length, layout):
    x, dims = LAYOUTS[layout](length)
    assert_exact(on.sum(x, dims, False), wide(x).sum(dims))
    assert on.sum(x, dims, True).shape == np.sum(x, dims, keepdims=True).shape


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape, dim", [((-1,), 0), ((3, -1), 1), ((-1, 3), 0), ((-1, 64), 0), ((2, -1, 3), 1)])
def test_cumsum(on, length, shape, dim, reverse):
    x = positive(length)[: length // 384 * 384].reshape(shape)
    exact = np.flip(np.cumsum(np.flip(wide(x), dim), dim), dim) if reverse else np.cumsum(wide(x), dim)
    assert_exact(on.cumsum(x, dim, reverse), exact)


@pytest.mark.parametrize("name", ["native", pytest.param("numpy", marks=pytest.mark.slow)])
def test_ones_are_counted_beyond_2_to_the_24(name):
    on, n = DEVICES[name], (1 << 24) + 64
    ones, first = np.ones(n, np.float32), np.zeros(n, np.int64)
    assert on.cumsum(ones, 0, False)[-1] == on.cumsum(ones, 0, True)[0] == n
    assert on.sum(ones, (0,), False) == n
    assert on.take_add(2, first, ones[:, None]).tolist() == [[n], [0]]
    if name == "numpy":  # native's too
        assert on.scatter_add((2,), 0, first, ones).tolist() == [n, 0]
        assert on.getitem_add((2,), (first,), ones).tolist() == [n, 0]


def test_float16_sums_leave_float16_at_the_end_only(on):
    n = 5000  # beyond 2048 ones, one more is lost
    ones, first = np.ones(n, np.float16), np.zeros(n, np.int64)
    assert on.sum(ones, (0,), False) == n
    assert on.take_add(3, first, ones[:, None]).tolist() == [[n], [0], [0]]
    assert on.scatter_add((2,), 0, first, ones).tolist() == [n, 0]
    assert on.getitem_add((2,), (first,), ones).tolist() == [n, 0]
    assert on.cumsum(ones, 0, False)[-1] == n and on.dot(ones, ones) == n


def test_infinities_and_nan_stay_what_they_are(on):
    x = positive(1000)
    for value in (np.inf, -np.inf, np.nan):
        x[500] = value
        with np.errstate(invalid="ignore"):
            found = on.sum(x, (0,), False), on.sum(x[:, None].repeat(3, 1), (0,), False)[1]
            found += on.cumsum(x, 0, False)[-1], on.cumsum(x, 0, True)[0]
        np.testing.assert_array_equal(found, [value] * 4)
    big = np.full(64, 1e38, np.float32)
    with np.errstate(over="ignore"):
        assert on.sum(big, (0,), False) == np.inf


# ------------------------------------------------------------------------------------------------- sums by index


@pytest.mark.parametrize("rows", [1, 3, 100_000])
def test_take_add(on, length, rows):
    N, C = length // 4, 3
    dy = positive(N, C)
    index = np.random.default_rng(0).integers(0, min(rows, 3), N) * (rows // 3 or 1)  # few rows, hit often
    exact = np.zeros((rows, C))
    np.add.at(exact, index, wide(dy))
    dx = on.take_add(rows, index, dy)
    assert_exact(dx[exact != 0], exact[exact != 0])
    assert (dx[exact == 0] == 0).all()


def test_scatter_add_and_getitem_add(on, length):
    dy = positive(length // 4, 4)
    index = np.random.default_rng(0).integers(0, 3, dy.shape)
    exact = np.zeros((3, 4))
    np.add.at(exact, (index, np.arange(4)), wide(dy))
    assert_exact(on.scatter_add((3, 4), 0, index, dy), exact)
    assert_exact(on.getitem_add((3, 4), (index, np.arange(4)), dy), exact)


# ----------------------------------------------------------------------------------------------------------- rows


def test_parameters_of_norms(on, length):
    rows, C = length // 6, 6
    x, dy = positive(rows, C, seed=1), positive(rows, C)
    weight = np.ones(C, np.float32)
    _, rstd = on.rms_norm(x, None, 1e-5)
    assert_exact(on.rms_norm_backward(dy, x, weight, rstd, (True, True))[1], (wide(dy) * wide(x) * rstd).sum(0))
    _, mean, rstd = on.layer_norm(x, None, None, 1e-5)
    assert_exact(on.layer_norm_backward(dy, x, weight, mean, rstd, (True, True, True))[2], wide(dy).sum(0))
    assert_exact(on.layer_norm_backward(dy, x, None, mean, rstd, (False, False, True))[2], wide(dy).sum(0))


def test_statistics_of_long_rows(on, length):
    x = positive(2, length)
    _, mean, rstd = on.layer_norm(x, None, None, 0.0)
    assert_exact(mean, wide(x).mean(1, keepdims=True))
    assert_exact(rstd, 1 / wide(x).std(1, keepdims=True), 3e-7)
    assert_exact(on.rms_norm(x, None, 0.0)[1], 1 / np.sqrt((wide(x) ** 2).mean(1, keepdims=True)), 3e-7)


def test_denominators_of_long_rows(on, length):
    x = np.full((2, length), np.log(1 / 3), np.float32)
    x[:, 7] = 0  # its softmax is 1 / the denominator
    exact = 1 / np.exp(wide(x)).sum(1)
    bound = 4e-7  # and the error of e^x, which is always the same here
    assert_exact(on.softmax(x, 1)[:, 7], exact, bound)
    assert_exact(on.cross_entropy(x, np.array([7, 7]), -100, 0.0)[1][:, 7], exact, bound)
    assert_exact(on.attention_pattern(x[None], 1.0, None, False)[0, :, 7], exact, bound)
    for y in (on.logsumexp(x, 1)[:, 0], -on.log_softmax(x, 1)[:, 7]):
        assert np.abs(y + np.log(exact)).max() <= 5e-7 + np.spacing(y[0]) / 2
    y = positive(2, length)
    dy = np.full_like(y, 1 / 3)
    dx = on.softmax_backward(dy, y, 1)  # (dy - Σ dy y) y
    assert_exact(dx, (dy - (wide(dy) * y).sum(1, keepdims=True)) * y, 4e-7)


@pytest.mark.parametrize("name", ["native", "numpy"])
def test_logsumexp_of_attention(name):
    S = 1 << 17
    q, k = np.ones((1, 1, 64, 1), np.float32), np.full((1, 1, S, 1), np.log(1 / 3), np.float32)
    k[..., 7, :] = 0
    _, lse = DEVICES[name].attention(q, k, k, None, None, 1.0, False)
    exact = np.log(np.exp(wide(k)).sum())
    assert np.abs(lse[..., 1] - exact).max() <= 4e-7 + np.spacing(np.float32(exact)) / 2


def test_dot_and_norm(on, length):
    x, y = positive(length), positive(length, seed=1)
    assert on.dot(x, y) == pytest.approx(wide(x) @ wide(y), rel=BOUND)
    assert on.global_norm([x, y]) == pytest.approx(math.sqrt(wide(x) @ wide(x) + wide(y) @ wide(y)), rel=BOUND)


# --------------------------------------------------------------------------------------------------- as users see it


@pytest.mark.parametrize("name", ["native", "numpy"])
def test_gradients_and_means(name, monkeypatch):
    monkeypatch.setattr("minigrad.backend.cpu", lambda: DEVICES[name])
    n = 200_000
    values = positive(n, 4)
    x, bias = mg.tensor(values), mg.zeros(4, requires_grad=True)
    F.linear(mg.zeros(n, 2), mg.zeros(4, 2), bias).backward(x)
    assert_exact(bias.grad.numpy(), wide(values).sum(0))
    assert_exact(x.mean(0).numpy(), wide(values).mean(0))
    assert_exact(x.var(0).numpy()[1::2], wide(values).var(0, ddof=1)[1::2], 3e-7)
    table = mg.zeros(2, 4, requires_grad=True)
    F.embedding(mg.tensor(np.zeros(n, np.int64)), table).backward(x)
    assert_exact(table.grad.numpy()[0], wide(values).sum(0))
    loss = F.cross_entropy(x, mg.tensor(np.full(n, 2)), reduction="none")
    mean = F.cross_entropy(x, mg.tensor(np.full(n, 2)))
    assert mean.item() == pytest.approx(wide(loss.numpy()).mean(), rel=BOUND)


THREADS = """
import hashlib, numpy as np
from minigrad.backend.runners.native import Native
on, rng = Native(), np.random.default_rng(0)
x, dy = (rng.standard_normal((5000, 96)).astype(np.float32) for _ in range(2))
index = rng.integers(0, 7, 5000)
_, mean, rstd = on.layer_norm(x, None, None, 1e-5)
results = [on.sum(x, (0,), False), on.sum(x, (1,), False), on.sum(x, (0, 1), False), on.cumsum(x, 0, False)]
results += [*on.layer_norm_backward(dy, x, x[0], mean, rstd, (True, True, True)), on.take_add(7, index, dy)]
print(hashlib.sha256(b"".join(np.ascontiguousarray(y).tobytes() for y in results)).hexdigest())
"""


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit():
    def run(threads):
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        return subprocess.check_output([sys.executable, "-c", THREADS], env=environment)

    assert len({run(threads) for threads in (1, 2, 5)}) == 1


def test_columns_of_float16_do_not_overflow_on_the_way(on):
    x = np.concatenate([np.full((8, 3), 60_000, np.float16), np.full((8, 3), -60_000, np.float16)])
    with np.errstate(all="raise"):
        assert on.sum(x, (0,), False).tolist() == [0, 0, 0]
        rows = np.random.default_rng(0).standard_normal((4096, 3)).astype(np.float16)
        exact = rows.astype(np.float64).sum(0)
        np.testing.assert_allclose(on.sum(rows, (0,), False), exact, rtol=2.0**-11)
