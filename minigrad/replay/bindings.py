"""Which captured objects stand for which from outside, in one call of a captured step.

An array, storage or leaf node from outside is bound to a captured one at its first use in the call. What follows is the
same step only if each captured object goes on to stand for the same one."""

from typing import Any

from ..autograd import Node, Storage
from ..backend.launch.launcher import below, spanned
from ..base.recording import CaptureError, user_line
from .entries import GONE, Slot, shift, spec, tensor_around
from .memory import Memory


class Bindings:
    """The part of a Follower that binds."""

    _meet: Any  # the Follower's

    def __init__(self, tree):
        self.tree, self.on, self.space, self.memory = tree, tree.on, tree.space, Memory(tree.on)
        self.bound: dict = {}  # {id of an array from outside: (it, the captured one)}
        self.captured: dict = {}  # {storage or node from outside: the captured one}
        self.given: dict = {}  # the other way round
        self.journal: list = []  # (dict, key) of what was added to these three, to be undone

    # -- is it the same?

    def _same_node(self, given, known):
        if given is None or known is None or given is known:
            return given is known
        return given.op is known.op and known.op in (None, GONE) and self._alike(given, known)

    def _alike(self, given, known):
        """Is a storage or a node the captured one? If neither has a partner yet in this call, they become partners."""
        if given is known:
            return True
        if self.captured.get(given, known) is not known or self.given.get(known, given) is not given:
            return False
        if given not in self.captured:
            self.captured[given], self.given[known] = known, given
            self.journal += (self.captured, given), (self.given, known)
        return True

    def _same_array(self, e, x, array, tensor=None):
        """Is x the captured array? tensor: the Tensor it belongs to, if known."""
        if tensor is not None and tensor.storage.backend is not self.on:
            return False
        known = self._known(x)
        if known is not None:
            return known is array
        slot = e.slots.get(id(array))
        if slot is None:  # perhaps a view of captured memory, which is made anew at each call
            place = self.space.place(x)
            return place is not None and place == self.space.place(array) and spec(x, self.on) == spec(array, self.on)
        if slot.last is not x and (spec(x, self.on) != slot.spec or self.space.place(x) is not None):
            return False
        self._bind(x, slot)
        return True

    def _known(self, x):
        """The captured array for x, if x has been bound already."""
        return self.bound.get(id(x), (x, None))[1]

    def _bind(self, x, slot):
        self.bound[id(x)] = x, slot.array
        self.journal.append((self.bound, id(x)))
        if slot.allocation is None:
            return
        if slot.last is not x:
            slot.last, slot.address = x, self.on.address(x) + below(x)
        self.memory.put(slot.allocation, x, slot.address)

    def _undo(self, mark):
        while len(self.journal) > mark:
            known, key = self.journal.pop()
            del known[key]

    # -- what stands for it

    def _proxy(self, e, x):
        """The captured Tensor for x."""
        self._meet(x.storage.backend)
        array, node, storage = self._array(e, x.array), x.node, x.storage
        if storage not in self.tree.storages:
            known = self.captured.get(storage)
            if known is None:
                known = Storage(self.on)
                self.tree.storages.add(known)
                self._alike(storage, known)
            storage = known
        if node is not None and node.op not in self.tree.ops and node not in self.given:
            known = self.captured.get(node)
            if known is None:
                if node.op is not None and node.op is not GONE:
                    raise CaptureError(f"a Tensor of a graph older than the captured step: detach() it ({user_line()})")
                known = Node(node.op, 0, node.shape, node.dtype, node.device)
                self._alike(node, known)
            node = known
        return tensor_around(array, node, storage)

    def _array(self, e, x):
        """The captured array for x."""
        known = self._known(x)
        if known is not None or self.space.place(x) is not None:
            return x if known is None else known
        on, before, writeable = self.on, -below(x), getattr(x.flags, "writeable", True)
        begins = (shift(x, on) - before) % on.alignment
        array = self.space.array(x.shape, x.dtype, x.strides, before, spanned(x), writeable, begins)
        place = self.space.place(array)
        slot = e.slots[id(array)] = Slot(array, place and place[0], spec(x, on))
        self.tree.outside.add(slot.allocation)
        self._bind(x, slot)
        return array

    # -- arrays that share memory

    def _entangled(self, arrays):
        """Do two of these arrays share memory, as views made before the call may, while their captured ones do not?"""
        found: list = []  # (array in memory, the captured one)
        for x in arrays:
            place = self.space.place(x)
            if place is None:
                found.append((x, self.bound.get(id(x), (x, None))[1]))
            elif place[0] in self.tree.outside:
                found.append((self.memory.array(place, x), x))
        return any(
            a is not b and self.on.overlap(a, b) and (x is None or y is None or not self.on.overlap(x, y))
            for i, (a, x) in enumerate(found)
            for b, y in found[:i]
        )
