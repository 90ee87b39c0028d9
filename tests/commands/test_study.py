"""minigrad report, flow, importance and scores: output, files, and errors for bad input."""

import dataclasses
import re
import subprocess
import sys
import zlib

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.__main__ import main
from minigrad.nn import functional as F
from minigrad.training import runs
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
    mg.save({"model": model, **meta}, path)


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
    assert str(trace.table()) in printed and printed.startswith(f"loss in nats per character: {loss.item():.4f}\n")
    page = (tmp_path / "heads.html").read_text(encoding="utf-8")
    assert f"loss in nats per character: {loss.item():.4f}" in page
    assert '"ablate":' in page and "best.safetensors" in page and "http:" not in page


@pytest.fixture(scope="module")
def trained(saved, tmp_path_factory):
    """The checkpoint of a run, and the text it keeps for validation."""
    folder, generator = tmp_path_factory.mktemp("trained"), np.random.default_rng(0)
    corpus = "".join(generator.choice([*TEXT], 5000))
    (folder / "book.txt").write_text(corpus, encoding="utf-8")
    about = {"chars": CharVocab(TEXT + "<>/&").chars, "config": dataclasses.asdict(saved[1].config)}
    about |= {"settings": {"text": [str(folder / "book.txt")]}, "crc": zlib.crc32(corpus.encode())}
    write(folder / "best.safetensors", saved[1], about)
    return folder / "best.safetensors", corpus[4500:]


def test_the_runs_own_text_is_read_where_none_is_given(trained, tmp_path, capsys):
    path, kept = trained
    vocab, model = runs.load_char_model(path)[1], runs.load_char_model(path)[0].eval()
    ids = vocab.encode(kept)[np.arange(0, 16 * 32, 32)[:, None] + np.arange(17)]  # 31 would fit side by side
    x, y = mg.tensor(ids[:, :-1]), mg.tensor(ids[:, 1:])
    assert run("importance", path, "--steps", 2) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1] == "16 sequences of 16 characters"
    each = [study.head_importance(model, [(x[b : b + 1], y[b : b + 1])]) for b in range(16)]
    rows = {line.split()[0]: line.split()[1:3] for line in printed.splitlines() if line[:2] in ("0.", "1.")}
    for layer in range(2):
        for h in range(2):
            values = np.array([found[f"{layer}.{h}"] for found in each])
            mean, error = rows[f"{layer}.{h}"]
            assert float(mean) == pytest.approx(values.mean(), abs=6e-4)
            assert float(error) == pytest.approx(values.std(ddof=1) / 4, abs=6e-4)
    assert run("flow", path) == 0
    printed = capsys.readouterr().out
    assert str(study.flow(model, (x, y))) in printed and "±: standard error over the sequences" in printed
    assert run("flow", path, "--method", "cut", "--top", 3) == 0
    assert str(study.flow(model, (x, y), method="cut", top=3, errors=True)) in capsys.readouterr().out
    assert run("report", path, "-o", tmp_path / "h.html") == 0
    assert "\n4 sequences of 16 characters\n" in capsys.readouterr().out


def test_report_of_a_run_that_kept_models(trained, saved, tmp_path, capsys):
    path, _ = trained
    about = mg.load(path)
    for step in (0, 5, 20):
        mg.save({**about, "step": step}, path.parent / f"step-{step:08}.safetensors")
    try:
        assert run("report", path.parent, "-o", tmp_path / "h.html") == 0
        page = (tmp_path / "h.html").read_text(encoding="utf-8")
        assert '"history": {"steps": [0, 5, 20]' in page and '"title": "What the next step teaches"' in page
        assert run("report", path, "-o", tmp_path / "h.html") == 0  # a single file
        assert '"history": null' in (tmp_path / "h.html").read_text(encoding="utf-8")
    finally:
        for file in path.parent.glob("step-*"):
            file.unlink()


def test_report_by_prediction(trained, saved, tmp_path, capsys):
    assert run("report", trained[0], "--by-prediction", "-o", tmp_path / "h.html") == 0
    page = (tmp_path / "h.html").read_text(encoding="utf-8")
    assert '["gate_grad by prediction", 16]' in page and "gate_grad" in capsys.readouterr().out
    pair = "--text", TEXT[:9], "--right", TEXT[9], "--wrong", TEXT[0]
    assert run("report", trained[0], "--by-prediction", *pair) == 2
    assert "--by-prediction splits the mean loss: leave out --right and --wrong" in capsys.readouterr().err


