"""Reading by index, and its adjoint, adding at an index; writing at an index; masks and triangles."""

import math
import operator
from typing import Any, Literal, overload

import numpy as np

from .. import dtypes
from ..autograd import Op, Storage, Value, composite
from ..autograd.arguments import check_arguments, not_a_tensor_error
from ..autograd.cases import Fixed, booleans, case, integers
from ..typing import Index, Operand, T
from .args import also_in_place, check_broadcast, one_dim, require_ints, require_mask, require_tensor
from .movement import expand_if_needed, pad, permute, reshape_if_needed
from .select import where

__all__ = [
    "gather", "index_add", "index_fill", "index_select", "masked_fill", "narrow", "nonzero", "scatter", "scatter_add",
    "tril", "triu",
]  # fmt: skip

_REPEATED = np.array([2, 0, 2])


class Getitem(Op):
    """y = x[index];   dx = zeros with dy added at index"""

    cases = [
        case((4, 3), index=(slice(1, 4, 2),)),
        case((4, 3), index=(_REPEATED,)),
        case((2, 3), index=(None, ..., 1)),
        case((4, 3), index=(_REPEATED, slice(None, None, -1))),
        case((3,), index=(np.array([True, False, True]),)),
    ]
    index: tuple[Any, ...]

    def forward(self, x, index):
        self.shape = x.shape
        return self.backend.getitem(x, index)

    def backward(self, dy: Value):
        return GetitemAdd.apply(dy, shape=self.shape, index=self.index)


class GetitemAdd(Op):
    """y = zeros of `shape` with x added at index (repeated indices add up);   dx = dy[index]"""

    cases = [case((2, 3), shape=(4, 3), index=(slice(1, 4, 2),)), case((3, 3), shape=(4, 3), index=(_REPEATED,))]
    broadcasts = True  # x broadcasts to the places that index names
    index: tuple[Any, ...]

    def forward(self, x, shape, index):
        return self.backend.getitem_add(shape, index, x)

    def backward(self, dy: Value):
        return Getitem.apply(dy, index=self.index)


class Setitem(Op):
    """y = x with value written at index;   dx = dy with zeros at index, dvalue = dy[index]

    Of repeated places, the last one counts: the others get no gradient."""

    cases = [
        case((4, 3), (2, 3), index=(slice(1, 4, 2),)),
        case((4, 3), (3,), index=(_REPEATED,)),
        case((2, 3), (), index=(..., 1)),
        case((3,), (2,), index=(np.array([True, False, True]),)),
    ]
    broadcasts = True  # value broadcasts to the places that index names
    index: tuple[Any, ...]

    def forward(self, x, value, index):
        y = self.backend.copy(x)
        self.backend.setitem(y, index, value)
        return y

    def backward(self, dy: Value):
        dx = Setitem.apply(dy, 0.0, index=self.index) if self.needs[0] else None
        dvalue = Getitem.apply(dy, index=self.index) if self.needs[1] else None
        if dvalue is not None and any(isinstance(part, np.ndarray) and part.dtype != bool for part in self.index):
            dvalue = where(dy.constant(_is_last_of_repeated(dy.shape, self.index)), dvalue, 0.0)
        return dx, dvalue


def _is_last_of_repeated(shape, index):
    """Return an array of bools, True for each element of x[index] whose place in x no later element has."""
    number = np.zeros(shape, np.int64)
    own = np.arange(number[index].size).reshape(number[index].shape)
    number[index] = own
    return number[index] == own


def setitem(input: T, index: Index, value: Operand) -> T:
    """Return a copy of x with value, a number or a Tensor of x's dtype, written at index, as getitem() takes it.

    Raises ValueError for a value that does not broadcast, and the errors of getitem()."""
    first, *rest = parse_index(input, index)
    if rest:
        value = setitem(Getitem.apply(input, index=first), rest[0], value)
    elif isinstance(value, Value) and value.ndim > 1 and value.shape[0] == 1:
        extra = value.ndim - np.broadcast_to(False, input.shape)[first].ndim
        value = value.squeeze(tuple(range(extra))) if extra > 0 else value  # NumPy ignores such dims in front
    return Setitem.apply(input, value, index=first)


