"""The types of the functions of ops. Written by `python -m tests.types`, from their names, defaults and docstrings."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

from ..autograd import Op
from ..random import Generator
from ..tensor import Tensor
from ..typing import Array, Dims, DTypeLike, Index, Operand, Size

class ValuesIndices(NamedTuple):
    """What sort, topk, and max and min with dim= return."""

    values: Tensor
    indices: Tensor

class Cast(Op):
    """y = x in another dtype;   dx = dy in x's dtype"""

class Transfer(Op):
    """y = x on another device;   dx = dy on x's device"""

@overload
def norm(
    input: Tensor, p: float | str = 2, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None
) -> Tensor:
    """y = (Σ |x|^p)^(1/p) over dim; the largest or smallest |x| for p = ±∞, how many are not 0 for p = 0

    dim: an int, several, or None for all, dropped unless keepdim. p "fro" is 2. Of x's dtype, or of x in `dtype`. The
    gradient where the norm is 0 is 0, as in PyTorch. Raises TypeError unless that is a float, and ValueError for the
    nuclear norm."""

@overload
def norm(
    input: Tensor, p: float | str = 2, axis: Dims = None, keepdims: bool = False, dtype: DTypeLike | None = None
) -> Tensor: ...
def abs(input: Tensor) -> Tensor:
    """|x|. Of x's shape and dtype; the gradient at 0 is 0."""

def add(input: Operand, other: Operand, *, alpha: float = 1) -> Tensor:
    """x + alpha other. Elementwise: Tensors, arrays or numbers, one of them a Tensor, promoted and broadcast. Raises
    ValueError for shapes that do not broadcast, and TypeError for a float alpha of ints."""

def cos(input: Tensor) -> Tensor:
    """y = cos x;   dx = -dy sin x

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def erf(input: Tensor) -> Tensor:
    """y = 2/√π ∫₀ˣ exp(-t²) dt;   dx = dy 2/√π exp(-x²)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def erfc(input: Tensor) -> Tensor:
    """y = 1 - erf x;   dx = -dy 2/√π exp(-x²)

    It is accurate for large x too, where 1 - erf x would round to 0.

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def exp(input: Tensor) -> Tensor:
    """y = e^x;   dx = dy y

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def floor(input: Tensor) -> Tensor:
    """The largest integer ≤ x, in x's dtype; no gradient. Of x's shape."""

def log(input: Tensor) -> Tensor:
    """y = ln x;   dx = dy / x

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def mul(input: Operand, other: Operand) -> Tensor:
    """y = a b;   da = dy b, db = dy a

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def neg(input: Tensor) -> Tensor:
    """-x. Of x's shape and dtype. Raises TypeError for bools: use ~x."""

def pow(input: Operand, exponent: Operand) -> Tensor:
    """x ** exponent. Elementwise: Tensors, arrays or numbers, one of them a Tensor, promoted and broadcast. Ints to a
    negative int are float32. Raises ValueError for other shapes, and for ints to negative numbers in an int Tensor."""

def rsqrt(input: Tensor) -> Tensor:
    """y = 1/√x;   dx = -dy y³ / 2

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1. Of x's shape and dtype; no gradient."""

def sin(input: Tensor) -> Tensor:
    """y = sin x;   dx = dy cos x

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def sqrt(input: Tensor) -> Tensor:
    """y = √x;   dx = dy / 2y

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def sub(input: Operand, other: Operand, *, alpha: float = 1) -> Tensor:
    """x - alpha other. Elementwise: Tensors, arrays or numbers, one of them a Tensor, promoted and broadcast. Raises
    ValueError for shapes that do not broadcast, and TypeError for bools, or a float alpha of ints."""

def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice number `index` of x along dim, as a view without that dim. Raises IndexError for a slice that x does
    not have."""

def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """y[i][j] = x[i][index[i][j]] for dim 1, and so on: of index's shape and x's dtype.

    index: an int Tensor with as many dims as x, at most as large as x in the dims other than dim; a number is a vector
    of one. Raises IndexError for a place that x does not have, ValueError for another shape, and TypeError for an index
    that is no int Tensor."""

def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of x along dim named by index, an int Tensor (n,) or (). A copy, of size n there.

    A number x has one slice, itself. Raises IndexError for a slice that x does not have, ValueError for an index of
    other dims, TypeError for another dtype."""

def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """x with value, a number or a Tensor, where mask is True. mask: bool, broadcast to x. Of x's shape; dtypes are
    promoted.

    Raises TypeError for a mask of another dtype, and ValueError for one that does not broadcast to x."""

def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of the last two dims, up to `diagonal` (0: the main one), zeros above. A copy, of x's shape
    and dtype. Raises ValueError for fewer than two dims."""

def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of the last two dims, from `diagonal` (0: the main one), zeros below. A copy, of x's shape and
    dtype. Raises ValueError for fewer than two dims."""

def matmul(input: Tensor | Array, other: Tensor | Array) -> Tensor:
    """The matrix product x @ other, as in NumPy and PyTorch: (…, n, k) @ (…, k, m) -> (…, n, m).

    Leading dims are batches and broadcast; a 1-d x is a row, a 1-d other a column, and the dim of size 1 that they
    bring is dropped again. Floats, ints or bools, promoted. Raises ValueError for sizes that do not fit, and for
    numbers."""

