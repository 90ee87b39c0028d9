"""Ops that move elements and compute nothing. They return views where NumPy does; views share one version counter.

A view is a value of its own in the graph, with its own gradient and hooks, even if it has the same shape as x. The
functions that end in _if_needed return x itself if nothing changes. They are for values that no user sees, as in a
backward."""

import math
from collections.abc import Sequence
from typing import Any

from ..autograd import Op, Value, composite
from ..autograd.arguments import check_arguments, not_a_tensor_error
from ..autograd.cases import case
from ..backend.launch.movement import has_view
from ..dtypes import check_holds
from ..typing import Dims, Size, T
from .args import SEVERAL, many_dims, one_dim, promote, require_tensor, shape_of

__all__ = [
    "cat", "chunk", "clone", "concat", "diagonal", "flatten", "flip", "meshgrid", "permute", "repeat_interleave",
    "reshape", "roll", "split", "squeeze", "stack", "t", "transpose", "unbind", "unsqueeze",
]  # fmt: skip


class Alias(Op):
    """y = x, the same memory, as a new value of the graph;   dx = dy"""

    cases = [case((3, 4))]

    def forward(self, x):
        return x

    def backward(self, dy: Value):
        return dy


def alias(input: T) -> T:
    """Return x as a new value in the graph, with the same memory, shape and dtype."""
    return Alias.apply(input)


class Clone(Op):
    """y = a copy of x;   dx = dy"""

    cases = [case((3, 4)), case(())]

    def forward(self, x):
        return self.backend.copy(x)

    def backward(self, dy: Value):
        return dy


@check_arguments
def clone(input: T) -> T:
    """Return a contiguous copy of x with memory of its own. Of x's shape and dtype; gradients flow through."""
    return Clone.apply(input)


@check_arguments
def contiguous(input: T) -> T:
    """Return x if it is contiguous, else a contiguous copy."""
    return input if input.is_contiguous() else Clone.apply(input)


class Reshape(Op):
    """y = x in another shape;   dx = dy in x's shape"""

    cases = [case((3, 4), shape=(2, 6)), case((1,), shape=()), case((2, 0), shape=(0, 5))]

    def forward(self, x, shape):
        self.shape_before = x.shape
        return self.backend.reshape(x, shape)

    def backward(self, dy: Value):
        return reshape_if_needed(dy, self.shape_before)


def reshape(input: T, *shape: Size) -> T:
    """Return x in another shape with as many elements; one size may be -1. A view if the memory layout allows, else a
    copy. Raises ValueError for another number of elements."""
    return Reshape.apply(input, shape=_shape_for("reshape", input, shape))


def reshape_if_needed(x, shape):
    """Return x in another shape with as many elements, unchecked; x itself if it has that shape."""
    return x if x.shape == shape else Reshape.apply(x, shape=shape)


