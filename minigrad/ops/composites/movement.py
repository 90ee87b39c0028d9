"""Moving elements, in the words of torch: from views, index and pad."""

import builtins
import math
from collections.abc import Sequence

import numpy as np

from ...autograd import Value, composite
from ...autograd.cases import case
from ...typing import Dims, Size, T
from ..args import one_dim, shape_of
from ..index import getitem
from ..movement import cat, expand, expanded, flatten, flip, permute, repeat, reshape, split, transpose, unsqueeze
from ..movement import pad as constant_pad
from ..movement import repeat_interleave as repeated
from ..reduce import sum as total

__all__ = [
    "broadcast_tensors", "broadcast_to", "diag", "diag_embed", "diagonal", "fliplr", "flipud", "meshgrid",
    "movedim", "narrow", "ravel", "repeat_interleave", "roll", "t", "tile", "trace", "unflatten",
]  # fmt: skip


@composite(case((3, 4)), case((3,)))
def t(input: T) -> T:
    """The transpose of a matrix, as a view; x itself, as a view, if it has fewer dims. Raises ValueError if it has
    more."""
    if input.ndim > 2:
        raise ValueError(f"t is of at most two dims, got shape {input.shape}; use .mT or transpose(dim0, dim1)")
    return permute(input, tuple(range(input.ndim))[::-1])


@composite(case((2, 3, 4), 0, -1), case((2, 3, 4), source=(0, 1), destination=(1, 2)))
def movedim(input: T, source: int | Sequence[int], destination: int | Sequence[int]) -> T:
    """x with the dims `source` (one or several) at the positions `destination`, the others in order. A view. Raises
    ValueError unless both name as many dims, each once."""
    source, destination = ((d,) if isinstance(d, int) else tuple(d) for d in (source, destination))
    where_from = [one_dim("movedim", input, d) for d in source]
    where_to = [one_dim("movedim", input, d) for d in destination]
    if len(where_from) != len(where_to) or len({*where_from}) != len(where_from) or len({*where_to}) != len(where_to):
        raise ValueError(f"movedim: {source} and {destination} must be as many dims, each named once")
    order = [d for d in range(input.ndim) if d not in where_from]
    for to, d in sorted(zip(where_to, where_from)):
        order.insert(to, d)
    return permute(input, tuple(order[: input.ndim]))


def select(input: T, dim: int, index: int) -> T:
    """The slice number `index` of x along dim, as a view without that dim. Raises IndexError for a slice that x does
    not have."""
    dim = one_dim("select", input, dim)
    if input.ndim == 0:
        raise ValueError("select of a 0-d tensor")
    return getitem(input, (slice(None),) * dim + (int(index),))


@composite(case((3, 5), 1, 1, 3), case((3, 5), 0, -2, 2))
def narrow(input: T, dim: int, start: int, length: int) -> T:
    """`length` slices of x along dim from `start` on, as a view. Raises IndexError for slices that x does not have."""
    dim, start = one_dim("narrow", input, dim), int(start)
    if input.ndim == 0:
        raise ValueError("narrow of a 0-d tensor")
    n = input.shape[dim]
    begin = start + n if start < 0 else start
    if not 0 <= begin <= n or not 0 <= length <= n - begin:
        raise IndexError(f"narrow: {length} from {start} on are not within dim {dim} of shape {input.shape}")
    return getitem(input, (slice(None),) * dim + (slice(begin, begin + length),))


@composite(case((3, 4), 1), case((3, 4), shifts=(1, -1), dims=(0, 1)))
def roll(input: T, shifts: int | Sequence[int], dims: Dims = None) -> T:
    """x with its elements moved on by `shifts` along dims, those at the end to the front. A copy. dims None: x
    flattened, and given its shape again. Raises ValueError unless there are as many shifts as dims."""
    if dims is None:
        if not isinstance(shifts, int):
            raise ValueError(f"roll: without dims, shifts is one int, got {shifts}")
        return reshape(roll(flatten(input), shifts, 0), input.shape) if input.ndim else input.clone()
    shifts, dims = ((v,) if isinstance(v, int) else tuple(v) for v in (shifts, dims))
    if len(shifts) != len(dims):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(dims)} dims")
    y = input
    for shift, d in zip(shifts, dims):
        d = one_dim("roll", input, d)
        n = input.shape[d] if input.ndim else 0
        if n and shift % n:
            y = cat(split(y, [n - shift % n, shift % n], d)[::-1], d)
    return y if y is not input else input.clone()


@composite(case((3, 4)), case((2, 3, 4), offset=1, dim1=-1, dim2=0))
def diagonal(input: T, offset: int = 0, dim1: int = 0, dim2: int = 1) -> T:
    """The elements (i, i + offset) of dims dim1 and dim2, as the last dim of a copy. (n, m) -> (min(n, m),) for offset
    0. Raises ValueError unless these are two dims."""
    dim1, dim2 = one_dim("diagonal", input, dim1), one_dim("diagonal", input, dim2)
    if input.ndim < 2 or dim1 == dim2:
        raise ValueError(f"diagonal needs two dims, got {dim1} and {dim2} of shape {input.shape}")
    rows, columns = input.shape[dim1], input.shape[dim2]
    n = max(0, min(rows, columns - offset) if offset > 0 else min(rows + offset, columns))
    first = range(max(-offset, 0), max(-offset, 0) + n), range(max(offset, 0), max(offset, 0) + n)
    y = permute(input, (dim1, dim2, *(d for d in range(input.ndim) if d not in (dim1, dim2))))
    y = getitem(y, tuple(list(steps) for steps in first))
    return permute(y, (*range(1, y.ndim), 0))


