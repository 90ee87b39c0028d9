"""Wrong arguments: functions under `check_arguments` raise errors that name the function and the argument."""

import functools
import inspect
from collections.abc import Callable
from reprlib import repr as shown
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import numpy as np

from .graph import Value
from .keywords import translated

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = {bool: "True or False", int: "an int", float: "a number"}
_KEYWORD_ONLY = 1 << 30  # stands for the position of an argument that can only be given by name


def kind_of(x: Any) -> str:
    """Return the kind of x in words, for errors: "a NumPy array of int64", "a Tensor of float32", "a list", "None"."""
    if isinstance(x, Value):
        return f"a Tensor of {x.dtype}"
    if isinstance(x, np.ndarray):
        return f"a NumPy array of {x.dtype}"
    name = type(x).__name__
    if name in ("Tensor", "Parameter"):
        name = f"{type(x).__module__.partition('.')[0]}.{name}"  # another library's
    return "None" if x is None else f"an {name}" if name[0] in "aeiou" else f"a {name}"


def not_a_tensor_error(function: str, argument: str, x: Any, wanted: str = "a Tensor") -> TypeError:
    """Return the error for an argument that must be a Tensor and is none. It says what to write instead."""
    is_data = isinstance(x, (list, tuple, int, float)) or hasattr(x, "__array__")
    instead = f": write mg.tensor({argument})" if is_data and argument.isidentifier() else ""
    return TypeError(f"{function}: {argument} must be {wanted}, got {kind_of(x)}{instead}")


def check_arguments(function: F) -> F:
    """Decorate a public function: its arguments that are annotated as a bool, an int or a float must be one.

    NumPy's scalars, and Tensors without dims, are converted. Anything else raises TypeError, which names the function
    and the argument. Keywords of PyTorch and NumPy are translated (keywords.py): axis= becomes dim=. Parameters called
    dim… are left to ops/args.py, which knows the tensor's shape. An AttributeError is replaced by one that names the
    argument that should have been a Tensor."""
    parameters = inspect.signature(function).parameters
    tensors = [p for p in parameters.values() if _is_tensor(p.annotation)]
    to_check, after_star = [], False  # (position, name, kind, types that need no conversion) of each
    for i, p in enumerate(parameters.values()):
        after_star = after_star or p.kind is p.VAR_POSITIONAL
        for kind in _KINDS:
            if p.annotation in (kind, kind | None) and not p.name.startswith("dim"):
                exact = {kind, int if kind is float else kind, kind if p.annotation is kind else type(None)}
                to_check.append((_KEYWORD_ONLY if after_star else i, p.name, kind, exact))
    first = min((position for position, *_ in to_check), default=_KEYWORD_ONLY)

    def convert(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = translated(function.__name__, parameters, args, kwargs)
        for i, name, kind, exact in to_check:
            x = args[i] if i < len(args) else kwargs.get(name, kind)  # kind stands for "not given"
            if type(x) not in exact and x is not kind:
                x = _to_number(f"{function.__name__}: {name}", kind, x)
                if i < len(args):
                    args = (*args[:i], x, *args[i + 1 :])
                else:
                    kwargs[name] = x
        return args, kwargs

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            if not kwargs and len(args) <= first:  # the usual call: nothing to check
                return function(*args)
            args, kwargs = convert(args, kwargs)
            return function(*args, **kwargs)
        except AttributeError:
            given = dict(zip(parameters, args)) | kwargs
            for p in tensors:
                x = given.get(p.name, p.default)
                if x is not p.default and not isinstance(x, Value):
                    raise not_a_tensor_error(function.__name__, p.name, x) from None
            raise

    return wrapper  # type: ignore[return-value]


def _is_tensor(annotation: Any) -> bool:
    """True for the annotations T, T | None, Tensor and the like."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return any(isinstance(kind, TypeVar) or (isinstance(kind, type) and issubclass(kind, Value)) for kind in kinds)


def _to_number(what: str, kind: type, x: Any) -> Any:
    """Return x as a Python number of that kind. Raises TypeError, whose message begins with `what`, for anything but a
    number."""
    number = x.item() if getattr(x, "ndim", 1) == 0 else x  # NumPy's scalars and Tensors without dims
    if kind is float and isinstance(number, (int, float)):
        return number
    if isinstance(number, bool) == (kind is bool) and isinstance(number, kind):
        return number
    raise TypeError(f"{what} must be {_KINDS[kind]}, got {shown(x)}")