def parse_index(input: Any, index: Index) -> list[tuple[Any, ...]]:
    """Return an index of input in NumPy's form: one index, or two that are applied one after the other.

    Tensors and lists become arrays, copied because what the graph keeps must not change. Raises TypeError for other
    types. Two steps are needed where PyTorch and NumPy differ: PyTorch selects by ints first, and NumPy takes an int
    beside an array for another array. PyTorch also ignores a … that stands for no dims; NumPy lets it separate
    arrays."""
    if not isinstance(index, tuple):
        return [(index if type(index) in _PLAIN else _parse_index_part(index),)]
    parts = tuple([part if type(part) in _PLAIN else _parse_index_part(part) for part in index])
    if _ARRAYS.isdisjoint(map(type, parts)):
        return [parts]
    left = input.ndim - sum(map(_dims_of, parts))
    if left == 0 and sum(part is ... for part in parts) == 1:
        parts = tuple([part for part in parts if part is not ...])
    if not any(type(part) is int for part in parts):
        return [parts]
    first: list[Any] = []
    rest: list[Any] = []
    for part in parts:
        if part is ...:
            first, rest = [*first, ...], rest + [slice(None)] * left
        elif isinstance(part, np.ndarray | bool):
            first, rest = first + [slice(None)] * _dims_of(part), [*rest, part]
        else:
            first, rest = [*first, part], rest if type(part) is int else [*rest, slice(None)]
    return [tuple(first), tuple(rest)]


def _dims_of(part):
    """Return the number of dims that a part of an index covers; 0 for …"""
    if isinstance(part, np.ndarray):
        return part.ndim if part.dtype == bool else 1
    return 0 if part is None or part is ... or type(part) is bool else 1


_PLAIN = {int, bool, type(None), type(Ellipsis)}
_ARRAYS = {np.ndarray, bool}


def _parse_index_part(part):
    """Return a part of an index as an int, a slice or an array. Raises TypeError for other types."""
    if isinstance(part, slice):
        if type(part.start) in _PLAIN and type(part.stop) in _PLAIN and type(part.step) in _PLAIN:
            return part
        return slice(*(v if v is None else operator.index(v) for v in (part.start, part.stop, part.step)))
    if isinstance(part, (int, np.integer)):
        return int(part)
    if isinstance(part, Value):
        part = part.detach().numpy()
    elif isinstance(part, np.ndarray):
        part = dtypes.plain("an index", part)
    array = np.array(part)
    if array.dtype == np.uint8 and isinstance(part, np.ndarray):
        array = array != 0  # a mask, as in PyTorch
    if array.ndim == 0 and array.dtype.kind in "iu":
        return int(array)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise TypeError(f"indices are ints, slices, None, ..., or int or bool arrays, not {array.dtype}")
    return array


def getitem(input: T, index: Index) -> T:
    """Return x[index], as in PyTorch: ints, slices, None and …, which give a view, or int or bool Tensors, arrays or
    lists, which give a copy. Of x's dtype. Tensors and arrays of uint8 are masks too.

    Raises IndexError for an index out of range or too many of them, and TypeError for another type."""
    y = _getitem_on_gpu(input, index)
    if y is not None:
        return y
    try:
        y = input
        for part in parse_index(input, index):
            y = Getitem.apply(y, index=part)
        return y
    except IndexError as error:
        raise IndexError(f"{error} (shape {input.shape})") from None


def _getitem_on_gpu(input, index):
    """Return x[index] with the index left on the GPU, for two kinds of index; None for any other, and on a CPU.

    The two are a mask of x's first dims, and x[:, …, :, i] with an int Tensor i."""
    if input.device == "cpu" or (isinstance(index, tuple) and not index):
        return None
    *colons, last = index if isinstance(index, tuple) else (index,)
    if not (isinstance(last, Value) and last.device == input.device and last.ndim and last.dtype.kind in "iub"):
        return None
    last = last.to(dtypes.bool_) if last.dtype == dtypes.uint8 else last  # a mask
    if last.dtype == dtypes.bool_:
        fits = not colons and last.shape == input.shape[: last.ndim]
        return _rows_of_mask(input, last) if fits else None
    if len(colons) >= input.ndim or any(type(part) is not slice or part != slice(None) for part in colons):
        return None
    return _slices_along(input, len(colons), last)


