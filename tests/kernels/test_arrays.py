"""Kernels that move, index and reduce arrays against NumPy: natively, and on a GPU."""

import numpy as np
import pytest

from minigrad.backend import reference
from minigrad.backend.launch.movement import has_view
from minigrad.backend.launch.reduce import SORTED, SUMMED
from minigrad.backend.runners.native import NativeKernels

from .calls import GPU, hosted

pytestmark = pytest.mark.needs("g++")


@pytest.fixture(scope="module", params=["native", GPU])
def on(request):
    return hosted(request.param)


DTYPES = "float32", "float64", "float16", "int64", "int32", "uint8", "bool"


@pytest.fixture
def here():
    """What gives views of NumPy's arrays."""
    return hosted("native")


def dtypes(on, of=DTYPES):
    """All dtypes natively. Elsewhere, where each costs a compilation, one dtype of each size."""
    few = of if isinstance(on, NativeKernels) else ("float32", "float16", "int64", "bool")
    return [dtype for dtype in of if dtype in few]


SHAPES = [(), (1,), (0,), (3, 0, 2), (7,), (67,), (5, 131), (131, 5), (2, 3, 5), (3, 1, 70, 2), (2, 3, 2, 2, 3, 2)]


def numbers(shape, dtype="float32", seed=0):
    values = np.random.default_rng(seed).standard_normal(shape) * 9
    return np.asarray(values > 0 if dtype == "bool" else abs(values) if dtype == "uint8" else values).astype(dtype)


def layouts(x):
    """x and views of it: transposed, reversed, every second element, broadcast."""
    yield x
    if x.ndim:
        yield x.T
        yield x[::-1]
        yield x[..., ::-2]
        yield np.broadcast_to(x, (2, *x.shape))
        yield np.moveaxis(x, 0, -1)


def same(got, want, rtol=0.0):
    want = np.asarray(want)
    assert isinstance(got, np.ndarray) and got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol, rtol * 9)


def tolerance(dtype):
    return {"float16": 2e-3, "float32": 2e-6, "float64": 1e-14}.get(str(dtype), 0)


# ------------------------------------------------------------------------------------------------- moving


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_copy(on, shape):
    for dtype in dtypes(on):
        for x in layouts(numbers(shape, dtype)):
            y = on.copy(x)
            same(y, x)
            assert y.flags.c_contiguous and not np.may_share_memory(x, y)


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (0, 2, 3, 1), (3, 2, 1, 0), (1, 3, 0, 2), (2, 3, 0, 1)])
def test_copy_of_permuted(on, order):
    for shape in (2, 40, 3, 33), (1, 64, 32, 65), (5, 3, 4, 6):
        x = numbers(shape).transpose(order)
        same(on.copy(x), x)
        y = np.zeros(shape, "float32").transpose(order)
        on.copy_to(y, np.ascontiguousarray(x))
        same(y, x)


def test_copy_to(on):
    arrays = numbers((5,)), numbers((4, 1), "int64"), numbers((1, 1, 5)), numbers((5, 4), "float64").T
    for source in (3, 2.7, True, *arrays):
        for dtype in "float32", "int32":
            got, want = numbers((4, 10), dtype), numbers((4, 10), dtype)
            on.copy_to(got[:, ::-2], source)
            want[:, ::-2] = source
            same(got, want)
    x, want = numbers(9), numbers(9)
    on.copy_to(x[1:], x[:-1])  # what is read is what was there before
    want[1:] = want[:-1].copy()
    same(x, want)
    with pytest.raises(ValueError):
        on.copy_to(x, numbers(4))