def test_a_text_that_is_gone_or_another(trained, tmp_path, capsys):
    path, _ = trained
    saved = mg.load(path)
    mg.save(saved | {"settings": {"text": [str(tmp_path / "gone.txt")]}}, tmp_path / "other.safetensors")
    assert run("flow", tmp_path / "other.safetensors") == 2
    assert "gone.txt: No such file or directory" in capsys.readouterr().err
    del saved["settings"]
    mg.save(saved, tmp_path / "other.safetensors")
    assert run("flow", tmp_path / "other.safetensors") == 2
    assert "does not say what it was trained on: give a --text" in capsys.readouterr().err
    mg.save(mg.load(path) | {"crc": 1}, tmp_path / "changed.safetensors")
    assert run("flow", tmp_path / "changed.safetensors") == 0
    assert "the run's text has changed since" in capsys.readouterr().err
    assert run("flow", path, "--right", "a", "--wrong", "o") == 2
    assert "--right and --wrong need a --text" in capsys.readouterr().err


def test_a_long_text_is_several_sequences(saved, tmp_path, capsys):
    path, _ = saved
    assert run("report", path, "--text", TEXT * 3, "-o", tmp_path / "heads.html", "--layers", "1", "--heads", "0") == 0
    out, err = capsys.readouterr()
    assert set(re.findall(r"^(\d\.\d) ", out, re.MULTILINE)) == {"1.0"} and not err


@pytest.mark.parametrize("n", [2, 16, 17, 18, 32, 33, 40])
def test_a_text_is_read_in_sequences_side_by_side(saved, n, capsys):
    """The loss is the mean over all characters but the first, each predicted once. A rest at the end is not read."""
    path, model = saved
    text = (TEXT * 3)[:n]
    assert run("flow", path, "--text", text) == 0
    printed = capsys.readouterr().out
    ids, losses, T = runs.load_char_model(path)[1].encode(text), [], min(16, n - 1)
    for start in range(0, n - T, T):
        window = mg.tensor(ids[None, start : start + T + 1])
        losses += F.cross_entropy(model(window[:, :-1])[0][0], window[0, 1:], reduction="none").tolist()
    said = float(re.match(r"loss in nats per character: (\S+)\n", printed)[1])
    assert said == pytest.approx(np.mean(losses), abs=1e-4) and len(losses) == (n - 1) // T * T
    assert (f"\n{len(losses) // 16} sequences of 16 characters\n" in printed) == (n >= 33)


LAYERS = ["report", "CHECKPOINT", "--text", TEXT, "--layers"]
VERSUS = ["--right", "a", "--wrong", "o"]
DIFFERENT = "--right and --wrong must be two different characters that the model knows"


@pytest.mark.parametrize(
    "argv, message",
    [
        (["report", "CHECKPOINT", "--text", "é"], r"the vocabulary lacks 'é'"),
        (["report", "CHECKPOINT", "--text", "t"], r"the text is too short"),
        ([*LAYERS, "blocks.1.atn"], r"no attention layer 'blocks.1.atn'; did you mean blocks.1.attn"),
        ([*LAYERS, "2"], r"no attention layer 2; there are blocks.0.attn"),
        (["report", "CHECKPOINT", "--text", TEXT, "--heads", "5"], r"no head 5: this layer has 2"),
        (["report", "CHECKPOINT", "--text", TEXT, "--heads", "a"], r"no head 'a'; the heads are 0.0, 0.1, 1.0, 1.1"),
        (["report", "CHECKPOINT", "--text", TEXT, "--limit", "0.01"], r"limit"),
        (["report", "CHECKPOINT", "--text", TEXT, "--limit", "nan"], r"--limit must be above 0 .*, not nan"),
        (["report", "CHECKPOINT", "--text", TEXT, "-o", "/proc/nix/heads.html"], r"/proc/nix"),
        (["report", "CHECKPOINT", "--text", TEXT, "-o", "/"], r"--out /: the file's name must end with .html"),
        (["flow", "CHECKPOINT", "--text", TEXT, "--right", "a"], DIFFERENT),
        (["flow", "CHECKPOINT", "--text", TEXT, "--right", "ab", "--wrong", "c"], DIFFERENT),
        (["flow", "CHECKPOINT", "--text", TEXT, "--right", "a", "--wrong", ""], DIFFERENT),
        (["flow", "CHECKPOINT", "--text", TEXT, "--right", "a", "--wrong", "é"], DIFFERENT),
        (["flow", "CHECKPOINT", "--text", TEXT, "--right", "a", "--wrong", "a"], DIFFERENT),
        (["flow", "CHECKPOINT", "--text", "", "--right", "a", "--wrong", "c"], r"the text is too short"),
        (["scores", "CHECKPOINT"], r"no period 9"),
        (["flow", "missing.safetensors", "--text", TEXT], r"there is no checkpoint missing.safetensors"),
        (["report", __file__, "--text", TEXT], r"is no safetensors file, or damaged"),
    ],
)
def test_bad_input_gets_one_line(saved, capsys, argv, message):
    assert run(*[saved[0] if a == "CHECKPOINT" else a for a in argv]) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[-1].startswith("minigrad ") and re.search(message, err[-1])


def test_a_checkpoint_of_something_else(saved, tmp_path, capsys):
    write(tmp_path / "other.safetensors", saved[1], {"step": 3})
    assert run("report", tmp_path / "other.safetensors", "--text", TEXT) == 2
    assert "holds no character model: KeyError('config')" in capsys.readouterr().err


