"""capture: a step recorded once, and then replayed without Python.

    step = mg.capture(train_step)        # a function of Tensors
    for x, y in batches:
        loss = step(x, y)

The first call runs the function with kernels that are noted down and not run (backend/launch/recorder.py), lays out the
memory that they use in one arena, and then runs them. Later calls copy their arguments in and run the kernels again, in
one call into C. They give the same bits as the function itself would.
"""

import functools
import gc
import logging
import os
import threading
import types
import weakref

import numpy as np
from numpy.lib.array_utils import byte_bounds

from . import backend
from .autograd import mode
from .autograd.modes import switched
from .backend.launch.recorder import Place, Program, Recorder
from .backend.runners.toolchain import CompilerError
from .nn.module import Module
from .recording import PACKAGE, CaptureError, here
from .tensor import Tensor, from_backend

log = logging.getLogger("minigrad")
MOST = 64  # kinds of arguments that recordings are kept for
SPREAD = 8  # times as much memory as its elements take, at most, is copied for an argument that is not dense
KEPT = 8  # recordings for one kind of arguments; of more, the one that was used longest ago is dropped
PLAIN = bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic


def capture(function):
    """function, recorded at its first call and replayed at the following ones, to the same bits but without Python.

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
    Tensor), NumPy arrays and mg.tensor() of what is outside, ops of one's own that compute in NumPy, float16 on a CPU,
    a Tensor that the step makes and something keeps, and gradients that are added to those of the call before."""
    if isinstance(function, Captured):
        return function
    if not callable(function):
        raise TypeError(f"capture needs a function, got {type(function).__name__}")
    return Captured(function)


class Captured:
    """A function whose calls are recorded and replayed. `function` is the function itself.

    Calls from several threads wait for each other."""

    _all: weakref.WeakSet = weakref.WeakSet()

    def __init__(self, function):
        self.function = function
        self._recordings: dict = {}
        self._lock = threading.RLock()
        self._said: set = set()
        functools.update_wrapper(self, function, updated=())
        Captured._all.add(self)

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args, **kwargs):
        if here.recorder is not None:  # it is a part of the step that is being recorded
            return self.function(*args, **kwargs)
        tensors: list[Tensor] = []
        with self._lock:
            recording = self._recording(args, kwargs, tensors)
            if recording is not None:
                return recording.replay(tensors)
        return self.function(*args, **kwargs)

    def unguarded(self, *args):
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
        if here.recorder is not None or mode.anomaly or mode.watch is not None:
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
        recorder = Recorder(on)
        with switched(inference=False):  # so that in-place changes of the arguments are counted
            given = [from_backend(_alike(x.array), on) for x in tensors]
        self._inputs = [x.array for x in given]
        recorder.inputs = [(x.array, x.storage) for x in given]
        args, kwargs = rebuilt(form, iter(given))
        for module in (*self._surroundings.modules(), *(x for x in (*args, *kwargs.values()) if isinstance(x, Module))):
            recorder.module(module)
        here.recorder = recorder
        try:
            result = function(*args, **kwargs)
            here.recorder = None
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
            here.recorder = None
            for node, before in recorder.grads.items():
                node.grad = before
        places = [x for x in (*outputs, *(g for _, g in grads)) if type(x) is Place]
        self._program = Program(recorder, places)
        self._outputs = [self._program.array(x) if type(x) is Place else x for x in outputs]
        self._grads_after = [
            (node, from_backend(self._program.array(g), on) if type(g) is Place else g) for node, g in grads
        ]
        self._on = on
        self._changed = [*recorder.changed.values(), *(g.storage for _, g in self._grads_after if g is not None)]
        self._calls, self._checks, self._guards = recorder.calls, recorder.checks, recorder.guards
        self._streams = recorder.streams
        self._tensors, self._modules = (
            list(recorder.tensors.values()),
            [contents for _, contents in recorder.modules.values()],
        )

    def _output(self, recorder, x):
        """What a result is read from: a Place, an array elsewhere, or, if it was there before the step, x itself."""
        return x if id(x) in recorder.tensors and x.array.flags.writeable else recorder.located(x.array)

    def _grads(self, recorder):
        """[(node, its .grad after the step: a Place, a Tensor or None)] of the leaves outside of the step."""
        outer = {node for _, _, node, _ in recorder.tensors.values()}
        found = []
        for node in recorder.grads:
            if node in outer:
                g = node.grad
                place = None if g is None else recorder.located(g.array)
                found.append((node, place if type(place) is Place else g))
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
        for array, x in zip(self._inputs, tensors):
            np.copyto(array, x.array)
        for array, check in self._checks:
            check(array)
        for generator, stream in self._streams.items():
            stream.cell[:] = generator.seed, generator.reserve(4 * stream.at).offset
        for call in self._calls:
            call()
        self._program.run()
        for storage in self._changed:
            storage.changed()
        for node, g in self._grads_after:
            node.grad = g
        on = self._on
        results = [x if isinstance(x, Tensor) else from_backend(np.array(x, order="K"), on) for x in self._outputs]
        return rebuilt(self._form, iter(results))


