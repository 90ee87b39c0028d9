"""python -m minigrad.study: reports and ledgers from a checkpoint, and what it says to bad input."""

import dataclasses
import re
import subprocess
import sys

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.study.__main__ import main
from minigrad.training import checkpoint, runs
from minigrad.training.text import CharVocab

TEXT = "the cat sat on the mat."


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The path of a checkpoint, and its model."""
    mg.manual_seed(0)
    vocab = CharVocab(TEXT + "<>/&")
    model = nn.GPT(nn.GPTConfig(len(vocab), 16, n_layer=2, n_head=2, n_embd=16, dropout=0.1))
    path = tmp_path_factory.mktemp("run") / "best.safetensors"
    write(path, model, {"chars": vocab.chars, "config": dataclasses.asdict(model.config)})
    return path, model.eval()


def write(path, model, meta):
    checkpoint.save(path, *checkpoint.pack(model, **meta))


def run(*argv):
    """The exit code."""
    try:
        return main([str(a) for a in argv])
    except SystemExit as stop:
        return stop.code


def test_report(saved, tmp_path, capsys):
    path, model = saved
    assert run("report", path, "--text", TEXT[:17], "-o", tmp_path / "heads.html") == 0
    printed = capsys.readouterr().out
    vocab = runs.load_char_model(path)[1]
    x, y = (mg.tensor(vocab.encode(part)[None]) for part in (TEXT[:16], TEXT[1:17]))
    with study.trace_heads(model) as trace:
        _, loss = model(x, y)
        loss.backward()
    assert str(trace.table()) in printed and f"loss {loss.item():.3f} nats per character" in printed
    page = (tmp_path / "heads.html").read_text(encoding="utf-8")
    assert "ablation" in page and "best.safetensors" in page and "http:" not in page


def test_a_long_text_is_several_sequences(saved, tmp_path, capsys):
    path, _ = saved
    assert run("report", path, "--text", TEXT * 3, "-o", tmp_path / "heads.html", "--layers", "1", "--heads", "0") == 0
    out, err = capsys.readouterr()
    assert "the last 4 characters are left out: the model reads 16 at once" in err
    assert re.findall(r"^(blocks\S+) +(\d)", out, re.MULTILINE) == [("blocks.1.attn", "0")] * 2  # it goes on below


def test_ledger(saved, capsys):
    path, model = saved
    assert run("ledger", path, "--text", TEXT[:9], "--scope", "blocks.1.attn", "--head", 1, "--check") == 0
    printed = capsys.readouterr().out
    vocab = runs.load_char_model(path)[1]
    x, y = (mg.tensor(vocab.encode(part)[None]) for part in (TEXT[:8], TEXT[1:9]))
    model.blocks[1].attn.impl = model.blocks[0].attn.impl = "batched"
    book = study.ledger(lambda: model(x, y)[1], "blocks.1.attn", 1, fd_check=True, names=model)
    made = re.compile(r"   made at .*")
    assert made.sub("", printed) == made.sub("", f"{book}\n") and "agrees" in printed


def test_a_step_that_differs_is_an_exit_status(saved, capsys, monkeypatch):
    from minigrad.ops.attention import AttentionPattern

    right = AttentionPattern.backward
    monkeypatch.setattr(AttentionPattern, "backward", lambda self, dy: (right(self, dy)[0] * 2, None))
    assert run("ledger", saved[0], "--text", TEXT[:9], "--scope", "blocks.1.attn", "--check") == 1
    assert "DIFFERS" in capsys.readouterr().out


LAYERS = ["report", "CHECKPOINT", "--text", TEXT, "--layers"]


@pytest.mark.parametrize(
    "argv, message",
    [
        (["report", "CHECKPOINT", "--text", "é"], r"the vocabulary lacks 'é'"),
        (["report", "CHECKPOINT", "--text", "t"], r"--text needs two characters at least"),
        ([*LAYERS, "blocks.1.atn"], r"no attention layer 'blocks.1.atn'; did you mean blocks.1.attn"),
        ([*LAYERS, "2"], r"no attention layer 2; there are blocks.0.attn"),
        (["report", "CHECKPOINT", "--text", TEXT, "--heads", "5"], r"no head \[5\]: this layer has 2"),
        (["report", "CHECKPOINT", "--text", TEXT, "--heads", "a"], r"--heads must be a whole number, not 'a'"),
        (["report", "CHECKPOINT", "--text", TEXT, "--limit", "0.01"], r"limit"),
        (["report", "CHECKPOINT", "--text", TEXT, "--limit", "nan"], r"--limit must be above 0 .*, not nan"),
        (["report", "CHECKPOINT", "--text", TEXT, "-o", "/proc/nix/heads.html"], r"/proc/nix"),
        (["report", "CHECKPOINT", "--text", TEXT, "-o", "/"], r"--out / is a folder"),
        (["ledger", "CHECKPOINT", "--text", TEXT, "--scope", "blok"], r"no module 'blok'; did you mean blocks"),
        (["ledger", "CHECKPOINT", "--text", TEXT, "--scope", "blocks.1.mlp.dropout"], r"there is no module"),
        (["ledger", "CHECKPOINT", "--text", TEXT, "--scope", "blocks.1.attn", "--head", "2"], r"no head \[2\]"),
        (["ledger", "CHECKPOINT", "--text", TEXT, "--head", "0"], r"--head needs the --scope of one attention layer"),
        (["ledger", "missing.safetensors", "--text", TEXT], r"there is no checkpoint missing.safetensors"),
        (["report", __file__, "--text", TEXT], r"is damaged, cut short or no checkpoint at all"),
    ],
)
def test_bad_input_gets_one_line(saved, capsys, argv, message):
    assert run(*[saved[0] if a == "CHECKPOINT" else a for a in argv]) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[-1].startswith("study: ") and re.search(message, err[-1])


def test_a_checkpoint_of_something_else(saved, tmp_path, capsys):
    write(tmp_path / "other.safetensors", saved[1], {"step": 3})
    assert run("report", tmp_path / "other.safetensors", "--text", TEXT) == 2
    assert "holds no character model: it has no 'chars'" in capsys.readouterr().err


def test_a_checkpoint_from_before_configs_were_kept(saved, tmp_path):
    path, model = saved
    settings = dict(n_layer=2, n_head=2, n_embd=16, block_size=16, dropout=0.1, lr=1.0)
    write(tmp_path / "old.safetensors", model, {"chars": CharVocab(TEXT + "<>/&").chars, "settings": settings})
    (old, vocab, _), (new, _, _) = (runs.load_char_model(p) for p in (tmp_path / "old.safetensors", path))
    idx = mg.tensor(vocab.encode(TEXT[:8])[None])
    np.testing.assert_array_equal(old.eval()(idx)[0].detach().numpy(), new.eval()(idx)[0].detach().numpy())


def test_the_command_runs():
    command = [sys.executable, "-m", "minigrad.study", "ledger", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--scope" in shown.stdout and "--head" in shown.stdout


@pytest.mark.needs("dot")
def test_flow(saved, tmp_path, capsys):
    path, model = saved
    assert run("flow", path, "--text", TEXT[:17], "-o", tmp_path / "flow.svg") == 0
    printed = capsys.readouterr().out
    vocab = runs.load_char_model(path)[1]
    x, y = (mg.tensor(vocab.encode(part)[None]) for part in (TEXT[:16], TEXT[1:17]))
    assert str(study.flow(model, (x, y))) in printed and (tmp_path / "flow.svg").is_file()
    assert run("flow", path, "--text", TEXT[:17], "--of", "blocks.0.attn:1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert all("blocks.0.attn head 1" in line for line in lines[1:] if "smaller" not in line)
    for of in "tokens", "logits", "blocks.0.mlp":
        assert run("flow", path, "--text", TEXT[:17], "--of", of) == 0
        assert of in capsys.readouterr().out
    for of, message in {
        "blocks.0.attn:7": "there is no node 'blocks.0.attn head 7'",
        "blocks.0.atn:1": "did you mean blocks.0.attn head 1",
        "blocks.0.attn:x": "must be a whole number",
    }.items():
        assert run("flow", path, "--text", TEXT[:17], "--of", of) == 2
        assert message in capsys.readouterr().err
    assert run("flow", path, "--text", TEXT[:17], "-o", tmp_path / "flow.gif") == 2
    assert "not '.gif'" in capsys.readouterr().err
