"""What code announces while a step may be being recorded: see replay/captured.py.

A recorded step is replayed below autograd, without Python. So whatever a step does on the host has to be announced,
with the functions below. Outside of a recording they cost next to nothing.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class CaptureError(RuntimeError):
    """A step does something that cannot be captured; the message says what, and in which line."""


class Watched:
    """A base of what holds parameters, options and hooks: a recorded step asks whether they are still the same."""


class _Thread(threading.local):
    def __init__(self) -> None:  # once for each thread
        self.recorder: Any = None  # the Recorder of the step that this thread records, see backend/launch/recorder.py


thread = _Thread()


def active() -> bool:
    """Is this thread recording a step?"""
    return thread.recorder is not None


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """What runs inside is no part of the step: it happens now and only once, such as making an optimizer's buffers."""
    recorder, thread.recorder = thread.recorder, None
    try:
        yield
    finally:
        thread.recorder = recorder


def each_call(function: Callable[[], object]) -> None:
    """Call function: now, or if a step is being recorded, at each of its calls, before its launches."""
    if thread.recorder is not None:
        thread.recorder.calls.append(function)
    else:
        function()


def depends_on(value_of: Callable[[], Any]) -> None:
    """What is being recorded holds only while value_of() is what it is now; if not, the step is recorded anew."""
    if thread.recorder is not None:
        thread.recorder.guards.append((value_of, value_of()))


def checked(x: Any, n: int, ignored: int | None, check: Callable[[Any], object]) -> Any:
    """An int Tensor's array, of which check(values), given its values on the host, raises if any is neither in [0, n)
    nor `ignored`. A step that is being recorded checks at each call: see checked() of its recorder."""
    if thread.recorder is not None:
        return thread.recorder.checked(x.array, n, ignored, check)
    check(x.detach().numpy())
    return x.array


def refuse(what: str) -> None:
    """Raise CaptureError if a step is being recorded: `what` cannot be."""
    if thread.recorder is not None:
        raise CaptureError(f"{what} cannot be captured ({user_line()})")


def refuse_users(what: str) -> None:
    """Raise CaptureError if a step is being recorded and the caller's caller is not minigrad's own code."""
    if thread.recorder is not None and not sys._getframe(2).f_code.co_filename.startswith(PACKAGE):
        refuse(what)


def user_line() -> str:
    """'file.py:12' of the innermost caller outside minigrad."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
