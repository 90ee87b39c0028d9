"""The captured step that a thread runs, which other packages ask for what would otherwise be computed."""

import os
import sys
import threading
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class CaptureError(RuntimeError):
    """A step does something that cannot be captured; the message says what, and where."""


class _Thread(threading.local):
    def __init__(self) -> None:  # once for each thread
        self.recorder: Any = None
        """The captured step that this thread runs: a Follower of replay/, whose methods say what each is asked by.
        The engine calls apply, walk, changed and looked_into; Tensors note and read; backends primitive, empty,
        launch, cells, stream and look_later. Its `entry` is not None while an op is captured."""


thread = _Thread()


class uncaptured:
    """What runs inside is not part of a captured step: it happens now, and only once, such as making an optimizer's
    buffers.

    after: run what the step has done so far first. (Not a generator: that could be closed late after an interrupt, and
    restore the step when it is over.)"""

    def __init__(self, after: bool = True) -> None:
        self.after = after

    def __enter__(self) -> None:
        self.recorder = thread.recorder
        if self.recorder is not None and self.after:
            self.recorder.flush()
        thread.recorder = None

    def __exit__(self, *exc: object) -> None:
        thread.recorder = self.recorder


def refuse(what: str) -> None:
    """Raise CaptureError in a captured step: `what` cannot be done there."""
    if thread.recorder is not None:
        raise CaptureError(f"{what} cannot be captured ({user_line()})")


def refuse_within(what: str) -> None:
    """Raise CaptureError while an op is captured: its work on the host would not be repeated at later calls."""
    if thread.recorder is not None and thread.recorder.entry is not None:
        refuse(what)


class _Inside(dict[str, bool]):
    def __missing__(self, filename: str) -> bool:
        self[filename] = filename.startswith(PACKAGE)
        return self[filename]


_inside = _Inside()  # is this file minigrad's?


def user_place() -> tuple[str, int]:
    """('file.py', 12) of the innermost caller outside minigrad. Cheap enough to be called for every recorded op."""
    frame = sys._getframe(2)
    while _inside[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def user_line() -> str:
    """'file.py:12' of the innermost caller outside minigrad."""
    return "{}:{}".format(*user_place())
