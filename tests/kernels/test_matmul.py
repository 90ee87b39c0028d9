"""Matrix products on a GPU, against float64: shapes, strides, batches, parts of k. (Those of a CPU: ../backend.)"""

import struct

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.launch import launcher
from minigrad.backend.launch import matmul as launching

from .calls import GPU, hosted

pytestmark = pytest.mark.needs("g++")
EPS = {"float32": 3e-7, "float64": 4e-16, "float16": 1e-3, "int64": 0, "uint8": 0}
SHAPES = (1, 1, 1), (33, 17, 65), (129, 127, 9), (130, 40, 132), (5, 0, 3), (0, 4, 3), (3, 4, 0), (1, 300, 2)


@pytest.fixture(params=[GPU])
def on(request):
    return hosted(request.param)


@pytest.fixture
def tiled(monkeypatch):
    """tiled(side, parts): later products use tiles of this side and this number of parts, as far as the kernel can."""

    def use(side, parts=1):
        monkeypatch.setattr(
            launching, "choose_tiles", lambda n, m, k, batches, large, *rest: (side if large else 64, parts)
        )
        launching.tile_plan.cache_clear()

    yield use
    launching.tile_plan.cache_clear()


def numbers(shape, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) if np.dtype(dtype).kind == "f" else rng.integers(0, 9, shape)
    return x.astype(dtype)


def same(got, want, dtype, terms):
    assert got.shape == want.shape and got.dtype == np.dtype(dtype)
    np.testing.assert_allclose(got, want, 0, EPS[dtype] * (np.sqrt(terms) + 1) * max(1, np.abs(want).max(initial=0)))


def check(backend, a, b):
    wide = np.float64 if a.dtype.kind == "f" else np.int64
    want = a.astype(wide) @ b.astype(wide)
    same(backend.matmul(a, b), want if wide == np.float64 else want.astype(a.dtype), a.dtype.name, a.shape[-1])


@pytest.mark.parametrize("side", [128, 64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(on, tiled, side, shape):
    tiled(side)
    n, k, m = shape
    check(on, numbers((n, k)), numbers((k, m), seed=1))


@pytest.mark.parametrize("dtype", EPS)
def test_dtypes(on, tiled, dtype):
    tiled(128)
    check(on, numbers((130, 20), dtype), numbers((20, 72), dtype, seed=1))


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_transposed(on, tiled, transposed):
    tiled(128)
    a, b = numbers((132, 36)), numbers((36, 68), seed=1)
    a, b = (x.T.copy().T if t else x for x, t in zip((a, b), transposed))
    check(on, a, b)


DROPPED = {"high": 13, "medium": 16}  # bits of a factor in TF32 and in bfloat16


def factor(x):
    """x as tensor cores multiply it: rounded to fewer bits, to the nearest, and to even if two are as near."""
    x = np.ascontiguousarray(x)
    if x.dtype == np.float32:
        bits, n = x.view(np.uint32), DROPPED[launcher.Launcher.precision]
        x = ((bits + (2 ** (n - 1) - 1) + (bits >> n & 1)) >> n << n).view(np.float32)
    return x.astype(np.float64)


MULTIPLIED = ("float16", "high"), ("float32", "high"), ("float32", "medium")


@pytest.fixture(params=MULTIPLIED, ids="-".join)
def tensor(request, on, monkeypatch):
    """A dtype that tensor cores multiply."""
    if not on.tensor_cores:
        pytest.skip("no GPU with tensor cores")
    dtype, precision = request.param
    monkeypatch.setattr(launcher.Launcher, "precision", precision)
    return dtype


def check_tensor(on, a, b):
    """Products are exact, and sums are as exact as in float32, except for rounding the result to float16."""
    want = factor(a) @ factor(b)
    got, terms = on.matmul(a, b), a.shape[-1]
    assert got.shape == want.shape and got.dtype == a.dtype
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    eps = 2.0**-11 if a.dtype == np.float16 else 0
    assert (np.abs(got - want) <= eps * np.abs(want) + 2.0**-23 * np.sqrt(terms + 1) * size).all()


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("side", [128, 64])
def test_tensor_cores(on, tiled, tensor, side, transposed):
    tiled(side)
    a, b = numbers((136, 72), tensor), numbers((72, 88), tensor, seed=1)
    a, b = (x.T.copy().T if t else x for x, t in zip((a, b), transposed))
    check_tensor(on, a, b)
    check_tensor(on, a[:, 1:], b[1:])  # not aligned
    check_tensor(on, a[:131, :67], b[:67, :81])
    check_tensor(on, a[::-1, 3::-1], b[3::-1, ::3])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_of_tensor_cores(on, tiled, tensor, shape, monkeypatch):
    """As on a GPU without the shared memory for long lines."""
    monkeypatch.setattr(launching, "RESERVED", 1 << 20)
    tiled(64, 2)
    n, k, m = shape
    check_tensor(on, numbers((2, n, k), tensor), numbers((k, m), tensor, seed=1))


def test_strides(on, tiled):
    """Views that are not aligned, skip elements, run backwards, or have a stride of 0."""
    tiled(128)
    a, b = numbers((70, 80)), numbers((80, 70), seed=1)
    check(on, a[:, 1:33], b[1:33])
    check(on, a[3:, 4:36], b[4:36, 2:66])
    check(on, a[:, ::2], b[::2, ::3])
    check(on, a[::-1, 3::-1], b[3::-1, ::-1])
    check(on, np.broadcast_to(a[:, :1], (70, 20)), np.broadcast_to(b[:20, :1], (20, 8)))
    check(on, np.broadcast_to(a[0, 0], (4, 5)), np.broadcast_to(b[0, :8], (5, 8)))


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 5, 4), (4, 6)),
        ((2, 1, 5, 4), (3, 4, 6)),
        ((2, 3, 1, 4), (2, 3, 4, 5)),
        ((5, 4), (2, 3, 4, 6)),
        ((2, 1, 3, 1, 2, 3), (1, 2, 1, 3, 3, 2)),
        ((0, 5, 4), (4, 6)),
        ((3, 1, 4), (4, 6)),
    ],
    ids=str,
)
def test_batches(on, shapes):
    a, b = (numbers(shape, seed=i) for i, shape in enumerate(shapes))
    check(on, a, b)


