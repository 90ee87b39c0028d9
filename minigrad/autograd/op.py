"""Op: one differentiable operation, its declaration and its run."""

import copy
import itertools
import re
import weakref
from typing import Any

from ..base.errors import devices_differ
from ..base.locks import accumulating
from ..base.recording import thread, user_place
from .anomaly import check_forward
from .cases import Case
from .graph import GraphError, Node, Storage, Value
from .modes import mode
from .registry import Declaration, register
from .walk import vjp

_new = object.__new__


class Op:
    """One differentiable operation. The instance that ran is the node of the graph and the context of its backward.

    A subclass gives
        forward(self, *arrays, **params)   raw arrays of self.backend in, raw array (or tuple of arrays) out;
        backward(self, *dys)               Tensors in, one Tensor (or None) per input out, as more Tensor maths;
        cases                              inputs on which its gradient is checked: see `case`.
    Keyword arguments of `apply` are parameters: forward gets them, and they become attributes for backward to read, as
    the defaults of the others are. Positional ones are inputs: Tensors, Python numbers, or None.

    self.needs[i] says whether input i needs a gradient: compute no other. Only what is saved is kept:
        save_inputs(x, None, …)  ->  saved_inputs()    Tensors again, connected to the graph
        save_output(y)           ->  saved_output()    likewise
        save(a, b, …)            ->  saved()           private arrays, constants to the graph
    """

    cases: list[Case] = []
    name = "Op"
    broadcasts = False  # inputs were broadcast against each other: the engine sums gradients back to their shapes
    differentiable = True  # False: never recorded (comparisons, argmax)
    rounds_inside = False  # True: large terms cancel within it, so the error exceeds its result's rounding
    rounds_as = 0.0  # a term of this size cancels in it: its result is rounded as if it were at least this large
    primitive = False  # True: forward calls only self.backend, so a captured step can capture it (minigrad's own: True)

    # Set by apply(): always,
    params: dict[str, Any]
    backend: Any
    wrap: Any
    needs: tuple[bool, ...]
    # and when the op is recorded (class values mean "not recorded").
    outputs: tuple[Any, ...] | None = None  # (shape, dtype) of each, if there are several; None for one not wanted
    serial = -1
    scope = ""
    line = ("?", 0)
    parents: tuple[Any, ...] = ()  # the Node of each input, or None
    spent = False
    _inputs: Any = None
    _saved_inputs: Any = None
    _saved_output: Any = None
    _saved: Any = None
    _out: Any = None
    _whole: Any = None  # the op that a narrowed copy was made from

    _serials = itertools.count()

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        cls.name = cls.__dict__.get("name", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower())
        if "primitive" not in cls.__dict__:
            cls.primitive = cls.__module__.startswith("minigrad.")
        for name, default in _defaults_of(cls.forward).items():
            if not hasattr(Op, name):
                setattr(cls, name, default)
        if abstract:  # a base for other ops, not an op
            return
        code = cls.forward.__code__
        taken = RESERVED.intersection(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
        if taken:  # parameters become attributes
            raise TypeError(f"op {cls.name}: the engine uses the name of forward's parameter {sorted(taken)}")
        register(Declaration(cls.name, cls, cls.apply, cls.cases))

    def __init__(self, *inputs: Any) -> None:
        if inputs:
            name = type(self).__name__
            raise TypeError(f"{name}.apply(x, …) runs an op; {name}(…) does not")

    def forward(self, *arrays: Any, **params: Any) -> Any:
        """The result: a raw array of self.backend, or a tuple of them, from raw arrays, numbers and parameters."""
        raise TypeError(f"{self.name}: an op must define forward(self, *arrays, **params)")

    def backward(self, *dys: Any, **none: Any) -> Any:  # **none: lets a subclass choose its own signature
        """The gradients of the inputs, a Tensor or None for each, from those of the outputs, as Tensor maths."""
        raise TypeError(f"{self.name} has no gradient")

    # -- what an op keeps

    def save_inputs(self, *arrays: Any) -> None:
        """Keep these inputs for backward. Position i is input i; None keeps nothing of it."""
        if self._inputs is not None:
            self._saved_inputs = tuple(
                None if array is None else self._entry(array, x) for array, x in zip(arrays, self._inputs)
            )

    def _entry(self, array: Any, x: Any) -> Any:
        if not isinstance(x, Value):
            return array  # a Python number
        return array, x.storage, x.storage.version, x.node

    def saved_inputs(self) -> tuple[Any, ...]:
        """The inputs that save_inputs kept, as Tensors; None and numbers unchanged."""
        entries = self._kept("_saved_inputs", "save_inputs")
        return tuple(self._unpack(entry) if isinstance(entry, tuple) else entry for entry in entries)

    def save_output(self, y: Any) -> Any:
        """Keep the output for backward, and return it. It keeps the raw array, not the Tensor, so there is no cycle."""
        if self._inputs is not None:
            self._saved_output = (y,)  # apply() completes it once the output has its storage
        return y

    def saved_output(self) -> Any:
        """The output that save_output kept, as a Tensor."""
        array, storage, version = self._kept("_saved_output", "save_output")
        op = self._whole or self
        node = op._out()
        if node is None:  # the output is gone; make one node to replace it
            with accumulating:
                node = op._out()
                if node is None:
                    node = Node(op, 0, array.shape, array.dtype, storage.backend.device)
                    op._out = weakref.ref(node)
        y = self._unpack((array, storage, version, node))
        return y

    def save(self, *arrays: Any) -> None:
        """Keep private arrays, such as a mask, which are constants in the graph."""
        if self._inputs is not None:
            self._saved = tuple(a if a is None else (a, Storage(self.backend)) for a in arrays)

    def saved(self) -> tuple[Any, ...]:
        """What save kept, as Tensors without a graph."""
        kept: list[Any] = [None if entry is None else self.wrap(*entry) for entry in self._kept("_saved", "save")]
        return tuple(kept)

    def _kept(self, attribute: str, method: str) -> Any:
        entries = getattr(self, attribute)
        if entries is None:
            if self.spent:  # another thread's walk did this after the check
                raise self.already_spent()
            raise GraphError(f"{self.describe()} saved nothing with {method}() in its forward")
        return entries

    def _unpack(self, entry: tuple[Any, Storage, Any, Node | None]) -> Any:
        array, storage, version, node = entry
        if storage.version != version:
            raise GraphError(
                f"{self.describe()} saved an array of shape {array.shape} and dtype {array.dtype} for its backward, "
                f"and {storage.version - version} in-place change(s) were made to it (or to a view of it) since; "
                f"clone() it before changing it"
            )
        return self.wrap(array, storage, node)

    def saved_arrays(self) -> list[Any]:
        """The arrays kept for backward."""
        entries = [*(self._saved_inputs or ()), self._saved_output, *(self._saved or ())]
        return [entry[0] for entry in entries if type(entry) is tuple]

    def release(self) -> None:
        """Free what was saved, after its last use."""
        self.spent = True  # set first: a walk of another thread that finds nothing saved asks for it
        self._saved_inputs = self._saved_output = self._saved = None

    def already_spent(self) -> GraphError:
        """The error for a second backward through this op: what it saved has been freed."""
        return GraphError(
            f"{self.describe()} has already been through a backward, and its saved arrays were freed; "
            f"pass retain_graph=True to the first backward if you need a second"
        )

    def narrowed(self, needs: tuple[bool, ...]) -> "Op":
        """A copy of this op that computes fewer gradients; other threads may be walking through the op itself."""
        op = copy.copy(self)
        op.needs, op._whole = needs, self
        return op

    def describe(self) -> str:
        """'Softmax in blocks.1.attn, made at train.py:12'."""
        place = f" in {self.scope}" if self.scope else ""
        made = f", made at {self.line[0]}:{self.line[1]}" if self.line[1] else ""
        return f"{self.name}{place}{made}"

    # -- running one

    @classmethod
    def apply(cls, *inputs: Any, **params: Any) -> Any:
        """Run the op on Tensors; record it if a gradient will be wanted. Returns a Tensor or a tuple of Tensors."""
        recorder = thread.recorder
        if recorder is not None and recorder.capturing is None:
            return recorder.apply_op(cls, inputs, params)
        op = _new(cls)
        op.params = params
        for name, value in params.items():
            setattr(op, name, value)
        arrays, backend, connected = [], None, False
        for x in inputs:
            if isinstance(x, Value):
                if x.storage.backend is not backend:
                    if backend is not None:
                        raise devices_differ(cls.name, backend, x.storage.backend)
                    op.backend = backend = x.storage.backend
                    op.wrap = x._wrap
                connected = connected or x.node is not None
                x = x.array
            arrays.append(x)
        if backend is None:
            kinds = ", ".join(type(x).__name__ for x in inputs)
            raise TypeError(f"{cls.name} needs at least one Tensor, got {kinds}; minigrad.tensor(…) makes one")
        now = mode.__dict__  # the thread's own modes: three lookups in this dict are faster than three attributes
        if recorded := connected and now["grad"] and cls.differentiable:
            op._inputs = inputs  # save_inputs() reads them while forward runs
            op.parents = tuple([x.node if isinstance(x, Value) else None for x in inputs])
            op.needs = tuple([node is not None for node in op.parents])
        else:
            op.needs = (False,) * len(inputs)
        if cls.primitive and not backend.warns:
            y = op.forward(*arrays, **params)
        else:
            with backend.quietly():
                y = op.forward(*arrays, **params)
        if y is None:
            raise TypeError(f"{cls.name}: forward returned None; does it lack its return?")
        outputs = y if isinstance(y, tuple) else (y,)
        if recorded:  # enter the graph: when the op ran, and where in the user's program
            op._inputs, op.serial, op.scope, op.line = None, next(Op._serials), now["scope"], user_place()
            if len(outputs) > 1:
                op.outputs = tuple([None if y is None else (y.shape, y.dtype) for y in outputs])
        results = [None if array is None else op._wrapped(i, array, inputs) for i, array in enumerate(outputs)]
        if now["anomaly"]:
            check_forward(op, inputs, results)
        if now["watch"] is not None:
            now["watch"](op, inputs, results)
        return tuple(results) if isinstance(y, tuple) else results[0]

    def _wrapped(self, index: int, array: Any, inputs: tuple[Any, ...]) -> Any:
        """An array of forward as a Tensor, with its storage, and with a node if the op was recorded."""
        backend = self.backend  # the results' backend: an op that moves data has changed it in forward
        if type(array) is not backend.array_type:
            array = backend.asarray(array)  # NumPy returns scalars for 0-d results
        storage = _shared_storage(backend, array, inputs) or Storage(backend)
        node = None
        if self.serial >= 0 and array.dtype.kind == "f":
            node = Node(self, index, array.shape, array.dtype, backend.device)
        if self._saved_output is not None:
            self._saved_output = (array, storage, storage.version)
            self._out = weakref.ref(node)
        return self.wrap(array, storage, node)


RESERVED = {*dir(Op), *Op.__annotations__}  # names that the engine uses


def _defaults_of(function: Any) -> dict[str, Any]:
    names, values = function.__code__.co_varnames[: function.__code__.co_argcount], function.__defaults__ or ()
    return dict(zip(names[len(names) - len(values) :], values)) | (function.__kwdefaults__ or {})


def _shared_storage(backend: Any, array: Any, inputs: tuple[Any, ...]) -> Storage | None:
    """The storage of the input that `array` is a view of, or None for new memory."""
    base = array.base
    for x in inputs:
        if not isinstance(x, Value):
            continue
        given = x.array
        if array is given and x.storage.backend is backend:
            return x.storage
        if base is None or x.storage.backend is not backend:
            continue
        if base is given or base is given.base:  # a view is based on the array that owns its memory
            return x.storage
        owned = given.base is None and getattr(base, "base", base) is None
        if not owned and backend.overlap(array, given):  # but not every one
            return x.storage
    return None


class FormulaOp(Op, abstract=True):
    """An op computed by one primitive, whose derivative is that of `formula`, the same as maths on Tensors.

    For the backward of an op with kernels of its own, whose own derivative (the second derivative) need not be fast.
    All inputs must be saved with save_inputs()."""

    from_forward: tuple[int, ...] = ()  # positions of inputs that follow from the others; None: computed again

    @staticmethod
    def formula(*inputs: Any, **params: Any) -> Any:
        """forward as Tensor maths, with the same shapes and dtypes."""
        raise TypeError("a FormulaOp must define formula(*inputs, **params)")

    def backward(self, *dys: Any) -> Any:
        """The gradients of `formula` at the saved inputs."""
        return vjp(lambda *xs: self.formula(*xs, **self.params), self.saved_inputs(), dys, self.needs)
