"""Functions of another framework: a pair of NumPy functions, an engine of one's own, or PyTorch's (in pytorch.py, which
is imported only if PyTorch has been).

Each call becomes one op, whose backward asks that framework for the gradient. The backward is the function
(*xs, *dys) -> dxs, which is again a function of that framework and so again one op: that gives derivatives of any order
that the framework has. The first time, it walks through what the forward itself recorded, as the user's backward()
would, so that buffers shared between calls show."""

import copy
import inspect
import numbers
from functools import partial
from typing import Any

import numpy as np

from ..autograd import GraphError, Op, is_grad_enabled
from ..nn import Module
from ..random import default_generator
from ..tensor import Tensor, from_numpy
from .subject import flat, gradients_of, mapped


def owner_of(fn):
    """What fn is, or is a method of, without the arguments that partial() has bound."""
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, "__self__", fn)


# -- a function of arrays as an op


class Foreign(Op, abstract=True):
    """ys = function(*xs). `function.vjp(arrays, needs)` gives (ys, pullback), and pullback(dys, wanted) the gradients
    of the xs that are wanted; `function.gradient(n, wanted, label)` is the function (*xs, *dys) -> those gradients."""

    function: Any
    made: tuple = ()  # (storage, version) of each result

    def forward(self, *arrays, function):
        self.name = function.label
        self.given = arrays
        ys, self.pullback = function.vjp(arrays, self.needs)
        self.save_inputs(*arrays)
        return tuple(ys)

    def _wrapped(self, index, array, inputs):
        y = super()._wrapped(index, array, inputs)
        self.made = (*self.made, (y.storage, y.storage.version))
        return y

    def backward(self, *dys):
        if any(storage.version != version for storage, version in self.made):  # the framework, which may have saved it,
            raise GraphError(f"an output of {self.describe()} was changed in place")  # cannot see that
        recorded = None if is_grad_enabled() else (self.given, self.pullback)
        gradient = _Gradient(self.function, len(self.needs), self.needs, recorded)
        found = iter(Foreign.apply(*self.saved_inputs(), *dys, function=gradient))
        return tuple(next(found) if needed else None for needed in self.needs)


Foreign.primitive, Foreign.fills_unused = False, False  # it runs anyone's code, which may look for None


class _Gradient:
    """The gradient of a function for what is `wanted`: by the pullback of `recorded`, at the arrays of that call."""

    def __init__(self, function, n, wanted, recorded):
        self.function, self.n, self.wanted, self.recorded = function, n, wanted, recorded
        self.label = f"the gradient of {function.label}"

    def vjp(self, arrays, needs):
        if self.recorded is not None:
            given, pullback = self.recorded
            if all(a is b for a, b in zip(arrays, given)):
                return pullback(arrays[self.n :], self.wanted), None
        return self.function.gradient(self.n, self.wanted, self.label).vjp(arrays, needs)

    def gradient(self, n, wanted, label):
        return self.function.gradient(self.n, self.wanted, self.label).gradient(n, wanted, label)


class Adapted:
    """fn, a function of a framework's arrays, as a function of Tensors, which replaces it throughout gradcheck.

    module: a Module that wraps fn, or the object of which fn is a method."""

    def __init__(self, framework, fn, module=None):
        self.framework, self.__wrapped__, self.module = framework, fn, module
        owner = getattr(fn, "__self__", None)
        self.source = owner if isinstance(owner, type) else fn  # the class, if fn is its apply
        self.kept, self.random = None, False

    def __call__(self, *args, **keywords):
        call = _Call(self, args, keywords)
        label = getattr(self.source, "__name__", type(self.source).__name__)
        return Foreign.apply(*call.tensors, function=self.framework.function(call, label))

    def differentiable(self, ys):
        """Those of the outputs that had a gradient at the first call where any had one, or else all of them."""
        if self.kept is None:
            flags = [self.framework.has_gradient(y) for y in ys]
            self.kept = flags if any(flags) else None
        return ys if self.kept is None else [y for y, kept in zip(ys, self.kept) if kept]

    def left_out(self):
        """What the report should say of outputs that are not checked."""
        out = [i for i, kept in enumerate(self.kept or ()) if not kept]
        return f"float outputs {out} require no gradient, in contrast to the others" if out else ""


