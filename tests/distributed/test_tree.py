"""Sums along the tree: in which order, and that any number of ranks gets the same bits."""

import numpy as np
import pytest

from minigrad.distributed.tree import exchange, tree_sum

from .ranks import on_threads


def parts(count, size, dtype=np.float32):
    """Numbers of very different size, so that another order of summation shows."""
    rng = np.random.default_rng(count + size)
    return list((rng.standard_normal((count, size)) * 10.0 ** rng.integers(-4, 5, (count, size))).astype(dtype))


def copies(arrays):
    return [x.copy() for x in arrays]


def test_neighbours_are_summed_first():
    a, b, c, d, e, f, g, h = parts(8, 1000)
    expected = ((a + b) + (c + d)) + ((e + f) + (g + h))
    assert (tree_sum(copies([a, b, c, d, e, f, g, h])) == expected).all()
    one_by_one = a + b + c + d + e + f + g + h
    assert (one_by_one != expected).any()  # the numbers are such that the order matters


def test_no_more_is_kept_than_a_sum_of_each_size():
    alive, most = 0, 0

    class Part:
        def __init__(self):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __add__(self, other):
            nonlocal alive
            alive -= 2  # both are done with
            return Part()

    tree_sum(Part() for _ in range(64))
    assert most == 7


@pytest.mark.parametrize("count", [0, 3, 5, 6, 7, 12])
def test_other_numbers_of_parts_are_refused(count):
    with pytest.raises(ValueError, match=f"not {count}"):
        tree_sum(iter(parts(count, 2)))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 1001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_ranks_has_the_sum_of_one(ranks, size, dtype):
    shards = parts(8, size, dtype)
    expected = tree_sum(copies(shards))
    each = 8 // ranks

    def rank(comm):
        total = tree_sum(copies(shards[comm.rank * each : (comm.rank + 1) * each]))
        exchange(total, comm)
        return total, comm.sent

    for total, sent in on_threads(ranks, rank):
        assert total.tobytes() == expected.tobytes()
        assert sent <= 2 * size * (1 - 1 / ranks) + 2 * ranks  # not the whole vector to each partner
