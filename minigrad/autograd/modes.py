"""Grad modes: per-thread switches, as context managers and decorators."""

import inspect
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Mode(threading.local):
    def __init__(self) -> None:  # once for each thread
        self.grad = True  # are ops recorded?
        self.anomaly = False  # is every result searched for NaN and Inf?
        self.watch: Callable[..., object] | None = None  # called with (op, inputs, outputs) after every op
        self.inspecting = False  # does the current backward only show its steps, without hooks or .grad?
        self.scope = ""  # path of the module whose forward is running, such as "blocks.1.attn"
        self.before: list[Any] = []  # the modes as they were before each switch that is on, innermost last


mode = _Mode()


def _now() -> dict[str, Any]:
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
        now = _now()
        now["before"].append(now.copy())
        now.update(self.settings)
        return self

    def __exit__(self, *exc: Any) -> None:
        _restore(_now())


def unwind(depth: int) -> None:
    """Leave all mode blocks but the outermost `depth`, after an interrupt that may have come while they were
    exiting."""
    now = _now()
    while len(now["before"]) > depth:
        _restore(now)


def _restore(now: dict[str, Any]) -> None:
    """Set the modes as they were before the innermost switch. An interrupt in between leaves it for unwind()."""
    now.update(now["before"][-1])
    now["before"].pop()


class _Bare(switched):
    """One that decorates without parentheses too: `@no_grad` is `@no_grad()`."""

    def __new__(cls, function: Any = None, **settings: Any) -> Any:
        return cls()(function) if callable(function) else super().__new__(cls)


class no_grad(_Bare):
    """Ops inside are not recorded: with no_grad(): …, or @no_grad() before a function."""

    def __init__(self) -> None:
        super().__init__(grad=False)


inference_mode = no_grad  # PyTorch's other name


class enable_grad(_Bare):
    """Ops inside are recorded, even within `no_grad`: a with-block, or a decorator."""

    def __init__(self) -> None:
        super().__init__(grad=True)


class detect_anomaly(switched):
    """Raise AnomalyError where the first NaN or Inf appears, forward or backward, naming op, module path and the user's
    line. A with-block, or a decorator.

    An Inf is reported only if every input was finite: a mask of -inf is intended, log(0) is not."""

    def __init__(self) -> None:
        super().__init__(anomaly=True)


class watch(switched):
    """Call function(op, inputs, outputs) after every op inside: what apply() took, and a list of what it returns."""

    def __init__(self, function: Callable[..., object] | None):
        super().__init__(watch=function)


def is_grad_enabled() -> bool:
    """True if ops are being recorded in this thread."""
    return mode.grad
