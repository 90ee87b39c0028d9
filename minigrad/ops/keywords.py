"""The words that mg.* and F.* take for arguments beside those that ops/ writes down: PyTorch's names of them, and
words of PyTorch's that mean nothing here. Methods of Tensor, and what ops call of each other, are the bare functions
and pay nothing for it."""

import functools
import inspect

import numpy as np

from ..autograd import Value
from ..missing import refused_argument
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
# Of these also inplace=: the result is returned, and the input stays as it is.
INPLACE = {"dropout", "relu", "relu6", "silu", "mish", "elu", "celu", "selu", "leaky_relu", "hardsigmoid", "hardswish",
           "hardtanh"}  # fmt: skip


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
    needed = {"input", "tensor"} if {"other", "exponent"}.isdisjoint(ours) else {}  # a number may stand beside a Tensor

    @functools.wraps(function)
    def call(*args, **kwargs):
        if kwargs and not known.issuperset(kwargs):
            rename(name, kwargs, names)
            for word in kwargs.keys() - known:
                if _changes_nothing(name, word, kwargs[word]):
                    del kwargs[word]
        try:
            return function(*args, **kwargs)
        except Exception as error:
            given = dict(zip(called.values(), args)) | {called.get(k, k): v for k, v in kwargs.items()}
            wrong = _no_tensor(error, given, needed)
            if wrong is None:
                raise
            raise TypeError(f"{name}: {wrong}") from None

    shown = [p.replace(name=called[p.name]) for p in ours.values()]
    if name in INPLACE:
        shown.append(inspect.Parameter("inplace", inspect.Parameter.KEYWORD_ONLY, default=False))
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
    blamed = isinstance(error, AttributeError) and error.name is not None and not isinstance(error.obj, Value)
    lacked = error.obj if blamed else given  # no argument is `given`
    for name, x in given.items():
        several = name == "tensors" or isinstance(x, (list, tuple))
        if x is lacked or (name in needed and not isinstance(x, Value)):
            return f"{name} must be a Tensor, got {type(x).__name__}; minigrad.tensor({name}) makes one"
        if name == "tensors" and not isinstance(x, (list, tuple, Value)):
            return f"tensors must be a list of Tensors, got {type(x).__name__}"
        for each in x if several else ():
            if each is lacked or (name == "tensors" and not isinstance(each, (Value, np.ndarray))):
                return f"{name} must hold Tensors, got {type(each).__name__}; minigrad.tensor(…) makes one"
    return None


def _changes_nothing(name, word, value):
    """Is this word, which the function does not know, one of PyTorch's that changes nothing? Raises TypeError, with
    what to use, for one that asks for something."""
    if word in IGNORED or (word == "inplace" and name in INPLACE):
        return True
    error = no_out(name) if word == "out" else refused_argument(name, word)
    if error and value is not None and value is not False:
        raise error
    return error is not None
