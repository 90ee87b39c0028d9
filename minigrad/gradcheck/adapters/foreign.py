"""A function of another framework as one op, whose backward asks that framework for the gradient.

The backward is the function (*xs, *dys) -> dxs, which is again a function of that framework and so again one op: that
gives derivatives of any order that the framework has. The first time, it walks through what the forward itself
recorded, as the user's backward() would, so that buffers shared between calls show."""

from typing import Any

import numpy as np

from ...autograd import GraphError, Op, is_grad_enabled
from ...nn import Module
from ...random import default_generator
from ...tensor import Tensor, from_numpy
from ..subject import flat, host, mapped, nothing_returned


class Foreign(Op, abstract=True):
    """ys = function(*xs). `function.vjp(arrays, needs)` gives (ys, pullback), and pullback(dys, wanted) the gradients
    of the xs that are wanted; `function.gradient(n, wanted, label)` is the function (*xs, *dys) -> those gradients."""

    function: Any
    made: tuple = ()  # (storage, version) of each result

    rounds_inside = True  # its inside is hidden

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


Foreign.primitive = False  # it runs anyone's code


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


class Framework:
    """The interface of an adapter."""

    array = "array"  # what a function must return, in words
    imports = ""  # the line that a snippet needs
    modules: dict = {}  # what a snippet may name functions of: {how: module}
    kinds: tuple = ()  # the types that `entered` turns into Tensors or Modules
    packings: tuple = (tuple,)  # what may hold all inputs of a call
    may_crash = False  # may its functions crash on invalid inputs?

    def forked(self):
        """Called in a forked child before it calls the framework's functions."""

    def entered(self, x):
        """A Tensor (in the array's own memory, if possible) or a Module for x; x itself if it is a constant."""
        raise NotImplementedError

    def arguments(self, tree):
        """The user's inputs, with `entered` applied to what varies."""
        return mapped(tree, self.entered, of=self.kinds)

    def adapted(self, fn, label):
        """The Adapted that wraps the user's function."""
        return Adapted(self, fn, label)

    def signed(self, fn):
        """The object that has fn's signature, with argument names."""
        return fn

    def takes(self, name):
        """Does the gradient get an option of this name too?"""
        return True

    def source(self, fn):
        """What users call fn: the class whose usual method it is, or fn itself."""
        return fn

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

    def constant(self, array):
        """A NumPy array as the framework's."""
        raise NotImplementedError

    def host(self, x):
        """The framework's array as NumPy's."""
        return np.asarray(x)

    def literal(self, x, most):
        """An array of at most this many elements as Python; None for anything else."""
        return None

    def public(self, fn):
        """The name under which the framework itself exports fn, or ""."""
        names = [name for name in (getattr(fn, "__name__", ""),) if name]
        names += [name.split("_", 1)[1] for name in names if "_" in name]  # torch.linalg.inv is called linalg_inv
        return next((f"{of}.{n}" for of, m in self.modules.items() for n in names if getattr(m, n, None) is fn), "")


class Adapted:
    """fn, a function of a framework's arrays, as a function of Tensors, which replaces it throughout gradcheck.

    module: a Module that wraps fn itself, or the object that it is a method of."""

    def __init__(self, framework, fn, label, module=None):
        self.framework, self.__wrapped__, self.label, self.module = framework, fn, label, module
        self.kept, self.random = None, False

    def __call__(self, *args, **keywords):
        call = _Call(self, args, keywords)
        return Foreign.apply(*call.tensors, function=self.framework.function(call, self.label))

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

    def expectation(self, expected_vjp):
        """expected_vjp, which takes and returns the framework's arrays, as a function from Tensors to NumPy's."""

        def there(x):
            return self.framework.constant(host(x)) if isinstance(x, Tensor) else x.foreign

        def called(*args, **keywords):
            args, keywords = mapped((args, keywords), there, of=(Tensor, Module))
            return mapped(expected_vjp(*args, **keywords), self.framework.host, of=self.framework.kinds)

        return called


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


def as_tensor(array, requires_grad=False):
    """A Tensor in the memory of a NumPy array."""
    x = from_numpy(np.asarray(array))
    return x.requires_grad_() if requires_grad else x