class Surroundings:
    """What a function finds outside of its arguments: variables of its closure, globals, defaults, and attributes of
    the objects that it is a method of or is given; and likewise for functions of the user's among these."""

    def __init__(self, function, arguments):
        self._cells, self._names, self._attributes, self._defaults = [], [], [], []
        self._seen: set = set()
        self._add(function, list(arguments))
        self._before, self._contents = list(map(_fingerprint, self._values())), None

    def _add(self, function, owners):
        while isinstance(function, (functools.partial, types.MethodType, Captured)):
            if isinstance(function, functools.partial):
                owners += [*function.args, *function.keywords.values()]
                function = function.func
            elif isinstance(function, Captured):
                function = function.function
            else:
                owners.append(function.__self__)
                function = function.__func__
        if not isinstance(function, types.FunctionType):
            owners.append(function)
            function = next(
                (vars(base)["__call__"] for base in type(function).__mro__ if "__call__" in vars(base)), None
            )
        if not isinstance(function, types.FunctionType) or function in self._seen:
            return
        if function.__code__.co_filename.startswith(PACKAGE):
            return
        self._seen.add(function)
        names = _names(function.__code__)
        cells = list(function.__closure__ or ())
        found = [(function.__globals__, name) for name in names if name in function.__globals__]
        self._cells += cells
        self._names += found
        self._defaults.append(function)
        self._attributes += [(owner, name) for owner in owners if not isinstance(owner, Tensor) for name in names]
        for value in [*map(_content, cells), *(scope[name] for scope, name in found)]:
            if isinstance(value, (types.FunctionType, functools.partial, types.MethodType)):
                self._add(value, [])

    def _values(self):
        values = [_content(cell) for cell in self._cells]
        values += [scope.get(name) for scope, name in self._names]
        values += [_attribute(owner, name) for owner, name in self._attributes]
        for function in self._defaults:
            values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        return values

    def modules(self):
        """The Modules among them."""
        values = self._values()
        parts = [y for x in values if type(x) in (list, tuple) for y in x]
        return [x for x in (*values, *parts) if isinstance(x, Module)]

    def settle(self):
        """The function has been recorded: what its lists and dicts hold now has to stay."""
        self._contents = list(map(_parts, self._values()))

    def hold(self):
        values = self._values()
        return list(map(_fingerprint, values)) == self._before and list(map(_parts, values)) == self._contents


def _names(code):
    """The names that a function's code, and that of functions defined in it, may look up outside of it."""
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _names(constant)
    return found


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return None


def _attribute(owner, name):
    """An attribute of an object or of its class, found without running anything."""
    bases = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
    scopes = [getattr(owner, "__dict__", {}), *map(vars, bases)]
    return next((scope[name] for scope in scopes if name in scope), None)


def _fingerprint(x):
    """What must not change of a variable: a number's value, else which object it is."""
    if isinstance(x, PLAIN):
        return type(x), repr(x)  # 0.0 and -0.0 are equal, but not alike
    if isinstance(x, Tensor):
        return Same(x), Same(x.array), Same(x.node)
    return None if type(x) is tuple else Same(x)


def _parts(x):
    """The fingerprints of the Tensors and Modules in a list or tuple, and of all that is in a dict; None for others.

    Lists of numbers are not watched: they are where programs collect what they have seen."""
    if type(x) is dict:
        return [_fingerprint(y) for y in x.values()]
    if type(x) in (list, tuple):
        return [_fingerprint(y) for y in x if isinstance(y, (Tensor, Module))]
    return None


class Same:
    """Equal to another of the same object only."""

    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Same) and self.x is other.x

    def __hash__(self):
        return id(self.x)


def _hooks(node):
    return None if node is None or not node.hooks else list(node.hooks.values())


def _alike(x):
    """A copy of x with its strides, since the order in which sums are taken depends on both; without what lies
    between the elements of a small part of something large, its strides are only in the same order."""
    low, high = byte_bounds(x) if x.size else (0, 0)
    if x.size == 0 or high - low > SPREAD * x.nbytes:
        return np.array(x, order="K")
    memory = np.empty(high - low, np.uint8)
    y = np.ndarray(x.shape, x.dtype, memory.data, x.ctypes.data - low, x.strides)
    y[...] = x
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
