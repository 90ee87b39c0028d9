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

def select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slice number `index` of x along dim, as a view without that dim."""

def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit; approximate is 'none' (erf) or 'tanh'. Same shape and dtype as x."""

def relu(x: Tensor) -> Tensor:
    """max(x, 0). Same shape and dtype; the gradient at 0 is 0."""

def sigmoid(x: Tensor) -> Tensor:
    """y = 1 / (1 + e^-x);   dx = dy y (1 - y)

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def silu(x: Tensor) -> Tensor:
    """y = x σ(x);   dx = dy σ (1 + x (1 - σ))

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def tanh(x: Tensor) -> Tensor:
    """y = tanh x;   dx = dy (1 - y²)

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def dropout(input: Tensor, p: float = 0.5, training: bool = True, generator: Generator | None = None) -> Tensor:
    """Each element 0 with probability p, else divided by 1 - p; input itself if not training or p = 0.

    Draws from `generator`, by default the one that manual_seed seeds."""

def attention_pattern(qk: Tensor, mask: Tensor | None = None, is_causal: bool = False, scale: float = 1.0) -> Tensor:
    """softmax(scale · qk + mask) over the last dim of qk (…, T, S): which keys each query reads, and how much.

    mask: bool Tensor (True: attend), float Tensor (added), or None, broadcast to qk."""

def merge_heads(x: Tensor) -> Tensor:
    """Heads (B, n, T, d) side by side: x.transpose(1, 2).reshape(B, T, n·d)."""

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
def split_heads(x: Tensor, heads: int, /) -> Tensor:
    """x (B, T, n·d) as n heads: x.reshape(B, T, n, d).transpose(1, 2), a view (B, n, T, d).

    Given several numbers of heads, x holds that many parts side by side: x (B, T, (n_0 + n_1 + …)·d) ->
    (B, n_0, T, d), (B, n_1, T, d), …"""

@overload
def split_heads(x: Tensor, *heads: int) -> tuple[Tensor, ...]: ...
def abs(x: Tensor) -> Tensor:
    """|x|. Same shape and dtype."""

def add(x: Operand, other: Operand, *, alpha: float = 1) -> Tensor:
    """x + alpha other."""

def cos(x: Tensor) -> Tensor:
    """y = cos x;   dx = -dy sin x

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def erf(x: Tensor) -> Tensor:
    """y = 2/√π ∫₀ˣ exp(-t²) dt;   dx = dy 2/√π exp(-x²)

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def erfc(x: Tensor) -> Tensor:
    """y = 1 - erf x;   dx = -dy 2/√π exp(-x²)

    It is accurate for large x too, where 1 - erf x would round to 0.

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def exp(x: Tensor) -> Tensor:
    """y = e^x;   dx = dy y

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def floor(x: Tensor) -> Tensor:
    """The largest integer ≤ x, in x's dtype; no gradient."""

def log(x: Tensor) -> Tensor:
    """y = ln x;   dx = dy / x

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def mul(x: Operand, other: Operand) -> Tensor:
    """y = a b;   da = dy b, db = dy a

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def neg(x: Tensor) -> Tensor:
    """-x. Same shape and dtype; not for bools."""

def pow(x: Operand, exponent: Operand) -> Tensor:
    """x ** exponent, tensors or numbers. Of integers with a non-negative int exponent, an integer."""

def rsqrt(x: Tensor) -> Tensor:
    """y = 1/√x;   dx = -dy y³ / 2

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1. Same shape and dtype; no gradient."""

def sin(x: Tensor) -> Tensor:
    """y = sin x;   dx = dy cos x

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def sqrt(x: Tensor) -> Tensor:
    """y = √x;   dx = dy / 2y

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def sub(x: Operand, other: Operand, *, alpha: float = 1) -> Tensor:
    """x - alpha other."""

def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of weight, (V, C), at the int Tensor input, (…) -> (…, C). padding_idx: a row that gets no gradient."""

def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """y[i][j] = x[i][index[i][j]] for dim 1, and so on: index picks along dim, and is at most as large as x
    in the other dims."""

def getitem(x: Tensor, index: Index) -> Tensor:
    """x[index], basic or advanced as in NumPy. Basic indexing gives a view."""

def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of x along dim named by index, an int Tensor of shape (n,)."""

