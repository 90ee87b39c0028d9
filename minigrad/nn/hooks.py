"""Hooks on the forward of a Module. To see gradients, a forward hook registers hooks on Tensors."""

from collections.abc import Callable
from typing import Any

from ..autograd import Handle
from ..autograd.keywords import accepts_keywords_of_pytorch
from ..base.missing import MissingAttribute


class HookMixin:
    """The part of Module that calls its hooks."""

    _forward_hooks: dict = {}
    _forward_pre_hooks: dict = {}
    register_full_backward_hook = MissingAttribute("a Module", "register_full_backward_hook")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute what a call of the module returns: Module defines it."""
        raise NotImplementedError

    @accepts_keywords_of_pytorch
    def register_forward_pre_hook(self, hook: Callable[[Any, Any], Any]) -> Handle:
        """Call hook(module, args) before forward. It may return new args: a tuple, or the only argument."""
        return self._add_hook("_forward_pre_hooks", hook)

    @accepts_keywords_of_pytorch
    def register_forward_hook(self, hook: Callable[[Any, Any, Any], Any]) -> Handle:
        """Call hook(module, args, output) after forward. It may return another output."""
        return self._add_hook("_forward_hooks", hook)

    def _add_hook(self, kind, hook):
        if kind not in self.__dict__:
            self.__dict__[kind] = {}
        return Handle(self.__dict__[kind], hook)

    def _call_with_hooks(self, args, kwargs):
        for hook in list(self._forward_pre_hooks.values()):
            returned = hook(self, args)
            if returned is not None:
                args = returned if isinstance(returned, tuple) else (returned,)
        output = self.forward(*args, **kwargs)
        for hook in list(self._forward_hooks.values()):
            returned = hook(self, args, output)
            output = output if returned is None else returned
        return output