def _shape_for(name, x, sizes):
    """Return the shape that f(x, *sizes) asks for; one size may be -1."""
    if not isinstance(x, Value):
        raise not_a_tensor_error(name, "input", x)
    shape = shape_of(name, sizes)
    if -1 in shape:
        rest = math.prod(size for size in shape if size != -1)
        if shape.count(-1) > 1 or rest == 0 or x.numel() % rest:
            raise ValueError(f"{name}: the -1 in {shape} cannot be inferred for shape {x.shape}")
        shape = tuple(x.numel() // rest if size == -1 else size for size in shape)
    if math.prod(shape) != x.numel() or min(shape, default=0) < 0:
        raise ValueError(f"{name}: {x.numel()} elements of shape {x.shape} do not fit shape {shape}")
    return shape


def view(input: T, *shape: Size) -> T:
    """Like reshape, but never a copy. Raises RuntimeError if the memory layout does not allow a view of that shape, and
    ValueError for another number of elements."""
    shape = _shape_for("view", input, shape)
    if not has_view(input.shape, input.array.strides, shape):
        raise RuntimeError(f"view: the strides of this {input.shape} allow no view of shape {shape}; use reshape")
    return Reshape.apply(input, shape=shape)


@composite(case((2, 3, 4)), case((2, 3, 4), start_dim=1), case(()))
def flatten(input: T, start_dim: int = 0, end_dim: int = -1) -> T:
    """Return x with the dims start_dim to end_dim (inclusive) merged into one; without dims, (1,). A view if the memory
    layout allows, else a copy. Raises ValueError if end_dim comes first."""
    start, end = one_dim("flatten", input, start_dim), one_dim("flatten", input, end_dim)
    if start > end:
        raise ValueError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    return reshape(input, *input.shape[:start], math.prod(input.shape[start : end + 1]), *input.shape[end + 1 :])


@composite(case((2, 1, 3, 1)), case((2, 1, 3, 1), dim=1), case((2, 3), dim=0))
def squeeze(input: T, dim: Dims = None) -> T:
    """Return x without its dims of size 1; with `dim` (one or several), without those of them. A view."""
    dims = many_dims("squeeze", input, dim) if dim != () else ()
    return reshape(input, tuple(n for d, n in enumerate(input.shape) if n != 1 or d not in dims))


@composite(case((2, 3), dim=1), case((), dim=-1))
def unsqueeze(input: T, dim: int) -> T:
    """Return x with a new dim of size 1 at position dim, from -ndim - 1 to ndim. A view. Raises IndexError for
    others."""
    dim = one_dim("unsqueeze", input, dim, new=1)
    return reshape(input, *input.shape[:dim], 1, *input.shape[dim:])


class Permute(Op):
    """y = x with its dims in the order `dims`;   dx = dy in the inverse order"""

    cases = [case((2, 3, 4), dims=(2, 0, 1)), case((3, 4), dims=(1, 0))]
    dims: tuple[int, ...]

    def forward(self, x, dims):
        return self.backend.permute(x, dims)

    def backward(self, dy: Value):
        inverse = [0] * len(self.dims)
        for position, d in enumerate(self.dims):
            inverse[d] = position
        return Permute.apply(dy, dims=tuple(inverse))


def permute(input: T, dims: Size = (), *more: int) -> T:
    """Return x with its dims in another order: dim i of the result is dim dims[i] of x. A view. Raises ValueError
    unless each dim is named once."""
    named = shape_of("permute", (dims, *more))
    order = tuple(one_dim("permute", input, d) for d in named)
    if sorted(order) != list(range(input.ndim)):
        raise ValueError(f"permute: {named} does not name each dim of shape {input.shape} once")
    return Permute.apply(input, dims=order)


def permute_if_needed(x, dims):
    """Return x with its dims in that order, unchecked; x itself if they are in that order."""
    return x if dims == tuple(range(len(dims))) else Permute.apply(x, dims=dims)


def transpose(input: T, dim0: int, dim1: int) -> T:
    """Return x with the dims dim0 and dim1 exchanged. A view."""
    if not isinstance(input, Value):
        raise not_a_tensor_error("transpose", "input", input)
    order = list(range(input.ndim))
    if input.ndim:
        a, b = one_dim("transpose", input, dim0), one_dim("transpose", input, dim1)
        order[a], order[b] = b, a
    return Permute.apply(input, dims=tuple(order))


@composite(case((3, 4)), case((3,)))
def t(input: T) -> T:
    """Return the transpose of a matrix; a Tensor of fewer dims stays as it is. A view. Raises ValueError for more
    dims."""
    if input.ndim > 2:
        raise ValueError(f"t is of at most two dims, got shape {input.shape}; use .mT or transpose(dim0, dim1)")
    return permute(input, tuple(range(input.ndim))[::-1])


class Diagonal(Op):
    """y = the elements (i, i + offset) of dims dim1 and dim2, as the last dim;   dx = zeros with dy there"""

    cases = [case((3, 4), offset=0, dim1=0, dim2=1), case((2, 3, 4), offset=1, dim1=2, dim2=0)]
    offset: int
    dim1: int
    dim2: int

    def forward(self, x, offset, dim1, dim2):
        self.shape_before = x.shape
        return self.backend.diagonal(x, offset, dim1, dim2)

    def backward(self, dy: Value):
        return OnDiagonal.apply(dy, shape=self.shape_before, offset=self.offset, dim1=self.dim1, dim2=self.dim2)


class OnDiagonal(Op):
    """y = zeros of `shape` with x as the elements (i, i + offset) of dims dim1 and dim2;   dx = that diagonal of dy"""

    cases = [
        case((3,), shape=(3, 4), offset=0, dim1=0, dim2=1),
        case((3, 1), shape=(2, 3, 4), offset=1, dim1=2, dim2=0),
    ]
    offset: int
    dim1: int
    dim2: int

    def forward(self, x, shape, offset, dim1, dim2):
        y = self.backend.zeros(shape, x.dtype)
        self.backend.setitem(self.backend.diagonal(y, offset, dim1, dim2), (...,), x)
        return y

    def backward(self, dy: Value):
        return Diagonal.apply(dy, offset=self.offset, dim1=self.dim1, dim2=self.dim2)


@check_arguments
def diagonal(input: T, offset: int = 0, dim1: int = 0, dim2: int = 1) -> T:
    """Return the elements (i, i + offset) of dims dim1 and dim2, as the last dim. (n, m) -> (min(n, m),) for offset 0.
    A view. Raises ValueError unless dim1 and dim2 are two dims."""
    dim1, dim2 = one_dim("diagonal", input, dim1), one_dim("diagonal", input, dim2)
    if input.ndim < 2 or dim1 == dim2:
        raise ValueError(f"diagonal needs two dims, got {dim1} and {dim2} of shape {input.shape}")
    return Diagonal.apply(input, offset=offset, dim1=dim1, dim2=dim2)


class Expand(Op):
    """y = x broadcast to `shape`;   dx = dy summed over the axes that were repeated"""

    cases = [case((3, 1), shape=(2, 3, 4)), case((), shape=(2,)), case((1, 4), shape=(0, 4))]
    broadcasts = True

    def forward(self, x, shape):
        return x if shape == x.shape else self.backend.expand(x, shape)  # x itself stays writeable

    def backward(self, dy: Value):
        return dy


def expand(input: T, *shape: Size) -> T:
    """Return x broadcast to a shape, without a copy; -1 keeps a size. The result is read-only, unless it has x's shape.
    Raises ValueError if x does not broadcast to it."""
    sizes = shape_of("expand", shape)
    extra = len(sizes) - input.ndim
    full = tuple(input.shape[d - extra] if n == -1 and d >= extra else n for d, n in enumerate(sizes))
    fits = extra >= 0 and min(full, default=0) >= 0
    if not fits or any(a not in (1, b) for a, b in zip(input.shape, full[extra:])):
        raise ValueError(f"expand: shape {input.shape} does not broadcast to {sizes}")
    return Expand.apply(input, shape=full)


def expand_if_needed(x, shape):
    """Return x broadcast to shape; x itself if it has that shape."""
    return x if x.shape == shape else expand(x, shape)


def meshgrid(*tensors: T | Sequence[T], indexing: str = "ij") -> tuple[T, ...]:
    """Return one Tensor for each vector x_k of size n_k, of shape (n_0, n_1, …): with x_k along dim k, the same along
    the other dims. Views.

    tensors: Tensors of one dim or none, or a list of them. indexing: "ij", or "xy" for the first two dims exchanged.
    Raises ValueError for more dims, and for another indexing."""
    xs: Any = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}")
    if any(require_tensor("meshgrid", x, "tensors").ndim > 1 for x in xs):
        raise ValueError(f"meshgrid needs vectors, got shapes {', '.join(str(x.shape) for x in xs)}")
    shape = tuple([x.numel() for x in xs])
    grids = [expand(reshape(x, *(-1 if d == k else 1 for d in range(len(xs)))), shape) for k, x in enumerate(xs)]
    return tuple([transpose(y, 0, 1) for y in grids] if indexing == "xy" and len(xs) > 1 else grids)