def masked_fill(x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """x with value where mask (bool, broadcast to x) is True. Dtypes are promoted."""

def parsed_index(x: Any, index: Index) -> tuple[Any, ...]:
    """An index with Tensors and lists as arrays (copied: what is recorded must not change). Raises on other types."""

def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of the last two dims, up to `diagonal` (0: the main one), zeros above."""

def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of the last two dims, from `diagonal` (0: the main one), zeros below."""

def matmul(a: Tensor | Array, b: Tensor | Array) -> Tensor:
    """The matrix product a @ b, as in NumPy and PyTorch.

    Leading dims are batches and broadcast; a 1-d a is a row, a 1-d b a column, and the dim of size 1 that they bring
    is dropped again. Floats or ints, promoted."""

def einsum(equation: str, *operands: Tensor | Array) -> Tensor:
    """Einstein summation as in NumPy and PyTorch: letters, '...', ',' and '->', repeated letters for diagonals.

    Operands are contracted from left to right; each pair becomes one batched matmul."""

def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input (…, k) @ weight (m, k)ᵀ + bias (m,) -> (…, m). One dtype, float."""

def alias(x: Tensor) -> Tensor:
    """x as a new value in the graph, with the same memory."""

@overload
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors one after the other along dim; the other sizes must agree. Dtypes are promoted."""

@overload
def cat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor: ...
@overload
def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` parts along dim, as views: of equal size, but the last may be smaller."""

@overload
def chunk(x: Tensor, chunks: int, axis: int = 0) -> tuple[Tensor, ...]: ...
def clone(x: Tensor) -> Tensor:
    """A copy of x, contiguous and with memory of its own. Gradients flow through."""

def contiguous(x: Tensor) -> Tensor:
    """x if it is row-major already, else a copy."""

def expand(x: Tensor, *shape: Size) -> Tensor:
    """x broadcast to shape without a copy; -1 keeps a size. The result is read-only, unless it has x's shape."""

def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """x with the dims start_dim to end_dim (inclusive) merged into one."""

def flip(x: Tensor, *along: Size, dims: Dims = None) -> Tensor:
    """A copy of x reversed along dims."""

def permute(x: Tensor, *order: Size, dims: Dims = None) -> Tensor:
    """x with its dims reordered: dim i of the result is dim dims[i] of x. A view."""

def repeat(x: Tensor, *repeats: Size) -> Tensor:
    """A copy of x tiled repeats[i] times along dim i; more repeats than dims add dims at the front (NumPy's tile)."""

def reshape(x: Tensor, *shape: Size) -> Tensor:
    """x in another shape of the same size; one size may be -1. A view where the memory layout allows, else a copy."""

@overload
def split(x: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Consecutive views along dim: of a size (the last may be smaller), or of a list of sizes. A tuple."""

@overload
def split(x: Tensor, split_size_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]: ...
@overload
def squeeze(x: Tensor, dim: Dims = None) -> Tensor:
    """x without its dims of size 1, or without those of `dim` (one or several) that have size 1."""

@overload
def squeeze(x: Tensor, axis: Dims = None) -> Tensor: ...
@overload
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape, side by side along a new dim. Dtypes are promoted."""

@overload
def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor: ...
def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """x with two dims exchanged. A view."""

@overload
def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along dim, as views without that dim. A tuple."""

@overload
def unbind(x: Tensor, axis: int = 0) -> tuple[Tensor, ...]: ...
@overload
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """x with a new dim of size 1 at position dim."""

@overload
def unsqueeze(x: Tensor, axis: int) -> Tensor: ...
def view(x: Tensor, *shape: Size) -> Tensor:
    """Like reshape, but never a copy: raises where the memory layout does not allow a view."""

@overload
def norm(
    x: Tensor, p: float | str = 2, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None
) -> Tensor:
    """y = (Σ |x|^p)^(1/p) over dim (None: all); the largest or smallest |x| for p = ±∞, how many are not 0 for p = 0.

    p "fro" is 2. The gradient where the norm is 0 is 0, as in PyTorch. Raises ValueError for the nuclear norm."""

@overload
def norm(
    x: Tensor, p: float | str = 2, axis: Dims = None, keepdims: bool = False, dtype: DTypeLike | None = None
) -> Tensor: ...
def layer_norm(
    input: Tensor, normalized_shape: Size, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05
) -> Tensor:
    """Each row to mean 0 and variance 1 (biased), times weight plus bias.

    The last dims, of normalized_shape (an int or a shape), make a row; weight and bias have that shape or are None."""

def rms_norm(input: Tensor, normalized_shape: Size, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Each row to mean square 1, times weight. eps=None is the dtype's machine epsilon, as in PyTorch."""

@overload
def all(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where no value over dim (None: all) is 0."""

@overload
def all(x: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def amax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Largest value over dim (None: all); ties share the gradient evenly."""

@overload
def amax(x: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def amin(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Smallest value over dim (None: all); ties share the gradient evenly."""

@overload
def amin(x: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def any(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where any value over dim (None: all) is not 0."""

@overload
def any(x: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the largest value along dim, or in x flattened; the first of ties. int64."""

@overload
def argmax(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor: ...
@overload
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the smallest value along dim, or in x flattened; the first of ties. int64."""

@overload
def argmin(x: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor: ...
@overload
def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Indices that sort x along dim; ties keep their order, stable or not, and NaN counts as the largest. int64."""

@overload
def argsort(x: Tensor, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor: ...
@overload
def cumsum(x: Tensor, dim: int, dtype: DTypeLike | None = None) -> Tensor:
    """Running sum along dim. Same shape; bools sum to int64."""

@overload
def cumsum(x: Tensor, axis: int, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def logsumexp(x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """ln Σ e^x over dim (a number or several), without overflow."""

@overload
def logsumexp(x: Tensor, axis: Dims, keepdims: bool = False) -> Tensor: ...
@overload
def max(x: Tensor, dim: None = None, keepdim: bool = False) -> Tensor:
    """The largest of all; ties share the gradient. With dim, the pair (values, indices); the first of ties gets it.
    With a Tensor in place of dim, maximum()."""

@overload
def max(x: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def max(x: Tensor, axis: int, keepdims: bool = False) -> ValuesIndices: ...
@overload
def max(x: Tensor, dim: Tensor) -> Tensor: ...
@overload
def mean(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """y = Σ x / n over dim (None: all). Floats only, float16 summed in float32; NaN for no elements."""

@overload
def mean(x: Tensor, axis: Dims = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def min(x: Tensor, dim: None = None, keepdim: bool = False) -> Tensor:
    """The smallest of all; ties share the gradient. With dim, the pair (values, indices); the first of ties gets it.
    With a Tensor in place of dim, minimum()."""

@overload
def min(x: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def min(x: Tensor, axis: int, keepdims: bool = False) -> ValuesIndices: ...
@overload
def min(x: Tensor, dim: Tensor) -> Tensor: ...
@overload
def prod(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """y = Π x over dim. A tree of products, in float64, so the gradient is right where factors are 0."""

@overload
def prod(x: Tensor, axis: Dims = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
    """The pair (values, indices) in order along dim. Ties keep their order, stable or not."""

@overload
def sort(x: Tensor, axis: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices: ...
@overload
def std(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: int | None = None
) -> Tensor:
    """y = √var(x). The gradient is 0 where the variance is 0, as in PyTorch."""

@overload
def std(
    x: Tensor, axis: Dims = None, unbiased: bool | None = None, keepdims: bool = False, *, correction: int | None = None
) -> Tensor: ...
@overload
def sum(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """Sum over dim (None: all; a number or several), of x in dtype. Integers and bools sum to int64."""

@overload
def sum(x: Tensor, axis: Dims = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The pair (values, indices) of the k largest (or smallest) along dim, in order whatever `sorted` is."""

@overload
def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices: ...
@overload
def var(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: int | None = None
) -> Tensor:
    """y = Σ (x - mean)² / (n - correction) over dim. correction 1, the default, is the unbiased estimate; NaN if n is
    not above it."""

@overload
def var(
    x: Tensor, axis: Dims = None, unbiased: bool | None = None, keepdims: bool = False, *, correction: int | None = None
) -> Tensor: ...
def clamp(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """x limited to [min, max]; either bound may be None. Numbers, or Tensors that broadcast with x.

    The gradient goes to x where it lies within the bounds or on them, else to the bound. max wins over min."""

def eq(x: Operand, other: Operand) -> Tensor:
    """y = a == b, bool;   no gradient

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def ge(x: Operand, other: Operand) -> Tensor:
    """y = a ≥ b, bool;   no gradient

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def gt(x: Operand, other: Operand) -> Tensor:
    """y = a > b, bool;   no gradient

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def isfinite(x: Tensor) -> Tensor:
    """True where x is neither NaN nor infinite. Same shape, bool."""

def isinf(x: Tensor) -> Tensor:
    """True where x is +∞ or -∞. Same shape, bool."""

def isnan(x: Tensor) -> Tensor:
    """True where x is NaN. Same shape, bool."""

def le(x: Operand, other: Operand) -> Tensor:
    """y = a ≤ b, bool;   no gradient

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def logical_and(x: Operand, other: Operand) -> Tensor:
    """y = a and b, bool;   no gradient

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def logical_not(x: Tensor) -> Tensor:
    """True where x is 0 or False. Same shape, bool."""

def logical_or(x: Operand, other: Operand) -> Tensor:
    """y = a or b, bool;   no gradient

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def logical_xor(x: Operand, other: Operand) -> Tensor:
    """y = a or b but not both, bool;   no gradient

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def lt(x: Operand, other: Operand) -> Tensor:
    """y = a < b, bool;   no gradient

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def maximum(x: Operand, other: Operand) -> Tensor:
    """y = max(a, b);   dy goes to the larger, half to each where they tie

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def minimum(x: Operand, other: Operand) -> Tensor:
    """y = min(a, b);   dy goes to the smaller, half to each where they tie

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def ne(x: Operand, other: Operand) -> Tensor:
    """y = a ≠ b, bool;   no gradient

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def where(condition: Tensor, x: Operand | None = None, other: Operand | None = None) -> Tensor:
    """x where condition (bool) is True, else other. Tensors or numbers, broadcast against each other."""

@overload
def softmax(x: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """Positive numbers that sum to 1 along dim, in proportion to e^x. Same shape, and x's dtype or this one."""

@overload
def softmax(x: Tensor, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def log_softmax(x: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """The logarithm of softmax, without underflow. Same shape, and x's dtype or this one."""

@overload
def log_softmax(x: Tensor, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
def acos(x: Tensor) -> Tensor:
    """y = the angle whose cosine is x, in [0, π];   dx = -dy / √(1 - x²)

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def addcdiv(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """y = x + value tensor1 / tensor2"""

def addcmul(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """y = x + value tensor1 tensor2"""

def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """y = beta x + alpha mat1 mat2: (n, m) or what broadcasts to it, (n, k), (k, m) -> (n, m)"""

def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """y = beta x + alpha mat vec: (n,), (n, k), (k,) -> (n,)"""

def allclose(x: Operand, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Is isclose() true everywhere? A Python bool."""

def argwhere(x: Tensor) -> Tensor:
    """Where x is not 0, int64 (n, ndim), row by row."""

def asin(x: Tensor) -> Tensor:
    """y = the angle whose sine is x, in [-π/2, π/2];   dx = dy / √(1 - x²)

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def atan(x: Tensor) -> Tensor:
    """y = the angle whose tangent is x, in (-π/2, π/2);   dx = dy / (1 + x²)

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def atan2(x: Operand, other: Operand) -> Tensor:
    """The angle of the point (other, x), in [-π, π]. Tensors, broadcast against each other; integers as float32."""

def baddbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """y = beta x + alpha batch1 batch2: (B, n, m), (B, n, k), (B, k, m) -> (B, n, m)"""

def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number occurs in the int vector x, int64; or the sums of weights, (n,) too, in their float dtype.

    The result has max(x) + 1 elements, or minlength if that is more. No gradient; on the host."""

def bmm(x: Tensor, mat2: Tensor) -> Tensor:
    """(B, n, k) @ (B, k, m) -> (B, n, m)."""

def broadcast_tensors(*tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors broadcast against each other, without copies. A tuple."""

def broadcast_to(x: Tensor, *sizes: Size, size: Size | None = None) -> Tensor:
    """x broadcast to a shape, without a copy: expand(size)."""

def bucketize(x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The number of the interval between sorted boundaries, (n,), that each value of x is in: searchsorted's answer."""

def ceil(x: Tensor) -> Tensor:
    """y = the smallest integer ≥ x, in x's dtype;   no gradient"""

def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """y = x where x > 0, else alpha (e^(x / alpha) - 1)"""

def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one after the other along dim 1; a vector is a column."""

def cosh(x: Tensor) -> Tensor:
    """y = (e^x + e^-x) / 2;   dx = dy sinh x

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

@overload
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """y = Σ x1 x2 / (max(‖x1‖, eps) max(‖x2‖, eps)) along dim"""

@overload
def cosine_similarity(x1: Tensor, x2: Tensor, axis: int = 1, eps: float = 1e-08) -> Tensor: ...
@overload
def count_nonzero(x: Tensor, dim: Dims = None) -> Tensor:
    """How many values over dim (None: all; a number or several) are not 0, int64."""

@overload
def count_nonzero(x: Tensor, axis: Dims = None) -> Tensor: ...
@overload
def cumprod(x: Tensor, dim: int, dtype: DTypeLike | None = None) -> Tensor:
    """y_i = Π_{j ≤ i} x_j along dim; the gradient is right where factors are 0. Integers and bools give int64"""

@overload
def cumprod(x: Tensor, axis: int, dtype: DTypeLike | None = None) -> Tensor: ...
def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with the vector x on a diagonal, or the diagonal of the matrix x."""

def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dim of x on the diagonal `offset` of dims dim1 and dim2, 0 elsewhere."""

def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements (i, i + offset) of dims dim1 and dim2, as the last dim of a copy."""

def div(x: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """x / other, true division: of integers too, in float32. With rounding_mode "floor" or "trunc" a whole number, in
    the promoted dtype and without a gradient."""

def dot(x: Tensor, tensor: Tensor) -> Tensor:
    """(k,) @ (k,) -> ()."""

def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one after the other along dim 2; a matrix has one slice."""

def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """y = x where x > 0, else alpha (e^x - 1);   dx = dy, else dy alpha e^x"""

def equal(x: Operand, other: Operand) -> bool:
    """Have x and other the same shape and values? A Python bool. NaN equals nothing."""

def exp2(x: Tensor) -> Tensor:
    """y = 2^x;   dx = dy y ln 2"""

def expm1(x: Tensor) -> Tensor:
    """y = e^x - 1, accurate where that is tiny;   dx = dy e^x

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def fliplr(x: Tensor) -> Tensor:
    """A copy of x reversed along its second dim."""

def flipud(x: Tensor) -> Tensor:
    """A copy of x reversed along its first dim."""

def floor_divide(x: Operand, other: Operand) -> Tensor:
    """⌊x / other⌋ in the promoted dtype, as Python's //; no gradient. Integers by a tensor's 0 give 0."""

def fmod(x: Operand, other: Operand) -> Tensor:
    """x - other trunc(x / other), as C's: it has x's sign. Integers by a tensor's 0 give 0."""

def frac(x: Tensor) -> Tensor:
    """y = x - trunc x, of x's sign;   dx = dy"""

@overload
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """y = a σ(b), a and b the halves of x along dim (Dauphin et al., 2016)"""

@overload
def glu(x: Tensor, axis: int = -1) -> Tensor: ...
def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """y = x where |x| > lambd, else 0;   dx = dy there, else 0"""

def hardsigmoid(x: Tensor) -> Tensor:
    """y = x / 6 + 1/2, limited to [0, 1]"""

def hardswish(x: Tensor) -> Tensor:
    """y = x hardsigmoid x (Howard et al., 2019)"""

def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """y = min(max(x, min_val), max_val);   dx = dy where min_val < x < max_val, else 0"""

def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one after the other along dim 1; vectors and numbers along dim 0."""

def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """y = x with alpha times the slices of source added at the places `index`, (n,), of dim"""

def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """y = x with the slices of source in the places `index`, (n,), of dim; of several for one place, the last stays"""

def index_fill(x: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    """y = x with a number, or a tensor of no dims, in the slices `index`, (n,), of dim"""

def inner(x: Operand, other: Operand) -> Tensor:
    """The products of the last dims: (…, k), (…, k) -> (…, …). A number multiplies."""

def isclose(x: Operand, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Where |x - other| ≤ atol + rtol |other|, bool, both broadcast. Equal infinities are close; NaN if equal_nan."""

def isin(elements: Operand, test_elements: Operand) -> Tensor:
    """Which elements are among the test elements: bool, of elements' shape. One of the two may be a number."""

def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """y = x where x > 0, else negative_slope x;   dx = dy, or negative_slope dy"""

def lerp(x: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """y = x + weight (end - x): x for weight 0, end for 1. weight: a number or a Tensor"""

def log10(x: Tensor) -> Tensor:
    """y = the logarithm of x to base 10, exact for its powers;   dx = dy / (x ln 10)"""

def log1p(x: Tensor) -> Tensor:
    """y = ln(1 + x), accurate where x is tiny;   dx = dy / (1 + x)

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def log2(x: Tensor) -> Tensor:
    """y = the logarithm of x to base 2, exact for its powers;   dx = dy / (x ln 2)"""

def logaddexp(x: Operand, other: Operand) -> Tensor:
    """ln(e^x + e^other), without overflow and without losing the smaller. Broadcasts; other may be a number."""

@overload
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """y_i = ln Σ_{j ≤ i} e^x_j along dim, without overflow"""

@overload
def logcumsumexp(x: Tensor, axis: int) -> Tensor: ...
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """y = ln(x / (1 - x)), x limited to [eps, 1 - eps] first;   dx = dy / (x (1 - x))"""

def logsigmoid(x: Tensor) -> Tensor:
    """y = ln σ(x) = -ln(1 + e^-x), without overflow;   dx = dy σ(-x)"""

def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of x where mask (bool) is True, (n,), both broadcast. The mask is read on the host."""

@overload
def median(x: Tensor, dim: None = None, keepdim: bool = False) -> Tensor:
    """The middle value of all, the lower of two; NaN if there is one. With dim, the pair (values, indices).

    The gradient of the middle of all is shared by those that equal it; along a dim, the one at `indices` has it."""

@overload
def median(x: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def median(x: Tensor, axis: int, keepdims: bool = False) -> ValuesIndices: ...
def meshgrid(*tensors: Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: one tensor per dim, (n_0, n_1, …) each, from vectors of n_i (or numbers). A tuple.

    indexing "xy" exchanges the first two dims, as plots do."""

def mish(x: Tensor) -> Tensor:
    """y = x tanh(softplus x) (Misra, 2019)"""

def mm(x: Tensor, mat2: Tensor) -> Tensor:
    """(n, k) @ (k, m) -> (n, m)."""

def movedim(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """x with the dims `source` (one or several) at the positions `destination`, the others in order. A view."""

def mv(x: Tensor, vec: Tensor) -> Tensor:
    """(n, k) @ (k,) -> (n,)."""

def nan_to_num(x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """y = x with these numbers for NaN, ∞ and -∞, by default 0 and the largest and smallest of the dtype"""

def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` slices of x along dim from `start` on, as a view."""

@overload
def nonzero(x: Tensor, as_tuple: Literal[False] = False) -> Tensor:
    """Where x is not 0: int64 (n, ndim), row by row; as_tuple: an index for each dim, (n,), as x[…] takes them."""

@overload
def nonzero(x: Tensor, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
@overload
def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """y = x / max(‖x‖, eps), with the p-norm along dim (one or several)"""

@overload
def normalize(x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor: ...
def outer(x: Tensor, vec2: Tensor) -> Tensor:
    """y_ij = x_i vec2_j: (n,), (m,) -> (n, m)"""

def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Padding as PyTorch's: `pad` is (last dim before, after, next to last before, after, …).

    mode "constant" pads with value (None: 0), "reflect" with what lies behind the border, "replicate" with the border,
    "circular" with the other end."""

def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """y = x where x > 0, else weight x, with a weight (1,), or (C,) for x (N, C, …) (He et al., 2015)"""

def ravel(x: Tensor) -> Tensor:
    """x with one dim: a view where the memory layout allows, else a copy."""

def reciprocal(x: Tensor) -> Tensor:
    """y = 1 / x, of integers in float32;   dx = -dy y²"""

def relu6(x: Tensor) -> Tensor:
    """y = min(max(x, 0), 6);   dx = dy where 0 < x < 6, else 0"""

def remainder(x: Operand, other: Operand) -> Tensor:
    """x - other ⌊x / other⌋, as Python's %: it has other's sign. Integers by a tensor's 0 give 0."""

def repeat_interleave(x: Tensor, repeats: int, dim: Dims = None) -> Tensor:
    """A copy of x with each slice along dim `repeats` times in a row (NumPy's repeat); dim None: x flattened.

    repeats: an int, or an int Tensor with one for each slice, which is read on the host."""

def roll(x: Tensor, shifts: int | Sequence[int], dims: Dims = None) -> Tensor:
    """x with its elements moved on by `shifts` along dims, those at the end to the front. dims None: x flattened."""

def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """A copy of x turned by k times 90° in the plane of two dims, from the first towards the second."""

def round(x: Tensor, decimals: int = 0) -> Tensor:
    """y = the nearest integer, the even one of two, or the nearest multiple of 10^-decimals;   no gradient"""

def scatter(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """y = x with src (a Tensor or a number) written at `index` along dim; of several to one place, the last stays

    y[index[i][j]][j] = src[i][j] for dim 0, and so on. The places are found on the host."""

def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """x with src added at `index` along dim: y[index[i][j]][j] += src[i][j] for dim 0, and so on."""

def searchsorted(
    sorted_sequence: Tensor,
    values: Operand,
    *,
    right: bool = False,
    side: str | None = None,
    out_int32: bool = False,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where values would have to be put in so that the last dim stays sorted, int64: before their equals, or after them
    (right=True, side="right"). sorted_sequence: (n,), or (…, n) with values (…, m); with sorter, the int Tensor that
    sorts it, it need not be sorted. No gradient; on the host."""

def selu(x: Tensor) -> Tensor:
    """y = 1.0507 elu(x, 1.67326), which keeps mean 0 and variance 1 (Klambauer et al., 2017)"""

def sinh(x: Tensor) -> Tensor:
    """y = (e^x - e^-x) / 2;   dx = dy cosh x

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

@overload
def softmin(x: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """y = softmax(-x) along dim"""

@overload
def softmin(x: Tensor, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """y = ln(1 + e^(beta x)) / beta, and x where beta x > threshold;   dx = dy σ(beta x)"""

def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """y = x moved by lambd towards 0, and 0 if it is not so far away;   dx = dy where |x| > lambd, else 0"""

def softsign(x: Tensor) -> Tensor:
    """y = x / (1 + |x|);   dx = dy / (1 + |x|)²"""

def split_with_sizes(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Consecutive views of these sizes along dim. A tuple."""

def square(x: Tensor) -> Tensor:
    """y = x²;   dx = 2 x dy"""

@overload
def std_mean(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: int | None = None
) -> tuple[Tensor, Tensor]:
    """The pair (std, mean) over dim."""

@overload
def std_mean(
    x: Tensor, axis: Dims = None, unbiased: bool | None = None, keepdims: bool = False, *, correction: int | None = None
) -> tuple[Tensor, Tensor]: ...
def t(x: Tensor) -> Tensor:
    """The transpose of a matrix, as a view; x itself, as a view, if it has fewer dims."""

def take(x: Tensor, index: Tensor) -> Tensor:
    """The elements of x, flattened, at the int Tensor index, which may count from the end; of its shape."""

def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """gather, for which x and indices are broadcast in the other dims. dim None: x flattened."""

def tan(x: Tensor) -> Tensor:
    """y = sin x / cos x;   dx = dy (1 + y²)

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def tanhshrink(x: Tensor) -> Tensor:
    """y = x - tanh x;   dx = dy tanh² x"""

@overload
def tensor_split(x: Tensor, indices_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """As many parts along dim, of sizes that differ by at most 1, or parts that begin at these indices. A tuple."""

@overload
def tensor_split(x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]: ...
def tensordot(a: Tensor | Array, b: Tensor | Array, dims: int = 2) -> Tensor:
    """Sums over products of the last `dims` dims of a and the first of b, or over (dims of a, dims of b)."""

def tile(x: Tensor, *dims: Size) -> Tensor:
    """A copy of x repeated dims[i] times along dim i; if dims are fewer than x's, they are of its last ones."""

def trace(x: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""

def trunc(x: Tensor) -> Tensor:
    """y = x without its fraction, in x's dtype;   no gradient"""

def unflatten(x: Tensor, dim: int, sizes: Size) -> Tensor:
    """x with one dim as several, of these sizes; one may be -1."""

@overload
def unique(
    x: Tensor,
    sorted: bool = True,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor:
    """The different values of x in ascending order, or its different slices along dim; no gradient. On the host.

    return_inverse: also where in the result each element is, int64 of x's shape (or one per slice). return_counts: also
    how often each occurs, int64. `sorted` is always true here."""

@overload
def unique(
    x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def var_mean(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: int | None = None
) -> tuple[Tensor, Tensor]:
    """The pair (var, mean) over dim."""

@overload
def var_mean(
    x: Tensor, axis: Dims = None, unbiased: bool | None = None, keepdims: bool = False, *, correction: int | None = None
) -> tuple[Tensor, Tensor]: ...
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one after the other along dim 0; a vector is a row."""

def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """-(t ln p + (1 - t) ln(1 - p)) of probabilities p, input, and t, target, in [0, 1] and of one shape.

    weight: factors of the losses, broadcast. No logarithm counts as less than -100. Raises ValueError for an input
    outside of [0, 1], a target by more than 1/2, or NaN, unless a captured step runs."""

def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(input), exact for any logit. input, target: of one shape.

    weight: factors of the losses, pos_weight: of the part where the target is 1. Tensors or numbers, broadcast."""

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
    sum of their weights (NaN if there is none), or, for probabilities, by their number."""

def huber_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d²/2 where |d| < delta, else delta (|d| - delta/2), with d = input - target. Source: Huber 1964."""

def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """t (ln t - input): its sum is the Kullback-Leibler divergence of t, target, from e^input, both of one shape.

    log_target: target holds ln t. reduction 'batchmean' divides the sum by the size of the first dim, as the
    divergence's definition wants; 'mean' divides by the number of elements."""

def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """|input - target| of float Tensors of one shape; the gradient at 0 is 0."""

def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """(input - target)² of float Tensors of one shape."""

def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """-input[target]: the loss of log-probabilities, such as log_softmax gives, for class indices.

    Shapes and ignore_index as in cross_entropy. weight (V,): factors of the classes; 'mean' divides by their sum over
    the targets."""

def smooth_l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d²/(2 beta) where |d| < beta, else |d| - beta/2, with d = input - target. beta 0: l1_loss.

    Source: Girshick 2015, equation 3."""
