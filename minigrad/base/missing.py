"""Names that are not there: imported at their first use, or an error that says what to write instead."""

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any


@functools.cache
def instead() -> dict[str, str]:
    """Return {name of PyTorch: what to write instead}, read from missing.txt: names, a colon, and the answer for
    all."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    return {name: answer for names, _, answer in (line.partition(": ") for line in lines) for name in names.split()}


def no_attribute(owner: str, name: str, obj: object) -> AttributeError:
    """Return the error that obj, which `owner` describes, lacks an attribute. It says what to write instead, if
    known."""
    if name in instead():
        return AttributeError(f"{owner} has no attribute {name!r}; instead: {instead()[name]}")
    return AttributeError(f"{owner} has no attribute {name!r}", name=name, obj=obj)  # Python may suggest a similar name


class Lacking:
    """A class attribute that raises `no_attribute` when it is read.

    A __getattr__ of the class would do too, but would slow down the attributes that it has."""

    def __init__(self, owner: str, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, obj: object, owner: type) -> Any:
        raise no_attribute(self.owner, self.name, obj)


def attributes(module: str, later: Mapping[str, str | None] = MappingProxyType({})) -> Callable[[str], Any]:
    """Return a __getattr__ for the module of that name.

    later: {name: the module that has it, or None for a submodule}. Each is imported at its first use."""

    def module_attribute(name: str) -> Any:
        if name not in later:
            raise no_attribute(f"module {module!r}", name, sys.modules[module])
        found = importlib.import_module(later[name] or f".{name}", module)
        if later[name]:
            found = getattr(found, name)
            setattr(sys.modules[module], name, found)
        return found

    return module_attribute