def test_batches_in_any_order(on):
    """Heads of attention: (B, T, nh, hs) seen as (B, nh, T, hs)."""
    q, k = (numbers((2, 5, 3, 8), seed=i).transpose(0, 2, 1, 3) for i in range(2))
    check(on, q, k.transpose(0, 1, 3, 2))
    check(on, q.transpose(2, 0, 1, 3), k.transpose(2, 0, 3, 1))


def test_one_matrix_of_all_rows():
    """Batches of a that lie one after the other and share b are rows of one product, not many small ones."""
    x, weight = numbers((4, 16, 8)), numbers((8, 8))
    todo = launching.tile_plan(x.shape, x.strides, weight.shape, weight.strides, (True, True), x.dtype, 132)
    assert todo.blocks == 1 and todo.shape == (4, 16, 8)


def how_read(a, b, aligned=(True, True)):
    """READ_A and READ_B of matmul.cu for a @ b."""
    file = launching.tile_plan(a.shape, a.strides, b.shape, b.strides, aligned, a.dtype, 132).file
    return tuple(int(constant[-1]) for constant in file.split()[2:])


def test_sixteen_bytes_are_read_at_once_only_where_all_of_them_are_aligned():
    a, b = numbers((8, 16)), numbers((16, 12))
    assert how_read(a, b) == (1, 0) and how_read(a.T.copy().T, b.T.copy().T) == (0, 1)
    assert how_read(a, b, (False, True)) == (3, 0) and how_read(a, b, (True, False)) == (1, 2)
    assert how_read(a.T.copy().T, b, (False, True)) == (2, 0)
    assert how_read(a[::2, ::2], b[::2, ::2]) == (3, 3)  # neither stride is 1
    for dtype, count in (("float64", 2), ("float32", 4), ("float16", 4)):
        wide = numbers((40, 40), dtype)
        for n in range(count, 2 * count + 1):
            whole = n % count == 0
            # along k of a: k elements in rows that are 40 apart; across k of b: columns
            assert how_read(wide[:8, :n], wide[:n, :8]) == (1 if whole else 3, 0)
            assert how_read(wide[:8, :8], wide[:8, :n]) == (1, 0 if whole else 2)
            steps = numbers((40, 32 + n), dtype)[:8, :8]  # the distance of rows
            assert how_read(steps, steps) == ((1, 0) if whole else (3, 2))
            batches = numbers((3, 8 * 8 + n), dtype)[:, :64].reshape(3, 8, 8)  # and of batches
            assert batches.strides[0] == (64 + n) * batches.itemsize
            assert how_read(batches, wide[:8, :8])[0] == (1 if whole else 3)
            assert how_read(wide[:8, :8], batches) == (1, 0 if whole else 2)
    assert launching.elements_at_once(np.dtype("int64")) == 2 and launching.elements_at_once(np.dtype("int8")) == 4


