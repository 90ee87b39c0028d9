"""What is to be seen while kernels are compiled: seconds on end, the first time that a model is used on a machine."""

import collections
import contextlib
import functools
import logging
import os
import queue
import sys
import threading
import time

log = logging.getLogger("minigrad")
TEXT = "minigrad: compiling kernels for this CPU, once"
EVERY = 5  # seconds between lines of the log


def each(function, items, threads, kept_in):
    """[function(item, cancelled) for item in items], several at a time, with a counter to be seen.

    The first error, and Ctrl-C, set the threading.Event `cancelled`, and what has not begun is not begun.
    kept_in: the folder to name when a process says for the first time that it compiles."""
    if not items:
        return []
    todo, found, helpers = collections.deque(enumerate(items)), {}, []
    cancelled, ended = threading.Event(), queue.SimpleQueue()

    def work():
        while todo and not cancelled.is_set():
            with contextlib.suppress(IndexError):  # another was faster
                i, item = todo.popleft()
                error = attempt(i, item)
                ended.put(error)  # before others are stopped, whose errors say no more than that
                if error:
                    cancelled.set()

    def attempt(i, item):
        try:
            found[i] = function(item, cancelled)
        except BaseException as error:
            return error
        return None

    with counter(len(items), kept_in) as count:
        try:
            _start(helpers, work, min(max(1, threads), len(items)))
            if not helpers:
                work()
            for _ in items:
                if error := ended.get():
                    raise error
                count()
            return [found[i] for i in range(len(items))]
        finally:
            cancelled.set()
            for helper in helpers:
                helper.join()


def _start(helpers, work, n):
    """Add up to n threads that work. Not concurrent.futures', which has none once the main one has ended."""
    with contextlib.suppress(RuntimeError):  # no more can be had: a limit of the system, or Python is about to end
        for _ in range(n):
            helper = threading.Thread(target=work, daemon=False)
            helper.start()
            helpers.append(helper)


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
