"""All public names: those in `__all__` of minigrad's modules, and of classes the methods without a leading _."""

import importlib
import inspect
import pkgutil
import types
from typing import NamedTuple

import minigrad

SPOKEN = {  # of a class, beside names that do not begin with _
    "__init__", "__call__", "__getitem__", "__setitem__", "__len__", "__iter__", "__contains__", "__enter__",
    "__exit__", "__add__", "__str__",
}  # fmt: skip
NOT_IMPORTED = ("__main__", "minigrad.gradcheck.pytorch")


class Public(NamedTuple):
    """A public name, its object, and `home`, the class or module that has it."""

    name: str
    object: object
    home: object


def modules():
    """Return the modules that have `__all__`, minigrad first."""
    found = [minigrad]
    for each in pkgutil.walk_packages(minigrad.__path__, "minigrad."):
        if not any(part in each.name for part in NOT_IMPORTED):
            found.append(importlib.import_module(each.name))
    return [module for module in found if hasattr(module, "__all__")]


def public():
    """Return all public objects, each once, under the first name it is found by."""
    seen: dict[int, Public] = {}
    for module in modules():
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, types.ModuleType) or id(value) in seen:
                continue
            shown = f"{module.__name__}.{name}"
            seen[id(value)] = Public(shown, value, module)
            if inspect.isclass(value) and not getattr(value, "_is_protocol", False):
                for key, method in members(value):
                    seen.setdefault(id(method), Public(f"{shown}.{key}", method, value))
    return list(seen.values())


def members(cls):
    """Yield (name, function or property) of the methods of a class and its bases that minigrad defines."""
    found = {}
    for base in reversed(cls.__mro__):
        if base.__module__.split(".")[0] == "minigrad":
            found |= {k: v for k, v in vars(base).items() if k in SPOKEN or not k.startswith("_")}
    for key, value in found.items():
        if isinstance(value, classmethod | staticmethod):
            value = value.__func__
        if inspect.isfunction(value) or isinstance(value, property):
            yield key, value


def functions():
    """Yield (name, function) of every public function and method that is written in minigrad's sources."""
    for each in public():
        value = each.object.fget if isinstance(each.object, property) else each.object
        if inspect.isfunction(value):
            value = inspect.unwrap(value)
            if value.__module__.startswith("minigrad.") and value.__code__.co_filename.endswith(".py"):
                yield each.name, value
