"""A progress line on a terminal, with the name of the task."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
log = logging.getLogger("minigrad")
WARN_ABOVE = 60  # seconds: counted() warns if its work will take longer
EVERY = 0.2  # seconds between two updates of the line


@contextlib.contextmanager
def busy(words: str = "") -> Iterator[Callable[[str], None]]:
    """Show `words` on stderr within the with-block, if it is a terminal. say(words), the function that this yields,
    replaces them. At the end the line is erased."""
    shown = ""

    def say(words):
        nonlocal shown
        if (words or shown) and sys.stderr is not None and sys.stderr.isatty():
            print(f"\r\033[K{words[:79]}", end="", file=sys.stderr, flush=True)  # \033[K erases the rest of the line
            shown = words

    say(words)
    try:
        yield say
    finally:
        say("")


def counted(items: Sequence[T], doing: str, what: str, function: str, advice: str = "") -> Iterator[T]:
    """Yield the items, and show on a terminal how many are done: "cutting edges: 3 of 50, 40 s to go".

    doing, what: the words "cutting" and "edges". If the work will take more than a minute, log one warning that begins
    with `function` and ends with `advice`."""
    started, shown, has_warned = time.monotonic(), 0.0, False
    with busy(f"{doing} {what}") as say:
        for done, item in enumerate(items):
            now = time.monotonic()
            left = (now - started) / max(done, 1) * (len(items) - done)
            if done and now - shown > EVERY:
                shown = now
                say(f"{doing} {what}: {done:,} of {len(items):,}, {duration(left)} to go")
            if done > 2 and left > WARN_ABOVE and not has_warned:
                has_warned = True
                log.warning(
                    "%s: %s %s %s will take about %s%s",
                    function, doing, f"{len(items):,}", what, duration(left), f"; {advice}" if advice else "",
                )  # fmt: skip
            yield item


def duration(seconds: float) -> str:
    """Return a time to wait in words, rounded: "40 s", "9 min" or "5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.0f} h"
