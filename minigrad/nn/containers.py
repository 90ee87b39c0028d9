"""Modules that hold others: Sequential, ModuleList, ModuleDict."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from ..tensor import Tensor
from .module import Module

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    M = TypeVar("M", bound=Module, default=Any)  # type of the modules held: nn.ModuleList[Block]
else:
    from typing import TypeVar

    M = TypeVar("M")


class _Row(Module, Generic[M]):
    """Modules under the keys "0", "1", …, with the methods of a list."""

    def append(self, module: M) -> Self:
        """Add a module at the end. Return self."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[M]) -> Self:
        """Add modules at the end. Return self."""
        for module in modules:
            self.append(module)
        return self

    __iadd__ = extend

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload  # type checkers see overlapping overloads: a Sequential is a _Row
    def __getitem__(self: "Sequential", index: slice) -> "Sequential": ...  # type: ignore[misc, overload-overlap]
    @overload
    def __getitem__(self, index: slice) -> "ModuleList[M]": ...
    def __getitem__(self, index: int | slice) -> Any:
        if not isinstance(index, slice):
            return list(self)[index]
        part = Sequential() if isinstance(self, Sequential) else ModuleList()
        for i, module in enumerate(list(self)[index]):
            vars(part)[str(i)] = module  # setattr would change the module's name in paths
        return part

    def __setitem__(self, index: int, module: M) -> None:
        keys = [key for key, _ in self.named_children()]
        setattr(self, keys[index], module)

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[M]:
        children: Iterator[Any] = self.children()
        return children


class Sequential(_Row[Module]):
    """Modules applied one after the other: Sequential(a, b), or with names Sequential(OrderedDict(first=a, second=b)).

    A call returns the last module's output. seq[i] is a Module, seq[i:j] a Sequential.

    Raises TypeError for anything but a Module."""

    def __init__(self, *modules: Module | dict[str, Module]) -> None:
        given: Any = modules
        if len(modules) == 1 and isinstance(modules[0], dict):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self.extend(given)

    def forward(self, x: Tensor) -> Tensor:
        for module in self.children():
            x = module(x)
        return x


class _Container(Module):
    """Modules by key. Nobody calls a container itself, so its children have its name in front of their own."""

    if not TYPE_CHECKING:  # see Module

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if isinstance(value, Module) and self._name:
                value._rename(f"{self._name}.{name}")

    def _rename(self, name):
        super()._rename(name)
        for key, child in self.named_children():
            child._rename(f"{name}.{key}")


class ModuleList(_Container, _Row[M]):
    """A list of modules, to index and iterate over. list[i] is a module, list[i:j] a ModuleList. To type checkers,
    ModuleList[Block] holds Blocks. Raises TypeError for anything but a Module, and IndexError as lists do."""

    def __init__(self, modules: Iterable[M] | None = None) -> None:
        self.extend(modules or ())


class ModuleDict(_Container, MutableMapping[str, M]):
    """A dict of modules by name, made from a dict or (name, module) pairs. To type checkers, ModuleDict[Block] holds
    Blocks. Raises KeyError as dicts do, TypeError for anything but a Module, and ValueError for a name with a dot and
    for the name of an attribute of the class."""

    __eq__, __hash__ = object.__eq__, object.__hash__  # all Modules compare by identity

    def __init__(self, modules: Mapping[str, M] | Iterable[tuple[str, M]] | None = None) -> None:
        self.update(modules or ())

    def __setitem__(self, name: str, module: M) -> None:
        self.add_module(name, module)

    def __getitem__(self, name: str) -> M:
        return dict(self.named_children())[name]  # type: ignore[return-value]

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self, name)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in self.named_children()])
