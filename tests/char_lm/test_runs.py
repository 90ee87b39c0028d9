"""`minigrad train`: resuming changes no bit, and bad input costs one line."""

import math
import os
import re
import shlex
import sys

import numpy as np
import pytest

import minigrad as mg
from minigrad.commands import train
from minigrad.training import checkpoint, runner, runs, text
from minigrad.viz.plots import loss_curve

from .runs import SIZES, TINY, WORDS, main, options, quick_ending, rows, same_run, state, stop_after


@pytest.fixture(autouse=True)
def short(monkeypatch, request):
    if "learns" not in request.node.name:
        quick_ending(monkeypatch)


# ------------------------------------------------------------------------------------------------ training and writing


def test_a_run_leaves_all_its_files_and_learns(book, out, capsys):
    assert main(*TINY, "--text", book, "--out", out, "--steps", 40, "--eval-every", 8, "--lr", 0.03) == 0
    assert {p.name for p in out.iterdir()} == {"last.safetensors", "best.safetensors", "losses.csv", "loss.png"}
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    table = rows(out)
    assert [int(row["step"]) for row in table] == list(range(1, 41))
    assert [int(row["step"]) for row in table if row["val"]] == list(range(8, 41, 8))
    assert float(table[-1]["val"]) < float(table[7]["val"]) - 0.5
    best = min(float(row["val"]) for row in table if row["val"])
    assert state(out, "best")[1]["best_loss"] == state(out)[1]["best_loss"] == pytest.approx(best, rel=1e-5)
    printed = capsys.readouterr().out
    assert len(printed) > 500
    lines = printed.splitlines()
    at = lines.index(next(line for line in lines if line.startswith("step 16: ")))
    mean = np.mean([float(row["train"]) for row in table[8:16]])  # since the validation before
    assert lines[at] == f"step 16: training loss {mean:.4f}, validation loss {float(table[15]['val']):.4f}"
    assert re.fullmatch(r"    \S.{20,100}", lines[at + 1])  # what it would write
    told = next(line for line in lines if line.startswith("bits per character: "))
    model, vocab, _ = runs.load_char_model(out / "last.safetensors")
    ids, losses, T = text.split(vocab.encode(text.read_corpus([book])))[1], [], SIZES["block_size"]
    for start in range(0, len(ids) - T, T // 2):
        logits = model.eval()(mg.tensor(ids[None, start : start + T]))[0].log_softmax(-1).detach().numpy()[0]
        losses += [-logits[t, ids[start + t + 1]] for t in range(T // 2, T)]
    bits = best / math.log(2), np.mean(losses) / math.log(2)
    words = f"{bits[0]:.2f} in validation, {bits[1]:.2f} with half a block of context or more"
    assert told == f"bits per character: {words}"
    assert re.fullmatch(r"for comparison: gzip \d\.\d\d, xz \d\.\d\d", lines[lines.index(told) + 1])
    *_, wrote, sample, further = lines
    assert set(wrote.removeprefix("wrote ").split(", ")) == {str(p) for p in out.iterdir()}
    sample, further = (shlex.split(line.partition(": ")[2]) for line in (sample, further))  # to be typed as they are
    assert [command[1:3] for command in (sample, further)] == [["-m", "minigrad"]] * 2
    assert main(*sample[3:], "--prompt=The", "--tokens", 5) == 0 and capsys.readouterr().out.startswith("The")
    assert further[3:] == ["train", "--resume", "--steps", "80", "--out", str(out)]
    assert main(*further[4:], "--steps", 61) == 0 and state(out)[1]["step"] == 61


def test_without_matplotlib_it_says_how_to_get_it(book, out, capsys, monkeypatch):
    monkeypatch.setattr(train, "loss_curve", loss_curve)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(*TINY, "--text", book, "--out", out, "--steps", 2) == 0
    assert "no loss.png: a loss curve needs matplotlib: pip install" in capsys.readouterr().err


def test_the_preset_is_nanogpts_and_options_override_it(book, out):
    typed = options(SIZES | dict(eval_batches=1, steps=1))
    assert main("--preset", "nanogpt-cpu", *typed, "--text", book, "--out", out) == 0
    settings = state(out)[1]["settings"]
    assert settings["n_layer"] == 1 and settings["lr"] == 1e-3 and settings["min_lr"] == 1e-4
    assert settings["warmup"] == 100 and settings["weight_decay"] == 0.1 and settings["clip"] == 1.0
    groups = state(out)[1]["optimizer"]["param_groups"]
    assert [g["weight_decay"] for g in groups] == [0.1, 0.0] and groups[0]["betas"] == [0.9, 0.99]


def test_sample_writes_what_the_seed_says(book, out, capsys):
    main(*TINY, "--text", book, "--out", out, "--steps", 4)
    capsys.readouterr()

    def written(*argv):
        assert main("sample", out, "--tokens", 30, *argv) == 0
        return capsys.readouterr().out.removesuffix("\n")

    before = mg.default_generator.state
    first = written("--prompt", "The ")
    assert first.startswith("The ") and len(first) == 34
    assert written("--prompt", "The ") == first != written("--prompt", "The ", "--seed", 5)
    assert written("--temperature", 0) == written("--temperature", 0, "--seed", 5) == written("--top-k", 1)
    assert len(written("--top-k", 1000)) == 31
    assert before["seed"] == mg.default_generator.state["seed"]


@pytest.mark.parametrize("data", ["abcd efg" * 40, "abcdefgh" * 40])
def test_a_text_without_newlines(tmp_path, out, capsys, data):
    """What it writes begins with a space then, or with the first character that there is."""
    (tmp_path / "text").write_text(data)
    assert main(*TINY, "--text", tmp_path / "text", "--out", out, "--steps", 2) == 0
    assert {"best.safetensors", "last.safetensors"} < {p.name for p in out.iterdir()}
    capsys.readouterr()
    assert main("sample", out, "--tokens", 5) == 0
    assert capsys.readouterr().out.startswith(min(data))
    assert "the vocabulary lacks '\\n'" in fails(capsys, "sample", out, "--prompt", "\n")


# ------------------------------------------------------------------------------------------------------------ resuming


@pytest.mark.parametrize("steps", [1, 4, 5, 11])
def test_a_resumed_run_is_the_run_never_stopped(book, tmp_path, steps, capsys):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    argv = [*TINY, "--text", book, "--steps", 12]
    assert main(*argv, "--out", straight) == 0
    with stop_after(steps):
        assert main(*argv, "--out", stopped) == 130
    assert f"stopped and saved at step {steps}" in capsys.readouterr().err
    assert state(stopped)[1]["step"] == steps
    mg.manual_seed(12345)  # whatever else drew from the default generator meanwhile
    assert main("--resume", "--out", stopped) == 0
    same_run(straight, stopped)


def test_rows_written_after_the_last_save_are_dropped(book, tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    argv = [*TINY, "--text", book, "--steps", 12]
    main(*argv, "--out", straight)
    with stop_after(8):
        main(*argv, "--out", killed)
    with open(killed / "losses.csv", "a") as file:
        file.write("9,2.5,,0.001,1.0\n10,2.")  # what a kill leaves: rows too many, the last one cut
    assert main("--resume", "--out", killed) == 0
    same_run(straight, killed)


def test_a_finished_run_resumed_is_left_as_it_is_and_can_go_further(book, out, capsys):
    argv = [*TINY, "--text", book, "--out", out]
    main(*argv, "--steps", 6)
    before = (out / "last.safetensors").read_bytes(), (out / "losses.csv").read_bytes()
    capsys.readouterr()
    assert main("--resume", "--out", out) == 0
    said = capsys.readouterr().out
    assert "\nnothing is left to train: the run is complete\nstep 6 of 6, best validation loss" in said
    assert ((out / "last.safetensors").read_bytes(), (out / "losses.csv").read_bytes()) == before
    assert main("--resume", "--out", out, "--steps", 9, "--lr", 0.01, "--batch-size", 2) == 0
    assert [int(row["step"]) for row in rows(out)] == list(range(1, 10))
    assert state(out)[1]["settings"]["batch_size"] == 2


def test_where_the_best_model_was_deleted_the_best_from_there_on_is_kept(book, out):
    main(*TINY, "--text", book, "--out", out, "--steps", 6)
    (out / "best.safetensors").unlink()
    assert main("--resume", "--out", out, "--steps", 8, "--lr", 0, "--min-lr", 0) == 0
    _, meta = checkpoint.load(out / "best.safetensors")  # which is no better than the one that is gone
    assert meta["step"] in (7, 8) and meta["best_loss"] == state(out)[1]["best_loss"]


def test_another_text_of_the_same_characters_is_noted(book, out, tmp_path, capsys):
    main(*TINY, "--text", book, "--out", out, "--steps", 2)
    (tmp_path / "other").write_text(WORDS[::-1] * 20)
    assert main("--resume", "--out", out, "--text", tmp_path / "other", "--steps", 3) == 0
    assert "note: the text has changed since the run began" in capsys.readouterr().err


def test_a_resumed_run_is_not_taken_back(book, out, capsys):
    main(*TINY, "--text", book, "--out", out, "--steps", 10)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    line = fails(capsys, "--resume", "--out", out, "--steps", 5)
    assert "is at step 10 already" in line and "5 leave nothing to do: give a larger number, such as --steps 15" in line
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_what_is_typed_at_a_resume_counts(book, out):
    main(*TINY, "--text", book, "--out", out, "--steps", 2)
    assert main("--resume", "--out", out, "--steps", 3, "--weight-decay", 0.5) == 0
    _, meta = state(out)
    assert meta["settings"]["weight_decay"] == 0.5
    saved = [group["weight_decay"] for each in meta["optimizer"]["optimizers"] for group in each["param_groups"]]
    assert saved == [0.5, 0.5, 0.5, 0.5, 0.0]  # Muon's two groups, both ends, and norms


# ----------------------------------------------------------------------------------------------------------- bad input


def fails(capsys, *argv):
    """The one line that a run with bad input prints before it exits with 2."""
    capsys.readouterr()
    assert main(*argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("minigrad ") and captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "text is empty"),
        (b"ab\ncd\xff", "text is not UTF-8: byte 0xff at offset 5, line 2"),
        (b"a", "the text only repeats 'a'"),
        (b"\n\r\n" * 50, "the text only repeats '\\n'"),
        (b"ab\0cd", "text is not text: it has a byte 0 at offset 2"),
        ("a long story".encode("utf-16"), "text is UTF-16: save it as UTF-8"),
        (
            b"abcd",
            "the training split has 3 characters, but a block of 8 needs at least 9: use a longer text or a block of",
        ),
        (b"abcd" * 10, "the validation split has 4 characters, but a block of 8 needs at least 9"),
    ],
)
def test_bad_text(tmp_path, out, capsys, data, message):
    (tmp_path / "text").write_bytes(data)
    assert message in fails(capsys, *TINY, "--text", tmp_path / "text", "--out", out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--n-layer", "0"], "--n-layer must be at least 1 and at most 1000, not 0"),
        (["--block-size", "-3"], "--block-size must be at least 1, not -3"),
        (["--batch-size", "0"], "--batch-size must be at least 1, not 0"),
        (["--steps", "0"], "--steps must be at least 1, not 0"),
        (["--eval-every", "0"], "--eval-every must be at least 1, not 0"),
        (["--n-layer", "1001"], "--n-layer must be at least 1 and at most 1000, not 1001"),
        (["--n-embd", "many"], "--n-embd must be a whole number, not 'many'"),
        (["--n-embd", "2000000"], "this machine has"),
        (["--batch-size", "999999999999"], "this machine has"),
        (["--steps", "1" * 30], "--steps must be at most 1e+15, not 1"),
        (["--text", ""], "--text must not be empty"),
        (["--out", ""], "--out must not be empty"),
        (["sampel"], "unrecognized arguments: sampel"),
        (["--n-embd", "9"], "--n-embd 9 is not a multiple of --n-head 2"),
        (["--dropout", "1"], "--dropout must be at least 0 and below 1, not 1"),
        (["--lr", "nan"], "--lr must be at least 0, not nan"),
        (["--lr", "inf"], "--lr must be a finite number, not inf"),
        (["--seed", "-1"], "--seed must be at least 0 and below 4294967296, not -1"),
        (["--text", "nowhere"], "nowhere: No such file or directory"),
        (["--preset", "gpt-4"], "invalid choice: 'gpt-4'"),
        (["--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["--resume"], "there is no checkpoint"),
    ],
)
def test_bad_options(book, out, capsys, argv, message):
    assert message in fails(capsys, *TINY, "--text", book, "--out", out, *argv)
    assert not out.exists()


def test_a_device_that_is_not_there(book, out, capsys):
    try:
        mg.backend.get("cuda")
    except mg.DeviceError:
        assert "device 'cuda'" in fails(capsys, *TINY, "--text", book, "--out", out, "--device", "cuda:0")
        assert not out.exists()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("book.txt", "book.txt is not a folder"),
        ("book.txt/run", "book.txt is not a folder"),
        ("fifo", "fifo is not a folder"),
        ("broken/link", "broken is not a folder"),
        ("/proc/run", "cannot write in /proc/run"),
        ("n" * 300, "File name too long"),
    ],
)
def test_an_out_that_cannot_be_written(book, tmp_path, capsys, place, message):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    line = fails(capsys, *TINY, "--text", book, "--out", tmp_path / place)
    assert message in line
    assert book.read_text() == WORDS * 20 and set(os.listdir(tmp_path)) == {"book.txt", "fifo", "broken"}


@pytest.mark.parametrize("name", ["last.safetensors", "best.safetensors", "losses.csv"])
def test_a_run_is_not_overwritten(book, out, capsys, name):
    out.mkdir()
    (out / name).write_bytes(b"precious")
    line = fails(capsys, *TINY, "--text", book, "--out", out)
    assert "already holds a run" in line and "--resume" in line and "--out" in line
    assert (out / name).read_bytes() == b"precious" and os.listdir(out) == [name]


def test_one_run_at_a_time_in_a_folder(book, out, capsys, monkeypatch):
    """A second one that begins, or resumes, while the first still trains."""
    argv, evaluate, lines = [*TINY, "--text", book, "--out", out], runner.Run.validate, []

    def meanwhile(*args):
        if not lines:
            lines.append(fails(capsys, "--resume", "--out", out))
            monkeypatch.setattr(runner, "refuse_another", lambda *args: None)  # it looked before the first had begun
            lines.append(fails(capsys, *argv))
        return evaluate(*args)

    monkeypatch.setattr(runner.Run, "validate", meanwhile)
    assert main(*argv, "--steps", 6) == 0
    assert len(lines) == 2 and all("another process trains in" in line for line in lines)
    assert [int(row["step"]) for row in rows(out)] == list(range(1, 7))
    assert main("--resume", "--out", out, "--steps", 7) == 0


def test_resuming_what_does_not_fit(book, out, tmp_path, capsys):
    main(*TINY, "--text", book, "--out", out, "--steps", 2)
    before = {p.name: p.read_bytes() for p in out.iterdir()}

    def refused(*argv):
        line = fails(capsys, "--resume", "--out", out, "--steps", 3, *argv)
        assert {p.name: p.read_bytes() for p in out.iterdir()} == before
        return line

    assert "n_layer 1, not 2; n_embd 8, not 16" in refused("--n-layer", 2, "--n-embd", 16)
    assert "block_size 8, not 16" in refused("--block-size", 16)
    assert "seed 1337, not 5" in refused("--seed", 5)
    (tmp_path / "more").write_text(WORDS * 20 + "é")
    assert "another vocabulary: 32 characters, not 31; new: 'é'" in refused("--text", tmp_path / "more")
    (tmp_path / "less").write_text(WORDS.replace("x", "!") * 20)
    assert "31 characters, not 31; new: '!'; gone: 'x'" in refused("--text", tmp_path / "less")
    book.unlink()
    line = refused()
    assert "book.txt: No such file" in line and "if it has moved, say where it is now with --text" in line
    assert "No such file" in (line := refused("--text", "elsewhere")) and "moved" not in line


def test_checkpoints_that_cannot_be_used(book, out, capsys):
    assert "there is no checkpoint" in fails(capsys, "sample", out)
    main(*TINY, "--text", book, "--out", out, "--steps", 2)
    whole = (out / "last.safetensors").read_bytes()
    (out / "last.safetensors").write_bytes(whole[:-1])
    assert "damaged" in fails(capsys, "--resume", "--out", out, "--steps", 3)
    assert (out / "last.safetensors").read_bytes() == whole[:-1]
    checkpoint.save(out / "other", {"x": np.zeros(1)}, {})
    assert "holds no character model: it has no 'chars'" in fails(capsys, "sample", out / "other")
    assert "U+00E9), at position 3 of 'The\u00e9'" in fails(capsys, "sample", out, "--prompt", "Theé")
    assert "--tokens must be at least 1" in fails(capsys, "sample", out, "--tokens", 0)
    assert "--temperature must be" in fails(capsys, "sample", out, "--temperature", -1)
    assert "--top-k" in fails(capsys, "sample", out, "--top-k", 0)


def test_a_loss_that_explodes_stops_the_run_before_it_spoils_the_weights(book, out, capsys):
    with np.errstate(all="ignore"):
        assert main(*TINY, "--text", book, "--out", out, "--steps", 50, "--lr", 1e30, "--clip", 0) == 1
    assert "try a lower --lr" in capsys.readouterr().err
    assert all(np.isfinite(x).all() for x in state(out)[0].values())


def test_sampling_from_weights_that_overflow(book, out, capsys):
    main(*TINY, "--text", book, "--out", out, "--steps", 2)
    tensors, meta = checkpoint.load(out / "best.safetensors")
    checkpoint.save(out / "best.safetensors", {n: np.full_like(x, 3e38) for n, x in tensors.items()}, meta)
    assert "the largest logit is nan" in fails(capsys, "sample", out)


def test_a_validation_that_is_no_number_is_not_saved(book, out, capsys):
    """The step was possible, and what it made of the weights is not: the last good run stays."""
    argv = [*TINY, "--text", book, "--out", out, "--warmup", 0, "--lr", 1e38, "--min-lr", 1e38, "--eval-every", 1]
    with np.errstate(all="ignore"):
        assert main(*argv, "--steps", 6) == 1
    assert "try a lower --lr; step 0 is saved" in capsys.readouterr().err
    tensors, meta = state(out)
    assert meta["step"] == 0 and all(np.isfinite(x).all() for x in tensors.values())
    assert main("--resume", "--out", out, "--lr", 1e-3, "--min-lr", 1e-4, "--steps", 2) == 0


@pytest.mark.parametrize("name", ["loss.png", "losses.csv", "best.safetensors", "last.safetensors"])
def test_outputs_that_are_folders_are_seen_before_the_work(book, out, capsys, name):
    (out / name).mkdir(parents=True)
    line = fails(capsys, *TINY, "--text", book, "--out", out, "--steps", 1)
    assert f"{name} is a folder" in line or f"{out} already holds a run" in line
    assert os.listdir(out) == [name]


@pytest.mark.parametrize("rows", ["", "1,abc,,1,1\n"])
def test_losses_that_cannot_be_drawn_do_not_hide_the_end(book, out, capsys, monkeypatch, rows):
    argv = "--text", book, "--out", out
    main(*TINY, *argv, "--steps", 2)
    (out / "losses.csv").write_text("step,train,val,lr,grad_norm\n" + rows)
    monkeypatch.setattr(train, "loss_curve", loss_curve)
    capsys.readouterr()
    assert main("--resume", *argv) == 0
    printed, noted = capsys.readouterr()
    assert "no loss.png: " in noted and "wrote " in printed and "train further: " in printed
