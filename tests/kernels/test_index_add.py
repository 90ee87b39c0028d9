"""The backward of an embedding, take_add: sums of the rows of dy that have the same index, against NumPy in float64."""

import ctypes
import math
import re

import numpy as np
import pytest

from minigrad.backend.kernels import constant
from minigrad.backend.launch.reduce import SORTED
from minigrad.backend.launch.source import source
from tests.emulated import Emulated, EmulationError

from .calls import GPU, OTHER_ORDER, hosted

MANY_ROWS, WARPS = (constant("index_add.cu", name) for name in ("MANY_ROWS", "WARPS"))
pytestmark = pytest.mark.needs("g++")


@pytest.fixture(scope="module", params=["native", "emulated", OTHER_ORDER, GPU])
def on(request):
    return hosted(request.param)


def check(on, rows, index, C, dtype=np.float32):
    """take_add of some dy, which holds whole numbers: then every order of a sum gives the same."""
    index = np.asarray(index, np.int64)
    dy = np.random.default_rng(1).integers(-8, 9, (index.size, C)).astype(dtype)
    want = np.zeros((rows, C))
    np.add.at(want, index, dy.astype(float))
    got = on.take_add(rows, index, dy)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("rows, C", [(1, 3), (70, 130), (3000, 33), (30, 16)])
def test_indices_of_all_kinds(on, rows, C, dtype):
    random = np.random.default_rng(0)
    for N in (1, 2, WARPS + 1, 300):
        check(on, rows, [rows - 1] * N, C, dtype)  # all the same
        check(on, rows, random.integers(0, rows, N), C, dtype)
    check(on, rows, random.permutation(rows), C, dtype)  # all different
    check(on, rows, np.arange(rows)[::-1], C, dtype)


@pytest.mark.parametrize("times", [MANY_ROWS - 1, MANY_ROWS, MANY_ROWS + 1, 4 * WARPS + 1, 3 * MANY_ROWS])
def test_runs_that_one_warp_adds_up_or_all_of_a_block(on, times):
    for before in (0, 1, WARPS - 1, WARPS):  # where in a block the run begins
        check(on, 50, [*range(before), *[40] * times, *[41] * times, 42], 5)


@pytest.mark.parametrize("N", [SORTED - 1, SORTED, SORTED + 1, 2 * SORTED, 5 * SORTED + 7])
def test_more_indices_than_a_block_sorts(on, N):
    check(on, 40_000, np.random.default_rng(0).integers(0, 40_000, N), 2)
    check(on, 7, np.random.default_rng(0).integers(0, 7, N), 2)


def test_many_indices(on):
    check(on, 50_257, np.random.default_rng(0).zipf(1.3, 70_000) % 50_257, 1)
    check(on, 1, np.zeros(70_000), 1)


def test_a_sum_is_added_up_in_one_order(on):
    index = np.random.default_rng(0).zipf(1.5, 3000) % 100
    dy = np.random.default_rng(1).standard_normal((3000, 40)).astype(np.float32)
    first = on.take_add(100, index, dy)
    np.testing.assert_array_equal(on.take_add(100, index, dy), first)
    if isinstance(on, Emulated):
        np.testing.assert_array_equal(Emulated(2).take_add(100, index, dy), first)


def test_the_work_grows_with_the_indices_and_not_with_the_rows():
    """Of the emulator's threads together: how often they read an index, a place or an element of dy."""
    counter = """
        static long long reads;
        extern "C" long long reads_so_far() { return reads; }
        template <typename V> inline V* counted(V* p) { reads++; return p; }
    """

    def text_of(file, dtype):
        if file != "index_add":
            return source(file, dtype)
        return counter + re.sub(r"\b(keys|order|row)\[(?!\d)", r"counted(\1)[", source(file, dtype))

    def reads(N, rows, C=32):
        on = Emulated(text_of=text_of)
        on.take_add(rows, np.random.default_rng(0).integers(0, rows, N), np.ones((N, C), np.float32))
        module, _ = on._kernels["index_add", "take_add", np.dtype(np.float32)]
        module.library.reads_so_far.restype = ctypes.c_longlong
        before, reads.so_far = reads.so_far, module.library.reads_so_far()
        return reads.so_far - before

    reads.so_far = 0
    for N in (256, 1024, 4096):
        for rows in (N, 50_257):
            assert N * 32 <= reads(N, rows) < 40 * N * math.log2(N)


def test_without_a_barrier_it_is_a_race():
    def text_of(file, dtype):
        return source(file, dtype).replace("__syncthreads();", "" if file == "index_add" else "__syncthreads();")

    with pytest.raises(EmulationError, match=r"race|unwritten"):
        Emulated(check=True, text_of=text_of).take_add(9, np.arange(900) % 9, np.ones((900, 3), np.float32))
    checked = Emulated(check=True)
    check(checked, 9, np.arange(300) % 9, 3)
    check(checked, 5000, np.random.default_rng(0).integers(0, 5000, SORTED + 60), 130)
