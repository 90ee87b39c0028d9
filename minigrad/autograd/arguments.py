"""`checked`: public functions whose flags and numbers are what their annotations say."""

import functools
import inspect
from collections.abc import Callable
from reprlib import repr as shown
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_NAMES_OF_NUMPY = {"axis": "dim", "keepdims": "keepdim"}
_KINDS = {bool: "True or False", int: "an int", float: "a number"}
_NEVER = 1 << 30  # the position of an argument that can only be a keyword


def checked(function: F) -> F:
    """Decorate a public function: its arguments that are annotated as a bool, an int or a float must be one.

    NumPy's scalars, and Tensors without dims, are converted. Anything else raises TypeError, which names the function
    and the argument. NumPy's axis= and keepdims= become dim= and keepdim=. Parameters called dim… are left to
    ops/args.py, which knows the tensor's shape."""
    parameters = inspect.signature(function).parameters
    looked_at, after_star = [], False  # (position, name, kind, types that need no look) of each
    for i, p in enumerate(parameters.values()):
        after_star = after_star or p.kind is p.VAR_POSITIONAL
        for kind in _KINDS:
            if p.annotation in (kind, kind | None) and not p.name.startswith("dim"):
                exact = {kind, int if kind is float else kind, kind if p.annotation is kind else type(None)}
                looked_at.append((_NEVER if after_star else i, p.name, kind, exact))
    first = min((position for position, *_ in looked_at), default=_NEVER)
    renamed = [(theirs, ours) for theirs, ours in _NAMES_OF_NUMPY.items() if ours in parameters]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for theirs, ours in renamed:
                if theirs in kwargs:
                    if ours in kwargs:
                        raise TypeError(f"{function.__name__}: give {ours} or {theirs}, not both")
                    kwargs[ours] = kwargs.pop(theirs)
        elif len(args) <= first:  # the usual call has none of them
            return function(*args)
        for i, name, kind, exact in looked_at:
            x = args[i] if i < len(args) else kwargs.get(name, kind)  # kind stands for "not given"
            if type(x) not in exact and x is not kind:
                x = _converted(f"{function.__name__}: {name}", kind, x)
                if i < len(args):
                    args = (*args[:i], x, *args[i + 1 :])
                else:
                    kwargs[name] = x
        return function(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


def _converted(what: str, kind: type, x: Any) -> Any:
    """x as a Python number of that kind. Raises TypeError, which begins with `what`, for anything but a number."""
    number = x.item() if getattr(x, "ndim", 1) == 0 else x  # NumPy's scalars and Tensors without dims
    if kind is float and isinstance(number, (int, float)):
        return number
    if isinstance(number, bool) == (kind is bool) and isinstance(number, kind):
        return number
    raise TypeError(f"{what} must be {_KINDS[kind]}, got {shown(x)}")