@composite(case((2, 3)), case((2, 3), offset=-1, dim1=0, dim2=2))
def diag_embed(input: T, offset: int = 0, dim1: int = -2, dim2: int = -1) -> T:
    """Matrices with the last dim of x on the diagonal `offset` of dims dim1 and dim2, 0 elsewhere. (…, n) -> (…, n, n)
    for offset 0. Raises ValueError unless these can be two dims of the result."""
    ndim = input.ndim + 1
    if input.ndim == 0 or not (-ndim <= dim1 < ndim and -ndim <= dim2 < ndim) or dim1 % ndim == dim2 % ndim:
        raise ValueError(f"diag_embed: dims {dim1} and {dim2} cannot be added to shape {input.shape}")
    n, shift = input.shape[-1], builtins.abs(offset)
    wide = n + shift
    # Row i of a diagonal is n + 1 elements after row i - 1: pad each element to that, and cut what is too much.
    rows = reshape(constant_pad(unsqueeze(input, -1), (0, wide)), *input.shape[:-1], n * (wide + 1))
    rows = reshape(rows[..., : n * wide], *input.shape[:-1], n, wide)  # (…, n, wide), the main diagonal
    y = constant_pad(rows, (shift, 0, 0, shift) if offset >= 0 else (0, 0, shift, 0))[..., :wide, :wide]
    return movedim(y, (-2, -1), (dim1, dim2))


@composite(case((3,), 1), case((3, 4)))
def diag(input: T, diagonal: int = 0) -> T:
    """A matrix with the vector x on a diagonal, or the diagonal of the matrix x. (n,) -> (n, n), or (n, m) -> (min(n,
    m),), for diagonal 0. Raises ValueError for other numbers of dims."""
    if input.ndim not in (1, 2):
        raise ValueError(f"diag is of a vector or a matrix, got shape {input.shape}; use diagonal or diag_embed")
    return diag_embed(input, diagonal) if input.ndim == 1 else _diagonal(input, diagonal)


_diagonal = diagonal


def trace(input: T) -> T:
    """The sum of a matrix's diagonal. (n, m) -> (), of x's dtype; int64 of integers and bools. Raises ValueError unless
    x has two dims."""
    if input.ndim != 2:
        raise ValueError(f"trace is of a matrix, got shape {input.shape}; use diagonal(dim1=-2, dim2=-1).sum(-1)")
    return total(diagonal(input))


_MODES: dict = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # torch's names, and NumPy's


