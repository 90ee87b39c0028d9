"""The types of the functions of ops. Written by `python -m tests.types`, from their names, defaults and docstrings."""

from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from ..autograd import Op
from ..random import Generator
from ..tensor import Tensor
from ..typing import Array, Dims, Index, Operand, Size

class ValuesIndices(NamedTuple):
    """What sort, topk, and max and min with dim= return."""

    values: Tensor
    indices: Tensor

class Cast(Op):
    """y = x in another dtype;   dx = dy in x's dtype"""

class Transfer(Op):
    """y = x on another device;   dx = dy on x's device"""

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

def add(x: Operand, other: Operand) -> Tensor:
    """y = a + b;   da = dy, db = dy

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def cos(x: Tensor) -> Tensor:
    """y = cos x;   dx = -dy sin x

    x: of any shape; integers and bools are taken as float32. Same shape and dtype."""

def div(x: Operand, other: Operand) -> Tensor:
    """x / other, true division: of integers too, in float32."""

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

def sub(x: Operand, other: Operand) -> Tensor:
    """y = a - b;   da = dy, db = -dy

    x, other: Tensors, arrays or numbers, one of them a Tensor. Dtypes are promoted, shapes broadcast. Raises
    ValueError for shapes that do not, and TypeError for other types."""

def embedding(input: Tensor, weight: Tensor) -> Tensor:
    """Rows of weight, (V, C), at the int Tensor input, (…) -> (…, C)."""

def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """y[i][j] = x[i][index[i][j]] for dim 1, and so on: index picks along dim, and equals x in the other sizes.

    Where PyTorch lets index be smaller than x in the other dims, slice x first."""

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

def flip(x: Tensor, *dims: Size) -> Tensor:
    """x reversed along dims."""

def pad(x: Tensor, pad: Sequence[int], value: float = 0.0) -> Tensor:
    """Constant padding as in PyTorch: `pad` is (last dim before, after, next to last before, after, …)."""

def permute(x: Tensor, *dims: Size) -> Tensor:
    """x with its dims reordered: dim i of the result is dim dims[i] of x. A view."""

def repeat(x: Tensor, *repeats: Size) -> Tensor:
    """A copy of x tiled repeats[i] times along dim i; more repeats than dims add dims at the front (NumPy's tile)."""

@overload
def repeat_interleave(x: Tensor, repeats: int, dim: int) -> Tensor:
    """A copy of x with each slice along dim `repeats` times in a row (NumPy's repeat)."""

@overload
def repeat_interleave(x: Tensor, repeats: int, axis: int) -> Tensor: ...
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
def argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """Indices that sort x along dim; ties keep their order, NaN counts as the largest. int64."""

@overload
def argsort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor: ...
@overload
def cumsum(x: Tensor, dim: int) -> Tensor:
    """Running sum along dim. Same shape; bools sum to int64."""

@overload
def cumsum(x: Tensor, axis: int) -> Tensor: ...
@overload
def logsumexp(x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """ln Σ e^x over dim (a number or several), without overflow."""

@overload
def logsumexp(x: Tensor, axis: Dims, keepdims: bool = False) -> Tensor: ...
@overload
def max(x: Tensor, dim: None = None, keepdim: bool = False) -> Tensor:
    """The largest of all; ties share the gradient. With dim, the pair (values, indices); the first of ties gets it."""

@overload
def max(x: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def max(x: Tensor, axis: int, keepdims: bool = False) -> ValuesIndices: ...
@overload
def mean(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """y = Σ x / n over dim (None: all). Floats only, float16 summed in float32; NaN for no elements."""

@overload
def mean(x: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def min(x: Tensor, dim: None = None, keepdim: bool = False) -> Tensor:
    """The smallest of all; ties share the gradient. With dim, the pair (values, indices); the first of ties gets it."""

@overload
def min(x: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def min(x: Tensor, axis: int, keepdims: bool = False) -> ValuesIndices: ...
@overload
def prod(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """y = Π x over dim. A tree of products, so the gradient is right where factors are 0."""

@overload
def prod(x: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> ValuesIndices:
    """The pair (values, indices) in order along dim. Stable."""

@overload
def sort(x: Tensor, axis: int = -1, descending: bool = False) -> ValuesIndices: ...
@overload
def std(x: Tensor, dim: Dims = None, keepdim: bool = False, correction: int = 1) -> Tensor:
    """y = √var(x). The gradient is 0 where the variance is 0, as in PyTorch."""

@overload
def std(x: Tensor, axis: Dims = None, keepdims: bool = False, correction: int = 1) -> Tensor: ...
@overload
def sum(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Sum over dim (None: all; a number or several). Integers and bools sum to int64."""

@overload
def sum(x: Tensor, axis: Dims = None, keepdims: bool = False) -> Tensor: ...
@overload
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True) -> ValuesIndices:
    """The pair (values, indices) of the k largest (or smallest) along dim, in order."""

@overload
def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True) -> ValuesIndices: ...
@overload
def var(x: Tensor, dim: Dims = None, keepdim: bool = False, correction: int = 1) -> Tensor:
    """y = Σ (x - mean)² / (n - correction) over dim. correction=1 is the unbiased estimate; NaN if n ≤ correction."""

@overload
def var(x: Tensor, axis: Dims = None, keepdims: bool = False, correction: int = 1) -> Tensor: ...
def clamp(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """x limited to [min, max]; either bound may be None. Numbers only: for tensor bounds use maximum and minimum."""

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

def where(condition: Tensor, x: Operand, other: Operand) -> Tensor:
    """x where condition (bool) is True, else other. Tensors or numbers, broadcast against each other."""

@overload
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Positive numbers that sum to 1 along dim, in proportion to e^x. Same shape and dtype."""

@overload
def softmax(x: Tensor, axis: int = -1) -> Tensor: ...
def cross_entropy(
    input: Tensor, target: Tensor, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Cross-entropy of logits against class indices.

    input (N, V) or (V,) or (N, V, d1, …), float; target (N,), () or (N, d1, …), int. reduction 'none' gives target's
    shape; 'sum' a number; 'mean' the sum over the number of targets other than ignore_index (NaN if there is none)."""

@overload
def log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """The logarithm of softmax, without underflow. Same shape and dtype."""

@overload
def log_softmax(x: Tensor, axis: int = -1) -> Tensor: ...
