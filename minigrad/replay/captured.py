"""capture: a step recorded once, and then replayed without Python.

    step = mg.capture(train_step)        # a function of Tensors
    for x, y in batches:
        loss = step(x, y)

What the function reads through other objects (self.config.temp, args.lr, a number in a list, random.random()) stays as
it was when it was recorded, and nothing says so: what may change has to be an argument.

The first call runs the function with kernels that are noted down and not run (backend/launch/recorder.py), lays out the
memory that they use in one arena, and then runs them. Later calls copy their arguments in and run the kernels again, in
one call into C, or on a GPU as one CUDA graph. They give the same bits as the function itself would.
"""

import functools
import gc
import logging
import os
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import numpy as np

from .. import backend
from ..autograd import mode
from ..autograd.modes import switched
from ..backend.launch.recorder import Program, View, below, spanned
from ..base.errors import CompilerError
from ..base.recording import CaptureError, Watched, thread
from ..tensor import Tensor, from_backend
from .surroundings import PLAIN, Same, Surroundings

__all__ = ["Captured", "capture"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

log = logging.getLogger("minigrad")
MOST = 64  # kinds of arguments that recordings are kept for
SPREAD = 8  # times as much memory as its elements take, at most, is copied for an argument that is not dense
KEPT = 8  # recordings for one kind of arguments; of more, the one that was used longest ago is dropped


def capture(function: Callable[P, R]) -> "Captured[P, R]":
    """function, recorded at its first call and replayed at the following ones, to the same bits but without Python.

    A replay does not see changes of what the function reads through another object: an attribute of an attribute
    (self.config.temp), an option of an argparse namespace, a number in a list, an iterator, random.random(). It uses
    what they were when it was recorded, without a word, so pass whatever may change as an argument.

    function: of Tensors, in tuples, lists and dicts too, and of numbers and strings; returns the same. It may run a
    model, backward() and an optimizer's step. Results are new Tensors without a graph. Where kernels cannot run (the
    numpy backend), and under detect_anomaly(), the function runs as it is.

    Recorded anew: other shapes, dtypes or strides of Tensors; other numbers or strings; train() or eval(), no_grad();
    modules with other parameters, hooks or options; optimizers with other options, except learning rates and weight
    decay, which may change from call to call; and other variables in the function's closure, globals, defaults and
    `self`, or in those of functions of one's own among them. Other side effects of Python (prints, lists that grow)
    happen only when a call is recorded. After a call, .grad holds that call's gradients, in memory that the next one
    overwrites.

    Raises CaptureError, naming the line, for what cannot be recorded: values read on the host (item(), numpy(), if on a
    Tensor), NumPy arrays and mg.tensor() of what is outside, ops of one's own that compute in NumPy, a Tensor that the
    step makes and something keeps, gradients that are added to those of the call before, and on a CPU float16 and
    indices that the step computes. A wrong index is an IndexError, on a GPU when something next waits for it."""
    if isinstance(function, Captured):
        return function
    if not callable(function):
        raise TypeError(f"capture needs a function, got {type(function).__name__}")
    return Captured(function)


class Captured(Generic[P, R]):
    """A function whose calls are recorded and replayed. `function` is the function itself.

    Calls from several threads wait for each other."""

    _all: weakref.WeakSet = weakref.WeakSet()

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self._recordings: dict = {}
        self._lock = threading.RLock()
        self._said: set = set()
        functools.update_wrapper(self, function, updated=())
        Captured._all.add(self)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> "Captured[P, R]": ...
    @overload
    def __get__(self: "Captured[Concatenate[Any, Q], R]", instance: object, owner: Any = None) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if thread.recorder is not None:  # it is a part of the step that is being recorded
            return self.function(*args, **kwargs)
        tensors: list[Tensor] = []
        with self._lock:
            recording = self._recording(args, kwargs, tensors)
            if recording is not None:
                return recording.replay(tensors)
        return self.function(*args, **kwargs)

    def unguarded(self, *args: Any) -> Callable[..., Any]:
        """The function for arguments like these, Tensors and None, in a loop in which nothing else changes: it is found
        out now what is to be replayed, and not again at each call."""
        with self._lock:
            recording = self._recording(args, {}, [])
        if recording is None:
            return self.function

        def replay(*args):
            with self._lock:
                return recording.replay([x for x in args if x is not None])

        return replay

    def _recording(self, args, kwargs, tensors):
        """What to replay for these arguments, whose Tensors are appended to `tensors`; None: the function itself."""
        if thread.recorder is not None or mode.anomaly or mode.watch is not None:
            return None  # or somebody wants to look at each op
        form = flattened((args, kwargs), tensors)
        on = tensors[0].storage.backend if tensors else backend.get("cpu")
        if not on.captures:
            self._say_once("there are no kernels to record here, so the function runs as it is")
            return None
        if any(x.storage.backend is not on for x in tensors):
            raise CaptureError("the arguments of a captured function must be on one device")
        kinds = tuple([(x.shape, x.dtype, x.requires_grad, x.array.strides) for x in tensors])
        key = form, kinds, on, mode.grad, mode.inference
        known = self._recordings[key] = self._recordings.pop(key, [])  # last, as the one that was used last
        recording = next((each for each in known if each.holds()), None)
        if recording is not None:
            known.remove(recording)
            known.append(recording)
        else:
            try:
                recording = Recording(self.function, form, tensors, on)
            except CompilerError as error:
                self._say_once(f"{error}, so the function runs as it is")
                return None
            known.append(recording)
            if len(known) > KEPT:
                del known[0]
                self._say_once(f"recorded more than {KEPT} times with such arguments: what changes each time?")
            if len(self._recordings) > MOST:
                del self._recordings[next(iter(self._recordings))]
                self._say_once(f"called with more than {MOST} kinds of arguments, each of which is recorded")
        return recording

    def _say_once(self, message):
        if message not in self._said:
            self._said.add(message)
            log.warning("minigrad: capture of %s: %s", getattr(self.function, "__qualname__", self.function), message)

    @classmethod
    def _after_fork(cls):
        """In a child of a fork, whoever held a lock is gone."""
        for captured in cls._all:
            captured._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Captured._after_fork)