def _rows_of_mask(x, mask):
    """x[mask] for a mask of x's first dims: each True names a row of the rest."""
    rest, backend = x.shape[mask.ndim :], mask.storage.backend
    places = mask._wrap(backend.flatnonzero(mask.array), Storage(backend))  # the host waits for their number
    return embedding_unchecked(x.reshape(mask.numel(), math.prod(rest)), places).reshape(*places.shape, *rest)


def _slices_along(x, d, index):
    """x[:, …, :, index] for an int Tensor at dim d: dim d is moved to the front, its rows are read, and the dims of the
    index are moved back."""
    n, front = x.shape[d], permute(x, d, *range(d), *range(d + 1, x.ndim))
    y = embedding_unchecked(front.reshape(n, math.prod(front.shape[1:])), check_index("x[…]", index, n, wraps=True))
    y = y.reshape(*index.shape, *front.shape[1:])
    k = index.ndim
    return y.permute(*range(k, k + d), *range(k), *range(k + d, y.ndim)) if d else y


class Gather(Op):
    """y = x at `index` along dim;   dx = zeros with dy added at index"""

    cases = [case((3, 4), integers((3, 2), 4), dim=1), case((3, 4), integers((5, 4), 3), dim=0)]
    dim: int

    def forward(self, x, index, dim):
        self.shape = x.shape
        if x.ndim != index.ndim or any(a != b for d, (a, b) in enumerate(zip(x.shape, index.shape)) if d != dim):
            raise ValueError(f"gather along dim {dim}: index of shape {index.shape} does not fit x of shape {x.shape}")
        self.save_inputs(None, index)
        return self.backend.gather(x, dim, index)

    def backward(self, dy: Value):
        _, index = self.saved_inputs()
        return ScatterAdd.apply(dy, index, shape=self.shape, dim=self.dim), None


class ScatterAdd(Op):
    """y = zeros of `shape` with x added at `index` along dim;   dx = dy at index"""

    cases = [case((3, 2), integers((3, 2), 4), shape=(3, 4), dim=1)]
    dim: int

    def forward(self, x, index, shape, dim):
        if x.shape != index.shape:
            raise ValueError(f"scatter_add: x of shape {x.shape} and index of shape {index.shape} differ")
        self.save_inputs(None, index)
        return self.backend.scatter_add(shape, dim, index, x)

    def backward(self, dy: Value):
        _, index = self.saved_inputs()
        return Gather.apply(dy, index, dim=self.dim), None


def check_index(name, index, n, ignored=None, wraps=False, argument="index"):
    """Check an int Tensor whose values must be in [0, n) or equal to `ignored`, and return the indices to use.

    On a CPU that is index itself. On a GPU it is a copy with 0 in place of wrong values, and the host raises when it
    next waits. wraps: on a GPU, values below 0 count from n. Raises IndexError for a wrong value, and TypeError unless
    index is an int Tensor."""
    require_ints(name, argument, index)
    if n == 0 and index.numel() and ignored is None:  # a GPU would read element 0 in place of a wrong one
        raise IndexError(f"{name}: an index is out of range for size 0")

    def check(values):
        if ignored is not None:
            values = values[values != ignored]
        if values.size:
            low, high = int(values.min()), int(values.max())
            if low < -n * wraps or high >= n:
                raise IndexError(f"{name}: index {low if low < -n * wraps else high} is out of range for size {n}")

    if index.device != "cpu":
        backend = index.storage.backend
        return index._wrap(backend.check_indices(name, index.array, n, wraps, ignored, check), Storage(backend))
    check(index._host())
    return index


def gather(input: T, dim: int, index: T) -> T:
    """Return y[i][j] = x[i][index[i][j]] for dim 1, and so on. Of index's shape and x's dtype.

    index: an int Tensor with as many dims as x, at most as large as x in the dims other than dim. A Tensor without dims
    counts as a vector of one. Raises IndexError for a place that x does not have, ValueError for another shape, and
    TypeError for an index that is not an int Tensor."""
    dim = one_dim("gather", input, dim)
    index = check_index("gather", index, input.shape[dim] if input.ndim else 1)
    if 0 in (input.ndim, index.ndim):
        x, places = (reshape_if_needed(each, each.shape or (1,)) for each in (input, index))  # at least one dim
        return reshape_if_needed(Gather.apply(x, places, dim=dim), index.shape)
    if input.ndim == index.ndim and any(n < m for d, (n, m) in enumerate(zip(index.shape, input.shape)) if d != dim):
        input = getitem(input, tuple(slice(None if d == dim else n) for d, n in enumerate(index.shape)))
    return Gather.apply(input, index, dim=dim)