def test_making(on):
    for dtype in dtypes(on):
        for shape in SHAPES:
            same(on.zeros(shape, dtype), np.zeros(shape, dtype))
            for value in 1, 2.5, np.float64(7), np.asarray(3):
                same(on.full(shape, value, dtype), np.full(shape, value, dtype))
    same(on.full((3,), -np.inf, "float32"), np.full(3, -np.inf, "float32"))
    same(on.full((3,), np.nan, "float16"), np.full(3, np.nan, "float16"))
    assert on.asarray(np.float32(3)).shape == ()
    assert on.is_compact(numbers((2, 3))) and not on.is_compact(numbers((2, 3)).T)
    assert on.is_writeable(numbers((2, 3)).T) and not on.is_writeable(on.expand(numbers(3), (2, 3)))


@pytest.mark.parametrize("wanted", [(24,), (4, 6), (2, 12), (2, 3, 4), (1, 24, 1), (8, 3), (3, 2, 2, 2), (2, 3, 2, 2)])
def test_reshape_copies_only_where_it_must(here, wanted):
    base = numbers((2, 3, 4))
    twice = numbers((2, 3, 8))
    for x in base, base.transpose(1, 0, 2), base.T, twice[..., ::2], twice[..., :4], base[::-1], base[:, :, None]:
        y = here.reshape(x, wanted)
        same(y, x.reshape(wanted))
        assert np.may_share_memory(y, x) == np.may_share_memory(x.reshape(wanted), x)


def test_has_view_of_nothing_and_one():
    assert has_view((0, 3), (12, 4), (3, 0)) and has_view((), (), (1, 1)) and has_view((1,), (4,), ())


def test_views(here):
    x = numbers((2, 3, 4))
    for y, want in (
        (here.permute(x, (2, 0, 1)), x.transpose(2, 0, 1)),
        (here.expand(x[:, :1], (5, 2, 3, 4)), np.broadcast_to(x[:, :1], (5, 2, 3, 4))),
        (here.getitem(x, (1, 2, 3)), x[1, 2, 3]),
        (here.getitem(x, (..., None, slice(None, None, -2))), x[..., None, ::-2]),
    ):  # fmt: skip
        same(y, want)
        assert here.overlap(x, y)


def test_cat_stack_pad(on):
    for dtype in "float32", "float16", "bool", "int64":
        x, y = numbers((2, 3, 5), dtype), numbers((2, 5, 3), dtype).swapaxes(1, 2)
        for dim in 0, 1, 2, -1:
            same(on.cat([x, y, x[:0] if dim == 0 else x], dim), np.concatenate([x, y, x[:0] if dim == 0 else x], dim))
            same(on.stack([x, y], dim), np.stack([x, y], dim))
        for widths in [((0, 0), (1, 2), (0, 3)), ((2, 0), (0, 0), (0, 0))]:
            same(on.pad(x, widths, 1), np.pad(x, widths, constant_values=1))
    same(on.stack([numbers(()), numbers(())], 0), np.stack([numbers(()), numbers(())]))
    same(on.pad(numbers(()), (), 0), numbers(()))


# ------------------------------------------------------------------------------------------------- by index

A = np.array
INDICES = [  # of a (5, 4, 6)
    (A([2, 0, 2]),),
    (A([[-1, 0], [3, 3]]),),
    (slice(None), A([2, 0, 2])),
    (A([1, 1, 4]), A([0, -1, 0])),
    (A([[1], [2]]), A([[0, 3, 3]])),
    (A([1, 1]), slice(None), A([5, 5])),
    (..., A([2, -6])),
    (None, A([2, 2]), None),
    (A([0, 0]), ...),
    (3, A([0, 0])),
    (slice(None, None, -1), A([1, 1, 1]), slice(1, None, 3)),
    (A([], int),),
    (A([True, False, True, True, False]),),
    (numbers((5, 4), "bool"),),
    (numbers((5, 4, 6), "bool"),),
    (slice(None), A([True, False, False, True]), A([1, 1])),
    (A(2), A([0, 0, 1])),
    (A([1, 4], "uint8"), slice(2)),
    (True, A([3, 3])),
]


