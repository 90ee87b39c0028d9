"""Op: one differentiable operation, its declaration and its run.

`Op.apply` is the heart: it runs forward on arrays, and the instance that ran becomes the node of the graph. `walk.py`
visits these instances in reverse and calls their backward."""

import copy
import itertools
import re
import weakref
from collections.abc import Callable
from typing import Any

from ..backend.numpy import Numpy
from ..base.capturing import thread, user_place
from ..base.errors import devices_differ
from ..base.locks import accumulating
from .anomaly import check_forward
from .arguments import kind_of
from .cases import Case
from .graph import GraphError, Node, Storage, Value
from .modes import current_modes, of_thread
from .registry import Declaration, register
from .walk import vjp

_new_instance = object.__new__


class Op:
    """One differentiable operation. The instance that ran is the node of the graph and the context of its backward.

    A subclass gives
        forward(self, *arrays, **params)   raw arrays of self.backend in, raw array (or tuple of arrays) out;
        backward(self, *dys)               Tensors in, one Tensor (or None) per input out, as more Tensor maths;
        cases                              inputs on which its gradient is checked: see `case`.
    The positional arguments of `apply` are inputs: Tensors, Python numbers, or None. Its keyword arguments are
    parameters: forward gets them, and they become attributes that backward can read. A parameter that is not given has
    forward's default.

    self.needs[i] is True if input i needs a gradient; backward computes no other. Only what is saved is kept:
        save_inputs(x, None, …)  ->  saved_inputs()    Tensors again, connected to the graph
        save_output(y)           ->  saved_output()    likewise
        save(a, b, …)            ->  saved()           private arrays, constants to the graph
    """

    # What a subclass may declare.
    cases: list[Case] = []
    name = "Op"  # default: the name of the class in snake case
    broadcasts = False  # True: inputs broadcast against each other; the walk sums gradients back to their shapes
    differentiable = True  # False: never recorded, such as comparisons and argmax
    rounds_inside = False  # True: large terms cancel within it, so its error exceeds the rounding of its result
    rounds_as = 0.0  # a term of this size cancels within it: the result is rounded as if it were at least this large
    primitive = False  # True: forward calls only primitives of self.backend. By default True for ops of minigrad

    # What every run sets.
    params: dict[str, Any]
    backend: Numpy
    wrap: Callable[..., Any]  # makes a Tensor of an array
    needs: tuple[bool, ...]

    # What a recorded run sets besides. The values here mean "not recorded", or "nothing saved".
    outputs: tuple[Any, ...] | None = None  # if there are several: (shape, dtype) of each, None for one not wanted
    serial = -1  # ops are numbered in the order in which they ran
    scope = ""  # path of the module whose forward ran it
    line = ("?", 0)  # file and line of the user's program
    parents: tuple[Node | None, ...] = ()  # the node of each input, None for an input without one
    spent = False  # True once a backward has freed what was saved
    _inputs: tuple[Any, ...] | None = None  # apply's arguments, while forward runs
    _saved_inputs: tuple[Any, ...] | None = None
    _saved_output: tuple[Any, ...] | None = None
    _saved: tuple[Any, ...] | None = None
    _output_node: "weakref.ref[Node] | None" = None  # set by save_output; weak, or it would be a cycle
    _original: "Op | None" = None  # the op that `with_needs` made this copy from

    _serials = itertools.count()

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any):
        """Declare the op, unless it is only a base for others (abstract=True)."""
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        cls.name = own.get("name", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower())
        cls.primitive = own.get("primitive", cls.__module__.startswith("minigrad."))
        for name, default in _defaults_of(cls.forward).items():
            if not hasattr(Op, name):
                setattr(cls, name, default)
        if abstract:
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
        """Return the result, a raw array of self.backend or a tuple of them, from arrays, numbers and parameters."""
        raise TypeError(f"{self.name}: an op must define forward(self, *arrays, **params)")

    def backward(self, *dys: Any, **none: Any) -> Any:  # **none: lets a subclass choose its own signature
        """Return the gradients of the inputs, a Tensor or None for each, from those of the outputs, as Tensor maths."""
        raise TypeError(f"{self.name} has no gradient")

    # -- running one

    @classmethod
    def apply(cls, *inputs: Any, **params: Any) -> Any:
        """Run the op on Tensors, and record it if a gradient will be wanted. Returns a Tensor or a tuple of Tensors."""
        session = thread.session
        if session is not None and session.capturing is None:  # a captured step is running
            return session.apply_op(cls, inputs, params)

        # 1. The instance of this run, with its parameters as attributes.
        op = _new_instance(cls)
        op.params = params
        for name, value in params.items():
            setattr(op, name, value)

        # 2. The arrays of the inputs. All Tensors must be on one backend; `connected`: one of them is in a graph.
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
            kinds = " and ".join(map(kind_of, inputs))
            raise TypeError(f"{cls.name} needs at least one Tensor, got {kinds}; minigrad.tensor(…) makes one")

        # 3. Whether this run is recorded.
        modes = of_thread.__dict__
        block = modes["block"]
        if block is not None and not block.locked():  # asked here first, which is faster than a call for each op
            modes = current_modes()
        scope, anomaly, watch = modes["scope"], modes["anomaly"], modes["watch"]
        recorded = connected and modes["grad"] and cls.differentiable
        if recorded:
            op._inputs = inputs  # save_inputs() reads them while forward runs
            op.parents = tuple([x.node if isinstance(x, Value) else None for x in inputs])
            op.needs = tuple([node is not None for node in op.parents])
        else:
            op.needs = (False,) * len(inputs)

        # 4. forward.
        if cls.primitive and not backend.warns:
            y = op.forward(*arrays, **params)
        else:
            with backend.quietly():  # NumPy would warn of NaN and Inf
                y = op.forward(*arrays, **params)
        if y is None:
            raise TypeError(f"{cls.name}: forward returned None; its return statement is missing")

        # 5. The op enters the graph, then its results as Tensors refer to it.
        if recorded:
            op._inputs, op.serial, op.scope, op.line = None, next(Op._serials), scope, user_place()
        if not isinstance(y, tuple):
            results = [op._as_tensor(0, y, inputs)]
        else:
            results = [None if array is None else op._as_tensor(i, array, inputs) for i, array in enumerate(y)]
            if recorded and len(y) > 1:
                op.outputs = tuple([None if array is None else (array.shape, array.dtype) for array in y])

        # 6. The search for NaN, and the function that watches ops, if there are any.
        if anomaly:
            check_forward(op, inputs, results)
        if watch is not None:
            watch(op, inputs, results)
        return tuple(results) if isinstance(y, tuple) else results[0]

    def _as_tensor(self, index: int, array: Any, inputs: tuple[Any, ...]) -> Any:
        """Output `index` of forward as a Tensor. It has a node if the op was recorded, and shares an input's storage if
        it is a view."""
        backend = self.backend  # the results' backend: a forward that moves data has changed it
        if type(array) is not backend.array_type:
            array = backend.asarray(array)  # NumPy returns scalars for 0-d results
        viewed = _viewed_input(backend, array, inputs)
        if viewed is None:
            storage = Storage(backend)
        else:
            storage, size = viewed.storage, viewed.array.size
            if array.size < size > storage.whole:
                storage.whole = size
        node = None
        if self.serial >= 0 and array.dtype.kind == "f":
            node = Node(self, index, array.shape, array.dtype, backend.device)
        if self._saved_output is not None:  # save_output() could not know these yet
            self._saved_output = (array, storage, storage.version)
            self._output_node = weakref.ref(node) if node is not None else None
        return self.wrap(array, storage, node)

    # -- what an op keeps for its backward

    def save_inputs(self, *arrays: Any) -> None:
        """Keep these inputs for backward. Position i is input i; None keeps nothing of it."""
        if self._inputs is None:  # not recorded
            return
        saved = []
        for array, x in zip(arrays, self._inputs):
            is_tensor = array is not None and isinstance(x, Value)
            saved.append((array, x.storage, x.storage.version, x.node) if is_tensor else array)
        self._saved_inputs = tuple(saved)

    def saved_inputs(self) -> tuple[Any, ...]:
        """The inputs that save_inputs kept, as Tensors; None and numbers unchanged."""
        entries = self._saved_entries("_saved_inputs", "save_inputs")
        return tuple([self._checked_tensor(*entry) if isinstance(entry, tuple) else entry for entry in entries])

    def save_output(self, y: Any) -> Any:
        """Keep the output for backward, and return it. The op keeps the array, not the Tensor, so there is no cycle."""
        if self._inputs is not None:
            self._saved_output = (y,)  # _as_tensor() adds the storage and the version
        return y

    def saved_output(self) -> Any:
        """The output that save_output kept, as a Tensor."""
        array, storage, version = self._saved_entries("_saved_output", "save_output")
        node = (self._original or self)._node_of_output(array, storage.for_saved())
        return self._checked_tensor(array, storage, version, node)

    def _node_of_output(self, array: Any, storage: Storage) -> Node:
        """The node of the saved output; a new one if the output's Tensor is gone."""
        node = None if self._output_node is None else self._output_node()
        if node is None:
            with accumulating:  # two threads must not both make it
                node = None if self._output_node is None else self._output_node()
                if node is None:
                    node = Node(self, 0, array.shape, array.dtype, storage.backend.device)
                    self._output_node = weakref.ref(node)
        return node

    def save(self, *arrays: Any) -> None:
        """Keep private arrays, such as a mask. They are constants in the graph."""
        if self._inputs is not None:
            self._saved = tuple([a if a is None else (a, Storage(self.backend)) for a in arrays])

    def saved(self) -> tuple[Any, ...]:
        """The arrays that save kept, as Tensors without a graph."""
        return tuple([None if entry is None else self.wrap(*entry) for entry in self._saved_entries("_saved", "save")])

    def _saved_entries(self, attribute: str, method: str) -> tuple[Any, ...]:
        """The entries that `method` kept in `attribute`. Raises GraphError if there are none, or if they were freed."""
        entries: tuple[Any, ...] | None = getattr(self, attribute)
        if entries is None:
            if self.spent:  # another thread's walk freed it after this walk had looked
                raise self.spent_error()
            raise GraphError(f"{self.describe()} saved nothing with {method}() in its forward")
        return entries

    def _checked_tensor(self, array: Any, storage: Storage, version: int, node: Node | None) -> Any:
        """A saved array as a Tensor. Raises GraphError if it has been changed in place since it was saved."""
        if storage.version != version:
            raise GraphError(
                f"{self.describe()} saved an array of shape {array.shape} and dtype {array.dtype} for its backward, "
                f"and {storage.version - version} in-place change(s) were made to it (or to a view of it) since; "
                f"clone() it before changing it"
            )
        return self.wrap(array, storage.for_saved(), node)

    def saved_arrays(self) -> list[Any]:
        """The arrays kept for backward."""
        return [entry[0] for entry in self._all_saved() if type(entry) is tuple]

    def has_saved(self) -> bool:
        """True if forward kept something for the backward, a number for example, and it is still there."""
        return any(entry is not None for entry in self._all_saved())

    def _all_saved(self) -> tuple[Any, ...]:
        """What the three save methods kept; None where there is nothing."""
        return *(self._saved_inputs or ()), self._saved_output, *(self._saved or ())

    def release(self) -> None:
        """Free what was saved, after its last use. An op that has saved nothing can go through another backward."""
        if not self.has_saved():
            return
        self.spent = True  # first: a walk of another thread that then finds nothing saved reads why
        self._saved_inputs = self._saved_output = self._saved = None

    def spent_error(self) -> GraphError:
        """Return the error for a second backward through this op."""
        return GraphError(
            f"{self.describe()} has already been through a backward, and its saved arrays were freed; "
            f"pass retain_graph=True to the first backward if you need a second"
        )

    # -- for the walk, and for messages

    def with_needs(self, needs: tuple[bool, ...]) -> "Op":
        """A copy of this op that computes fewer gradients; other threads may be walking through the op itself."""
        op = copy.copy(self)
        op.needs, op._original = needs, self
        return op

    def describe(self) -> str:
        """'softmax in blocks.1.attn, made at train.py:12'."""
        place = f" in {self.scope}" if self.scope else ""
        made = f", made at {self.line[0]}:{self.line[1]}" if self.line[1] else ""
        return f"{self.name}{place}{made}"


