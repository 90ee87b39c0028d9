"""Philox against its published vectors; generators, distributions, dropout."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.backend import philox, reference
from minigrad.backend.numpy import random
from minigrad.nn import functional as F

# Random123's kat_vectors: counter, key, result of philox4x32-10
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize("counter, key, expected", VECTORS)
def test_philox_known_answers(counter, key, expected):
    c = [np.array([int(word, 16)], np.uint64) for word in counter.split()]
    k0, k1 = (int(word, 16) for word in key.split())
    assert " ".join(f"{int(word[0]):08x}" for word in philox.blocks(k0 | k1 << 32, c)) == expected


def test_words_are_blocks_in_order():
    words = philox.words(philox.Draw(5, 0), 12)
    assert words.dtype == np.uint32
    assert [f"{w:08x}" for w in philox.words(philox.Draw(0, 0), 4)] == VECTORS[0][2].split()
    np.testing.assert_array_equal(philox.words(philox.Draw(5, 1), 8), words[4:])
    np.testing.assert_array_equal(philox.words(philox.Draw(5, 0), 5), words[:5])
    assert philox.words(philox.Draw(5, 0), 0).shape == (0,)
    far = philox.words(philox.Draw(5, 2**32 - 1), 8)  # the counter carries into its second word
    np.testing.assert_array_equal(far[4:], philox.words(philox.Draw(5, 2**32), 4))
    assert len(set(far.tolist())) == 8


@pytest.mark.parametrize("at_once", [4, 12])
def test_numbers_computed_a_few_at_a_time_are_the_same(at_once, monkeypatch):
    draw, shapes = philox.Draw(5, 2**32 - 4), [(n,) for n in (0, 1, 2, 6, 7, 8, 25, 50)]

    def drawn():
        found = [philox.words(draw, *shape) for shape in shapes]
        for dtype in (np.float16, np.float32, np.float64):
            found += [reference.random_uniform(draw, shape, dtype) for shape in shapes]
            found += [reference.random_normal(draw, shape, dtype) for shape in shapes]
        return [(y.dtype, y.tolist()) for y in found]

    whole = drawn()
    for module in (philox, random):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
    assert drawn() == whole


# --------------------------------------------------------------------------------------------------------- generators


def test_a_seed_decides_everything():
    def draw():
        return [mg.rand(3).tolist(), mg.randn(3).tolist(), mg.randint(0, 9, (4,)).tolist(), mg.randperm(5).tolist()]

    mg.manual_seed(7)
    first = draw()
    assert draw() != first
    mg.manual_seed(7)
    assert draw() == first
    mg.manual_seed(-1)
    negative = draw()
    mg.manual_seed(2**64 - 1)
    assert draw() == negative != first


def test_state_is_two_integers_and_goes_on_from_there():
    g = mg.Generator(7)
    mg.randn(5, generator=g)
    state = g.state
    assert state == {"seed": 7, "offset": state["offset"]} and all(isinstance(v, int) for v in state.values())
    expected = [mg.rand(7, generator=g).tolist(), mg.randperm(4, generator=g).tolist()]
    other = mg.Generator()
    other.state = state
    assert [mg.rand(7, generator=other).tolist(), mg.randperm(4, generator=other).tolist()] == expected
    assert g.state == other.state


@pytest.mark.parametrize("state", [
    None, 3, "ab", [], [1, 2], {}, {"seed": 1}, {"seed": 1, "offset": 2, "more": 3}, {"seed": "1", "offset": 2},
    {"seed": 1, "offset": 0.5}, {"seed": True, "offset": 2}, {"seed": 1, "offset": float("nan")},
    {"seed": -1, "offset": 0}, {"seed": 1, "offset": -1}, {"seed": 2**64, "offset": 0}, {"seed": 1, "offset": 2**63},
    {"seed": [1], "offset": [2]}, {"seed": 10**400, "offset": None},
], ids=lambda state: str(state)[:40])  # fmt: skip
def test_a_wrong_random_state_raises(state):
    g = mg.Generator(3)
    mg.randn(5, generator=g)
    before = g.state
    with pytest.raises(ValueError, match="a random state is two integers") as error:
        g.state = state
    assert g.state == before and len(str(error.value)) < 200


def test_draws_do_not_overlap():
    g = mg.Generator(3)
    words = np.concatenate([g.words(n) for n in (5, 1, 0, 4, 3)])
    assert len(set(words.tolist())) == 13
    np.testing.assert_array_equal(words[5:6], philox.words(philox.Draw(3, 2), 1))  # five words take two blocks of four


def test_generators_are_apart_from_the_default_one():
    mg.manual_seed(0)
    expected = mg.rand(4).tolist()
    mg.manual_seed(0)
    mg.rand(100, generator=mg.Generator(5))
    assert mg.rand(4).tolist() == expected
    a, b = mg.Generator(1), mg.Generator(2)
    assert mg.rand(4, generator=a).tolist() != mg.rand(4, generator=b).tolist()
    mg.manual_seed(0)
    assert mg.rand(4, generator=None).tolist() == expected  # None: the default one, as in dropout


# -------------------------------------------------------------------------------------------------------- distributions

N = 40_000


@pytest.mark.parametrize("dtype", [mg.float16, mg.float32, mg.float64], ids=str)
def test_uniform(dtype):
    x = mg.rand(N, dtype=dtype)
    assert x.dtype == dtype
    v = x.numpy().astype(np.float64)
    assert v.min() >= 0 and v.max() < 1
    for k in (1, 2, 3):
        sigma = math.sqrt(1 / (2 * k + 1) - 1 / (k + 1) ** 2) / math.sqrt(N)
        assert abs((v**k).mean() - 1 / (k + 1)) < 5 * sigma + 5e-4 * (dtype == mg.float16)
    counts = np.bincount((v * 16).astype(int), minlength=16)
    assert ((counts - N / 16) ** 2 / (N / 16)).sum() < 45  # χ² of 15 degrees: 1 in 10,000
    assert abs(np.corrcoef(v[:-1], v[1:])[0, 1]) < 5 / math.sqrt(N)


def test_normal():
    v = mg.randn(N, dtype=mg.float64).numpy()
    for k, expected, sigma in ((1, 0, 1), (2, 1, math.sqrt(2)), (3, 0, math.sqrt(15)), (4, 3, math.sqrt(96))):
        assert abs((v**k).mean() - expected) < 5 * sigma / math.sqrt(N)
    for z in (-1.5, -0.5, 0.5, 1.5):
        p = 0.5 * (1 + math.erf(z / math.sqrt(2)))
        assert abs((v < z).mean() - p) < 5 * math.sqrt(p * (1 - p) / N)
    assert abs(np.corrcoef(v[: N // 2], v[N // 2 :])[0, 1]) < 5 / math.sqrt(N / 2)  # the cosines and the sines
    assert mg.randn(3, 5).shape == (3, 5) and mg.randn(()).shape == () and mg.randn(0, 2).shape == (0, 2)


def test_integers_and_permutations():
    v = mg.randint(-2, 5, (N,)).numpy()
    assert v.dtype == np.int64 and set(v.tolist()) == set(range(-2, 5))
    counts = np.bincount(v + 2)
    assert ((counts - N / 7) ** 2 / (N / 7)).sum() < 28  # χ² of 6 degrees: 1 in 10,000
    with pytest.raises(ValueError, match="from 3 up to but not including 3"):
        mg.randint(3, 3, (2,))
    assert sorted(mg.randperm(50).tolist()) == list(range(50))
    first = np.array([mg.randperm(3)[0].item() for _ in range(3000)])
    assert (abs(np.bincount(first) - 1000) < 5 * math.sqrt(3000 * 2 / 9)).all()


def test_multinomial_frequencies():
    p = mg.tensor([0.1, 0.0, 0.6, 0.3])
    counts = np.bincount(mg.multinomial(p * 7, N, replacement=True).numpy(), minlength=4) / N
    assert counts[1] == 0
    assert (abs(counts - p.numpy()) < 5 * np.sqrt(0.25 / N)).all()
    generator = mg.Generator()
    generator.uniform = lambda shape: np.zeros(shape)  # even then, what has probability 0 is not drawn
    assert mg.multinomial(mg.tensor([0.0, 1.0]), 1, generator=generator).tolist() == [1]
    rows = mg.tensor([[1.0, 0, 0], [0, 0, 5.0]])
    assert mg.multinomial(rows, 1).tolist() == [[0], [2]]
    assert mg.multinomial(rows, 3, replacement=True).tolist() == [[0] * 3, [2] * 3]


def test_multinomial_without_replacement():
    p = mg.tensor([0.2, 0.3, 0.5]).expand(5000, 3)
    found = mg.multinomial(p, 2).numpy()
    assert found.shape == (5000, 2) and (found[:, 0] != found[:, 1]).all()
    first = np.bincount(found[:, 0], minlength=3) / 5000
    assert (abs(first - [0.2, 0.3, 0.5]) < 5 * np.sqrt(0.25 / 5000)).all()
    pair = ((found[:, 0] == 2) & (found[:, 1] == 0)).mean()
    assert abs(pair - 0.5 * 0.2 / 0.5) < 5 * np.sqrt(0.16 / 5000)  # the second choice is among what is left
    with pytest.raises(ValueError, match="2 samples without replacement"):
        mg.multinomial(mg.tensor([1.0, 0.0]), 2)
        mg.multinomial(mg.tensor([1.0, 0.0]), 2)
    with pytest.raises(ValueError, match="2 samples without replacement"):  # one row has enough, the other not
        mg.multinomial(mg.tensor([[0.5, 0.5], [1.0, 0.0]]), 2)
    assert mg.multinomial(mg.tensor([[0.5, 0.0, 0.5], [1.0, 2.0, 0.0]]), 2).sort(-1)[0].tolist() == [[0, 2], [0, 1]]


@pytest.mark.parametrize("bad", [[-1.0, 2.0], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_multinomial_refuses(bad):
    with pytest.raises(ValueError, match="finite"):
        mg.multinomial(mg.tensor(bad), 1)


# -------------------------------------------------------------------------------------------------------------- dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_frequency_and_scale(p):
    x = mg.ones(N, requires_grad=True)
    y = F.dropout(x, p)
    kept = y.detach().numpy() != 0
    assert abs(kept.mean() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / N)
    np.testing.assert_allclose(y.detach().numpy()[kept], 1 / (1 - p), rtol=1e-6)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())  # the same mask


def test_dropout_is_the_same_for_the_same_seed():
    x = mg.randn(3, 5)
    mg.manual_seed(4)
    a, b = F.dropout(x, 0.5), F.dropout(x, 0.5)
    mg.manual_seed(4)
    c = F.dropout(x, 0.5)
    assert (a == c).all() and not (a == b).all()
    assert (F.dropout(x, 0.5, generator=mg.Generator(4)) == a).all()
    mg.manual_seed(4)
    assert (F.dropout(x.T.contiguous().T, 0.5) == a).all()  # whatever the memory layout


def test_dropout_at_its_ends():
    x = mg.randn(4, requires_grad=True)
    state = mg.default_generator.state
    assert F.dropout(x, 0.0) is x and F.dropout(x, 0.5, training=False) is x
    assert mg.default_generator.state == state
    y = F.dropout(x, 1.0)
    y.sum().backward()
    assert y.tolist() == x.grad.tolist() == [0, 0, 0, 0]
    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="p must lie in"):
            F.dropout(x, p)


@pytest.mark.parametrize("dtype, bits", [(mg.float16, 11), (mg.float32, 24), (mg.float64, 53)])
def test_uniform_numbers_have_all_the_bits_of_their_dtype(dtype, bits):
    """Numbers are multiples of 2^-bits, odd ones too, for as many bits as never round up to 1."""
    whole = mg.rand(10_000, dtype=dtype).numpy().astype(np.float64) * 2.0**bits
    np.testing.assert_array_equal(whole, np.floor(whole))
    assert 0.4 < (whole % 2).mean() < 0.6
