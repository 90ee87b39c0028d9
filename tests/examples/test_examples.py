"""The examples, with small sizes, print and find the right numbers."""

import math
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.__main__ import main
from minigrad.training import runs, text

from .scripts import EXAMPLES, load


def near(x, expected):
    np.testing.assert_allclose(x, expected, atol=5e-5)


@pytest.mark.parametrize("name", sorted({path.stem for path in EXAMPLES.glob("*.py")} - {"check_gradients", "my_ops"}))
def test_each_says_what_it_does(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        load(name).main(["--help"])
    assert f"examples/{name}.py" in capsys.readouterr().out


def test_the_check_finds_the_mistake_in_my_ops(capsys):
    assert main(["check", str(EXAMPLES / "my_ops.py"), "--order", "1"]) == 1
    rows = re.findall(r"^(PASS|FAIL) +(softsign|gaussian) .*case\((.*)\)$", capsys.readouterr().out, re.MULTILINE)
    assert {row[:2] for row in rows} == {("PASS", "softsign"), ("FAIL", "gaussian")}


def test_char_lm(capsys, tmp_path):
    char_lm = load("char_lm")
    (tmp_path / "book").write_text("the cat sat on the mat. " * 100)
    char_lm.main(["--steps", "8", "--text", str(tmp_path / "book"), "--out", str(tmp_path / "model.safetensors")])
    printed = capsys.readouterr().out
    losses = re.search(r"step 8: training loss (\d\.\d{4}), validation loss (\d\.\d{4})\n", printed)
    model, vocab, _ = runs.load_char_model(tmp_path / "model.safetensors")
    held = text.split(vocab.encode((tmp_path / "book").read_text()))[1]
    by_hand = [model(mg.tensor(x), mg.tensor(y))[1].item() for x, y in text.fixed_batches(held, char_lm.T, 12)]
    assert float(losses[2]) == pytest.approx(np.mean(by_hand), abs=1e-4) and float(losses[1]) < math.log(len(vocab))
    assert len(printed.splitlines()[-1]) == 302 - 1


def test_worked_examples(capsys):
    examples = load("worked_examples")
    near(examples.cat_sleeps().numpy(), [[0.9717, 1.9434, 0.5, 1], [0.5, 1, 0.9717, 1.9434]])
    near(examples.three_tokens().numpy(), [[0.7967, 0, 0, 1.2483], [1.2033, 0, 0, 1.2483], [1, 0, 0, 1.3333]])
    printed = capsys.readouterr().out
    assert len(re.findall(r"largest difference [0-9]e-1[5-9]|largest difference 0e\+00", printed)) == 6
    rows = [[float(x) for x in re.findall(r"-?\d+\.\d{4}", line)] for line in printed.splitlines()]
    for row in ([0.9717, 0.0283], [0.1978, 0.4011, 0.4011], [0.2483, 0.2483, 0.5035], [0.0, 0.7071, 0.7071],
                [0.2483, 0.5035, 0.2483], [0.3333, 0.3333, 0.3333], [0.7071, 0.7071, 1.4142], [0.0, 2.0]):  # fmt: skip
        assert row in rows, row


@pytest.mark.slow
def test_head_count(capsys):
    load("head_count").main(["--steps", "4", "--seeds", "1"])
    rows = re.findall(r"^ +(\d+) +(\d+)  (\d\.\d+) \(", capsys.readouterr().out, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16] and all(1 < float(row[2]) < 4 for row in rows)


@pytest.mark.slow
def test_rank_heads(capsys, monkeypatch):
    rank = load("rank_heads")
    monkeypatch.setattr(rank, "SIZES", dict(block_size=64, n_layer=2, n_head=4, n_embd=32))
    rank.main(["--steps", "3"])
    printed = capsys.readouterr().out
    table = re.findall(r"^ +(\d+)((?: +\d\.\d{4}){3})$", printed, re.MULTILINE)
    assert [int(k) for k, _ in table] == list(range(9))
    for k in (0, 8):  # with all heads, and with none, all rankings are one
        assert len(set(table[k][1].split())) == 1


def test_scores_that_are_too_large_close_the_softmax():
    measured = {16: (0.213, 0.226), 64: (0.212, 0.098), 256: (0.220, 0.0073), 1024: (0.219, 5.5e-5)}  # independently
    for d_k, (scaled, unscaled) in measured.items():
        found = [load("saturation").gradient_and_top(d_k, scale)[0] for scale in (d_k**-0.5, 1)]
        assert found[0] == pytest.approx(scaled, rel=0.1)
        assert unscaled / 4 < found[1] < unscaled * 4  # medians of numbers over many orders of magnitude


@pytest.mark.slow
def test_large_scores_are_learned_late_and_normed_ones_are_not(capsys):
    load("saturation").main(["--steps", "150"])
    rows = [re.findall(r"(\d+)%", line) for line in capsys.readouterr().out.splitlines()[-3:]]
    usual, large, normed = (int(row[1]) for row in rows)  # at step 100
    assert large < 85 < 95 < min(usual, normed)


def test_the_starts_differ_by_the_scores_alone():
    example = load("saturation")
    (keys, values, asked), answer = example.draw(5, mg.Generator(0))
    for k, v, a, right in zip(*(x.tolist() for x in (keys, values, asked, answer))):
        assert len(set(k)) == example.S and sorted(a) == sorted(k) and a != k
        assert right == [v[k.index(each)] for each in a]
    models = []
    for options in example.TRAININGS.values():
        mg.manual_seed(1)
        models.append(example.Lookup(*options))
    usual, large, normed = ([p.detach().numpy() for p in model.parameters()] for model in models)
    for a, b, c in zip(usual, large, normed):
        factor = np.repeat([4, 4, 1], example.C)[:, None] if len(a) == 3 * example.C else 1
        np.testing.assert_array_equal(b, factor * a)
        np.testing.assert_array_equal(c, b)


def test_a_loss_before_training_is_that_of_the_untrained_model():
    count = load("head_count")
    ids, vocab = np.arange(800) % 7, text.CharVocab("abcdefg")
    batches = text.fixed_batches(ids, 64, 2)
    mg.manual_seed(3)
    model = nn.GPT(nn.GPTConfig(7, n_head=4, **count.SIZES))
    expected = np.mean([model(mg.tensor(x), mg.tensor(y))[1].item() for x, y in batches])
    assert count.validation_loss(4, vocab, ids, batches, 0, 3) == pytest.approx(expected, rel=1e-6)
