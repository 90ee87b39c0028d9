"""Kernels that work on rows, and the optimizers, against NumPy in float64: natively and on a GPU."""

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.launch import softmax

from .calls import GPU, hosted

pytestmark = pytest.mark.needs("g++")
INF, NAN = float("inf"), float("nan")
SHAPES = [
    *((3, 1), (5, 2), (6, 31), (9, 32), (2, 3, 33), (7, 64), (3, 257), (2, 1000), (5, 1024), (3, 1025), (2, 2052)),
    *((1, 4099), (1, 16384), (1, 16388), (40, 5), (0, 5), (3, 0)),
]
TOLERANCE = {np.float64: 1e-12, np.float32: 4e-6, np.float16: 3e-3}


@pytest.fixture(scope="module", params=["native", GPU])
def on(request):
    return hosted(request.param)


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def check(on, name, *args, dtype):
    """Check the kernel's result in its dtype against the reference's in float64, and return it."""

    def double(x):
        return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x

    with np.errstate(all="ignore"):
        want = getattr(reference, name)(*map(double, args))
    got = getattr(on, name)(*args)
    for mine, right in zip(
        got if type(got) is tuple else (got,), want if type(want) is tuple else (want,), strict=True
    ):
        if right is None:
            assert mine is None
            continue
        assert mine.dtype == dtype and mine.shape == right.shape
        tolerance = TOLERANCE[dtype] * max(1, np.abs(right[np.isfinite(right)]).max(initial=0))
        np.testing.assert_allclose(mine, right, TOLERANCE[dtype], tolerance)
    return got


# ------------------------------------------------------------------------------------------------- softmax


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_and_its_kin(on, dtype, name):
    for shape in SHAPES:
        x = 5 * numbers(shape, dtype)
        check(on, name, x, len(shape) - 1, dtype=dtype)
        if 0 not in shape:
            check(on, name, x, 0, dtype=dtype)
            check(on, name, x[::-1].T, 0, dtype=dtype)


@pytest.mark.parametrize("n", [70, 72, 1028, 2501])  # of a warp and of a block, with and without loads of four
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_rows_that_are_not_finite(on, dtype, name, n, monkeypatch):
    x = numbers((6, n), dtype)
    x[0] = -INF
    x[1, 3], x[2, 69], x[3, :40] = NAN, INF, -INF
    x[4] = -INF
    x[4, 50] = NAN
    check(on, name, x, 1, dtype=dtype)
    check(on, name, np.repeat(x.T, 3, 1), 0, dtype=dtype)  # natively by columns
    monkeypatch.setattr(softmax, "LONG", 64)  # on a GPU by several blocks
    check(on, name, x, 1, dtype=dtype)
    check(on, name, x[:1].T.copy(), 0, dtype=dtype)


def test_rows_of_float16(on):
    x = numbers((3, 130), np.float16)
    y = check(on, "softmax", x, 1, dtype=np.float16)
    check(on, "softmax_backward", x, y, 1, dtype=np.float16)
    check(on, "layer_norm", x, x[0], x[1], 1e-5, dtype=np.float16)


def test_rows_of_a_vocabulary(on):
    x, dy = 3 * numbers((2, 50257), np.float32), numbers((2, 50257), np.float32, 1)
    for dim in 0, 1:
        y = check(on, "softmax", x, dim, dtype=np.float32)
        check(on, "softmax_backward", dy, y, dim, dtype=np.float32)
    check(on, "log_softmax", x, 1, dtype=np.float32)
    _, p = check(on, "cross_entropy", x, np.array([50256, 3]), -100, 0.1, dtype=np.float32)
    check(on, "cross_entropy_backward", dy[0, :2], p, np.array([50256, 3]), -100, 0.1, dtype=np.float32)


