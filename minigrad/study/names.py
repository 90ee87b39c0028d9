"""The names of a model's parts. "0.3" is head 3 of attention layer 0.

Attention layers are counted from 0, in the order of model.named_modules(). In a model with two attention layers in a
block, or whose paths count the blocks in another way, tables write a layer's path in place of its number, as in
"decoder.1.cross.3". Both forms can be read for every model, and a head may also be given as (path or number, head).

An attention layer is named by its path or its number, and an MLP by its path. The residual stream begins with "tokens"
and "positions", or with "input" where these two are not told apart. It ends with "logits"."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..base.errors import UnknownName, unknown


@dataclass(frozen=True)
class Node:
    """A part that writes into the residual stream or reads it: a head, or with head=None all of the module at `path`.

    layer: what a head's name begins with, the number of its attention layer; "" for the path."""

    path: str
    head: int | None = None
    layer: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return self.path if self.head is None else f"{self.layer or self.path or '0'}.{self.head}"


def layer_names(paths: Iterable[str]) -> dict[str, str]:
    """{path of an attention layer: what the names of its heads begin with}: the layer's number if each path contains
    the number of its own layer and no other, else the path. paths: those of all attention layers, in order.

    A model's only attention layer has the number 0, also if no number is in its path."""
    paths = list(paths)
    numbers = [[part for part in path.split(".") if part.isdecimal()] for path in paths]
    counted = numbers in ([[]], [[str(i)] for i in range(len(paths))])
    return {path: str(i) if counted else path for i, path in enumerate(paths)}


def path_of(layer, paths):
    """The path of an attention layer, given by its path or its number. Raises UnknownName for an unknown one.

    paths: those of all attention layers, in order."""
    paths = list(paths)
    if layer in paths:
        return layer
    number = int(layer) if isinstance(layer, str) and layer.isdecimal() else layer
    if isinstance(number, (int, np.integer)) and 0 <= number < len(paths):
        return paths[number]
    raise UnknownName(unknown("attention layer", layer, paths))


def node_of(name, heads):
    """The Node that a name means: see the top of this file. The part itself need not exist, but a head must.

    heads: {path of an attention layer: the numbers of its heads}, of all layers, in order."""
    if isinstance(name, Node):
        path, head = name.path, name.head
    elif isinstance(name, tuple):
        path, head = name
    elif isinstance(name, str) and name not in heads and _looks_like_a_head(name, heads):
        path, _, number = name.rpartition(".")
        head = int(number)
    else:
        path, head = name, None
    if head is None:
        return Node(path if isinstance(path, str) and not path.isdecimal() else path_of(path, heads))
    try:
        path = path_of(path, heads)
    except UnknownName:
        raise UnknownName(_no_head(name, heads)) from None
    if head not in heads[path]:
        raise UnknownName(_no_head(name, heads))
    return Node(path, int(head), layer_names(heads)[path])


def head_of(name, heads):
    """(path, number) of a head given by its name, such as "0.3". heads: as for node_of.

    Raises UnknownName, which lists the heads, for anything else."""
    node = node_of(name, heads)
    if node.head is None:
        raise UnknownName(_no_head(name, heads))
    return node.path, node.head


def _looks_like_a_head(name, heads):
    layer, _, number = name.rpartition(".")
    return number.isdecimal() and (layer.isdecimal() or layer in heads)


def _no_head(name, heads):
    names = layer_names(heads)
    given = f"{names.get(name[0], name[0])}.{name[1]}" if isinstance(name, tuple) else str(name)
    layers = [_listed(names[path], list(of)) for path, of in heads.items() if len(of)]
    if len(layers) > 4:
        layers = [*layers[:2], "…", layers[-1]]
    return f"there is no head {given!r}; the heads are {', '.join(layers)}"


def _listed(layer, numbers):
    """The heads of a layer, as "0.0 to 0.3", or one by one where numbers are left out."""
    if len(numbers) > 2 and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        return f"{layer}.{numbers[0]} to {layer}.{numbers[-1]}"
    return ", ".join(f"{layer}.{n}" for n in numbers)


class HeadNumbers(dict):
    """{path of an attention layer: (nh,) array}, a number for each head; numbers["0.3"] is that of one head.

    heads: {path: numbers of the heads in its array}, of all layers of the model, where these are not 0 … nh - 1."""

    def __init__(self, numbers: Mapping[str, np.ndarray], heads: Mapping[str, Sequence[int]] | None = None) -> None:
        super().__init__(numbers)
        self._heads = {path: range(len(of)) for path, of in numbers.items()} if heads is None else heads

    def __missing__(self, name):
        path, head = head_of(name, self._heads)
        if path not in self:
            raise KeyError(path)
        return float(self[path][list(self._heads[path]).index(head)])
