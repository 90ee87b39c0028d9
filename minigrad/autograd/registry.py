"""What is declared: every op, and every public function built from ops."""

import inspect
from types import SimpleNamespace


class Declaration(SimpleNamespace):
    """What the docs, the gradient check and the pictures know of an op: name, class or function, call, doc, cases."""

    def __init__(self, name, source, call, doc, cases):
        super().__init__(name=name, source=source, call=call, doc=doc or "", cases=cases)

    @property
    def family(self):
        return self.source.__module__.rpartition(".")[2]

    @property
    def builtin(self):
        return self.source.__module__.startswith("minigrad.")


registry: dict[str, Declaration] = {}


def register(declaration):
    old, module = registry.get(declaration.name), declaration.source.__module__
    if old is not None and old.builtin and old.source.__module__ != module:
        declaration.name = f"{module}.{declaration.name}"  # a user's op may have the name of a built-in one
    registry[declaration.name] = declaration


def declared(source):
    """The declaration of an op or a composite, by its name, class or function. Raises ValueError if there is none."""
    found = registry.get(source) if isinstance(source, str) else None
    plain = inspect.unwrap(source) if callable(source) else source  # without numpy_names' wrapper
    found = found or next((d for d in registry.values() if d.source is plain), None)
    if found is None:
        raise ValueError(f"no op called {getattr(source, '__name__', source)!r} is declared")
    return found


def composite(*cases):
    """Declare a public function that is built from ops, so that it is checked and listed like an op."""

    def declare(function):
        register(Declaration(function.__name__, function, function, function.__doc__, list(cases)))
        return function

    return declare
