"""Reductions over any dims, cumulative sums and orderings.

`dim` is an int, several, or None for all. It is dropped, or with keepdim left at size 1. A dim that x does not have
raises IndexError, and one that is named twice ValueError."""

import math
from typing import Generic, NamedTuple, overload

import numpy as np

from ..autograd import Op, Value, composite
from ..autograd.arguments import check_arguments
from ..autograd.cases import Fixed, apart, case, integers
from ..dtypes import float16, int64
from ..typing import Dims, DTypeLike, T
from .args import also_in_place, many_dims, one_dim, require_float, require_tensor, returns_functions_like
from .elementwise import abs, pow, with_docs_of
from .index import Gather, narrow
from .movement import cat, expand_if_needed, reshape, reshape_if_needed, split, transpose
from .select import maximum, minimum, where

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "cumprod", "cumsum", "logsumexp", "max", "mean", "min",
    "norm", "prod", "searchsorted", "sort", "std", "sum", "topk", "var",
]  # fmt: skip


class ValuesIndices(NamedTuple, Generic[T]):
    """Two Tensors: what sort and topk return, and max and min with dim=."""

    values: T
    indices: T


def _shape_with_ones(shape, dims):
    """Return `shape` with size 1 in each of dims: the shape of a reduction with keepdim=True."""
    return tuple(1 if d in dims else n for d, n in enumerate(shape))


class Sum(Op):
    """y = Σ x over dims;   dx = dy, repeated"""

    cases = [
        case((3, 4), dims=(0, 1), keepdim=False),
        case((2, 3, 4), dims=(0, 2), keepdim=True),
        case((0, 3), dims=(0,), keepdim=False),
    ]
    dims: tuple[int, ...]

    def forward(self, x, dims, keepdim):
        self.shape = x.shape
        return self.backend.sum(x, dims, keepdim)

    def backward(self, dy: Value):
        return expand_if_needed(reshape_if_needed(dy, _shape_with_ones(self.shape, self.dims)), self.shape)


