"""For a training loop: a table of losses, signals that let a step finish, and a line of progress."""

import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

from ..base.errors import encodable
from ..base.files import atomic_write
from ..typing import FilePath

__all__ = ["Table", "Interrupt", "Progress"]


class Table:
    """A CSV file with a row for each step, written by row(step, …). Without a path nothing is written.

    Opening it keeps the rows up to step `keep`. A run that resumes from a checkpoint of that step so drops what the
    stopped run wrote later."""

    def __init__(self, path: FilePath | None, columns: Sequence[str], keep: int = 0) -> None:
        if path is None:
            self._file = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            return
        kept = [",".join(columns).encode() + b"\n"]
        if keep and os.path.exists(path):
            with open(path, "rb") as file:  # a killed run may have left part of a row at the end
                rows = [line for line in file if re.match(rb"\d{1,18},.*\n", line)]  # int() refuses 5,000 digits
            kept += [row for row in rows if int(row.split(b",")[0]) <= keep]
        atomic_write(path, b"".join(kept))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def row(self, *values: float | None) -> None:
        """Write a row: a number for each column, or None for an empty field. Floats have 6 significant digits."""
        cells = ("" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v) for v in values)
        self._file.write(",".join(cells) + "\n")

    def flush(self) -> None:
        """Hand the rows to the system. Call it before a checkpoint is saved: the file then has all rows up to it."""
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._file.close()


class Interrupt:
    """Within a with-block, Ctrl-C, SIGTERM (from a scheduler) and SIGHUP (a terminal was closed) stop nothing. The
    first sets `signal` to its number. The loop reads it where it can stop and save.

    A Ctrl-C more than a second after the first signal raises KeyboardInterrupt, for a user who does not want to wait.
    (Within a second it may be the same one, passed on by a program in between.) A signal that this process ignores, as
    with nohup, stays ignored. Python allows handlers in the main thread only; in others nothing changes."""

    SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

    def __init__(self) -> None:
        self.signal, self._since = 0, 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in self.SIGNALS}
        for number, before in self._before.items():
            if before != signal.SIG_IGN:
                signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: Any) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _handle(self, number, frame):
        if not self.signal:
            self.signal, self._since = number, time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - self._since > 1:
            raise KeyboardInterrupt


class Progress:
    """Print a line every five seconds; on a terminal, one line that changes. The loss shown is the mean of the last
    RECENT steps. Times are counted from the end of the first step, which also compiles.

    start: steps done before. steps: steps in all. tokens: tokens in a step. When nobody reads the output any more
    (`| head`, a closed terminal), `broken` becomes True, and nothing is written or raised: the loop may stop."""

    RECENT, EVERY, LIVE = 50, 5.0, 0.2  # steps; seconds; the same on a terminal
    ERASE = "\r\033[K"  # a terminal empties its line at this

    def __init__(self, start: int, steps: int, tokens: int) -> None:
        self.steps, self.tokens, self.broken = steps, tokens, False
        self._losses: deque[float] = deque(maxlen=self.RECENT)
        self._first, self._began, self._next = start + 1, 0.0, 0.0
        self._live = sys.stdout is not None and sys.stdout.isatty()

    def step(self, done: int, loss: float) -> None:
        """Call after each step, with the number of steps done in all."""
        now = time.monotonic()
        if done == self._first:
            self._began = now
        self._losses.append(loss)
        if now < self._next:
            return
        self._next = now + (self.LIVE if self._live else self.EVERY)
        speed = (done - self._first) / max(now - self._began, 1e-9)  # steps/s, validation included
        line = f"step {done}/{self.steps}: loss {sum(self._losses) / len(self._losses):.3f}"
        if speed:
            line += f", {speed * self.tokens:,.0f} tokens/s, {(self.steps - done) / speed:.0f} s left"
        live = f"\033[?7l{line}\033[?7h"  # no line wrap: a second row could not be erased
        self.say(*(live, "") if self._live else (line,))

    def say(self, line: str, end: str = "\n") -> None:
        """Print a line."""
        if not self.broken:
            try:
                print(self.ERASE * self._live + encodable(line), end=end, flush=True)
            except OSError:
                self.broken = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._live:
            self.say("", end="")