def test_the_command_runs():
    command = [sys.executable, "-m", "minigrad", "flow", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--of" in shown.stdout and "--top" in shown.stdout


def test_flow(saved, capsys):
    path, model = saved
    assert run("flow", path, "--text", TEXT[:17]) == 0
    printed = capsys.readouterr().out
    vocab = runs.load_char_model(path)[1]
    x, y = (mg.tensor(vocab.encode(part)[None]) for part in (TEXT[:16], TEXT[1:17]))
    assert str(study.flow(model, (x, y))) in printed
    assert run("flow", path, "--text", TEXT[:17], "--method", "cut") == 0
    assert str(study.flow(model, (x, y), method="cut", top=100)) in capsys.readouterr().out
    assert run("flow", path, "--text", TEXT[:17], "--method", "cut", "--top", 5) == 0
    assert str(study.flow(model, (x, y), method="cut", top=5)) in capsys.readouterr().out
    assert run("flow", path, "--text", TEXT[:17], "--of", "0.1") == 0
    printed, flow = capsys.readouterr().out, study.flow(model, (x, y))
    said = ", ".join(f"{name} {edge:+.4g}" for name, edge in flow.by_input("0.1").items())
    assert str(flow.around("0.1")) in printed
    assert printed.endswith(f"\nwhat 0.1 sends, to first order, by the input that reads it: {said}\n")
    for of in "tokens", "logits", "blocks.0.mlp":
        assert run("flow", path, "--text", TEXT[:17], "--of", of) == 0
        assert of in capsys.readouterr().out
    for of, message in {
        "0.7": "there is no head '0.7'; the heads are 0.0, 0.1, 1.0, 1.1",
        "blocks.0.mpl": "did you mean blocks.0.mlp",
    }.items():
        assert run("flow", path, "--text", TEXT[:17], "--of", of) == 2
        assert message in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------- of two logits


def versus(path, text=TEXT[7:]):
    """(x, the difference of two logits as a loss of (model, x)), written out."""
    vocab = runs.load_char_model(path)[1]
    right, wrong = vocab.encode("ao")

    def loss(model, x):
        logits = model(x)[0]
        return logits[0, -1, int(wrong)] - logits[0, -1, int(right)]

    return mg.tensor(vocab.encode(text)[None]), loss


SAYS = "logit('o') - logit('a') after the last character; 'a' is right: "


def test_the_difference_of_two_logits_instead_of_the_loss(saved, tmp_path, capsys):
    path, model = saved
    x, loss = versus(path)
    value = f"{SAYS}{loss(model, x).item():.4f}"
    given = [path, "--text", TEXT, *VERSUS]
    assert run("flow", *given) == 0
    flow = study.flow(model, (x,), loss)
    title = f"{value}\n{TEXT[7:]!r}\n"
    assert capsys.readouterr().out == f"{title}\n{flow}\n"
    helps = min(flow.all, key=lambda edge: edge[-1])  # less is better: a negative edge favours the right character
    assert helps[-1] < 0

    assert run("importance", *given, "--steps", 2) == 0
    found = {m: study.head_importance(model, [(x,)], m, 2, loss) for m in study.METHODS}
    assert capsys.readouterr().out == f"{title}\n{study.HeadTable(found).sorted('ablate')}\n"

    assert run("report", *given, "-o", tmp_path / "heads.html") == 0
    with study.trace_heads(model) as trace:
        loss(model, x).backward()
    assert str(trace.table()) in capsys.readouterr().out
    page = (tmp_path / "heads.html").read_text(encoding="utf-8")
    assert SAYS.split(":")[0].replace("'", "&#x27;") in page and "the lead of 'o' over 'a'" in page


def test_a_short_text_and_two_logits(saved, capsys):
    path, model = saved
    x, loss = versus(path, "t")
    assert run("flow", path, "--text", "t", *VERSUS) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{SAYS}{loss(model, x).item():.4f}\n't'\n\n")


# ------------------------------------------------------------------------------------------- the other studies of heads


def batch_of(path, text):
    vocab = runs.load_char_model(path)[1]
    return tuple(mg.tensor(vocab.encode(part)[None]) for part in (text[:-1], text[1:]))


def test_importance(saved, capsys):
    path, model = saved
    batch = batch_of(path, TEXT[:9])
    assert run("importance", path, "--text", TEXT[:9], "--steps", 3) == 0
    found = {m: study.head_importance(model, [batch], m, 3) for m in study.METHODS}
    assert str(study.HeadTable(found).sorted("ablate")) in capsys.readouterr().out


def test_scores(saved, capsys):
    path, model = saved
    assert run("scores", path, "--periods", "3,5", "--sequences", 4, "--seed", 1) == 0
    assert capsys.readouterr().out == f"{study.head_scores(model, periods=(3, 5), n=4, seed=1)}\n"
