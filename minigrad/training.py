"""What stands around a training loop: a table of losses, a Ctrl-C that lets a step finish, a line of progress, and the
trained model back from its checkpoint."""

import contextlib
import shutil
import signal
import sys
import time

from .checkpoint import atomic_write
from .runs import load_char_model as load_char_model
from .runs import load_run as load_run


class Table:
    """A CSV file of one row per step, to write to: `row(step, ...)`. Opening it keeps the rows up to step `keep`.

    So a run that resumes at that step drops what the stopped one wrote after it, and no row is there twice.
    """

    def __init__(self, path, columns, keep=0):
        old = []
        with contextlib.suppress(FileNotFoundError), open(path, newline="", encoding="utf-8") as file:
            old = [line for line in file if line.endswith("\n")]  # a kill may have cut the last one
        kept = [line for line in old if (step := line.split(",")[0]).isdigit() and int(step) <= keep]
        atomic_write(path, "".join([",".join(columns) + "\n", *kept]).encode())
        self._file = open(path, "a", newline="", encoding="utf-8")  # noqa: SIM115

    def row(self, *values):
        """One number per column, or None for an empty field; floats with 6 significant digits."""
        cells = ("" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v) for v in values)
        self._file.write(",".join(cells) + "\n")

    def flush(self):
        """Hand the rows to the system. Do so before saving a checkpoint: rows may then be too many, never too few."""
        self._file.flush()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._file.close()


class Interrupt:
    """Inside a with-block, Ctrl-C only sets `asked`, for the loop to look at where it can stop and save.

    Another one, more than a second later, is a KeyboardInterrupt after all. (Sooner, it is likely the same one:
    a terminal and a program between may both pass it on.) For the main thread only, as are all signals in Python.
    """

    asked = False
    _since = 0.0

    def __enter__(self):
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exc):
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, number, frame):
        if self.asked and time.monotonic() - self._since > 1:
            raise KeyboardInterrupt
        if not self.asked:
            self.asked, self._since = True, time.monotonic()


class Progress:
    """tqdm's bar on a terminal, where tqdm is installed; else a line every five seconds.

    start and steps are the steps done before and in all, tokens how many of them make one step.
    """

    EVERY = 5.0  # seconds

    def __init__(self, start, steps, tokens):
        self.start, self.steps, self.tokens, self._began, self._next = start, steps, tokens, time.monotonic(), 0.0
        self._bar = None
        if sys.stderr.isatty():
            with contextlib.suppress(ImportError):
                from tqdm import tqdm

                columns, rows = shutil.get_terminal_size()  # unlike tqdm's own guess, right in a terminal of size 0
                self._bar = tqdm(total=steps, initial=start, unit="step", ncols=min(columns - 1, 100), nrows=rows)

    def step(self, done, loss):
        """Call after each step, with the number of steps done in all."""
        seconds = time.monotonic() - self._began
        speed = (done - self.start) / max(seconds, 1e-9)  # steps/s, with whatever else the loop does
        line = f"loss {loss:.3f}, {speed * self.tokens:,.0f} tokens/s"
        if self._bar is not None:
            self._bar.set_postfix_str(line, refresh=False)
            self._bar.update()
        elif seconds >= self._next:
            self._next = seconds + self.EVERY
            print(f"step {done}/{self.steps}: {line}, {(self.steps - done) / speed:.0f} s left", flush=True)

    def say(self, line):
        """Print a line without breaking the bar."""
        print(line, flush=True) if self._bar is None else self._bar.write(line)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self._bar is not None:
            self._bar.close()
