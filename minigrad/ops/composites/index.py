"""Places by index: where values are, writing them there, adding to them."""

import math
from typing import Literal, overload

import numpy as np

from ... import dtypes
from ...autograd import Value, composite
from ...autograd.cases import Fixed, booleans, case
from ...typing import Operand, T
from ..args import one_dim, promoted
from ..index import Gather, ScatterAdd, checked_index, getitem, host, places_of
from ..movement import expanded, pad, reshape
from ..select import where

__all__ = [
    "argwhere", "index_add", "index_copy", "index_fill", "isin", "masked_select", "nonzero", "scatter",
    "scatter_add", "take", "take_along_dim",
]  # fmt: skip


def new(x, array):
    """A host array as a Tensor on x's device."""
    return x.constant(array)


@overload
def nonzero(input: T, as_tuple: Literal[False] = False) -> T: ...


@overload
def nonzero(input: T, as_tuple: Literal[True]) -> tuple[T, ...]: ...


def nonzero(input: T, as_tuple: bool = False) -> T | tuple[T, ...]:
    """Where x is not 0, int64 (n, ndim), row by row. as_tuple: an index for each dim, (n,), as x[…] takes them. On the
    host."""
    if as_tuple:
        return tuple(new(input, places) for places in np.nonzero(np.atleast_1d(host(input))))
    return new(input, np.argwhere(host(input)))


def argwhere(input: T) -> T:
    """Where x is not 0, int64 (n, ndim), row by row. On the host."""
    return nonzero(input)


@composite(case((3, 4), booleans((4,))))
def masked_select(input: T, mask: T) -> T:
    """The elements of x where mask (bool) is True, (n,), both broadcast. Of x's dtype. A GPU is waited for.

    Raises TypeError for a mask of another dtype, and ValueError for shapes that do not broadcast."""
    if mask.dtype != dtypes.bool_:
        raise TypeError(f"masked_select: mask must be bool, got {mask.dtype}")
    try:
        shape = np.broadcast_shapes(input.shape, mask.shape)
    except ValueError:
        raise ValueError(f"masked_select: shapes {input.shape} and {mask.shape} do not broadcast") from None
    return getitem(reshape(expanded(input, shape), math.prod(shape)), (places_of(expanded(mask, shape)),))


def take(input: T, index: T) -> T:
    """The elements of x, flattened, at the int Tensor index, which may count from the end; of its shape. Raises
    IndexError for an element that x does not have, and TypeError for an index of floats."""
    return getitem(reshape(input, input.numel()), (index,))


def take_along_dim(input: T, indices: T, dim: int | None = None) -> T:
    """gather, for which x and indices are broadcast in the other dims. dim None: of x flattened, (n,).

    Raises IndexError for a place that x does not have, ValueError for other shapes, TypeError for indices that are no
    ints."""
    if dim is None:
        return Gather.apply(
            reshape(input, input.numel()), checked_index("take_along_dim", indices, input.numel()).reshape(-1), dim=0
        )
    dim = one_dim("take_along_dim", input, dim)
    if input.ndim != indices.ndim:
        raise ValueError(f"take_along_dim: shapes {input.shape} and {indices.shape} differ in their number of dims")
    rest = np.broadcast_shapes(*(v.shape[:dim] + v.shape[dim + 1 :] for v in (input, indices)))
    input, indices = (expanded(v, (*rest[:dim], v.shape[dim], *rest[dim:])) for v in (input, indices))
    return Gather.apply(input, checked_index("take_along_dim", indices, input.shape[dim]), dim=dim)


# -------------------------------------------------------------------------------------------------- writing and adding


def _places(name, x, dim, index, src):
    """(dim, index, src) for scattering src, cut to index's shape, along dim of x. Vectors may be given as numbers."""
    dim = one_dim(name, x, dim)
    if x.ndim == 0 or x.ndim != index.ndim:
        raise ValueError(f"{name}: index of shape {index.shape} needs as many dims as x, of shape {x.shape}")
    if any(n > m for d, (n, m) in enumerate(zip(index.shape, x.shape)) if d != dim):
        raise ValueError(f"{name} along dim {dim}: index of shape {index.shape} is larger than x, of shape {x.shape}")
    index = checked_index(name, index, x.shape[dim])
    if isinstance(src, Value):
        if src.ndim != index.ndim or any(n > m for n, m in zip(index.shape, src.shape)):
            raise ValueError(f"{name}: index of shape {index.shape} is larger than src, of shape {src.shape}")
        if src.dtype != x.dtype:
            raise TypeError(f"{name}: x is {x.dtype} but src {src.dtype}; convert one with .to()")
        if src.shape != index.shape:
            src = getitem(src, tuple(slice(n) for n in index.shape))
    else:
        dtypes.check_holds(name, x.dtype, src)
        src = expanded(x.constant(src).to(x.dtype), index.shape)
    return dim, index, src


def _widened(y, shape):
    """y with zeros (False) behind its elements, as far as `shape`."""
    widths = [n for d in reversed(range(y.ndim)) for n in (0, shape[d] - y.shape[d])]
    return pad(y, widths) if any(widths) else y


