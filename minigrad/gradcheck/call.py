"""A user's call, fn(*inputs): its varying arrays, its repetition with other arrays, and its name in reports."""

import inspect
import re
import sys
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from .. import autograd
from ..nn import Module
from ..random import default_generator
from ..replay.captured import Captured
from ..tensor import Tensor
from .frameworks import Adapted, Engine, Own, Pair, nothing_returned, owner_of
from .subject import Leaf, Subject, branches, flat, host, mapped, wrapped


class Keywords(dict):
    """Keyword arguments, as the last input of a function."""


def prepared(fn, inputs, kwargs=None, vjp=None):
    """(fn, inputs) for subject_of and the probes: a single tuple of inputs is unpacked, keyword arguments become the
    last input, and a function of another framework one of Tensors."""
    if not callable(fn):
        raise TypeError(f"gradcheck: the first argument must be a function; got {fn!r}")
    if isinstance(fn, Captured):  # a captured call leaves no graph: check the function itself
        fn = fn.function
    framework = framework_of(fn, (inputs, kwargs), vjp)
    inputs = unpacked(inputs, framework)
    if kwargs:
        inputs = (*inputs, Keywords(kwargs))
    if framework is not None:
        fn, inputs = framework.adapted(fn), mapped(inputs, framework.entered, of=framework.kinds)
    return fn, inputs


def framework_of(fn, inputs, vjp=None):
    """The Framework whose function fn is, or None if it is one of Tensors. Raises TypeError where that is unclear."""
    found: Any = None
    owned = inputs, owner_of(fn)
    if not flat(owned, of=(Tensor, Module)):
        if hasattr(sys.modules.get("torch"), "autograd"):  # not, if it is there in part only
            from .pytorch import framework

            found = framework if flat(owned, of=framework.kinds) else None
        if found is None and (own := flat(owned, of=Own)):
            found = Engine(own[0])
        if found is None and any(x.dtype.kind in "fc" for x in flat(inputs, of=np.ndarray)):
            if vjp is None:
                raise TypeError(
                    "gradcheck: NumPy arrays have no gradient. Pass vjp=, a function (dy, *inputs) -> gradients; or "
                    "minigrad's Tensors (mg.tensor(x)) or torch tensors to a function of those"
                )
            return Pair(vjp)
    if vjp is not None:
        raise TypeError("gradcheck: vjp is for functions of NumPy arrays; others have gradients of their own")
    return found


def unpacked(inputs, framework):
    """All inputs, if they came as one tuple, or with PyTorch as one list."""
    packings = (tuple,) if framework is None else framework.packings
    return tuple(inputs[0]) if len(inputs) == 1 and type(inputs[0]) in packings else inputs


def called(function, inputs):
    """function(*inputs), the last of which may be Keywords."""
    if inputs and isinstance(inputs[-1], Keywords):
        return function(*inputs[:-1], **inputs[-1])
    return function(*inputs)


@contextmanager
def subject_of(fn, inputs, wrt):
    """A Subject for fn(*inputs). Inside the with, Modules (fn itself or among the inputs) compute in float64; after it
    they have their own arrays back. So no other thread may use them, nor the default generator."""
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
        self.module = _module_of(fn)
        self.collect(self.module, "")
        self.chosen = _chosen(list(self.leaves.values()), wrt, names)
        self.position = {id(leaf.tensor): i for i, leaf in enumerate(self.chosen)}
        self.parameters = [leaf.tensor for leaf in self.leaves.values() if leaf.parameter]
        self.fixed = [x for x in self.leaves.values() if x.parameter and id(x.tensor) not in self.position]

    def collect(self, x, name):
        """Add the Tensors in x to the leaves, or to the others if they have no gradient."""
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
            y = called(self.function, self.replaced(tensors))
        except (RuntimeError, TypeError) as error:  # PyTorch raises either
            about = re.search("double|float|dtype", str(error), re.IGNORECASE) and tensors[0].dtype == np.float64
            if about and any(leaf.given.dtype != np.float64 for leaf in self.chosen):
                error.add_note(
                    "gradcheck computes in float64: pass the tensors that the function closes over as inputs"
                )
            raise
        if not any(x.dtype.kind == "f" for x in flat(y)):  # any gradient would pass without a float output
            raise TypeError(nothing_returned(y))
        return y

    def replaced(self, tensors):
        """The user's inputs with `tensors` for the chosen leaves."""
        self.constants.clear()
        like = tensors[0]
        for leaf in self.fixed:
            p, x = leaf.tensor, wrapped(leaf.array.astype(like.dtype), like)
            p.array, p.storage, p.node = x.array, x.storage, None

        def replaced(x):
            if id(x) in self.position:
                return tensors[self.position[id(x)]]
            leaf = self.leaves.get(id(x))
            name, array = (leaf.name, leaf.array.astype(like.dtype)) if leaf else self.others[id(x)]
            constant = wrapped(array.copy(), like)
            self.constants.append((name, constant.array, array))
            return constant

        return mapped(tuple(self.inputs), replaced)


