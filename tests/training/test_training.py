"""Interrupt, Table and Progress, the helpers of a training loop."""

import io
import re
import signal
import sys
import threading

import pytest

from minigrad import training
from minigrad.training import Interrupt, Progress, Table

# ------------------------------------------------------------------------------------------------------------- signals


@pytest.fixture
def now(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(training.loop.time, "monotonic", lambda: clock[0])
    return clock


@pytest.mark.parametrize("first", Interrupt.SIGNALS)
def test_only_a_ctrl_c_later_is_impatience(now, first):
    before = [signal.getsignal(number) for number in Interrupt.SIGNALS]
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        assert interrupt.signal == 0
        signal.raise_signal(first)
        for number in Interrupt.SIGNALS:
            signal.raise_signal(number)
        assert interrupt.signal == first
        now[0] += 60
        for number in Interrupt.SIGNALS[1:]:
            signal.raise_signal(number)
        signal.raise_signal(signal.SIGINT)
    assert interrupt.signal == first
    assert [signal.getsignal(number) for number in Interrupt.SIGNALS] == before


def test_handlers_of_others_are_put_back_and_ignored_signals_stay_ignored():
    got = []
    mine, hup = (lambda *args: got.append(args)), signal.getsignal(signal.SIGHUP)
    before = signal.signal(signal.SIGTERM, mine)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with Interrupt() as outer:
            with Interrupt() as inner:
                signal.raise_signal(signal.SIGHUP)
                assert not inner.signal
                signal.raise_signal(signal.SIGTERM)
            assert inner.signal and not outer.signal
            signal.raise_signal(signal.SIGTERM)
            assert outer.signal
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN and not got
        signal.raise_signal(signal.SIGTERM)
        assert len(got) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGHUP, hup)


def test_in_another_thread_it_changes_nothing():
    before, seen = [signal.getsignal(number) for number in Interrupt.SIGNALS], []

    def work():
        with Interrupt() as interrupt:
            seen.append([signal.getsignal(number) for number in Interrupt.SIGNALS])
            seen.append(interrupt.signal)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, 0]


# ------------------------------------------------------------------------------------------------------------ progress


def test_progress_off_a_terminal_is_plain_lines(capsys, now):
    """Times are counted from the end of the first step, which compiles."""
    with Progress(10, 40, 100) as progress:
        now[0] += 300
        progress.step(11, 2.5)
        for done in range(12, 41):
            now[0] += 1
            progress.step(done, done / 10)
        progress.say("done")
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "step 11/40: loss 2.500"
    assert out[1] == "step 16/40: loss 1.583, 100 tokens/s, 24 s left"  # the mean of all so far
    assert out[2] == "step 21/40: loss 1.727, 100 tokens/s, 19 s left" and len(out) == 7 and out[-1] == "done"


def test_progress_on_a_terminal_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(Progress, "LIVE", 0.0)
    with Progress(1, 3, 100) as progress:
        progress.step(2, 2.5)
        progress.say("a line")
        progress.step(3, 2.25)
    assert re.sub(", .*left", "", capsys.readouterr().out).split("\r\033[K") == [
        "", "\033[?7lstep 2/3: loss 2.500\033[?7h", "a line\n", "\033[?7lstep 3/3: loss 2.375\033[?7h", "",
    ]  # fmt: skip


def test_progress_that_nobody_reads_any_more_is_told_once(monkeypatch):
    class Gone(io.StringIO):
        writes = 0

        def write(self, text):
            self.writes += 1
            raise BrokenPipeError(32, "Broken pipe")

        def flush(self):
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", Gone())
    with Progress(0, 3, 100) as progress:
        assert not progress.broken
        for done in (1, 2, 3):
            progress.step(done, 2.5)
            progress.say("a line")
        assert progress.broken and sys.stdout.writes == 1


def test_a_table_that_was_damaged_is_mended(tmp_path):
    path = tmp_path / "losses.csv"
    path.write_bytes(b"step,train\n1,2.5\n\xff\xfe\n\xc2\xb2,1\n-2,1\n" + b"9" * 5000 + b",1\n2,2.25\n9,1\n3,")
    with Table(path, ("step", "train"), keep=5) as table:
        table.row(6, 2.0)
    assert path.read_bytes() == b"step,train\n1,2.5\n2,2.25\n6,2\n"


def test_a_table_keeps_six_digits(tmp_path):
    with Table(tmp_path / "losses.csv", ("step", "train", "val")) as table:
        table.row(123456789, 1.23456789, None)
        table.row(2, 0.00012345678, float("nan"))
    assert (tmp_path / "losses.csv").read_text() == "step,train,val\n123456789,1.23457,\n2,0.000123457,nan\n"
