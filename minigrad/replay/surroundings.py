"""What a captured function finds outside of its arguments, and whether it is still the same: see captured.py."""

import dis
import functools
import types

import numpy as np

from ..base.recording import PACKAGE, Watched
from ..tensor import Tensor

PLAIN = bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic


class Surroundings:
    """What a function finds outside of its arguments: variables of its closure, globals, defaults, and attributes of
    the objects that it is a method of or is given; and likewise for functions of the user's among these."""

    def __init__(self, function, arguments):
        self._cells, self._names, self._attributes, self._defaults = [], [], [], []
        self._seen: set = set()
        self._add(function, list(arguments))
        self._before, self._contents = list(map(_fingerprint, self._values())), None

    def _add(self, function, owners):
        while not isinstance(function, types.FunctionType):
            if isinstance(function, functools.partial):
                owners += [*function.args, *function.keywords.values()]
                function = function.func
            elif isinstance(function, types.MethodType):
                owners.append(function.__self__)
                function = function.__func__
            elif hasattr(function, "__wrapped__"):  # a captured function, say
                function = function.__wrapped__
            else:
                break
        if not isinstance(function, types.FunctionType):
            owners.append(function)
            function = _attribute(function, "__call__")
        if not isinstance(function, types.FunctionType) or function in self._seen:
            return
        if function.__code__.co_filename.startswith(PACKAGE):
            return
        self._seen.add(function)
        names, attributes = _names(function.__code__)
        cells = list(function.__closure__ or ())
        found = [(function.__globals__, name) for name in names if name in function.__globals__]
        self._cells += cells
        self._names += found
        self._defaults.append(function)
        self._attributes += [(owner, name) for owner in owners if not isinstance(owner, Tensor) for name in attributes]
        for value in [*map(_content, cells), *(scope[name] for scope, name in found)]:
            if isinstance(value, (types.FunctionType, functools.partial, types.MethodType)):
                self._add(value, [])

    def _values(self):
        values = [_content(cell) for cell in self._cells]
        values += [scope.get(name) for scope, name in self._names]
        values += [_attribute(owner, name) for owner, name in self._attributes]
        for function in self._defaults:
            values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        return values

    def modules(self):
        """The Modules among them."""
        values = self._values()
        parts = [y for x in values if type(x) in (list, tuple) for y in x]
        return [x for x in (*values, *parts) if isinstance(x, Watched)]

    def settle(self):
        """The function has been recorded: what its lists and dicts hold now has to stay."""
        self._contents = list(map(_parts, self._values()))

    def hold(self):
        values = self._values()
        return list(map(_fingerprint, values)) == self._before and list(map(_parts, values)) == self._contents


def _names(code):
    """The names of variables, and those of attributes, that a function's code, and that of functions defined in it,
    look up outside of it. (In co_names they are together: optimizer.step() would make a global `step` one of them.)"""
    names, attributes = {}, {}
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[instruction.argval] = None
        elif instruction.opname.endswith(("_ATTR", "_METHOD")):
            attributes[instruction.argval] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for found, inner in zip((names, attributes), _names(constant)):
                found |= inner
    return names, attributes


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return None


def _attribute(owner, name):
    """An attribute of an object or of its class, found without running anything."""
    bases = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
    scopes = [getattr(owner, "__dict__", {}), *map(vars, bases)]
    return next((scope[name] for scope in scopes if name in scope), None)


def _fingerprint(x):
    """What must not change of a variable: a number's value, else which object it is."""
    if isinstance(x, PLAIN):
        return type(x), repr(x)  # 0.0 and -0.0 are equal, but not alike
    if isinstance(x, Tensor):
        return Same(x), Same(x.array), Same(x.node)
    return None if type(x) is tuple else Same(x)


def _parts(x):
    """The fingerprints of the Tensors and Modules in a list or tuple, and of all that is in a dict; None for others.

    Lists of numbers are not watched: they are where programs collect what they have seen."""
    if type(x) is dict:
        return [_fingerprint(y) for y in x.values()]
    if type(x) in (list, tuple):
        return [_fingerprint(y) for y in x if isinstance(y, (Tensor, Watched))]
    return None


class Same:
    """Equal to another of the same object only."""

    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Same) and self.x is other.x

    def __hash__(self):
        return id(self.x)
