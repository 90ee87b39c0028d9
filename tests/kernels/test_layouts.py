"""Elementwise kernels, casts and copies wherever operands lie: any offset, size and strides, in place, in 64 bits."""

import contextlib

import numpy as np
import pytest

from minigrad.backend.launch import elementwise, launcher, movement
from minigrad.backend.launch.launcher import MAX_DIMS

from .calls import GPU, hosted

pytestmark = pytest.mark.needs("g++")
SIZES = 0, 1, 3, 5, 255, 256, 257, 1023, 1024, 1025, 4099
OFFSETS = 0, 1, 2, 3, 4, 5, 8
NATIVE = "float32", "float64"
DTYPES = *NATIVE, "float16", "int64", "bool"


@pytest.fixture(scope="module", params=["native", GPU])
def on(request):
    return hosted(request.param)


def dtypes(on):
    return NATIVE if on.device == "cpu" else DTYPES


@contextlib.contextmanager
def limit(monkeypatch, elements):
    """While this is active, layouts are narrow only if they have fewer elements than this."""
    caches = launcher.layout, elementwise.plan_for, elementwise.cast_output, movement._move_plan
    with monkeypatch.context() as patch:
        patch.setattr(launcher, "MAX_INT31", elements)
        for cache in caches:
            cache.cache_clear()
        yield
    for cache in caches:
        cache.cache_clear()


def numbers(rng, shape, dtype):
    values = rng.integers(-40, 40, shape)
    return np.asarray(values > 0 if dtype == "bool" else values).astype(dtype)


def at(offset, x):
    """A compact copy of x that begins `offset` elements after a multiple of 64 bytes."""
    memory = np.zeros(x.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset * x.itemsize
    y = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


def same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got, want)


# -------------------------------------------------------------------------------------------------- sizes and offsets


@pytest.mark.parametrize("n", SIZES)
def test_sizes_and_offsets(on, n):
    rng = np.random.default_rng(n)
    for dtype in dtypes(on):
        a, b = numbers(rng, n, dtype), numbers(rng, n, dtype)
        mask = a < b
        for i, j in [(0, 0), *((i, OFFSETS[-k]) for k, i in enumerate(OFFSETS))]:
            x, y = at(i, a), at(j, b)
            same(on.add(x, y), a + b)
            same(on.maximum(x, True), np.maximum(a, True))
            same(on.lt(x, y), mask)
            same(on.where(at(j, mask), x, y), np.where(mask, a, b))
            same(on.copy(x), a)
            same(on.cast(x, np.dtype("float32")), a.astype("float32"))
            same(on.cast(at(j, mask), np.dtype(dtype)), mask.astype(dtype))


def test_a_million_and_one(on):
    rng = np.random.default_rng(0)
    n = (1 << 20) + 1 if on.device == "cpu" else (1 << 17) + 1
    a, b = (at(i, rng.standard_normal(n, "float32")) for i in (0, 1))
    same(on.add(a, a), a + a)
    same(on.add(a, b), a + b)
    same(on.mul(a[::-1], b), a[::-1] * b)
    same(on.full((n,), 7, "float32"), np.full(n, 7, "float32"))


def test_broadcast_rows_columns_and_scalars(on):
    rng = np.random.default_rng(1)
    for dtype in dtypes(on):
        for rows, n in (5, 64), (64, 8), (7, 12), (3, 4), (9, 33), (130, 2), (40, 1):
            a = numbers(rng, (rows, n), dtype)
            row, column, one = numbers(rng, n, dtype), numbers(rng, (rows, 1), dtype), numbers(rng, (), dtype)
            for i in 0, 1, 4:
                for b in row, column, one, row[None]:
                    same(on.add(at(i, a), at(i, b)), a + b)
                    same(on.add(at(i, b), at(0, a)), b + a)
            same(on.where(a > row, column, one), np.where(a > row, column, one))
            for view in np.broadcast_to(row, a.shape), np.broadcast_to(column, a.shape), np.broadcast_to(one, a.shape):
                same(on.copy(view), view.copy())


def test_parts_of_rows(on):
    """Rows that begin at multiples of 16 bytes, and rows that do not."""
    rng = np.random.default_rng(2)
    for dtype in dtypes(on):
        base = at(0, numbers(rng, (6, 11, 48), dtype))
        views = (
            base[:, :, :32],
            base[:, :, 16:],
            base[:, 2:9, 1:17],
            base[:, ::2, :40],
            base[::-1, :, :8],
            base[..., 5:],
        )
        for x in views:
            same(on.add(x, x), x + x)
            same(on.copy(x), x.copy())
            y = np.zeros((6, 11, 64), dtype)[:, : x.shape[1], 16 : 16 + x.shape[2]][: x.shape[0]]
            on.add(x, x, out=y)
            same(y, x + x)
            assert y.base.astype(bool).sum() == y.astype(bool).sum()  # nothing beside it


