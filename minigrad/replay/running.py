"""Running what a call has passed, in the middle or at its end, and what can be read or is left behind."""

from sys import getrefcount
from typing import Any

from ..autograd import Node, Storage
from ..autograd.graph import SharedStorage
from ..backend.launch.program import below
from ..base.recording import refuse_within, uncaptured
from ..tensor import Tensor
from .entries import GONE, Entry, here, make_room, wrapped

PROGRAMS = 32  # that a recording keeps; of more, the oldest is dropped


class Running:
    """The part of a Follower that knows where a call is, and what has run."""

    def __init__(self, recording, recording_of):
        """recording_of: a function from a backend to its Recording."""
        self.recording, self.on, self.space = recording, recording.on, recording.space
        self.recording_of = recording_of
        self.at = self.since = recording.root
        self.path: list[Entry] = []  # that have not run yet
        self.entry: Any = None  # what is being recorded
        self.missed = False  # has anything been recorded in this call?
        self.made: list[Tensor] = []  # in this call
        self.bound: dict = {}  # {id of an array from outside: (it, the recorded one, a copy that is used instead)}
        self.static: dict = {}  # {storage or node from outside: the recorded one}
        self.real: dict = {}  # the other way round
        self.journal: list = []  # (dict, key) of what was added to these three, to be undone
        self.memory: dict = {}  # {Allocation: address}, of those that lie outside of arenas
        self.blocks: dict = {}  # {Allocation: what holds its memory}
        self.programs: tuple = ()  # that have run in this call
        self.spent: list[set] = []  # ops that walks have been through
        self.shares = False  # does the call change memory that NumPy may read?
        self.dirty = False  # do pending launches change memory outside the call?
        self.varies = False  # has a number differed from that of other calls?
        self.hooked = False  # is there user code for a walk to run?
        self.pending: Any = None  # a Program that is about to run
        self.ran: list = []  # not empty: it has run
        self.held: Any = None  # at the end of the call, the Tensors that are still referenced
        for storage in recording.changed:
            storage.version = 0
        for node in recording.nodes:
            node.grad, node.hooks, node.retain = None, None, False
        recording.changed, recording.nodes = set(), []

    def _place(self, x):
        """A Tensor's place in the recording, or None for one with memory."""
        return self.space.place(x.array) if x.storage.backend is self.on else None

    def _made(self, array, node, storage):
        y = wrapped(array, node, storage)
        self.made.append(y)
        return y

    def note(self, x):
        """A Tensor has been made."""
        if x.storage.backend is self.on:
            x.storage = self.recording.raw.get(id(x.array), x.storage)
            self.made.append(x)

    def looked_into(self, node):
        """A node gets a hook, or retains its gradient."""
        if node.op is not None:
            self.hooked = True
            self.recording.nodes.append(node)

    # -- changes in place, and reading

    def changed(self, storage, times):
        """Storage.changed, which has just counted a change."""
        if self.entry is not None:
            return
        inside = storage in self.recording.storages
        given = self.real.get(storage) if inside else storage
        known = storage if inside else self.static.get(storage)
        for partner in (given, known):
            if partner is not None and partner is not storage and partner.version is not None:
                partner.version += times
        if known is not None:
            self.recording.changed.add(known)
        if given is not None:
            self.shares = self.shares or type(given) is SharedStorage
            self.dirty = True

    def _copied(self, copies):
        """Use new copies of memory that is shared with NumPy, or that memory itself."""
        for x, array, copy in self.bound.values():
            if copy is not None and (place := self.space.place(array)) is not None:
                if copies:
                    self.on.refill(copy, x)
                used = copy if copies else x
                self.blocks[place[0]], self.memory[place[0]] = used, self.on.address(used) + below(used)

    def read(self, x, shares=False):
        """The values of a Tensor, after everything the step has done so far. shares: the caller exposes the memory."""
        refuse_within("reading values on the host")
        place = self._place(x)
        if place is None:
            if self.dirty or (shares and id(x.array) in self.bound):
                self.flush()
            return x.storage.backend.to_numpy(x.array)
        if self.dirty or place[0] not in self.recording.outside:
            self.flush()
        y = self.on.to_numpy(here(self.on, self.memory, self.blocks, place, x.array)).copy()
        y.flags.writeable = False
        return y

    # -- running

    def flush(self):
        """Run what is pending, in the middle of a call."""
        if any(e.launches for e in self.path):
            lasting = self._allocations(self._held())
            for e in self.path:
                if type(e.kind) is str or (e.op is not None and not any(e.op in ops for ops in self.spent)):
                    lasting += e.lasting
            self.pending = self._program(lasting)
            self._advance()
        self.since, self.path, self.dirty = self.at, [], False

    def _advance(self):
        """Run what is pending. After an interrupt, this continues where it stopped."""
        program = self.pending
        with uncaptured(after=False):
            if not self.ran:
                make_room(self.on, program, self.memory, self.blocks)
                program.run(self.memory, self.blocks, self.ran)
            program.leave(self.blocks)
        self.programs = (*self.programs, program)
        self.since, self.path, self.dirty = self.at, [], False
        self.pending, self.ran = None, []

    def _held(self):
        """The Tensors of this call that are still referenced."""
        return held(self.made, HELD)

    def _allocations(self, tensors):
        return [place[0] for x in tensors if (place := self.space.place(x.array)) is not None]

    def _program(self, lasting):
        """The Program that runs the pending Entries, after which these Allocations have their values."""
        kept = {each: None for each in lasting if each not in self.memory}
        key = self.at, self.since, self.programs, tuple(kept)
        programs = self.recording.programs
        program = programs.pop(key, None)
        if program is None:
            program = self.on.program(self.on, self.space, self.path, self.memory, kept)
        programs[key] = program
        if len(programs) > PROGRAMS:
            del programs[next(iter(programs))]
        return program

    def settle(self):
        """The call is over: find out what it leaves behind."""
        held = self._held()
        self.pending, self.held = self._program(self._allocations(held)), held

    def finish(self):
        """The call is over. Run what is pending, and give what remains memory of its own. After an interrupt
        it continues where it stopped."""
        if self.pending is not None:
            self._advance()
        if self.held is None:
            self.settle()
            self._advance()
        self._copied(False)
        for x in self.held:
            node = x.node
            if node is not None and node.op is not None and node.op is not GONE:
                x.node = Node(GONE, 0, node.shape, node.dtype, node.device)
                x.node.grad = node.grad
            place = self.space.place(x.array)
            if place is not None:
                x.array = here(self.on, self.memory, self.blocks, place, x.array)
            if x.storage in self.recording.storages:
                if x.storage not in self.real:
                    self.real[x.storage] = Storage(self.on)
                x.storage = self.real[x.storage]

    def abandon(self):
        """What is pending cannot run (out of memory, say): no leaf keeps a gradient without values."""
        for leaf in [given for given in self.static if type(given) is Node]:
            if leaf.grad is not None and self._place(leaf.grad) is not None:
                leaf.grad = None


def held(made, count):
    """Those with more than a given number of references."""
    return [x for x in made if getrefcount(x) > count]


HELD = next(count for count in range(9) if not held([object()], count))  # of an object that only the list references
