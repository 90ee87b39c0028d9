"""Function: an op written as for torch.autograd, with static methods and a context, to port code that has some.

    class Exp(Function):
        @staticmethod
        def forward(ctx, x):                  # Tensors, whose operations are not recorded
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, dy):                # Tensors in, a Tensor (or None) for each argument of forward out
            (y,) = ctx.saved_tensors
            return dy * y

    y = Exp.apply(x)

For a new op, `Op` is simpler: the instance is its own context, and `cases` has it checked with the others.
"""

import copy
import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .graph import GraphError, Node, Storage, Value
from .modes import mode, no_grad
from .op import Op


class Context:
    """What forward leaves for backward: tensors by save_for_backward, anything else as attributes."""

    needs_input_grad: tuple[bool, ...] = ()  # of each argument of forward
    _saved: tuple[Any, ...] = ()
    _constant: tuple[Any, ...] = ()
    if TYPE_CHECKING:  # ctx.name = value

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    _run: "Run | None" = None  # while a backward runs; else a context and its op would keep each other alive

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep Tensors (or None) for backward: inputs, outputs, or what is in between, which counts as constant."""
        for x in tensors:
            if x is not None and not isinstance(x, Value):
                raise TypeError(f"save_for_backward takes Tensors; keep a {type(x).__name__} as ctx.name = value")
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What save_for_backward kept. Raises GraphError if it has changed since, or has been freed."""
        return self._saved if self._run is None else self._run.unpacked()

    def mark_non_differentiable(self, *outputs: Any) -> None:
        """These outputs require no gradient."""
        self._constant = outputs

    def set_materialize_grads(self, value: bool) -> None:
        """Changes nothing: the gradient of an output that nothing used is zeros."""

    def mark_dirty(self, *inputs: Any) -> None:
        """Raises GraphError: a Function changes nothing in place."""
        raise GraphError("a Function cannot change its inputs in place: return a new Tensor")


class Run(Op, abstract=True):
    """One call of a Function, as the graph sees it. Each Function has a subclass of this."""

    function: "type[Function]"
    broadcasts = True  # a gradient that is too large is summed, as in PyTorch
    ctx: Context
    _outputs: tuple[Any, ...] = ()  # what forward returned
    _nodes: tuple[Any, ...] = ()  # weak references to the nodes of the outputs

    def _bind(self, inputs: tuple[Any, ...]) -> tuple[list[Value], list[Any]]:
        tensors, _ = super()._bind(inputs)
        return tensors, list(inputs)  # so forward gets Tensors, not their arrays

    def forward(self, *inputs: Any) -> Any:
        self.ctx = ctx = Context()
        ctx.needs_input_grad = self.needs
        given = [x.detach() if isinstance(x, Value) else x for x in inputs]
        with no_grad():
            y = self.function.forward_with(ctx, given)
        outputs = y if isinstance(y, tuple) else (y,)
        if not outputs:
            raise TypeError(f"forward of {self.name} must return a Tensor or several, got ()")
        for each in outputs:
            if not isinstance(each, Value):
                raise TypeError(f"forward of {self.name} must return Tensors, got {type(each).__name__}")
        self.backend = outputs[0].storage.backend
        self._outputs = outputs
        if self._inputs is not None:
            self._saved_inputs = tuple(self._kept_as(x, given) for x in ctx._saved)
        arrays = tuple(each.array for each in outputs)
        return arrays if isinstance(y, tuple) else arrays[0]

    def _kept_as(self, x: Any, given: list[Any]) -> Any:
        """How a Tensor is kept: (None or the number of the output that it is, its array, storage, version and node)."""
        if x is None:
            return None
        for place, output in enumerate(self._outputs):
            if x is output:
                return place, x.array, None, 0, None  # _wrapped completes it
        source = next((a for a, b in zip(self._inputs, given) if x is b), x)
        return None, *self._entry(x.array, source)

    def _wrapped(self, outputs: tuple[Any, ...], tensors: list[Value]) -> list[Any]:
        results = super()._wrapped(outputs, tensors)
        ctx, made = self.ctx, self._outputs
        constant = [any(x is y for y in ctx._constant) for x in made]
        for x, is_constant in zip(results, constant):
            if is_constant:
                x.node = None
        if self._saved_inputs is not None:
            self._nodes = tuple(None if x.node is None else weakref.ref(x.node) for x in results)
            self._saved_inputs = tuple(
                entry if entry is None or entry[0] is None else self._of_output(entry[0], results[entry[0]])
                for entry in self._saved_inputs
            )
        ctx._saved = ctx._constant = self._outputs = ()
        return results

    @staticmethod
    def _of_output(place: int, x: Any) -> tuple[Any, ...]:
        return place, x.array, x.storage, x.storage.version, None

    def unpacked(self) -> tuple[Any, ...]:
        entries = (
            () if self._saved_inputs is None and not self.spent else self._kept("_saved_inputs", "save_for_backward")
        )
        return tuple(None if entry is None else self._restored(*entry) for entry in entries)

    def _restored(self, place: int | None, array: Any, storage: Storage, version: Any, node: Any) -> Any:
        op = self._whole or self
        if not mode.grad:  # nothing is recorded here, and NumPy may see it
            node = None
        elif place is not None and op._nodes[place] is not None:
            node = op._nodes[place]()
            if node is None:  # the output is gone; a node in its place stands for it
                node = Node(op, place, array.shape, array.dtype, storage.backend.device)
        return self._unpack((array, storage, version, node))

    def backward(self, *dys: Any) -> Any:
        ctx = copy.copy(self.ctx)  # other threads may be walking here too
        ctx._run, ctx.needs_input_grad = self, self.needs
        dxs = self.function.backward(ctx, *dys)
        dxs = dxs if isinstance(dxs, tuple) else (dxs,)
        n = len(self.parents)
        if len(dxs) > n and all(dx is None for dx in dxs[n:]):
            dxs = dxs[:n]
        return tuple(
            dx.to(node.dtype) if need and isinstance(dx, Value) and dx.dtype != node.dtype else dx
            for dx, node, need in zip(dxs, self.parents, self.needs)
        ) if len(dxs) == n else dxs  # fmt: skip


