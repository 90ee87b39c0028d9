"""nn.choose and GPT.generate: which tokens are drawn, how often, and with which window."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn


def drawn(logits, n=2000, **choice):
    """Return the share of each token among those drawn from n equal rows."""
    rows = mg.tensor(np.broadcast_to(np.asarray(logits, np.float64), (n, len(logits))).copy())
    tokens = nn.choose(rows, generator=mg.Generator(0), **choice)
    assert tokens.shape == (n, 1) and tokens.dtype == mg.int64
    return np.bincount(tokens.numpy()[:, 0], minlength=len(logits)) / n


LOGITS = np.log([0.125, 0.5, 0.25, 0.125])


@pytest.mark.parametrize(
    "choice, expected",
    [
        ({}, [0.125, 0.5, 0.25, 0.125]),
        (dict(temperature=0.5), [1 / 22, 16 / 22, 4 / 22, 1 / 22]),  # squared
        (dict(temperature=0), [0, 1, 0, 0]),
        (dict(top_k=1), [0, 1, 0, 0]),
        (dict(top_k=2), [0, 2 / 3, 1 / 3, 0]),
        (dict(top_k=4), [0.125, 0.5, 0.25, 0.125]),
        (dict(top_k=99), [0.125, 0.5, 0.25, 0.125]),
        (dict(top_p=0.5 - 1e-9), [0, 1, 0, 0]),
        (dict(top_p=0.5), [0, 1, 0, 0]),  # one has this probability: no second is needed
        (dict(top_p=0.5 + 1e-9), [0, 2 / 3, 1 / 3, 0]),
        (dict(top_p=0.75 - 1e-9), [0, 2 / 3, 1 / 3, 0]),
        (dict(top_p=1.0), [0.125, 0.5, 0.25, 0.125]),
        (dict(top_p=0.6, top_k=2), [0, 1, 0, 0]),  # of what top_k leaves
        (dict(top_p=0.7, top_k=2), [0, 2 / 3, 1 / 3, 0]),
        (dict(top_p=0.7, temperature=0.5), [0, 1, 0, 0]),  # of what the temperature makes of them
        (dict(top_p=0.4, temperature=2.0), [0, 0.5**0.5 / (0.5**0.5 + 0.5), 0.5 / (0.5**0.5 + 0.5), 0]),
    ],
    ids=str,
)
def test_tokens_are_drawn_with_the_right_frequencies(choice, expected):
    found, expected = drawn(LOGITS, **choice), np.asarray(expected)
    assert ((found > 0) == (expected > 0)).all()
    np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(0.25 / 2000))


def test_rows_are_chosen_each_for_itself():
    logits = mg.tensor([[9.0, 1.0, 0.0], [0.0, 1.0, 9.0], [1.0, 9.0, 0.0]])
    for choice in (dict(temperature=0), dict(top_k=1), dict(top_p=0.5), dict(temperature=1e-3)):
        assert nn.choose(logits, **choice).tolist() == [[0], [2], [1]]
    huge = mg.tensor([[3e38, 0.0], [0.0, 3e38]])  # whose exponentials overflow
    assert nn.choose(huge).tolist() == [[0], [1]]


def test_wrong_options_of_choose_raise():
    logits = mg.zeros(1, 3)
    for choice in (dict(temperature=-1e-9), dict(temperature=float("nan")), dict(temperature=float("inf")),
                   dict(top_k=0), dict(top_k=-1), dict(top_p=0.0), dict(top_p=-0.1), dict(top_p=1.0 + 1e-9),
                   dict(temperature=0, top_k=0), dict(temperature=0, top_p=2.0)):  # fmt: skip
        with pytest.raises(ValueError, match="needs temperature ≥ 0, top_k ≥ 1 and 0 < top_p ≤ 1"):
            nn.choose(logits, **choice)


@pytest.mark.parametrize("count", [-1, 2.5, "3", None])
def test_a_wrong_number_of_tokens_raises(count):
    model = nn.GPT(nn.GPTConfig(5, block_size=4, n_layer=1, n_head=1, n_embd=4))
    with pytest.raises((TypeError, ValueError), match=f"max_new_tokens must .*, got {count!r}"):
        model.generate([[1, 2]], count)
    with pytest.raises(TypeError, match=r"top_k must be an int, got 2\.0"):
        model.generate([[1, 2]], 1, top_k=2.0)
    assert model.generate(mg.tensor([[1, 2]]), np.int64(0)).tolist() == [[1, 2]]


@pytest.mark.parametrize("choice", [dict(temperature=0), {}, dict(top_k=1), dict(top_p=0.5)], ids=repr)
def test_nothing_is_chosen_by_logits_that_are_not_finite(choice):
    for wrong in (np.nan, np.inf, -np.inf):
        with pytest.raises(FloatingPointError, match=f"the largest logit is {wrong}"):
            nn.choose(mg.tensor([[0.0, 1.0], [wrong, wrong]]), **choice)
    assert nn.choose(mg.tensor([[-np.inf, 1.0]]), **choice).tolist() == [[1]]


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_window_moves_on_when_it_is_full(use_cache):
    """Compare with a loop over rows, each of which sees its own tokens within the window."""
    size, new = 8, 14
    m = nn.GPT(nn.GPTConfig(vocab_size=11, block_size=size, n_layer=2, n_head=2, n_embd=8)).double()
    prompts = [[1, 2, 3, 4, 5, 6, 7], [4, 3, 2, 1, 0, 10, 9]]
    for row, written in zip(prompts, m.generate(prompts, new, temperature=0, use_cache=use_cache)):
        start = 0
        while len(row) < 7 + new:
            start = len(row) - (size + 1) // 2 if len(row) - start > size else start
            logits, _ = m(mg.tensor([row[start:]]))
            row = [*row, logits[0, -1].argmax().item()]
        assert written.tolist() == row


@pytest.mark.parametrize("use_cache", [True, False])
def test_each_step_is_told_when_it_is_drawn(use_cache):
    m = gpt()
    whole, told = m.generate([[1, 2, 3], [4, 5, 6]], 2 * BLOCK, generator=mg.Generator(3)), []

    def each(drawn):
        assert drawn.shape == (2,) and drawn.dtype == np.int64
        told.append(drawn.tolist())
        drawn[:] = 0  # it is the caller's

    again = m.generate([[1, 2, 3], [4, 5, 6]], 2 * BLOCK, generator=mg.Generator(3), use_cache=use_cache, each=each)
    assert [row.tolist() for row in again] == [row.tolist() for row in whole]
    assert [row.tolist()[-2 * BLOCK :] for row in whole] == [list(row) for row in zip(*told)]
    with pytest.raises(BrokenPipeError):
        m.train().generate([[1]], 3, each=lambda drawn: (_ for _ in ()).throw(BrokenPipeError))
    assert m.training


# ------------------------------------------------------------------------------------------------- one token at a time

BLOCK = 6
CHOICES = [dict(temperature=0), dict(temperature=1.5), dict(top_k=3), dict(top_p=0.9)]


def gpt(**options):
    m = nn.GPT(nn.GPTConfig(7, BLOCK, n_layer=2, n_head=2, n_embd=8, **options)).double()
    for p in m.parameters():
        p.data = p.data * 2
    return m


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_longer_finite_are_found(bad):
    m = gpt(positions="none")
    with mg.no_grad():
        m.norm.weight.fill_(0.0)
        m.lm_head = nn.Linear(8, 7).double()  # logits are its bias, whatever was written so far
        m.lm_head.bias[3] = bad
    for choice in CHOICES:
        with pytest.raises(FloatingPointError, match="the largest logit is"):
            m.generate(mg.tensor([[1]]), 4, **choice)


@pytest.mark.parametrize("change", ["batched", "hooked head", "half"])
def test_all_forms_and_dtypes_write(change):
    m = nn.GPT(nn.GPTConfig(7, BLOCK, n_layer=2, n_head=4, n_embd=8, n_kv_head=2)).double()
    if change == "batched":
        m.blocks[1].attn.impl = "batched"
    elif change == "hooked head":
        m.blocks[1].attn.register_head_hook("z", lambda layer, z: z * 2)
    else:
        m = m.half()
    written = m.generate(mg.tensor([[1, 2]]), 3 * BLOCK, temperature=0)
    assert written.shape == (1, 2 + 3 * BLOCK)
    if change != "half":
        assert written.tolist() == m.generate(mg.tensor([[1, 2]]), 3 * BLOCK, temperature=0, use_cache=False).tolist()
