"""A progress line on a terminal, with the name of the task."""

import contextlib
import sys
from collections.abc import Callable, Iterator


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


def duration(seconds: float) -> str:
    """Return a time to wait in words, rounded: "40 s", "9 min" or "5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.0f} h"
