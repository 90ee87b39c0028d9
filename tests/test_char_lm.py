"""examples/char_lm.py: resuming changes no bit, bad input costs one line, and Ctrl-C loses nothing."""

import contextlib
import csv
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import checkpoint, text, training
from minigrad.viz.plots import loss_curve

SCRIPT = Path(__file__).parent.parent / "examples" / "char_lm.py"
spec = importlib.util.spec_from_file_location("char_lm", SCRIPT)
char_lm = importlib.util.module_from_spec(spec)
spec.loader.exec_module(char_lm)

WORDS = "The quick brown fox jumps over the lazy dog, and the dog does not mind.\n"
SIZES = dict(n_layer=1, n_head=2, n_embd=8, block_size=8, batch_size=3)
REST = dict(eval_every=4, warmup=2, dropout=0.2)


def options(settings):
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


TINY = options(SIZES | REST)


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(WORDS * 20)
    return path


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def quick_ending(monkeypatch, request):
    """What a run does after its last step is slow and tested once: shorten it elsewhere."""
    if "learns" not in request.node.name:
        write = char_lm.write
        monkeypatch.setattr(
            char_lm, "write", lambda *args, **more: write(*args[:3], min(args[3], 40), *args[4:], **more)
        )
        monkeypatch.setattr(char_lm, "loss_curve", lambda rows, path: None)


def main(*argv):
    """The exit code."""
    try:
        return char_lm.main([str(a) for a in argv])
    except SystemExit as stop:
        return stop.code


def state(out, name="last"):
    return checkpoint.load(out / f"{name}.safetensors")


