"""Recording backends: a primitive that runs on one adds its kernel launches to a trace entry."""

import functools
from typing import Any

import numpy as np

from ..backend.launch.launcher import Launcher
from ..base.capturing import CaptureError, user_line
from .addresses import AddressSpace
from .programs import Launch
from .trace import ParameterBuffer, TraceEntry


class Recording(Launcher):
    """What differs in a recording backend: new arrays have no memory, and nothing is launched.

    Its attributes are those of the backend that it records for, in the same dict."""

    __slots__ = "entry", "space"
    entry: TraceEntry  # the entry that is being captured
    space: AddressSpace  # gives addresses to new arrays

    def empty(self, shape, dtype):
        return self.space.empty(shape, dtype)

    def _start(self, *launch):
        captured = Launch(*launch)
        self.kernel(*captured[:3])  # compiled now: if that fails, nothing has happened yet
        self.entry.launches.append(captured)

    def parameter_buffer(self, values, shape, dtype):
        """A small array for kernels, filled with values() now and before each replay."""
        host, kernel = self.parameter_memory(shape, dtype)
        host[...] = values()
        self.entry.parameter_buffers.append(ParameterBuffer(host, kernel, values))
        return kernel

    def random_stream(self, draw):
        per_call = next((each for each in self.entry.per_call_values if each.value is draw), None)
        if per_call is None:
            raise CaptureError(f"random numbers drawn within an op cannot be captured ({user_line()})")
        return self.parameter_buffer(lambda: (per_call.value.key, per_call.value.offset), (2,), np.uint64), 0, 0

    def defer_check(self, check):
        self.entry.checks.append(check)


@functools.cache
def _recording_class(kind):
    """The class of recording backends for backends of a class."""
    return type(f"Recording{kind.__name__}", (Recording, kind), {"__slots__": ()})


def recording_for(backend: Any, space: AddressSpace, entry: TraceEntry) -> Any:
    """A backend with the kernels and settings of `backend`, which records launches for an entry."""
    kind: Any = type(backend)
    recording = object.__new__(_recording_class(kind))
    recording.__dict__ = backend.__dict__
    recording.space, recording.entry = space, entry
    return recording
