"""Filling tensors with random numbers, in place: weight.data.normal_(0, 0.02). nn.init does more."""

from collections.abc import Callable
from typing import Any, TypeVar

from ..random import Generator, default_generator
from .inplace import InPlace

T = TypeVar("T", bound="Drawn")


class Drawn(InPlace):
    """The part of Tensor that draws its values: floats, on its device, with the numbers of rand and randn."""

    __slots__ = ()

    def uniform_(self: T, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> T:
        """Uniform numbers in [a, b), in place. Raises ValueError if b < a, and TypeError if this is no float tensor."""
        if b < a:
            raise ValueError(f"uniform_: there are no numbers from {a} up to {b}")
        return self._drawn("uniform_", Generator.uniform, b - a, a, generator)

    def normal_(self: T, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> T:
        """Normal numbers, in place. Raises ValueError if std < 0, and TypeError if this is no float tensor."""
        if std < 0:
            raise ValueError(f"normal_: std must not be negative, got {std}")
        return self._drawn("normal_", Generator.normal, std, mean, generator)

    def _drawn(
        self: T, what: str, draw: Callable[..., Any], scale: float, shift: float, generator: Generator | None
    ) -> T:
        if self.dtype.kind != "f":
            raise TypeError(f"{what}: the numbers are floats, and this tensor is {self.dtype}")
        self._in_place(what)
        on = self.storage.backend
        x = draw(default_generator if generator is None else generator, self.shape, self.dtype, on)
        x = on.add(on.mul(x, float(scale), out=x), float(shift), out=x)
        on.setitem(self.array, (...,), x)
        return self