class Flip(Op):
    """y = a copy of x reversed along dims;   dx = dy reversed"""

    cases = [case((3, 4), dims=(0,)), case((2, 3, 4), dims=(0, 2))]
    dims: tuple[int, ...]

    def forward(self, x, dims):
        steps = [slice(None, None, -1 if d in dims else 1) for d in range(x.ndim)]
        return self.backend.copy(self.backend.getitem(x, (*steps, ...)))

    def backward(self, dy: Value):
        return Flip.apply(dy, dims=self.dims)


def flip(input: T, dims: Size = (), *more: int) -> T:
    """Return a copy of x reversed along dims: x.flip(0, 1) or x.flip((0, 1)). Of x's shape and dtype."""
    several = shape_of("flip", (dims, *more))
    return Flip.apply(input, dims=many_dims("flip", input, several) if several else ())


class Cat(Op):
    """y = the inputs one after the other along dim;   each dx is its part of dy"""

    cases = [case((2, 3), (4, 3), dim=0), case((2, 3), (2, 1), (2, 2), dim=1), case((2, 0), (2, 3), dim=1)]
    dim: int

    def forward(self, *xs, dim):
        self.sizes = [x.shape[dim] for x in xs]
        return self.backend.cat(xs, dim)

    def backward(self, dy: Value):
        if len(self.sizes) == 1:
            return dy
        return Split.apply(dy, sizes=tuple(self.sizes), dim=self.dim)


