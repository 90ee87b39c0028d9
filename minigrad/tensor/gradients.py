"""The gradients of Tensors: who requires one, backward, hooks, and grad()."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from .. import autograd
from ..autograd import GraphError, Handle, Node, Recorded, Storage, Value
from ..base.missing import refused_argument
from ..base.recording import here

if TYPE_CHECKING:
    from .core import Tensor

T = TypeVar("T", bound="Gradients")


class Gradients(Value):
    """The part of Tensor that has to do with the graph."""

    __slots__ = ()

    @property
    def is_leaf(self) -> bool:
        """True if no recorded op made it: data, a parameter, or a result under no_grad."""
        return self.node is None or self.node.op is None

    @property
    def op(self) -> Recorded | None:
        """The op that made it, or None for a leaf."""
        return None if self.node is None else self.node.op

    @property
    def grad_fn(self) -> Recorded | None:
        """torch's name for `op`."""
        return self.op

    @property
    def requires_grad(self) -> bool:
        """True if backward() computes a gradient of it; may be set on leaves of floats."""
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Make this leaf require a gradient, or stop requiring one, which drops its .grad. Returns itself. Raises
        TypeError for dtypes that are no floats, and GraphError for what is no leaf."""
        if not self.is_leaf:
            if requires_grad:
                return self
            raise GraphError("only a leaf can stop requiring a gradient; use detach()")
        if not requires_grad:
            self.node = None
        elif self.node is None:
            if self.dtype.kind != "f":
                raise TypeError(f"only floating-point tensors can require a gradient, not {self.dtype}")
            if self.storage.version is None:
                raise GraphError("a tensor made under inference() cannot require a gradient; clone() it outside")
            self.node = Node(None, 0, self.shape, self.dtype, self.device)
        return self

    @property
    def grad(self) -> "Tensor | None":
        """The gradient that backward() has added up so far: on leaves and after retain_grad(). Else None."""
        if self.node is None:
            return None
        if here.recorder is not None:
            here.recorder.reads_grad(self.node)
        found: Tensor | None = self.node.grad
        return found

    @grad.setter
    def grad(self, value: "Tensor | None") -> None:
        if value is not None:
            if self.node is None:
                raise GraphError("a tensor that requires no gradient cannot hold one; requires_grad_() it first")
            check_same_kind(".grad", value, self)
        if self.node is not None:
            if here.recorder is not None:
                here.recorder.grad(self.node)
            self.node.grad = value

    def retain_grad(self) -> None:
        """Keep .grad after backward() although this is not a leaf."""
        self._node_for("retain_grad").retain = True

    def register_hook(self, hook: "Callable[[Tensor], Tensor | None]") -> Handle:
        """Have backward() call hook(gradient) once the whole gradient of this tensor is known, a Tensor of its shape.

        hook may return another gradient in its place. Returns a handle whose remove() takes this hook off again. Raises
        GraphError if this requires no gradient."""
        return self._node_for("register_hook").add_hook(hook)

    def _node_for(self, what: str) -> Node:
        if self.node is None:
            raise GraphError(f"{what}: this tensor requires no gradient")
        return self.node

    def backward(
        self,
        gradient: Value | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Value | Iterable[Value] | None = None,
    ) -> None:
        """Add d(self)/d(leaf), weighted by `gradient`, to the .grad of every leaf.

        gradient: a Tensor like this one; not needed if this has one element. retain_graph: keep what ops saved for
        another backward. create_graph: make the gradients differentiable. inputs: add to the .grad of these only.

        Raises GraphError if this requires no gradient, if its graph has been freed, or if a value that an op saved has
        changed since."""
        root, cotangent = _root(self, gradient)
        if inputs is None:
            autograd.backward([root], [cotangent], retain_graph=retain_graph, create_graph=create_graph)
            return
        inputs = [inputs] if isinstance(inputs, Value) else list(dict.fromkeys(inputs))
        for x, g in zip(inputs, grad(self, inputs, gradient, retain_graph, create_graph, allow_unused=True)):
            if g is not None and x.node is not None:
                x.node.accumulate(g)

    def detach(self) -> "Tensor":
        """The same memory without the graph. The version checks notice in-place changes of either tensor."""
        detached: Tensor = self._wrap(self.array, self.storage)
        return detached

    def detach_(self: T) -> T:
        """This tensor without the graph that it was computed in: in place, the values stay. Returns itself."""
        self.node = None
        return self

    @property
    def data(self) -> "Tensor":
        """detach(). Assigning to it replaces the values by those of a tensor of the same shape, dtype and device."""
        return self.detach()

    @data.setter
    def data(self, value: "Tensor") -> None:
        check_same_kind(".data", value, self)
        if value.storage is not self.storage:
            self.storage.changed()
            compact = value if value.is_contiguous() else value.detach().clone()  # as optimizers need it
            self.array, self.storage = compact.array, compact.storage


def check_same_kind(what: str, x: Any, like: Value) -> None:
    """Raise unless x is a Tensor of like's shape and dtype on its device."""
    if not isinstance(x, Value):
        raise TypeError(f"{what} must be a Tensor of shape {like.shape} and {like.dtype}, got {type(x).__name__}")
    if (x.shape, x.dtype, x.device) != (like.shape, like.dtype, like.device):
        raise ValueError(
            f"{what} must have shape {like.shape}, {like.dtype} on {like.device!r}; got shape {x.shape}, {x.dtype} on "
            f"{x.device!r}"
        )


