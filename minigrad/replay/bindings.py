"""Which captured objects stand for which objects from outside, in one call of a captured step."""

from ..autograd import Node, Storage
from ..backend.launch.launcher import bytes_below, bytes_spanned
from ..base.capturing import CaptureError, user_line
from .guards import array_guard, misalignment
from .programs import CallMemory
from .trace import FINISHED, Placeholder, TensorParts, TraceTree, tensor_around


class Bindings:
    """What one call has bound.

    An array, a storage or a leaf node from outside is bound to a captured one when the call first uses it. The call
    does the same as an earlier call only as long as each captured object stands for the same object."""

    def __init__(self, tree: TraceTree):
        self.tree, self.backend, self.space = tree, tree.backend, tree.space
        self.memory = CallMemory(tree.backend)
        self.bound_arrays: dict = {}  # {id of an array from outside: (it, the captured one)}
        self.captured_for: dict = {}  # {storage or node from outside: the captured one}
        self.outside_for: dict = {}  # the other way round
        self.journal: list = []  # (dict, key) of what was added to these three, to be undone

    # -- matching objects of this call with captured ones; what is from outside is bound

    def match_tensor(self, e, x, parts: TensorParts):
        """True if the Tensor x is the captured one, or is now bound to it at the entry e."""
        return (
            x.storage.backend is self.backend
            and self.match_array(e, x.array, parts.array)
            and self._match_object(x.storage, parts.storage)
            and self._match_node(x.node, parts.node)
        )

    def match_array(self, e, x, captured):
        """True if the array x is the captured one, or is now bound to it at the entry e."""
        bound = self.captured_array(x)
        if bound is not None:
            return bound is captured
        placeholder = e.placeholders.get(id(captured))
        if placeholder is None:  # perhaps a view of captured memory, which Python makes anew at each call
            place = self.space.place(x)
            if place is None or place != self.space.place(captured):
                return False
            return array_guard(x, self.backend) == array_guard(captured, self.backend)
        fits = placeholder.bound is x or (
            array_guard(x, self.backend) == placeholder.guard and self.space.place(x) is None
        )
        if fits:
            self._bind(x, placeholder)
        return fits

    def _match_node(self, node, captured):
        """True if `node` is the captured node, or is now bound to it."""
        if node is None or captured is None or node is captured:
            return node is captured
        return node.op is captured.op and captured.op in (None, FINISHED) and self._match_object(node, captured)

    def _match_object(self, given, captured):
        """True if a storage or a node is the captured one, or is now bound to it. Each can be bound to one other."""
        if given is captured:
            return True
        if self.captured_for.get(given, captured) is not captured:
            return False
        if self.outside_for.get(captured, given) is not given:
            return False
        if given not in self.captured_for:
            self.captured_for[given], self.outside_for[captured] = captured, given
            self.journal += (self.captured_for, given), (self.outside_for, captured)
        return True

    def captured_array(self, x):
        """The captured array that x is bound to, or None."""
        return self.bound_arrays.get(id(x), (x, None))[1]

    def _bind(self, x, placeholder):
        """Let the array x be what the placeholder stands for in this call."""
        self.bound_arrays[id(x)] = x, placeholder.array
        self.journal.append((self.bound_arrays, id(x)))
        if placeholder.allocation is None:
            return
        if placeholder.bound is not x:
            placeholder.bound, placeholder.address = x, self.backend.address(x) + bytes_below(x)
        self.memory.put(placeholder.allocation, x, placeholder.address)

    def undo(self, mark):
        """Unbind everything that was bound after the journal had the length `mark`."""
        while len(self.journal) > mark:
            bound, key = self.journal.pop()
            del bound[key]

    # -- the captured object for one of this call, at an entry that is being captured

    def captured_tensor(self, e, x):
        """The captured Tensor for x. Raises CaptureError for a Tensor of another device, or of an older graph."""
        if x.storage.backend is not self.backend:
            raise two_devices_error(self.backend, x.storage.backend)
        return tensor_around(self.array_for(e, x.array), self._node_for(x.node), self._storage_for(x.storage))

    def array_for(self, e, x):
        """The captured array for x: a new placeholder, if x is from outside and not bound yet."""
        bound = self.captured_array(x)
        if bound is not None or self.space.place(x) is not None:
            return x if bound is None else bound
        backend, first, writeable = self.backend, -bytes_below(x), getattr(x.flags, "writeable", True)
        begins = (misalignment(x, backend) - first) % backend.alignment
        array = self.space.array(x.shape, x.dtype, x.strides, first, bytes_spanned(x), writeable, begins)
        place = self.space.place(array)
        placeholder = Placeholder(array, place and place[0], array_guard(x, backend))
        e.placeholders[id(array)] = placeholder
        self.tree.outside.add(placeholder.allocation)
        self._bind(x, placeholder)
        return array

    def _storage_for(self, storage):
        if storage in self.tree.storages:
            return storage
        captured = self.captured_for.get(storage)
        if captured is None:
            captured = Storage(self.backend)
            captured.holds_leaf = storage.holds_leaf
            self.tree.storages.add(captured)
            self._match_object(storage, captured)
        return captured

    def _node_for(self, node):
        if node is None or node.op in self.tree.ops or node in self.outside_for:
            return node
        captured = self.captured_for.get(node)
        if captured is None:
            if node.op is not None and node.op is not FINISHED:
                raise CaptureError(f"a Tensor of a graph older than the captured step: detach() it ({user_line()})")
            captured = Node(node.op, 0, node.shape, node.dtype, node.device)
            self._match_object(node, captured)
        return captured

    # -- places and memory

    def place_of(self, x):
        """The place of a captured Tensor in the address space, or None for a Tensor with memory."""
        return self.space.place(x.array) if x.storage.backend is self.backend else None

    def share_memory_unseen(self, arrays):
        """True if two of these arrays share memory, as views made before the call may, and their captured ones do not.
        The memory plan would not know that a launch on one depends on a launch on the other."""
        pairs: list = []  # (array in memory, the captured one)
        for x in arrays:
            place = self.space.place(x)
            if place is None:
                pairs.append((x, self.captured_array(x)))
            elif place[0] in self.tree.outside:
                pairs.append((self.memory.array(place, x), x))
        overlap = self.backend.overlap
        return any(
            a is not b and overlap(a, b) and (x is None or y is None or not overlap(x, y))
            for i, (a, x) in enumerate(pairs)
            for b, y in pairs[:i]
        )


def two_devices_error(first, second):
    """The error for a step that uses Tensors of two backends."""
    devices = f"{str(first.device)!r} and {str(second.device)!r}"
    return CaptureError(f"Tensors on two devices, {devices}, cannot be captured in one step ({user_line()})")