@composite(case((3, 4)), case((2, 3, 4), dim=(0, 2), keepdim=True))
def mean(input: T, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> T:
    """y = Σ x / n over dim: an int, several, or None for all, dropped unless keepdim

    Of x's dtype, or of `dtype`, to which x is cast first; float16 is summed in float32. The mean of no elements is NaN.
    Raises TypeError unless that is a float."""
    input = input if dtype is None else input.to(dtype)
    require_float("mean", input)
    if input.dtype == float16:
        return mean(input.float(), dim, keepdim).half()
    dims = many_dims("mean", input, dim)
    return _divide_by_count(Sum.apply(input, dims=dims, keepdim=keepdim), _count(input, dims))


def _count(x, dims):
    """Return the number of elements along dims."""
    return math.prod(x.shape[d] for d in dims)


def _divide_by_count(x, n):
    """Return x / max(n, 0): ±∞ or NaN if there are too few elements."""
    return x / (n if n > 0 else 0)


class Amax(Op):
    """y = max x over dims;   dy is shared evenly among the places where x is the maximum"""

    cases = [case(apart((3, 4)), dims=(0, 1), keepdim=False), case(apart((2, 3, 4)), dims=(0, 2), keepdim=True)]

    primitive_name = "max"
    dims: tuple[int, ...]

    def forward(self, x, dims, keepdim):
        self.save_inputs(x)
        return self.save_output(getattr(self.backend, self.primitive_name)(x, dims, keepdim))

    def backward(self, dy: Value):
        (x,) = self.saved_inputs()
        kept = _shape_with_ones(x.shape, self.dims)
        if 0 in x.shape:
            return expand_if_needed(reshape_if_needed(dy, kept), x.shape)
        ties = x == reshape_if_needed(self.saved_output(), kept)
        count_dtype = "float32" if dy.dtype == "float16" else dy.dtype  # float16 ends at 65504
        n = ties.to(count_dtype).sum(self.dims, keepdim=True)  # 0 where y is NaN; 0 / 0 makes the gradient NaN too
        return where(ties, reshape_if_needed(dy, kept) / n, 0.0 / n).to(dy.dtype)  # not dy times 0: dy may be infinite


class Amin(Amax):
    """y = min x over dims;   dy is shared evenly among the places where x is the minimum"""

    primitive_name = "min"


class Any(Op):
    """y = True if any x over dims is not 0;   no gradient"""

    cases = [case(integers((3, 4), 2), dims=(1,), keepdim=False)]
    differentiable = False

    def forward(self, x, dims, keepdim):
        return getattr(self.backend, self.name)(x, dims, keepdim)


class All(Any):
    """y = True if no x over dims is 0;   no gradient"""


class Argmax(Op):
    """y = the index of the largest x along dim, int64;   no gradient"""

    cases = [case((3, 4), dim=1, keepdim=False)]
    differentiable = False

    def forward(self, x, dim, keepdim):
        return getattr(self.backend, self.name)(x, dim, keepdim)


class Argmin(Argmax):
    """y = the index of the smallest x along dim, int64;   no gradient"""


# ------------------------------------------------------------------------------------------------- sums and the largest


def _dims_signature(input: T, dim: Dims = None, keepdim: bool = False) -> T:
    return input


def _dim_signature(input: T, dim: int | None = None, keepdim: bool = False) -> T:
    return input


@overload
def _all_or_dim_signature(input: T, dim: None = None, keepdim: bool = False) -> T: ...
@overload
def _all_or_dim_signature(input: T, dim: int, keepdim: bool = False) -> ValuesIndices[T]: ...
def _all_or_dim_signature(input: T, dim: int | None = None, keepdim: bool = False) -> T | ValuesIndices[T]:
    return input


def _check_not_empty(name, x, dims):
    """Raise ValueError if x has no elements along dims."""
    if 0 in (x.shape[d] for d in dims):
        raise ValueError(f"{name} of no elements: shape {x.shape} has size 0 in dim {dims}")


@returns_functions_like(_dims_signature)
def _reduction(op, about, empty_ok=True):
    """Return the public function of an op that reduces any dims. empty_ok: it is defined for no elements."""
    name = op.name

    def function(input: T, dim: Dims = None, keepdim: bool = False) -> T:
        dims = many_dims(name, input, dim)
        if not empty_ok:
            _check_not_empty(name, input, dims)
        return op.apply(input, dims=dims, keepdim=keepdim)

    about = f"dim: an int, several, or None for all, dropped unless keepdim. {about}"
    return check_arguments(with_docs_of(op, function, about))


@returns_functions_like(_dim_signature)
def _arg_reduction(op, about):
    """Return the public function of an op that finds an index along one dim."""
    name = op.name

    def function(input: T, dim: int | None = None, keepdim: bool = False) -> T:
        if dim is not None and input.ndim:
            dim = one_dim(name, input, dim)
            _check_not_empty(name, input, (dim,))
            return op.apply(input, dim=dim, keepdim=keepdim)
        if dim is not None:
            one_dim(name, input, dim)
        _check_not_empty(name, input, tuple(range(input.ndim)))
        y = op.apply(input.reshape(-1), dim=0, keepdim=False)
        return y.reshape((1,) * input.ndim) if keepdim else y

    about = f"Of ties, the first. dim: an int, dropped unless keepdim, or None for x flattened. {about}"
    return check_arguments(with_docs_of(op, function, about))


@returns_functions_like(_all_or_dim_signature)
def _extreme(name, over_all, arg, elementwise, adjective):
    """Return max or min: over all elements a value, along a dim the pair of values and indices."""

    def function(input: T, dim: int | None = None, keepdim: bool = False) -> T | ValuesIndices[T]:
        if isinstance(dim, Value):  # PyTorch's max(a, b)
            return elementwise(input, dim)
        if dim is None:
            return over_all(input, None, keepdim)
        if require_tensor(name, input).ndim == 0:
            return ValuesIndices(input.clone(), arg(input, dim))
        dim = one_dim(name, input, dim)
        indices = arg(input, dim, keepdim=True)
        result = ValuesIndices(Gather.apply(input, indices, dim=dim), indices)
        return result if keepdim else ValuesIndices(*(y.squeeze(dim) for y in result))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Return the {adjective} element of all; ties share the gradient. Of x's dtype.

    With dim, an int that is dropped unless keepdim: the pair (values, indices), of x's dtype and int64; of ties, the
    first gets the gradient. {name}(a, b) of two Tensors is {elementwise.__name__}(a, b). Raises ValueError for no
    elements."""
    return composite(case(apart((3, 4))), case(apart((3, 4)), dim=1, keepdim=True))(function)


@check_arguments
def sum(input: T, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> T:
    """y = Σ x over dim;   dx = dy

    dim: an int, several, or None for all, dropped unless keepdim. Of x's dtype, or of `dtype`, to which x is cast
    first; integers and bools sum to int64. The sum of no elements is 0."""
    input = input if dtype is None else input.to(dtype)
    return Sum.apply(input, dims=many_dims("sum", input, dim), keepdim=keepdim)


any, all = _reduction(Any, "bool."), _reduction(All, "bool.")
amax = _reduction(Amax, "Of x's dtype; NaN if there is one. Raises ValueError for no elements.", empty_ok=False)
amin = _reduction(Amin, "Of x's dtype; NaN if there is one. Raises ValueError for no elements.", empty_ok=False)
argmax = _arg_reduction(Argmax, "That of a NaN if there is one. Raises ValueError for no elements.")
argmin = _arg_reduction(Argmin, "That of a NaN if there is one. Raises ValueError for no elements.")
max = _extreme("max", amax, argmax, maximum, "largest")
min = _extreme("min", amin, argmin, minimum, "smallest")


@composite(case((5,)), case(Fixed([[2.0, 0.0, -1.5], [0.0, 0.0, 3.0]]), dim=1), case((2, 4, 3), dim=1, keepdim=True))
def prod(input: T, dim: int | None = None, keepdim: bool = False) -> T:
    """y = Π x over dim;   dx_i = dy Π_{j ≠ i} x_j, right also where some x are 0

    dim: an int, dropped unless keepdim, or None for all. Of x's dtype; integers and bools multiply to int64. The
    product of no elements is 1."""
    if dim is None:
        y = prod(reshape(input, -1), 0)
        return y.reshape((1,) * input.ndim) if keepdim else y
    x = require_tensor("prod", input) if input.dtype.kind == "f" else input.to(int64)
    dim = one_dim("prod", x, dim)
    x = transpose(x, dim, -1).unsqueeze(-1) if x.ndim else reshape(x, 1, 1)  # (…, n, 1)
    while x.shape[-2] > 1:  # halves multiply each other: log2(n) products
        half = x.shape[-2] // 2
        halves = x[..., :half, :] * x[..., half : 2 * half, :]
        x = halves if x.shape[-2] == 2 * half else cat([halves, x[..., 2 * half :, :]], -2)
    y = x.squeeze(-2) if x.shape[-2] else x.sum(-2) + 1  # (…, 1)
    y = transpose(y, dim, -1) if input.ndim else y
    return y if keepdim and input.ndim else y.squeeze(dim)


@composite(case((3, 4)), case((2, 3, 4), dim=(0, 2), keepdim=True), case((5,), dim=0, correction=0))
def var(
    input: T, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *, correction: int | None = None
) -> T:
    """y = Σ (x - mean)² / (n - correction) over dim: an int, several, or None for all, dropped unless keepdim

    correction is 1 by default, which makes the estimate unbiased, and 0 with unbiased=False; var(x, False) is PyTorch's
    short form of that. The denominator is at least 0. Of x's dtype. Raises TypeError unless that is a float."""
    require_float("var", input)
    if isinstance(dim, bool):
        unbiased, dim = dim, None
    correction = int(unbiased) if correction is None else correction
    if input.dtype == float16:
        return var(input.float(), dim, True, keepdim, correction=correction).half()
    dims = many_dims("var", input, dim)
    centred = input - mean(input, dims, keepdim=True)
    return _divide_by_count(Sum.apply(centred * centred, dims=dims, keepdim=keepdim), _count(input, dims) - correction)


@composite(case((3, 4)), case((2, 3, 4), dim=(0, 2), keepdim=True))
def std(
    input: T, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *, correction: int | None = None
) -> T:
    """y = √var(x)

    Shapes, dtypes, options and errors are those of var. The gradient is 0 where the variance is 0, as in PyTorch."""
    require_float("std", input)
    y = var(input, dim, unbiased, keepdim, correction=correction)
    constant = y == 0
    return y.masked_fill(constant, 1.0).sqrt().masked_fill(constant, 0.0)


@composite(
    case((3, 4)),
    case(apart((2, 3, 2)), p=1, dim=(0, 2), keepdim=True),
    case(apart((3, 4)), p=3, dim=1),
    case(apart((3, 4)), p=math.inf, dim=0),
)
def norm(input: T, p: float | str | None = 2, dim: Dims = None, keepdim: bool = False) -> T:
    """y = (Σ |x|^p)^(1/p) over dim, for p ≥ 1; the largest |x| for p = ∞. None and 'fro' stand for p = 2.

    dim: an int, several, or None for all, dropped unless keepdim. Of x's dtype. The gradient is 0 where the norm is 0,
    as in PyTorch. Raises TypeError unless x holds floats, and ValueError for another p."""
    require_float("norm", input)
    p = 2 if p in (None, "fro") else p
    if not isinstance(p, (int, float)) or not p >= 1:
        raise ValueError(f"norm: p must be a number, at least 1, got {p!r}")
    if input.dtype == float16:
        return norm(input.float(), p, dim, keepdim).half()
    if p == math.inf:
        return amax(abs(input), dim, keepdim)
    y = sum(input * input if p == 2 else pow(abs(input), p), dim, keepdim)
    zero = (y == 0).detach()
    return where(zero, 0.0, pow(where(zero, 1.0, y), 1.0 / p))


class Logsumexp(Op):
    """y = ln Σ e^x along dim;   dx = dy softmax(x)

    Over a slice that is all -∞, y is -∞ and dx 0. For dx, an x of ∞ counts as the largest number."""

    cases = [case((3, 4), dim=1), case((2, 3, 2), dim=0)]
    dim: int

    def forward(self, x, dim):
        self.save_inputs(x)
        return self.backend.logsumexp(x, dim)

    def backward(self, dy: Value):
        (x,) = self.saved_inputs()
        return dy * x.clamp(max=float(np.finfo(x.dtype).max)).softmax(self.dim)


@check_arguments
def logsumexp(input: T, dim: Dims, keepdim: bool = False) -> T:
    """Return ln Σ e^x over dim, without overflow. dim: an int or several, dropped unless keepdim. Of x's dtype. Raises
    TypeError unless that is a float."""
    require_float("logsumexp", input)
    dims = many_dims("logsumexp", input, dim)
    rest = tuple(d for d in range(input.ndim) if d not in dims)
    if len(dims) == 1:
        y = Logsumexp.apply(input, dim=dims[0])
    else:
        rows = reshape_if_needed(input.permute(rest + dims), (*(input.shape[d] for d in rest), _count(input, dims)))
        y = Logsumexp.apply(rows, dim=rows.ndim - 1)
    return reshape_if_needed(y, _shape_with_ones(input.shape, dims) if keepdim else tuple(input.shape[d] for d in rest))


class Cumsum(Op):
    """y_i = Σ_{j ≤ i} x_j along dim;   dx_j = Σ_{i ≥ j} dy_i   (reverse: from the end)"""

    cases = [case((3, 4), dim=1, reverse=False), case((3, 4), dim=0, reverse=True)]
    dim: int
    reverse: bool

    def forward(self, x, dim, reverse):
        return self.backend.cumsum(x, dim, reverse)

    def backward(self, dy: Value):
        return Cumsum.apply(dy, dim=self.dim, reverse=not self.reverse)


@also_in_place
@check_arguments
def cumsum(input: T, dim: int, dtype: DTypeLike | None = None) -> T:
    """Return the running sum along dim: y_i = Σ_{j ≤ i} x_j. Of x's shape and dtype, or `dtype`, to which x is cast
    first; integers and bools give int64."""
    input = input if dtype is None else input.to(dtype)
    dim = one_dim("cumsum", input, dim)
    return Cumsum.apply(input, dim=dim, reverse=False) if input.ndim else input.clone()


@also_in_place
@composite(case((5,), dim=0), case(Fixed([[2.0, 0.0, -1.5], [0.0, 0.0, 3.0]]), dim=1), case((2, 4, 3), dim=1))
def cumprod(input: T, dim: int, dtype: DTypeLike | None = None) -> T:
    """Return the running product along dim: y_i = Π_{j ≤ i} x_j. Its gradient is right also where some x are 0.

    Of x's shape and dtype, or `dtype`, to which x is cast first; integers and bools give int64."""
    x = input if dtype is None else input.to(dtype)
    x = x if x.dtype.kind == "f" else x.to(int64)
    dim, shift = one_dim("cumprod", x, dim), 1
    if x.ndim == 0:
        return x.clone()
    while shift < x.shape[dim]:  # each y_i is multiplied by the product of the `shift` numbers before: log2(n) products
        first, rest = split(x, [shift, x.shape[dim] - shift], dim)
        x = cat([first, rest * narrow(x, dim, 0, x.shape[dim] - shift)], dim)
        shift *= 2
    return x if shift > 1 else x.clone()


@check_arguments
def searchsorted(sorted_sequence: T, input: T, *, right: bool = False) -> T:
    """Return how many numbers of a sorted row are below each value, or with `right` at most as large: int64.

    sorted_sequence: (n,), and values of any shape, or (…, n) and (…, m), a row of values for each row. Each value is
    compared with each number of its row. Raises ValueError for other shapes."""
    row, values = (
        require_tensor("searchsorted", sorted_sequence, "sorted_sequence"),
        require_tensor("searchsorted", input),
    )
    if row.ndim == 0 or (row.ndim > 1 and row.shape[:-1] != values.shape[:-1]):
        raise ValueError(f"searchsorted: values of shape {values.shape} do not fit rows of shape {row.shape}")
    numbers = row if row.ndim == 1 else row.unsqueeze(-2)
    column = values.unsqueeze(-1)
    return (numbers <= column if right else numbers < column).sum(-1)


class Argsort(Op):
    """y = the indices that sort x along dim, stably, int64, or the first k of them;   no gradient"""

    cases = [case((3, 4), dim=1, descending=False), case((3, 4), dim=0, descending=True, k=2)]
    differentiable = False

    def forward(self, x, dim, descending, k=None):
        return self.backend.argsort(x, dim, descending, k)


@check_arguments
def argsort(input: T, dim: int = -1, descending: bool = False, stable: bool = True) -> T:
    """Return the indices that sort x along dim, int64, of x's shape. NaN is the largest. Ties keep their order,
    whatever `stable` says."""
    dim = one_dim("argsort", input, dim)
    if not input.ndim:
        return reshape_if_needed(Argsort.apply(reshape_if_needed(input, (1,)), dim=0, descending=descending), ())
    return Argsort.apply(input, dim=dim, descending=descending)


@composite(case((3, 4)), case(apart((3, 4)), dim=0, descending=True))
def sort(input: T, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices[T]:
    """Return the pair (values, indices), sorted along dim. Both have x's shape; the indices are int64. NaN is the
    largest.

    Ties keep their order, whatever `stable` says. Gradients go to the elements that the values come from."""
    indices = argsort(input, dim, descending)
    return ValuesIndices(_at(input, dim, indices), indices)


@composite(case((3, 5), k=2), case((3, 5), k=3, dim=0, largest=False))
def topk(input: T, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices[T]:
    """Return the pair (values, indices) of the k largest (or smallest) along dim, of size k there. The indices are
    int64.

    The result is sorted, and ties keep their order, whatever `sorted` says. NaN is the largest. Raises ValueError if
    there are not k elements."""
    dim = one_dim("topk", input, dim)
    n = input.shape[dim] if input.ndim else 1
    if not 0 <= k <= n:
        raise ValueError(f"topk: k = {k} of {n} elements along dim {dim}")
    indices = Argsort.apply(input, dim=dim, descending=largest, k=k) if input.ndim else argsort(input)
    return ValuesIndices(_at(input, dim, indices), indices)


def _at(x, dim, indices):
    """x.gather(dim, indices) without a check of the indices, which are in range by construction."""
    return Gather.apply(x, indices, dim=one_dim("sort", x, dim)) if x.ndim else x.clone()
