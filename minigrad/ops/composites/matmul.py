"""Matrix products under their names in torch, which say how many dims each factor has."""

import math

from ...autograd import composite
from ...autograd.cases import case
from ...typing import Array, T
from ..matmul import matmul
from ..movement import reshape, unsqueeze

__all__ = ["addmm", "bmm", "dot", "mm", "mv", "outer", "tensordot"]


def _product(name, a, b, *dims):
    """a @ b, of which a and b must have these numbers of dims."""
    if (a.ndim, b.ndim) != dims:
        raise ValueError(f"{name} is of {dims[0]} and {dims[1]} dims, got shapes {a.shape} and {b.shape}; use matmul")
    return matmul(a, b)


def mm(input: T, mat2: T) -> T:
    """(n, k) @ (k, m) -> (n, m), promoted. Raises ValueError for other shapes: matmul takes batches, too."""
    return _product("mm", input, mat2, 2, 2)


def bmm(input: T, mat2: T) -> T:
    """(B, n, k) @ (B, k, m) -> (B, n, m), promoted. Raises ValueError for other shapes: matmul broadcasts."""
    if input.shape[:1] != mat2.shape[:1]:
        raise ValueError(f"bmm: batches of shapes {input.shape} and {mat2.shape} differ; use matmul to broadcast")
    return _product("bmm", input, mat2, 3, 3)


def mv(input: T, vec: T) -> T:
    """(n, k) @ (k,) -> (n,), promoted. Raises ValueError for other shapes."""
    return _product("mv", input, vec, 2, 1)


def dot(input: T, tensor: T) -> T:
    """(k,) @ (k,) -> (), promoted. Raises ValueError for other shapes."""
    return _product("dot", input, tensor, 1, 1)


@composite(case((3,), (4,)))
def outer(input: T, vec2: T) -> T:
    """y_ij = x_i vec2_j: (n,), (m,) -> (n, m)

    Dtypes are promoted. Raises ValueError for other numbers of dims."""
    if (input.ndim, vec2.ndim) != (1, 1):
        raise ValueError(f"outer is of two vectors, got shapes {input.shape} and {vec2.shape}")
    return unsqueeze(input, 1) * vec2


def tensordot(a: T, b: T | Array, dims: int = 2) -> T:
    """Sums over products of the last `dims` dims of a and the first of b, or over (dims of a, dims of b).

    (…, k_1, …) and (k_1, …, …) -> the dims of a that are left, then those of b. Dtypes are promoted. Raises ValueError
    if the sizes that are summed over differ."""
    if isinstance(dims, int):
        dims = range(a.ndim - dims, a.ndim), range(dims)
    ours, theirs = ([d % max(x.ndim, 1) for d in each] for each, x in zip(dims, (a, b)))
    if [a.shape[d] for d in ours] != [b.shape[d] for d in theirs]:
        raise ValueError(f"tensordot: dims {ours} of {a.shape} do not fit dims {theirs} of {b.shape}")
    rows, columns = [d for d in range(a.ndim) if d not in ours], [d for d in range(b.ndim) if d not in theirs]
    rest = *(a.shape[d] for d in rows), *(b.shape[d] for d in columns)
    k = math.prod(a.shape[d] for d in ours)
    n, m = math.prod(rest[: len(rows)]), math.prod(rest[len(rows) :])
    left = reshape(a.permute(*rows, *ours), n, k) if a.ndim else reshape(a, 1, 1)
    right = reshape(b.permute(*theirs, *columns), k, m) if b.ndim else reshape(b, 1, 1)
    return reshape(matmul(left, right), rest)


def _plus(name, x, product, beta, alpha):
    """beta x + alpha product, whose shape x is broadcast to. As in torch, beta = 0 passes over NaN and ∞ in x."""
    if len(x.shape) > product.ndim or any(a not in (1, b) for a, b in zip(x.shape[::-1], product.shape[::-1])):
        raise ValueError(f"{name}: shape {x.shape} does not broadcast to that of the product, {product.shape}")
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (x if beta == 1 else x * beta) + product


@composite(case((4,), (2, 3), (3, 4), beta=0.5, alpha=2))
def addmm(input: T, mat1: T, mat2: T, *, beta: float = 1, alpha: float = 1) -> T:
    """y = beta x + alpha mat1 mat2: (n, m) or what broadcasts to it, (n, k), (k, m) -> (n, m)

    Dtypes are promoted. With beta 0, NaN and ∞ in x do not count. Raises ValueError for other shapes."""
    return _plus("addmm", input, mm(mat1, mat2), beta, alpha)