def einsum(equation: str, *operands: Tensor | Array) -> Tensor:
    """Einstein summation as in NumPy and PyTorch: letters, '...', ',' and '->', repeated letters for diagonals.

    "ij,jk->ik" of (n, k) and (k, m) is (n, m); without '->' the result has the letters that occur once, in alphabetical
    order. Operands, Tensors or arrays, are promoted, and contracted from left to right; each pair becomes one batched
    matmul. Raises ValueError for an equation that cannot be read, or does not fit the shapes."""

@overload
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one after the other along dim; the other sizes must agree. Dtypes are promoted. Raises ValueError if they
    do not, and TypeError for no Tensors."""

@overload
def cat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor: ...
@overload
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` parts along dim, as views: of equal size, but the last may be smaller. A tuple. Raises
    ValueError unless chunks is positive."""

@overload
def chunk(input: Tensor, chunks: int, axis: int = 0) -> tuple[Tensor, ...]: ...
def clone(input: Tensor) -> Tensor:
    """A copy of x, contiguous and with memory of its own. Of x's shape and dtype; gradients flow through."""

def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """x with the dims start_dim to end_dim (inclusive) merged into one. Of no dims, (1,). A view where the memory
    layout allows, else a copy. Raises ValueError if end_dim comes first."""

def flip(input: Tensor, *along: Size, dims: Size | None = None) -> Tensor:
    """A copy of x reversed along dims. Of x's shape: x.flip(0, 1), flip((0, 1)) or flip(dims=(0, 1))."""

def permute(input: Tensor, *order: Size, dims: Size | None = None) -> Tensor:
    """x with its dims reordered: dim i of the result is dim dims[i] of x. A view. Raises ValueError unless each dim is
    named once."""

def reshape(input: Tensor, *sizes: Size, shape: Size | None = None) -> Tensor:
    """x in another shape of the same size; one size may be -1. A view where the memory layout allows, else a copy.
    Raises ValueError for another size."""

@overload
def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Consecutive views along dim: of a size (the last may be smaller), or of a list of sizes. A tuple. Raises
    ValueError for sizes that do not add up."""

@overload
def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]: ...
@overload
def squeeze(input: Tensor, dim: Dims = None) -> Tensor:
    """x without its dims of size 1, or without those of `dim` (one or several) that have size 1. A view."""

@overload
def squeeze(input: Tensor, axis: Dims = None) -> Tensor: ...
@overload
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape, side by side along a new dim. Its size is their number, its position dim. Dtypes are
    promoted. Raises ValueError for different shapes, and TypeError for no Tensors."""

@overload
def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor: ...
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """x with the dims dim0 and dim1 exchanged. A view."""

@overload
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along dim, as views without that dim. A tuple. Raises ValueError for a Tensor of no dims."""

@overload
def unbind(input: Tensor, axis: int = 0) -> tuple[Tensor, ...]: ...
@overload
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """x with a new dim of size 1 at position dim. From -ndim - 1 to ndim; a view. Raises IndexError for another dim."""

@overload
def unsqueeze(input: Tensor, axis: int) -> Tensor: ...
@overload
def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where no value over dim is 0. dim: an int, several, or None for all, dropped unless keepdim. bool."""