@check_arguments
def cat(tensors: Sequence[T], dim: int = 0) -> T:
    """Return Tensors one after the other along dim, in which alone their sizes may differ. Dtypes are promoted.

    Tensors of shape (0,) are left out. Raises ValueError if other sizes differ, and TypeError for no Tensors."""
    xs = _several("cat", tensors)
    if any(x.ndim != 1 for x in xs):
        xs = [x for x in xs if x.shape != (0,)]  # a loop that collects begins with tensor([]), and PyTorch allows that
    dim = one_dim("cat", xs[0], dim)
    rest = {x.shape[:dim] + x.shape[dim + 1 :] if x.ndim > dim else None for x in xs}
    if xs[0].ndim == 0:
        raise ValueError("cat: 0-d tensors have no dim to be joined along; use stack")
    if len(rest) != 1:
        raise ValueError(f"cat: shapes must match except along dim {dim}, got {', '.join(str(x.shape) for x in xs)}")
    return Cat.apply(*xs, dim=dim)


concat = cat


def _several(name, tensors):
    """Return a list of Tensors in one dtype. Raises TypeError for a Tensor in place of the list, and numbers in it."""
    if isinstance(tensors, Value):
        raise TypeError(f"{name} takes a list of Tensors: {name}([a, b], dim)")
    return [require_tensor(name, x, "element of tensors") for x in promote(name, *tensors)]


class Stack(Op):
    """y = the inputs side by side along a new dim;   each dx is its slice of dy"""

    cases = [case((2, 3), (2, 3), dim=0), case((2, 3), (2, 3), (2, 3), dim=2), case((), (), dim=0)]
    dim: int

    def forward(self, *xs, dim):
        return self.backend.stack(xs, dim)

    def backward(self, dy: Value):
        return Unbind.apply(dy, dim=self.dim)


@check_arguments
def stack(tensors: Sequence[T], dim: int = 0) -> T:
    """Return Tensors of one shape side by side along a new dim, at position dim. Dtypes are promoted. Raises ValueError
    for different shapes, and TypeError for no Tensors."""
    xs = _several("stack", tensors)
    if len({x.shape for x in xs}) != 1:
        raise ValueError(f"stack needs tensors of one shape, got {[x.shape for x in xs]}")
    return Stack.apply(*xs, dim=one_dim("stack", xs[0], dim, new=1))


class Unbind(Op):
    """y_0, y_1, … = the slices of x along dim, without that dim;   dx = dy_0, dy_1, … side by side"""

    cases = [case((2, 3, 4), dim=0), case((2, 3, 4), dim=1), case((1, 3), dim=0)]
    dim: int

    def forward(self, x, dim):
        before = (slice(None),) * dim
        return tuple(self.backend.getitem(x, (*before, i)) for i in range(x.shape[dim]))

    def backward(self, *dys: Value):
        return Stack.apply(*dys, dim=self.dim)


@check_arguments
def unbind(input: T, dim: int = 0) -> tuple[T, ...]:
    """Return a tuple of the slices along dim, views without that dim. Raises ValueError for a Tensor without dims."""
    dim = one_dim("unbind", input, dim)
    if input.ndim == 0:
        raise ValueError("unbind of a 0-d tensor")
    return Unbind.apply(input, dim=dim) if input.shape[dim] else ()


class Split(Op):
    """y_0, y_1, … = consecutive parts of x of the given sizes along dim;   dx = cat(dy_0, dy_1, …)"""

    cases = [case((5, 3), sizes=(2, 3), dim=0), case((2, 3), sizes=(1, 1, 1), dim=1)]
    dim: int

    def forward(self, x, sizes, dim):
        parts, start = [], 0
        for size in sizes:
            parts.append(self.backend.getitem(x, (slice(None),) * dim + (slice(start, start + size),)))
            start += size
        return tuple(parts)

    def backward(self, *dys: Value):
        return Cat.apply(*dys, dim=self.dim)


