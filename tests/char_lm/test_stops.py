"""`minigrad train` stopped: by a signal at any moment, a full disk, or a reader that has gone. Nothing is lost."""

import os
import signal
import sys

import pytest

from minigrad import training
from minigrad.training import checkpoint, runner

from .runs import TINY, main, quick_ending, rows, same_run, start, state, stop_after

SIGNALS = training.Interrupt.SIGNALS


@pytest.fixture(autouse=True)
def short(monkeypatch):
    quick_ending(monkeypatch)


@pytest.fixture
def straight(book, tmp_path):
    """The folder of a run of 12 steps that nobody stopped."""
    assert main(*TINY, "--text", book, "--steps", 12, "--out", tmp_path / "straight") == 0
    return tmp_path / "straight"


# ------------------------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", [None, *SIGNALS])
def test_signals_in_quick_succession_are_one_stop(book, out, straight, first, second, capsys):
    before = [signal.getsignal(number) for number in SIGNALS]
    with stop_after(5, *filter(None, (first, second))):
        assert main(*TINY, "--text", book, "--steps", 12, "--out", out) == 128 + first
    assert [signal.getsignal(number) for number in SIGNALS] == before
    line = capsys.readouterr().err
    assert line.startswith("minigrad train: stopped and saved at step 5; go on with: ") and line.endswith(
        f" --out {out}\n"
    )
    assert state(out)[1]["step"] == 5
    assert main("--resume", "--out", out) == 0
    same_run(straight, out)


CODES = [f.__code__ for f in (runner.train, runner.Run.step, runner.Run.save)]


def lines_of_train(visit):
    """A trace function that calls visit(n) before the n-th line of train(), and of what it calls, is run, counted from
    the loop on."""
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
    """A signal before every line of the loop, of two steps with a validation and two saves; or before some."""
    argv = [*TINY, "--text", book, "--eval-every", 2, "--steps", 4, "--out"]
    count = [0]
    assert traced(lambda n: count.__setitem__(0, n), *argv, tmp_path / "straight") == 0
    per_step = count[0] // 4
    stops = range(per_step, 3 * per_step, stride)
    assert per_step > 20
    for i, moment in enumerate(stops):
        out = tmp_path / str(moment)
        number = SIGNALS[i % len(SIGNALS)]
        assert traced(lambda n: n == moment and signal.raise_signal(number), *argv, out) == 128 + number  # noqa: B023
        assert 1 <= state(out)[1]["step"] <= 4
        assert main("--resume", "--out", out) == 0
        same_run(tmp_path / "straight", out)


@pytest.mark.parametrize("look", range(4, 9))
def test_a_signal_between_two_looks_is_seen(book, out, straight, monkeypatch, look):
    """The loop may look at `asked` as often as it likes: whichever look sees it first, all is saved."""

    class Late(training.Interrupt):
        looks, status = 0, 130

        @property
        def asked(self):
            self.looks += 1
            return self.looks >= look

        @asked.setter
        def asked(self, value):
            pass

    with monkeypatch.context() as patch:
        patch.setattr(runner, "Interrupt", Late)
        patch.setattr(Late, "status", property(lambda self: 130, lambda self, value: None))
        assert main(*TINY, "--text", book, "--steps", 12, "--out", out) == 130
    assert state(out)[1]["step"] == len(rows(out))
    assert main("--resume", "--out", out) == 0
    same_run(straight, out)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_process_dies_by_the_signal_after_saving(book, out, number):
    process = start(*TINY, "--text", book, "--out", out, "--steps", 100_000)
    try:
        assert "characters" in process.stdout.readline() and "step" in process.stdout.readline()
        for _ in range(2):  # two at once are one that was passed on twice
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    meta = state(out)[1]
    step = meta["step"]
    assert meta["generators"].keys() == {"default", "batches"} and len(meta["optimizer"]["optimizers"]) == 2
    assert process.returncode == -number  # $? is 128 + number, and a loop in a shell ends too
    assert err.startswith(f"minigrad train: stopped and saved at step {step}; go on with: ") and err.count("\n") == 1
    assert {p.name for p in out.iterdir()} - {"best.safetensors"} == {"last.safetensors", "losses.csv"}
    assert [int(row["step"]) for row in rows(out)] == list(range(1, step + 1))
    assert main("--resume", "--out", out, "--steps", step + 3) == 0
    assert [int(row["step"]) for row in rows(out)] == list(range(1, step + 4))


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
    assert process.returncode == -signal.SIGTERM


# ------------------------------------------------------------------------------------------ the sample of a stopped run


def test_sample_takes_the_last_model_where_there_is_no_best(book, out, capsys):
    with stop_after(2):
        main(*TINY, "--text", book, "--out", out, "--steps", 12)
    assert not (out / "best.safetensors").exists()
    capsys.readouterr()
    assert main("sample", out, "--tokens", 5) == 0
    printed, note = capsys.readouterr()
    assert f"note: {out / 'last.safetensors'} writes, as there is no best.safetensors" in note
    assert main("sample", out / "last.safetensors", "--tokens", 5) == 0
    assert capsys.readouterr() == (printed, "")
    assert main("--resume", "--out", out) == 0
    capsys.readouterr()
    assert main("sample", out, "--tokens", 5) == 0
    assert capsys.readouterr().err == ""


# -------------------------------------------------------------------------------------------------- disks and readers


@pytest.mark.parametrize("name", ["last.safetensors", "losses.csv"])
def test_a_disk_that_fills_up_ends_the_run_with_the_last_save_whole(book, out, capsys, monkeypatch, straight, name):
    def full(self_or_path, *args):
        if name == "losses.csv" or "last" in str(self_or_path):
            saves.append(name)
            if len(saves) == 3:
                raise OSError(28, "No space left on device")
        return before(self_or_path, *args)

    saves, owner = [], training.Table if name == "losses.csv" else checkpoint
    attribute = "flush" if name == "losses.csv" else "save"
    before = getattr(owner, attribute)
    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, full)
        assert main(*TINY, "--text", book, "--out", out, "--steps", 12) == 2
    err, saved = capsys.readouterr().err, {"last.safetensors": 4, "losses.csv": 8}[name]
    assert f"cannot save step {saved + 4} in {out}: No space left on device; step {saved} is saved" in err
    assert err.count("\n") == 1 and state(out)[1]["step"] == saved and not list(out.glob(".*"))
    assert main("--resume", "--out", out) == 0
    same_run(straight, out)


def test_a_reader_that_has_gone_stops_the_run_with_a_save(book, out, straight, monkeypatch):
    say = training.Progress._say

    def gone(self, line):
        if line.startswith("step 4"):
            raise BrokenPipeError(32, "Broken pipe")
        say(self, line)

    with monkeypatch.context() as patch:
        patch.setattr(training.Progress, "_say", gone)
        assert main(*TINY, "--text", book, "--out", out, "--steps", 12) == 128 + signal.SIGPIPE
    assert state(out)[1]["step"] == 4
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
    assert (process.returncode, err) == (-signal.SIGPIPE, "")
    assert state(out)[1]["step"] == len(rows(out)) > 0


def test_a_run_resumed_to_where_it_was_stopped_is_validated(book, out, capsys):
    """It had no validation before, and has no step left to do."""
    with stop_after(2):
        main(*TINY, "--text", book, "--out", out, "--steps", 12)
    assert main("--resume", "--out", out, "--steps", 2) == 0
    assert "step 2 of 2, best validation loss " in capsys.readouterr().out
    assert state(out)[1]["best_loss"] == state(out, "best")[1]["best_loss"] > 0