def pad(input: T, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> T:
    """Padding as PyTorch's. `pad` is (last dim before, after, next to last before, after, …), sizes ≥ 0 by which it
    grows.

    mode "constant" pads with value (None: 0), "reflect" with what lies behind the border, "replicate" with the border,
    "circular" with the other end. Of x's dtype. Raises ValueError for another mode, a value in another mode than
    "constant", and sizes that x does not have."""
    if mode == "constant":
        return constant_pad(input, pad, 0.0 if value is None else value)
    if mode not in _MODES:
        raise ValueError(
            f"pad: mode must be 'constant', {', '.join(map(repr, _MODES))}, got {mode!r}; value= is the number"
        )
    if value is not None:
        raise ValueError(f"pad: mode {mode!r} takes no value")
    if len(pad) % 2 or len(pad) > 2 * input.ndim or any(n < 0 for n in pad):
        raise ValueError(f"pad: {tuple(pad)} is not pairs of sizes ≥ 0 for at most {input.ndim} dims")
    y = input
    for i in range(0, len(pad), 2):
        d, before, after = input.ndim - 1 - i // 2, pad[i], pad[i + 1]
        n = input.shape[d]
        most = {"reflect": n - 1, "replicate": before + after if n else 0, "circular": n}[mode]
        if before > most or after > most:
            raise ValueError(f"pad: {before} and {after} are more than {mode!r} has for dim {d} of shape {input.shape}")
        if before or after:
            y = getitem(y, (slice(None),) * d + (np.pad(np.arange(n), (before, after), _MODES[mode]).tolist(),))
    return y if y is not input else input.clone()


def repeat_interleave(
    input: T, repeats: T | int | None = None, dim: Dims = None, *, output_size: int | None = None
) -> T:
    """A copy of x with each slice along dim `repeats` times in a row (NumPy's repeat); dim None: x flattened.

    repeats: an int, or an int Tensor with one for each slice, which is read on the host. An int vector alone is taken
    for the repeats of 0, 1, 2, … output_size, the size that comes out, changes nothing. Raises ValueError for a Tensor
    of another shape or dtype."""
    if repeats is None:
        if input.ndim != 1 or input.dtype.kind not in "iu":
            raise TypeError(
                f"repeat_interleave: repeats alone must be an int vector, got {input.dtype} of shape {input.shape}"
            )
        input, repeats = input.constant(np.arange(input.shape[0])), input
    if dim is None:
        input, dim = flatten(input), 0
    if isinstance(repeats, Value):
        if repeats.numel() == 1:
            repeats = int(repeats.item())
        else:
            dim = one_dim("repeat_interleave", input, dim)
            if repeats.shape != input.shape[dim : dim + 1] or repeats.dtype.kind not in "iu":
                given = f"{repeats.dtype} of shape {repeats.shape}"
                raise ValueError(f"repeat_interleave: repeats are {given}, for dim {dim} of shape {input.shape}")
            return getitem(
                input, (slice(None),) * dim + (np.repeat(np.arange(input.shape[dim]), repeats.numpy()).tolist(),)
            )
    return repeated(input, repeats, dim)


def fliplr(input: T) -> T:
    """A copy of x reversed along its second dim. Raises IndexError if there is none."""
    return flip(input, (one_dim("fliplr", input, 1),))


def flipud(input: T) -> T:
    """A copy of x reversed along its first dim. Of x's shape."""
    return flip(input, (0,)) if input.ndim else input.clone()


@composite(case((2, 3), 2, 2))
def tile(input: T, *times: Size, dims: Size | None = None) -> T:
    """A copy of x repeated dims[i] times along dim i; if dims are fewer than x's, they are of its last ones."""
    dims = shape_of("tile", times, dims)
    return repeat(input, (1,) * (input.ndim - len(dims)) + dims)


@composite(case((2, 6), 1, sizes=(3, -1)))
def unflatten(input: T, dim: int, sizes: Size) -> T:
    """x with one dim as several, of these sizes; one may be -1. A view. Raises ValueError for sizes that do not make up
    the dim."""
    dim, sizes = one_dim("unflatten", input, dim), shape_of("unflatten", (sizes,))
    if input.ndim == 0 or not sizes:
        raise ValueError(f"unflatten: sizes {sizes} for dim {dim} of shape {input.shape}")
    known = math.prod(n for n in sizes if n != -1)
    sizes = tuple(input.shape[dim] // max(known, 1) if n == -1 else n for n in sizes)
    if math.prod(sizes) != input.shape[dim]:
        raise ValueError(f"unflatten: sizes {sizes} do not make up dim {dim} of shape {input.shape}")
    return reshape(input, *input.shape[:dim], *sizes, *input.shape[dim + 1 :])


def ravel(input: T) -> T:
    """x with one dim, (n,): a view where the memory layout allows, else a copy."""
    return flatten(input)


def broadcast_to(input: T, *sizes: Size, size: Size | None = None) -> T:
    """x broadcast to a shape, without a copy: expand(size). Raises ValueError if it does not broadcast."""
    return expand(input, *sizes, size=size)


def broadcast_tensors(*tensors: Sequence[T]) -> tuple[T, ...]:
    """The tensors broadcast against each other, without copies. A tuple. Raises ValueError if their shapes do not
    broadcast."""
    tensors = _list(tensors)
    shape = _common_shape("broadcast_tensors", tensors)
    return tuple(expanded(x, shape) for x in tensors)


def _common_shape(name, tensors):
    shape: list = []
    for x in tensors:
        longer, shorter = (shape, x.shape) if len(shape) >= x.ndim else (list(x.shape), shape)
        padded = [1] * (len(longer) - len(shorter)) + list(shorter)
        if not all(a == b or 1 in (a, b) for a, b in zip(longer, padded)):
            raise ValueError(f"{name}: shapes {[v.shape for v in tensors]} do not broadcast")
        shape = [b if a == 1 else a for a, b in zip(longer, padded)]
    return tuple(shape)


def _list(tensors):
    """f(a, b) or f([a, b]) as a list."""
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else list(tensors)


def meshgrid(*tensors: Sequence[T], indexing: str = "ij") -> tuple[T, ...]:
    """The coordinates of a grid: one tensor per dim, (n_0, n_1, …) each, from vectors of n_i (or numbers). A tuple of
    views.

    indexing "xy" exchanges the first two dims, as plots do. Raises ValueError for other indexing, and for tensors of
    more dims."""
    vectors = [reshape(x, (1,)) if x.ndim == 0 else x for x in _list(tensors)]
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}")
    if not vectors or any(x.ndim != 1 for x in vectors):
        raise ValueError(f"meshgrid takes vectors, got shapes {[x.shape for x in vectors]}")
    n = len(vectors)
    shape = tuple(x.shape[0] for x in vectors)
    grids = [expanded(reshape(x, *(1,) * i, shape[i], *(1,) * (n - 1 - i)), shape) for i, x in enumerate(vectors)]
    if indexing == "xy" and len(grids) > 1:
        return tuple(transpose(grid, 0, 1) for grid in grids)
    return tuple(grids)
