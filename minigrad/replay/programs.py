"""Programs: the launches of some trace entries, and a memory plan, ready to be replayed."""

from typing import Any, NamedTuple

import numpy as np

from ..backend.launch.launcher import bytes_below
from .addresses import ALIGNMENT, rounded_up


class Launch(NamedTuple):
    """A captured kernel launch: the arguments of Launcher._start. Arrays among `args` are captured, or have memory."""

    file: str
    entry: str
    dtype: np.dtype
    grid: tuple
    block: tuple
    shared: int
    args: list


class CallMemory:
    """The memory of the Allocations of one call that are not in a program's arena: arrays from outside the call, and
    results that are kept."""

    def __init__(self, backend):
        self.backend = backend
        self.addresses: dict = {}  # {Allocation: its address}
        self.blocks: dict = {}  # {Allocation: the array that holds it}

    def put(self, allocation, x, address=None):
        """Let an Allocation lie in the memory of the array x, which begins at `address`."""
        self.addresses[allocation] = self.backend.address(x) + bytes_below(x) if address is None else address
        self.blocks[allocation] = x

    def array(self, place, x):
        """The array in memory for the captured array x, at a place of the AddressSpace."""
        allocation, offset = place
        block = self.blocks[allocation]
        if offset == 0 and block.shape == x.shape and block.dtype == x.dtype and block.strides == x.strides:
            return block
        return self.backend.array_at(self.addresses[allocation] + offset, x.shape, x.dtype, x.strides, block)


class Program:
    """The launches of some trace entries on a CPU. They are packed once; each run writes the addresses that differ.

    outside: the Allocations that already have memory. kept: those whose values are wanted after the run, in memory of
    their own. All others lie in an arena, where those that are never in use at the same time share memory."""

    def __init__(self, backend, space, entries, outside, kept):
        self._backend, self._kept = backend, kept
        self._replay = backend.replayer([launch for e in entries for launch in e.launches])
        words, launch_of = self._replay.pointers()  # the words that hold addresses, and the launch of each
        values, starts = self._replay.words[words], np.array([0, *space.starts], np.uint64)
        sizes = np.array([0, *(space.allocations[start].nbytes for start in space.starts)], np.uint64)
        which = np.searchsorted(starts, values, "right") - 1
        offsets = values - starts[which]
        is_captured = offsets < sizes[which]
        self._words, launch_of, self._offsets = words[is_captured], launch_of[is_captured], offsets[is_captured]
        used, self._allocation_of = np.unique(which[is_captured] - 1, return_inverse=True)
        self._used = [space.allocations[space.starts[i]] for i in used]
        self._elsewhere = [(i, a) for i, a in enumerate(self._used) if a in outside or a in kept]
        uses = {a: launch_of[self._allocation_of == i] for i, a in enumerate(self._used)}
        inside = {a: (at.min(), at.max()) for a, at in uses.items() if a not in outside and a not in kept}
        plan = self._memory_plan(inside)
        self._bases = [plan.get(a, 0) for a in self._used]
        self._written = None  # the bases that the words hold

    def _memory_plan(self, lives):
        """{Allocation: its address in an arena} from {Allocation: its (first, last) launch}.

        Allocations that are in use at the same time lie apart. The largest are placed first, each as low as it fits
        ("greedy by size": Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020)."""
        placed: list[tuple] = []  # (offset, end, first, last, Allocation)
        for a, (first, last) in sorted(lives.items(), key=lambda item: (-item[0].nbytes, item[1][0])):
            offset = 0
            for start, end in sorted(other[:2] for other in placed if other[2] <= last and first <= other[3]):
                if start - offset >= a.nbytes:
                    break
                offset = max(offset, end)
            placed.append((offset, offset + rounded_up(a.nbytes), first, last, a))
        self._arena = self._backend.memory(max((end for _, end, *_ in placed), default=0) + ALIGNMENT)
        start = self._backend.address(self._arena)
        start += -start % ALIGNMENT
        return {a: start + offset for offset, *_, a in placed}

    def run(self, memory, launched):
        """Run the launches. After an interrupt, call this again with the same list.

        `launched` is empty until the launches have run. The call into C and the append to the list are one step of
        Python, between which no interrupt can come, so the launches never run twice."""
        if not launched:
            for allocation in self._kept:
                block = self._backend.empty(allocation.shape, allocation.dtype)
                memory.put(allocation, block, self._backend.address(block))
            launched.extend(map(*self._prepared(memory)))
        self._finish(memory)

    def _prepared(self, memory):
        """Write the addresses that differ in this call. Return the function that runs the launches, and lists of its
        arguments."""
        for i, allocation in self._elsewhere:
            self._bases[i] = memory.addresses[allocation]
        if self._bases != self._written:
            self._replay.words[self._words] = np.array(self._bases, np.uint64)[self._allocation_of] + self._offsets
            self._written = self._bases.copy()
        return self._replay.call

    def _finish(self, memory: Any) -> None:
        """Do the work after the launches, if there is any. After an interrupt this may run twice."""
