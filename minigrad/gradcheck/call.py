"""A user's call, fn(*inputs): its varying arrays, its repetition with other arrays, and its name in reports."""

import inspect
import re
from contextlib import contextmanager
from functools import partial

import numpy as np

from .. import autograd
from ..nn import Module
from ..random import default_generator
from ..replay.captured import Captured
from ..tensor import Tensor
from .pair import Pair, share_memory
from .subject import Leaf, Subject, branches, host, map_tensors, no_floats_message, tensors_in, to_tensor


class Keywords(dict):
    """Keyword arguments, as the last input of a function."""


def prepare(fn, inputs, kwargs=None, vjp=None):
    """Return (fn, inputs) for subject_of and the probes.

    A single tuple of inputs is unpacked, keyword arguments become the last input, and a function of arrays with its vjp
    becomes a function of Tensors."""
    if not callable(fn):
        raise TypeError(f"gradcheck: the first argument must be a function; got {fn!r}")
    if isinstance(fn, Captured):  # a captured call leaves no graph: check the function itself
        fn = fn.function
    inputs = inputs[0] if len(inputs) == 1 and type(inputs[0]) is tuple else inputs
    if kwargs:
        inputs = (*inputs, Keywords(kwargs))
    ours = tensors_in((inputs, getattr(without_partial(fn), "__self__", without_partial(fn))), of=(Tensor, Module))
    if ours or not any(x.dtype.kind in "fc" for x in tensors_in(inputs, of=np.ndarray)):
        if vjp is not None:
            raise TypeError("gradcheck: vjp is for functions of NumPy arrays; others have gradients of their own")
        return fn, inputs
    if vjp is None:
        raise TypeError("NumPy arrays have no gradient: pass Tensors, or vjp=, a function (dy, *inputs) -> gradients")
    return Pair(fn, vjp), map_tensors(inputs, share_memory, of=np.ndarray)


def call_with(function, inputs):
    """Return function(*inputs). If the last of the inputs is Keywords, they are keyword arguments."""
    if inputs and isinstance(inputs[-1], Keywords):
        return function(*inputs[:-1], **inputs[-1])
    return function(*inputs)


@contextmanager
def subject_of(fn, inputs, wrt):
    """A context manager that gives a Subject for fn(*inputs).

    Inside the with, Modules (fn itself or among the inputs) compute in float64; after it they have their own arrays
    back. No other thread may use them, nor the default generator, in between."""
    call = _Call(fn, inputs, wrt)
    saved = [(p, p.array, p.storage, p.node) for p in call.parameters]
    state = default_generator.state
    try:
        with autograd.enable_grad():
            subject = Subject(call, call.chosen, label_of(fn), call.constants)
            yield subject
    finally:
        default_generator.state = state
        for p, array, storage, node in saved:
            p.array, p.storage, p.node = array, storage, node


class _Call:
    """fn(*inputs), to be called with Tensors for the leaves that `wrt` chooses. All else is constant."""

    def __init__(self, fn, inputs, wrt):
        op = op_of(fn)
        self.function, self.inputs = op.apply if fn is op else fn, inputs
        self.leaves: dict = {}  # id of a float Tensor or a parameter -> Leaf; one Tensor passed twice is one leaf
        self.others: dict = {}  # id of another Tensor -> (name, array)
        self.constants: list = []  # see Subject
        names = argument_names(fn, len(inputs))
        for x, name in zip(inputs, names):
            self.collect(x, name)
        self.module = _find_module(fn)
        self.collect(self.module, "")
        self.chosen = _choose_leaves(list(self.leaves.values()), wrt, names)
        self.position = {id(leaf.tensor): i for i, leaf in enumerate(self.chosen)}
        self.parameters = [leaf.tensor for leaf in self.leaves.values() if leaf.parameter]
        self.fixed = [x for x in self.leaves.values() if x.parameter and id(x.tensor) not in self.position]

    def collect(self, x, name):
        """Add the Tensors in x to the leaves, or to the others if their dtype has no gradient."""
        if isinstance(x, Module):
            for path, p in x.named_parameters():
                self.leaves.setdefault(id(p), Leaf(f"{name}.{path}" if name else path, p, parameter=True))
        elif isinstance(x, Tensor) and x.is_floating_point():
            self.leaves.setdefault(id(x), Leaf(name, x))
        elif isinstance(x, Tensor):
            self.others[id(x)] = name, host(x).copy()
        else:
            for path, branch in branches(x):
                self.collect(branch, path[2:-2] if isinstance(x, Keywords) else name + path)

    def __call__(self, tensors):
        """fn's outputs, with `tensors` for the chosen leaves. Other floats are cast to their dtype, on their device."""
        try:
            y = call_with(self.function, self.with_tensors(tensors))
        except TypeError as error:
            about = re.search("double|float|dtype", str(error), re.IGNORECASE) and tensors[0].dtype == np.float64
            if about and any(leaf.given.dtype != np.float64 for leaf in self.chosen):
                error.add_note(
                    "gradcheck computes in float64: pass the tensors that the function closes over as inputs"
                )
            raise
        if not any(x.dtype.kind == "f" for x in tensors_in(y)):  # any gradient would pass
            raise TypeError(no_floats_message(y))
        return y

    def with_tensors(self, tensors):
        """The user's inputs with `tensors` in place of the chosen leaves, and copies of all other Tensors."""
        self.constants.clear()
        like = tensors[0]
        for leaf in self.fixed:
            p, x = leaf.tensor, to_tensor(leaf.array.astype(like.dtype), like)
            p.array, p.storage, p.node = x.array, x.storage, None

        def replace(x):
            if id(x) in self.position:
                return tensors[self.position[id(x)]]
            leaf = self.leaves.get(id(x))
            name, array = (leaf.name, leaf.array.astype(like.dtype)) if leaf else self.others[id(x)]
            constant = to_tensor(array.copy(), like)
            self.constants.append((name, constant.array, array))
            return constant

        return map_tensors(tuple(self.inputs), replace)


