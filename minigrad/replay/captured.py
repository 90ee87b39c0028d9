"""mg.capture: a step whose Python runs at every call, and whose arithmetic is captured and replayed in one piece.

    step = mg.capture(train_step)        # any function
    for x, y in batches:
        loss = step(x, y)

call.py says how a call is captured and compared.
"""

import functools
import logging
import os
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ..autograd import current_modes
from ..backend import get as get_backend
from ..base.capturing import thread
from ..tensor import Tensor
from .call import CapturedCall
from .trace import TraceTree

__all__ = ["Captured", "capture"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

log = logging.getLogger("minigrad")
MOST_NEW = 32  # after so many consecutive calls that did something new, the function runs uncaptured
MOST_ENTRIES = 20_000  # a trace tree with more is dropped and made anew


def capture(function: Callable[P, R]) -> "Captured[P, R]":
    """Return a function that does what `function` does, with its arithmetic captured once and then replayed in one
    piece: the same bits in less time.

    The Python of the function runs at every call, so whatever it reads or does (attributes, lists, iterators, random
    numbers, prints, learning rates) happens at every call. The insides of ops, backward() and kernels do not run again:
    each op is compared with the one captured at this point, and computed later, together with all others. A new op,
    shape, number or path through the function is captured when it occurs, as another branch. A value that is read in
    between (item(), numpy(), `if loss > 3`) is computed when it is read.

    function may take and return anything, change anything in place, and keep Tensors; it may run several models,
    backward passes and optimizers. It runs uncaptured where kernels cannot run (the numpy backend), under
    detect_anomaly(), and after 32 consecutive calls that did something new. The graph ends with the call.

    An op of your own runs at each call, unless its class says `primitive = True`.

    Raises CaptureError, which names the line, for what cannot be captured. README.md in this folder has the list ("What
    a step may do"). After an error or an interrupt, what came before it has been computed."""
    if isinstance(function, Captured):
        return function
    if not callable(function):
        raise TypeError(f"capture needs a function, got {type(function).__name__}")
    return Captured(function)


class Captured(Generic[P, R]):
    """A function whose calls are captured. `function` is the function itself. `calls` counts the calls: "replayed" did
    what an earlier call had done, "captured" did something new, and "uncaptured" ran as plain Python.

    Calls from several threads wait for each other."""

    _all: weakref.WeakSet = weakref.WeakSet()
    _inherited: list = []

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.calls = {"replayed": 0, "captured": 0, "uncaptured": 0}
        self._trees: dict = {}
        self._new_in_a_row = 0  # calls that did something new, since the last that did not
        self._lock = threading.RLock()
        functools.update_wrapper(self, function, updated=())
        Captured._all.add(self)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> "Captured[P, R]": ...
    @overload
    def __get__(self: "Captured[Concatenate[Any, Q], R]", instance: object, owner: Any = None) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if thread.session is not None:  # this call is a part of another captured step
            return self.function(*args, **kwargs)
        with self._lock:
            backend = get_backend(next((str(x.device) for x in _tensors((args, kwargs))), "cpu"))
            modes, has_much_new = current_modes(), self._new_in_a_row >= MOST_NEW
            if modes["anomaly"] or modes["watch"] is not None or not backend.captures or has_much_new:
                self.calls["uncaptured"] += 1
                return self.function(*args, **kwargs)
            call = CapturedCall(self._tree(backend), self._tree)
            try:
                thread.session = call
                return self.function(*args, **kwargs)
            finally:  # after an error too: what came before it is computed, as without capture
                interrupt = None
                while True:  # an interrupt is raised when everything is computed
                    try:
                        thread.session = None
                        call.finish()
                        break
                    except KeyboardInterrupt as error:
                        interrupt = error
                    except BaseException:
                        call.abandon()
                        raise
                self._count(call.has_captured)
                if interrupt is not None:
                    raise interrupt

    def _tree(self, backend):
        """The trace tree for a backend, at its present precision of matrix products."""
        key = backend, backend.precision
        tree = self._trees.get(key)
        if tree is None or tree.size > MOST_ENTRIES:
            tree = self._trees[key] = TraceTree(backend)
        return tree

    def _count(self, is_new):
        self.calls["captured" if is_new else "replayed"] += 1
        self._new_in_a_row = self._new_in_a_row + 1 if is_new else 0
        if self._new_in_a_row == MOST_NEW:
            self._trees.clear()
            name = getattr(self.function, "__qualname__", self.function)
            log.warning(
                "minigrad: capture of %s: each of %d calls did something new; from now on it runs uncaptured",
                name, MOST_NEW,
            )  # fmt: skip

    @classmethod
    def _after_fork(cls):
        """In a forked child, give every captured function a new lock, since the thread that held the old one does not
        exist here. Keep the trace trees for good: their GPU graphs cannot be freed in a child."""
        for captured in cls._all:
            captured._lock = threading.RLock()
            cls._inherited += captured._trees.values()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Captured._after_fork)


def _tensors(value):
    """The Tensors in nested arguments."""
    kind = type(value)
    if isinstance(value, Tensor):
        yield value
    elif kind in (tuple, list):
        for each in value:
            yield from _tensors(each)
    elif kind is dict:
        yield from _tensors(list(value.values()))
