"""Norms, running products and counts."""

import math
from typing import Literal, overload

import numpy as np

from ...autograd import composite
from ...autograd.cases import apart, case
from ...dtypes import float16
from ...typing import Dims, DTypeLike, Operand, T
from ..args import in_dtype, many_dims, numpy_names, one_dim, require_float
from ..elementwise import abs as absolute
from ..elementwise import pow
from ..index import Gather
from ..reduce import ValuesIndices, amax, amin, sort
from ..reduce import sum as total
from ..select import where
from .index import host, new

__all__ = ["bincount", "count_nonzero", "median", "norm", "searchsorted", "unique"]


@numpy_names
@composite(
    case((3, 4)),
    case(apart((2, 3, 2)), p=1, dim=(0, 2), keepdim=True),
    case(apart((3, 4)), p=3, dim=1),
    case(apart((3, 4)), p=math.inf, dim=0),
)
def norm(input: T, p: float | str = 2, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> T:
    """y = (Σ |x|^p)^(1/p) over dim; the largest or smallest |x| for p = ±∞, how many are not 0 for p = 0

    dim: an int, several, or None for all, dropped unless keepdim. p "fro" is 2. Of x's dtype, or of x in `dtype`. The
    gradient where the norm is 0 is 0, as in PyTorch. Raises TypeError unless that is a float, and ValueError for the
    nuclear norm."""
    if p == "fro" or p is None:
        p = 2
    if isinstance(p, str):
        raise ValueError(f"norm: p is a number or 'fro', got {p!r}; minigrad has no singular values")
    input = input if dtype is None else in_dtype(input, dtype)
    require_float("norm", input)
    if input.dtype == float16:
        return norm(input.float(), p, dim, keepdim).half()
    dims = many_dims("norm", input, dim)
    size = absolute(input)
    if p == math.inf:
        return amax(size, dims, keepdim)
    if p == -math.inf:
        return amin(size, dims, keepdim)
    if p == 0:
        return total((input != 0).to(input.dtype), dims, keepdim)
    if p == 1:
        return total(size, dims, keepdim)
    if p != 2 and p < 2:  # |x|^(p - 1) is infinite at 0
        none = (input == 0).detach()
        powers = where(none, 0.0 if p > 0 else math.inf, pow(where(none, 1.0, size), p))
    else:
        powers = input * input if p == 2 else pow(size, p)
    y = total(powers, dims, keepdim)
    zero = (y == 0).detach()
    return where(zero, 0.0, pow(where(zero, 1.0, y), 1.0 / p))


@numpy_names
def count_nonzero(input: T, dim: Dims = None) -> T:
    """How many values over dim are not 0, int64. dim: an int, several, or None for all, dropped."""
    return total(input != 0, dim)


@overload
def median(input: T, dim: None = None, keepdim: bool = False) -> T: ...


@overload
def median(input: T, dim: int, keepdim: bool = False) -> ValuesIndices[T]: ...


@numpy_names
@composite(case((3, 4)), case(apart((3, 5)), dim=1, keepdim=True))
def median(input: T, dim: Dims = None, keepdim: bool = False) -> T | ValuesIndices[T]:
    """The middle value of all, the lower of two; NaN if there is one. With dim, an int that is dropped unless keepdim,
    the pair (values, indices), of x's dtype and int64.

    The gradient of the middle of all is shared by those that equal it; along a dim, the one at `indices` has it. Raises
    ValueError for a median of nothing."""
    if dim is None:
        if input.numel() == 0:
            raise ValueError(f"median of nothing: shape {input.shape}")
        middle = median(input.detach().reshape(-1), 0).values
        if input.dtype.kind != "f":
            return middle
        return amax(
            where((input == middle) | (input.isnan() & middle.isnan()), input, -math.inf)
        )  # equals share the gradient
    dim = one_dim("median", input, dim)
    if input.ndim == 0:
        return ValuesIndices(input.clone(), input.zeros_like().long())
    n = input.shape[dim]
    if n == 0:
        raise ValueError(f"median of nothing: shape {input.shape} along dim {dim}")
    values, indices = sort(input, dim)
    nans = total(input.isnan(), dim, keepdim=True)  # sorted last
    at = where(nans > 0, n - nans, (n - 1) // 2)
    found = ValuesIndices(Gather.apply(values, at, dim=dim), Gather.apply(indices, at, dim=dim))
    return found if keepdim else ValuesIndices(*(y.squeeze(dim) for y in found))


# ---------------------------------------------------------------------------------- counted on the host, no gradients


@overload
def unique(
    input: T,
    sorted: bool = True,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> T: ...


@overload
def unique(
    input: T, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> T | tuple[T, ...]: ...


@numpy_names
def unique(
    input: T, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Dims = None
) -> T | tuple[T, ...]:
    """The different values of x in ascending order, (n,), or its different slices along dim; no gradient. On the host.

    return_inverse: also where in the result each element is, int64 of x's shape (or one per slice). return_counts: also
    how often each occurs, int64 (n,). `sorted` is always true here."""
    values = host(input)
    if dim is not None:
        dim = one_dim("unique", input, dim)
    found = np.unique(values, return_inverse=return_inverse, return_counts=return_counts, axis=dim, equal_nan=False)
    if not return_inverse and not return_counts:
        return new(input, found)
    y, *more = found
    if return_inverse and dim is None:
        more[0] = more[0].reshape(values.shape)
    elif return_inverse:
        more[0] = more[0].reshape(-1)
    return (new(input, y), *(new(input, each.astype(np.int64)) for each in more))


def bincount(input: T, weights: T | None = None, minlength: int = 0) -> T:
    """How often each number occurs in the int vector x, int64; or the sums of weights, (n,) too, in their float dtype.

    The result has max(x) + 1 elements, or minlength if that is more. No gradient; on the host. Raises TypeError unless
    x is a vector of ints, and ValueError for negative ones."""
    if input.dtype.kind not in "iu" or input.ndim != 1:
        raise TypeError(f"bincount is of a vector of ints, got {input.dtype} of shape {input.shape}")
    values = host(input)
    if values.size and values.min() < 0:
        raise ValueError(f"bincount: {values.min()} is negative")
    if weights is None:
        return new(input, np.bincount(values, minlength=minlength))
    dtype = weights.dtype if weights.dtype.kind == "f" else np.float64
    return new(input, np.bincount(values, host(weights), minlength).astype(dtype))


def searchsorted(
    sorted_sequence: T,
    input: Operand,
    *,
    right: bool = False,
    side: str | None = None,
    out_int32: bool = False,
    sorter: T | None = None,
) -> T:
    """Where values would have to be put in so that the last dim stays sorted. int64, of values' shape: before their
    equals, or after them (right=True, side="right").

    sorted_sequence: (n,), or (…, n) with values (…, m); with sorter, the int Tensor that sorts it, it need not be
    sorted. out_int32: int32 instead. No gradient; on the host. Raises ValueError for other shapes, and for a side that
    is none or contradicts right."""
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ValueError(f"searchsorted: side must be 'left' or 'right' and agree with right, got {side!r} and {right}")
    side = side or ("right" if right else "left")
    rows, wanted = host(sorted_sequence), np.asarray(input if isinstance(input, (int, float)) else host(input))
    if sorter is not None:
        rows = np.take_along_axis(rows, host(sorter), -1)
    if rows.ndim == 1:
        found = np.searchsorted(rows, wanted, side)
    elif rows.ndim == 0 or wanted.ndim == 0 or rows.shape[:-1] != wanted.shape[:-1]:
        raise ValueError(f"searchsorted: rows of shape {rows.shape} do not fit values of shape {wanted.shape}")
    else:
        found = np.empty(wanted.shape, np.int64)
        for i in np.ndindex(rows.shape[:-1]):
            found[i] = np.searchsorted(rows[i], wanted[i], side)
    return new(sorted_sequence, np.asarray(found).astype(np.int32 if out_int32 else np.int64))
