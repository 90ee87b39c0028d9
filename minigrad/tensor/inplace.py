"""Changes of tensors in place, to values or to random numbers.

If the graph has to record a change, an op computes a new result, and the tensor takes the memory and the node of that
result. What ops have saved keeps the old values. Any other tensor in the old memory, such as a view, is outdated and
raises when it is used.

A change that is not recorded, as under no_grad(), writes into the memory. It raises the version counter of the storage,
so that the backward of an op that saved the old values raises.

Each op that is marked also_in_place, where it is defined, has a method here: exp_ for exp.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ..autograd import GraphError, Storage, Value, is_grad_enabled
from ..autograd.arguments import check_arguments
from ..base.capturing import user_line
from ..base.errors import devices_differ
from ..dtypes import check_holds, plain
from ..ops import public as ops
from ..ops.args import fit_number
from ..ops.index import parse_index, setitem
from ..random import Generator, default_generator
from ..typing import F, Index, Number, Operand
from .attributes import Attributes

T = TypeVar("T", bound="InPlace")
_ASSIGNMENT = "assignment to an index"  # the name of x[i] = y in errors


def _in_place(op: F) -> F:
    """Return the method that writes op(tensor, …) into the tensor."""
    name = op.__name__

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        def write() -> None:
            plain = [x.detach() if isinstance(x, Value) else x for x in args]
            y: Any = cast(Any, op)(self.detach(), *plain, **kwargs)
            y = y.to(self.dtype) if y.dtype.kind == "b" else y
            if y.dtype != self.dtype or y.shape != self.shape:
                raise ValueError(f"{name}_: {y.dtype} {y.shape} does not fit into {self.dtype} {self.shape}")
            self.storage.backend.setitem(self.array, (...,), y.array)

        def result() -> Any:
            return cast(Any, op)(self, *args, **kwargs)

        return self._change(f"{name}_", write, result, *args, *kwargs.values())

    method.__name__ = f"{name}_"
    method.__doc__ = (
        f"{name}() in place: the result, which must have this shape and dtype, is written into this tensor."
    )
    return cast(F, method)


class InPlace(Attributes):
    """The part of Tensor that changes values. Shape and dtype stay.

    Gradients flow through all these methods. They raise GraphError for a leaf that requires a gradient, unless no ops
    are recorded, and for read-only memory; and ValueError if the new values do not fit."""

    __slots__ = ()

    def _change(
        self: T, what: str, write: Callable[[], object], result: Callable[[], Any], *others: Any, copies: bool = False
    ) -> T:
        """Change this tensor in place, and return it: by write(), which writes into its memory, or if the graph has to
        record the change, by becoming the Tensor result().

        what: the method, for errors. others: the arguments. Raises for tensors on another device, except a CPU's
        number, or any tensor if `copies`: the change only copies values."""
        backend, recorded = self.storage.backend, self.node is not None
        for x in others:
            if isinstance(x, Value):
                recorded = recorded or x.node is not None
                elsewhere = x.storage.backend is not backend
                if elsewhere and not copies and (x.ndim or x.device != "cpu"):
                    raise devices_differ(what, backend, x.storage.backend)
        if not backend.is_writeable(self.array):
            raise GraphError(f"{what}: this tensor is read-only, such as the result of expand; clone() it first")
        if recorded and is_grad_enabled() and self.dtype.kind == "f" and not hasattr(self, "_is_data"):
            self._become_result(what, result)
            return self
        self.storage.changed()  # first, so that a captured step knows what is about to be written
        try:
            write()
        except Exception:
            self.storage.changed(-1)
            raise
        return self

    def _become_result(self, what: str, result: Callable[[], Any]) -> None:
        """Become the Tensor result(), cast to this dtype. Outdate other Tensors in the memory that this one leaves.

        Raises GraphError if it is the memory of a leaf that requires a gradient."""
        left, keeps_grad = self.storage, self.node is not None and self.node.retain
        if left.holds_leaf or (self.node is not None and self.node.op is None):
            name = what.removesuffix("_")
            new = "mg.where(mask, value, x)" if what == _ASSIGNMENT else f"x.{name}(…)"
            instead = f"write y = {new}, or " if what == _ASSIGNMENT or hasattr(type(self), name) else ""
            raise GraphError(
                f"{what} changes a leaf that requires a gradient, or a view of one: {instead}change it under no_grad()"
            )
        y = result()
        if y.shape != self.shape:
            raise ValueError(f"{what}: {y.dtype} {y.shape} does not fit into {self.dtype} {self.shape}")
        y = y.to(self.dtype) if y.dtype != self.dtype else y
        y = y.clone() if y.storage is left else y
        self._become(y)
        self.node = y.node
        if keeps_grad:
            y.retain_grad()
        left.outdate(f"{what} at {user_line()}")

    def _raw(self, what: str, other: Any) -> Any:
        """other as an array of this tensor's backend, or a number that this tensor's dtype holds."""
        if isinstance(other, Value):
            here = other.storage.backend is self.storage.backend
            return other.array if here else other.detach().to(self.device).array
        if isinstance(other, int | np.integer) and self.dtype.kind in "iu":
            return fit_number(what.removesuffix("_"), int(other), self.dtype)
        if what in ("copy_", "fill_", "zero_", "assignment"):
            check_holds(what.removesuffix("_"), self.dtype, other)
        return other if isinstance(other, (bool, int, float)) else self.storage.backend.from_numpy(plain(what, other))

    def _update(self: T, op: Callable[..., Any], other: Any, alpha: float = 1) -> T:
        """self = op(self, alpha * other), in place. A primitive of the backend has the op's name."""
        what, primitive = f"{op.__name__}_", getattr(self.storage.backend, op.__name__)
        other = other if alpha == 1 else other * alpha

        def write() -> None:
            try:
                primitive(self.array, self._raw(what, other), out=self.array)
            except (TypeError, ValueError):
                kind, shape = getattr(other, "dtype", type(other).__name__), getattr(other, "shape", ())
                raise ValueError(f"{what}: {kind} {shape} does not fit into {self.dtype} {self.shape}") from None

        return self._change(what, write, lambda: op(self, other), other)

    def add_(self: T, other: Operand, *, alpha: float = 1) -> T:
        """self += alpha * other, in place; other is broadcast. Raises ValueError if the result has another shape or
        kind of dtype, and GraphError for a leaf that requires a gradient: use no_grad()."""
        return self._update(ops.add, other, alpha)

    def sub_(self: T, other: Operand, *, alpha: float = 1) -> T:
        """self -= alpha * other, in place, as add_ does."""
        return self._update(ops.sub, other, alpha)

    def mul_(self: T, other: Operand) -> T:
        """self *= other, in place, as add_ does."""
        return self._update(ops.mul, other)

    def div_(self: T, other: Operand) -> T:
        """self /= other, in place, as add_ does."""
        return self._update(ops.div, other)

    def copy_(self: T, src: Operand, non_blocking: bool = False) -> T:
        """Copy the values of src, on any device, broadcast to self's shape and cast to its dtype, in place. Raises
        ValueError if they do not broadcast, and GraphError as add_ does."""
        return self._copy_values("copy_", src)

    def _copy_values(self: T, what: str, src: Operand) -> T:
        """Write src, a number, an array or a Tensor on any device, into all elements, broadcast and cast."""

        def write() -> None:
            self.storage.backend.setitem(self.array, (...,), self._raw(what, src))

        return self._change(what, write, lambda: self._with_assigned(..., src), src, copies=True)

    def _with_assigned(self, index: Index, value: Operand) -> Any:
        """A copy of this tensor with value, a number, an array or a Tensor on any device, written at an index."""
        if isinstance(value, Value):
            value = value.to(self.device).to(self.dtype)
        elif not isinstance(value, (bool, int, float)):
            value = self.constant(value).to(self.dtype)
        return setitem(self, index, value)

    if TYPE_CHECKING:  # the loop below this class makes all of them; type checkers know those that programs use most
        abs_, exp_, neg_, sqrt_ = _in_place(ops.abs), _in_place(ops.exp), _in_place(ops.neg), _in_place(ops.sqrt)
        clamp_, masked_fill_, scatter_ = _in_place(ops.clamp), _in_place(ops.masked_fill), _in_place(ops.scatter)
        relu_, sigmoid_, tanh_ = _in_place(ops.relu), _in_place(ops.sigmoid), _in_place(ops.tanh)
        pow_, round_, tril_, triu_ = _in_place(ops.pow), _in_place(ops.round), _in_place(ops.tril), _in_place(ops.triu)

    def addcmul_(self: T, tensor1: Operand, tensor2: Operand, *, value: float = 1) -> T:
        """self += value * tensor1 * tensor2, in place, as add_ does."""
        return self.add_(cast(Any, tensor1) * tensor2, alpha=value)

    def addcdiv_(self: T, tensor1: Operand, tensor2: Operand, *, value: float = 1) -> T:
        """self += value * tensor1 / tensor2, in place, as add_ does."""
        return self.add_(cast(Any, tensor1) / tensor2, alpha=value)

    def lerp_(self: T, end: Operand, weight: Operand) -> T:
        """self += weight * (end - self), in place, as add_ does."""
        return self.add_((cast(Any, end) - self) * weight)

    def fill_(self: T, value: Number) -> T:
        """Set every element to value, a number, cast to self's dtype, in place."""
        return self._copy_values("fill_", value)

    def zero_(self: T) -> T:
        """Set every element to 0, in place."""
        return self._copy_values("zero_", 0)

    @check_arguments
    def uniform_(self: T, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> T:
        """Fill with uniform numbers in [a, b), in place. Raises ValueError if b < a, and TypeError unless this holds
        floats."""
        if b < a:
            raise ValueError(f"uniform_: there are no numbers from {a} up to {b}")
        return self._draw("uniform_", Generator.uniform, b - a, a, generator)

    @check_arguments
    def normal_(self: T, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> T:
        """Fill with normal numbers, in place. Raises ValueError if std < 0, and TypeError unless this holds floats."""
        if std < 0:
            raise ValueError(f"normal_: std must not be negative, got {std}")
        return self._draw("normal_", Generator.normal, std, mean, generator)

    def _draw(
        self: T, what: str, draw: Callable[..., Any], scale: float, shift: float, generator: Generator | None
    ) -> T:
        """Fill with scale * (numbers drawn by `draw`, a method of Generator) + shift."""
        if self.dtype.kind != "f":
            raise TypeError(f"{what}: the numbers are floats, and this tensor is {self.dtype}")
        backend = self.storage.backend

        def drawn() -> Any:
            x = draw(default_generator if generator is None else generator, self.shape, self.dtype, backend)
            return backend.add(backend.mul(x, float(scale), out=x), float(shift), out=x)

        def write() -> None:
            backend.setitem(self.array, (...,), drawn())

        return self._change(what, write, lambda: setitem(self, ..., self._wrap(drawn(), Storage(backend))))

    def __setitem__(self, index: Index, value: Operand) -> None:
        """Assignment, in place. Gradients flow to value, and to the elements that keep their values."""
        backend = self.storage.backend

        def write() -> None:
            array = self.array
            *views, last = parse_index(self, index)
            for part in views:
                array = backend.getitem(array, part)
            backend.setitem(array, last, self._raw("assignment", value))

        self._change(_ASSIGNMENT, write, lambda: self._with_assigned(index, value), value, copies=True)

    def _augment(self, other: Any, function: Callable[..., Any], in_place: Callable[..., Any]) -> Any:
        """x += y and the like: in place. A new tensor if x is a part of another and the graph has to record the change.

        (In place, it would outdate all others in this memory: z in `z[0] += y`, and k in `q, k = qk[0], qk[1]`.)"""
        recorded = self.node is not None or (isinstance(other, Value) and other.node is not None)
        is_part = self.array.size < self.storage.whole
        if recorded and is_grad_enabled() and is_part and not self.storage.holds_leaf:
            return function(self, other)
        return in_place(self, other)

    def __iadd__(self: T, other: Operand) -> T:  # type: ignore[misc]
        return cast(T, self._augment(other, ops.add, InPlace.add_))

    def __isub__(self: T, other: Operand) -> T:  # type: ignore[misc]
        return cast(T, self._augment(other, ops.sub, InPlace.sub_))

    def __imul__(self: T, other: Operand) -> T:  # type: ignore[misc]
        return cast(T, self._augment(other, ops.mul, InPlace.mul_))

    def __itruediv__(self: T, other: Operand) -> T:  # type: ignore[misc]
        return cast(T, self._augment(other, ops.div, InPlace.div_))

    def __iand__(self: T, other: Operand) -> T:
        return self._update(ops.bitwise_and, other)

    def __ior__(self: T, other: Operand) -> T:
        return self._update(ops.bitwise_or, other)

    def __ixor__(self: T, other: Operand) -> T:
        return self._update(ops.bitwise_xor, other)


for _name, _function in vars(ops).items():
    if hasattr(_function, "also_in_place") and not hasattr(InPlace, f"{_name}_"):
        setattr(InPlace, f"{_name}_", _in_place(_function))
