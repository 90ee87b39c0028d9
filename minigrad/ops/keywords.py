"""The words that mg.* and F.* take for arguments beside those that ops/ writes down: PyTorch's names of them, and
words of PyTorch's that mean nothing here. Methods of Tensor, and what ops call of each other, are the bare functions
and pay nothing for it."""

import functools
import inspect

from ..autograd import Value
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
REFUSED = {  # what to do instead, where they say anything
    "max_norm": "scale the rows of weight under mg.no_grad() instead",
    "norm_type": "it belongs to max_norm",
    "out_dtype": "convert the factors with .to(dtype)",
    "reduce": "say reduction='mean', 'sum' or 'none'; scatter_add adds at an index",
    "scale_grad_by_freq": "divide the rows of weight.grad by mg.bincount(input)",
    "size_average": "say reduction='mean', 'sum' or 'none'",
    "sparse": "gradients are dense",
    "weight": "multiply the losses of reduction='none' by it",
}


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

    @functools.wraps(function)
    def call(*args, **kwargs):
        if kwargs and not known.issuperset(kwargs):
            rename(name, kwargs, names)
            for word in kwargs.keys() - known:
                if _changes_nothing(name, word, kwargs[word]):
                    del kwargs[word]
        try:
            return function(*args, **kwargs)
        except AttributeError as error:
            given = dict(zip(called.values(), args)) | {called.get(k, k): v for k, v in kwargs.items()}
            wrong = _no_tensor(error, given)
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


def _no_tensor(error, given):
    """What to say of an AttributeError that arose because one of the arguments {name: value}, or an element of one, is
    no Tensor; None of any other."""
    if error.name is None or isinstance(error.obj, Value):
        return None
    kind = type(error.obj).__name__
    for name, x in given.items():
        if x is error.obj:
            return f"{name} must be a Tensor, got {kind}; minigrad.tensor({name}) makes one"
        if isinstance(x, (list, tuple)) and any(each is error.obj for each in x):
            return f"{name} must hold Tensors, got {kind}; minigrad.tensor(…) makes one"
    return None


def _changes_nothing(name, word, value):
    """Is this word, which the function does not know, one of PyTorch's that changes nothing? Raises TypeError, with
    what to use, for one that asks for something."""
    if word in IGNORED or (word == "inplace" and name in INPLACE):
        return True
    if value is None or value is False:
        return word == "out" or word in REFUSED
    if word == "out":
        raise no_out(name)
    if word in REFUSED:
        raise TypeError(f"{name}: minigrad has no {word}=; {REFUSED[word]}")
    return False
