"""A run of launches of a captured step on a GPU: a CUDA graph, which the host starts by one call and does not wait for.

It is recorded as on a CPU (launch/program.py). What differs is how each call's arrays and numbers get to the GPU, and
how indices are checked. A graph knows addresses: an array from outside that lies elsewhere at another call is copied to
a place of its own, and back if the step changes it. The numbers (learning rates, where random numbers begin) lie in
page-locked memory, which the graph's first kernel reads (kernels/captured.cu): nothing is uploaded, and since each of
SLOTS calls has a slot, the host may be that many calls ahead. A wrong index is replaced by 0 and noted down. From then
on no optimizer of minigrad's changes anything, until the host next waits for the GPU, notices, and raises.
"""

from typing import Any

import numpy as np

from ..kernels import Struct
from ..launch.program import ALIGNMENT, Launch, Table, below, lay_out, spanned

LETTER = Struct("captured.cu", "Letter")
WORD = np.dtype(np.uint64)  # what kernels/captured.cu is compiled for
SLOTS = 32
NONE_WRONG = 0, -1  # the lowest index below 0, and the highest from n on


class Found:
    """What checks of indices have found, for the host; `raising` is (function, line, array of the GPU) of each."""

    def __init__(self, on, raising):
        self.on, self.raising = on, raising
        self.seen = on.pinned((len(raising), 2), np.int64)
        self.seen[...] = NONE_WRONG

    def raise_found(self, where=""):
        """Raise IndexError if an index was wrong."""
        if (self.seen == NONE_WRONG).all():
            return
        found, self.seen[...] = self.seen.copy(), NONE_WRONG
        for _, _, there in self.raising:
            there.set(np.array(NONE_WRONG))
        self.on.stopped.fill(0)
        for (function, line, _), lowest_and_highest in zip(self.raising, found):
            try:
                function(lowest_and_highest[lowest_and_highest != NONE_WRONG])
            except IndexError as error:
                since = "no optimizer has changed anything since"
                raise IndexError(f"{error}{where} ({line}); {since}") from None


class Lookup(Found):
    """Of a line that is not a part of a captured step, which checks its indices each time that it runs."""

    def __init__(self, on, function, line):
        super().__init__(on, [(function, line, on.from_numpy(np.array(NONE_WRONG)))])
        self._event = on.event()

    def checked(self, index, n, wraps, ignored):
        """checked(), and a copy of what it finds, which nothing waits for."""
        stream, ((_, _, there),) = self.on.current_stream(), self.raising
        y = checked(self.on, index, n, wraps, ignored, there)
        self.on.download(self.seen[0], there, stream)
        self._event.record(stream)
        self.on.unread[self] = None
        return y

    @property
    def done(self):
        return self._event.done

    def __del__(self):
        if not self.done:  # page-locked memory that is given back may be used for something else at once
            self._event.synchronize()


