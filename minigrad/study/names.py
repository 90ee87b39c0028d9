"""The names of a model's parts. "0.3" is head 3 of attention layer 0.

Attention layers are counted from 0, in the order of model.named_modules(). If these numbers would be ambiguous, since
the paths of the model contain other numbers, tables write a layer's path in place of its number: "decoder.1.cross.3".
Every function takes both, and also a pair (path or number of the layer, number of the head).

An attention layer is named by its path or its number, and an MLP by its path. The residual stream begins with "tokens"
and "positions", or with "input" if it is not known which part of it is which. It ends with "logits"."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..base.errors import UnknownName, unknown


@dataclass(frozen=True)
class Part:
    """A part of a model that writes into the residual stream or reads it: head number `head` of the attention layer at
    `path`, or with head=None the whole module at `path`.

    layer: the number of the attention layer, with which the name of a head begins; "" to begin it with the path."""

    path: str
    head: int | None = None
    layer: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return self.path if self.head is None else f"{self.layer or self.path or '0'}.{self.head}"


def layer_names(paths: Iterable[str]) -> dict[str, str]:
    """Return {path of an attention layer: prefix of the names of its heads}. paths: of all attention layers, in order.

    The prefix is the layer's number if each path contains the number of its own layer and no other number, else the
    path. A model's only attention layer has the number 0, also if there is no number in its path."""
    paths = list(paths)
    numbers_in_paths = [[word for word in path.split(".") if word.isdecimal()] for path in paths]
    are_layer_numbers = numbers_in_paths in ([[]], [[str(i)] for i in range(len(paths))])
    return {path: str(i) if are_layer_numbers else path for i, path in enumerate(paths)}


def path_of(layer, paths):
    """Return the path of an attention layer that is given by its path or its number. paths: of all attention layers,
    in order.

    Raises UnknownName if there is no such layer."""
    paths = list(paths)
    if layer in paths:
        return layer
    number = int(layer) if isinstance(layer, str) and layer.isdecimal() else layer
    if isinstance(number, (int, np.integer)) and 0 <= number < len(paths):
        return paths[number]
    raise UnknownName(unknown("attention layer", layer, paths))


def part_of(name, heads):
    """Return the Part with a name, as described at the top of this file. A Part is taken too.

    heads: {path of an attention layer: the numbers of its heads}, of all layers, in order. Raises UnknownName for a
    head or a layer's number that does not exist. Paths of other modules are not checked."""
    if isinstance(name, Part):
        path, head = name.path, name.head
    elif isinstance(name, tuple):
        path, head = name
    elif isinstance(name, str) and name not in heads and _is_head_name(name, heads):
        path, _, number = name.rpartition(".")
        head = int(number)
    else:
        path, head = name, None
    if head is None:
        return Part(path if isinstance(path, str) and not path.isdecimal() else path_of(path, heads))
    try:
        path = path_of(path, heads)
    except UnknownName:
        raise UnknownName(_unknown_head_message(name, heads)) from None
    if head not in heads[path]:
        raise UnknownName(_unknown_head_message(name, heads))
    return Part(path, int(head), layer_names(heads)[path])


def head_of(name, heads):
    """Return (path, number) of a head with a name such as "0.3". heads: as for part_of.

    Raises UnknownName, with a list of the heads, if the name is not that of a head."""
    part = part_of(name, heads)
    if part.head is None:
        raise UnknownName(_unknown_head_message(name, heads))
    return part.path, part.head


def _is_head_name(name, heads):
    """True if a string has the form of a head's name: the number or path of an attention layer, a dot, and a number."""
    layer, _, number = name.rpartition(".")
    return number.isdecimal() and (layer.isdecimal() or layer in heads)


def _unknown_head_message(name, heads):
    """The text of the error for an unknown head: its name, and the heads of the first two layers and the last one."""
    names = layer_names(heads)
    given = f"{names.get(name[0], name[0])}.{name[1]}" if isinstance(name, tuple) else str(name)
    layers = [_head_range(names[path], list(numbers)) for path, numbers in heads.items() if len(numbers)]
    if len(layers) > 4:
        layers = [*layers[:2], "…", layers[-1]]
    return f"there is no head {given!r}; the heads are {', '.join(layers)}"


def _head_range(layer, numbers):
    """The heads of a layer as text: "0.0 to 0.3", or a list if the numbers are not consecutive."""
    if len(numbers) > 2 and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        return f"{layer}.{numbers[0]} to {layer}.{numbers[-1]}"
    return ", ".join(f"{layer}.{n}" for n in numbers)


class HeadNumbers(dict):
    """A number for each head, {path of an attention layer: (nh,) array}; numbers["0.3"] is the number of one head.

    heads: {path: the numbers of the heads in its array}, of all layers of the model; None: they are 0 … nh - 1.
    stopped: True if Ctrl-C ended the measurement early: the numbers that are missing are nan."""

    stopped = False

    def __init__(self, numbers: Mapping[str, np.ndarray], heads: Mapping[str, Sequence[int]] | None = None) -> None:
        super().__init__(numbers)
        self._heads = {path: range(len(array)) for path, array in numbers.items()} if heads is None else heads

    def __missing__(self, name):
        path, head = head_of(name, self._heads)
        if path not in self:
            raise KeyError(path)
        return float(self[path][list(self._heads[path]).index(head)])
