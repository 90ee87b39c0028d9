"""study with extreme arguments and sizes of 0 and 1, and the exact text of tables and ledgers."""

import math
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.study import layers
from minigrad.study import stats as patterns
from minigrad.study.ledger import _numbers

from .models import ATTN, designed_head, gpt, tokens


def near(x, expected, rtol=1e-10):
    np.testing.assert_allclose(x, expected, rtol=rtol, atol=1e-12)


# ------------------------------------------------------------------------------------------------- patterns and tables


def test_entropy_is_relative_to_what_a_query_can_see():
    half = [0.5, 0.5]
    for pattern, expected in (
        ([[1, 0], half], 1.0),  # causal: query 0 sees one key, and does not count
        ([half, half], 1.0),
        ([half, [1, 0]], 0.5),  # not causal: all see two
        ([[1, 0], [1, 0]], 0.0),
        ([[0, 1], half], 0.5),
        ([[0.5, 0.5, 0], [0.5, 0, 0.5]], math.log(2) / math.log(3)),  # T is not S
        ([[1, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]], (1 + math.log(2) / math.log(3)) / 2),
        ([[0, 0], half], 1.0),
        ([[0, 0], [0, 0]], math.nan),
        ([[1.0], [1.0]], math.nan),
    ):
        near(patterns.entropy(pattern), expected)
    near(patterns.entropy([[1.0]], normalised=False), 0)
    near(patterns.entropy([[0.0]], normalised=False), math.nan)
    near(patterns.previous([[1.0, 0.0], [0.25, 0.75]]), 0.25)
    near(patterns.previous([[1.0]]), math.nan)


def traced_loss():
    return gpt()(*tokens())[1]


# ------------------------------------------------------------------------------------------------- layers and circuits


def test_layers_by_path_and_number():
    model = gpt()
    both = ["blocks.0.attn", ATTN]
    for names, paths in ((None, both), (1, both[1:]), (ATTN, both[1:]), ([1, 0], both), ([0, both[0]], both[:1])):
        assert list(layers.attention_layers(model, names)) == paths
    assert list(layers.attention_layers(model.blocks[0].attn)) == [""]
    for name in (2, -1, "blocks.2.attn", "attn"):
        with pytest.raises(KeyError, match="no attention layer"):
            layers.attention_layers(model, name)
    with pytest.raises(ValueError, match="no layers are named: None means all"):
        layers.attention_layers(model, [])
    with pytest.raises(ValueError, match=r"Linear has no nn\.MultiheadAttention in it"):
        layers.attention_layers(nn.Linear(2, 2))
    for head in (4, -1):
        with pytest.raises(ValueError, match=f"there is no head {head}: this layer has 4, from 0 on"):
            layers.head_weights(model.blocks[0].attn, head)


def test_designed_scores_are_those_of_the_docstring():
    V, T, beta = 5, 6, 3.0
    t = mg.tensor([[0, 3, 0, 3, 1, 0]])
    previous = beta * (np.arange(T)[:, None] - 1 == np.arange(T))
    same = np.array(t.tolist()[0])[:, None] == np.array(t.tolist()[0])
    for kind, expected in (("previous", previous), ("duplicate", beta * same - beta * np.eye(T))):
        model, path, head = designed_head(kind, V, T, beta)
        with study.trace_heads(model, grads=False) as trace:
            model(t)
        near(trace[path].scores[0, head], expected, 1e-5)
        assert model.blocks[-1].attn.scale == 1 and len(model.blocks) == 1
    model, path, _ = designed_head("induction", V, T, 20.0)
    assert path == ATTN and model.wte.weight.shape == (V, 3 * V + T)
    near(model.lm_head.weight.abs().sum(1).detach().numpy(), 20.0)


# --------------------------------------------------------------------------------------------------------------- scores


# -------------------------------------------------------------------------------------- importance, recording


def test_ranks_and_groups():
    importance = {"a": np.array([0.5, -1.0]), "b": np.array([0.25])}
    assert study.ranked(importance) == [("a", 1), ("b", 0), ("a", 0)]
    assert study.grouped([("a", 1), ("b", 0), ("a", 0)]) == {"a": [1, 0], "b": [0]} and study.grouped([]) == {}


# ------------------------------------------------------------------------------------------- traces, identities, ledger


def test_the_ledger_prints_its_steps():
    x = mg.tensor([3.0, 4.0], dtype=mg.float64, requires_grad=True)
    book = study.ledger((x * 2.0).sum())
    text = str(book)
    assert re.match(r"backward of all: 2 of 2 steps, made at test_edges\.py:\d+\n  1 sum\n", text)
    y = x * 2.0
    assert "  1 sum   made at test_edges.py:" in str(study.ledger(y.sum()))
    assert "    upstream  |dy| = 1   ()\n" in text
    two = str(study.ledger((x * x).sum(), names={"x": x})).splitlines()
    assert two[-2:] == [
        "    gives     |dx| = 5   (2,)   contribution 1 of 2",
        " " * 14 + "|dx| = 5   (2,)   contribution 2 of 2",
    ]
    assert book.entries[1].gives[0].norm == pytest.approx(2 * math.sqrt(2)) and "|da| = 2.828   (2,)" in text
    assert study.ledger(traced_loss(), ATTN, head=2).title.startswith(f"backward of {ATTN}, head 2: ")
    assert _numbers(np.arange(4096.0))[0].startswith("[0.") and "..." not in "".join(_numbers(np.arange(4096.0)))
    assert "..." in "".join(_numbers(np.arange(4097.0))) and max(map(len, _numbers(np.arange(99.0)))) <= 100
    assert _numbers(np.array([1 / 3])) == ["[0.3333]"]
