"""The examples about heads, run small: what they print is right, and what they write is there."""

import re
import xml.etree.ElementTree as xml

import numpy as np
import pytest

from minigrad.training import runs

from .scripts import EXAMPLES, load


def test_backprop_through_heads(capsys, tmp_path):
    backprop = load("backprop_through_heads")
    assert backprop.main(["--out", str(tmp_path / "backward.dot")]) == 0
    printed = capsys.readouterr().out
    number = r"-?\d+\.\d{4}"
    rows = re.findall(rf"^ {{6,}}(?:{number} +)*{number}$", printed, re.MULTILINE)
    assert len(rows) == 2 * (3 + 6 * 3 + 2 + 3 * 4)
    for row in rows:  # the same numbers by hand, by autograd and by differences, and the pattern twice
        numbers = [float(x) for x in row.split()]
        columns = np.array(numbers).reshape(2 if len(numbers) == 6 and numbers[:3] == numbers[3:] else 3, -1)
        np.testing.assert_allclose(columns - columns[0], 0, atol=1.01e-4)
    assert float(re.search(r"largest disagreement: (\S+)", printed)[1]) < 1e-8 and "FAILS" not in printed
    text = (tmp_path / "backward.dot").read_text(encoding="utf-8")
    for name in ("dq", "dk", "dv", "dpattern", "dqk", "dz", "in_proj_weight.grad"):
        assert name in text


@pytest.mark.needs("dot")
def test_backprop_between_heads(capsys, tmp_path):
    assert load("backprop_between_heads").main(["--out", str(tmp_path / "edges.svg")]) == 0
    assert (tmp_path / "edges.svg").read_text().count("head 0") >= 2
    printed = capsys.readouterr().out
    rows = re.findall(r"^ +((?:to|all|⟨z).*?)  +(-?\d+\.\d{4}(?: +-?\d+\.\d{4})*)$", printed, re.MULTILINE)
    assert len(rows) == 2 * (3 + 3 + 1 + 1 + 1)
    sums = {}
    for name, row in rows:  # by hand, by study.flow, and by differences
        numbers = [float(x) for x in row.split()]
        assert len(numbers) == (2 if "⟨z" in name else 3)
        np.testing.assert_allclose(numbers, numbers[0], atol=1.01e-4)
        sums[name] = sums.get(name, 0.0) + numbers[0]
    edges = sum(number for name, number in sums.items() if name.startswith("to "))
    assert edges == pytest.approx(sums["all together"], abs=2e-3) == sums["⟨z, dz⟩"]
    edge, S, dS, products = (
        np.array(re.search(rf"^ +{name} +(-?\d.*)$", printed, re.MULTILINE)[1].split(), float)
        for name in ("to blocks.1.attn head 0, k", "S = q kᵀ", "dS", "dS S")
    )
    np.testing.assert_allclose(S * dS, products, atol=3e-4)
    assert products.sum() == pytest.approx(edge[0], abs=3e-4)
    assert float(re.search(r"largest disagreement, of 42 edges: (\S+)", printed)[1]) < 1e-8 and "FAILS" not in printed


def test_the_picture_of_the_report_has_all_its_colours():
    data = (EXAMPLES / "induction_heads.png").read_bytes()
    width, height, bits, kind = *np.frombuffer(data[16:24], ">u4").tolist(), data[24], data[25]
    assert (width, height, bits, kind) == (1280, 900, 8, 2)  # 2: RGB; a palette, 3, has bands where colours are mixed
    assert len(data) < 250_000


@pytest.mark.needs("dot")
def test_the_backward_graph_in_the_repo_is_the_one_that_it_draws(tmp_path):
    pytest.importorskip("graphviz")
    load("backprop_through_heads").main(["--out", str(tmp_path / "backward.svg")])

    def texts(svg):
        return sorted("".join(e.itertext()).strip() for e in xml.parse(svg).iter("{http://www.w3.org/2000/svg}text"))

    assert texts(tmp_path / "backward.svg") == texts(EXAMPLES / "backprop_through_heads.svg")


@pytest.mark.slow
def test_prune_heads_and_head_report(capsys, tmp_path, monkeypatch):
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat, and the mat lay under the cat. " * 400, encoding="utf-8")
    prune = load("prune_heads")
    prune.SIZES.update(block_size=16, n_layer=2, n_head=4, n_embd=32)
    argv = ["--text", str(book), "--steps", "3", "--batches", "1", "--out", str(tmp_path / "prune"), "--remove", "5"]
    assert prune.main(argv) == 0
    printed = capsys.readouterr().out
    table = re.findall(r"^ +(\d+)((?: +\d\.\d{4}){3})$", printed, re.MULTILINE)
    assert [int(k) for k, _ in table] == list(range(9))
    for k in (0, 8):  # with all heads, and with none, all rankings are one
        assert len(set(table[k][1].split())) == 1
    assert float(re.search(r"silenced but for (\S+) of the largest", printed)[1]) <= 1e-6
    before, after = (int(n.replace(",", "")) for n in re.findall(r"(?:before|after): +([\d,]+) parameters", printed))
    assert before - after == 5 * 4 * 8 * 32  # of each head W_Q, W_K, W_V and W_O, 8 × 32 each
    assert (tmp_path / "prune" / "prune.png").read_bytes().startswith(b"\x89PNG")
    pruned = tmp_path / "prune" / "pruned.safetensors"
    model, _, _ = runs.load_char_model(pruned)
    assert sum(map(len, model.config.pruned.values())) == 5

    report, drawn = load("head_report"), []
    draw = report.viz.heads_grid
    monkeypatch.setattr(report.viz, "heads_grid", lambda *args, **rest: (drawn.append(rest), draw(*args, **rest)))
    argv = ["--checkpoint", str(pruned), "--text", "the cat sat on the mat", "--out", str(tmp_path / "heads")]
    assert report.main(argv) == 0
    printed = capsys.readouterr().out
    rows = re.findall(r"^blocks\.\d\.attn +\d", printed, re.MULTILINE)
    assert len(rows) == 3 * 3 and "FAILS" not in printed  # one table goes on below
    assert drawn == [{"tokens": "the cat sat on t", "title": "the cat sat on the mat"}]  # what the model could read
    for name in ("heads.html", "heads.png", "backward.dot", "ledger.txt"):
        assert (tmp_path / "heads" / name).stat().st_size > 1000
    ledger = (tmp_path / "heads" / "ledger.txt").read_text(encoding="utf-8")
    assert "(1, 16, 32)" in ledger  # as much of the text as the model can read
    assert "dpattern = dz vᵀ" in ledger and "agrees" in ledger and "DIFFERS" not in ledger
    assert prune.main(["--checkpoint", str(pruned), "--text", str(book), "--batches", "1", "--remove", "1",
                       "--out", str(tmp_path)]) == 0  # fmt: skip
    for script, argv, message in (
        (report, ["--checkpoint", str(tmp_path / "none")], "there is no checkpoint"),
        (report, ["--checkpoint", str(pruned), "--text", "t"], "--text needs two characters"),
        (prune, ["--checkpoint", str(pruned), "--text", str(book), "--remove", "9"], "--remove must be from 0 to 3"),
        (prune, ["--text", str(tmp_path / "none.txt")], "none.txt"),
        (load("backprop_through_heads"), ["--out", "x.pdf"], "the file's name must end with .svg or .png or .dot"),
    ):
        with pytest.raises(SystemExit, match="2"):
            script.main(argv)
        assert message in capsys.readouterr().err