@composite(case((4, 3), 0, Fixed([2, 0, 2])), case((4, 3), 1, Fixed([1, 1])))
def index_select(input: T, dim: int, index: T) -> T:
    """Return a copy of the slices of x along dim that index, an int Tensor (n,), names; of size n along dim.

    Raises IndexError for a slice that x does not have, ValueError for other numbers of dims, and TypeError for another
    dtype of index."""
    dim, index = _slices("index_select", input, dim, index)
    return getitem(input, (slice(None),) * dim + (index,))


def _slices(name, x, dim, index):
    """Return (dim, index), checked: index names slices of x along dim."""
    dim = one_dim(name, x, dim)
    index = check_index(name, index, x.shape[dim] if x.ndim else 1)
    if not x.ndim or index.ndim != 1:
        raise ValueError(f"{name}: x of shape {x.shape} needs dims, and index of shape {index.shape} one")
    return dim, index


def _expanded_slices(name, x, dim, index):
    """Return (dim, index in the shape of the slices that it names), checked."""
    dim, index = _slices(name, x, dim, index)
    (n,) = index.shape
    column = reshape_if_needed(index, (n,) + (1,) * (x.ndim - 1 - dim))
    return dim, expand_if_needed(column, (*x.shape[:dim], n, *x.shape[dim + 1 :]))


@also_in_place
@composite(case((4, 3), 0, Fixed([2, 0, 2]), (3, 3)), case((4, 3), 1, Fixed([1, 1]), (4, 2), alpha=0.5))
def index_add(input: T, dim: int, index: T, source: T, *, alpha: float = 1) -> T:
    """Return a copy of x with alpha · source added to its slices along dim that index, an int Tensor (n,), names.

    source: a Tensor of x's dtype and shape, but of size n along dim. Raises IndexError for a slice that x does not
    have, ValueError for other shapes, and TypeError for other dtypes."""
    dim, places = _expanded_slices("index_add", input, dim, index)
    if source.shape != places.shape:
        raise ValueError(f"index_add: source of shape {source.shape} needs shape {places.shape}")
    return scatter_add(input, dim, places, source if alpha == 1 else source * alpha)


@also_in_place
@composite(case((4, 3), 0, Fixed([2, 0]), 2.5))
def index_fill(input: T, dim: int, index: T, value: float) -> T:
    """Return a copy of x with a number as every element of its slices along dim that index, an int Tensor (n,), names.

    Raises IndexError for a slice that x does not have, ValueError for other numbers of dims, and TypeError for another
    dtype of index."""
    dim, places = _expanded_slices("index_fill", input, dim, index)
    return scatter(input, dim, places, value)


@composite(case((3, 5), 1, 1, 3), case((3, 5), 0, -2, 2))
def narrow(input: T, dim: int, start: int, length: int) -> T:
    """Return `length` slices of x along dim from `start`, a view. Raises IndexError for slices that x does not have."""
    dim = one_dim("narrow", input, dim)
    n = input.shape[dim] if input.ndim else 0
    first = start + n if start < 0 else start
    if not 0 <= first <= first + length <= n:
        raise IndexError(f"narrow: {length} from {start} on are not within dim {dim} of shape {input.shape}")
    return getitem(input, (slice(None),) * dim + (slice(first, first + length),))


