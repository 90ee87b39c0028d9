"""The words that mg.* and F.* take for arguments beside those that ops/ writes down: PyTorch's names of them, and
words of PyTorch's that mean nothing here. Methods of Tensor, and what ops call of each other, are the bare functions
and pay nothing for it."""

import functools
import inspect

import numpy as np

from ..autograd import Value
from ..base.missing import changes_nothing
from .args import no_out, rename

# PyTorch's names of what ops call otherwise: {function: {its name: ours}}, beside "input" for x …
NAMES: dict = {"searchsorted": {"input": "values"}, "split": {"tensor": "x"}}
# … and second names.
SECOND: dict = {
    "isin": {"element": "elements", "test_element": "test_elements"},
    "split": {"split_size": "split_size_or_sections"},
    "tensor_split": dict.fromkeys(("sections", "indices", "tensor_indices_or_sections"), "indices_or_sections"),
    "transpose": {"axis0": "dim0", "axis1": "dim1"},
}
IGNORED = {"memory_format", "sparse_grad", "_stacklevel"}  # whatever they say, they change no value
# Of these also inplace, as the last positional argument: the result is returned, and the input stays as it is.
INPLACE = {"dropout", "relu", "relu6", "silu", "mish", "elu", "celu", "selu", "leaky_relu", "hardsigmoid", "hardswish",
           "hardtanh"}  # fmt: skip

# The arguments that are several Tensors, and those that are one, beside the first. A list or a number given for one of
# them leads to an AttributeError, which is told in words. Any other is left as it is: it may be of a user's Generator.
_SEVERAL = {"tensors", "operands"}
_TENSORS = {
    "input", "tensor", "other", "exponent", "index", "indices", "mask", "condition", "tensor1", "tensor2", "mat",
    "mat1", "mat2", "vec", "vec2", "batch1", "batch2", "end", "weight", "weights", "bias", "source", "src", "a", "b",
    "x1", "x2", "target", "pos_weight", "qk", "query", "key", "value", "attn_mask", "boundaries", "sorted_sequence",
    "sorter", "elements", "test_elements", "repeats",
}  # fmt: skip
_GIVEN_FOR_TENSORS = (list, tuple, dict, int, float, np.ndarray, np.generic, type(None))


def accept(namespace):
    """Have the functions of Tensors among the globals() of a module take these words."""
    for name, function in list(namespace.items()):
        if inspect.isfunction(function) and _takes_tensors(function):
            namespace[name] = accepting(function, namespace["__name__"])


def _takes_tensors(function):
    of_ops, of_creation = (function.__module__.startswith(f"minigrad.{home}.") for home in ("ops", "tensor"))
    return of_ops or (of_creation and "input" in names_of(function))


@functools.cache
def accepting(function, module):
    """The function as the module offers it, with these words. Given something else for a Tensor, it says so."""
    name, ours, called = function.__name__, inspect.signature(function).parameters, names_of(function)
    names = {word: mine for mine, word in called.items() if word != mine} | SECOND.get(name, {})
    known = {*ours, "axis", "keepdims"}
    positional = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in ours.values())
    with_inplace = positional + 1 if name in INPLACE else None
    several = next((called[p.name] for p in ours.values() if p.kind is p.VAR_POSITIONAL), None)
    needed = {"input", "tensor"} if {"other", "exponent"}.isdisjoint(ours) else {}  # a number may stand beside a Tensor

    @functools.wraps(function)
    def call(*args, **kwargs):
        if len(args) == with_inplace and isinstance(args[-1], bool) and "inplace" not in kwargs:
            args = args[:-1]
        if kwargs and not known.issuperset(kwargs):
            rename(name, kwargs, names)
            for word in kwargs.keys() - known:
                if _changes_nothing(name, word, kwargs[word]):
                    del kwargs[word]
        try:
            return function(*args, **kwargs)
        except Exception as error:
            given = dict(zip(called.values(), args)) | {called.get(k, k): v for k, v in kwargs.items()}
            if several in given:  # f(*tensors), called with them or with one list of them
                rest = args[positional:]
                given[several] = rest[0] if len(rest) == 1 and isinstance(rest[0], (list, tuple)) else rest
            wrong = _no_tensor(error, given, needed)
            if wrong is None:
                raise
            raise TypeError(f"{name}: {wrong}") from None

    shown = [p.replace(name=called[p.name]) for p in ours.values()]
    if name in INPLACE:
        shown.insert(positional, inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False))
    call.__signature__ = inspect.Signature(shown)
    call.__module__ = module  # where a pickle finds it
    return call


def names_of(function):
    """{our name: PyTorch's} of a function's arguments, in order."""
    theirs = {mine: word for word, mine in NAMES.get(function.__name__, {"input": "x"}).items()}
    return {name: theirs.get(name, name) for name in inspect.signature(function).parameters}


def _no_tensor(error, given, needed):
    """What to say if one of the arguments {name: value}, or an element of one, is no Tensor, and that is the reason of
    the error; else None. needed: names of those that must be Tensors. Of others it is one that lacked an attribute."""
    blamed = isinstance(error, AttributeError) and isinstance(error.obj, _GIVEN_FOR_TENSORS)
    lacked = error.obj if blamed else given  # no argument is `given`
    for name, x in given.items():
        if name in _SEVERAL and isinstance(x, (list, tuple)):
            if not x:
                return f"{name} must hold at least one Tensor, got an empty {type(x).__name__}"
            for each in x:
                if not isinstance(each, (Value, np.ndarray)):
                    return f"{name} must hold Tensors, got {type(each).__name__}; minigrad.tensor(…) makes one"
        elif name in _SEVERAL and not isinstance(x, Value):
            return f"{name} must be a list of Tensors, got {type(x).__name__}"
        elif (name in needed and not isinstance(x, Value)) or (name in _TENSORS and x is lacked):
            return f"{name} must be a Tensor, got {type(x).__name__}; minigrad.tensor({name}) makes one"
    return None


def _changes_nothing(name, word, value):
    """Is this word, which the function does not know, one of PyTorch's that changes nothing? Raises TypeError, with
    what to use, for one that asks for something."""
    if word in IGNORED or (word == "inplace" and name in INPLACE):
        return True
    if word == "out" and value is not None:
        raise no_out(name)
    return word == "out" or changes_nothing(name, word, value)
