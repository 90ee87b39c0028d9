"""NumPy's warnings of NaN and Inf, which minigrad never gives: see detect_anomaly for finding the cause of one."""

import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

import numpy as np


class _Here(threading.local):
    def __init__(self) -> None:  # once for each thread
        self.quiet = False  # is this thread within quiet()?
        self.before: list[Any] = []  # what each quiet() that is on has replaced, innermost last
        self.context = contextvars.copy_context()  # in which NumPy gives no warnings: it asks a context variable
        self.context.run(np.seterr, all="ignore")


here = _Here()
F = TypeVar("F", bound=Callable[..., Any])


class Switch(ContextDecorator):
    """A context manager that also decorates functions, but not generators."""

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            raise TypeError(f"{type(self).__name__} on a generator would end before it runs; use `with` inside it")
        return super().__call__(function)


def call_quietly(function: Any, args: Any, kwargs: Any) -> Any:
    """function(*args, **kwargs) without NumPy's warnings: as within quiet(), but for one call it takes a tenth of the
    time."""
    if here.quiet:
        return function(*args, **kwargs)
    here.quiet = True  # a context cannot be entered again from within
    try:
        return here.context.run(function, *args, **kwargs)
    finally:
        here.quiet = False


class quiet(Switch):
    """NumPy gives no warnings of NaN and Inf inside. It never does within an op; saying so once for many ops saves a
    microsecond for each."""

    def __enter__(self) -> "quiet":
        here.before.append((here.quiet, errstate := np.errstate(all="ignore")))
        errstate.__enter__()
        here.quiet = True
        return self

    def __exit__(self, *exc: Any) -> None:
        here.quiet, errstate = here.before.pop()
        errstate.__exit__(*exc)