def test_misaligned_batches_are_right(on):
    backing = numbers((3, 65))
    x = backing[:, :64].reshape(3, 8, 8)
    check(on, x, x)
    check(on, numbers((8, 8), seed=2), x)


def test_batch_dims_are_one_where_both_operands_allow_it():
    def dims(a, b):
        plan = launching.tile_plan(a.shape, a.strides, b.shape, b.strides, (True, True), a.dtype, 132)
        numbers = struct.unpack(f"{len(plan.numbers) // 8}q", plan.numbers)
        count = numbers[8]
        return [tuple(numbers[9 + 14 * column + i] for column in range(3)) for i in range(count)]

    x = numbers((2, 3, 4, 4))
    assert dims(x, x) == [(6, 16, 16)]
    assert dims(x, x[:1]) == [(2, 48, 0), (3, 16, 16)] and dims(x[:, :1], x) == [(2, 48, 48), (3, 0, 16)]
    assert dims(x, x[0, 0]) == []  # rows of one product
    assert dims(x[0, 0], x) == [(6, 0, 16)]
    assert dims(x[:, ::2], x[:, ::2]) == [(2, 48, 48), (2, 32, 32)]
    apart = [4 * (3 * i + 1) for i in range(15)]  # no two of these dims can be one
    narrow = np.lib.stride_tricks.as_strided(numbers(800), [2] * 15 + [1, 1], [*apart, 4, 4])
    with pytest.raises(ValueError, match="more than 14 batch dims"):
        dims(narrow, narrow)
    assert len(dims(narrow[0], narrow[0])) == 14


@pytest.mark.parametrize("parts", [2, 3, 50])
def test_parts_of_k(on, tiled, parts):
    tiled(64, parts)
    for k in (1, 16, 17, 100):
        check(on, numbers((2, 3, k)), numbers((2, k, 5), seed=1))
    check(on, numbers((3, 100), "float16"), numbers((100, 5), "float16", seed=1))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,)], ids=str)
def test_linear(on, tiled, lead, parts):
    tiled(64, parts)
    x, weight, bias, dy = (numbers(s) for s in (lead + (40,), (7, 40), (7,), lead + (7,)))
    wide = [v.astype(np.float64) for v in (x, weight, bias, dy)]
    same(on.linear(x, weight, bias), reference.linear(*wide[:3]), "float32", 40)
    same(on.linear(x, weight, None), reference.linear(*wide[:2], None), "float32", 40)
    got = on.linear_backward(dy, x, weight, (True, True, True))
    for y, want in zip(got, reference.linear_backward(wide[3], wide[0], wide[1], (True, True, True)), strict=True):
        same(y, want, "float32", 7)
    assert on.linear_backward(dy, x, weight, (False, False, False)) == (None, None, None)


def test_special_numbers_stay_in_their_rows_and_columns(on):
    a, b = numbers((66, 20)), numbers((20, 66), seed=1)
    a[3, 5], a[65, 0], b[19, 65] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b
    np.testing.assert_allclose(on.matmul(a, b), want, 1e-4, 1e-4)


@pytest.mark.parametrize("shapes", [((2, 3), (4, 5)), ((2, 3, 4), (3, 4, 5))], ids=str)
def test_shapes_that_do_not_fit(on, shapes):
    with pytest.raises(ValueError):
        on.matmul(*map(numbers, shapes))


def test_large_products_fill_the_gpu():
    assert launching.choose_tiles(4096, 4096, 4096, 1, True, 132) == (128, 1)
    assert launching.choose_tiles(16384, 384, 384, 1, True, 132) == (128, 1)
    side, parts = launching.choose_tiles(384, 384, 16384, 1, True, 132)  # a weight gradient
    assert side == 128 and 20 < parts < 30
    assert launching.choose_tiles(64, 64, 64, 1, True, 132) == (64, 1)


@pytest.mark.parametrize(
    "a, b",
    [
        (numbers((3, 8, 8))[:, :5], numbers((8, 6))),  # batches that are not rows of one matrix
        (numbers((5, 3, 8)).transpose(1, 0, 2), numbers((8, 6))),
    ],
)
def test_batches_with_gaps_between_them(on, a, b):
    same(on.matmul(a, b), a.astype(np.float64) @ b, "float32", 8)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_bias_that_is_not_compact(on, tiled, parts):
    tiled(64, parts)
    x, weight, bias = numbers((5, 60)), numbers((7, 60)), numbers((14,))[::2]
    same(on.linear(x, weight, bias), x.astype(np.float64) @ weight.T + bias, "float32", 60)