def _places(name, x, dim, index, src):
    """Return (dim, index, src) for scattering src along dim of x, with src cut to index's shape."""
    dim = one_dim(name, x, dim)
    require_tensor(name, index, "index")
    if x.ndim == 0 or x.ndim != index.ndim:
        raise ValueError(f"{name}: index of shape {index.shape} needs as many dims as x, of shape {x.shape}")
    if any(n > m for d, (n, m) in enumerate(zip(index.shape, x.shape)) if d != dim):
        raise ValueError(f"{name} along dim {dim}: index of shape {index.shape} is larger than x, of shape {x.shape}")
    index = check_index(name, index, x.shape[dim])
    if not isinstance(src, Value):
        dtypes.check_holds(name, x.dtype, src)
        values = x.constant(dtypes.plain(name, src)).to(x.dtype)
        check_broadcast(name, values, index)
        return dim, index, expand_if_needed(values, index.shape)
    if src.ndim != index.ndim or any(n > m for n, m in zip(index.shape, src.shape)):
        raise ValueError(f"{name}: index of shape {index.shape} is larger than src, of shape {src.shape}")
    if src.dtype != x.dtype:
        raise TypeError(f"{name}: x is {x.dtype} but src {src.dtype}; convert one with .to()")
    return dim, index, src if src.shape == index.shape else getitem(src, tuple(slice(n) for n in index.shape))


def _pad_to(y, shape):
    """Return y padded with zeros, or False, up to `shape`."""
    widths = [n for d in reversed(range(y.ndim)) for n in (0, shape[d] - y.shape[d])]
    return pad(y, widths) if any(widths) else y


@also_in_place
def scatter_add(input: T, dim: int, index: T, src: T) -> T:
    """Return a copy of x with src added at `index` along dim: y[index[i][j]][j] += src[i][j] for dim 0, and so on.

    index: an int Tensor. src: a number or a Tensor of x's dtype. Both have as many dims as x; index is at most as large
    as src, and as x in the other dims. Raises IndexError for a place that x does not have, ValueError for other shapes,
    and TypeError for other dtypes."""
    dim, index, src = _places("scatter_add", input, dim, index, src)
    shape = tuple(input.shape[d] if d == dim else n for d, n in enumerate(index.shape))
    return input + _pad_to(ScatterAdd.apply(src, index, shape=shape, dim=dim), input.shape)


@also_in_place
@composite(case((2, 3), 1, Fixed([[0, 2], [1, 0]]), (2, 2)), case((2, 3), 0, Fixed([[1, 0, 1]]), 0.5))
def scatter(input: T, dim: int, index: T, src: Operand) -> T:
    """y = x with src (a Tensor or a number) written at `index` along dim; of several to one place, the last stays

    y[index[i][j]][j] = src[i][j] for dim 0, and so on. Shapes, dtypes and errors are those of scatter_add. The host
    finds the places."""
    dim, index, src = _places("scatter", input, dim, index, src)
    if index.numel() == 0:
        return input.clone()
    shape = tuple(input.shape[d] if d == dim else n for d, n in enumerate(index.shape))
    order = np.arange(index.shape[dim]).reshape(-1, *(1,) * (input.ndim - 1 - dim))
    writer = np.full(shape, -1)
    np.put_along_axis(writer, index.numpy().astype(np.int64), np.broadcast_to(order, index.shape), dim)
    written = Gather.apply(src, input.constant(np.maximum(writer, 0)), dim=dim)
    return where(_pad_to(input.constant(writer >= 0), input.shape), _pad_to(written, input.shape), input)


@overload
def nonzero(input: T, as_tuple: Literal[False] = False) -> T: ...
@overload
def nonzero(input: T, as_tuple: Literal[True]) -> tuple[T, ...]: ...
@check_arguments
def nonzero(input: T, as_tuple: bool = False) -> T | tuple[T, ...]:
    """Return the places where x is not 0, int64 (n, ndim), row by row. as_tuple: as a tuple of (n,), one for each dim,
    which x[…] takes. Found on the host."""
    if as_tuple:
        return tuple(input.constant(places) for places in np.nonzero(np.atleast_1d(input.numpy(force=True))))
    return input.constant(np.argwhere(input.numpy(force=True)))


class Embedding(Op):
    """y = rows of weight (V, C) named by index (…) -> (…, C);   dweight = zeros with dy added at those rows"""

    cases = [case((5, 3), integers((2, 4), 5)), case((5, 3), integers((0,), 5))]

    def forward(self, weight, index):
        self.rows = weight.shape[0]
        self.save_inputs(None, index)
        return self.backend.take(weight, index)

    def backward(self, dy: Value):
        _, index = self.saved_inputs()
        return EmbeddingBackward.apply(dy, index, rows=self.rows), None


