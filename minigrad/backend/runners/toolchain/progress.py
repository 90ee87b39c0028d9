"""What the user sees while kernels are compiled. That takes many seconds when a model first runs on a machine."""

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
    """[function(item, cancelled) for item in items], several at a time, while a counter shows how many are done.

    The first error, and Ctrl-C, set the threading.Event `cancelled`; items that have not begun are then left out.
    kept_in: the folder that is named when a process says for the first time that it compiles."""
    if not items:
        return []
    todo, found, helpers = collections.deque(enumerate(items)), {}, []
    cancelled, ended = threading.Event(), queue.SimpleQueue()

    def work():
        while todo and not cancelled.is_set():
            with contextlib.suppress(IndexError):  # another thread was faster
                i, item = todo.popleft()
                error = attempt(i, item)
                ended.put(error)  # before the others are stopped: their errors would only say so
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
    """Add up to n threads that work. concurrent.futures would not do: it starts none once the main thread has ended."""
    with contextlib.suppress(RuntimeError):  # the system allows no more threads, or Python is about to end
        for _ in range(n):
            helper = threading.Thread(target=work, daemon=False)
            helper.start()
            helpers.append(helper)


@contextlib.contextmanager
def counter(total, kept_in):
    """Yields count(), to be called when each of `total` items is done. A terminal shows one line, which is removed at
    the end. Without a terminal, or if the program has set up logging, there is a line in the log now and then."""
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
    """Is stderr a terminal, and does the log go there too?"""
    try:
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # None, or closed
        return False
    return terminal and log.isEnabledFor(logging.WARNING) and not log.hasHandlers()


def _show(text):
    with contextlib.suppress(OSError, ValueError):  # the terminal may be gone: no reason to stop
        sys.stderr.write(f"\r{text}")
        sys.stderr.flush()


@functools.cache
def _say_once(folder):
    log.warning("%s; they are kept in %s", TEXT, folder)
