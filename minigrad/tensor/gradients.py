"""grad(), and Op and FormulaOp for users: type checkers know that saved_inputs() and the like return Tensors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from .. import autograd
from ..autograd import GraphError, Value
from .core import Tensor, nodes_of

if TYPE_CHECKING:

    class Op(autograd.Op, abstract=True):
        """autograd.Op."""

        def saved_inputs(self) -> tuple[Tensor, ...]: ...
        def saved_output(self) -> Tensor: ...
        def saved(self) -> tuple[Tensor, ...]: ...

    class FormulaOp(Op, autograd.FormulaOp, abstract=True):
        """autograd.FormulaOp."""
else:
    Op, FormulaOp = autograd.Op, autograd.FormulaOp


@overload
def grad(
    outputs: Value | Sequence[Value], inputs: Value | Sequence[Value],
    grad_outputs: Value | Sequence[Value | None] | None = None, retain_graph: bool | None = None,
    create_graph: bool = False, allow_unused: Literal[False] = False,
) -> "tuple[Tensor, ...]": ...  # fmt: skip
@overload
def grad(
    outputs: Value | Sequence[Value], inputs: Value | Sequence[Value],
    grad_outputs: Value | Sequence[Value | None] | None = None, retain_graph: bool | None = None,
    create_graph: bool = False, *, allow_unused: bool,
) -> "tuple[Tensor | None, ...]": ...  # fmt: skip
def grad(
    outputs: Value | Sequence[Value], inputs: Value | Sequence[Value],
    grad_outputs: Value | Sequence[Value | None] | None = None, retain_graph: bool | None = None,
    create_graph: bool = False, allow_unused: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the gradients of outputs with respect to inputs, weighted by grad_outputs, as a tuple. No .grad changes.

    outputs, inputs, grad_outputs: a Tensor or a sequence. retain_graph, create_graph: as in Tensor.backward. Raises
    GraphError for an input that the outputs do not depend on; with allow_unused, its gradient is None instead."""
    outputs = [outputs] if isinstance(outputs, Value) else list(outputs)
    inputs = [inputs] if isinstance(inputs, Value) else list(inputs)
    if grad_outputs is None or isinstance(grad_outputs, Value):
        if grad_outputs is not None and len(outputs) != 1:
            raise ValueError(f"grad: {len(outputs)} outputs need as many grad_outputs, got one Tensor")
        grad_outputs = [grad_outputs] * len(outputs)
    nodes = nodes_of("grad", inputs)
    started = [cast(Tensor, y)._root(g) for y, g in zip(outputs, grad_outputs, strict=True)]
    roots, cotangents = [root for root, _ in started], [g for _, g in started]
    gradients = autograd.backward(roots, cotangents, nodes, retain_graph, create_graph)
    for i, g in enumerate(gradients):
        if g is None and not allow_unused:
            raise GraphError(f"grad: outputs do not depend on input {i}; pass allow_unused=True to get None for it")
    return tuple(gradients)