@pytest.mark.parametrize("index", INDICES, ids=range(len(INDICES)))
def test_index(on, index):
    for dtype in "float32", "float16", "bool", "int64":
        x = numbers((5, 4, 6), dtype)
        for view in x, numbers((6, 4, 5), dtype).T:
            same(on.getitem(view, index), view[index])
    shape = x[index].shape
    for dy in numbers(shape), numbers(shape[-1:]):
        same(on.getitem_add((5, 4, 6), index, dy), reference.getitem_add((5, 4, 6), index, dy), 1e-6)
    for value in numbers(shape, "float64"), numbers(shape[-1:]), 3:
        for got, want in [(numbers((5, 4, 6)), numbers((5, 4, 6))), (numbers((6, 4, 5)).T, numbers((6, 4, 5)).T)]:
            on.setitem(got, index, value)
            want[index] = value
            same(got, want)


@pytest.mark.parametrize("index", [(), (2,), (..., 0), (slice(1, 4, 2), None), (1, 2, 3), (slice(None, None, -1),)])
def test_basic_index(on, index):
    x = numbers((5, 4, 6))
    got, want = x.copy(), x.copy()
    on.setitem(got, index, 7)
    want[index] = 7
    same(got, want)
    dy = numbers(x[index].shape)
    same(on.getitem_add(x.shape, index, dy), reference.getitem_add(x.shape, index, dy))


def test_index_out_of_range(on):
    for index in (A([5]),), (0, A([-5])), (A([True, False]),):
        with pytest.raises(IndexError):
            on.getitem(numbers((5, 4)), index)


@pytest.mark.parametrize(
    "shape, dim, m", [((5,), 0, 9), ((3, 70), 1, 2), ((3, 70), 0, 5), ((2, 5, 3), 1, 7), ((2, 5), 1, 0)]
)
def test_gather_and_scatter_add(on, shape, dim, m):
    for dtype in dtypes(on, ("float32", "float64", "float16", "int64")):
        sizes = shape[:dim] + (m,) + shape[dim + 1 :]
        for kind in "int64", "int32":
            index = np.random.default_rng(1).integers(0, shape[dim], sizes).astype(kind)
            x, dy = numbers(shape, dtype), numbers(sizes, dtype)
            same(on.gather(x, dim, index), np.take_along_axis(x, index, dim))
            same(on.gather(x.T, x.ndim - 1 - dim, index.T), np.take_along_axis(x, index, dim).T)
            want = reference.scatter_add(shape, dim, index, dy.astype("float64")).astype(dtype)
            same(on.scatter_add(shape, dim, index, dy), want, tolerance(dtype))


@pytest.mark.parametrize(
    "V, N, C", [(65, 300, 130), (400, 37, 5), (7, 2000, 1), (1, 1, 1), (3, 0, 4), (5, 9, 0), (6, 64, 128)]
)
def test_take(on, V, N, C):
    for dtype in dtypes(on, ("float32", "float64", "float16", "int64")):
        often = np.random.default_rng(1).geometric(3 / (V + 3), N) - 1  # some far oftener than others
        index = np.minimum(often, V - 1)
        x, dy = numbers((V, C), dtype), numbers((N, C), dtype)
        same(on.take(x, index), x[index])
        same(on.take(x, index.astype("int32").reshape(1, N)), x[index][None])
        want = np.zeros((V, C))
        np.add.at(want, index, dy.astype("float64"))
        rtol = tolerance(dtype) * 40
        same(on.take_add(V, index, dy), want.astype(dtype), rtol)
        same(on.take_add(V, index, np.asfortranarray(dy)), want.astype(dtype), rtol)


# ------------------------------------------------------------------------------------------------- reductions


def dims_of(ndim):
    """Some sets of dims: none, all, each, pairs."""
    yield ()
    if ndim:
        yield tuple(range(ndim))
        yield from ((d,) for d in range(ndim))
    if ndim > 2:
        yield from ((0, ndim - 1), tuple(range(0, ndim, 2)), tuple(range(1, ndim, 2)))