@check_arguments
def split(tensor: T, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[T, ...]:
    """Return a tuple of consecutive views along dim: of one size (the last may be smaller), or of a list of sizes.
    Raises ValueError for sizes that do not add up."""
    dim, sizes = one_dim("split", tensor, dim), shape_of("split", (split_size_or_sections,))
    if tensor.ndim == 0:
        raise ValueError("split of a 0-d tensor")
    n = tensor.shape[dim]
    if not isinstance(split_size_or_sections, SEVERAL):
        size = sizes[0]
        if size <= 0:
            raise ValueError(f"split: size must be positive, got {size}")
        sizes = tuple(min(size, n - start) for start in range(0, max(n, 1), size))
    if sum(sizes) != n or min(sizes, default=-1) < 0:
        raise ValueError(f"split: sizes {sizes} do not add up to {n}, the size of dim {dim} of shape {tensor.shape}")
    return Split.apply(tensor, sizes=sizes, dim=dim)


@composite(case((5, 3), chunks=2), case((2, 6), chunks=3, dim=1))
def chunk(input: T, chunks: int, dim: int = 0) -> tuple[T, ...]:
    """Return a tuple of at most `chunks` views along dim, of equal size; the last may be smaller. Raises ValueError
    unless chunks is positive."""
    if chunks <= 0:
        raise ValueError(f"chunk: chunks must be positive, got {chunks}")
    n = input.shape[one_dim("chunk", input, dim)] if input.ndim else 0
    return split(input, -(-n // chunks) or [0] * chunks, dim)


class Pad(Op):
    """y = x with `widths` of constant `value` before and after each dim;   dx = the inner part of dy"""

    cases = [case((2, 3), widths=((0, 0), (1, 2)), value=0.0), case((2, 3), widths=((1, 0), (0, 1)), value=2.0)]

    def forward(self, x, widths, value):
        self.inner = tuple(slice(before, before + n) for (before, _), n in zip(widths, x.shape))
        return self.backend.pad(x, widths, value)

    def backward(self, dy: Value):
        return dy[self.inner]


@check_arguments
def pad(input: T, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> T:
    """Return x with `value` around it. Of x's dtype. pad: pairs of sizes before and after, the last dim first.

    Raises ValueError for a mode other than "constant", negative sizes, and sizes for more dims than x has."""
    if mode != "constant":
        raise ValueError(f"pad: mode must be 'constant', got {mode!r}")
    if len(pad) % 2 or len(pad) > 2 * input.ndim or min(pad, default=0) < 0:
        raise ValueError(f"pad: {tuple(pad)} is not pairs of sizes ≥ 0 for at most {input.ndim} dims of {input.shape}")
    check_holds("pad", input.dtype, value)
    pairs = [(int(a), int(b)) for a, b in zip(pad[::2], pad[1::2])]
    return Pad.apply(input, widths=((0, 0),) * (input.ndim - len(pairs)) + tuple(reversed(pairs)), value=value)


@composite(case((2, 3), 2, 1), case((3,), 2, 2))
def repeat(input: T, *repeats: Size) -> T:
    """Return a copy of x tiled repeats[i] times along dim i, as NumPy's tile. More repeats than dims add dims in front.
    Raises ValueError for fewer."""
    times = shape_of("repeat", repeats)
    extra = len(times) - input.ndim
    if extra < 0 or min(times, default=0) < 0:
        raise ValueError(f"repeat: {times} must be sizes ≥ 0, at least one for each dim of shape {input.shape}")
    shape = (1,) * extra + input.shape
    # Each dim of size n becomes (1, n), then (r, n), then r·n.
    pairs = reshape_if_needed(input, tuple(size for n in shape for size in (1, n)))
    tiled = expand_if_needed(pairs, tuple(size for r, n in zip(times, shape) for size in (r, n)))
    return reshape_if_needed(clone(tiled), tuple(r * n for r, n in zip(times, shape)))


@composite(case((2, 3), repeats=2, dim=1), case((2, 3), repeats=3, dim=0), case((2, 3), repeats=2))
def repeat_interleave(input: T, repeats: int, dim: int | None = None) -> T:
    """Return a copy of x with each slice along dim `repeats` times in a row (NumPy's repeat). dim None: x flattened."""
    if repeats < 0:
        raise ValueError(f"repeat_interleave: repeats must not be negative, got {repeats}")
    if dim is None or not input.ndim:
        return repeat_interleave(input.reshape(-1), repeats, dim or 0)
    dim, shape = one_dim("repeat_interleave", input, dim), input.shape
    wide = expand(unsqueeze(input, dim + 1), shape[: dim + 1] + (repeats,) + shape[dim + 1 :])
    return reshape_if_needed(clone(wide), shape[:dim] + (shape[dim] * repeats,) + shape[dim + 1 :])


@composite(case((3, 4), 1), case((3, 4), shifts=(1, -1), dims=(0, 1)))
def roll(input: T, shifts: int | Sequence[int], dims: Dims = None) -> T:
    """Return a copy of x with its elements moved by `shifts` along dims; those that leave at the end enter at the
    front.

    dims None: of x flattened, then in its shape again. Raises ValueError unless there are as many shifts as dims."""
    if dims is None:
        return reshape(roll(reshape(input, -1), shifts, 0), input.shape)
    steps, along = shape_of("roll", (shifts,)), shape_of("roll", (dims,))
    if len(steps) != len(along):
        raise ValueError(f"roll: {len(steps)} shifts for {len(along)} dims")
    y = input
    for shift, dim in zip(steps, along):
        n = y.shape[one_dim("roll", y, dim)] if y.ndim else 0
        back = shift % n if n else 0
        y = cat(split(y, [n - back, back], dim)[::-1], dim)
    return y if along else clone(input)
