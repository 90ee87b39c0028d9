"""Flags and numbers among the arguments of public functions."""

import functools
import inspect
from collections.abc import Callable
from reprlib import repr as shown
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_NAMES_OF_NUMPY = {"axis": "dim", "keepdims": "keepdim"}
_KINDS = {bool: "True or False", int: "an int", float: "a number"}


def checked(function: F) -> F:
    """A public function whose arguments are what they are declared to be: a bool, an int or a float, or else TypeError
    names it. NumPy's axis= and keepdims= are dim= and keepdim=. What dims are, one_dim and many_dims say."""
    places, several, parameters = [], None, inspect.signature(function).parameters
    for i, p in enumerate(parameters.values()):
        several = i if p.kind is p.VAR_POSITIONAL else several
        for kind in _KINDS:
            if p.annotation in (kind, kind | None) and not p.name.startswith("dim"):
                exact = {kind, int if kind is float else kind, kind if p.annotation is kind else type(None)}
                places.append((i if several is None else 1 << 30, p.name, kind, exact))
    first = min((place[0] for place in places), default=1 << 30)
    renamed = [(theirs, ours) for theirs, ours in _NAMES_OF_NUMPY.items() if ours in parameters]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for theirs, ours in renamed:
                if theirs in kwargs:
                    if ours in kwargs:
                        raise TypeError(f"{function.__name__}: give {ours} or {theirs}, not both")
                    kwargs[ours] = kwargs.pop(theirs)
        elif len(args) <= first:
            return function(*args)
        for i, name, kind, exact in places:
            x = args[i] if i < len(args) else kwargs.get(name, kind)
            if type(x) not in exact and x is not kind:
                x = _converted(f"{function.__name__}: {name}", kind, x)
                if i < len(args):
                    args = (*args[:i], x, *args[i + 1 :])
                else:
                    kwargs[name] = x
        return function(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


def _converted(what: str, kind: type, x: Any) -> Any:
    """x, a number of another type than `kind`, as one of it."""
    number = x.item() if getattr(x, "ndim", 1) == 0 else x  # NumPy's scalars and Tensors without dims become numbers
    if kind is float and isinstance(number, (int, float)):
        return number
    if isinstance(number, bool) == (kind is bool) and isinstance(number, kind):
        return number
    raise TypeError(f"{what} must be {_KINDS[kind]}, got {shown(x)}")
