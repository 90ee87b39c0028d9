"""Types for annotations, in your programs too: `from minigrad.typing import DTypeLike`.

They are for type checkers and editors; functions check their arguments at run time."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from types import EllipsisType

    from .autograd import Value

__all__ = ["Array", "DType", "DTypeLike", "Dims", "FilePath", "Index", "Number", "Operand", "Size"]

F = TypeVar("F", bound=Callable[..., Any])  # a function whose type a decorator keeps
T = TypeVar("T", bound="Value")  # a Tensor, or a subclass: ops do not import Tensor
Array: TypeAlias = np.ndarray[Any, Any]  # NumPy's, of any shape and dtype
DType: TypeAlias = np.dtype[Any]  # minigrad.float32, …
DTypeLike: TypeAlias = DType | type[Any] | str  # minigrad.float32, np.float32, float, "float32"
Dims: TypeAlias = int | Sequence[int] | None  # dims of a reduction; None means all
Size: TypeAlias = int | Sequence[int]  # zeros(2, 3) or zeros((2, 3))
Number: TypeAlias = float | np.number[Any] | np.bool_  # type checkers take bools and ints as floats
Operand: TypeAlias = "Value | Number | Array"  # the other operand of x + 1, x + array
FilePath: TypeAlias = str | PathLike[str]
IndexPart: TypeAlias = (
    "int | slice | EllipsisType | Value | Array | np.integer[Any] | Sequence[int] | Sequence[Sequence[int]] | None"
)
Index: TypeAlias = "IndexPart | tuple[IndexPart, ...]"  # x[index], basic or advanced as in NumPy