@overload
def all(input: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def amax(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Largest value over dim. dim: an int, several, or None for all, dropped unless keepdim. Of x's dtype; NaN is the
    largest. Ties share the gradient evenly. Raises ValueError for a maximum of nothing."""

@overload
def amax(input: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def amin(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Smallest value over dim. dim: an int, several, or None for all, dropped unless keepdim. Of x's dtype; NaN is the
    smallest. Ties share the gradient evenly. Raises ValueError for a minimum of nothing."""

@overload
def amin(input: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where any value over dim is not 0. dim: an int, several, or None for all, dropped unless keepdim. bool."""

@overload
def any(input: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the largest value along dim, the first of ties. int64. dim: an int, dropped unless keepdim, or None for
    x flattened. NaN is the largest. Raises ValueError for a maximum of nothing."""

@overload
def argmax(input: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor: ...
@overload
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the smallest value along dim, the first of ties. int64. dim: an int, dropped unless keepdim, or None for
    x flattened. NaN is the smallest. Raises ValueError for a minimum of nothing."""

@overload
def argmin(input: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor: ...
@overload
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Indices that sort x along dim. int64, of x's shape. Ties keep their order, stable or not; NaN is the largest."""

@overload
def argsort(input: Tensor, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor: ...
@overload
def cumsum(input: Tensor, dim: int, dtype: DTypeLike | None = None) -> Tensor:
    """Running sum along dim: y_i = Σ_{j ≤ i} x_j. Of x's shape and dtype, or of x in `dtype`; integers and bools give
    int64."""

@overload
def cumsum(input: Tensor, axis: int, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """ln Σ e^x over dim, without overflow. dim: an int or several, dropped unless keepdim. Of x's dtype. Raises
    TypeError unless that is a float."""

@overload
def logsumexp(input: Tensor, axis: Dims, keepdims: bool = False) -> Tensor: ...
@overload
def max(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor:
    """The largest of all; ties share the gradient. With dim, an int that is dropped unless keepdim, the pair (values,
    indices), of x's dtype and int64; the first of ties gets the gradient. With a Tensor in place of dim, or other=,
    maximum(). Raises ValueError for a maximum of nothing."""

@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def max(input: Tensor, axis: int, keepdims: bool = False) -> ValuesIndices: ...
@overload
def max(input: Tensor, other: Tensor) -> Tensor: ...
@overload
def mean(input: Tensor, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """y = Σ x / n over dim. dim: an int, several, or None for all, dropped unless keepdim. Of x's dtype, or of x in
    `dtype`; float16 is summed in float32. NaN of nothing. Raises TypeError unless they are floats."""

@overload
def mean(input: Tensor, axis: Dims = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def min(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor:
    """The smallest of all; ties share the gradient. With dim, an int that is dropped unless keepdim, the pair (values,
    indices), of x's dtype and int64; the first of ties gets the gradient. With a Tensor in place of dim, or other=,
    minimum(). Raises ValueError for a minimum of nothing."""

@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def min(input: Tensor, axis: int, keepdims: bool = False) -> ValuesIndices: ...
@overload
def min(input: Tensor, other: Tensor) -> Tensor: ...
@overload
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
    """The pair (values, indices) in order along dim. Of x's shape; x's dtype, and int64. Ties keep their order, stable
    or not; NaN is the largest. Gradients go to where the values come from."""

@overload
def sort(input: Tensor, axis: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices: ...
@overload
def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: int | None = None,
) -> Tensor:
    """y = √var(x). Shapes, dtypes, options and errors are those of var. The gradient is 0 where the variance is 0, as
    in PyTorch."""

@overload
def std(
    input: Tensor,
    axis: Dims = None,
    unbiased: bool | None = None,
    keepdims: bool = False,
    *,
    correction: int | None = None,
) -> Tensor: ...
@overload
def sum(input: Tensor, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """Sum over dim. dim: an int, several, or None for all, dropped unless keepdim. Of x's dtype, or of x in `dtype`;
    integers and bools sum to int64. Of nothing, 0."""

@overload
def sum(input: Tensor, axis: Dims = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The pair (values, indices) of the k largest (or smallest) along dim, in order. Of x's dtype and int64, with size
    k there; the first of ties first, whatever `sorted` is. NaN is the largest. Raises ValueError if there are not k
    elements."""

@overload
def topk(input: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices: ...
@overload
def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: int | None = None,
) -> Tensor:
    """y = Σ (x - mean)² / (n - correction) over dim. dim: an int, several, or None for all, dropped unless keepdim.

    correction 1, the default, is the unbiased estimate, and unbiased=False is 0; NaN if n is not above it. Of x's
    dtype. Raises TypeError unless that is a float, and if both options are given."""

@overload
def var(
    input: Tensor,
    axis: Dims = None,
    unbiased: bool | None = None,
    keepdims: bool = False,
    *,
    correction: int | None = None,
) -> Tensor: ...
def clamp(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """x limited to [min, max]; either bound may be None. Numbers, or Tensors that broadcast with x; dtypes are
    promoted.

    The gradient goes to x where it lies within the bounds or on them, else to the bound. max wins over min. Raises
    ValueError if both are None, and TypeError for bounds of other types."""

def eq(input: Operand, other: Operand) -> Tensor:
    """y = a == b, bool;   no gradient

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def ge(input: Operand, other: Operand) -> Tensor:
    """y = a ≥ b, bool;   no gradient

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def gt(input: Operand, other: Operand) -> Tensor:
    """y = a > b, bool;   no gradient

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def isfinite(input: Tensor) -> Tensor:
    """True where x is neither NaN nor infinite. bool, of x's shape."""

def isinf(input: Tensor) -> Tensor:
    """True where x is +∞ or -∞. bool, of x's shape."""

def isnan(input: Tensor) -> Tensor:
    """True where x is NaN. bool, of x's shape."""

def le(input: Operand, other: Operand) -> Tensor:
    """y = a ≤ b, bool;   no gradient

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def logical_and(input: Operand, other: Operand) -> Tensor:
    """y = a and b, bool;   no gradient

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def logical_not(input: Tensor) -> Tensor:
    """True where x is 0 or False. bool, of x's shape."""

def logical_or(input: Operand, other: Operand) -> Tensor:
    """y = a or b, bool;   no gradient

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def logical_xor(input: Operand, other: Operand) -> Tensor:
    """y = a or b but not both, bool;   no gradient

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def lt(input: Operand, other: Operand) -> Tensor:
    """y = a < b, bool;   no gradient

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def maximum(input: Operand, other: Operand) -> Tensor:
    """y = max(a, b);   dy goes to the larger, half to each where they tie

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def minimum(input: Operand, other: Operand) -> Tensor:
    """y = min(a, b);   dy goes to the smaller, half to each where they tie

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def ne(input: Operand, other: Operand) -> Tensor:
    """y = a ≠ b, bool;   no gradient

    Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def where(condition: Tensor, input: Operand | None = None, other: Operand | None = None) -> Tensor:
    """x where condition is True, else other. condition: a bool Tensor; x, other: Tensors or numbers. All three are
    broadcast, x and other promoted.

    Two numbers give their default dtype: float32, int64 or bool. Raises TypeError for a condition that is no bool
    Tensor, and ValueError for shapes that do not broadcast."""

@overload
def softmax(input: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """Positive numbers that sum to 1 along dim, in proportion to e^x. Of x's shape and dtype, or of x in `dtype`.
    Raises TypeError unless that is a float, and IndexError for a dim that x does not have."""

@overload
def softmax(input: Tensor, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def log_softmax(input: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """The logarithm of softmax along dim, without underflow. Of x's shape and dtype, or of x in `dtype`. Raises
    TypeError unless that is a float, and IndexError for a dim that x does not have."""

@overload
def log_softmax(input: Tensor, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
def acos(input: Tensor) -> Tensor:
    """y = the angle whose cosine is x, in [0, π];   dx = -dy / √(1 - x²)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """y = x + value tensor1 / tensor2

    Elementwise: promoted and broadcast, integers divided in float32. Raises ValueError for shapes that do not
    broadcast."""

def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """y = x + value tensor1 tensor2

    Elementwise: promoted and broadcast. Raises ValueError for shapes that do not broadcast."""

def asin(input: Tensor) -> Tensor:
    """y = the angle whose sine is x, in [-π/2, π/2];   dx = dy / √(1 - x²)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def atan(input: Tensor) -> Tensor:
    """y = the angle whose tangent is x, in (-π/2, π/2);   dx = dy / (1 + x²)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def atan2(input: Operand, other: Operand) -> Tensor:
    """The angle of the point (other, x), in [-π, π]. Tensors, promoted and broadcast; integers as float32.

    Raises TypeError for a number beside a Tensor, and ValueError for shapes that do not broadcast."""

def cosh(input: Tensor) -> Tensor:
    """y = (e^x + e^-x) / 2;   dx = dy sinh x

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def exp2(input: Tensor) -> Tensor:
    """y = 2^x;   dx = dy y ln 2

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def expm1(input: Tensor) -> Tensor:
    """y = e^x - 1, accurate where that is tiny;   dx = dy e^x

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def lerp(input: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """y = x + weight (end - x): x for weight 0, end for 1. weight: a number or a Tensor

    Elementwise: promoted and broadcast. Raises ValueError for shapes that do not broadcast, and TypeError for bools."""

def log1p(input: Tensor) -> Tensor:
    """y = ln(1 + x), accurate where x is tiny;   dx = dy / (1 + x)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def log2(input: Tensor) -> Tensor:
    """y = the logarithm of x to base 2, exact for its powers;   dx = dy / (x ln 2)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def log10(input: Tensor) -> Tensor:
    """y = the logarithm of x to base 10, exact for its powers;   dx = dy / (x ln 10)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def logaddexp(input: Operand, other: Operand) -> Tensor:
    """ln(e^x + e^other), without overflow and without losing the smaller. Elementwise, promoted and broadcast; other
    may be a number. Raises TypeError unless they are floats, and ValueError for shapes that do not broadcast."""

def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """y = ln(x / (1 - x)), x limited to [eps, 1 - eps] first;   dx = dy / (x (1 - x))

    Elementwise: of x's shape and float dtype, or float32 of integers and bools. NaN where x is outside of [0, 1],
    unless eps is given."""

def nan_to_num(input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """y = x with these numbers for NaN, ∞ and -∞, by default 0 and the largest and smallest of the dtype

    Elementwise: of x's shape and dtype; integers and bools are copied."""

def reciprocal(input: Tensor) -> Tensor:
    """y = 1 / x;   dx = -dy y²

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def sinh(input: Tensor) -> Tensor:
    """y = (e^x - e^-x) / 2;   dx = dy cosh x

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def square(input: Tensor) -> Tensor:
    """y = x²;   dx = 2 x dy

    Elementwise: of x's shape and dtype, or int64 of bools."""

def tan(input: Tensor) -> Tensor:
    """y = sin x / cos x;   dx = dy (1 + y²)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def ceil(input: Tensor) -> Tensor:
    """y = the smallest integer ≥ x, in x's dtype;   no gradient

    Elementwise: of x's shape."""

def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """x / other, true division: of integers too, in float32. Elementwise, promoted and broadcast.

    With rounding_mode "floor" or "trunc" a whole number, in the promoted dtype and without a gradient. Raises
    ValueError for another mode or shapes that do not broadcast, and, rounding, ZeroDivisionError for integers by the
    number 0."""

def floor_divide(input: Operand, other: Operand) -> Tensor:
    """⌊x / other⌋, as Python's //; no gradient. Elementwise, promoted and broadcast. Integers by a tensor's 0 give 0.

    Raises ZeroDivisionError for integers by the number 0, TypeError for bools, ValueError for shapes that do not
    broadcast."""

def fmod(input: Operand, other: Operand) -> Tensor:
    """x - other trunc(x / other), as C's: it has x's sign. Elementwise, promoted and broadcast. Integers by a tensor's
    0 give 0.

    Raises ZeroDivisionError for integers by the number 0, TypeError for bools, ValueError for shapes that do not
    broadcast."""

def remainder(input: Operand, other: Operand) -> Tensor:
    """x - other ⌊x / other⌋, as Python's %: it has other's sign. Elementwise, promoted and broadcast. Integers by a
    tensor's 0 give 0.

    Raises ZeroDivisionError for integers by the number 0, TypeError for bools, ValueError for shapes that do not
    broadcast."""

def round(input: Tensor, decimals: int = 0) -> Tensor:
    """y = the nearest integer, the even one of two, or the nearest multiple of 10^-decimals;   no gradient

    Elementwise: of x's shape and dtype. Raises TypeError for decimals of integers."""

def trunc(input: Tensor) -> Tensor:
    """y = x without its fraction, in x's dtype;   no gradient

    Elementwise: of x's shape."""

def allclose(input: Operand, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Is isclose() true everywhere? A Python bool. Raises ValueError for shapes that do not broadcast."""

def equal(input: Operand, other: Operand) -> bool:
    """Have x and other the same shape and values? A Python bool. NaN equals nothing. Raises TypeError for an other that
    is no Tensor."""

def isclose(
    input: Operand, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Where |x - other| ≤ atol + rtol |other|, bool, both broadcast. Equal infinities are close; NaN if equal_nan.

    Raises ValueError for a negative tolerance, and for shapes that do not broadcast."""

def argwhere(input: Tensor) -> Tensor:
    """Where x is not 0, int64 (n, ndim), row by row. On the host."""

def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """y = x with alpha times the slices of source added at the places `index`, (n,), of dim

    source, of x's dtype, has n slices there, and x's sizes in the other dims; index holds ints. Raises IndexError for a
    place that x does not have, ValueError for other shapes, and TypeError for other dtypes."""

def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """y = x with the slices of source in the places `index`, (n,), of dim; of several for one place, the last stays

    Shapes, dtypes and errors are those of index_add. The places are found on the host."""

def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    """y = x with a number, or a tensor of no dims, in the slices `index`, (n,), of dim

    Of x's shape and dtype. Raises IndexError for a slice that x does not have, ValueError for an index of other dims,
    and TypeError for one that holds no ints."""

def isin(elements: Operand, test_elements: Operand, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Which elements are among the test elements, or are not, with invert: bool, of elements' shape. One of the two may
    be a number. assume_unique changes nothing."""

def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements of x where mask (bool) is True, (n,), both broadcast. Of x's dtype. The mask is read on the host.

    Raises TypeError for a mask of another dtype, and ValueError for shapes that do not broadcast."""

@overload
def nonzero(input: Tensor, as_tuple: Literal[False] = False) -> Tensor:
    """Where x is not 0, int64 (n, ndim), row by row. as_tuple: an index for each dim, (n,), as x[…] takes them. On the
    host."""

@overload
def nonzero(input: Tensor, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Operand | None = None, *, value: float | None = None
) -> Tensor:
    """y = x with src (a Tensor or a number) written at `index` along dim; of several to one place, the last stays

    y[index[i][j]][j] = src[i][j] for dim 0, and so on; shapes, dtypes and errors are those of scatter_add. The places
    are found on the host. value: a number for src. Raises TypeError for both or neither."""

def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """x with src added at `index` along dim: y[index[i][j]][j] += src[i][j] for dim 0, and so on. A copy.

    index, an int Tensor, and src, a number or a Tensor of x's dtype, have as many dims as x; index is at most as large
    as src, and as x in the other dims. Raises IndexError for a place that x does not have, ValueError for other shapes,
    and TypeError for other dtypes."""

def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements of x, flattened, at the int Tensor index, which may count from the end; of its shape. Raises
    IndexError for an element that x does not have, and TypeError for an index of floats."""

def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """gather, for which x and indices are broadcast in the other dims. dim None: of x flattened, (n,).

    Raises IndexError for a place that x does not have, ValueError for other shapes, TypeError for indices that are no
    ints."""

def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """y = beta x + alpha mat1 mat2: (n, m) or what broadcasts to it, (n, k), (k, m) -> (n, m)

    Dtypes are promoted. With beta 0, NaN and ∞ in x do not count. Raises ValueError for other shapes."""

def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """(B, n, k) @ (B, k, m) -> (B, n, m), promoted. Raises ValueError for other shapes: matmul broadcasts."""

def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """(k,) @ (k,) -> (), promoted. Raises ValueError for other shapes."""

def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """(n, k) @ (k, m) -> (n, m), promoted. Raises ValueError for other shapes: matmul takes batches, too."""

def mv(input: Tensor, vec: Tensor) -> Tensor:
    """(n, k) @ (k,) -> (n,), promoted. Raises ValueError for other shapes."""

def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """y_ij = x_i vec2_j: (n,), (m,) -> (n, m)

    Dtypes are promoted. Raises ValueError for other numbers of dims."""

def tensordot(a: Tensor | Array, b: Tensor | Array, dims: int = 2) -> Tensor:
    """Sums over products of the last `dims` dims of a and the first of b, or over (dims of a, dims of b).

    (…, k_1, …) and (k_1, …, …) -> the dims of a that are left, then those of b. Dtypes are promoted. Raises ValueError
    if the sizes that are summed over differ."""

def broadcast_tensors(*tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors broadcast against each other, without copies. A tuple. Raises ValueError if their shapes do not
    broadcast."""

def broadcast_to(input: Tensor, *sizes: Size, size: Size | None = None) -> Tensor:
    """x broadcast to a shape, without a copy: expand(size). Raises ValueError if it does not broadcast."""

def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with the vector x on a diagonal, or the diagonal of the matrix x. (n,) -> (n, n), or (n, m) -> (min(n,
    m),), for diagonal 0. Raises ValueError for other numbers of dims."""

def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dim of x on the diagonal `offset` of dims dim1 and dim2, 0 elsewhere. (…, n) -> (…, n, n)
    for offset 0. Raises ValueError unless these can be two dims of the result."""

def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements (i, i + offset) of dims dim1 and dim2, as the last dim of a copy. (n, m) -> (min(n, m),) for offset
    0. Raises ValueError unless these are two dims."""

def fliplr(input: Tensor) -> Tensor:
    """A copy of x reversed along its second dim. Raises IndexError if there is none."""

def flipud(input: Tensor) -> Tensor:
    """A copy of x reversed along its first dim. Of x's shape."""

def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one after the other along dim 1; vectors and numbers along dim 0. Promoted. Raises ValueError if their
    other sizes differ."""

def meshgrid(*tensors: Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: one tensor per dim, (n_0, n_1, …) each, from vectors of n_i (or numbers). A tuple of
    views.

    indexing "xy" exchanges the first two dims, as plots do. Raises ValueError for other indexing, and for tensors of
    more dims."""

def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """x with the dims `source` (one or several) at the positions `destination`, the others in order. A view. Raises
    ValueError unless both name as many dims, each once."""

def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` slices of x along dim from `start` on, as a view. Raises IndexError for slices that x does not have."""

def ravel(input: Tensor) -> Tensor:
    """x with one dim, (n,): a view where the memory layout allows, else a copy."""

def repeat_interleave(
    input: Tensor, repeats: Tensor | int | None = None, dim: Dims = None, *, output_size: int | None = None
) -> Tensor:
    """A copy of x with each slice along dim `repeats` times in a row (NumPy's repeat); dim None: x flattened.

    repeats: an int, or an int Tensor with one for each slice, which is read on the host. An int vector alone is taken
    for the repeats of 0, 1, 2, … output_size, the size that comes out, changes nothing. Raises ValueError for a Tensor
    of another shape or dtype."""

def roll(input: Tensor, shifts: int | Sequence[int], dims: Dims = None) -> Tensor:
    """x with its elements moved on by `shifts` along dims, those at the end to the front. A copy. dims None: x
    flattened, and given its shape again. Raises ValueError unless there are as many shifts as dims."""

def t(input: Tensor) -> Tensor:
    """The transpose of a matrix, as a view; x itself, as a view, if it has fewer dims. Raises ValueError if it has
    more."""

def tile(input: Tensor, *times: Size, dims: Size | None = None) -> Tensor:
    """A copy of x repeated dims[i] times along dim i; if dims are fewer than x's, they are of its last ones."""

def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal. (n, m) -> (), of x's dtype; int64 of integers and bools. Raises ValueError unless
    x has two dims."""

def unflatten(input: Tensor, dim: int, sizes: Size) -> Tensor:
    """x with one dim as several, of these sizes; one may be -1. A view. Raises ValueError for sizes that do not make up
    the dim."""

def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one after the other along dim 0; a vector is a row. Promoted. Raises ValueError if their other sizes
    differ."""

@overload
def cumprod(input: Tensor, dim: int, dtype: DTypeLike | None = None) -> Tensor:
    """y_i = Π_{j ≤ i} x_j along dim; the gradient is right where factors are 0

    Of x's shape and dtype, or of x in `dtype`; integers and bools give int64."""

@overload
def cumprod(input: Tensor, axis: int, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def prod(input: Tensor, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """y = Π x over dim. dim: an int, several, or None for all, dropped unless keepdim. Of x's dtype, or of x in
    `dtype`; integers and bools give int64. A tree of products, in float64, so the gradient is right where factors are
    0."""

@overload
def prod(input: Tensor, axis: Dims = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number occurs in the int vector x, int64; or the sums of weights, (n,) too, in their float dtype.

    The result has max(x) + 1 elements, or minlength if that is more. No gradient; on the host. Raises TypeError unless
    x is a vector of ints, and ValueError for negative ones."""

def bucketize(input: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The number of the interval between sorted boundaries, (n,), that each value of x is in: searchsorted's answer.
    int64, of x's shape."""

@overload
def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """How many values over dim are not 0, int64. dim: an int, several, or None for all, dropped."""

@overload
def count_nonzero(input: Tensor, axis: Dims = None) -> Tensor: ...
@overload
def median(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor:
    """The middle value of all, the lower of two; NaN if there is one. With dim, an int that is dropped unless keepdim,
    the pair (values, indices), of x's dtype and int64.

    The gradient of the middle of all is shared by those that equal it; along a dim, the one at `indices` has it. Raises
    ValueError for a median of nothing."""

@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def median(input: Tensor, axis: int, keepdims: bool = False) -> ValuesIndices: ...
def searchsorted(
    sorted_sequence: Tensor,
    input: Operand,
    *,
    right: bool = False,
    side: str | None = None,
    out_int32: bool = False,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where values would have to be put in so that the last dim stays sorted. int64, of values' shape: before their
    equals, or after them (right=True, side="right").

    sorted_sequence: (n,), or (…, n) with values (…, m); with sorter, the int Tensor that sorts it, it need not be
    sorted. out_int32: int32 instead. No gradient; on the host. Raises ValueError for other shapes, and for a side that
    is none or contradicts right."""

@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor:
    """The different values of x in ascending order, (n,), or its different slices along dim; no gradient. On the host.

    return_inverse: also where in the result each element is, int64 of x's shape (or one per slice). return_counts: also
    how often each occurs, int64 (n,). `sorted` is always true here."""

@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def var_mean(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The pair (var, mean) over dim. Shapes, dtypes, options and errors are those of var."""

@overload
def var_mean(
    input: Tensor,
    axis: Dims = None,
    unbiased: bool | None = None,
    keepdims: bool = False,
    *,
    correction: int | None = None,
) -> tuple[Tensor, Tensor]: ...
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x Φ(x), the Gaussian error linear unit; approximate is 'none' (by erf) or 'tanh'. Of x's shape and dtype, or
    float32 of integers and bools. Raises ValueError for another approximate.

    Source: Hendrycks and Gimpel 2016."""

def relu(input: Tensor) -> Tensor:
    """max(x, 0). Of x's shape and dtype (of bools, int64); the gradient at 0 is 0."""

def sigmoid(input: Tensor) -> Tensor:
    """y = 1 / (1 + e^-x);   dx = dy y (1 - y)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def silu(input: Tensor) -> Tensor:
    """y = x σ(x);   dx = dy σ (1 + x (1 - σ))

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def tanh(input: Tensor) -> Tensor:
    """y = tanh x;   dx = dy (1 - y²)

    Elementwise: of x's shape and float dtype, or float32 of integers and bools."""

def dropout(input: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None) -> Tensor:
    """Each element 0 with probability p, else divided by 1 - p; input itself if not training or p = 0. Floats, of any
    shape.

    Draws from `generator`, by default the one that manual_seed seeds. Raises TypeError for other dtypes, and ValueError
    for a p outside of [0, 1]. Source: Srivastava et al. 2014."""

def attention_pattern(qk: Tensor, mask: Tensor | None = None, is_causal: bool = False, scale: float = 1.0) -> Tensor:
    """softmax(scale · qk + mask) over the last dim of qk (…, T, S): which keys each query reads, and how much. Same
    shape.

    mask: bool Tensor (True: attend), or Tensor of qk's float dtype (added), or None, broadcast to qk. is_causal: query
    t sees the keys up to t + S - T. Raises TypeError for other dtypes, and ValueError for a mask that does not
    broadcast."""

def merge_heads(input: Tensor) -> Tensor:
    """Heads (B, n, T, d) side by side, (B, T, n·d): x.transpose(1, 2).reshape(B, T, n·d). Of any dtype. Raises
    ValueError for other numbers of dims."""

def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """z = softmax(q kᵀ / √d_k + mask) v   (Vaswani et al. 2017, eq. 1)

    query (…, T, d_k), key (…, S, d_k), value (…, S, d_v) -> (…, T, d_v). attn_mask: bool (True: attend) or float
    (added to the scores), broadcast to (…, T, S). scale replaces 1/√d_k. dropout_p applies to the pattern, whether the
    model trains or not: pass 0 to evaluate. enable_gqa: key and value may have fewer heads, in dim -3, a divisor of
    query's. Unlike in PyTorch, attn_mask and is_causal may be given together, and a query that sees nothing gives
    zeros. The pattern is held whole only with dropout_p, a mask that requires a gradient, or heads larger than the
    kernels take: 512 on a CPU; 128 or 256 on a GPU, as its shared memory allows. Raises ValueError for shapes, and
    TypeError for dtypes, that do not fit each other."""

@overload
def split_heads(input: Tensor, heads: int, /) -> Tensor:
    """x (B, T, n·d) as n heads: x.reshape(B, T, n, d).transpose(1, 2), a view (B, n, T, d), of any dtype.

    Given several numbers of heads, x holds that many parts side by side: x (B, T, (n_0 + n_1 + …)·d) -> (B, n_0, T, d),
    (B, n_1, T, d), … Raises ValueError for an x that cannot be divided so."""

@overload
def split_heads(input: Tensor, *heads: int) -> tuple[Tensor, ...]: ...
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """-(t ln p + (1 - t) ln(1 - p)) of probabilities p, input, and t, target, in [0, 1] and of one shape.

    weight: factors of the losses, broadcast. No logarithm counts as less than -100. Result and errors are those of
    mse_loss; also raises ValueError for an input outside of [0, 1], a target by more than 1/2, or NaN, unless a
    captured step runs."""

def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(input), exact for any logit. input, target: of one shape.

    weight: factors of the losses, pos_weight: of the part where the target is 1. Tensors or numbers, broadcast. Result
    and errors are those of mse_loss."""

def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy of logits against class indices or class probabilities.

    input (N, V), (V,) or (N, V, d1, …), float. target: ints (N,), () or (N, d1, …); or floats of input's shape, whose
    entries along the dim of classes are probabilities. weight (V,): factors of the classes. reduction 'none' gives a
    loss per target; 'sum' a number; 'mean' the sum, divided by the number of targets other than ignore_index, or by the
    sum of their weights (NaN if there is none), or, for probabilities, by their number.

    label_smoothing: the part of each target that is spread over all classes. Raises TypeError for other dtypes,
    ValueError for other shapes or options, and IndexError for a class outside of [0, V)."""

def huber_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d²/2 where |d| < delta, else delta (|d| - delta/2), with d = input - target, both of one shape.

    Result and errors are those of mse_loss; also raises ValueError unless delta is positive. Source: Huber 1964."""

def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """t (ln t - input): its sum is the Kullback-Leibler divergence of t, target, from e^input, both of one shape.

    log_target: target holds ln t. reduction 'batchmean' divides the sum by the size of the first dim, as the
    divergence's definition wants; 'mean' divides by the number of elements. Result and errors are those of mse_loss."""

def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """|input - target| of two Tensors of one shape; the gradient at 0 is 0.

    Gives a loss of that shape (reduction 'none'), or (), its 'mean' or 'sum'. Raises TypeError unless input holds
    floats, and ValueError for different shapes or another reduction."""

def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """(input - target)² of two Tensors of one shape.

    Gives a loss of that shape (reduction 'none'), or (), its 'mean' or 'sum'. Raises TypeError unless input holds
    floats, and ValueError for different shapes or another reduction."""

def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """-input[target]: the loss of log-probabilities, such as log_softmax gives, for class indices.

    Shapes, results, ignore_index and errors as in cross_entropy. weight (V,): factors of the classes; 'mean' divides by
    their sum over the targets."""

def smooth_l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d²/(2 beta) where |d| < beta, else |d| - beta/2, with d = input - target, both of one shape. beta 0: l1_loss.

    Result and errors are those of mse_loss; also raises ValueError for a negative beta. Source: Girshick 2015, equation
    3."""

def layer_norm(
    input: Tensor, normalized_shape: Size, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05
) -> Tensor:
    """Each row of input (…, *normalized_shape) to mean 0 and variance 1 (biased), times weight plus bias. Same shape.

    The last dims, of normalized_shape (an int or a shape), make a row; weight and bias have that shape or are None. eps
    is added to the variance. Raises ValueError for other shapes, and TypeError unless all are floats of one dtype.

    Source: Ba, Kiros and Hinton 2016."""

def rms_norm(input: Tensor, normalized_shape: Size, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Each row of input (…, *normalized_shape) to mean square 1, times weight, of normalized_shape. Same shape.

    eps is added to the mean square; None is the dtype's machine epsilon, as in PyTorch. Raises ValueError for other
    shapes, and TypeError unless all are floats of one dtype. Source: Zhang and Sennrich 2019."""

@overload
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """y = Σ x1 x2 / (max(‖x1‖, eps) max(‖x2‖, eps)) along dim

    x1 and x2 are broadcast; dim is dropped. Raises TypeError unless both hold floats, and ValueError for shapes that do
    not broadcast."""

@overload
def cosine_similarity(x1: Tensor, x2: Tensor, axis: int = 1, eps: float = 1e-08) -> Tensor: ...
def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """y = x where x > 0, else alpha (e^x - 1);   dx = dy, else dy alpha e^x

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats. Source: Clevert et al. 2015."""

@overload
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """y = a σ(b), a and b the halves of x along dim (Dauphin et al., 2016)

    Of half x's size there. Raises TypeError unless x holds floats, and ValueError if that size is odd."""

@overload
def glu(input: Tensor, axis: int = -1) -> Tensor: ...
def hardsigmoid(input: Tensor) -> Tensor:
    """y = x / 6 + 1/2, limited to [0, 1]

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""

def hardswish(input: Tensor) -> Tensor:
    """y = x hardsigmoid x (Howard et al., 2019)

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""

def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """y = min(max(x, min_val), max_val);   dx = dy where min_val < x < max_val, else 0

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats, and ValueError if min_val is above
    max_val."""

def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """y = x where x > 0, else negative_slope x;   dx = dy, or negative_slope dy

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats. Source: Maas et al. 2013."""

def logsigmoid(input: Tensor) -> Tensor:
    """y = ln σ(x) = -ln(1 + e^-x), without overflow;   dx = dy σ(-x)

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""

def mish(input: Tensor) -> Tensor:
    """y = x tanh(softplus x) (Misra, 2019)

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""

@overload
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """y = x / max(‖x‖, eps), with the p-norm along dim (one or several)

    Of x's shape and dtype. Raises TypeError unless x holds floats."""

@overload
def normalize(input: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor: ...
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """y = x where x > 0, else weight x, with a weight (1,), or (C,) for x (N, C, …) (He et al., 2015)

    Of x's shape. Raises TypeError unless both hold floats, and ValueError for a weight of another shape."""

def relu6(input: Tensor) -> Tensor:
    """y = min(max(x, 0), 6);   dx = dy where 0 < x < 6, else 0

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""

def selu(input: Tensor) -> Tensor:
    """y = 1.0507 elu(x, 1.67326), which keeps mean 0 and variance 1 (Klambauer et al., 2017)

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""

def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """y = ln(1 + e^(beta x)) / beta, and x where beta x > threshold;   dx = dy σ(beta x)

    Elementwise: of x's shape and dtype. Raises TypeError unless x holds floats."""

def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Padding as PyTorch's. `pad` is (last dim before, after, next to last before, after, …), sizes ≥ 0 by which it
    grows.

    mode "constant" pads with value (None: 0), "reflect" with what lies behind the border, "replicate" with the border,
    "circular" with the other end. Of x's dtype. Raises ValueError for another mode, a value in another mode than
    "constant", and sizes that x does not have."""

def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of weight, (V, C), at the int Tensor input, (…) -> (…, C), of weight's dtype. padding_idx: a row that gets
    no gradient.

    Raises IndexError for a number outside of [0, V), TypeError for an input that is no int Tensor, and ValueError for a
    weight that is no matrix."""

def getitem(input: Tensor, index: Index) -> Tensor:
    """x[index], basic or advanced as in NumPy: ints, slices, None, …, and int or bool Tensors, arrays or lists. Of x's
    dtype.

    Basic indexing, without the latter, gives a view. Raises IndexError for an index out of range or too many of them,
    and TypeError for one of another type."""

def parsed_index(input: Any, index: Index) -> tuple[Any, ...]:
    """An index with Tensors and lists as arrays (copied: what is recorded must not change). Raises on other types."""

def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input (…, k) @ weight (m, k)ᵀ + bias (m,) -> (…, m). Raises ValueError for other sizes, and TypeError unless all
    are floats of one dtype."""

def alias(input: Tensor) -> Tensor:
    """x as a new value in the graph, with the same memory, shape and dtype."""

def contiguous(input: Tensor) -> Tensor:
    """x if it is row-major already, else a copy, of x's shape and dtype."""

def expand(input: Tensor, *sizes: Size, size: Size | None = None) -> Tensor:
    """x broadcast to a shape without a copy; -1 keeps a size. The result is read-only, unless it has x's shape. Raises
    ValueError if x does not broadcast to it."""

def repeat(input: Tensor, *times: Size, repeats: Size | None = None) -> Tensor:
    """A copy of x tiled repeats[i] times along dim i; more repeats than dims add dims at the front (NumPy's tile).
    Raises ValueError for fewer."""

def view(input: Tensor, *sizes: Size, size: Size | None = None) -> Tensor:
    """Like reshape, but never a copy: raises RuntimeError where the memory layout does not allow a view of that shape,
    and ValueError for another size."""