def scatter_add(input: T, dim: int, index: T, src: T) -> T:
    """x with src added at `index` along dim: y[index[i][j]][j] += src[i][j] for dim 0, and so on. A copy.

    index, an int Tensor, and src, a number or a Tensor of x's dtype, have as many dims as x; index is at most as large
    as src, and as x in the other dims. Raises IndexError for a place that x does not have, ValueError for other shapes,
    and TypeError for other dtypes."""
    dim, index, src = _places("scatter_add", input, dim, index, src)
    shape = tuple(input.shape[d] if d == dim else n for d, n in enumerate(index.shape))
    return input + _widened(ScatterAdd.apply(src, index, shape=shape, dim=dim), input.shape)


@composite(case((2, 3), 1, Fixed([[0, 2], [1, 0]]), (2, 2)), case((2, 3), 0, Fixed([[1, 0, 1]]), 0.5))
def scatter(input: T, dim: int, index: T, src: "Operand | None" = None, *, value: float | None = None) -> T:
    """y = x with src (a Tensor or a number) written at `index` along dim; of several to one place, the last stays

    y[index[i][j]][j] = src[i][j] for dim 0, and so on; shapes, dtypes and errors are those of scatter_add. The places
    are found on the host. value: a number for src. Raises TypeError for both or neither."""
    if (src is None) == (value is None):
        raise TypeError("scatter takes src or value")
    src = value if src is None else src
    dim, index, src = _places("scatter", input, dim, index, src)
    if index.numel() == 0:
        return input.clone()
    shape = tuple(input.shape[d] if d == dim else n for d, n in enumerate(index.shape))
    order = np.arange(index.shape[dim]).reshape(-1, *(1,) * (input.ndim - 1 - dim))
    writer = np.full(shape, -1)
    np.put_along_axis(writer, host(index).astype(np.int64), np.broadcast_to(order, index.shape), dim)
    written = Gather.apply(src, new(input, np.maximum(writer, 0)), dim=dim)
    return where(_widened(new(input, writer >= 0), input.shape), _widened(written, input.shape), input)


def _slices(name, x, dim, index, src):
    """index and src of slices along dim of x, as scatter wants them."""
    if not isinstance(index, Value) or index.ndim > 1 or x.ndim == 0:
        raise ValueError(f"{name}: index must be a vector, and x no number; got {getattr(index, 'shape', index)}")
    dim, index = one_dim(name, x, dim), reshape(index, index.numel())
    shape = (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :])
    if isinstance(src, Value) and src.shape != shape:
        raise ValueError(f"{name} along dim {dim}: the source must have shape {shape}, got {src.shape}")
    column = reshape(index, index.numel(), *(1,) * (x.ndim - 1 - dim))
    return dim, expanded(column, shape), src


@composite(case((3, 2), 0, Fixed([2, 0, 2]), (3, 2), alpha=0.5))
def index_add(input: T, dim: int, index: T, source: T, *, alpha: float = 1) -> T:
    """y = x with alpha times the slices of source added at the places `index`, (n,), of dim

    source, of x's dtype, has n slices there, and x's sizes in the other dims; index holds ints. Raises IndexError for a
    place that x does not have, ValueError for other shapes, and TypeError for other dtypes."""
    dim, index, source = _slices("index_add", input, dim, index, source)
    return scatter_add(input, dim, index, source if alpha == 1 else source * alpha)


@composite(case((3, 2), 0, Fixed([2, 0]), (2, 2)))
def index_copy(input: T, dim: int, index: T, source: T) -> T:
    """y = x with the slices of source in the places `index`, (n,), of dim; of several for one place, the last stays

    Shapes, dtypes and errors are those of index_add. The places are found on the host."""
    return scatter(input, *_slices("index_copy", input, dim, index, source))


@composite(case((3, 2), 0, Fixed([2, 0]), 0.5))
def index_fill(input: T, dim: int, index: T, value: T) -> T:
    """y = x with a number, or a tensor of no dims, in the slices `index`, (n,), of dim

    Of x's shape and dtype. Raises IndexError for a slice that x does not have, ValueError for an index of other dims,
    and TypeError for one that holds no ints."""
    if isinstance(value, Value):
        if value.ndim:
            raise ValueError(f"index_fill: value must be a number or have no dims, got shape {value.shape}")
        dim, index, _ = _slices("index_fill", input, dim, index, None)
        return scatter(input, dim, index, expanded(value.to(input.dtype), index.shape))
    return scatter(input, *_slices("index_fill", input, dim, index, value))


def isin(elements: T, test_elements: Operand, *, assume_unique: bool = False, invert: bool = False) -> T:
    """Which elements are among the test elements, or are not, with invert: bool, of elements' shape. One of the two may
    be a number. assume_unique changes nothing."""
    elements, test_elements = promoted("isin", elements, test_elements)
    if not isinstance(elements, Value):
        elements = test_elements.constant(elements)
    if not isinstance(test_elements, Value):
        test_elements = elements.constant(test_elements)
    shape = elements.shape
    found = (elements.reshape(-1, 1) == test_elements.reshape(1, -1)).any(1).reshape(shape)
    return ~found if invert else found