class _Call:
    """One call of an Adapted as a function of a list of arrays, one for each Tensor in it."""

    def __init__(self, adapted, args, keywords):
        self.adapted, self.tree = adapted, (args, keywords)
        self.modules = flat((self.tree, adapted.module), of=Module)
        found = [*flat(self.tree), *(p for module in self.modules for _, p in module.named_parameters())]
        self.tensors = list({id(x): x for x in found}.values())  # fn(x, x) gets one array twice
        self.seed = hash(tuple(default_generator.state.values())) % 2**31

    def inputs(self, xs):
        """(args, keywords) as the user's function takes them."""
        at = self._places(xs)
        return mapped(self.tree, lambda x: at[id(x)] if isinstance(x, Tensor) else x.foreign, of=(Tensor, Module))

    def _places(self, xs):
        if self.adapted.random:  # such numbers may be drawn in the order of memory, so that each layout gets others
            xs = [x if x is None else self.adapted.framework.compact(x) for x in xs]
        return {id(x): array for x, array in zip(self.tensors, xs)}

    def __call__(self, xs):
        framework, at = self.adapted.framework, self._places(xs)
        args, keywords = self.inputs(xs)
        replaced = [(m.foreign, {path: at[id(p)] for path, p in m.named_parameters()}) for m in self.modules]
        y, drew = framework.inside(replaced, self.seed, lambda: self.adapted.__wrapped__(*args, **keywords))
        self.adapted.random |= drew
        floats = framework.outputs(y)
        if not floats:
            raise TypeError(nothing_returned(y, framework.array))
        return self.adapted.differentiable(floats)


class Framework:
    """What gradcheck asks of a framework."""

    array = "array"  # words for the type that a function must return
    kinds: tuple = ()  # the types that `entered` turns into Tensors or Modules
    packings: tuple = (tuple,)  # types of sequences that may hold all inputs of a call

    def entered(self, x):
        """A Tensor (in the array's own memory, if possible) or a Module for x; x itself if it is a constant."""
        raise NotImplementedError

    def adapted(self, fn):
        """The Adapted that wraps the user's function."""
        return Adapted(self, fn)

    def signed(self, fn):
        """The object that has fn's signature, with argument names."""
        return fn

    def takes(self, name):
        """Does the gradient get an option of this name too?"""
        return True

    def function(self, call, label):
        """See Foreign. call: a list of the framework's arrays -> a list of them."""
        raise NotImplementedError

    def inside(self, modules, seed, run):
        """(run(), did it draw random numbers?) with these [(foreign module, {path: array})] computing with those
        arrays, and with random numbers that depend on `seed` alone."""
        return run(), False

    def compact(self, x):
        """The same values in the usual order in memory."""
        return x

    def outputs(self, y):
        """The float arrays in what a function returned."""
        raise NotImplementedError

    def has_gradient(self, y):
        """May an output be differentiated? Asked while all inputs need gradients."""
        return True


def nothing_returned(y, what="Tensor"):
    """The error message for a function that returned y, without floats, instead of a `what`."""
    kind = f"{type(y).__name__} of {y.dtype}" if hasattr(y, "dtype") else type(y).__name__
    return (
        f"gradcheck: the function returned no {what} of floats, but {kind}. Nothing of it can be compared: return a "
        f"{what}, or a tuple, list, dict or dataclass of them"
    )


def as_tensor(array, requires_grad=False):
    """A Tensor in the memory of a NumPy array."""
    x = from_numpy(np.asarray(array))
    return x.requires_grad_() if requires_grad else x


# -- functions of NumPy arrays


class Function:
    """call(arrays) -> outputs, and of(dys, arrays) -> the gradients of all arrays."""

    def __init__(self, call, label, of):
        self.call, self.label, self.of = call, label, of

    def vjp(self, arrays, needs):
        ys = self.call(arrays)
        return ys, lambda dys, wanted: self.pulled(arrays, ys, dys, wanted)

    def pulled(self, arrays, ys, dys, wanted):
        if self.of is None:
            raise TypeError("gradcheck: only PyTorch's functions and ours are checked at order 2: this backward has "
                            "none of its own")  # fmt: skip
        found = self.of([np.zeros_like(y) if dy is None else dy for y, dy in zip(ys, dys)], arrays)
        return [np.require(g, a.dtype, "W") for g, a, want in zip(found, arrays, wanted) if want]

    def gradient(self, n, wanted, label):
        def call(arrays):
            return self.pulled(arrays[:n], self.call(arrays[:n]), arrays[n:], wanted)

        return Function(call, label, None)