class EmbeddingBackward(Op):
    """dweight = zeros (rows, C) with dy (…, C) added at index (…);   ddy = the rows of ddw at index"""

    cases = [case((2, 4, 3), integers((2, 4), 5), rows=5)]

    def forward(self, dy, index, rows):
        self.save_inputs(None, index)
        flat = self.backend.reshape(index, (index.size,))
        return self.backend.take_add(rows, flat, self.backend.reshape(dy, (index.size, dy.shape[-1])))

    def backward(self, ddw: Value):
        _, index = self.saved_inputs()
        return Embedding.apply(ddw, index), None


@check_arguments
def embedding(input: T, weight: T, padding_idx: int | None = None) -> T:
    """Return the rows of weight (V, C) that input, an int Tensor (…), names: (…, C), of weight's dtype. padding_idx: a
    row that gets no gradient.

    Raises IndexError for a number outside of [0, V), TypeError for an input that is not an int Tensor, and ValueError
    for a weight that is not a matrix."""
    if require_tensor("embedding", weight, "weight").ndim != 2:
        raise ValueError(f"embedding: weight must be (V, C), got shape {weight.shape}")
    V = weight.shape[0]
    y = embedding_unchecked(weight, check_index("embedding", input, V, argument="input"))
    if padding_idx is None:
        return y
    if not -V <= padding_idx < V:
        raise IndexError(f"embedding: padding_idx {padding_idx} is out of range for size {V}")
    return where((input == padding_idx % V).unsqueeze(-1), y.detach(), y)


def embedding_unchecked(weight, index):
    """embedding() without a check of the indices, for those that are in range by construction."""
    return Embedding.apply(weight, index)


@also_in_place
@composite(case((3, 4), booleans((3, 4)), 2.0), case((3, 4), booleans((4,)), -1.0), case((4,), booleans((2, 1)), 0.5))
def masked_fill(input: T, mask: T, value: Operand) -> T:
    """Return x with value, a number or a Tensor, where mask, a Tensor of bool or uint8, is not 0. All are broadcast;
    dtypes are promoted.

    Raises TypeError for a mask of another dtype, and ValueError for shapes that do not broadcast."""
    if input is None:
        raise not_a_tensor_error("masked_fill", "input", input)
    mask = require_mask("masked_fill", "mask", mask)
    check_broadcast("masked_fill", input, mask, value)
    return where(mask, value, input)


class Triangle(Op):
    """y = x below (lower) or above diagonal `k` of the last two dims, 0 elsewhere;   dx = the same part of dy"""

    cases = [case((3, 4), k=0, lower=True), case((2, 4, 3), k=1, lower=False)]
    k: int
    lower: bool

    def forward(self, x, k, lower):
        backend = self.backend
        rows = backend.from_numpy(np.arange(x.shape[-2])[:, None] + k)
        columns = backend.from_numpy(np.arange(x.shape[-1]))
        is_inside = (backend.ge if lower else backend.le)(rows, columns)
        return backend.where(is_inside, x, x.dtype.type(0))

    def backward(self, dy: Value):
        return Triangle.apply(dy, k=self.k, lower=self.lower)


def _triangle(name, x, diagonal, lower):
    """tril or triu, checked."""
    if x.ndim < 2:
        raise ValueError(f"{name} needs at least two dims, got shape {x.shape}")
    return Triangle.apply(x, k=diagonal, lower=lower)


@also_in_place
@check_arguments
def tril(input: T, diagonal: int = 0) -> T:
    """Return the lower triangle of the last two dims, up to `diagonal` (0: the main one), with zeros above. A copy. Of
    x's shape and dtype. Raises ValueError for fewer than two dims."""
    return _triangle("tril", input, diagonal, True)


@also_in_place
@check_arguments
def triu(input: T, diagonal: int = 0) -> T:
    """Return the upper triangle of the last two dims, from `diagonal` (0: the main one), with zeros below. A copy. Of
    x's shape and dtype. Raises ValueError for fewer than two dims."""
    return _triangle("triu", input, diagonal, False)
