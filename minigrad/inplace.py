"""Changing tensors in place: always counted, so that an op that saved the old values says so in its backward."""

from . import ops
from .autograd import GraphError, Value, is_grad_enabled


class InPlace(Value):
    """The part of Tensor that changes values."""

    __slots__ = ()

    def _in_place(self, what, *others):
        """Allow an in-place change, and count it, unless the graph would have to know of it."""
        if is_grad_enabled() and any(isinstance(x, Value) and x.node is not None for x in (self, *others)):
            raise GraphError(
                f"{what} changes a tensor in place while its operations are recorded; do it under no_grad(), on "
                f"detach(), or out of place"
            )
        if not self.array.flags.writeable:
            raise GraphError(f"{what}: this tensor is read-only (the result of expand); clone() it first")
        self.storage.changed()

    def _update(self, what, function, other):
        y = function(self.detach(), other.detach() if isinstance(other, Value) else other)
        if y.shape != self.shape or (y.dtype.kind == "f") > (self.dtype.kind == "f"):
            raise ValueError(
                f"{what}: a result of shape {y.shape}, {y.dtype} does not fit into {self.shape}, {self.dtype}"
            )
        self._in_place(what, other)
        self.array[...] = y.array
        return self

    def add_(self, other, *, alpha=1):
        """self += alpha * other, in place."""
        return self._update("add_", ops.add, other if alpha == 1 else other * alpha)

    def sub_(self, other, *, alpha=1):
        """self -= alpha * other, in place."""
        return self._update("sub_", ops.sub, other if alpha == 1 else other * alpha)

    def mul_(self, other):
        return self._update("mul_", ops.mul, other)

    def div_(self, other):
        return self._update("div_", ops.div, other)

    def clamp_(self, min=None, max=None):
        return self._update("clamp_", lambda x, _: ops.clamp(x, min, max), None)

    def copy_(self, other):
        """The values of other, broadcast and cast, in place."""
        self._in_place("copy_", other)
        self.array[...] = other.array if isinstance(other, Value) else other
        return self

    def fill_(self, value):
        return self.copy_(value)

    def zero_(self):
        return self.copy_(0)

    def __setitem__(self, index, value):
        """Assignment, in place: under no_grad(), or where neither side requires a gradient."""
        self._in_place("assignment to an index", value)
        self.array[ops.parsed_index(self, index)] = value.array if isinstance(value, Value) else value

    def _augmented(self, other, function, in_place):
        """x += y: in place where nothing is recorded, else a new tensor, so that no graph is ever cut or bent."""
        recorded = self.node is not None or (isinstance(other, Value) and other.node is not None)
        if not (is_grad_enabled() and recorded):
            return in_place(self, other)
        if self.node is not None and self.node.op is None:
            raise GraphError("in-place change of a leaf that requires a gradient; do it under no_grad()")
        return function(self, other)

    def __iadd__(self, other):
        return self._augmented(other, ops.add, InPlace.add_)

    def __isub__(self, other):
        return self._augmented(other, ops.sub, InPlace.sub_)

    def __imul__(self, other):
        return self._augmented(other, ops.mul, InPlace.mul_)

    def __itruediv__(self, other):
        return self._augmented(other, ops.div, InPlace.div_)
