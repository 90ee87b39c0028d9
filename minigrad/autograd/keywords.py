"""Keywords of PyTorch and NumPy for arguments that have another name here, or for choices that are always made here.

check_arguments and accepts_keywords_of_pytorch translate them, for all functions by the same two tables."""

import functools
import inspect
from collections.abc import Callable, Mapping
from reprlib import repr as shown
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

preserve_format, contiguous_format = "preserve_format", "contiguous_format"  # the values of memory_format=

_OTHER_NAMES = {"axis": "dim", "keepdims": "keepdim", "split_size": "split_size_or_sections", "value": "src"}

_ANY = None, False, True
_CHOICES_MADE: dict[str, tuple[Any, ...]] = {
    "always_call": (False,),
    "amsgrad": (False,),
    "capturable": (False,),
    "dampening": (0,),
    "differentiable": _ANY,
    "foreach": _ANY,
    "fused": _ANY,
    "inplace": (False,),
    "layout": (None,),
    "max_norm": (None,),
    "maximize": (False,),
    "memory_format": (None, preserve_format, contiguous_format),
    "norm_type": (2,),
    "persistent_workers": _ANY,
    "pin_memory": _ANY,
    "prepend": (False,),
    "scale_grad_by_freq": (False,),
    "sparse": (False,),
    "with_kwargs": (False,),
}
"""{keyword: the values that change nothing here}. Other values are refused by name."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def translated(
    name: str, parameters: Mapping[str, inspect.Parameter], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    """Return the arguments of a function as it takes them. parameters: its own. name: for errors.

    zeros(size=(2, 3)), where size is *size, becomes zeros((2, 3)). Raises TypeError for a keyword that is given under
    both names, and for a choice that is not offered here."""
    for keyword in [*kwargs]:
        parameter = parameters.get(keyword)
        if parameter is not None:
            if parameter.kind is parameter.VAR_POSITIONAL:
                args = (*args, kwargs.pop(keyword))
            continue
        ours = _OTHER_NAMES.get(keyword)
        if ours is not None and ours in parameters:
            if ours in kwargs:
                raise TypeError(f"{name}: give {ours} or {keyword}, not both")
            kwargs[ours] = kwargs.pop(keyword)
        elif keyword in _CHOICES_MADE:
            value = kwargs.pop(keyword)
            if not isinstance(value, str | float | int | None) or value not in _CHOICES_MADE[keyword]:
                raise TypeError(f"{name}: {keyword}={shown(value)} is not offered; leave {keyword} out")
    return args, kwargs


def accepts_keywords_of_pytorch(function: F) -> F:
    """Decorate a function, such as a constructor, that checks its arguments itself."""
    parameters = inspect.signature(function).parameters
    name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            args, kwargs = translated(name, parameters, args, kwargs)
        return function(*args, **kwargs)

    return wrapper  # type: ignore[return-value]