def test_long_rows_lose_no_digits(on):
    x = np.random.default_rng(0).random((1, 100_003)).astype(np.float32)
    y = on.softmax(x, 1)
    np.testing.assert_allclose(y, reference.softmax(x.astype(np.float64), 1), 2e-6)
    np.testing.assert_allclose(on.layer_norm(x, None, None, 0.0)[1], x.mean(dtype=np.float64), 2e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_backward(on, dtype, shape):
    dy, y = numbers(shape, dtype, 1), reference.softmax(numbers(shape, dtype), -1)
    check(on, "softmax_backward", dy, y, len(shape) - 1, dtype=dtype)
    check(on, "softmax_backward", dy, y, 0, dtype=dtype)
    check(on, "attention_pattern_backward", dy, y, 0.3, dtype=dtype)


# ------------------------------------------------------------------------------------------------- attention


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 5, 7), (2, 2, 33, 33), (9, 4), (3, 129), (2, 0, 4), (2, 4, 0)])
def test_attention_pattern(on, dtype, shape, is_causal):
    x = numbers(shape, dtype)
    check(on, "attention_pattern", x, 0.3, None, is_causal, dtype=dtype)
    seen = np.random.default_rng(1).random(shape) < 0.6
    seen[..., : shape[-2] // 2, :1] = False  # with causality a first row that sees nothing
    for mask in (seen, seen[..., :1], seen[..., :1, :], np.swapaxes(np.swapaxes(seen, -1, -2).copy(), -1, -2)):
        check(on, "attention_pattern", x, 0.3, mask, is_causal, dtype=dtype)
    if len(shape) > 2:
        check(on, "attention_pattern", x, 0.3, seen[0], is_causal, dtype=dtype)


def test_masked_elements_do_not_count_even_if_nan(on, dtype):
    x = numbers((5, 5), dtype)
    x[0, 4], x[3, 0], x[2, 1] = NAN, INF, NAN
    mask = np.ones((5, 5), bool)
    mask[3, 0] = mask[4] = False
    y = check(on, "attention_pattern", x, 1.0, mask, True, dtype=dtype)
    assert not y[4].any() and np.isnan(y[2]).all()


# ------------------------------------------------------------------------------------------------- norms


@pytest.mark.parametrize("shape", [*SHAPES[:-1], (300, 40), (5,)])
def test_norms(on, dtype, shape):
    x, dy = 3 * numbers(shape, dtype) + 2, numbers(shape, dtype, 1)
    w, b = numbers(shape[-1:], dtype, 2), numbers(shape[-1:], dtype, 3)
    for weight, bias in ((w, b), (w, None), (None, b), (None, None)):
        check(on, "layer_norm", x, weight, bias, 1e-5, dtype=dtype)
    check(on, "rms_norm", x, w, 1e-5, dtype=dtype)
    _, mean, rstd = reference.layer_norm(x, w, b, 1e-2)
    _, root = reference.rms_norm(x, w, 1e-2)
    for weight in (w, None):
        for wanted in ((True, True, True), (True, False, False), (False, True, False), (False, False, True)):
            check(on, "layer_norm_backward", dy, x, weight, mean, rstd, wanted, dtype=dtype)
            check(on, "rms_norm_backward", dy, x, weight, root, wanted[:2], dtype=dtype)


def test_norms_of_views(on, dtype):
    x, dy = numbers((6, 40), dtype).T, np.broadcast_to(numbers(6, dtype, 1), (40, 6))
    _, mean, rstd = check(on, "layer_norm", x, x[0], None, 1e-5, dtype=dtype)
    check(on, "layer_norm_backward", dy, x, x[0], mean, rstd, (True, True, True), dtype=dtype)


def test_wide_rows_need_no_shared_memory(on):
    x = numbers((3, 8000), np.float32)
    args = x, x, x[0], x.mean(-1, keepdims=True), 1 + x[:, :1] ** 2, (True, True, True)
    check(on, "layer_norm_backward", *args, dtype=np.float32)


# ------------------------------------------------------------------------------------------------- cross-entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("shape", [(5, 1), (7, 65), (3, 257), (2, 4099), (0, 5)])
def test_cross_entropy(on, dtype, shape, smoothing):
    x, dloss = 4 * numbers(shape, dtype), numbers(shape[:1], dtype, 1)
    target = np.random.default_rng(2).integers(0, shape[1], shape[0])
    target[1::3] = -100
    for t, ignored in ((target, -100), (target.astype(np.int32), -100), (abs(target) % shape[1], 0)):
        _, p = check(on, "cross_entropy", x, t, ignored, smoothing, dtype=dtype)
        check(on, "cross_entropy_backward", dloss, p, t, ignored, smoothing, dtype=dtype)
    same = np.broadcast_to(dtype(0.25), shape[:1])
    check(on, "cross_entropy_backward", same, p, target, -100, smoothing, dtype=dtype)


def test_cross_entropy_of_rows_that_are_not_finite(on, dtype):
    x = numbers((4, 40), dtype)
    x[0], x[1, 3], x[2, 5], x[3, 39] = -INF, -INF, NAN, INF
    check(on, "cross_entropy", x, np.array([1, 3, 0, 2]), -100, 0.0, dtype=dtype)


def test_a_target_that_is_no_class_gives_nan_and_reads_nothing(on):
    x, target = numbers((4, 5), np.float32), np.array([10**12, -7, 5, -1])
    loss, p = on.cross_entropy(x, target, -100, 0.0)
    assert np.isnan(loss).all()
    assert np.isnan(on.cross_entropy_backward(loss, p, target, -100, 0.0)).all()


# ------------------------------------------------------------------------------------------------- updates

SIZES = [(1,), (2, 2), (0,), (), (33, 5), (4096,), (4097,), (3, 4099)]


def sets(dtype, count):
    """Arrays of all SIZES, twice: for the kernels to change, and in float64 for the reference."""
    mine = [[np.asarray(abs(numbers(size, dtype, 9 * k + i))) for i, size in enumerate(SIZES)] for k in range(count)]
    return mine, [[x.astype(np.float64) for x in column] for column in mine]


def all_close(mine, right, dtype):
    for x, y in zip((x for column in mine for x in column), (y for column in right for y in column), strict=True):
        np.testing.assert_allclose(x, y, 10 * TOLERANCE[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(on, dtype, decoupled):
    mine, right = sets(dtype, 4)
    for step in (1, 2, 7):
        for how, columns in ((on, mine), (reference, right)):
            options = [(1e-2 / (i + 1), 0.1 * (i % 3), step + i) for i in range(len(SIZES))]
            slots = [(*arrays, i) for i, arrays in enumerate(zip(*columns))]
            how.adam_(slots, options.copy, 0.9, 0.99, 1e-8, decoupled)
    all_close(mine, right, dtype)


def test_adam_corrects_the_bias_of_each_parameter_by_its_own_step(on, dtype):
    """Neighbours in the table that have some of (lr, weight_decay, step) in common."""
    options = [(1e-2, 0.0, 1), (1e-2, 0.0, 5), (1e-2, 0.0, 5), (2e-2, 0.0, 5), (2e-2, 0.3, 5), (2e-2, 0.3, 6)]
    mine = [[abs(numbers((5,), dtype, 10 * k + i)) for k in range(4)] for i in range(len(options))]
    right = [[x.astype(np.float64) for x in arrays] for arrays in mine]
    for decoupled in (False, True):
        for how, each in ((on, mine), (reference, right)):
            how.adam_([(*x, i) for i, x in enumerate(each)], options.copy, 0.9, 0.99, 1e-8, decoupled)
        all_close(mine, right, dtype)


def test_norms_of_huge_and_tiny_numbers_do_not_leave_the_range(on):
    for size in (1e20, 1e-25):  # whose squares float32 does not hold
        x = np.full(5000, size, np.float32)
        assert on.global_norm([x, x]) == pytest.approx(float(x[0]) * 100, rel=1e-6)


@pytest.mark.parametrize("momentum, nesterov", [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd(on, dtype, momentum, nesterov):
    mine, right = sets(dtype, 3)
    for _ in range(3):
        for how, columns in ((on, mine), (reference, right)):
            slots = [(p, g, b if momentum else None, i % 2) for i, (p, g, b) in enumerate(zip(*columns))]
            how.sgd_(slots, lambda: [(0.1, 0.0), (0.1, 0.1)], momentum, nesterov)
    all_close(mine, right, dtype)


@pytest.mark.parametrize("nesterov", [False, True])
def test_muon(on, dtype, nesterov):
    """Matrices that are square, wide, tall, far from square, several in an array, of one number, and none."""
    shapes = [(8, 8, 8), (15, 5, 3), (5, 5, 7), (3, 3, 40), (40, 40, 3), (1, 1, 1), (0, 0, 3), (66, 66, 70), (8, 4, 8)]
    mine = [[numbers((rows, k), dtype, 3 * i + j) for i, (rows, n, k) in enumerate(shapes)] for j in range(3)]
    right = [[x.astype(np.float64) for x in column] for column in mine]
    for _ in range(2):
        for how, columns in ((on, mine), (reference, right)):
            options = [(0.1, 0.0, 0.9), (0.02, 0.1, 0.5)]
            slots = [(*a, i % 2, n, 1.5) for i, (a, (_, n, _)) in enumerate(zip(zip(*columns), shapes))]
            how.muon_(slots, options.copy, nesterov, ((3.4445, -4.775, 2.0315),) * 3, 1e-7)
    for x, y in zip((x for column in mine for x in column), (y for column in right for y in column)):
        np.testing.assert_allclose(x, y, 0, 1e-12 if dtype == np.float64 else 2e-5)


def test_norm_and_clipping(on, dtype):
    (mine,), (right,) = sets(dtype, 1)
    views = numbers((40, 30), dtype), numbers((40, 30), dtype)
    mine += [views[0].T, views[1][::2, ::3]]
    right += [x.astype(np.float64) for x in mine[-2:]]
    rel = 1e-12 if dtype == np.float64 else 1e-6
    assert on.global_norm(mine) == pytest.approx(reference.global_norm(right), rel=rel)
    on.clip_(mine, np.array(5.0), 1.5)
    reference.clip_(right, np.array(5.0), 1.5)
    all_close([mine], [right], dtype)


def test_norm_and_updates_of_two_dtypes_and_of_nothing(on):
    x, y = np.full(5, 3, np.float32), np.full((5, 5), 4, np.float64)
    assert on.global_norm([x, y]) == pytest.approx((9 * 5 + 16 * 25) ** 0.5)
    on.clip_([x, y], np.array(2 - 1e-6), 1.0)
    assert (x == 1.5).all() and (y == 2).all()
    assert on.global_norm([]) == 0 and on.global_norm([np.empty(0, np.float32)]) == 0
    assert np.isnan(on.global_norm([np.array([NAN, 1])])) and on.global_norm([np.array([INF, 1])]) == INF
    on.adam_([], list, 0.9, 0.99, 1e-8, True)


@pytest.mark.parametrize("n", [64, 1024, 1028, 4096])
def test_a_result_does_not_depend_on_where_its_operand_lies(on, dtype, n):
    """Rows that begin at multiples of 16 bytes are moved 16 bytes at a time; others give the same bits."""
    memory = numbers((3 * n + 1,), dtype)
    odd = memory[1:].reshape(3, n)
    target = np.array([0, n - 1, 5])
    one = np.ones(n, dtype)
    calls = {
        "softmax": lambda x: on.softmax(x, 1),
        "softmax_backward": lambda x: on.softmax_backward(x, x, 1),
        "log_softmax": lambda x: on.log_softmax(x, 1),
        "logsumexp": lambda x: on.logsumexp(x, 1),
        "layer_norm": lambda x: on.layer_norm(x, one, one, 1e-5),
        "cross_entropy": lambda x: on.cross_entropy(x, target, -100, 0.1),
    }
    for name, call in calls.items():
        results = [y if type(y) is tuple else (y,) for y in (call(odd), call(odd.copy()))]
        for a, b in zip(*results):
            np.testing.assert_array_equal(a, b, err_msg=name)