def _root(output: Value, gradient: Value | None) -> tuple[Node, Value]:
    """(node, cotangent) to begin a walk with."""
    if output.node is None:
        raise GraphError(
            "backward from a tensor that requires no gradient: none of what it was computed from does, or it was "
            "computed under no_grad()"
        )
    if gradient is None:
        if output.numel() != 1:
            raise GraphError(f"backward from a tensor of shape {output.shape} needs `gradient`, a tensor of that shape")
        on = output.storage.backend
        gradient = output._wrap(on.full(output.shape, 1, output.dtype), Storage(on))
    check_same_kind("`gradient`", gradient, output)
    return output.node, gradient


@overload
def grad(
    outputs: Value | Sequence[Value],
    inputs: Value | Sequence[Value],
    grad_outputs: Value | Sequence[Value | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: Literal[False] = False,
    *,
    materialize_grads: bool = False,
) -> "tuple[Tensor, ...]": ...
@overload
def grad(
    outputs: Value | Sequence[Value],
    inputs: Value | Sequence[Value],
    grad_outputs: Value | Sequence[Value | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    allow_unused: bool,
    materialize_grads: bool = False,
) -> "tuple[Tensor | None, ...]": ...
def grad(
    outputs: Value | Sequence[Value],
    inputs: Value | Sequence[Value],
    grad_outputs: Value | Sequence[Value | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    *,
    materialize_grads: bool = False,
    **others: Any,
) -> tuple[Any, ...]:
    """Gradients of outputs with respect to inputs, weighted by grad_outputs, as a tuple; touches no .grad.

    outputs, inputs, grad_outputs: a Tensor or a sequence. Raises GraphError for an input that the outputs do not depend
    on; with allow_unused, its gradient is None, and with materialize_grads, zeros. retain_graph, create_graph: as in
    Tensor.backward. Of others, only_inputs=True and is_grads_batched=False change nothing."""
    for word, value in others.items():
        if value is not {"only_inputs": True, "is_grads_batched": False}.get(word):
            raise refused_argument("grad", word) or TypeError(f"grad() got an unexpected keyword argument {word!r}")
    outputs = [outputs] if isinstance(outputs, Value) else list(outputs)
    inputs = [inputs] if isinstance(inputs, Value) else list(inputs)
    if grad_outputs is None or isinstance(grad_outputs, Value):
        if grad_outputs is not None and len(outputs) != 1:
            raise ValueError(f"grad: {len(outputs)} outputs need as many grad_outputs, got one Tensor")
        grad_outputs = [grad_outputs] * len(outputs)
    nodes = []
    for i, x in enumerate(inputs):
        if x.node is None:
            raise GraphError(f"grad: input {i} requires no gradient; call requires_grad_() before computing with it")
        nodes.append(x.node)
    started = [_root(y, g) for y, g in zip(outputs, grad_outputs, strict=True)]
    roots, cotangents = [root for root, _ in started], [g for _, g in started]
    found = autograd.backward(roots, cotangents, nodes, retain_graph, create_graph)
    if materialize_grads:
        return tuple(x.detach().zeros_like() if g is None else g for x, g in zip(inputs, found))
    for i, g in enumerate(found):
        if g is None and not allow_unused:
            raise GraphError(f"grad: outputs do not depend on input {i}; pass allow_unused=True to get None for it")
    return tuple(found)
