"""capture: a step whose Python runs at every call, and whose arithmetic is captured and run in one piece.

    step = mg.capture(train_step)        # any function
    for x, y in batches:
        loss = step(x, y)

See follower.py for how.
"""

import functools
import logging
import os
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from .. import backend
from ..autograd import Storage, mode
from ..autograd.modes import unwind
from ..backend.philox import Draw
from ..base.recording import thread
from ..tensor import Tensor
from .entries import Tree, spec, tensor_around
from .follower import Follower

__all__ = ["Captured", "capture"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

log = logging.getLogger("minigrad")
MOST = 32  # consecutive calls that do something new, before the function runs uncaptured
ENTRIES = 20_000  # a tree with more is dropped and made anew


def capture(function: Callable[P, R]) -> "Captured[P, R]":
    """function, with its arithmetic captured once and then run in one piece: the same bits in less time.

    Its Python runs at every call, so whatever it reads or does (attributes, lists, iterators, random numbers, prints,
    rates) happens at every call. The inside of ops, backward() and kernels does not run again: each is compared
    with the one captured at this point, and computed later, together with all others. A new op, shape, number or path
    through the function is captured when it occurs, as another branch. A value that is read in between (item(),
    numpy(), `if loss > 3`) is computed when it is read.

    function may take and return anything, change anything in place, and keep Tensors; it may run several models,
    backward passes and optimizers. It runs uncaptured where kernels cannot run (the numpy backend), under
    detect_anomaly(), and after 32 consecutive calls that did something new. The graph ends with the call.

    An op of your own runs at each call, unless its class says `primitive = True`: see README.md in this folder.

    Raises CaptureError, naming the line, for what cannot be captured: a Tensor whose graph began before the call,
    detect_anomaly() inside, and on a CPU float16. After an error or an interrupt, what came before it has been
    computed."""
    if isinstance(function, Captured):
        return function
    if not callable(function):
        raise TypeError(f"capture needs a function, got {type(function).__name__}")
    return Captured(function)


class Captured(Generic[P, R]):
    """A function whose calls are captured. `function` is the function itself; `calls` counts how many calls did
    what earlier ones had done, something new ("recorded"), or ran uncaptured.

    Calls from several threads wait for each other."""

    _all: weakref.WeakSet = weakref.WeakSet()
    _inherited: list = []

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.calls = {"followed": 0, "recorded": 0, "eager": 0}
        self._trees: dict = {}
        self._missed = 0  # calls in a row that did something new
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
        return self._call(args, kwargs)[0]

    def repeating(self, *args: Any) -> tuple[Any, Callable[..., Any] | None]:
        """(result, repeat) of a call on these arguments, Tensors and None: a tuple of Tensors, and a function that
        repeats the call on other arguments without its Python, or None if that is not possible, as at a first call."""
        return self._call(args, {}, repeats=True)

    def _call(self, args, kwargs, repeats=False):
        if thread.recorder is not None:  # it is part of a step that is being captured
            return self.function(*args, **kwargs), None
        with self._lock:
            on = backend.get(next((str(x.device) for x in _tensors((args, kwargs))), "cpu"))
            if mode.anomaly or mode.watch is not None or not on.captures or self._missed > MOST:
                self.calls["eager"] += 1
                return self.function(*args, **kwargs), None
            on.raise_found()
            follower, repeat, depth = Follower(self._tree(on), self._tree), None, len(mode.before)
            try:
                thread.recorder = follower
                result = self.function(*args, **kwargs)
                if repeats and not (follower.is_new or follower.programs or follower.eager_ops):
                    follower.settle()
                    repeat = Repeat(follower, args, result)
                return result, repeat
            finally:  # after an error too: what came before it is computed, as without capture
                interrupt = None
                while True:  # an interrupt comes afterwards
                    try:
                        thread.recorder = None
                        unwind(depth)
                        follower.finish()
                        break
                    except KeyboardInterrupt as error:
                        interrupt = error
                    except BaseException:
                        follower.abandon()
                        raise
                self._count(follower.is_new)
                if interrupt is not None:
                    raise interrupt

    def _tree(self, on):
        found = self._trees.get((on, on.precision))
        if found is None or found.entries > ENTRIES:
            found = self._trees[on, on.precision] = Tree(on)
        return found

    def _count(self, missed):
        self.calls["recorded" if missed else "followed"] += 1
        self._missed = self._missed + 1 if missed else 0
        if self._missed > MOST:
            self._trees.clear()
            name = getattr(self.function, "__qualname__", self.function)
            log.warning(
                "minigrad: capture of %s: each of %d calls did something new; it runs as it is from now on", name, MOST
            )

    @classmethod
    def _after_fork(cls):
        """In a forked child, holders of locks are gone, and a GPU's graphs can be neither run nor freed."""
        for captured in cls._all:
            captured._lock = threading.RLock()
            cls._inherited += captured._trees.values()


class Repeat:
    """Repeats what a call did on other arguments, without its Python, for a loop in which nothing else changes.

    It draws random numbers as often, and returns Tensors as the call did."""

    def __init__(self, call, args, results):
        """call: not finished yet. args: its arguments, Tensors and None. results: a tuple of Tensors."""
        self._on, self._program, self._path, self._memory = call.on, call.pending, call.path, call.memory
        self._outs = [(call.space.place(y.array), y.array) for y in results]
        places = [None if x is None else call.space.place(call.bound[id(x.array)][1]) for x in args]
        self._slots = [None if place is None else (place[0], spec(x.array, call.on)) for place, x in zip(places, args)]

    def __call__(self, *args):
        """Raises ValueError for arguments of another kind."""
        on = self._on
        for slot, x in zip(self._slots, args, strict=True):
            if (x is None) != (slot is None) or (slot is not None and spec(x.array, on) != slot[1]):
                raise ValueError("a call of a captured step can be repeated on arguments like its own only")
            if slot is not None:
                self._memory.put(slot[0], x.array)
        for e in self._path:
            for late in e.late:
                late.value = late.value.again() if type(late.value) is Draw else late.value
            for cell, _, values in e.refreshes:
                cell[...] = values()
        self._program.run(self._memory, [])
        return tuple([tensor_around(self._memory.array(place, y), None, Storage(on)) for place, y in self._outs])


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
