"""Replaying the trace entries that a call has passed, and what the call leaves behind."""

from sys import getrefcount
from typing import Any

from ..autograd import Node, Storage
from ..base.capturing import uncaptured
from .bindings import Bindings
from .cuda_graph import GraphProgram
from .programs import Program
from .trace import FINISHED, OpEntry, TraceEntry

PROGRAMS = {"cpu": Program, "cuda": GraphProgram}
MOST_PROGRAMS = 32  # programs that a trace tree keeps; beyond, the one that was not used for longest is dropped


class Execution:
    """Where a call is in the trace tree, and the replays of the entries that it has passed."""

    def __init__(self, bindings: Bindings):
        self.bindings, self.tree = bindings, bindings.tree
        self.position = self.replayed_to = self.tree.root  # the entry that was passed last, and that of the last replay
        self.pending: list[TraceEntry] = []  # the entries passed since then
        self.programs: tuple = ()  # the programs that were replayed in this call
        self.created: list = []  # the Tensors that the call has made
        self.spent: set = set()  # the ops whose saved arrays the walks of this call have freed
        self.writes_outside = False  # True if pending launches change memory from outside
        # These three let an interrupted replay go on where it stopped.
        self.program: Any = None  # the program that is about to run
        self.launched: list = []  # not empty once its launches have run
        self.survivors: Any = None  # at the end of the call, the Tensors that are still referenced

    def advance_to(self, e, per_call):
        """Pass an entry, with the per-call values of this call."""
        if per_call:
            for per_call_value, value in zip(e.per_call_values, per_call):
                per_call_value.value = value
            for buffer in e.parameter_buffers:
                buffer.host[...] = buffer.values()
        self.pending.append(e)  # after everything that its launches read, since an interrupt may come in between
        self.position = e

    def run_pending(self):
        """Replay the pending entries, in the middle of a call."""
        if any(e.launches for e in self.pending):
            wanted = self._allocations(still_referenced(self.created))
            for e in self.pending:
                if not isinstance(e, OpEntry) or (e.op is not None and e.op not in self.spent and e.op.has_saved()):
                    wanted += e.allocations
            self.program = self._program(wanted)
            self._replay()
        self.replayed_to, self.pending, self.writes_outside = self.position, [], False

    def prepare_end(self):
        """At the end of the call: find the Tensors that are still referenced, and the program that computes them."""
        survivors = still_referenced(self.created)
        self.program, self.survivors = self._program(self._allocations(survivors)), survivors

    def finish(self):
        """End the call: replay the pending entries, and give the Tensors that are still referenced their own memory.

        After an interrupt, call this again: it continues where it stopped."""
        if self.program is not None:
            self._replay()
        if self.survivors is None:
            self.prepare_end()
            self._replay()
        for x in self.survivors:
            self._release(x)

    def _release(self, x):
        """Turn a Tensor of the call into one that outlives it: with memory, and without the captured graph."""
        bindings, node = self.bindings, x.node
        if node is not None and node.op is not None and node.op is not FINISHED:
            x.node = Node(FINISHED, 0, node.shape, node.dtype, node.device)
            x.node.grad = node.grad
        place = bindings.space.place(x.array)
        if place is not None:
            x.array = bindings.memory.array(place, x.array)
        if x.storage in self.tree.storages:
            if x.storage not in bindings.outside_for:
                bindings.outside_for[x.storage] = storage = Storage(x.storage.backend)
                storage.whole = x.storage.whole
            x.storage = bindings.outside_for[x.storage]

    def abandon(self):
        """If the pending entries cannot run, for lack of memory say, drop the gradients that would never get values."""
        for leaf in [outside for outside in self.bindings.captured_for if type(outside) is Node]:
            if leaf.grad is not None and self.bindings.place_of(leaf.grad) is not None:
                leaf.grad = None

    def _replay(self):
        with uncaptured(after=False):
            self.program.run(self.bindings.memory, self.launched)
        self.programs = (*self.programs, self.program)
        self.replayed_to, self.pending, self.writes_outside = self.position, [], False
        self.program, self.launched = None, []

    def _program(self, wanted):
        """The program that replays the pending entries, after which the Allocations `wanted` have their values."""
        backend, space, outside = self.bindings.backend, self.bindings.space, self.bindings.memory.addresses
        kept = dict.fromkeys(each for each in wanted if each not in outside)
        key = self.position, self.replayed_to, self.programs, tuple(kept)
        programs = self.tree.programs
        program = programs.pop(key, None)
        if program is None:
            program = PROGRAMS[backend.device](backend, space, self.pending, outside, kept)
        programs[key] = program  # a dict keeps the order of insertion: the program used last is at its end
        if len(programs) > MOST_PROGRAMS:
            del programs[next(iter(programs))]
        return program

    def _allocations(self, tensors):
        """The Allocations of captured Tensors; Tensors with memory have none."""
        places = [self.bindings.space.place(x.array) for x in tensors]
        return [place[0] for place in places if place is not None]


def still_referenced(objects, count=None):
    """The objects in a list that something else refers to as well: those with more than `count` references."""
    count = _LIST_ALONE if count is None else count
    return [x for x in objects if getrefcount(x) > count]


_LIST_ALONE = next(n for n in range(9) if not still_referenced([object()], n))  # references if only the list has it
