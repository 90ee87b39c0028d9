"""The registry of declarations: every op, and every composite, a public function built from ops."""

import inspect
from collections.abc import Callable
from typing import Any

from .arguments import F, check_arguments
from .cases import Case


class Declaration:
    """An op or a composite, as the gradient check knows it.

    source: its class or function. call: a function that takes the inputs of a case."""

    def __init__(self, name: str, source: Any, call: Callable[..., Any], cases: list[Case]):
        self.name, self.source, self.call, self.cases = name, source, call, cases

    @property
    def module(self) -> str:
        """The name of the module that declares it."""
        return str(self.source.__module__)

    @property
    def builtin(self) -> bool:
        """True for ops of minigrad, False for ops of a user."""
        return self.module.startswith("minigrad.")


registry: dict[str, Declaration] = {}


def register(declaration: Declaration) -> None:
    """Add a declaration under its name. An op of a user that has the name of one of minigrad's is registered as
    module.name. Raises TypeError for cases that `case` did not make."""
    for each in declaration.cases:
        if not isinstance(each, Case):
            raise TypeError(f"{declaration.name}: cases are made by minigrad.case(…); got {each!r}")
    old = registry.get(declaration.name)
    if old is not None and old.builtin and old.module != declaration.module:
        declaration.name = f"{declaration.module}.{declaration.name}"
    registry[declaration.name] = declaration


def declaration_of(source: Any) -> Declaration:
    """Return the declaration of an op or composite, given its name, class or function. Raises ValueError if there is
    none."""
    declaration = registry.get(source) if isinstance(source, str) else None
    unwrapped = inspect.unwrap(source) if callable(source) else source  # without the wrapper of `check_arguments`
    declaration = declaration or next((d for d in registry.values() if d.source is unwrapped), None)
    if declaration is None:
        raise ValueError(f"no op called {getattr(source, '__name__', source)!r} is declared")
    return declaration


def composite(*cases: Case) -> Callable[[F], F]:
    """Decorate a public function built from ops, so that it is checked like an op: @composite(case(…), …).

    Its arguments are checked as `check_arguments` does: those annotated as bool, int or float, and NumPy's axis= means
    dim=."""

    def declare(function: F) -> F:
        register(Declaration(function.__name__, function, function, list(cases)))
        return check_arguments(function)

    return declare
