"""The registry of declarations: every op, and every public function built from ops."""

import inspect
from collections.abc import Callable
from typing import Any

from .arguments import F, checked
from .cases import Case


class Declaration:
    """An op as the gradient check sees it: name, class or function, call, cases."""

    def __init__(self, name: str, source: Any, call: Callable[..., Any], cases: list[Case]):
        self.name, self.source, self.call, self.cases = name, source, call, cases

    @property
    def module(self) -> str:
        """The module that declares it."""
        return str(self.source.__module__)

    @property
    def builtin(self) -> bool:
        """True for minigrad's ops, False for user-defined ones."""
        return self.module.startswith("minigrad.")


registry: dict[str, Declaration] = {}


def register(declaration: Declaration) -> None:
    for each in declaration.cases:
        if not isinstance(each, Case):
            raise TypeError(f"{declaration.name}: cases are made by minigrad.case(…); got {each!r}")
    old = registry.get(declaration.name)
    if old is not None and old.builtin and old.module != declaration.module:
        declaration.name = f"{declaration.module}.{declaration.name}"  # a user's op may have the name of a built-in one
    registry[declaration.name] = declaration


def declared(source: Any) -> Declaration:
    """The declaration of an op or a composite, by its name, class or function. Raises ValueError if there is none."""
    found = registry.get(source) if isinstance(source, str) else None
    plain = inspect.unwrap(source) if callable(source) else source  # without the wrapper of `checked`
    found = found or next((d for d in registry.values() if d.source is plain), None)
    if found is None:
        raise ValueError(f"no op called {getattr(source, '__name__', source)!r} is declared")
    return found


def composite(*cases: Case) -> Callable[[F], F]:
    """Declare a public function built from ops, so that it is checked like an op: @composite(case(…), …).

    Arguments that are declared a bool, an int or a float are looked at, and NumPy's axis= is dim=: see `checked`."""

    def declare(function: F) -> F:
        register(Declaration(function.__name__, function, function, list(cases)))
        return checked(function)

    return declare