@pytest.mark.parametrize("shape", [*SHAPES, (300, 3), (3, 20), (2, 18, 17)], ids=str)
def test_reductions(on, shape):
    for x in layouts(numbers(shape)):
        check_reductions(on, x, 2e-5)


def test_reductions_of_other_dtypes(on):
    for dtype in dtypes(on):
        for shape in (67,), (5, 131), (131, 5), (2, 18, 2):
            x = numbers(shape, dtype)
            check_reductions(on, x, tolerance(dtype) * 9)
            check_reductions(on, x.T, tolerance(dtype) * 9)


def check_reductions(on, x, rtol):
    for keepdim, dims in enumerate(dims_of(x.ndim)):
        keepdim = bool(keepdim % 2)
        same(on.sum(x, dims, keepdim), reference.sum(x, dims, keepdim), rtol)
        for name in ("any", "all") + (("max", "min") if x.size else ()):
            same(getattr(on, name)(x, dims, keepdim), getattr(reference, name)(x, dims, keepdim))
    for dim in range(x.ndim):
        same(on.cumsum(x, dim, dim == 1), reference.cumsum(x, dim, dim == 1), rtol)
        if x.size:
            same(on.argmax(x, dim, False), reference.argmax(x, dim, False))
            same(on.argmin(x, dim, True), reference.argmin(x, dim, True))
        for descending in (False, True):
            same(on.argsort(x, dim, descending), reference.argsort(x, dim, descending))


def test_orders_are_stable_and_have_nan_last(on):
    rng = np.random.default_rng(0)
    for dtype in dtypes(on):
        for shape in ((3, 65), (2, 128), (1, 1), (4, 2), (2, 7, 3), (2, 0), (0, 3)):
            x = rng.integers(0, 9, shape).astype(dtype)  # so that there are ties
            if x.dtype.kind == "f":
                x = np.where(rng.random(shape) < 0.2, np.nan, x).astype(dtype)
            for dim in range(x.ndim):
                for descending in (False, True):
                    same(on.argsort(x, dim, descending), reference.argsort(x, dim, descending))


@pytest.mark.parametrize("n", [SORTED, SORTED + 1, 2 * SORTED + 5, 5 * SORTED - 3])
def test_orders_of_long_rows(on, n):
    rng = np.random.default_rng(0)
    for x in (rng.standard_normal((2, n)).astype("float32"), rng.integers(0, 9, (1, n)), rng.integers(-2, 2, (1, n))):
        for descending in (False, True):
            want = reference.argsort(x, 1, descending)
            same(on.argsort(x, 1, descending), want)
            same(on.argsort(x.T, 0, descending), want.T)


@pytest.mark.parametrize("n", [SUMMED, SUMMED + 1, 3 * SUMMED - 1])
def test_running_sums_of_long_rows(on, n):
    for x in (numbers((2, n)), np.ones((2, n), "bool"), np.arange(n * 2).reshape(2, n)):
        for reverse in (False, True):
            want = reference.cumsum(x.astype("float64"), 1, reverse)
            for got in (on.cumsum(x, 1, reverse), on.cumsum(np.ascontiguousarray(x.T), 0, reverse).T):
                np.testing.assert_allclose(got, want, 2e-6, 1e-4)


