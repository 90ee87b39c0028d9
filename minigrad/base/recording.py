"""The captured step that a thread runs, and the interface that other packages have to it."""

import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class CaptureError(RuntimeError):
    """A step does something that cannot be captured; the message says what, and where."""


class Recorder(Protocol):
    """A call of a captured step, to those who work for it: replay/follower.py is one. Types that are declared in higher
    layers are `object` here."""

    entry: object  # the Entry being captured, to which launches are added; None between two ops

    # the engine

    def apply(self, cls: type, inputs: tuple[object, ...], params: dict[str, object]) -> object:
        """Op.apply: Tensors, with the captured results of such an op, or of this one, which is captured then."""

    def walk(self, roots: object, cotangents: object, inputs: object, retain_graph: bool | None, create_graph: bool,
             inspect: object) -> object:  # fmt: skip
        """autograd.backward."""

    def changed(self, storage: object, times: int) -> None:
        """The memory of a Storage is about to change in place; -1: it did not, as the change raised."""

    def looked_into(self, node: object) -> None:
        """A Node gets a hook, or keeps its gradient."""

    # tensors

    def note(self, x: object) -> None:
        """A Tensor has been made, or has other memory."""

    def read(self, x: object) -> "np.ndarray":
        """The values of a Tensor, after all that the step has done so far."""

    # backends

    def primitive(self, name: str, function: Callable[..., object], on: object, args: object, kwargs: object) -> object:
        """A primitive of a backend: function(on, *args, **kwargs), or what it gave when it was captured."""

    def empty(self, shape: object, dtype: object) -> object:
        """A new compact array of the step, which has no memory while it is captured."""

    def launch(self, *args: object) -> None:
        """The arguments of Launcher._start, to be launched when the step runs."""

    def cells(self, values: Callable[[], object], shape: tuple[int, ...], dtype: object) -> object:
        """See Launcher.cells."""

    def stream(self, draw: object) -> tuple[object, int, int]:
        """See Launcher.stream."""

    def look_later(self, check: tuple[object, ...]) -> None:
        """What a check of indices on a GPU finds, to be looked at when the host next waits."""

    def flush(self) -> None:
        """Run what the step has done so far."""


class _Thread(threading.local):
    def __init__(self) -> None:  # once for each thread
        self.recorder: Recorder | None = None  # the captured step that this thread runs


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
