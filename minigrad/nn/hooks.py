"""Hooks on the forward and the backward of a Module."""

from collections.abc import Callable
from typing import Any

from ..autograd import Handle, Op, mode
from ..tensor import Tensor


class Tap(Op, abstract=True):
    """Passes values on unchanged, and hands their gradients, all at once, to show(dys), which may replace them.

    Hooks on the backward of a Module are two of these, around its forward."""

    show: Any
    runs_hooks = True

    def forward(self, *xs, show):
        return xs

    def backward(self, *dys):
        if mode.inspecting:
            return dys
        return tuple(dx if dx is None else dx.clone() for dx in self.show(dys))  # a hook may have kept what it got


class Hooked:
    """The part of Module that calls its hooks."""

    _forward_hooks: dict = {}
    _forward_pre_hooks: dict = {}
    _backward_hooks: dict = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The Module's forward."""
        raise NotImplementedError

    @property
    def has_hooks(self) -> bool:
        """True if a forward or backward of this module, not counting those below it, calls hooks."""
        return bool(self._forward_pre_hooks or self._forward_hooks or self._backward_hooks)

    def register_forward_pre_hook(self, hook: Callable[[Any, Any], Any]) -> Handle:
        """Call hook(module, args) before forward. It may return new args: a tuple, or the only argument."""
        return self._add_hook("_forward_pre_hooks", hook)

    def register_forward_hook(self, hook: Callable[[Any, Any, Any], Any]) -> Handle:
        """Call hook(module, args, output) after forward. It may return another output."""
        return self._add_hook("_forward_hooks", hook)

    def register_full_backward_hook(self, hook: Callable[[Any, Any, Any], Any]) -> Handle:
        """Call hook(module, grad_input, grad_output) in backward, with tuples that match args and output. It may
        return another grad_input."""
        return self._add_hook("_backward_hooks", hook)

    def _add_hook(self, kind, hook):
        if kind not in self.__dict__:
            self.__dict__[kind] = {}
        return Handle(self.__dict__[kind], hook)

    def _call_with_hooks(self, args, kwargs):
        for hook in list(self._forward_pre_hooks.values()):
            found = hook(self, args)
            if found is not None:
                args = found if isinstance(found, tuple) else (found,)
        if self._backward_hooks:
            args, output = self._call_watched(args, kwargs)
        else:
            output = self.forward(*args, **kwargs)
        for hook in list(self._forward_hooks.values()):
            found = hook(self, args, output)
            output = output if found is None else found
        return output

    def _call_watched(self, args, kwargs):
        """forward between two Taps: one gets the gradients of the outputs, the other those of the inputs."""
        seen, n = {}, len(args)  # Taps must hold nothing that leads back to them: the graph would be a cycle
        inputs = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.node is not None]

        def at_output(dys):
            shown = tuple(dy.detach() for dy in dys)
            if inputs:
                seen["output"] = shown
            else:
                self._run_backward_hooks((None,) * n, shown)
            return dys

        def at_input(dxs):
            given = [None] * n
            for i, dx in zip(inputs, dxs):
                given[i] = dx
            grad_output = seen.pop("output", (None,))  # None if the loss used something that forward kept aside
            given = self._run_backward_hooks(tuple(given), grad_output)
            return tuple(given[i] for i in inputs)

        if inputs and mode.grad:
            through = Tap.apply(*[args[i] for i in inputs], show=at_input)
            args = tuple(through[inputs.index(i)] if i in inputs else x for i, x in enumerate(args))
        output = self.forward(*args, **kwargs)
        outputs = output if isinstance(output, tuple) else (output,)
        places = [i for i, y in enumerate(outputs) if isinstance(y, Tensor) and y.node is not None]
        if places:
            through = Tap.apply(*[outputs[i] for i in places], show=at_output)
            outputs = tuple(through[places.index(i)] if i in places else y for i, y in enumerate(outputs))
        return args, outputs if isinstance(output, tuple) else outputs[0]

    def _run_backward_hooks(self, grad_input, grad_output):
        for hook in list(self._backward_hooks.values()):
            found = hook(self, grad_input, grad_output)
            if found is not None:
                found = found if isinstance(found, tuple) else (found,)
                if [getattr(g, "shape", None) for g in found] != [getattr(g, "shape", None) for g in grad_input]:
                    raise RuntimeError(
                        f"backward hook {getattr(hook, '__name__', hook)} of {type(self).__name__} must return None or "
                        f"gradients of the inputs' shapes"
                    )
                grad_input = found
        return grad_input
