"""Ctrl-C ends the program `minigrad` without a traceback also while it still imports NumPy and itself.

A program that imports minigrad keeps its own ways: nothing is changed unless Python was started to run `minigrad`.
"""

import signal
import sys

PROGRAMS = "minigrad", "minigrad.exe"  # as pip makes them


def is_program(argv, original):
    """Was Python started to run the program that pip has made, or `python -m minigrad`? argv: sys.argv, which begins
    with "-m" until a module is found; original: sys.orig_argv."""
    if not argv or len(argv) > len(original):
        return False
    if argv[0] == "-m":
        word = original[-len(argv)]  # minigrad, minigrad.study, -mminigrad
        return word.removeprefix("-m").partition(".")[0] == "minigrad"
    return argv[0].replace("\\", "/").rpartition("/")[-1] in PROGRAMS and _is_pips(argv[0])


def _is_pips(path):
    """Is it the file that pip has made, and not a program of the user's of that name? Pip's names what it imports."""
    try:
        with open(path, "rb") as file:
            return b"minigrad.__main__" in file.read()
    except OSError:
        return False


def interrupts(before, after):
    """Exchange what Ctrl-C does, if it does what `before` says."""
    if signal.getsignal(signal.SIGINT) is before:
        try:  # noqa: SIM105 - contextlib takes longer to import than all of this
            signal.signal(signal.SIGINT, after)
        except ValueError:  # not the main thread, which alone may
            pass


def begin():
    """Until `begun`, Ctrl-C ends the program at once. One that was started to ignore it still does."""
    if is_program(sys.argv, sys.orig_argv):
        interrupts(signal.default_int_handler, signal.SIG_DFL)


def begun():
    """From here on Ctrl-C is a KeyboardInterrupt, which cli.run tells in one line."""
    interrupts(signal.SIG_DFL, signal.default_int_handler)


begin()
