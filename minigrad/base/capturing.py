"""The captured step that a thread runs (`thread.session`). The engine, Tensors and backends tell it what they would
otherwise compute."""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class CaptureError(RuntimeError):
    """A step does something that cannot be captured; the message says what, and where."""


class CaptureSession(Protocol):
    """One call of a captured step, as the engine, Tensors and backends see it; replay/call.py has the class.

    Tensors, nodes, storages and arrays are `Any` here, since their classes belong to packages above this one."""

    capturing: Any
    """The recording backend of the trace entry that is being captured, or None. While it is not None, ops run as usual,
    and primitives run on that backend, which adds their kernel launches to the entry."""

    # The engine calls:

    def apply_op(self, op: type, inputs: Sequence[Any], params: dict[str, Any]) -> Any:
        """The outputs of an op: Op.apply."""
        ...

    def backward(
        self,
        roots: Sequence[Any],
        cotangents: Sequence[Any],
        inputs: Sequence[Any] | None,
        retain_graph: bool | None,
        create_graph: bool,
        inspect: Callable[..., object] | None,
    ) -> Any:
        """A backward walk: autograd.walk.backward."""
        ...

    def node_observed(self, node: Any) -> None:
        """A hook was added to a node, or its gradient is to be kept."""
        ...

    def storage_changed(self, storage: Any, times: int) -> None:
        """The version of a storage was just raised by `times`, since its memory is about to change in place."""
        ...

    def storage_outdated(self, storage: Any) -> None:
        """The Tensors of a storage have just become outdated, by a recorded change in place of one of them."""
        ...

    # Tensors call:

    def tensor_created(self, x: Any) -> None:
        """A Tensor was made, or got other memory."""
        ...

    def read_values(self, x: Any) -> Any:
        """The values of a Tensor as a NumPy array, after everything that the step has done so far."""
        ...

    # Backends call:

    def primitive(self, name: str, function: Callable[..., Any], backend: Any, args: Any, kwargs: Any) -> Any:
        """The result of a primitive, which function(backend, *args, **kwargs) would compute by kernels."""
        ...

    # uncaptured() calls:

    def run_pending(self) -> None:
        """Compute everything that the step has done so far."""
        ...


class _Thread(threading.local):
    def __init__(self) -> None:  # once for each thread
        self.session: CaptureSession | None = None  # the call of a captured step that this thread runs


thread = _Thread()


def in_step() -> bool:
    """True if this thread runs a captured step."""
    return thread.session is not None


class uncaptured:
    """A block that is not part of a captured step: it runs now, and only in this call, for example to make an
    optimizer's buffers.

    after: compute first what the step has done so far. (This is a class, not a generator: an interrupt could close a
    generator late, and it would then restore the session after its end.)"""

    def __init__(self, after: bool = True) -> None:
        self.after = after

    def __enter__(self) -> None:
        self.session = thread.session
        if self.session is not None and self.after:
            self.session.run_pending()
        thread.session = None

    def __exit__(self, *exc: object) -> None:
        thread.session = self.session


def refuse(what: str) -> None:
    """Raise CaptureError in a captured step: `what` cannot be captured."""
    if thread.session is not None:
        raise CaptureError(f"{what} cannot be captured ({user_line()})")


def refuse_within(what: str) -> None:
    """Raise CaptureError while an op is captured: work on the host would not be repeated at later calls."""
    if thread.session is not None and thread.session.capturing is not None:
        refuse(what)


def safe_from_changes(array: Any) -> Any:
    """Return the array, or in a captured step a copy: the user may change the array before the step is replayed."""
    return array if thread.session is None else array.copy()


class _IsOurs(dict[str, bool]):
    """{filename: True for a file of minigrad}, filled when asked."""

    def __missing__(self, filename: str) -> bool:
        self[filename] = filename.startswith(PACKAGE)
        return self[filename]


_is_ours = _IsOurs()


def user_place() -> tuple[str, int]:
    """('file.py', 12) of the innermost caller outside minigrad. Fast enough to be called for every recorded op."""
    frame = sys._getframe(2)
    while _is_ours[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def user_line() -> str:
    """'file.py:12' of the innermost caller outside minigrad."""
    return "{}:{}".format(*user_place())
