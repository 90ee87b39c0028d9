"""Where terms cancel, vanish or overflow on the way to a result that the dtype can hold; and who owns memory."""

import math

import numpy as np
import pytest

import minigrad as mg

INF, NAN = math.inf, math.nan


def leaf(values, dtype=mg.float32):
    return mg.tensor(values, dtype=dtype, requires_grad=True)


def gradients(y, *xs):
    return [g.tolist() for g in mg.grad(y.sum(), xs)]


COPIES = {
    "flip": lambda x: x.flip(0),
    "flip of no dims": lambda x: x.flip(()),
    "fliplr": mg.fliplr,
    "flipud": mg.flipud,
    "prod of one": lambda x: x.prod(1),
    "prod of one int": lambda x: x.long().prod(1),
    "prod of a number": lambda x: x[0, 0].prod(),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("dtype", [mg.float64, mg.float32, mg.int64], ids=str)
def test_results_that_are_copies(name, dtype):
    x = mg.tensor([[2], [3]], dtype=dtype)
    COPIES[name](x).zero_()
    assert x.tolist() == [[2], [3]]


def test_logaddexp_keeps_the_smaller_term():
    x = mg.tensor([0.0, 1e-3, -800.0, INF, -INF, -INF, INF, NAN, 3.0], dtype=mg.float64)
    y = mg.tensor([-20.0, -30.0, -800.0, INF, -INF, 2.0, -INF, 1.0, 3.0], dtype=mg.float64)
    with np.errstate(invalid="ignore"):
        want = np.logaddexp(x.numpy(), y.numpy())
    np.testing.assert_allclose(mg.logaddexp(x, y).numpy(), want, rtol=1e-15)
    assert mg.logaddexp(mg.tensor(0.0), mg.tensor(-20.0)).item() == pytest.approx(2.06115369e-9)
    assert mg.logaddexp(mg.tensor(0.0), -20).item() == pytest.approx(2.06115369e-9)
    assert mg.logaddexp(mg.tensor([10.0]).half(), mg.tensor([10.0]).half()).dtype == mg.float16
    a, b = leaf([0.0, -INF, -INF, INF, 0.0]), leaf([0.0, 1.0, -INF, INF, -INF])
    assert gradients(mg.logaddexp(a, b), a, b) == [[0.5, 0, 0, 0.5, 1], [0.5, 1, 0, 0.5, 0]]
    with pytest.raises(ValueError, match=r"logaddexp: shapes \(2,\) and \(3,\) do not broadcast"):
        mg.logaddexp(mg.zeros(2), mg.zeros(3))


def test_lerp_reaches_both_ends():
    x, end = leaf([1e8, 1e8]), leaf([1.0, 1.0])
    for weight in (1.0, 1, mg.ones(2)):
        assert mg.lerp(x, end, weight).tolist() == [1, 1]
        assert gradients(mg.lerp(x, end, weight), x, end) == [[0, 0], [1, 1]]
    assert mg.lerp(end, x, mg.tensor([0.0, 1.0])).tolist() == [1, 1e8]
    assert mg.lerp(x, end, 0).tolist() == [1e8, 1e8]


def test_products_whose_parts_overflow():
    x = leaf([0.0] + [2.0] * 300)
    y = x.cumprod(0)
    assert y.tolist() == [0.0] * 301 and y.dtype == mg.float32
    assert gradients(y[:100], x)[0][1:] == [0.0] * 300
    x = leaf([0.0] + [2.0] * 1000)
    assert x.prod().item() == 0 and gradients(x.prod(), x)[0][1:] == [0.0] * 1000
    for zeros, dtype in ((1, mg.float64), (2, mg.float64), (1, mg.float32)):  # also where 0 is behind ∞, as 2^1100 is
        x = leaf([2.0] * 1100 + [0.0] * zeros + [2.0] * 1100, dtype)
        assert x.prod().item() == 0 and x.cumprod(0).tolist()[1100:] == [0.0] * (1100 + zeros)
        (dx,) = mg.grad(x.prod(), x, create_graph=True)
        assert {*dx.tolist()} == ({0.0, math.inf} if zeros == 1 else {0.0})
        (ddx,) = mg.grad(dx[0], x)  # not 0 only by a single 0, once the first factor is taken away
        assert ddx.tolist() == [0.0] * 1100 + [math.inf if zeros == 1 else 0.0] * zeros + [0.0] * 1100
        (dx,) = mg.grad(x.cumprod(0)[1100:].sum(), x, create_graph=True)
        assert dx.tolist()[:1100] == [0.0] * 1100 and not mg.grad(dx[0], x)[0].isnan().any()
    x = leaf([2.0] * 1100 + [0.5] * 1100, mg.float64)
    assert x.prod().item() == x.cumprod(0)[-1].item() == 1 and gradients(x.prod(), x)[0] == [0.5] * 1100 + [2.0] * 1100
    x = leaf([1e-200, 1e-200, 1e-200], mg.float64)
    assert x.prod().item() == 0 and x[:2].prod().item() == 0 and gradients(x[:2].prod(), x)[0] == [1e-200, 1e-200, 0]
    tall = mg.tensor([[0.5] * 200 + [2.0] * 200])
    assert tall.prod(1).tolist() == [1] and tall.cumprod(1)[0, -1].item() == 1
    assert mg.tensor([300.0, 300.0, 1e-4]).half().prod().item() == pytest.approx(9.0, rel=1e-2)
    assert mg.tensor([3, 2]).prod().dtype == mg.int64 and mg.ones(2).half().cumprod(0).dtype == mg.float16


def test_atan2_at_the_origin_and_near_it():
    a, b = leaf([0.0, 0.0, 1e-25, 1e25]), leaf([0.0, 1e-25, 1e-25, 1e25])
    da, db = gradients(mg.atan2(a, b), a, b)
    np.testing.assert_allclose(da, [0, 1e25, 5e24, 5e-26], rtol=1e-6)
    np.testing.assert_allclose(db, [0, 0, -5e24, -5e-26], rtol=1e-6)


def test_equals_share_the_gradient_of_the_median():
    x = leaf([[1.0, 2.0], [2.0, 3.0]])
    assert x.median().item() == 2 and gradients(x.median(), x) == [[[0, 0.5], [0.5, 0]]]
    assert leaf([INF, INF, 1.0]).median().item() == INF and leaf([-INF, 1.0]).median().item() == -INF
    assert math.isnan(leaf([1.0, NAN, 1.0]).median().item()) and mg.tensor([3, 1, 2]).median().item() == 2


def test_logit_at_its_limits_and_beyond():
    x = leaf([0.0, 1.0, 0.5, 2.0, -1.0])
    np.testing.assert_array_equal(x.logit().tolist(), [-INF, INF, 0, NAN, NAN])
    np.testing.assert_array_equal(gradients(x.logit(), x)[0], [INF, INF, 4, NAN, NAN])
    assert gradients(x.logit(eps=0.25), x)[0] == [0, 0, 4, 0, 0]
    assert x.half().logit().dtype == mg.float16


def test_chunks_of_nothing():
    assert [y.shape for y in mg.zeros(0, 3).chunk(2)] == [(0, 3)] * 2 and len(mg.ones(5).chunk(3)) == 3
    assert mg.zeros(2, 0).chunk(3, dim=1)[2].shape == (2, 0)