class Function:
    """Base class: define forward(ctx, …) and backward(ctx, …) as static methods, and call apply(…)."""

    _run: type[Run]

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        cls._run = type(cls.__name__, (Run,), {"function": cls, "__module__": cls.__module__}, abstract=True)

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The result, from Tensors and other arguments; the first argument is ctx, unless there is a setup_context."""
        raise TypeError("a Function must define forward(ctx, …) as a static method")

    @staticmethod
    def backward(ctx: Any, *dys: Any, **none: Any) -> Any:
        """The gradients of forward's arguments, a Tensor or None for each, from those of its results."""
        raise TypeError("a Function must define backward(ctx, …) as a static method to be differentiated")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Optional: keeps what backward needs. forward then takes no ctx."""
        raise NotImplementedError

    @classmethod
    def forward_with(cls, ctx: Context, inputs: list[Any]) -> Any:
        """forward, in whichever of its two styles it is written."""
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *inputs)
        y = cls.forward(*inputs)
        cls.setup_context(ctx, tuple(inputs), y)
        return y

    @classmethod
    def apply(cls, *inputs: Any) -> Any:
        """Run forward on Tensors and anything else, and record it. Returns a Tensor or a tuple of Tensors."""
        return cls._run.apply(*inputs)

    def __init__(self) -> None:
        raise TypeError(f"call {type(self).__name__}.apply(…); a Function has no instances")


class Once(Op, abstract=True):
    """Passes a gradient on, and raises if that is differentiated: by the inputs of its Function, say, which are the
    other inputs here."""

    def forward(self, dx: Any, *inputs: Any, of: str) -> Any:
        return dx

    def backward(self, ddx: Any) -> Any:
        raise GraphError(f"backward of {self.params['of']} is once_differentiable: it has no second derivative")


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a Function's backward that computes outside of the graph, in NumPy say. Differentiating its result
    raises GraphError."""

    @functools.wraps(backward)
    def wrapper(ctx: Any, *dys: Any) -> Any:
        connected = mode.grad
        with no_grad():
            dxs = backward(ctx, *dys)
        if not connected:
            return dxs
        several = dxs if isinstance(dxs, tuple) else (dxs,)
        name = backward.__qualname__.rpartition(".")[0]
        nodes = [node for node in ctx._run.parents if node is not None]
        guarded = tuple(
            Once.apply(dx.detach(), *(dx._wrap(dx.array, dx.storage, node) for node in nodes), of=name)
            if isinstance(dx, Value) else dx
            for dx in several
        )  # fmt: skip
        return guarded if isinstance(dxs, tuple) else guarded[0]

    return wrapper