class Pair(Framework):
    """f(*inputs), and vjp(dy, *inputs) -> the gradients of the inputs, both of NumPy arrays."""

    array = "NumPy array"
    kinds = (np.ndarray,)

    def __init__(self, vjp):
        self.vjp = vjp

    def entered(self, x):
        if x.dtype.kind == "c":
            raise TypeError("gradcheck: complex inputs are not checked; pass real and imaginary part instead")
        if x.dtype.kind == "f":
            return as_tensor(x if x.dtype.itemsize <= 8 else x.astype(np.float64))
        return as_tensor(x) if x.dtype in (np.int64, np.int32, np.bool_) else x

    def takes(self, name):
        return any(name == q.name or q.kind is q.VAR_KEYWORD for q in inspect.signature(self.vjp).parameters.values())

    def function(self, call, label):
        return Function(call, label, partial(self.pulled, call))

    def pulled(self, call, dys, arrays):
        """What the user's vjp returns."""
        args, keywords = call.inputs(arrays)
        found = gradients_of(self.vjp(dys[0] if len(dys) == 1 else tuple(dys), *args, **keywords), (args, keywords))
        return [found.get(id(a), np.zeros_like(a)) for a in arrays]

    def outputs(self, y):
        found = [np.require(x, requirements="W") for x in flat(y, of=(np.ndarray, np.floating, float))]  # JAX's are not
        return [x for x in found if x.dtype.kind == "f"]


class _OfAnEngine(type):
    def __instancecheck__(cls, x):
        data = getattr(x, "data", None) if hasattr(type(x), "backward") and hasattr(x, "grad") else None
        return isinstance(data, (np.ndarray, numbers.Real))


class Own(metaclass=_OfAnEngine):
    """An instance is any object with `.data`, a number or a NumPy array, `.grad` and `.backward()`."""

    data: Any
    grad: Any


class Engine(Framework):
    """Tensors of somebody's own engine: micrograd's Value, or a class that somebody writes to learn. Inputs are copies
    of the user's with other data. The engine's own walk is what is checked: each gradient is a new forward, and one
    `backward()` from its end."""

    array = "tensor of your engine"
    kinds = (Own, np.ndarray)

    def __init__(self, example):
        self.example = example  # inputs are copies of it, with its flags, such as requires_grad

    def entered(self, x):
        if isinstance(x, np.ndarray):  # indices vary in size with the rest
            return as_tensor(x) if x.dtype in (np.int64, np.int32, np.bool_) else x
        return as_tensor(np.array(x.data, np.float64))  # a copy, as the engine may replace or change x.data

    def constant(self, array):
        """A leaf of the engine. Raises TypeError where it has numbers only, and this is an array. Indices stay."""
        if array.dtype.kind != "f":
            return array
        x, scalar = copy.copy(self.example), not isinstance(self.example.data, np.ndarray)
        if scalar and np.ndim(array):
            raise TypeError(f"{type(x).__name__} holds numbers, not arrays of shape {np.shape(array)}")
        x.data = float(array) if scalar else np.array(array)
        grad, x.grad = x.grad, None
        if isinstance(grad, (np.ndarray, numbers.Real)):  # the engine adds to it
            x.grad = np.zeros_like(x.data) if isinstance(grad, np.ndarray) else 0.0
        return x

    def function(self, call, label):
        def values(arrays):
            return [np.array(y.data, np.float64) for y in call([self.constant(a) for a in arrays])]

        return Function(values, label, partial(self.pulled, call))

    def outputs(self, y):
        return flat(y, of=Own)

    def host(self, x):
        return np.asarray(x.data if isinstance(x, Own) else x)

    def pulled(self, call, dys, arrays):
        """What backward() leaves in the inputs: one forward and one backward for each output, and their sum."""
        total: list = [np.zeros_like(a) for a in arrays]
        for i, dy in enumerate(dys):
            xs = [self.constant(a) for a in arrays]
            factor = self.start(call(xs)[i], dy)
            arrived = [getattr(x, "grad", None) for x in xs]  # indices have none
            total = [g if a is None else g + factor * self.host(a) for g, a in zip(total, arrived)]
        return total

    def start(self, y, dy):
        """Start backward at y with the gradient dy. Returns the number by which the inputs' gradients are to be
        multiplied: a backward() without arguments starts with 1."""
        if np.size(dy) == 1:
            y.backward()
            return float(np.reshape(dy, ()))
        arguments = list(inspect.signature(y.backward).parameters.values())[:1]
        if arguments and not isinstance(arguments[0].default, bool):  # it takes a gradient, and not retain_graph=False
            y.backward(dy)
        elif hasattr(y, "sum"):
            (y * self.constant(dy)).sum().backward()
        else:
            raise TypeError(
                f"gradcheck: {type(y).__name__}.backward() must start with a gradient of shape {np.shape(y.data)}: let "
                "it take one, or let the function return a number, or add a method sum()"
            )
        return 1.0