def _module_of(fn):
    """The Module that fn is, wraps, or is a method of, or None."""
    fn = plain(fn)
    candidates = fn, getattr(fn, "__self__", None), fn.module if isinstance(fn, Adapted) else None
    return next((x for x in candidates if isinstance(x, Module)), None)


def _chosen(leaves, wrt, names):
    """The leaves to check: what `wrt` names; by default what requires a gradient, or all Tensors if none does."""
    if wrt is None:
        flagged = any(leaf.tensor.requires_grad for leaf in leaves if not leaf.parameter)
        chosen = [x for x in leaves if x.tensor.requires_grad or not (x.parameter or flagged)]
    else:
        wanted = [wrt] if isinstance(wrt, (int, str)) else wrt
        for w in wanted:
            if isinstance(w, int) and not -len(names) <= w < len(names):
                raise ValueError(f"gradcheck: wrt={w!r} is none of the {len(names)} inputs")
        wanted = [names[w] if isinstance(w, int) else str(w) for w in wanted]
        chosen = [x for x in leaves if any(_within(x.name, w) for w in wanted)]
        for w in wanted:
            if not any(_within(x.name, w) for x in leaves):
                raise ValueError(f"gradcheck: wrt={w!r} is none of {', '.join(x.name for x in leaves)}")
    if not chosen:
        raise ValueError(
            "gradcheck: nothing to differentiate. Pass float Tensors, or Modules with parameters (also in lists and "
            "dicts), or arrays of another framework; numbers are constants, and so are NumPy arrays beside Tensors"
        )
    return chosen


def _within(name, path):
    """Does the path name this leaf, or something that contains it? 'model.blocks' contains 'model.blocks.0.mlp'."""
    return name == path or name.startswith((path + ".", path + "["))


def left_out_of(fn):
    """The report's note on outputs of fn that are not checked, or ""."""
    fn = plain(fn)
    return fn.left_out() if isinstance(fn, Adapted) else ""


# -- names


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
    """fn's name in reports: that of an op or function, or the file and line of a lambda."""
    op, fn = op_of(fn), plain(fn)
    if op:
        return op.name
    if isinstance(fn, Adapted):
        fn = fn.source
    code = getattr(fn, "__code__", None)
    name = getattr(fn, "__qualname__" if code else "__name__", None) or type(fn).__name__
    return f"lambda at {code.co_filename}:{code.co_firstlineno}" if code and "<lambda>" in name else name


def argument_names(fn, n):
    """Names for n positional inputs: fn's argument names, as far as known."""
    op = op_of(fn)
    try:
        parameters = list(inspect.signature(op.forward if op else signed(fn)).parameters.values())[1 if op else 0 :]
    except (TypeError, ValueError):
        parameters = []
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [known[i] if i < len(known) else f"inputs[{i}]" for i in range(n)]


def signed(fn):
    """What has the signature of fn: torch's functions and modules have it elsewhere, ours where the op is written."""
    return fn.framework.signed(fn.__wrapped__) if isinstance(fn, Adapted) else inspect.unwrap(fn)
