"""Names that a module or class lacks: imported at their first use, or an error that says what to write instead."""

import dis
import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any


@functools.cache
def replacements() -> dict[str, str]:
    """Return {name of PyTorch: what to write instead}. missing.txt has the answers: names, a colon, and the answer for
    all of them."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    return {name: answer for names, _, answer in (line.partition(": ") for line in lines) for name in names.split()}


def missing_attribute_error(owner: str, name: str, obj: object) -> AttributeError:
    """Return the error that obj, which `owner` describes, lacks an attribute. It says what to write instead, if
    known."""
    if name in replacements():
        return AttributeError(f"{owner} has no attribute {name!r}; instead: {replacements()[name]}")
    return AttributeError(f"{owner} has no attribute {name!r}", name=name, obj=obj)  # Python may suggest a similar name


class MissingAttribute:
    """A class attribute that raises `missing_attribute_error` when it is read.

    (A __getattr__ of the class would slow down every other attribute.)"""

    def __init__(self, owner: str, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, obj: object, owner: type) -> Any:
        raise missing_attribute_error(self.owner, self.name, obj)


def _is_from_import(frame: FrameType) -> bool:
    """True if a frame is at a `from module import name`, which would replace an AttributeError by an ImportError of its
    own, without the answer."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def module_getattr(module: str, later: Mapping[str, str | None] = MappingProxyType({})) -> Callable[[str], Any]:
    """Return a __getattr__ for the module of that name.

    later: {name: the module that has it, or None for a submodule}. Each is imported at its first use."""

    def module_attribute(name: str) -> Any:
        if name not in later:
            error = missing_attribute_error(f"module {module!r}", name, sys.modules[module])
            if name in replacements() and _is_from_import(sys._getframe(1)):
                raise ImportError(str(error), name=module)
            raise error
        value = importlib.import_module(later[name] or f".{name}", module)
        if later[name]:
            value = getattr(value, name)
            setattr(sys.modules[module], name, value)
        return value

    return module_attribute
