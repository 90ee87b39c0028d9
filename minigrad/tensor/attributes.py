"""Shape, dtype, device and memory layout of a tensor, read from its array."""

import operator
from typing import TYPE_CHECKING, overload

from ..autograd import Value


class Attributes(Value):
    """The part of Tensor that describes it, under PyTorch's names."""

    __slots__ = ()

    if not TYPE_CHECKING:  # Value declares their types
        shape = property(operator.attrgetter("array.shape"), doc="The sizes of the dims, a tuple of ints.")
        dtype = property(operator.attrgetter("array.dtype"), doc="The kind of the elements, as minigrad.float32.")
        ndim = property(operator.attrgetter("array.ndim"), doc="The number of dims.")
        device = property(operator.attrgetter("storage.backend.device"), doc="'cpu' or 'cuda', a minigrad.device.")

    @overload
    def size(self) -> tuple[int, ...]: ...
    @overload
    def size(self, dim: int) -> int: ...
    def size(self, dim: int | None = None) -> tuple[int, ...] | int:
        """Return the shape, or the size of one dim. Raises IndexError for a dim that is not there."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Return the number of dims."""
        return self.ndim

    ndimension = dim

    def numel(self) -> int:
        """Return the number of elements."""
        return int(self.array.size)

    nelement = numel

    is_sparse = False  # all tensors are dense

    @property
    def is_cuda(self) -> bool:
        """True if this is on a GPU."""
        return self.device == "cuda"

    def is_complex(self) -> bool:
        """Return False: all tensors are real."""
        return False

    @overload
    def stride(self) -> tuple[int, ...]: ...
    @overload
    def stride(self, dim: int) -> int: ...
    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """Return the distance in memory between neighbours along each dim, or along one, in elements."""
        steps = tuple(n // self.dtype.itemsize for n in self.array.strides)
        return steps if dim is None else steps[dim]

    def is_contiguous(self) -> bool:
        """Return True if the elements are stored row by row, without gaps."""
        return bool(self.array.flags.c_contiguous)

    def is_floating_point(self) -> bool:
        """Return True for float16, float32 and float64."""
        return bool(self.dtype.kind == "f")

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0])
