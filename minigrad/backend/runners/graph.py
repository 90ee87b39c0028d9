"""A captured step on a GPU: its launches in a CUDA graph, which the host starts by one call and does not wait for.

The step is recorded as on a CPU (launch/recorder.py). What differs is how the host's numbers of each call get to the
GPU, and how indices are checked. The numbers (learning rates, where random numbers begin) lie in page-locked memory,
which the graph's first kernel reads (kernels/captured.cu): nothing is uploaded, and since each of SLOTS calls has a
slot, the host may be that many calls ahead. A wrong index is replaced by 0 and noted down. From then on no optimizer of
minigrad's changes anything, until the host next waits for the GPU, notices, and raises.
"""

from typing import Any

import numpy as np

from ...base.recording import apart, refuse, user_line
from ..kernels import Struct
from ..launch.recorder import Launch, Recorder, Replay, Table

LETTER = Struct("captured.cu", "Letter")
WORD = np.dtype(np.uint64)  # what kernels/captured.cu is compiled for
SLOTS = 32
CHECKS = 256  # arrays of indices that a step may check
NONE_WRONG = 0, -1  # the lowest index below 0, and the highest from n on


class GraphRecorder(Recorder):
    """What a step that becomes a CUDA graph has done so far."""

    def __init__(self, backend):
        super().__init__(backend)
        self.cells_there: list = []  # (array of the host, its copy on the GPU)
        self.found = None  # (CHECKS, 2): what each check has found
        self.raising: list = []  # for each check: (function that raises, line)

    def cell(self, shape, dtype):
        cell = np.zeros(shape, dtype)
        there = self.backend.array_type(shape, dtype)
        self.cells_there.append((cell, there))
        return cell, there

    def checked(self, array, n, ignored, function):
        """A copy of an array of indices, with 0 for each that is neither in [0, n) nor `ignored`. Whether there were
        any is noted down on the GPU at each call; function(of those) raises."""
        on = self.backend
        if self.found is None:
            with apart():
                self.found = on.from_numpy(np.array(CHECKS * [NONE_WRONG]))
        if len(self.raising) == CHECKS:
            refuse(f"a step that checks more than {CHECKS} arrays of indices")
        index = on.operand(array, np.dtype(np.int64))
        y, found = on.empty(index.shape, index.dtype), self.found[len(self.raising)]
        self.raising.append((function, user_line()))
        args = y, index, index.size, n, ignored is not None, ignored or 0, found, on.stopped
        on.launch_each(index.size, "captured", "check", WORD, *args)
        return y

    def stop(self):
        return self.backend.stopped

    def replayer(self, launches):
        graph = Graph(self, launches)
        return Replay(graph.run, graph.begin, graph.end)


class Graph:
    """Launches as a CUDA graph, on the stream that is current at each call."""

    def __init__(self, recorder, launches):
        self._on = on = recorder.backend
        self._cells, self._raising, self._found = recorder.cells_there, recorder.raising, recorder.found
        self._calls, self._stream = 0, None
        self._turn: Any = None  # how many calls the GPU has begun, if there are cells
        self._counted = True  # False: an interrupted launch may have been queued or not
        self._events = [on.event() for _ in range(SLOTS)]  # when each of the last calls had come to its end
        tables = [[on.table(*x) if type(x) is Table else x for x in launch.args] for launch in launches]
        launches = [launch._replace(args=args) for launch, args in zip(launches, tables)]
        if self._cells:
            launches.insert(0, self._delivery())
        if self._raising:
            self._seen = on.pinned(self._found.shape, self._found.dtype)
            self._seen[...] = on.to_numpy(self._found)
            self._clean = self._seen.copy()
        self._graph = on.graph(launches, [(self._seen, self._found)] if self._raising else [])
        self._launches = launches  # and with them their arrays

    def _delivery(self):
        """The launch that copies a call's slot to the cells."""
        on, rows, size = self._on, [], 0
        for cell, there in self._cells:
            rows.append(dict(to=there, at=size, size=cell.nbytes // WORD.itemsize))
            size += rows[-1]["size"]
        self._slots = on.pinned((SLOTS, size), WORD)
        self._turn = on.from_numpy(np.zeros(1, np.int64))
        args = [on.table(LETTER, rows), len(rows), on.seen_by_gpu(self._slots), size, SLOTS, self._turn]
        return Launch("captured", "deliver", WORD, (1,), (32,), 0, args)

    @property
    def done(self):
        """Has the GPU come to the end of the last call?"""
        return not self._calls or self._last.done

    def begin(self):
        """To be called before arguments are copied. What follows on the current stream comes after the last call,
        whichever stream that was on. Raises IndexError if it is known that an earlier call was given a wrong index."""
        self._on.raise_found()
        stream = self._on.current_stream()
        if self._calls and stream != self._stream:
            stream.wait_event(self._last)
        self._stream = stream
        if not self._counted:
            self._calls, self._counted = int(self._turn.get()[0]), True  # which waits

    def run(self):
        """Queue all launches, with the numbers that the cells hold now."""
        if self._calls >= SLOTS:
            self._events[self._calls % SLOTS].synchronize()  # the slot has been read
        at = 0
        if self._cells:
            slot = self._slots[self._calls % SLOTS]
            for cell, _ in self._cells:
                words = cell.reshape(-1).view(WORD)
                slot[at : at + words.size] = words
                at += words.size
        if self._raising:
            self._on.unread[self] = None
        self._counted = self._turn is None
        self._graph.launch(self._stream)
        self._calls += 1
        self._counted = True

    def end(self):
        """To be called when the results' copies have been queued too."""
        self._last.record(self._stream)

    @property
    def _last(self):
        return self._events[(self._calls - 1) % SLOTS]

    def raise_found(self):
        """Raise IndexError if a call that has come to its end was given a wrong index."""
        if (self._seen == self._clean).all():
            return
        found, self._seen[...] = self._seen.copy(), self._clean
        self._found.set(self._clean)
        self._on.stopped.fill(0)
        for (function, line), lowest_and_highest in zip(self._raising, found):
            try:
                function(lowest_and_highest[lowest_and_highest != NONE_WRONG])
            except IndexError as error:
                since = "no optimizer has changed anything since"
                raise IndexError(f"{error}, in a captured step ({line}); {since}") from None

    def __del__(self):
        if not self.done:  # page-locked memory that is given back may be used for something else at once
            self._last.synchronize()