@pytest.mark.parametrize("offset", OFFSETS[:4])
def test_in_place(on, offset):
    rng = np.random.default_rng(3)
    for dtype in dtypes(on):
        a, b = numbers(rng, 1025, dtype), numbers(rng, 1025, dtype)
        x = at(offset, a)
        on.add(x, at(1, b), out=x)
        same(x, a + b)
        for view in (lambda x: x[::-1]), (lambda x: x[1::3]), (lambda x: x[5:1021].reshape(8, 127).T):
            x, want = at(offset, a), a.copy()
            on.add(view(x), at(0, view(b).copy()), out=view(x))
            view(want)[...] += view(b)
            same(x, want)
        x = at(offset, a)
        on.add(x[1:], x[:-1], out=x[1:])  # they overlap: as if all were read first
        same(x[1:], a[1:] + a[:-1])


def test_as_many_dims_as_there_may_be(on):
    for dtype in dtypes(on):
        x = (np.arange(1 << MAX_DIMS) % 2039).astype(dtype).reshape((2,) * MAX_DIMS)
        every = x[tuple(slice(None, None, (-1) ** d) for d in range(MAX_DIMS))]
        same(on.add(every, x), every + x)
        same(on.copy(every), every.copy())
        same(on.copy(x.T), x.T.copy())


# ------------------------------------------------------------------------------------------------------ random calls


def operand(rng, shape, dtype):
    """An array that broadcasts to `shape`: permuted, sliced, reversed or broadcast, beginning anywhere."""
    shape = shape[rng.integers(0, len(shape) + 1) if rng.random() < 0.2 else 0 :]
    shape = [n if rng.random() < 0.85 else 1 for n in shape]
    order = rng.permutation(len(shape))
    steps = [int(rng.choice([1, 1, 1, 2, -1, -3])) for _ in shape]
    extra = [int(rng.choice([0, 0, 0, 1, 3, 4])) for _ in shape]
    sizes = [abs(s) * n + e for n, s, e in zip(shape, steps, extra)]
    base = at(int(rng.choice([0, 0, 1, 3])), numbers(rng, [sizes[d] for d in order], dtype))
    x = base.transpose(np.argsort(order))
    x = x[(*(slice(e, e + abs(s) * n, abs(s)) for n, s, e in zip(shape, steps, extra)), ...)]
    return x[(*(slice(None, None, -1 if s < 0 else 1) for s in steps), ...)]


def random_calls(on, seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        shape = [int(rng.choice([1, 2, 3, 4, 5, 8, 16, 17, 32, 64, 70])) for _ in range(rng.integers(0, 5))]
        while np.prod(shape, dtype=int) > 9000:
            shape.pop()
        dtype = str(rng.choice(dtypes(on)))
        a, b = operand(rng, shape, dtype), operand(rng, shape, dtype)
        kind = rng.integers(0, 6)
        if kind == 0:
            same(on.add(a, b), np.add(a, b, dtype=dtype))
        elif kind == 1:
            mask = operand(rng, shape, "bool")
            same(on.where(mask, a, b), np.where(mask, a, b))
        elif kind == 2:
            same(on.ge(a, b), np.asarray(a >= b))
        elif kind == 3:
            to = np.dtype(rng.choice(["float32", "float64", "int64", "float16", "bool", "int8"]))
            same(on.cast(a, to), a.astype(to))
        elif kind == 4:
            x = np.broadcast_to(a, np.broadcast_shapes(a.shape, b.shape))
            same(on.copy(x), np.array(x))
        else:
            whole = operand(rng, shape, dtype)
            out = whole if whole.ndim == len(shape) and whole.shape == tuple(shape) else np.zeros(shape, dtype)
            want = np.add(a, b, dtype=dtype)
            on.add(a, b, out=out)
            same(out, np.broadcast_to(want, out.shape))


@pytest.mark.parametrize("seed", range(4))
def test_random_calls(on, seed):
    random_calls(on, seed, 130)


def test_random_calls_in_64_bits(on, monkeypatch):
    for elements in 1, 100, 2000:
        with limit(monkeypatch, elements):
            random_calls(on, elements, 60)


def test_transpositions_in_64_bits(on, monkeypatch):
    x = np.arange(3 * 40 * 70, dtype="float32").reshape(3, 40, 70)
    with limit(monkeypatch, 1000):
        same(on.copy(x.swapaxes(1, 2)), x.swapaxes(1, 2).copy())
    same(on.copy(x.swapaxes(1, 2)), x.swapaxes(1, 2).copy())
