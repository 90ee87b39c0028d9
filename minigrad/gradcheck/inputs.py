"""A user's call taken apart: which arrays vary, and how to call again with others in their place."""

import inspect
from contextlib import contextmanager
from functools import partial
from reprlib import repr as shown

from .. import autograd
from ..nn import Module
from ..random import default_generator
from ..tensor import Tensor
from .subject import Leaf, Subject, flat, host, wrapped


@contextmanager
def subject_of(fn, inputs, wrt):
    """A Subject for fn(*inputs). Modules, fn itself or among the inputs, compute in float64 inside the with, and get
    their own arrays back after it."""
    taken = _Inputs(fn, inputs, wrt)
    saved = [(p, p.array, p.storage, p.node) for p in taken.parameters]
    state = default_generator.state
    try:
        with autograd.enable_grad():
            yield Subject(taken.call, taken.chosen, label_of(fn), taken.passed)
    finally:
        default_generator.state = state
        for p, array, storage, node in saved:
            p.array, p.storage, p.node = array, storage, node


class _Inputs:
    """The inputs of fn as leaves that vary and constants that do not."""

    def __init__(self, fn, inputs, wrt):
        op = op_of(fn)
        self.function, self.inputs = op.apply if fn is op else fn, inputs
        self.leaves: dict = {}  # id of a float Tensor or a parameter -> Leaf; one Tensor passed twice is one leaf
        self.constants: dict = {}  # id of another Tensor -> (name, array)
        self.passed: list = []  # of the latest call: (name, array of a constant, what it held)
        names = argument_names(fn, len(inputs))
        for x, name in zip(inputs, names):
            self.take(x, name)
        self.take(fn if isinstance(fn, Module) else getattr(plain(fn), "__self__", None), "")  # model, model.method
        self.chosen = _chosen(list(self.leaves.values()), wrt, names)
        self.position = {id(leaf.tensor): i for i, leaf in enumerate(self.chosen)}
        self.parameters = [leaf.tensor for leaf in self.leaves.values() if leaf.parameter]
        self.fixed = [x for x in self.leaves.values() if x.parameter and id(x.tensor) not in self.position]

    def take(self, x, name):
        if isinstance(x, Module):
            for path, p in x.named_parameters():
                self.leaves.setdefault(id(p), Leaf(f"{name}.{path}" if name else path, p, parameter=True))
        elif isinstance(x, Tensor) and x.is_floating_point():
            self.leaves.setdefault(id(x), Leaf(name, x))
        elif isinstance(x, Tensor):
            self.constants[id(x)] = name, host(x).copy()
        elif isinstance(x, dict):
            for key, value in x.items():
                self.take(value, f"{name}[{key!r}]")
        elif isinstance(x, (tuple, list)):
            for i, value in enumerate(x):
                self.take(value, f"{name}[{i}]")

    def call(self, tensors):
        """fn with `tensors` for the leaves that vary; what does not is cast to their dtype, on their device."""
        self.passed.clear()
        for leaf in self.fixed:
            p, x = leaf.tensor, wrapped(leaf.array.astype(tensors[0].dtype), tensors[0])
            p.array, p.storage, p.node = x.array, x.storage, None
        y = self.function(*[self.together(x, tensors) for x in self.inputs])
        if not flat(y):  # nothing would be compared, and a function without its return pass
            raise TypeError(f"gradcheck: the function returned no Tensor, but {shown(y)}")
        return y

    def together(self, x, tensors):
        if isinstance(x, Tensor):
            if id(x) in self.position:
                return tensors[self.position[id(x)]]
            if id(x) in self.leaves:
                name, array = self.leaves[id(x)].name, self.leaves[id(x)].array.astype(tensors[0].dtype)
            else:
                name, array = self.constants[id(x)]
            fresh = wrapped(array.copy(), tensors[0])
            self.passed.append((name, fresh.array, array))
            return fresh
        if isinstance(x, dict):
            return type(x)((key, self.together(value, tensors)) for key, value in x.items())
        if isinstance(x, (tuple, list)):
            parts = [self.together(value, tensors) for value in x]
            return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
        return x


def _chosen(leaves, wrt, names):
    """The leaves to check: what `wrt` names; by default what requires a gradient, or all Tensors if none does."""
    if wrt is None:
        flagged = any(leaf.tensor.requires_grad for leaf in leaves if not leaf.parameter)
        chosen = [x for x in leaves if x.tensor.requires_grad or not (x.parameter or flagged)]
    else:
        wanted = [names[w] if isinstance(w, int) else str(w) for w in ([wrt] if isinstance(wrt, (int, str)) else wrt)]
        chosen = [x for x in leaves if any(_within(x.name, w) for w in wanted)]
        for w in wanted:
            if not any(_within(x.name, w) for x in leaves):
                raise ValueError(f"gradcheck: wrt={w!r} is none of {', '.join(x.name for x in leaves)}")
    if not chosen:
        raise ValueError(
            "gradcheck: nothing to differentiate. Pass float Tensors, or Modules with parameters (also in lists and "
            "dicts); NumPy arrays and numbers are constants"
        )
    return chosen


def _within(name, place):
    """Is this leaf the place itself or a part of it? 'model.blocks.0.mlp' is part of 'model.blocks'."""
    return name == place or name.startswith((place + ".", place + "["))


def op_of(fn):
    """The Op subclass that fn is, or is the apply of; None for other functions."""
    fn = plain(fn)
    cls = fn if isinstance(fn, type) else getattr(fn, "__self__", None)
    return cls if isinstance(cls, type) and issubclass(cls, autograd.Op) else None


def plain(fn):
    """fn without the arguments that functools.partial has bound."""
    while isinstance(fn, partial):
        fn = fn.func
    return fn


def label_of(fn):
    """What to call fn in reports: an op's name, a function's, or where a lambda stands."""
    op, fn = op_of(fn), plain(fn)
    if op:
        return op.name
    code = getattr(fn, "__code__", None)
    name = getattr(fn, "__qualname__", None) or type(fn).__name__
    return f"lambda at {code.co_filename}:{code.co_firstlineno}" if code and "<lambda>" in name else name


def argument_names(fn, n):
    """Names for n positional inputs: those of fn's arguments, as far as they are known."""
    op = op_of(fn)
    try:
        parameters = list(inspect.signature(op.forward if op else fn).parameters.values())[1 if op else 0 :]
    except (TypeError, ValueError):
        parameters = []
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [known[i] if i < len(known) else f"inputs[{i}]" for i in range(n)]
