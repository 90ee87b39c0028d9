"""World, as far as one process can tell."""

import pytest

import minigrad as mg
from minigrad.base.errors import RanksError
from minigrad.distributed import World


class Ranks(World):
    """Rank 0 of several, of which the others are made up: of(what this one says, rank) is what they say."""

    def __init__(self, size, of):
        super().__init__()
        self.size, self.of = size, of

    def everyone(self, value):
        return [value, *(self.of(value, rank) for rank in range(1, self.size))]


def test_what_all_must_have_in_common():
    def of(value, rank):
        host, mine = value
        return (host, mine) if rank == 1 else (host, mine | {"lr": rank})

    with pytest.raises(RanksError, match="lr: 1 on rank 0, 2 on rank 2, machine"):
        Ranks(3, of).check_same(lr=1, step=5)


def test_what_is_dealt_keeps_its_bits_and_its_order():
    assert World().dealt(lambda x: x, [0.1, 1 / 3]) == [0.1, 1 / 3]
    # Of five items, rank 0 computes 0 and 3; the others, on as many processes as no tree has, 1 and 4, and 2.
    assert Ranks(3, lambda mine, rank: [mine[0] + rank] + [40] * (rank == 1)).dealt(float, range(5)) == [0, 1, 2, 3, 40]


def test_a_sum_takes_a_tree():
    with pytest.raises(RanksError, match="a sum along the tree takes 2, 4, 8, … processes, not 3"):
        Ranks(3, None).sum(mg.ones(4))
