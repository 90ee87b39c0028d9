"""A statistic of heads is declared in one place, and appears wherever statistics are shown."""

import dataclasses
import json
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.__main__ import main
from minigrad.study import stats
from minigrad.study.stats import HeadTable
from minigrad.training.text import CharVocab

TEXT = "the cat sat on the mat."


@pytest.fixture
def peak():
    """A new statistic. It returns the values that it should have."""

    def peak(seen, tokens):
        return seen.pattern.max(-1).mean((0, 2))

    study.STATS["peak"] = study.Stat("mean max P", "0 to 1", "how much a query gives to its favourite key", peak)
    yield peak
    del study.STATS["peak"]


@pytest.fixture
def model():
    mg.manual_seed(0)
    return nn.GPT(nn.GPTConfig(len(CharVocab(TEXT)), 16, n_layer=2, n_head=2, n_embd=16)).eval()


def traced(model):
    idx = mg.tensor(CharVocab(TEXT).encode(TEXT)[None, :17])
    with study.trace_heads(model) as trace:
        model(idx[:, :-1], idx[:, 1:])[1].backward()
    return trace


def header(path):
    page = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_a_declaration_is_enough(peak, model, tmp_path, capsys):
    trace = traced(model)
    table = trace.table()
    assert table.stats[-1] == "peak" and " peak" in str(table)
    for path in trace:
        np.testing.assert_array_equal(table["peak"][path], trace[path].pattern.max(-1).mean((0, 2)))
    saved, vocab = tmp_path / "model.safetensors", CharVocab(TEXT)
    mg.save({"model": model, "chars": vocab.chars, "config": dataclasses.asdict(model.config)}, saved)
    assert main(["report", str(saved), "--text", TEXT[:17], "-o", str(tmp_path / "command.html")]) == 0
    assert " peak" in capsys.readouterr().out
    for path in trace.to_html(tmp_path / "trace.html"), tmp_path / "command.html":
        data = header(path)
        assert np.shape(data["stats"]["peak"]) == (2, 2)
        assert data["meanings"]["peak"] == "mean max P (0 to 1): how much a query gives to its favourite key"


@pytest.mark.parametrize("scale, least, most", [(1e-9, 1e-2, 0.5 + 1e-9), (1e5, 0.0, 1e-9)])
def test_nothing_passes_the_softmax_of_a_saturated_head(scale, least, most):
    mg.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, dtype=mg.float64, batch_first=True)
    layer.scale = scale
    with study.trace_heads(layer) as trace:
        (layer(mg.randn(3, 2, 8, dtype=mg.float64))[0] ** 2).sum().backward()
    table = trace.table()
    np.testing.assert_allclose(table["sink"][""], trace[0].pattern[..., 0].mean((0, 2)))
    assert ((least <= table["softmax_gain"][""]) & (table["softmax_gain"][""] <= most)).all()


def test_a_wide_table_goes_on_below():
    table = HeadTable({f"column {i}": {"blocks.0.attn": [i, 2.0 * i]} for i in range(30)})
    blocks = str(table).split("\n\n")
    assert all(len(line) <= 120 for line in str(table).splitlines()) and len(blocks) == 3
    columns = " ".join(block.splitlines()[0].removeprefix("head  ") for block in blocks)
    assert columns.split() == " ".join(table.stats).split()
    assert all(block.splitlines()[1].startswith("0.0   ") for block in blocks)
    for size, n in ((62, 1), (63, 2)):  # "head  ", 50, 2, and 62 fill a line
        assert len(str(HeadTable({"x" * 50: {"": [1.0]}, "y" * size: {"": [2.0]}})).split("\n\n")) == n
    alone = HeadTable({"x" * 130: {"": [1.0]}, "y": {"": [2.0]}})
    assert [line.split() for line in str(alone).splitlines()] == [
        ["head", "x" * 130], ["0.0", "1.000"], [], ["head", "y"], ["0.0", "2.000"],
    ]  # fmt: skip


def test_padding_on_the_left_is_not_counted():
    """An even head, and one that rests on the first key, have the same statistics with padding and without."""
    even = np.tril(np.ones((5, 5)))
    even /= even.sum(1, keepdims=True)
    resting = np.zeros((5, 5))
    resting[:, 0] = 1.0
    for pattern in even, resting:
        padded = np.zeros((8, 8))
        padded[3:, 3:] = pattern
        for statistic in stats.entropy, stats.sink:
            assert statistic(padded) == pytest.approx(statistic(pattern), abs=1e-15)
    assert stats.sink(padded) == 1.0