class GraphProgram:
    """Launches as a CUDA graph, on the stream that is current at each call: what Program is on a CPU."""

    _calls = 0

    def __init__(self, on, space, entries, given, kept):
        self._on, self._space, self.keeps = on, space, list(kept)
        self._launches = [launch for e in entries for launch in e.launches]
        self._cells = [(cell.base, there.base) for e in entries for cell, there, _ in e.refreshes]  # in words
        used: dict = {}  # {Allocation: [first launch, last launch]}
        self._written = set()
        for at, launch in enumerate(self._launches):
            for x, changes in _arrays(on, launch):
                if place := space.place(x):
                    used.setdefault(place[0], [at, at])[1] = at
                    if changes:
                        self._written.add(place[0])
        end = len(self._launches)
        inner = [a for a in used if a not in given]
        blocks = [[a.nbytes, used[a][0], end if a in kept else used[a][1], 0] for a in inner]
        offsets = dict(zip(inner, blocks))
        self.nbytes = lay_out(blocks)
        self._memory = on.memory(self.nbytes + ALIGNMENT)
        start = on.address(self._memory)
        start += -start % ALIGNMENT
        self._inner = {a: start + block[3] for a, block in offsets.items()}
        self._outer = [a for a in used if a in given]
        self._at: dict = {}  # {Allocation from outside: where the graph takes it to be}
        self._copies: dict = {}  # {Allocation: a place of its own}, of those that have lain elsewhere
        self._graph: Any = None
        self._stream: Any = None
        self._turn: Any = None  # how many calls the GPU has begun, if there are cells
        self._events = [on.event() for _ in range(SLOTS)]  # when each of the last calls had finished
        self._found = Found(on, [check for e in entries for check in e.checks])

    # -- making it

    def _build(self):
        on = self._on
        launches = [launch._replace(args=on.with_tables(map(self._placed, launch.args))) for launch in self._launches]
        if self._cells:
            launches.insert(0, self._delivery())
        downloads = [(seen, found) for seen, (_, _, found) in zip(self._found.seen, self._found.raising)]
        self._graph = on.graph(launches, downloads)
        self._built = launches  # and with them their arrays

    def _placed(self, x):
        if type(x) is Table:
            return Table(x.struct, [{name: self._placed(value) for name, value in row.items()} for row in x.rows])
        place = self._space.place(x) if isinstance(x, self._on.array_type) else None
        if place is None:
            return x
        allocation, offset = place
        start = self._inner.get(allocation) or self._at[allocation]
        return self._on.array_at(start + offset, x.shape, x.dtype, x.strides, self)

    def _delivery(self):
        """The launch that copies a call's slot to the cells."""
        on, rows, size = self._on, [], 0
        for cell, there in self._cells:
            rows.append(dict(to=there, at=size, size=cell.size))
            size += rows[-1]["size"]
        if self._turn is None:
            self._slots, self._turn = on.pinned((SLOTS, size), WORD), on.from_numpy(np.zeros(1, np.int64))
        args = [on.packed(Table(LETTER, rows)), len(rows), on.seen_by_gpu(self._slots), size, SLOTS, self._turn]
        return Launch("captured", "deliver", WORD, (1,), (32,), 0, args)

    # -- running it

    @property
    def done(self):
        """Has the GPU finished the last call?"""
        return not self._calls or self._last.done

    def run(self, memory, blocks, ran):
        """Queue all launches: see Program.run. What follows on the current stream comes after the last call, whichever
        stream that was on."""
        stream = self._on.current_stream()
        if self._calls and stream != self._stream:
            stream.wait_event(self._last)
        self._stream = stream
        self._take_in(memory, blocks)
        if self._calls >= SLOTS:
            self._events[self._calls % SLOTS].synchronize()  # the slot has been read
        at = 0
        for cell, _ in self._cells:
            self._slots[self._calls % SLOTS, at : at + cell.size] = cell
            at += cell.size
        if self._found.raising:
            self._on.unread[self] = None
        self._next = self._calls + 1
        ran.extend(map(self._graph.launch, (stream,)))

    def leave(self, blocks):
        """Queue what follows the launches."""
        on, self._calls = self._on, self._next
        for allocation in self._written & self._copies.keys():
            on.refill(blocks[allocation], self._copy_of(allocation, blocks))
        for allocation in self.keeps:
            block = blocks[allocation]
            on.refill(block, on.array_at(self._inner[allocation], block.shape, block.dtype, block.strides, self))
        self._last.record(self._stream)

    def _take_in(self, memory, blocks):
        """Have the graph find what comes from outside."""
        moved = [a for a in self._outer if a not in self._copies and self._at.get(a) != memory[a]]
        for allocation in moved:
            if self._graph is None:
                self._at[allocation] = memory[allocation]
            else:
                x = blocks[allocation]
                self._copies[allocation] = copy = self._on.memory(spanned(x))
                self._at[allocation] = self._on.address(copy)
        if moved or self._graph is None:
            self._build()
        for allocation in self._copies:
            self._on.refill(self._copy_of(allocation, blocks), blocks[allocation])

    def _copy_of(self, allocation, blocks):
        x = blocks[allocation]
        return self._on.array_in(self._copies[allocation], -below(x), x.shape, x.dtype, x.strides)

    @property
    def _last(self):
        return self._events[(self._calls - 1) % SLOTS]

    def raise_found(self):
        """Raise IndexError if a call that has finished was given a wrong index."""
        self._found.raise_found(", in a captured step")

    def __del__(self):
        if not self.done:  # page-locked memory that is given back may be used for something else at once
            self._last.synchronize()


def checked(on, index, n, wraps, ignored, found):
    """A copy of an array of indices, with 0 for each that is neither in [0, n) nor `ignored`; `found` records which.
    wraps: those below 0 count from n."""
    index = on.operand(index, np.dtype(np.int64))
    y = on.empty(index.shape, index.dtype)
    args = y, index, index.size, n, wraps, ignored is not None, ignored or 0, found, on.stopped
    on.launch_each(index.size, "captured", "check", WORD, *args)
    return y


def _arrays(on, launch):
    """(array, may the launch change it?) of the arrays among its arguments."""
    for x, p in zip(launch.args, on.kernel(*launch[:3]).contract.parameters):
        if type(x) is Table:
            for row in x.rows:
                yield from ((value, True) for value in row.values() if isinstance(value, on.array_type))
        elif isinstance(x, on.array_type):
            yield x, p.changes