def _find_module(fn):
    """Return the Module that fn is, or whose method it is; None for other functions."""
    fn = without_partial(fn)
    return next((x for x in (fn, getattr(fn, "__self__", None)) if isinstance(x, Module)), None)


def _choose_leaves(leaves, wrt, names):
    """Return the leaves to check: those that `wrt` names; by default those that require a gradient, or all Tensors if
    none does."""
    if wrt is None:
        flagged = any(leaf.tensor.requires_grad for leaf in leaves if not leaf.parameter)
        chosen = [x for x in leaves if x.tensor.requires_grad or not (x.parameter or flagged)]
    else:
        wanted = [wrt] if isinstance(wrt, (int, str)) else wrt
        for w in wanted:
            if isinstance(w, int) and not -len(names) <= w < len(names):
                raise ValueError(f"gradcheck: wrt={w!r} is none of the {len(names)} inputs")
        wanted = [names[w] if isinstance(w, int) else str(w) for w in wanted]
        chosen = [x for x in leaves if any(_contains(x.name, w) for w in wanted)]
        for w in wanted:
            if not any(_contains(x.name, w) for x in leaves):
                raise ValueError(f"gradcheck: wrt={w!r} is none of {', '.join(x.name for x in leaves)}")
    if not chosen:
        raise ValueError(
            "gradcheck: nothing to differentiate. Pass float Tensors, or Modules with parameters (also in lists and "
            "dicts), or NumPy arrays with vjp=; numbers are constants, and so are NumPy arrays beside Tensors"
        )
    return chosen


def _contains(name, path):
    """True if the path names this leaf, or something that contains it: 'model.blocks' contains 'model.blocks.0.mlp'."""
    return name == path or name.startswith((path + ".", path + "["))


# -- names


def op_of(fn):
    """Return the Op subclass that fn is, or whose apply it is; None for other functions."""
    fn = without_partial(fn)
    cls = fn if isinstance(fn, type) else getattr(fn, "__self__", None)
    return cls if isinstance(cls, type) and issubclass(cls, autograd.Op) else None


def without_partial(fn):
    """Return fn without the arguments that functools.partial has bound."""
    while isinstance(fn, partial):
        fn = fn.func
    return fn


def label_of(fn):
    """Return fn's name in reports: the name of an op or function, or the file and line of a lambda."""
    op, fn = op_of(fn), without_partial(fn)
    if op:
        return op.name
    if isinstance(fn, Pair):
        fn = without_partial(fn.__wrapped__)
    code = getattr(fn, "__code__", None)
    name = getattr(fn, "__qualname__" if code else "__name__", None) or type(fn).__name__
    return f"lambda at {code.co_filename}:{code.co_firstlineno}" if code and "<lambda>" in name else name


def argument_names(fn, n):
    """Return names for n positional inputs: fn's argument names where they are known, or inputs[i]."""
    op = op_of(fn)
    try:
        signature = inspect.signature(op.forward if op else inspect.unwrap(fn))
        parameters = list(signature.parameters.values())[1 if op else 0 :]
    except (TypeError, ValueError):
        parameters = []
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [positional[i] if i < len(positional) else f"inputs[{i}]" for i in range(n)]