RESERVED = {*dir(Op), *Op.__annotations__}  # names that the engine uses


def _defaults_of(function: Any) -> dict[str, Any]:
    """{parameter: default value} of a function."""
    names, values = function.__code__.co_varnames[: function.__code__.co_argcount], function.__defaults__ or ()
    return dict(zip(names[len(names) - len(values) :], values)) | (function.__kwdefaults__ or {})


def _viewed_input(backend: Numpy, array: Any, inputs: tuple[Any, ...]) -> Value | None:
    """The input that `array` is, or is a view of; None if the array has memory of its own.

    NumPy and CuPy set the base of a view to the array that owns the memory. Only where a base is neither of the two
    arrays is their memory compared."""
    base = array.base
    for x in inputs:
        if not isinstance(x, Value) or x.storage.backend is not backend:
            continue
        if array is x.array:
            return x
        if base is None:  # the array owns its memory
            continue
        if base is x.array or base is x.array.base:
            return x
        # If x owns its memory, and the base of `array`, another array, owns its own, they do not overlap.
        if (x.array.base is not None or getattr(base, "base", base) is not None) and backend.overlap(array, x.array):
            return x
    return None


class FormulaOp(Op, abstract=True):
    """An op with one primitive for its forward, and no kernel for its backward.

    Its gradient is that of `formula`, the same computation written in Tensor maths. The backward ops
    (LayerNormBackward, GeluBackward, …) are of this kind: only second derivatives go through `formula`, which may be
    slow. A subclass defines `formula`. By default forward saves its inputs and calls the primitive of the op's name;
    another forward must save all inputs too."""

    from_forward: tuple[int, ...] = ()  # the inputs that can be computed from the others; None may be given for them

    @staticmethod
    def formula(*inputs: Any, **params: Any) -> Any:
        """Return what forward returns, in Tensor maths, with the same shapes and dtypes."""
        raise TypeError("a FormulaOp must define formula(*inputs, **params)")

    def forward(self, *arrays: Any, **params: Any) -> Any:
        """Return self.backend.<name of the op>(*arrays, *parameters)."""
        self.save_inputs(*arrays)
        return getattr(self.backend, self.name)(*arrays, *params.values())

    def backward(self, *dys: Any) -> Any:
        """The gradients of `formula` at the saved inputs."""
        return vjp(lambda *xs: self.formula(*xs, **self.params), self.saved_inputs(), dys, self.needs)
