"""Scores of patterns and of heads, some of them designed to score 1."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.study import stats as patterns
from minigrad.study.models import AttentionOnly
from minigrad.study.scores import head_scores, repeated_tokens
from minigrad.study.stats import HeadTable
from minigrad.study.trace import trace_heads

from .models import designed_head
from .models import wild_gpt as gpt


def near(x, expected, atol=1e-10):
    np.testing.assert_allclose(x, expected, rtol=0, atol=atol)


# ------------------------------------------------------------------------------------------------------------ patterns

A = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.5, 0.25, 0], [0.1, 0.2, 0.3, 0.4]])  # causal
TOKENS = np.array([[7, 8, 7, 8]])


def test_patterns_have_the_right_statistics():
    near(patterns.previous(A), (0.5 + 0.5 + 0.3) / 3)
    near(patterns.duplicate(A[None, None], TOKENS), [(0.25 + 0.2) / 2])  # of queries 2 and 3, to 0 and 1
    near(patterns.induction(A[None, None], TOKENS), [(0.5 + 0.3) / 2])  # to 1 and 2
    three = np.array([[7, 7, 8, 7]])
    near(patterns.duplicate(A[None, None], three), [(0.5 + 0.3) / 2])  # query 1 to 0, query 3 to 0 and 1
    near(patterns.induction(A[None, None], three), [(0.5 + 0.2 + 0.3) / 2])  # query 1 to 1, query 3 to 1 and 2
    assert np.isnan(patterns.duplicate(A[None, None], [[1, 2, 3, 4]])).all()
    near(patterns.attention_to(A, A == 0.5), (1 + 0.5) / 2)  # of the two queries that want some


# -------------------------------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize("kind", ["previous", "duplicate", "induction"])
def test_designed_heads_score_as_named(kind):
    model, path, head = designed_head(kind)
    table = head_scores(model)
    assert table[kind][path][head] >= 0.99 and table.best(kind)[:2] == (path, head)
    for other in {"previous", "duplicate", "induction"} - {kind}:
        assert table[other][path][head] < 0.1
    if kind == "induction":
        assert table["previous"]["blocks.0.attn"][0] >= 0.99
        tokens = repeated_tokens([7] * 8, 32, 33, mg.Generator(5))
        logits, loss = model(tokens[:, :-1], tokens[:, 1:].masked_fill(mg.arange(32) < 7, -100))
        assert (logits.argmax(-1) == tokens[:, 1:])[:, 7:].all() and loss.item() < 1e-6


@pytest.mark.slow
def test_scores_are_of_the_patterns_that_a_trace_has():
    model = gpt()
    table = head_scores(model, periods=(5,), n=6, seed=3)
    tokens = repeated_tokens([5] * 6, 13, 12, mg.Generator(3))
    with mg.no_grad(), trace_heads(model, grads=False) as trace:
        model(tokens)
    for path in trace:
        pattern = trace[path].pattern
        near(table["previous"][path], patterns.previous(pattern).mean(0))
        near(table["duplicate"][path], patterns.duplicate(pattern, tokens.numpy()))
        near(table["induction"][path], patterns.induction(pattern, tokens.numpy()))


def test_errors_of_scores():
    model = gpt()
    with pytest.raises(KeyError, match="no kind of score 'inductoin'; did you mean induction"):
        head_scores(model, ["inductoin"])
    for p in (7, 0):
        with pytest.raises(ValueError, match=f"no period {p}: .* there are 12 in block_size"):
            head_scores(model, periods=(p,))
    with pytest.raises(ValueError, match=r"period 5.*there are 4;"):
        head_scores(gpt(vocab_size=4), periods=(5,))
    with pytest.raises(ValueError, match="vocab_size"):
        head_scores(nn.MultiheadAttention(8, 2, batch_first=True))
    with pytest.raises(ValueError, match="33 tokens is longer than block_size 32"):
        AttentionOnly(8, 32)(mg.zeros(1, 33).to(mg.int64))


# --------------------------------------------------------------------------------------------------------------- table


def test_head_table():
    table = HeadTable({"a": {"0": [0.5, 0.25], "1": [2.0]}, "b": {"1": [1e-5]}}, heads={"1": [3]})
    assert table["a"]["1"].tolist() == [2.0] and table.stats == ("a", "b")
    assert table["a"]["1.3"] == 2.0 and table["a"]["0.1"] == 0.25
    assert table.best("a") == ("1", 3, 2.0) and table.best("b") == ("1", 3, 1e-5)
    assert str(table).splitlines() == [
        "head      a         b",
        "0.0   0.500         -",
        "0.1   0.250         -",
        "1.3   2.000  1.00e-05",
    ]
    assert table.sorted("a").rows == [("1", 3), ("0", 0), ("0", 1)] and table.rows[0] == ("0", 0)
    table["c"] = {"0": [math.nan, -1.0]}
    assert table.sorted("c").rows[0] == ("0", 1)
    with pytest.raises(KeyError, match="no stat 'd'; there are a, b, c"):
        table["d"]
    with pytest.raises(ValueError, match=r"'e' of 0 has shape \(3,\), for heads \[0, 1\]"):
        table["e"] = {"0": [1, 2, 3]}
    with pytest.raises(ValueError, match="no head has 'f'"):
        HeadTable({"f": {"0": [math.nan]}}).best("f")
