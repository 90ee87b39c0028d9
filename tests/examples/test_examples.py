"""The examples, run small: what they print and find is right."""

import math
import re

import numpy as np
import pytest

import minigrad as mg

from .scripts import load


def near(x, expected):
    np.testing.assert_allclose(x, expected, atol=5e-5)


def test_worked_examples(capsys, tmp_path):
    examples = load("worked_examples")
    near(examples.cat_sleeps().numpy(), [[0.9717, 1.9434, 0.5, 1], [0.5, 1, 0.9717, 1.9434]])
    near(
        examples.three_tokens(tmp_path / "heads.png").numpy(),
        [[0.7967, 0, 0, 1.2483], [1.2033, 0, 0, 1.2483], [1, 0, 0, 1.3333]],
    )
    printed = capsys.readouterr().out
    assert len(re.findall(r"largest difference [0-9]e-1[5-9]|largest difference 0e\+00", printed)) == 6
    rows = [[float(x) for x in re.findall(r"-?\d+\.\d{4}", line)] for line in printed.splitlines()]
    for row in ([0.9717, 0.0283], [0.1978, 0.4011, 0.4011], [0.2483, 0.2483, 0.5035], [0.0, 0.7071, 0.7071],
                [0.2483, 0.5035, 0.2483], [0.3333, 0.3333, 0.3333], [0.7071, 0.7071, 1.4142], [0.0, 2.0]):  # fmt: skip
        assert row in rows, row


def test_reverse_sequence(capsys, tmp_path):
    reverse = load("reverse_sequence")
    src, tgt, answer = reverse.words(5, mg.Generator(0))
    for s, t, a in zip(src.tolist(), tgt.tolist(), answer.tolist()):
        n = s.index(reverse.END)
        assert 3 <= n <= reverse.LONGEST and a[:n] == s[:n][::-1] and a[n] == reverse.END
        assert t == [reverse.BEGIN, *a[:-1]] and {*s[n + 1 :], *a[n + 1 :]} <= {reverse.PAD}
    assert reverse.main(["--steps", "2", "--out", str(tmp_path / "reads.png")]) == 0
    assert (tmp_path / "reads.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"\d+\.\d% of 1000 new words.*attention -> [a-z]*\n", capsys.readouterr().out, re.DOTALL)


@pytest.mark.slow
def test_reverse_sequence_is_learned():
    reverse = load("reverse_sequence")
    assert reverse.exact(reverse.train(reverse.STEPS)) >= 0.99


@pytest.mark.slow
def test_scale(capsys, tmp_path):
    assert load("scale").main(["--out", str(tmp_path / "scale.png")]) == 0
    rows = {
        int(row[0]): [float(x) for x in row[1:]] for row in map(str.split, capsys.readouterr().out.splitlines()[1:-1])
    }
    measured = {16: (0.213, 0.226), 64: (0.212, 0.098), 256: (0.220, 0.0073), 1024: (0.219, 5.5e-5)}  # independently
    for d_k, (scaled, unscaled) in measured.items():
        assert rows[d_k][0] == pytest.approx(scaled, rel=0.1)
        assert unscaled / 4 < rows[d_k][1] < unscaled * 4  # medians of numbers over many orders of magnitude
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_head_count(capsys, tmp_path):
    count = load("head_count")
    assert count.main(["--steps", "2", "--seeds", "1", "--out", str(tmp_path / "heads.png")]) == 0
    rows = re.findall(r"^ +(\d+) +(\d+)  (\d\.\d+) \(", capsys.readouterr().out, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16] and all(1 < float(row[2]) < 6 for row in rows)
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")


def test_microgpt(capsys):
    """It learns, and what it makes up are words of letters; captured and eager steps give the same."""
    assert load("microgpt").main(["--steps", "200"]) == 0
    out = capsys.readouterr().out
    losses = [float(loss) for loss in re.findall(r"mean loss (\d\.\d+)", out)]
    assert len(losses) == 2 and losses[1] < 2.7 < losses[0] < math.log(27)
    made_up = out.splitlines()[-1].split(" ")
    assert len(made_up) == 20 and sum(word.isalpha() for word in made_up) >= 18
    assert load("microgpt").main(["--steps", "200", "--no-capture"]) == 0
    assert capsys.readouterr().out == out


def test_kv_cache(capsys):
    assert load("kv_cache").main(["--prompt", "4", "--tokens", "2"]) == 0
    rows = [line.replace(",", "").split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[:2] for row in rows] == [[kind, batch] for kind in ("MHA", "GQA", "MQA") for batch in ("1", "8")]
    assert [int(row[3]) for row in rows] == [4 * 2 * 256 * n * 32 * 4 * batch for n in (4, 2, 1) for batch in (1, 8)]
    assert all(float(row[6]) > 0 for row in rows)
