"""Attributes that are imported at their first use, and what to write instead of names of PyTorch that are not here."""

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any


@functools.cache
def instead() -> dict[str, str]:
    """{name of PyTorch: what to write instead}, from lines of missing.txt: names, a colon, and that."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    return {name: here for names, _, here in (line.partition(": ") for line in lines) for name in names.split()}


def no_attribute(of: str, name: str, obj: object) -> AttributeError:
    """The error that obj, called `of`, has no attribute of that name, with what to write instead, if that is known."""
    if name in instead():
        return AttributeError(f"{of} has no attribute {name!r}; instead: {instead()[name]}")
    return AttributeError(f"{of} has no attribute {name!r}", name=name, obj=obj)  # Python may suggest a name like it


class Lacking:
    """An attribute that is not there, although dir() of the class has it: whoever reads it gets no_attribute. (With a
    __getattr__, all that the class does have would be read more slowly.)"""

    def __init__(self, of: str, name: str) -> None:
        self.of, self.name = of, name

    def __get__(self, obj: object, owner: type) -> Any:
        raise no_attribute(self.of, self.name, obj)


def attributes(module: str, later: Mapping[str, str | None] = MappingProxyType({})) -> Callable[[str], Any]:
    """A __getattr__ for the module of that name.

    later: {name: the module that has it}, None for a submodule; each is imported at its first use."""

    def missing(name: str) -> Any:
        if name not in later:
            raise no_attribute(f"module {module!r}", name, sys.modules[module])
        found = importlib.import_module(later[name] or f".{name}", module)
        if later[name]:
            setattr(sys.modules[module], name, found := getattr(found, name))
        return found

    return missing
