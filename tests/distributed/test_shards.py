"""A batch in shards, in one process: sums, random numbers, what does not fit."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.base.errors import RanksError
from minigrad.distributed import Shards, World, gathered, scattered
from minigrad.distributed.shards import stream


def model_and_batch(dropout=0.0):
    config = nn.GPTConfig(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16, dropout=dropout)
    return nn.GPT(config), mg.randint(0, 11, (8, 8)), mg.randint(0, 11, (8, 8))


class Rank(World):
    """One of several processes, as far as can be told without the others."""

    def __init__(self, rank, size):
        super().__init__()
        self.rank, self.size = rank, size


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_mean_over_shards_is_the_gradient_of_the_batch(count):
    model, x, y = model_and_batch()
    parameters = list(model.parameters())
    total = Shards(World(), count).sum(lambda x, y: gathered(model(x, y)[1], parameters), x, y)
    loss = scattered(total / count, parameters)
    found = [p.grad.numpy() for p in parameters]
    model.zero_grad()
    _, expected = model(x, y)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    for p, g in zip(parameters, found):
        np.testing.assert_allclose(g, p.grad.numpy(), rtol=2e-4, atol=2e-6)


def test_one_shard_is_backward_to_the_bit():
    model, x, y = model_and_batch(dropout=0.3)
    parameters = list(model.parameters())
    before = mg.default_generator.state
    total = Shards(World(), 1).sum(lambda x, y: gathered(model(x, y)[1], parameters), x, y)
    loss, after = scattered(total / 1, parameters), mg.default_generator.state
    found = [p.grad.numpy() for p in parameters]
    model.zero_grad()
    mg.default_generator.state = before
    _, expected = model(x, y)
    expected.backward()
    assert loss.item() == expected.item() and mg.default_generator.state == after != before
    assert all((p.grad.numpy() == g).all() for p, g in zip(parameters, found))


def drawn(shards):
    """What each shard of a rank draws in two steps."""
    found = []

    def draw(x):
        found.append(mg.rand(4).numpy().tolist())
        return x.sum().reshape(1)

    for _ in range(2):
        for _ in shards._parts(draw, (mg.zeros(8),)):
            pass
    each = len(found) // 2
    return list(zip(found[:each], found[each:]))


def test_random_numbers_belong_to_the_shard():
    """Not to the rank, nor to how many there are; and no two shards or steps have the same."""
    start = mg.default_generator.state
    alone = drawn(Shards(World(), 4))
    end = mg.default_generator.state
    for size in (2, 4):
        shared = []
        for rank in range(size):
            mg.default_generator.state = start
            shared += drawn(Shards(Rank(rank, size), 4))
            assert mg.default_generator.state == end
        assert shared == alone
    assert len({tuple(step) for shard in alone for step in shard}) == 8


@pytest.mark.parametrize(
    "size, count, message",
    [
        (1, 3, "shards must be a power of two, not 3"),
        (1, 0, "shards must be a power of two, not 0"),
        (3, 8, "processes must be a power of two, not 3"),
        (4, 2, "4 processes need as many shards or more, not 2"),
    ],
)
def test_numbers_that_do_not_fit(size, count, message):
    with pytest.raises(RanksError, match=message):
        Shards(Rank(0, size), count)


def test_batches_that_do_not_fit():
    with pytest.raises(RanksError, match="a batch of 6 cannot be cut into 4 shards of one size"):
        Shards(World(), 4).sum(lambda x: x, mg.zeros(6))
    with pytest.raises(RanksError, match="cannot be cut"):
        Shards(World(), 2).sum(lambda x, y: x, mg.zeros(4), mg.zeros(2))


def test_shards_that_draw_different_amounts_are_refused():
    with pytest.raises(RanksError, match="different amounts of random numbers"):
        Shards(World(), 2).sum(lambda x: mg.rand(4 + 4 * int(x[0].item())).sum().reshape(1), mg.arange(2))


def test_what_cannot_be_gathered():
    a, b = (nn.Parameter(mg.ones(2)) for _ in range(2))
    with pytest.raises(ValueError, match="does not depend on parameter 1, of shape"):
        gathered((a * a).sum(), [a, b])
    c = nn.Parameter(mg.ones(2, dtype=mg.float64))
    with pytest.raises(ValueError, match="the loss is float64, and parameter 0"):
        gathered((a * c).sum(), [a, c])


def total(x):
    return x.sum().reshape(1)


def test_streams_are_far_apart_and_any_seed_has_them():
    for seed in (0, 1337, 2**32 - 1):
        seeds = {stream({"seed": seed, "offset": 0}, shard)["seed"] for shard in range(64)}
        assert len(seeds) == 64 and not seeds & {seed + 2**32, seed + 2 * 2**32}  # which char_lm's batches draw from
    mg.manual_seed(-1)
    Shards(World(), 4).sum(total, mg.zeros(4))


def test_a_generator_of_ones_own():
    own, before, seen = mg.Generator(5), mg.default_generator.state, []

    def draw(x):
        seen.append(own.state["seed"])
        own.uniform((4,))
        return total(x)

    Shards(World(), 2, own).sum(draw, mg.zeros(4))
    assert seen == [5, 5 + 2**40] and own.state["seed"] == 5 and own.state["offset"] > 0
    assert mg.default_generator.state == before


def test_after_an_exception_the_generator_is_where_it_was():
    mg.manual_seed(3)
    before, calls = mg.default_generator.state, []

    def failing(x):
        calls.append(mg.rand(4))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return total(x)

    with pytest.raises(KeyboardInterrupt):
        Shards(World(), 4).sum(failing, mg.zeros(4))
    assert mg.default_generator.state == before


def test_no_row_is_left_out():
    with pytest.raises(RanksError, match="a batch of 6 cannot be cut into 4 shards"):
        list(Shards(Rank(0, 2), 4)._parts(total, (mg.zeros(6),)))


def test_a_shard_may_give_what_it_gave_before():
    one = mg.ones(3)
    for _ in range(2):
        assert (Shards(World(), 2).sum(lambda x: one, mg.zeros(4)).numpy() == 2).all() and (one.numpy() == 1).all()
    with pytest.raises(RanksError, match="a batch of 0 cannot be cut"):
        Shards(World(), 2).sum(lambda: one)
