"""Grad modes: switches of each thread, as context managers and decorators.

`mode` has all of them. `Op.apply` reads grad, scope, anomaly and watch, once for each op; the walk reads and sets them
for the whole of a backward."""

import inspect
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Mode(threading.local):
    def __init__(self) -> None:  # once for each thread
        self.grad = True  # ops are recorded
        self.anomaly = False  # every result is searched for NaN and Inf
        self.watch: Callable[..., object] | None = None  # called with (op, inputs, outputs) after every op
        self.inspecting = False  # the current backward only shows its steps: it runs no hooks and changes no .grad
        self.scope = ""  # path of the module whose forward is running, such as "blocks.1.attn"
        self.before: list[Any] = []  # the modes before each switch that is on, the innermost last


mode = _Mode()


def _modes() -> dict[str, Any]:
    """The modes of this thread, by name."""
    return mode.__dict__


class switched(ContextDecorator):
    """Sets modes inside a with-block or a decorated function, and restores all of them afterwards.

    Other threads are not affected. An instance can be entered repeatedly, also while it is active. Raises TypeError for
    a generator, which would run after the end of the block."""

    def __init__(self, **settings: Any):
        self.settings = settings

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            raise TypeError(f"{type(self).__name__} on a generator would end before it runs; use `with` inside it")
        return super().__call__(function)

    def __enter__(self) -> Any:
        modes = _modes()
        modes["before"].append(modes.copy())
        modes.update(self.settings)
        return self

    def __exit__(self, *exc: Any) -> None:
        _restore(_modes())


def unwind(depth: int) -> None:
    """Leave all mode blocks but the outermost `depth`: an interrupt may have come while they were exiting."""
    modes = _modes()
    while len(modes["before"]) > depth:
        _restore(modes)


def _restore(modes: dict[str, Any]) -> None:
    """Set the modes as they were before the innermost switch. After an interrupt in between, unwind() does it again."""
    modes.update(modes["before"][-1])
    modes["before"].pop()


class _WithoutParentheses(switched):
    """A switch that also decorates without parentheses: `@no_grad` is `@no_grad()`."""

    def __new__(cls, function: Any = None, **settings: Any) -> Any:
        return cls()(function) if callable(function) else super().__new__(cls)


class no_grad(_WithoutParentheses):
    """Ops inside are not recorded: with no_grad(): …, or @no_grad() before a function."""

    def __init__(self) -> None:
        super().__init__(grad=False)


inference_mode = no_grad  # PyTorch's other name


class enable_grad(_WithoutParentheses):
    """Ops inside are recorded, even within `no_grad`: a with-block, or a decorator."""

    def __init__(self) -> None:
        super().__init__(grad=True)


class set_grad_enabled(switched):
    """Record ops from here on, or not: set_grad_enabled(False). As a with-block or a decorator, inside only.

    As in PyTorch, the call itself sets the mode of this thread."""

    def __init__(self, mode: bool) -> None:
        super().__init__(grad=bool(mode))
        self._at_call = _modes()["grad"]
        _modes()["grad"] = bool(mode)

    def __call__(self, function: F) -> F:
        _modes()["grad"] = self._at_call  # a decorator changes nothing outside the function
        return super().__call__(function)

    def __enter__(self) -> Any:
        super().__enter__()
        _modes()["before"][-1]["grad"] = self._at_call  # the end of the block restores this
        return self


class detect_anomaly(switched):
    """Raise AnomalyError where the first NaN or Inf appears, forward or backward. The error names the op, the path of
    its module and the line of the user's program. A with-block, or a decorator.

    An Inf is reported only if every input was finite: a mask of -inf is intended, log(0) is not."""

    def __init__(self) -> None:
        super().__init__(anomaly=True)


class watch(switched):
    """Call function(op, inputs, outputs) after every op inside. inputs: the arguments of apply(); outputs: a list."""

    def __init__(self, function: Callable[..., object] | None):
        super().__init__(watch=function)


def is_grad_enabled() -> bool:
    """True if ops are being recorded in this thread."""
    return mode.grad