class Recording:
    """A function recorded with arguments of one kind."""

    def __init__(self, function, form, tensors, on):
        if any(x.requires_grad for x in tensors):
            raise CaptureError("an argument that requires a gradient cannot be captured: detach() it")
        args, kwargs = rebuilt(form, iter(tensors))
        self._surroundings = Surroundings(function, (*args, *kwargs.values()))
        recorder = on.recorder()
        with switched(inference=False):  # so that in-place changes of the arguments are counted
            given = [from_backend(_alike(x.array, on), on) for x in tensors]
        self._inputs = [x.array for x in given]
        recorder.inputs = [(x.array, x.storage) for x in given]
        args, kwargs = rebuilt(form, iter(given))
        for module in (
            *self._surroundings.modules(),
            *(x for x in (*args, *kwargs.values()) if isinstance(x, Watched)),
        ):
            recorder.module(module)
        thread.recorder = recorder
        try:
            result = function(*args, **kwargs)
            thread.recorder = None
            self._surroundings.settle()
            found: list = []
            self._form = flattened(result, found, result=True)
            outputs = [self._output(recorder, x) for x in found]
            grads = self._grads(recorder)
            for module, contents in recorder.modules.values():
                if not contents.hold():
                    raise CaptureError(
                        f"a step in which {type(module).__name__} changes its attributes cannot be captured"
                    )
            if any(x.storage.version for x in given):
                raise CaptureError("a step that changes its arguments in place cannot be captured")
            del result, found, given, args, kwargs
            self._check_kept(recorder)
        finally:
            thread.recorder = None
            for node, before in recorder.grads.items():
                node.grad = before
        places = [x for x in (*outputs, *(g for _, g in grads)) if type(x) is View]
        self._program = Program(recorder, places)
        self._outputs = [self._program.array(x) if type(x) is View else x for x in outputs]
        self._grads_after = [
            (node, from_backend(self._program.array(g), on) if type(g) is View else g) for node, g in grads
        ]
        self._on = on
        self._changed = [*recorder.changed.values(), *(g.storage for _, g in self._grads_after if g is not None)]
        self._calls, self._checks, self._guards = recorder.calls, recorder.checks, recorder.guards
        self._streams = recorder.streams
        self._tensors = list(recorder.tensors.values())
        self._modules = [contents for _, contents in recorder.modules.values()]

    def _output(self, recorder, x):
        """What a result is read from: a View, an array elsewhere, or, if it was there before the step, x itself."""
        own = id(x) in recorder.tensors and x.is_leaf and not recorder.is_constant(x.array)
        return x if own else recorder.located(x.array)

    def _grads(self, recorder):
        """[(node, its .grad after the step: a View, a Tensor or None)] of the leaves outside of the step."""
        outer = {node for _, _, node, _ in recorder.tensors.values()}
        found = []
        for node in recorder.grads:
            if node in outer:
                g = node.grad
                view = None if g is None else recorder.located(g.array)
                found.append((node, view if type(view) is View else g))
        return found

    def _check_kept(self, recorder):
        """Raise CaptureError if memory of the step is still in use: a later call would overwrite what is kept there."""
        for node, before in recorder.grads.items():
            node.grad = before
        for collect in (False, True):
            if collect:
                gc.collect()
            kept = [each.line for each in recorder.allocations if each.array() is not None]
            if not kept:
                return
        raise CaptureError(f"a Tensor that a step makes ({kept[0]}) is kept outside of it: return it instead")

    @property
    def nbytes(self):
        """Bytes of the arena in which the step computes."""
        return self._program.nbytes

    def holds(self):
        """Is all that was recorded still what the function would do?"""
        return (
            all(value_of() == value for value_of, value in self._guards)
            and all(
                x.array is array and x.node is node and _hooks(node) == hooks for x, array, node, hooks in self._tensors
            )
            and all(contents.hold() for contents in self._modules)
            and self._surroundings.hold()
        )

    def replay(self, tensors):
        """Run the step on these arguments. -> what the function returns."""
        on, replay = self._on, self._program.replay
        replay.begin()
        try:
            for array, x in zip(self._inputs, tensors):
                on.refill(array, x.array)
            for array, check in self._checks:
                check(array)
            for call in self._calls:  # which may raise, so before random numbers are drawn
                call()
            for generator, stream in self._streams.items():
                stream.cell[:] = generator.seed, generator.reserve(4 * stream.at).offset
            replay.run()
            for storage in self._changed:
                storage.changed()
            for node, g in self._grads_after:
                node.grad = g
            results = [x if isinstance(x, Tensor) else from_backend(on.duplicate(x), on) for x in self._outputs]
        finally:
            replay.end()
        return rebuilt(self._form, iter(results))


