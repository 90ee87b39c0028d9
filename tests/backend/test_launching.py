"""How work is divided before it is launched: layouts, rows, shares, tiles."""

import math
import struct

import numpy as np
import pytest

from minigrad.backend.launch import KernelBackend
from minigrad.backend.launch.elementwise import compact_strides
from minigrad.backend.launch.index import any_integers, is_basic, places
from minigrad.backend.launch.launcher import MAX_DIMS, MAX_INT31, broadcast_strides, layout, real, reciprocal
from minigrad.backend.launch.matmul import choose_tiles
from minigrad.backend.launch.movement import _move_plan
from minigrad.backend.launch.reduce import accumulator, reduction, shares


def unpacked(shape, *strides, itemsize=4):
    """(size, [(n, *steps)]) of the struct Layout."""
    size, about, columns = fields(shape, *strides, itemsize=itemsize)
    n, reciprocals, *steps = columns
    column = [n, *steps]
    assert size == math.prod(shape) and reciprocals == [reciprocal(d) if d else 0 for d in n]
    assert all(not any(c[about[1] :]) for c in column) and not any(n for c in column[len(strides) + 1 :] for n in c)
    return [tuple(c[d] for c in column[: len(strides) + 1]) for d in range(about[1])]


def fields(shape, *strides, itemsize=4):
    """(number of elements, (size, ndim, narrow, run), the columns of MAX_DIMS numbers) of the struct Layout."""
    size, packed = layout(shape, (itemsize,) * len(strides), *strides)
    numbers = list(struct.unpack(f"{len(packed) // 8}q", packed))
    assert len(numbers) == 4 + 6 * MAX_DIMS and numbers[0] == size
    return size, numbers[:4], [numbers[4 + MAX_DIMS * k : 4 + MAX_DIMS * (k + 1)] for k in range(6)]


def test_dims_that_all_operands_run_through_alike_are_one():
    compact, columns = (48, 16, 4), (4, 8, 24)
    assert unpacked((2, 3, 4), compact, compact) == [(24, 1, 1)]
    assert unpacked((2, 3, 4), compact, columns) == [(2, 12, 1), (3, 4, 2), (4, 1, 6)]
    assert unpacked((2, 3, 4), compact, (0, 16, 4)) == [(2, 12, 0), (12, 1, 1)]
    assert unpacked((2, 3, 4), compact, (0, 0, 0)) == [(24, 1, 0)]
    assert unpacked((2, 1, 4), compact, compact) == [(2, 12, 12), (4, 1, 1)]
    assert unpacked((1, 1), (4, 4)) == unpacked((), ()) == [(1, 1)]
    assert unpacked((3,), (-4,), (4,)) == [(3, -1, 1)] and unpacked((0, 3), (12, 4)) == [(0, 1)]
    steps = tuple(4 * (3 * i + 1) for i in range(MAX_DIMS + 1))
    assert len(unpacked((2,) * MAX_DIMS, steps[:-1])) == MAX_DIMS
    with pytest.raises(ValueError, match="at most 16 dims that cannot be merged"):
        unpacked((2,) * (MAX_DIMS + 1), steps)


