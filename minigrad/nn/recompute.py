"""Activation checkpointing: memory for time (Chen, Xu, Zhang and Guestrin 2016)."""

from collections.abc import Callable
from typing import Any, TypeVar

from ..autograd import GraphError, Op, backward, enable_grad, is_grad_enabled, mode, no_grad, switched, watch
from ..base.recording import thread
from ..random import default_generator
from ..tensor import Tensor

R = TypeVar("R")


def recompute(function: Callable[..., R], *args: Any) -> R:
    """function(*args) without keeping what its backward needs: backward runs it a second time, and keeps that.

    args may be Tensors or anything else; the result is a Tensor or a tuple of them. Gradients go to args and to all
    that function reaches by itself, such as a Module's parameters, and are those of a plain call, if both runs compute
    the same: what the default generator draws (so dropout) is repeated, and a tensor that was changed in place between
    them raises GraphError; train() and eval(), other generators and side effects are the caller's care. With gradients
    off, and in a captured step, it is a plain call."""
    if not is_grad_enabled() or thread.recorder is not None:
        return function(*args)
    outside = {x.node: x for x in args if isinstance(x, Tensor) and x.node is not None}
    given, watched = len(outside), mode.watch
    versions: dict = {}  # of what was there before, {storage: version}
    made = set()

    def note(op, inputs, outputs):
        for x in inputs:
            if isinstance(x, Tensor) and x.storage not in made:
                versions.setdefault(x.storage, x.storage.version)
                if x.node is not None:
                    outside[x.node] = x
        made.update(y.storage for y in outputs if y is not None and y.storage not in versions)
        if watched is not None:
            watched(op, inputs, outputs)

    state = default_generator.state
    with no_grad(), watch(note):  # inside, nothing new has a node: whatever has one came from outside
        y: Any = function(*args)
    ys = list(y) if isinstance(y, tuple) else [y]
    if not all(isinstance(each, Tensor) for each in ys):
        raise TypeError(f"recompute: the function must return a Tensor or a tuple of Tensors, not {type(y).__name__}")
    outside.update({each.node: each for each in ys if each.node is not None})
    if not outside:
        return y
    about = dict(function=function, args=args, given=given, versions=versions, state=state)
    found: Any = _Recompute.apply(*outside.values(), ys=ys, **about)
    return found if isinstance(y, tuple) else found[0]


class _Recompute(Op, abstract=True):
    """ys = function(*args), computed before; its inputs are all that it depends on, the first `given` among args."""

    function: Any
    args: tuple
    given: int
    versions: dict[Any, int]
    state: dict[str, int]

    def forward(self, *xs, ys, **about):
        self.save_inputs(*xs)
        arrays = tuple(y.array for y in ys)
        ys.clear()
        return arrays

    def backward(self, *dys):
        if any(storage.version != version for storage, version in self.versions.items()):
            raise GraphError(
                f"{self.describe()}: a tensor that it computes from was changed in-place since its forward"
            )
        inputs, connected = self.saved_inputs(), mode.grad
        points = {x.node: x.alias() if connected else x.detach().requires_grad_() for x in inputs[: self.given]}
        args = [points.get(x.node, x) if isinstance(x, Tensor) and x.node is not None else x for x in self.args]
        y = self._again(args)
        ys = y if isinstance(y, tuple) else (y,)
        reached = [(y.node, dy) for y, dy in zip(ys, dys) if y.node is not None]
        if not reached:
            return (None,) * len(inputs)
        wanted: list[Any] = [points[x.node].node if x.node in points else x.node for x in inputs]
        roots, cotangents = zip(*reached)
        # The walk that called this backward continues from these inputs, and runs their hooks.
        found = backward(roots, cotangents, inputs=wanted, create_graph=connected, stop=True)
        return tuple(g if need else None for g, need in zip(found, self.needs))

    def release(self):
        super().release()
        self.function, self.args, self.params = None, (), {}

    def _again(self, args):
        """function(*args), recorded, with the random numbers and in the module of the first time."""
        before, default_generator.state = default_generator.state, self.state
        try:
            with enable_grad(), switched(scope=self.scope):
                return self.function(*args)
        finally:
            default_generator.state = before
