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

from . import backend
from .autograd import mode
from .autograd.modes import switched
from .backend.launch.recorder import Place, Program, Recorder
from .backend.runners.toolchain import CompilerError
from .nn.module import Module
from .recording import CaptureError, here
from .tensor import Tensor, from_backend

log = logging.getLogger("minigrad")
KEPT = 8  # recordings for one kind of arguments; of more, the one that was used longest ago is dropped
PLAIN = bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic


def capture(function):
    """function, recorded at its first call and replayed at the following ones, to the same bits but without Python.

    function: of Tensors, in tuples, lists and dicts too, and of numbers and strings; returns the same. It may run a
    model, backward() and an optimizer's step. Results are new Tensors without a graph. Where kernels cannot run (the
    numpy backend), and under detect_anomaly(), the function runs as it is.

    Recorded anew: other shapes, dtypes or layouts of Tensors; other numbers or strings; train() or eval(), no_grad();
    modules with other parameters, hooks or options; optimizers with other options, except learning rates and weight
    decay, which may change from call to call; and other numbers, strings, Tensors and Modules that the function takes
    from its closure, from globals, or from attributes of `self` and other objects that it is given. Other side effects
    of Python (prints, lists that grow) happen only when a call is recorded. After a call, .grad holds that call's
    gradients, in memory that the next one overwrites.

    Raises CaptureError, naming the line, for what cannot be recorded: values read on the host (item(), numpy(), if on a
    Tensor), mg.tensor() of the step's surroundings, ops of one's own that compute in NumPy, float16 on a CPU, a Tensor
    that the step makes and something keeps, and gradients that are added to those of the call before."""
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
            return None  # as a part of the outer step, or where somebody looks at each op
        form = flattened((args, kwargs), tensors)
        on = tensors[0].storage.backend if tensors else backend.get("cpu")
        if not on.captures:
            self._say_once("there are no kernels to record here, so the function runs as it is")
            return None
        if any(x.storage.backend is not on for x in tensors):
            raise CaptureError("the arguments of a captured function must be on one device")
        kinds = tuple([(x.shape, x.dtype, x.requires_grad, _memory_order(x)) for x in tensors])
        known = self._recordings.setdefault((form, kinds, on, mode.grad, mode.inference), [])
        recording = next((each for each in known if each.holds()), None)
        if recording is None:
            try:
                recording = Recording(self.function, form, tensors, on)
            except CompilerError as error:
                self._say_once(f"{error}, so the function runs as it is")
                return None
            known.append(recording)
            if len(known) > KEPT:
                del known[0]
                self._say_once(f"recorded more than {KEPT} times with such arguments: what changes each time?")
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
            given = [from_backend(np.array(x.array, order="K"), on) for x in tensors]
        self._inputs = [x.array for x in given]
        recorder.inputs = [(x.array, x.storage) for x in given]
        args, kwargs = rebuilt(form, iter(given))
        here.recorder = recorder
        try:
            result = function(*args, **kwargs)
            here.recorder = None
            found: list = []
            self._form = flattened(result, found)
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
            stream.cell[:] = generator.seed, generator.reserve(4 * stream.blocks).offset
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
    """The numbers, strings, Tensors and Modules among the variables of a function's closure and globals, and of the
    objects that it is a method of or is given."""

    def __init__(self, function, arguments):
        self._cells, self._names = [], []
        owners = [getattr(function, "__self__", None), *arguments]
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        if code is not None:
            self._cells = list(function.__closure__ or ())
            scopes = [function.__globals__, *(vars(owner) for owner in owners if hasattr(owner, "__dict__"))]
            self._names = [(scope, name) for name in _names(code) for scope in scopes if name in scope]
        self._before = self._values()

    def _values(self):
        values = [cell.cell_contents if _filled(cell) else None for cell in self._cells]
        values += [scope.get(name) for scope, name in self._names]
        return [_fingerprint(x) for x in values]

    def hold(self):
        return self._values() == self._before


def _names(code):
    """The names that a function's code, and that of functions defined in it, may look up outside of it."""
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _names(constant)
    return found


def _filled(cell):
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _fingerprint(x):
    """What must not change of a variable. Of one that is no number, string, Tensor or Module, nothing is watched."""
    if isinstance(x, PLAIN):
        return type(x), repr(x)  # 0.0 and -0.0 are equal, but not alike
    if isinstance(x, Tensor):
        return _Same(x), _Same(x.array), _Same(x.node)
    return _Same(x) if isinstance(x, Module) else None


class _Same:
    """Equal to another of the same object only."""

    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, _Same) and self.x is other.x

    __hash__ = None  # type: ignore[assignment]


def _hooks(node):
    return None if node is None or not node.hooks else list(node.hooks.values())


def _memory_order(x):
    """The dims of a Tensor, by how far apart its elements lie along them."""
    strides = x.array.strides
    return tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))


def flattened(value, tensors):
    """The form of nested tuples, lists and dicts: hashable, and equal for what is recorded alike. Their Tensors are
    appended to `tensors`. Raises TypeError for what cannot be an argument or a result."""
    kind = type(value)
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor
    if kind in (tuple, list):
        return kind, tuple([flattened(each, tensors) for each in value])
    if kind is dict:
        return kind, tuple([(name, flattened(each, tensors)) for name, each in value.items()])
    if isinstance(value, PLAIN):
        return "plain", repr(value), value
    if isinstance(value, np.ndarray):
        raise TypeError(
            "a captured function takes and returns Tensors, not NumPy arrays: use mg.tensor(x) or from_numpy"
        )
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"a captured function cannot take or return a {kind.__name__}") from None
    return "object", kind, value


def rebuilt(form, tensors):
    """What had this form, with Tensors from an iterator."""
    if form is Tensor:
        return next(tensors)
    kind, *rest = form
    if kind is dict:
        return {name: rebuilt(each, tensors) for name, each in rest[0]}
    if kind in (tuple, list):
        return kind([rebuilt(each, tensors) for each in rest[0]])
    return rest[1]
