"""What is to be seen while kernels are compiled: seconds on end, the first time that a model is used on a machine."""

import contextlib
import functools
import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

log = logging.getLogger("minigrad")
TEXT = "minigrad: compiling kernels for this CPU, once"
EVERY = 5  # seconds between lines of the log


def each(function, items, threads, kept_in):
    """[function(item, cancelled) for item in items], several at a time, with a counter to be seen.

    The first error, and Ctrl-C, set the threading.Event `cancelled`, and what has not begun is not begun.
    kept_in: the folder to name when a process says for the first time that it compiles."""
    if not items:
        return []
    cancelled = threading.Event()
    with counter(len(items), kept_in) as count, ThreadPoolExecutor(max(1, threads)) as workers:
        jobs = [workers.submit(function, item, cancelled) for item in items]
        try:
            for job in as_completed(jobs):
                job.result()
                count()
            return [job.result() for job in jobs]
        except BaseException:
            cancelled.set()
            workers.shutdown(wait=False, cancel_futures=True)
            raise


@contextlib.contextmanager
def counter(total, kept_in):
    """count(), to be called as each of `total` is done. On a terminal one line, which goes in the end; else, and where
    the program has set up logging, a line of the log now and then."""
    done, said = 0, time.monotonic()
    on_terminal = _on_terminal()

    def count():
        nonlocal done, said
        done += 1
        if on_terminal:
            _show(f"{TEXT}: {done} of {total}")
        elif time.monotonic() - said >= EVERY and done < total:
            said = time.monotonic()
            log.warning("%s: %d of %d", TEXT, done, total)

    if on_terminal:
        _show(f"{TEXT}: 0 of {total}")
    else:
        _say_once(kept_in)
    try:
        yield count
    finally:
        if on_terminal:
            _show(" " * len(f"{TEXT}: {total} of {total}"))
            _show("")


def _on_terminal():
    """stderr is a terminal, and is where the log goes too."""
    try:
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # None, or closed
        return False
    return terminal and log.isEnabledFor(logging.WARNING) and not log.hasHandlers()


def _show(text):
    with contextlib.suppress(OSError, ValueError):  # a terminal that has gone is no reason to stop
        sys.stderr.write(f"\r{text}")
        sys.stderr.flush()


@functools.cache
def _say_once(folder):
    log.warning("%s; they are kept in %s", TEXT, folder)