def _hooks(node):
    return None if node is None or not node.hooks else list(node.hooks.values())


def _alike(x, on):
    """A copy of x with its strides, since the order in which sums are taken depends on both; without what lies
    between the elements of a small part of something large, its strides are only in the same order."""
    before, size = -below(x), spanned(x)
    if x.size == 0 or size > SPREAD * x.nbytes:
        return on.duplicate(x)
    y = on.array_in(on.memory(size), before, x.shape, x.dtype, x.strides)
    on.refill(y, x)
    return y


def flattened(value, tensors, result=False):
    """The form of nested tuples, lists and dicts: hashable, and equal for what is recorded alike. Their Tensors are
    appended to `tensors`. Raises TypeError for what cannot be an argument, or a result."""
    kind = type(value)
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor
    if kind in (tuple, list):
        return kind, tuple([flattened(each, tensors, result) for each in value])
    if kind is dict:
        return kind, tuple([(name, flattened(each, tensors, result)) for name, each in value.items()])
    if isinstance(value, PLAIN):
        return "plain", repr(value), value
    if isinstance(value, np.ndarray):
        raise TypeError(
            "a captured function takes and returns Tensors, not NumPy arrays: use mg.tensor(x) or from_numpy"
        )
    if result or kind.__module__ in ("builtins", "collections"):
        raise TypeError(f"a captured function cannot take or return a {kind.__name__}")
    return Same, Same(value)


def rebuilt(form, tensors):
    """What had this form, with Tensors from an iterator."""
    if form is Tensor:
        return next(tensors)
    kind, *rest = form
    if kind is dict:
        return {name: rebuilt(each, tensors) for name, each in rest[0]}
    if kind in (tuple, list):
        return kind([rebuilt(each, tensors) for each in rest[0]])
    return rest[0].x if kind is Same else rest[1]
