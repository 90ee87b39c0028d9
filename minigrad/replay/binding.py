"""Values from outside a call, bound to what was recorded for them, and recording an Entry."""

import numpy as np

from ..autograd import Node, Storage, Value
from ..autograd.graph import SharedStorage
from ..backend.launch.program import below, spanned
from ..base.recording import CaptureError, user_line
from .entries import GONE, Late, Slot, exact, shift, spec, varies, wrapped
from .running import Running


class Binding(Running):
    """The part of a Follower that compares arrays, storages and nodes."""

    def _pass(self, e, late):
        """Advance to an Entry that fits."""
        if late:
            for known, value in zip(e.late, late):
                known.value = value
            for cell, _, values in e.refreshes:
                cell[...] = values()
        self.path.append(e)  # after all that its launches read, in case of an interrupt
        self.at = e

    def _takes(self, e, inputs):
        """Are these the inputs of an Entry? If so, inputs from outside are bound."""
        if len(inputs) != len(e.inputs):
            return False
        mark = len(self.journal)
        for x, (array, node, storage) in zip(inputs, e.inputs):
            if array is None:
                if not isinstance(x, Value) and (varies(x) if node is Late else exact(x) == node):
                    continue
            elif isinstance(x, Value):
                if x.array is array and x.node is node:
                    continue
                if (
                    self._same_array(e, x.array, array, x)
                    and self._alike(x.storage, storage)
                    and self._same_node(x.node, node)
                ):
                    continue
            self._undo(mark)
            return False
        return True

    def _takes_arrays(self, e, arrays):
        mark = len(self.journal)
        for x, array in zip(arrays, e.inputs, strict=True):
            if x is not array and not self._same_array(e, x, array):
                self._undo(mark)
                return False
        return True

    def _same_node(self, given, known):
        if given is None or known is None or given is known:
            return given is known
        return given.op is known.op and known.op in (None, GONE) and self._alike(given, known)

    def _alike(self, given, known):
        """Is a storage or a node the recorded one? If neither has a partner yet in this call, they become partners."""
        if given is known:
            return True
        if self.static.get(given, known) is not known or self.real.get(known, given) is not given:
            return False
        if given not in self.static:
            self.static[given], self.real[known] = known, given
            self.journal += (self.static, given), (self.real, known)
        return True

    def _undo(self, mark):
        while len(self.journal) > mark:
            known, key = self.journal.pop()
            del known[key]

    def _same_array(self, e, x, array, tensor=None):
        """Is x the recorded array? tensor: the Tensor it belongs to, if known."""
        if tensor is not None and tensor.storage.backend is not self.on:
            return False
        known = self._known(x)
        if known is not None:
            return known is array
        slot = e.slots.get(id(array))
        if slot is None:  # perhaps a view of recorded memory, which is made anew at each call
            place = self.space.place(x)
            return place is not None and place == self.space.place(array) and spec(x, self.on) == spec(array, self.on)
        if slot.last is not x and (spec(x, self.on) != slot.spec or self.space.place(x) is not None):
            return False
        self._bind(x, slot, tensor)
        return True

    def _known(self, x):
        """The recorded array for x, if x has been bound already."""
        known = self.bound.get(id(x))
        if known is None:
            return None
        _, array, copy = known
        if copy is not None and (self.dirty or not np.array_equal(copy, x)):  # NumPy has changed it since, or will have
            self.flush()
            self.on.refill(copy, x)
        return array

    def _bind(self, x, slot, tensor):
        copy = None
        if x.size and tensor is not None and tensor.node is None and type(tensor.storage) is SharedStorage:
            if self.dirty:
                self.flush()
            copy = self.on.alike(x)
        self.bound[id(x)] = x, slot.array, copy
        self.journal.append((self.bound, id(x)))
        if slot.allocation is not None:
            if slot.last is not x:
                slot.last, slot.address = x, self.on.address(x) + below(x)
            self.blocks[slot.allocation] = x if copy is None else copy
            self.memory[slot.allocation] = slot.address if copy is None else self.on.address(copy) + below(copy)

    # -- recording

    def _recorded(self, e, run, mark):
        """run(), recording its launches in an Entry. After an error, bindings since `mark` are undone."""
        self.missed = True
        self.recording.entries += 1
        self.entry, made = e, len(self.made)
        try:
            return run()
        except BaseException:
            self._undo(mark)
            raise
        finally:
            self.entry = None
            del self.made[made:]

    def _last(self, e, arrays):
        """Record what an Entry leaves behind."""
        places = [self.space.place(x) for x in arrays]
        e.lasting = list(dict.fromkeys(place[0] for place in places if place is not None))

    def _check_made(self, name, y, given):
        if y.size and self.space.place(y) is None and not any(y is x for x in given):
            raise CaptureError(f"{name}, computed outside of kernels here, cannot be captured ({user_line()})")

    def _proxy(self, e, x):
        """The recorded Tensor for x."""
        self._meet(x.storage.backend)
        array, node, storage = self._recorded_array(e, x.array, x), x.node, x.storage
        if storage not in self.recording.storages:
            known = self.static.get(storage)
            if known is None:
                known = Storage(self.on)
                known.version = None if storage.version is None else 0
                self.recording.storages.add(known)
                self._alike(storage, known)
            storage = known
        if node is not None and node.op not in self.recording.ops and node not in self.real:
            known = self.static.get(node)
            if known is None:
                if node.op is not None and node.op is not GONE:
                    raise CaptureError(
                        f"a Tensor of a graph that began before the captured step: detach() it ({user_line()})"
                    )
                known = Node(node.op, 0, node.shape, node.dtype, node.device)
                self._alike(node, known)
            node = known
        return wrapped(array, node, storage)

    def _recorded_array(self, e, x, tensor=None):
        known = self._known(x)
        if known is None and self.space.place(x) is not None:
            known = x
        if known is None:
            on, before, writeable = self.on, -below(x), getattr(x.flags, "writeable", True)
            begins = (shift(x, on) - before) % on.alignment
            array = self.space.array(x.shape, x.dtype, x.strides, before, spanned(x), writeable, begins)
            place = self.space.place(array)
            slot = e.slots[id(array)] = Slot(array, place and place[0], spec(x, on))
            self.recording.outside.add(slot.allocation)
            self._bind(x, slot, tensor)
            known = array
        return known

    def _meet(self, on):
        """Choose the backend on which the step runs: that of the first Tensor."""
        if on is self.on:
            return
        if self.at is self.recording.root and not self.bound and on.captures:
            vars(self).update(vars(type(self)(self.recording_of(on), self.recording_of)))
        else:
            raise CaptureError(f"Tensors on two devices cannot be captured in one step ({user_line()})")
