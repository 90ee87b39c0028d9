"""Changes of tensors in place, to values or to random numbers.

Every change raises the version counter of the storage, so that the backward of an op that saved the old values raises.
Each op that is marked also_in_place, where it is defined, has a method here: exp_ for exp.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ..autograd import GraphError, Value, is_grad_enabled
from ..autograd.arguments import check_arguments
from ..base.errors import devices_differ
from ..dtypes import check_holds, plain
from ..ops import public as ops
from ..ops.args import fit_number
from ..ops.index import parse_index
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

        return self._change(f"{name}_", write, *args, *kwargs.values())

    method.__name__ = f"{name}_"
    method.__doc__ = (
        f"{name}() in place: the result, which must have this shape and dtype, is written into this tensor."
    )
    return cast(F, method)


class InPlace(Attributes):
    """The part of Tensor that changes values. Shape, dtype and memory stay.

    All methods raise GraphError if ops are recorded and one of the tensors requires a gradient, or if the memory is
    read-only. They raise ValueError if the new values do not fit."""

    __slots__ = ()

    def _change(self: T, what: str, write: Callable[[], object], *others: Any, copies: bool = False) -> T:
        """Call write(), which changes this tensor in place, and count the change unless it raises. Returns the tensor.

        what: the method, for errors. others: the arguments. Raises if the graph would have to record the change. Raises
        for tensors on another device, except a CPU's number, or any tensor if `copies`: write() only copies values."""
        backend, recorded = self.storage.backend, self.node is not None
        for x in others:
            if isinstance(x, Value):
                recorded = recorded or x.node is not None
                elsewhere = x.storage.backend is not backend
                if elsewhere and not copies and (x.ndim or x.device != "cpu"):
                    raise devices_differ(what, backend, x.storage.backend)
        if recorded and is_grad_enabled() and not hasattr(self, "_is_data"):
            name = what.removesuffix("_")
            new = "mg.where(mask, value, x)" if what == _ASSIGNMENT else f"x.{name}(…)"
            instead = f"write y = {new}, or " if what == _ASSIGNMENT or hasattr(type(self), name) else ""
            raise GraphError(
                f"{what} changes a tensor in place, which has no gradient: {instead}change parameters under no_grad(), "
                f"and other tensors after detach()"
            )
        if not backend.is_writeable(self.array):
            raise GraphError(f"{what}: this tensor is read-only, such as the result of expand; clone() it first")
        self.storage.changed()  # first, so that a captured step knows what is about to be written
        try:
            write()
        except Exception:
            self.storage.changed(-1)
            raise
        return self

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

    def _update(self: T, what: str, primitive: Callable[..., Any], other: Any) -> T:
        """self = primitive(self, other), in place."""

        def write() -> None:
            try:
                primitive(self.array, self._raw(what, other), out=self.array)
            except (TypeError, ValueError):
                kind, shape = getattr(other, "dtype", type(other).__name__), getattr(other, "shape", ())
                raise ValueError(f"{what}: {kind} {shape} does not fit into {self.dtype} {self.shape}") from None

        return self._change(what, write, other)

    def add_(self: T, other: Operand, *, alpha: float = 1) -> T:
        """self += alpha * other, in place; other is broadcast. Raises ValueError if the result has another shape or
        kind of dtype, and GraphError if ops are being recorded and a gradient is required: use no_grad()."""
        return self._update("add_", self.storage.backend.add, other if alpha == 1 else cast(Any, other) * alpha)

    def sub_(self: T, other: Operand, *, alpha: float = 1) -> T:
        """self -= alpha * other, in place, as add_ does."""
        return self._update("sub_", self.storage.backend.sub, other if alpha == 1 else cast(Any, other) * alpha)

    def mul_(self: T, other: Operand) -> T:
        """self *= other, in place, as add_ does."""
        return self._update("mul_", self.storage.backend.mul, other)

    def div_(self: T, other: Operand) -> T:
        """self /= other, in place, as add_ does."""
        return self._update("div_", self.storage.backend.div, other)

    def copy_(self: T, src: Operand, non_blocking: bool = False) -> T:
        """Copy the values of src, on any device, broadcast to self's shape and cast to its dtype, in place. Raises
        ValueError if they do not broadcast, and GraphError as add_ does."""
        return self._copy_values("copy_", src)

    def _copy_values(self: T, what: str, src: Operand) -> T:
        backend = self.storage.backend
        return self._change(what, lambda: backend.setitem(self.array, (...,), self._raw(what, src)), src, copies=True)

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
        return self.add_((cast(Any, end) - self.detach()) * weight)

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

        def write() -> None:
            x = draw(default_generator if generator is None else generator, self.shape, self.dtype, backend)
            x = backend.add(backend.mul(x, float(scale), out=x), float(shift), out=x)
            backend.setitem(self.array, (...,), x)

        return self._change(what, write)

    def __setitem__(self, index: Index, value: Operand) -> None:
        """Assignment, in place: under no_grad(), or where neither side requires a gradient."""
        backend = self.storage.backend

        def write() -> None:
            array = self.array
            *views, last = parse_index(self, index)
            for part in views:
                array = backend.getitem(array, part)
            backend.setitem(array, last, self._raw("assignment", value))

        self._change(_ASSIGNMENT, write, value, copies=True)

    def _augment(self, other: Any, function: Callable[..., Any], in_place: Callable[..., Any]) -> Any:
        """x += y and the like: in place if nothing is recorded, else a new tensor, so that every graph stays right."""
        recorded = self.node is not None or (isinstance(other, Value) and other.node is not None)
        if not (is_grad_enabled() and recorded):
            return in_place(self, other)
        if self.node is not None and self.node.op is None:
            raise GraphError("x += y of a leaf that requires a gradient: write y = x + …, or change it under no_grad()")
        return function(self, other)

    def __iadd__(self: T, other: Operand) -> T:  # type: ignore[misc]
        return cast(T, self._augment(other, ops.add, InPlace.add_))

    def __isub__(self: T, other: Operand) -> T:  # type: ignore[misc]
        return cast(T, self._augment(other, ops.sub, InPlace.sub_))

    def __imul__(self: T, other: Operand) -> T:  # type: ignore[misc]
        return cast(T, self._augment(other, ops.mul, InPlace.mul_))

    def __itruediv__(self: T, other: Operand) -> T:  # type: ignore[misc]
        return cast(T, self._augment(other, ops.div, InPlace.div_))


for _name, _function in vars(ops).items():
    if hasattr(_function, "also_in_place") and not hasattr(InPlace, f"{_name}_"):
        setattr(InPlace, f"{_name}_", _in_place(_function))
