"""A user's call, fn(*inputs): which arrays of it vary, how to call again with others in their place, what to call it in
reports, and the Python that repeats a check of it."""

import inspect
import re
from contextlib import contextmanager
from functools import partial
from reprlib import repr as shortened

from .. import autograd
from ..nn import Module
from ..random import default_generator
from ..tensor import Tensor
from .subject import Leaf, Subject, flat, host, mapped, wrapped

LITERAL = 256  # a Tensor of at most so many elements is written out in a snippet


@contextmanager
def subject_of(fn, inputs, wrt):
    """A Subject for fn(*inputs). Inside the with, Modules (fn itself or among the inputs) compute in float64; after it
    they have their own arrays back."""
    call = _Call(fn, inputs, wrt)
    saved = [(p, p.array, p.storage, p.node) for p in call.parameters]
    state = default_generator.state
    try:
        with autograd.enable_grad():
            yield Subject(call, call.chosen, label_of(fn), call.constants)
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
        self.collect(fn if isinstance(fn, Module) else getattr(plain(fn), "__self__", None), "")  # model, model.method
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
        elif isinstance(x, dict):
            for key, value in x.items():
                self.collect(value, f"{name}[{key!r}]")
        elif isinstance(x, (tuple, list)):
            for i, value in enumerate(x):
                self.collect(value, f"{name}[{i}]")

    def __call__(self, tensors):
        """fn's outputs, with `tensors` for the chosen leaves. Other floats are cast to their dtype, on their device."""
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

        y = self.function(*[mapped(x, replaced) for x in self.inputs])
        if not flat(y):  # nothing would be compared, and a function that lacks its return would pass
            raise TypeError(f"gradcheck: the function returned no Tensor, but {shortened(y)}")
        return y


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


def _within(name, path):
    """Is the leaf of this name what the path names, or a part of it? 'model.blocks.0.mlp' is part of 'model.blocks'."""
    return name == path or name.startswith((path + ".", path + "["))


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
    """What to call fn in reports: the name of an op or of a function, or the file and line of a lambda."""
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


# -- Python that repeats a check


def snippet(fn, inputs, options):
    """Python that repeats a check. Large inputs and Modules are left as names to fill in."""
    keywords = getattr(fn, "keywords", {})  # of functools.partial
    fn = op_of(fn) or plain(fn)
    name = getattr(fn, "__qualname__", "<unnamed>")
    if "<" in name or " " in name or getattr(fn, "__module__", "__main__") == "__main__":
        source, called = [], "fn"
    else:
        source, called = [f"from {fn.__module__} import {name.split('.')[0]}"], name
    missing = [f"fn = {label_of(fn)}"] if called == "fn" else []
    if keywords:
        source.append("from functools import partial")
        called = f"partial({called}, {', '.join(f'{key}={value!r}' for key, value in keywords.items())})"
    literals = [_literal(x, f"inputs_{i}") for i, x in enumerate(inputs)]
    missing = [text for text in literals if text.startswith("inputs_")] + missing
    arguments = [called, *literals, *(f"{key}={value!r}" for key, value in options.items() if value is not None)]
    lines = ["import minigrad as mg", "from minigrad.gradcheck import gradcheck"]
    lines += ["from math import inf, nan"] if re.search(r"\b(inf|nan)\b", " ".join(literals)) else []
    lines += source
    lines += [f"# and, as in the failing call: {', '.join(missing)}"] if missing else []
    return "\n".join([*lines, f"gradcheck({', '.join(arguments)})"])


def _literal(x, name):
    """An input as Python, or `name` if it is too large or cannot be written."""
    if isinstance(x, Tensor):
        dtype = "bool_" if x.dtype.kind == "b" else x.dtype.name
        return f"mg.tensor({host(x).tolist()!r}, dtype=mg.{dtype})" if x.numel() <= LITERAL else name
    if type(x) in (list, tuple):
        parts = [_literal(value, name) for value in x]
        return name if name in parts else f"[{', '.join(parts)}]" if type(x) is list else f"({', '.join(parts)},)"
    return repr(x) if isinstance(x, (int, float, str, type(None))) else name
