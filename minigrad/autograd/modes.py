"""Modes of each thread, such as whether ops are recorded, and the blocks that set them.

A block is a with-statement of a `switched`. An interrupt (Ctrl-C) may come between any two instructions of Python, but
not within a call into C. So a block begins with one call into C, which sets the modes, and ends with another. The end
cannot restore the modes, since it gets the arguments of __exit__. It releases a lock, which was locked while the block
ran, and `current_modes` restores the modes before they are read again."""

import inspect
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Modes(threading.local):
    def __init__(self) -> None:  # once for each thread
        self.grad = True  # ops are recorded
        self.anomaly = False  # every result is searched for NaN and Inf
        self.watch: Callable[..., object] | None = None  # called with (op, inputs, outputs) after every op
        self.inspecting = False  # the current backward only shows its steps: it runs no hooks and changes no .grad
        self.evaluating: frozenset[Any] = frozenset()  # the Modules that are in eval mode, whatever else they say
        self.impl: str | None = None  # the impl of all MultiheadAttention layers; None: each has its own
        self.skips_init = False  # the functions of nn.init draw nothing and change nothing
        self.scope = ""  # path of the module whose forward is running, such as "blocks.1.attn"
        self.block: Any = None  # the lock of the innermost block
        self.outside: dict[str, Any] = {}  # the modes before the innermost block
        self.entering: dict[int, Any] = {}  # id of a switched -> see its method _lock


of_thread = _Modes()


def current_modes() -> dict[str, Any]:
    """Return the modes of this thread, by name. They can be changed."""
    modes = of_thread.__dict__
    while modes["block"] is not None and not modes["block"].locked():
        modes.update(modes["outside"])  # an interrupt leaves all of it undone, or nothing
    return modes


class _Enter(property):
    """__enter__ as a property: a with-statement calls the function in C that it returns."""

    def __call__(self, manager: Any) -> Any:  # contextlib.ExitStack calls type(manager).__enter__(manager)
        begin = self.__get__(manager)
        of_thread.entering.pop(id(manager), None)  # nobody will read __exit__ of this block
        return begin()


class _Exit(property):
    """__exit__ as a property. A with-statement reads it before the block begins, and calls what it returns."""

    def __call__(self, manager: Any, *exc: Any) -> Any:  # ExitStack ends the innermost block
        return current_modes()["block"].__exit__(*exc)


class switched(ContextDecorator):
    """Sets modes inside a with-block or a decorated function, and restores them afterwards, also after an interrupt.

    Other threads are not affected. An instance can be entered repeatedly, also while it is active. Raises TypeError for
    a generator, which would run after the end of the block."""

    def __init__(self, **settings: Any):
        self._settings = settings

    def settings(self, modes: dict[str, Any]) -> dict[str, Any]:
        """Return the modes to set, by name. modes: those before."""
        return self._settings

    def outside(self, modes: dict[str, Any]) -> dict[str, Any]:
        """Return the modes to restore, by name. modes: those before."""
        return modes.copy()

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            raise TypeError(f"{type(self).__name__} on a generator would end before it runs; use `with` inside it")
        return super().__call__(function)

    def _lock(self, method: str) -> Any:
        """The lock of the block that begins: the first of the two methods to be read makes it, the other one takes it.

        An interrupt in between leaves a lock, which the first method replaces the next time."""
        entering = of_thread.entering
        first_method, lock = entering.pop(id(self), (method, None))
        if first_method == method:
            lock = threading.Lock()
            lock.acquire()
            entering[id(self)] = method, lock
        return lock

    if TYPE_CHECKING:

        def __enter__(self) -> Any: ...
        def __exit__(self, *exc: object) -> None: ...

    else:

        @_Enter
        def __enter__(self) -> Any:
            modes = current_modes()
            block, outside = self._lock("__enter__"), self.outside(modes)
            return partial(modes.update, self.settings(modes), block=block, outside=outside)

        @_Exit
        def __exit__(self) -> Any:
            return self._lock("__exit__").__exit__


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
        self._at_call = is_grad_enabled()
        current_modes()["grad"] = bool(mode)

    def __call__(self, function: F) -> F:
        current_modes()["grad"] = self._at_call  # a decorator changes nothing outside the function
        return super().__call__(function)

    def outside(self, modes: dict[str, Any]) -> dict[str, Any]:
        return modes | {"grad": self._at_call}


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
    return bool(current_modes()["grad"])