def test_divisions_by_multiplying_are_exact():
    """Compute as quotient() of layout.cuh does, in 32 and 64 bits, for each n at which it could be wrong."""
    edges = {1 << k for k in range(31)} | {(1 << k) + 1 for k in range(30)} | {(1 << k) - 1 for k in range(1, 32)}
    rng = np.random.default_rng(0)
    for d in sorted({*range(1, 2000), *edges, *rng.integers(1, MAX_INT31, 3000).tolist()}):
        factor, shift = np.uint64(reciprocal(d) % (1 << 32)), np.uint64(reciprocal(d) >> 32)
        assert shift < 32 and reciprocal(d) < 1 << 63
        most = (MAX_INT31 - 1) // d
        times = {0, 1, 2, most - 1, most, *rng.integers(0, most + 1, 8).tolist()}
        near = {k * d + i for k in times for i in (-1, 0, 1)} | {MAX_INT31 - 1, MAX_INT31 - 2}
        n = np.array([n for n in near if 0 <= n < MAX_INT31], np.uint64)
        doubled = n << np.uint64(1)
        assert doubled.max() < 1 << 32
        np.testing.assert_array_equal(doubled * factor >> np.uint64(32) >> shift, n // np.uint64(d))


def test_only_what_fits_into_31_bits_is_narrow():
    def narrow(shape, *strides, itemsize=4):
        _, about, columns = fields(shape, *strides, itemsize=itemsize)
        assert about[2] or not any(columns[1])
        return bool(about[2])

    most = MAX_INT31 - 1
    assert narrow((most,), (4,), (4,)) and not narrow((most + 1,), (4,), (4,))
    assert narrow((2, 2**30 - 1), (4 * 2**30, 4), (0, 4)) and not narrow((2, 2**30), (4 * 2**30, 4), (0, 4))
    assert not narrow((2**16, 2**16), (0, 4), (4, 0))  # few elements in memory, but many places
    assert narrow((3, 5), (20, 4), (4 * 2**29, 4)) and not narrow((3, 5), (20, 4), (4 * 2**30, 4))
    assert narrow((3, 5), (20, 4), (-4 * 2**29, 4)) and not narrow((3, 5), (20, 4), (-4 * 2**30, 4))
    assert narrow((0, 2**40), (4, 4), (4, 4)) and narrow((), (), ()) and narrow((1,), (2**60,), (0,))
    assert narrow((2, 2), (4 * 2**30, 4), itemsize=4) and not narrow((2, 2), (8 * 2**30, 4), itemsize=4)
    assert _move_plan((64, 2**20), 4, (4 * 2**20, 4), (4, 4 * 64))[0] is not None  # as a transposition
    assert _move_plan((64, 2**26), 4, (4 * 2**26, 4), (4, 4 * 64))[0] is None


def test_runs_of_neighbours():
    def run(shape, *strides):
        return fields(shape, *strides)[1][3]

    assert run((5,), (4,), (4,)) == run((7, 3), (12, 4), (12, 4)) == run((7,), (4,), (0,)) == 8
    assert run((5,), (4,), (-4,)) == run((5,), (4,), (8,)) == run((5,), (8,), (4,)) == 1
    assert run((4, 4), (16, 4), (4, 16)) == run((4, 4), (16, 4), (20, 4)) == 1
    assert [run((3, n), (4 * n, 4), (0, 4)) for n in (2, 4, 6, 8, 12, 16, 7)] == [2, 4, 2, 8, 4, 8, 1]
    assert [run((3, n), (4 * n, 4), (4, 0)) for n in (2, 4, 16)] == [2, 4, 8]  # one element for a whole row
    assert [run((3, 16), (64, 4), (4 * n, 4)) for n in (17, 18, 20, 24, -24, 32)] == [1, 2, 4, 8, 8, 8]


def test_strides_of_what_is_broadcast():
    x = np.zeros((3, 1, 4), np.float32)
    for shape in ((3, 1, 4), (3, 5, 4), (2, 3, 5, 4), (3, 0, 4), (1, 3, 1, 4)):
        got = broadcast_strides(x, shape)
        want = np.broadcast_to(x, shape).strides
        assert len(got) == len(want) and all(a == b for a, b, n in zip(got, want, shape) if n > 1)
    for shape in ((), (3,), (2, 3, 4), (2, 1, 3)):
        assert compact_strides(shape, 8) == np.zeros(shape).strides


def test_shares_are_equal_but_for_the_last():
    for n in (1, 2, 255, 256, 257, 511, 512, 513, 1000, 100_003):
        for most in (1, 7, 256):
            count, size = shares(n, most)
            assert size <= most and (count - 1) * size < n <= count * size and count <= -(-n // most)
    assert shares(257, 256) == (2, 129) and shares(256, 256) == (1, 256) and shares(10, 4) == (3, 4)


def test_threads_for_a_row():
    threads = [KernelBackend().row_threads(n) for n in (0, 1, 128, 129, 256, 257, 2048, 2049, 10**6)]
    assert threads == [32, 32, 32, 64, 64, 128, 512, 512, 512]


def test_reduced_and_kept_dims_are_merged():
    assert reduction((2, 3, 4), None, (0, 1), False) == ([(1, 6, 4)], (1, 1, 4), (4,), None)
    assert reduction((2, 1, 4), None, (0, 2), True) == ([(1, 8, 1)], (1, 1, 1), (1, 1, 1), None)  # 1 parts nothing
    assert reduction((2, 3, 4), None, (0, 2), True)[0] == [(6, 4, 1), (1, 2, 3)]  # the last run first
    assert reduction((1, 1), None, (0, 1), False) == ([(1, 1, 1)], (1, 1), (), None)  # a new array all the same
    assert reduction((4, 2, 3), (2, 0, 1), (1,), True) == ([(8, 3, 1)], (4, 2, 1), (2, 1, 4), [1, 2, 0])


def test_dtypes_of_sums():
    sums = {"float16": "float32", "float32": "float32", "float64": "float64", "int8": "int64", "bool": "int64"}
    for name, wide in sums.items():
        assert accumulator(np.dtype(name)) == wide
        assert real(np.dtype(name)) == ("float32" if name == "float16" else name)


def test_kinds_of_indices():
    mask, where = np.array([True, False]), np.array([0, 1])
    assert is_basic((1, slice(None), None, ...)) and is_basic(())
    assert not any(is_basic((i,)) for i in (mask, where, True, np.True_))
    assert any_integers((where, 1)) and not any_integers((mask, 1, slice(None)))
    x = np.arange(24).reshape(2, 3, 4)
    for index in (
        (where,), (mask,), (slice(None), np.array([2, 0])), (where, slice(1, 3)), (None, where), (..., where),
        (where, ..., where), (np.array([[True, False, True]] * 2),), (True, where), (where[:0],),
    ):  # fmt: skip
        positions, rest = places(x.shape, index)
        np.testing.assert_array_equal(x.reshape(-1, *rest)[positions], x[index])
        assert positions.flags.c_contiguous and positions.dtype == np.int64
    assert places(x.shape, (where,))[1] == (3, 4)  # only as much memory as the index asks for


def test_products_are_cut_so_that_the_busiest_multiprocessor_has_least_to_do():
    assert choose_tiles(128, 128, 128, 1, True, 132) == (64, 1)
    assert choose_tiles(10**4, 10**4, 64, 1, False, 132) == (64, 1)
    assert choose_tiles(64, 64, 255, 1, True, 132)[1] == 1  # no part may be shorter than 128
    assert choose_tiles(1, 1, 0, 1, True, 132)[1] == 1 and choose_tiles(0, 0, 5, 0, True, 132)[1] == 1
    assert choose_tiles(64, 64, 4096, 1, True, 132) == (64, 4096 // 128)
    assert choose_tiles(64, 64, 10**6, 1, True, 132) == (64, 3 * 132)  # blocks on all of them, three at a time
    assert choose_tiles(64, 64, 10**6, 1, True, 1) == (64, 3)  # one block alone keeps it less busy
    # With one part there are 108 tiles, and most multiprocessors would have one block.
    assert choose_tiles(2304, 768, 8192, 1, True, 132) == (128, 7)
    assert choose_tiles(64, 64, 10**5, 396, True, 132)[1] == 1  # there are tiles enough
