"""What is declared: every op, and every public function built from ops."""

from types import SimpleNamespace


class Declaration(SimpleNamespace):
    """An op as the docs, the gradient check and the pictures see it: name, op class or function, call, doc, cases."""

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
    old = registry.get(declaration.name)
    if old is not None and old.builtin and old.source.__module__ != declaration.source.__module__:
        return  # a user's op may reuse a name of ours; ours stays the one in the table
    registry[declaration.name] = declaration


def composite(*cases):
    """Declare a public function that is built from ops: it is checked, and listed, like an op."""

    def declare(function):
        register(Declaration(function.__name__, function, function, function.__doc__, list(cases)))
        return function

    return declare
