"""Around a training loop: a table of losses, signals that let a step finish, and a line of progress."""

import contextlib
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Self, TextIO

from ..base.files import atomic_write, open_regular
from ..typing import FilePath

__all__ = ["Table", "Interrupt", "Progress"]


class Table:
    """A CSV file with one row per step, written by `row(step, ...)`. Opening it keeps the rows up to step `keep`.

    So a run that resumes at that step drops what the stopped run wrote after it, and no row occurs twice.
    """

    def __init__(self, path: FilePath, columns: Sequence[str], keep: int = 0) -> None:
        old = []
        with contextlib.suppress(FileNotFoundError), open_regular(path) as file:
            old = [line for line in file if line.endswith(b"\n")]  # a killed run may have left part of a line
        kept = [line for line in old if re.match(rb"\d{1,18},", line) and int(line.split(b",")[0]) <= keep]
        atomic_write(path, b"".join([",".join(columns).encode() + b"\n", *kept]))
        self._file: TextIO = open(path, "a", newline="", encoding="utf-8")  # noqa: SIM115

    def row(self, *values: float | None) -> None:
        """One number per column, or None for an empty field; floats with 6 significant digits."""
        cells = ("" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v) for v in values)
        self._file.write(",".join(cells) + "\n")

    def flush(self) -> None:
        """Hand the rows to the system. Call it before saving a checkpoint, so that the table never lacks a row."""
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        try:
            self._file.close()
        except OSError:
            if kind is None:  # otherwise the first error is the one to report
                raise


class Interrupt:
    """Inside a with-block, Ctrl-C, SIGTERM (from a scheduler) and SIGHUP (a terminal was closed) only set `asked`. The
    loop looks at that where it can stop and save, and then exits with `status`, 128 + the number of the first signal.

    A signal may come twice, if the terminal and a program in between both pass it on. Only a Ctrl-C more than a second
    after the first signal raises KeyboardInterrupt: somebody is impatient. A signal that this process was started to
    ignore, as with nohup, stays ignored. In threads other than the main one Python allows no handlers: there, nothing
    changes.
    """

    SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

    def __init__(self) -> None:
        self.asked, self.status, self._since, self._before = False, 0, 0.0, {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):  # None: a handler that is not Python's, and cannot be put back
                    self._before[number] = before
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: Any) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _handle(self, number, frame):
        if not self.asked:
            self._since, self.status, self.asked = time.monotonic(), 128 + number, True  # asked last: a signal may nest
        elif number == signal.SIGINT and time.monotonic() - self._since > 1:
            raise KeyboardInterrupt


# Without tqdm's steps per second, which tokens per second tell too, there is room for a bar in 80 columns.
RECENT = 50  # steps
BAR = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


class Progress:
    """tqdm's bar on a terminal, where tqdm is installed; else a line every five seconds. Times are counted from the end
    of the first step. A loss is the mean since the last line, or on a bar of the last RECENT steps.

    start: steps done before. steps: steps in all. tokens: tokens per step. Once nobody reads the output any more
    (`| head`, a closed terminal), nothing is raised and nothing more is written. `broken` is then the OSError, and the
    loop looks at it where it can stop and save.
    """

    EVERY = 5.0  # seconds

    def __init__(self, start: int, steps: int, tokens: int) -> None:
        self.broken: OSError | None = None
        self.start, self.steps, self.tokens, self._next = start, steps, tokens, 0.0
        self._began: float | None = None  # when the first step ended, which also compiles
        self._losses: list[float] = []  # since the last line
        self._bar, self._line, self._note = None, "", ""
        if sys.stderr is not None and sys.stderr.isatty():
            with contextlib.suppress(ImportError):
                from tqdm import tqdm

                columns, rows = shutil.get_terminal_size()  # unlike tqdm's own guess, right in a terminal of size 0
                size = dict(ncols=min(columns - 1, 100), nrows=rows)
                self._bar = tqdm(total=steps, initial=start, bar_format=BAR, **size)

    def step(self, done: int, loss: float) -> None:
        """Call after each step, with the number of steps done in all."""
        self._write(self._step, done, loss)

    def note(self, words: str) -> None:
        """Show a few words at the end of the bar, until there are others; without a bar, nothing."""
        self._write(self._show, words)

    def say(self, line: str) -> None:
        """Print a line without breaking the bar."""
        self._write(self._say, line)

    def _write(self, function, *args):
        if self.broken is None:
            try:
                function(*args)
            except OSError as error:
                self.broken = error

    def _step(self, done, loss):
        now = time.monotonic()
        self._losses.append(loss)
        self._line = f"loss {sum(self._losses) / len(self._losses):.3f}"
        left = ""
        if self._began is None:
            self._began, self.start = now, done
            if self._bar is not None:
                self._bar.initial, self._bar.start_t = done, self._bar.last_print_t
        else:
            speed = (done - self.start) / max(now - self._began, 1e-9)  # steps/s, with whatever else the loop does
            self._line += f", {speed * self.tokens:,.0f} tokens/s"
            left = f", {(self.steps - done) / speed:.0f} s left"
        if self._bar is not None:
            self._bar.set_postfix_str(self._line + self._note, refresh=False)
            self._bar.update()
            del self._losses[:-RECENT]
        elif now >= self._next:
            self._next = now + self.EVERY
            self._losses.clear()
            print(f"step {done}/{self.steps}: {self._line}{left}", flush=True)

    def _show(self, words):
        self._note = f", {words}"
        if self._bar is not None:
            self._bar.set_postfix_str(self._line + self._note)

    def _say(self, line):
        print(line, flush=True) if self._bar is None else self._bar.write(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.close()
