"""The backward of an embedding, take_add: sums of the rows of dy that have the same index, against NumPy in float64."""

import numpy as np
import pytest

from minigrad.backend.kernels import constant
from minigrad.backend.launch.reduce import SORTED

from .calls import GPU, hosted

MANY_ROWS, WARPS = (constant("index_add.cu", name) for name in ("MANY_ROWS", "WARPS"))
pytestmark = pytest.mark.needs("g++")


@pytest.fixture(scope="module", params=["native", GPU])
def on(request):
    return hosted(request.param)


def check(on, rows, index, C, dtype=np.float32):
    """take_add of a dy of whole numbers, for which every order of additions gives the same sum."""
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
