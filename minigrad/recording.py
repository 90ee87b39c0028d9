"""What code says while a step may be being recorded: see capture.py.

A recorded step is replayed below autograd, without Python. So whatever a step does on the host has to be announced,
with the functions below; outside of a recording they cost next to nothing.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PACKAGE = str(Path(__file__).resolve().parent)


class CaptureError(RuntimeError):
    """A step does something that cannot be recorded; the message says what, and in which line."""


class _Here(threading.local):
    def __init__(self) -> None:  # once for each thread
        self.recorder: Any = None  # of the step that this thread is recording


here = _Here()


def active() -> bool:
    """Is this thread recording a step?"""
    return here.recorder is not None


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """What runs inside is no part of the step: it makes what the step finds each time, an optimizer's buffers say."""
    recorder, here.recorder = here.recorder, None
    try:
        yield
    finally:
        here.recorder = recorder


def each_call(function: Callable[[], object]) -> None:
    """Call function now and, if a step is being recorded, again at each of its calls, before its launches."""
    function()
    if here.recorder is not None:
        here.recorder.each_call(function)


def depends_on(value_of: Callable[[], Any]) -> None:
    """What is being recorded holds only while value_of() equals what it is now: else it is recorded anew."""
    if here.recorder is not None:
        here.recorder.depends_on(value_of)


def refuse(what: str) -> None:
    """Raise CaptureError if a step is being recorded: `what` cannot be."""
    if here.recorder is not None:
        raise CaptureError(f"{what} cannot be captured ({user_line()})")


def user_line() -> str:
    """'file.py:12' of the innermost caller outside minigrad."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
