"""`minigrad train` stopped by a signal at any moment, a full disk, or a closed pipe loses nothing."""

import os
import signal
import sys

import pytest

from minigrad import training
from minigrad.training import checkpoint, runner

from .runs import TINY, main, rows, same_run, start, state, stop_after

SIGNALS = training.Interrupt.SIGNALS


@pytest.fixture
def straight(book, tmp_path):
    """The folder of a run of 12 steps that was not stopped."""
    assert main(*TINY, "--text", book, "--steps", 12, "--out", tmp_path / "straight") == 0
    return tmp_path / "straight"


@pytest.mark.parametrize("first, second", [(s, None) for s in SIGNALS] + [(SIGNALS[0], SIGNALS[0]), SIGNALS[1:]])
def test_signals_in_quick_succession_are_one_stop(book, out, straight, first, second, capsys):
    before = [signal.getsignal(number) for number in SIGNALS]
    with stop_after(5, *filter(None, (first, second))):
        assert main(*TINY, "--text", book, "--steps", 12, "--out", out) == 128 + first
    assert [signal.getsignal(number) for number in SIGNALS] == before
    line = capsys.readouterr().err
    assert line.startswith("minigrad train: stopped and saved at step 5; go on with: ")
    assert line.endswith(f" --out {out}\n") and state(out)["step"] == 5
    assert main("--resume", "--out", out) == 0
    same_run(straight, out)


CODES = [f.__code__ for f in (runner._train, runner.Run.step, runner.Run.save)]


def lines_of_train(visit):
    """Return a trace function that calls visit(n) before the n-th line of CODES, counted from the loop on."""
    seen, begun = -1, False

    def local(frame, event, arg):
        nonlocal seen, begun
        begun = begun or "progress" in frame.f_locals
        if event == "line" and begun:
            seen += 1
            visit(seen)
        return local

    return lambda frame, event, arg: local if frame.f_code in CODES else None


def traced(visit, *argv):
    before = sys.gettrace()
    sys.settrace(lines_of_train(visit))
    try:
        return main(*argv)
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_stopped_at_any_moment_and_resumed_is_the_run_never_stopped(book, tmp_path, stride):
    """Send a signal before each line of two steps with a validation and two saves (by default, before some lines)."""
    argv = [*TINY, "--text", book, "--eval-every", 2, "--steps", 4, "--out"]
    count = [0]
    assert traced(lambda n: count.__setitem__(0, n), *argv, tmp_path / "straight") == 0
    per_step = count[0] // 4
    assert per_step > 15
    for i, moment in enumerate(range(per_step, 3 * per_step, stride)):
        out = tmp_path / str(moment)
        number = SIGNALS[i % len(SIGNALS)]
        assert traced(lambda n: n == moment and signal.raise_signal(number), *argv, out) == 128 + number  # noqa: B023
        assert 1 <= state(out)["step"] <= 4
        assert main("--resume", "--out", out) == 0
        same_run(tmp_path / "straight", out)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_process_saves_when_a_signal_comes(book, out, number):
    process = start(*TINY, "--text", book, "--out", out, "--steps", 100_000)
    try:
        assert "characters" in process.stdout.readline() and "step" in process.stdout.readline()
        for _ in range(2):  # two at once are one that was passed on twice
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    step = state(out)["step"]
    assert process.returncode == 128 + number and err.count("\n") == 1
    assert err.startswith(f"minigrad train: stopped and saved at step {step}; go on with: ")
    assert [int(row["step"]) for row in rows(out)] == list(range(1, step + 1))


def test_nohup_stays_nohup(book, out):
    """A signal that was ignored when the process started stays ignored; SIGTERM then ends it."""
    process = start(*TINY, "--text", book, "--out", out, "--steps", 100_000,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))  # fmt: skip
    try:
        assert "characters" in process.stdout.readline() and "step" in process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert "step" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGTERM


def test_a_disk_that_fills_up_ends_the_run_with_the_last_save_whole(book, out, capsys, monkeypatch, straight):
    saves, before = [], checkpoint.save

    def full(obj, path):
        if "last" in str(path):
            saves.append(path)
            if len(saves) == 3:
                raise OSError(28, "No space left on device", str(path))
        before(obj, path)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", full)
        assert main(*TINY, "--text", book, "--out", out, "--steps", 12) == 2
    assert capsys.readouterr().err == f"minigrad train: {out / 'last.safetensors'}: No space left on device\n"
    assert state(out)["step"] == 4 and not list(out.glob(".*"))
    assert main("--resume", "--out", out) == 0
    same_run(straight, out)


def test_piped_into_head(book, out):
    read, write = os.pipe()
    process = start(*TINY, "--text", book, "--out", out, "--steps", 100_000, stdout=write)
    os.close(write)
    try:
        assert b"characters" in os.read(read, 100)
        os.close(read)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (128 + signal.SIGPIPE, "")
    assert state(out)["step"] == len(rows(out)) > 0