def test_reducing_nothing_or_a_size_of_1_gives_memory_of_its_own(on):
    for dtype in dtypes(on):
        for shape, dims in (((3, 1, 5), (1,)), ((1, 5), (0,)), ((5,), ()), ((1,), (0,)), ((), ()), ((2, 1, 1), (1, 2))):
            x = numbers(shape, dtype)
            for name in ("sum", "max", "min", "any", "all"):
                for keepdim in (False, True):
                    y = getattr(on, name)(x, dims, keepdim)
                    same(y, getattr(reference, name)(x, dims, keepdim))
                    assert not np.shares_memory(x, y), (name, dtype, shape)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_reductions_of_what_is_not_finite(on, value):
    for shape in (200,), (6, 40), (40, 6):
        for places in ([0], [-1], [3, 5]), ([3], []):
            x = numbers(shape)
            x.reshape(-1)[places[0]] = value
            for dims in dims_of(x.ndim):
                for name in "sum", "max", "min", "any", "all":
                    same(getattr(on, name)(x, dims, False), getattr(reference, name)(x, dims, False), 1e-5)
            for dim in range(x.ndim):
                same(on.argmax(x, dim, False), np.argmax(x, dim))
                same(on.argmin(x, dim, False), np.argmin(x, dim))
                same(on.cumsum(x, dim, False), np.cumsum(x, dim), 1e-5)


@pytest.mark.parametrize("n", [4097, 16385, 100_003, 1_000_000])
def test_long_sums_stay_exact(on, n):
    if not isinstance(on, NativeKernels) and n > 20_000:
        n = 40_001
    x = np.random.default_rng(0).random(n, "float32")
    exact = x.astype("float64").sum()
    for wide in x, x[:, None], np.repeat(x[:, None], 2, 1)[:, :1]:
        same(on.sum(wide, (0,), False).reshape(()), np.float32(exact), 1e-6)
    assert on.dot(x, x) == pytest.approx(np.vdot(x.astype("float64"), x), rel=1e-6)
    pairs = x[: n // 2 * 2].reshape(-1, 2)
    np.testing.assert_allclose(on.sum(pairs, (0,), False), pairs.astype("float64").sum(0), 1e-6)
    assert on.sum(np.ones(n, "bool"), (0,), False) == n and on.max(x, (0,), False) == x.max()
    assert on.argmax(x, 0, False) == x.argmax() and on.any(x > 2, (0,), False) == False  # noqa: E712


def test_the_first_of_ties_wins_in_long_rows(on):
    x = np.random.default_rng(0).integers(0, 9, (3, 40_001)).astype("float32")  # a GPU's blocks have parts of a row
    x[1, [5, 39_000]], x[2, [20_000, 39_000]] = 9, np.nan
    for name in ("argmax", "argmin"):
        same(getattr(on, name)(x, 1, False), getattr(np, name)(x, 1))
        same(getattr(on, name)(x.T, 0, True), getattr(np, name)(x.T, 0, keepdims=True))


@pytest.mark.parametrize("shape", [(0,), (1,), (), (2, 3), (300,), (3, 5000)])
def test_places_that_are_true(on, shape):
    x = np.asarray(np.random.default_rng(0).random(shape) < 0.3)
    for mask in (x, np.asarray(~x.T), np.zeros(shape, bool), np.ones(shape, bool)):
        same(on.flatnonzero(mask), np.flatnonzero(mask))


def test_half_sums_run_in_single(on):
    x = np.full((3, 5000), 1.001, "float16")
    same(on.sum(x, (1,), False), reference.sum(x, (1,), False), 1e-3)
    same(on.cumsum(x, 1, False), reference.cumsum(x, 1, False), 1e-3)
    assert on.dot(x, x) == pytest.approx(reference.dot(x, x), rel=1e-6)


def test_dot(on):
    for dtype in dtypes(on, ("float32", "float64", "float16", "int64")):
        for x in layouts(numbers((3, 50), dtype)):
            got = on.dot(x, x)
            assert type(got) is float and got == pytest.approx(reference.dot(x, x), rel=1e-5)
    assert on.dot(numbers((0, 3)), numbers((0, 3))) == 0


# ------------------------------------------------------------------------------------------------- every access checked


def test_bounds_beyond_an_unsigned_dtype():
    x = np.arange(0, 256, 5, dtype=np.uint8)
    for low, high in ((-5, 300), (-5, 100), (100, 300)):
        np.testing.assert_array_equal(hosted("native").clamp(x, low, high), np.clip(x.astype(int), low, high))