def same_run(a, b):
    """Parameters, optimizer, both generators, step, settings, vocabulary and losses: every byte."""
    for name in ("last.safetensors", "best.safetensors", "losses.csv"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name


def rows(out):
    with open(out / "losses.csv", newline="") as file:
        return list(csv.DictReader(file))


# ------------------------------------------------------------------------------------------------ training and writing


def test_a_run_leaves_all_its_files_and_learns(book, out, capsys):
    assert main(*TINY, "--text", book, "--out", out, "--steps", 60, "--lr", 0.03) == 0
    assert {p.name for p in out.iterdir()} == {"last.safetensors", "best.safetensors", "losses.csv", "loss.png"}
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    table = rows(out)
    assert [int(row["step"]) for row in table] == list(range(1, 61))
    assert [int(row["step"]) for row in table if row["val"]] == list(range(4, 61, 4))
    assert float(table[-1]["val"]) < float(table[3]["val"]) - 0.5
    best = min(float(row["val"]) for row in table if row["val"])
    assert state(out, "best")[1]["best_loss"] == state(out)[1]["best_loss"] == pytest.approx(best, rel=1e-5)
    assert len(capsys.readouterr().out) > 500


def test_without_matplotlib_it_says_how_to_get_it(book, out, capsys, monkeypatch):
    monkeypatch.setattr(char_lm, "loss_curve", loss_curve)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(*TINY, "--text", book, "--out", out, "--steps", 2) == 0
    assert "no loss.png: a loss curve needs matplotlib: pip install" in capsys.readouterr().err


def test_train_is_the_default_command(book, out):
    assert main("train", *TINY, "--text", book, "--out", out, "--steps", 2) == 0
    assert state(out)[1]["step"] == 2


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
        assert main("sample", "--out", out, "--tokens", 30, *argv) == 0
        return capsys.readouterr().out.removesuffix("\n")

    before = mg.default_generator.state
    first = written("--prompt", "The ")
    assert first.startswith("The ") and len(first) == 34
    assert written("--prompt", "The ") == first != written("--prompt", "The ", "--seed", 5)
    assert written("--temperature", 0) == written("--temperature", 0, "--seed", 5) == written("--top-k", 1)
    assert len(written("--checkpoint", out / "last.safetensors", "--top-k", 1000)) == 31
    assert before["seed"] == mg.default_generator.state["seed"]


# ------------------------------------------------------------------------------------------------------------ resuming


@contextlib.contextmanager
def stop_after(n):
    """A Ctrl-C arrives while the n-th step is under way."""
    steps, draw = itertools.count(1), text.Batches.__next__

    def with_ctrl_c(self):
        if next(steps) == n:
            signal.raise_signal(signal.SIGINT)
        return draw(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text.Batches, "__next__", with_ctrl_c)
        yield


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
    assert "step 6 of 6 (more with --resume --steps N)" in capsys.readouterr().out
    assert ((out / "last.safetensors").read_bytes(), (out / "losses.csv").read_bytes()) == before
    assert main("--resume", "--out", out, "--steps", 9, "--lr", 0.01, "--batch-size", 2) == 0
    assert [int(row["step"]) for row in rows(out)] == list(range(1, 10))
    assert state(out)[1]["settings"]["batch_size"] == 2


def test_another_text_of_the_same_characters_is_noted(book, out, tmp_path, capsys):
    main(*TINY, "--text", book, "--out", out, "--steps", 2)
    (tmp_path / "other").write_text(WORDS[::-1] * 20)
    assert main("--resume", "--out", out, "--text", tmp_path / "other", "--steps", 3) == 0
    assert "note: this is not the text that the run began with" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------- bad input


def fails(capsys, *argv):
    """The one line that a run with bad input prints before it exits with 2."""
    capsys.readouterr()
    assert main(*argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("char_lm: ") and captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "text is empty"),
        (b"ab\ncd\xff", "text is not UTF-8: byte 0xff at offset 5, line 2"),
        (b"abcd", "the training split has 3 characters, but a block of 8 needs at least 9"),
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
        (["--n-layer", "0"], "--n-layer must be at least 1, not 0"),
        (["--block-size", "-3"], "--block-size must be at least 1, not -3"),
        (["--batch-size", "0"], "--batch-size must be at least 1, not 0"),
        (["--steps", "0"], "--steps must be at least 1, not 0"),
        (["--eval-every", "0"], "--eval-every must be at least 1, not 0"),
        (["--n-embd", "many"], "--n-embd: invalid int value: 'many'"),
        (["--n-embd", "9"], "n_embd 9 is not a multiple of n_head 2"),
        (["--dropout", "1"], "--dropout must be at least 0 and below 1, not 1"),
        (["--lr", "nan"], "--lr must be at least 0, not nan"),
        (["--lr", "inf"], "--lr must be at least 0, not inf"),
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
        assert "device 'cuda'" in fails(capsys, *TINY, "--text", book, "--out", out, "--device", "cuda")
        assert not out.exists()


@pytest.mark.parametrize("place", ["book.txt", "book.txt/run", "/proc/minigrad/run"])
def test_an_out_that_cannot_be_written(book, tmp_path, capsys, place):
    if place.startswith("/proc") and not Path("/proc").is_dir():
        return
    line = fails(capsys, *TINY, "--text", book, "--out", tmp_path / place)
    assert any(reason in line for reason in ("Not a directory", "File exists", "No such file", "Permission denied"))
    assert book.read_text() == WORDS * 20 and os.listdir(tmp_path) == ["book.txt"]


@pytest.mark.parametrize("name", ["last.safetensors", "best.safetensors", "losses.csv"])
def test_a_run_is_not_overwritten(book, out, capsys, name):
    out.mkdir()
    (out / name).write_bytes(b"precious")
    line = fails(capsys, *TINY, "--text", book, "--out", out)
    assert "already holds a run" in line and "--resume" in line and "--out" in line
    assert (out / name).read_bytes() == b"precious" and os.listdir(out) == [name]


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
    assert "book.txt: No such file" in refused()


def test_checkpoints_that_cannot_be_used(book, out, capsys):
    assert "there is no checkpoint" in fails(capsys, "sample", "--out", out)
    main(*TINY, "--text", book, "--out", out, "--steps", 2)
    whole = (out / "last.safetensors").read_bytes()
    (out / "last.safetensors").write_bytes(whole[:-1])
    assert "damaged" in fails(capsys, "--resume", "--out", out, "--steps", 3)
    assert (out / "last.safetensors").read_bytes() == whole[:-1]
    checkpoint.save(out / "other", {"x": np.zeros(1)}, {})
    assert "holds no character model: it has no 'chars'" in fails(capsys, "sample", "--checkpoint", out / "other")
    assert "U+00E9), at position 3 of 'The\u00e9'" in fails(capsys, "sample", "--out", out, "--prompt", "Theé")
    assert "--tokens must be at least 1" in fails(capsys, "sample", "--out", out, "--tokens", 0)
    assert "temperature" in fails(capsys, "sample", "--out", out, "--temperature", -1)
    assert "top_k" in fails(capsys, "sample", "--out", out, "--top-k", 0)


def test_a_disk_that_fills_up_ends_the_run_with_the_last_save_whole(book, out, capsys, monkeypatch):
    replace, saves = os.replace, []

    def full(temp, path):
        saves.append(path)
        if len(saves) > 4:
            raise OSError(28, "No space left on device", temp)
        replace(temp, path)

    monkeypatch.setattr(os, "replace", full)
    assert main(*TINY, "--text", book, "--out", out, "--steps", 20) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert state(out)[1]["step"] == 4 and not list(out.glob(".*"))


def test_a_loss_that_explodes_stops_the_run_before_it_spoils_the_weights(book, out, capsys):
    with np.errstate(all="ignore"):
        assert main(*TINY, "--text", book, "--out", out, "--steps", 50, "--lr", 1e30, "--clip", 0) == 1
    assert "try a lower --lr" in capsys.readouterr().err
    assert all(np.isfinite(x).all() for x in state(out)[0].values())


# -------------------------------------------------------------------------------------------------------------- Ctrl-C


def start(*argv):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *map(str, argv)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_saves_and_exits_with_130(book, out, presses):
    process = start(*TINY, "--text", book, "--out", out, "--steps", 100_000)
    try:
        assert "characters" in process.stdout.readline() and "step" in process.stdout.readline()
        for _ in range(presses):  # two at once are one that was passed on twice
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    meta = state(out)[1]
    step = meta["step"]
    assert meta["generators"].keys() == {"default", "batches"} and len(meta["optimizer"]["param_groups"]) == 2
    assert process.returncode == 130
    said = [line for line in err.splitlines() if not line.startswith("minigrad: ")]  # on kernels, if any
    assert said == [f"char_lm: stopped and saved at step {step}; go on with --resume"]
    assert {p.name for p in out.iterdir()} - {"best.safetensors"} == {"last.safetensors", "losses.csv"}
    assert [int(row["step"]) for row in rows(out)] == list(range(1, step + 1))
    assert main("--resume", "--out", out, "--steps", step + 3) == 0
    assert [int(row["step"]) for row in rows(out)] == list(range(1, step + 4))


def test_a_second_ctrl_c_later_is_a_keyboardinterrupt(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(training.time, "monotonic", lambda: now[0])
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), training.Interrupt() as interrupt:
        assert not interrupt.asked
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert interrupt.asked
        now[0] += 1.5
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


# ------------------------------------------------------------------------------------------------------------ progress


def test_progress_off_a_terminal_is_plain_lines(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(training.time, "monotonic", lambda: now[0])
    with training.Progress(10, 40, 100) as progress:
        for done in range(11, 41):
            now[0] += 1
            progress.step(done, 2.5)
        progress.say("done")
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "step 11/40: loss 2.500, 100 tokens/s, 29 s left"
    assert out[1].startswith("step 16/40:") and len(out) == 7 and out[-1] == "done"


def test_progress_on_a_terminal_is_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with training.Progress(1, 3, 100) as progress:
        progress.say("a line")
        progress.step(2, 2.5)
        progress.step(3, 2.25)
    out, err = capsys.readouterr()
    assert out == "a line\n" and "1/3" in err and "3/3" in err and "loss 2.250" in err
