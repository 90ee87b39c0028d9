"""Programs on a GPU: CUDA graphs."""

from typing import Any

import numpy as np

from ..backend.kernels import Struct, StructArray
from ..backend.launch.launcher import bytes_below, bytes_spanned
from ..backend.runners.checks import WORD, DeferredChecks
from .programs import Launch, Program

PARAMETER_COPY = Struct("captured.cu", "ParameterCopy")  # a row: one copy of the kernel `copy_parameters`
SLOTS = 32  # calls that the host may be ahead of the GPU


class GraphProgram(Program):
    """The launches of some trace entries as one CUDA graph. It is started on the stream that is current at each call,
    and the host does not wait for it.

    A graph holds addresses. If an array from outside has another address at another call, the graph gets a copy of its
    own, which is filled before each run, and copied back if the launches change it.

    The graph's first kernel (kernels/captured.cu) fills the parameter buffers, such as learning rates and positions of
    random streams. It reads them from page-locked memory of the host, which has a slot for each of SLOTS calls. So
    nothing is uploaded, and the host may be SLOTS calls ahead.

    A wrong index is replaced by 0 and recorded. From then on minigrad's optimizers change nothing, until the host next
    waits for the GPU, notices, and raises."""

    _calls = 0

    def __init__(self, backend, space, entries, outside, kept):
        self._backend, self._space, self._kept = backend, space, kept
        self._launches = [launch for e in entries for launch in e.launches]
        # (host array, array of the GPU) of each parameter buffer, as words
        self._buffers = [(buffer.host.base, buffer.kernel.base) for e in entries for buffer in e.parameter_buffers]
        lives: dict = {}
        self._changed = set()
        for at, launch in enumerate(self._launches):
            for x, changes in _arrays(backend, launch):
                if place := space.place(x):
                    lives.setdefault(place[0], [at, at])[1] = at
                    if changes:
                        self._changed.add(place[0])
        end = len(self._launches)  # the kept ones are copied after all launches
        inside = {a: (first, end if a in kept else last) for a, (first, last) in lives.items() if a not in outside}
        self._plan = self._memory_plan(inside)
        self._outside = [a for a in lives if a in outside]
        self._address_of: dict = {}  # {Allocation from outside: the address that the graph knows}
        self._copies: dict = {}  # {Allocation from outside: the graph's own copy}, where the address has changed
        self._graph: Any = None
        self._stream: Any = None
        self._turn: Any = None  # an array of the GPU: how many calls it has begun, if there are parameter buffers
        self._events = [backend.event() for _ in range(SLOTS)]  # each recorded when a call had finished
        self._checks = DeferredChecks(backend, [check for e in entries for check in e.checks])

    # -- making the graph

    def _build(self):
        """Make the CUDA graph of all launches, at the present addresses."""
        backend = self._backend
        launches = [
            launch._replace(args=backend.with_packed_structs(map(self._with_memory, launch.args)))
            for launch in self._launches
        ]
        if self._buffers:
            launches.insert(0, self._parameter_launch())
        downloads = [(host, on_gpu) for host, (_, _, on_gpu) in zip(self._checks.found, self._checks.checks)]
        self._graph = backend.graph(launches, downloads)
        self._built = launches  # keeps the arrays of these launches alive

    def _with_memory(self, x):
        """An argument of a captured launch, with the addresses of the memory plan."""
        if type(x) is StructArray:
            rows = [{name: self._with_memory(value) for name, value in row.items()} for row in x.rows]
            return StructArray(x.struct, rows)
        place = self._space.place(x) if isinstance(x, self._backend.array_type) else None
        if place is None:
            return x
        allocation, offset = place
        start = self._plan.get(allocation) or self._address_of[allocation]
        return self._backend.array_at(start + offset, x.shape, x.dtype, x.strides, self)

    def _parameter_launch(self):
        """Return the launch that copies the numbers of a call from its slot to the parameter buffers."""
        backend, rows, size = self._backend, [], 0
        for host, on_gpu in self._buffers:
            rows.append(dict(to=on_gpu, start=size, size=host.size))
            size += host.size
        if self._turn is None:
            self._slots, self._turn = backend.pinned((SLOTS, size), WORD), backend.from_numpy(np.zeros(1, np.int64))
        table = backend.packed_structs(StructArray(PARAMETER_COPY, rows))
        args = [table, len(rows), backend.seen_by_gpu(self._slots), size, SLOTS, self._turn]
        return Launch("captured", "copy_parameters", WORD, (1,), (32,), 0, args)

    # -- running it

    @property
    def is_done(self):
        """True if the GPU has finished the last call."""
        return not self._calls or self._last_event.done

    def _prepared(self, memory):
        """Write the addresses and numbers of this call. Return the function that starts the graph, and its
        arguments."""
        stream = self._backend.current_stream()
        if self._calls and stream != self._stream:
            stream.wait_event(self._last_event)  # order this call after the previous one, which ran on another stream
        self._stream = stream
        self._update_outside_arrays(memory)
        if self._calls >= SLOTS:
            self._events[self._calls % SLOTS].synchronize()  # the GPU has read the slot
        if self._buffers:
            self._slots[self._calls % SLOTS] = np.concatenate([host for host, _ in self._buffers])
        if self._checks.checks:
            self._backend.unread_checks[self] = None
        self._next = self._calls + 1
        return self._graph.launch, (stream,)

    def _finish(self, memory):
        """Copy changed arrays and results from the graph's memory to the arrays that the step sees."""
        backend, self._calls = self._backend, self._next
        for allocation in self._changed & self._copies.keys():
            backend.refill(memory.blocks[allocation], self._copy_of(allocation, memory))
        for allocation in self._kept:
            block, start = memory.blocks[allocation], self._plan[allocation]
            backend.refill(block, backend.array_at(start, block.shape, block.dtype, block.strides, self))
        self._last_event.record(self._stream)

    def _update_outside_arrays(self, memory):
        """Give the graph the addresses of the arrays from outside. Fill its copies of those that have moved."""
        backend = self._backend
        moved = [a for a in self._outside if a not in self._copies and self._address_of.get(a) != memory.addresses[a]]
        for allocation in moved:
            if self._graph is None:
                self._address_of[allocation] = memory.addresses[allocation]
            else:
                self._copies[allocation] = copy = backend.memory(bytes_spanned(memory.blocks[allocation]))
                self._address_of[allocation] = backend.address(copy)
        if moved or self._graph is None:
            self._build()
        for allocation in self._copies:
            backend.refill(self._copy_of(allocation, memory), memory.blocks[allocation])

    def _copy_of(self, allocation, memory):
        """The graph's copy, laid out as the array from outside is."""
        x = memory.blocks[allocation]
        return self._backend.array_in(self._copies[allocation], -bytes_below(x), x.shape, x.dtype, x.strides)

    @property
    def _last_event(self):
        return self._events[(self._calls - 1) % SLOTS]

    def raise_index_errors(self):
        """Raise IndexError if a call that has finished was given a wrong index."""
        self._checks.raise_index_errors(", in a captured step")

    def __del__(self):
        if not self.is_done:  # page-locked memory that is given back may be used for something else at once
            self._last_event.synchronize()


def _arrays(backend, launch):
    """(array, True if the launch may change it) of each array among the arguments of a launch."""
    for x, p in zip(launch.args, backend.kernel(*launch[:3]).parameters):
        if type(x) is StructArray:
            for row in x.rows:
                yield from ((value, True) for value in row.values() if isinstance(value, backend.array_type))
        elif isinstance(x, backend.array_type):
            yield x, p.changes
