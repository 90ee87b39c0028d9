"""Replaying the trace entries that a call has passed, and what the call leaves behind."""

from sys import getrefcount
from typing import Any

from ..autograd import Node, Storage
from ..base.capturing import uncaptured
from .bindings import Bindings
from .cuda_graph import GraphProgram
from .programs import Program
from .trace import FINISHED, TraceEntry

PROGRAMS = {"cpu": Program, "cuda": GraphProgram}
MOST_PROGRAMS = 32  # programs that a trace tree keeps; beyond, the one that was not used for longest is dropped


class Execution(Bindings):
    """The part of a CapturedCall that knows where the call is in the trace tree, and replays what is pending."""

    def __init__(self, tree):
        super().__init__(tree)
        self.position = self.replayed_to = tree.root  # the entry that was passed last, and that of the last replay
        self.pending: list[TraceEntry] = []  # the entries passed since then
        self.programs: tuple = ()  # the programs that were replayed in this call
        self.created: list = []  # the Tensors that the call has made
        self.spent: list[set] = []  # the ops that each walk of this call has gone through
        self.writes_outside = False  # True if pending launches change memory from outside
        # for what an interrupt may come between
        self.program: Any = None  # the program that is about to run
        self.launched: list = []  # not empty once its launches have run
        self.survivors: Any = None  # at the end of the call, the Tensors that are still referenced

    def run_pending(self):
        """Replay what is pending, in the middle of a call."""
        if any(e.launches for e in self.pending):
            wanted = self._allocations(still_referenced(self.created))
            for e in self.pending:
                if type(e.kind) is str or (e.op is not None and not any(e.op in ops for ops in self.spent)):
                    wanted += e.allocations
            self.program = self._program(wanted)
            self._replay()
        self.replayed_to, self.pending, self.writes_outside = self.position, [], False

    def prepare_end(self):
        """The call is over: choose the program for what is pending, after which the survivors have their values."""
        survivors = still_referenced(self.created)
        self.program, self.survivors = self._program(self._allocations(survivors)), survivors

    def finish(self):
        """The call is over: replay what is pending, and give the survivors memory of their own. After an interrupt this
        continues where it stopped."""
        if self.program is not None:
            self._replay()
        if self.survivors is None:
            self.prepare_end()
            self._replay()
        for x in self.survivors:
            node = x.node
            if node is not None and node.op is not None and node.op is not FINISHED:
                x.node = Node(FINISHED, 0, node.shape, node.dtype, node.device)
                x.node.grad = node.grad
            place = self.space.place(x.array)
            if place is not None:
                x.array = self.memory.array(place, x.array)
            if x.storage in self.tree.storages:
                if x.storage not in self.outside_for:
                    self.outside_for[x.storage] = Storage(self.backend)
                x.storage = self.outside_for[x.storage]

    def abandon(self):
        """What is pending cannot run, for lack of memory, say: drop the gradients that would never get values."""
        for leaf in [outside for outside in self.captured_for if type(outside) is Node]:
            if leaf.grad is not None and self._place_of(leaf.grad) is not None:
                leaf.grad = None

    def _replay(self):
        with uncaptured(after=False):
            self.program.run(self.memory, self.launched)
        self.programs = (*self.programs, self.program)
        self.replayed_to, self.pending, self.writes_outside = self.position, [], False
        self.program, self.launched = None, []

    def _program(self, wanted):
        """The program that replays the pending entries, after which the Allocations `wanted` have their values."""
        outside = self.memory.addresses
        kept = dict.fromkeys(each for each in wanted if each not in outside)
        key = self.position, self.replayed_to, self.programs, tuple(kept)
        known = self.tree.programs
        program = known.pop(key, None)
        if program is None:
            program = PROGRAMS[self.backend.device](self.backend, self.space, self.pending, outside, kept)
        known[key] = program
        if len(known) > MOST_PROGRAMS:
            del known[next(iter(known))]
        return program

    def _allocations(self, tensors):
        return [place[0] for x in tensors if (place := self.space.place(x.array)) is not None]

    def _place_of(self, x):
        """The place of a captured Tensor in the address space, or None for a Tensor with memory."""
        return self.space.place(x.array) if x.storage.backend is self.backend else None


def still_referenced(objects, count=None):
    """The objects in a list that something else refers to as well: those with more than `count` references."""
    count = _LIST_ALONE if count is None else count
    return [x for x in objects if getrefcount(x) > count]


_LIST_ALONE = next(n for n in range(9) if not still_referenced([object()], n))  # references if only the list has it
