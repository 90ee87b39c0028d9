"""The contract of a backend: every primitive once, with its shapes and its meaning.

`numpy/` defines what each computes, `launch/` has the same as launches of kernels, and both have a file for each family
below. mypy rejects a backend that lacks a primitive, and so does Python when one is instantiated.

Arrays are np.ndarray or cupy.ndarray. A primitive takes arrays (where it says Operand, a Python number too) and returns
a new array. Exceptions are views, and names that end in an underscore, which change their arguments. The functions that
users call have checked all arguments. A sum of float16 or float32 numbers loses no more than its last digit. float16 is
for storage: arithmetic on it happens in float32. NaN and Inf come without warnings.
"""

import abc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np

from . import devices
from .philox import Draw

Array: TypeAlias = Any  # of the backend's own kind
Operand: TypeAlias = Any  # an array or a Python number
Shape: TypeAlias = tuple[int, ...]
DType: TypeAlias = np.dtype
Slots: TypeAlias = Sequence[tuple[Any, ...]]
Options: TypeAlias = Callable[[], Sequence[tuple[float, ...]]]
Steps: TypeAlias = tuple[tuple[float, float, float], ...]
Arrays: TypeAlias = Sequence[Array]
# Of a backward: which inputs need a gradient? The others get None.
Wanted: TypeAlias = tuple[bool, ...]
Gradients: TypeAlias = tuple[Array, ...]


class Primitives(Protocol):
    device: devices.device  # "cpu" or "cuda"
    array_type: type  # what its arrays are
    captures: bool  # can steps be captured? See replay/captured.py
    warns: bool  # must primitives be called within quietly()? If not, they silence NumPy themselves

    # ---------------------------------------------------------------------------------------------- movement: making

    def asarray(self, x: Any) -> Array: ...  # x, or what NumPy makes of it, as an array of this backend
    def from_numpy(self, x: np.ndarray) -> Array: ...
    def to_numpy(self, x: Array) -> np.ndarray: ...
    def zeros(self, shape: Shape, dtype: DType) -> Array: ...
    def full(self, shape: Shape, value: Any, dtype: DType) -> Array: ...
    def quietly(self) -> AbstractContextManager[Any]: ...  # inside, NumPy does not warn of NaN and Inf

    def overlap(self, x: Array, y: Array) -> bool: ...  # may they share memory?
    def is_compact(self, x: Array) -> bool: ...  # dense, row-major and writeable: in-place arithmetic may use it
    def is_writeable(self, x: Array) -> bool: ...  # False for the result of expand, whose places share memory

    # ---------------------------------------------------------------------------------------------- movement: moving

    def copy(self, x: Array) -> Array: ...  # dense and row-major
    def reshape(self, x: Array, shape: Shape) -> Array: ...  # a view where one is possible
    def permute(self, x: Array, dims: Sequence[int]) -> Array: ...  # a view
    def expand(self, x: Array, shape: Shape) -> Array: ...  # a view: broadcast, with strides of 0
    def flip(self, x: Array, dims: Any) -> Array: ...  # a view: reversed along dims, one or several
    def cat(self, xs: Arrays, dim: int) -> Array: ...  # one after the other along dim
    def stack(self, xs: Arrays, dim: int) -> Array: ...  # side by side along a new dim
    def pad(self, x: Array, widths: Sequence[tuple[int, int]], value: float) -> Array: ...  # widths: (before, after)

    # ----------------------------------------------------------------------------------------------------------- index

    def getitem(self, x: Array, index: tuple[Any, ...]) -> Array: ...  # x[index]; a view for ints and slices
    def setitem(self, x: Array, index: tuple[Any, ...], value: Operand) -> None: ...  # in place, broadcast and cast

    def getitem_add(self, shape: Shape, index: Any, dy: Array) -> Array:
        """Zeros of `shape` with dy added at `index`, where repeated indices add up: the adjoint of getitem."""

    def gather(self, x: Array, dim: int, index: Array) -> Array:
        """y[i, j] = x[index[i, j], j] for dim 0, and likewise for the others; of index's shape."""

    def scatter_add(self, shape: Shape, dim: int, index: Array, dy: Array) -> Array:
        """Zeros of `shape` with dy added at `index` along dim: the adjoint of gather. dy and index have one shape."""

    def flatnonzero(self, x: Array) -> Array:
        """Where bools, flattened, are True: int64 (n,). Waits for a GPU."""

    def take(self, x: Array, index: Array) -> Array: ...  # rows of x: (V, C) and (…) -> (…, C)

    def take_add(self, rows: int, index: Array, dy: Array) -> Array:
        """Zeros (rows, C) with dy (N, C) added at index (N,): the adjoint of take. Sums in a fixed order."""

    # ----------------------------------------------------------------------------------------------------- elementwise

    def add(self, x: Operand, y: Operand, out: Array = None) -> Array: ...
    def sub(self, x: Operand, y: Operand, out: Array = None) -> Array: ...
    def mul(self, x: Operand, y: Operand, out: Array = None) -> Array: ...
    def div(self, x: Operand, y: Operand, out: Array = None) -> Array: ...  # of floats
    def maximum(self, x: Operand, y: Operand, out: Array = None) -> Array: ...  # NaN if either is
    def minimum(self, x: Operand, y: Operand, out: Array = None) -> Array: ...
    def pow(self, x: Operand, y: Operand) -> Array: ...
    def floor_divide(self, x: Operand, y: Operand) -> Array: ...  # ⌊x / y⌋, as Python's //. Integers by 0: 0
    def remainder(self, x: Operand, y: Operand) -> Array: ...  # x - y ⌊x / y⌋, exact, as Python's %. Integers by 0: 0
    def clamp(self, x: Array, min: Any, max: Any) -> Array: ...  # numbers or None
    def where(self, condition: Array, x: Operand, y: Operand) -> Array: ...
    def cast(self, x: Array, dtype: DType) -> Array: ...  # always a copy

    def neg(self, x: Array) -> Array: ...
    def abs(self, x: Array) -> Array: ...
    def sign(self, x: Array) -> Array: ...  # -1, 0, 1 or NaN
    def floor(self, x: Array) -> Array: ...
    def sqrt(self, x: Array) -> Array: ...
    def rsqrt(self, x: Array) -> Array: ...  # 1 / √x
    def exp(self, x: Array) -> Array: ...
    def log(self, x: Array) -> Array: ...
    def expm1(self, x: Array) -> Array: ...  # eˣ - 1, as accurate where that is tiny
    def log1p(self, x: Array) -> Array: ...  # ln(1 + x), likewise
    def sin(self, x: Array) -> Array: ...
    def cos(self, x: Array) -> Array: ...
    def atan(self, x: Array) -> Array: ...
    def tanh(self, x: Array) -> Array: ...
    def erf(self, x: Array) -> Array: ...
    def erfc(self, x: Array) -> Array: ...  # 1 - erf x, as accurate where that is tiny
    def relu(self, x: Array) -> Array: ...  # max(x, 0)
    def sigmoid(self, x: Array) -> Array: ...  # 1 / (1 + e⁻ˣ), without overflow
    def silu(self, x: Array) -> Array: ...  # x σ(x)
    def gelu(self, x: Array, approximate: str) -> Array: ...  # x Φ(x); approximate: "none" or "tanh"
    def gelu_backward(self, dy: Array, x: Array, y: Array, approximate: str) -> Array: ...  # y = gelu(x)

    def eq(self, x: Operand, y: Operand) -> Array: ...  # these and all that follow give bools
    def ne(self, x: Operand, y: Operand) -> Array: ...
    def lt(self, x: Operand, y: Operand) -> Array: ...
    def le(self, x: Operand, y: Operand) -> Array: ...
    def gt(self, x: Operand, y: Operand) -> Array: ...
    def ge(self, x: Operand, y: Operand) -> Array: ...
    def logical_and(self, x: Operand, y: Operand) -> Array: ...
    def logical_or(self, x: Operand, y: Operand) -> Array: ...
    def logical_xor(self, x: Operand, y: Operand) -> Array: ...
    def logical_not(self, x: Array) -> Array: ...
    def isnan(self, x: Array) -> Array: ...
    def isinf(self, x: Array) -> Array: ...
    def isfinite(self, x: Array) -> Array: ...

    # ---------------------------------------------------------------------------------------------------------- reduce

    # dims: a tuple of numbers in [0, ndim). Sums of integers and bools are int64.
    def sum(self, x: Array, dims: Shape, keepdim: bool) -> Array: ...
    def max(self, x: Array, dims: Shape, keepdim: bool) -> Array: ...
    def min(self, x: Array, dims: Shape, keepdim: bool) -> Array: ...
    def any(self, x: Array, dims: Shape, keepdim: bool) -> Array: ...
    def all(self, x: Array, dims: Shape, keepdim: bool) -> Array: ...
    def argmax(self, x: Array, dim: int, keepdim: bool) -> Array: ...  # int64; of equals the first
    def argmin(self, x: Array, dim: int, keepdim: bool) -> Array: ...
    def argsort(  # int64, stable; NaN is the largest number. k: only the first k
        self, x: Array, dim: int, descending: bool, k: int | None = None
    ) -> Array: ...
    def cumsum(self, x: Array, dim: int, reverse: bool) -> Array: ...  # reverse: from the end
    def dot(self, x: Array, y: Array) -> float: ...  # Σ x * y over everything

    # ---------------------------------------------------------------------------------------------------------- matmul

    def matmul(self, a: Array, b: Array) -> Array: ...  # (…, n, k) @ (…, k, m) -> (…, n, m), batch dims broadcast
    def linear(self, x: Array, weight: Array, bias: Array) -> Array: ...  # (…, k), (m, k), (m,) or None -> (…, m)

    def linear_backward(self, dy: Array, x: Array, weight: Array, wanted: Wanted) -> Gradients:
        """dy (…, m), x (…, k), weight (m, k) -> dx, dweight, dbias."""

    # --------------------------------------------------------------------------------------------------------- softmax

    def softmax(self, x: Array, dim: int) -> Array: ...  # (…, n, …) -> the same. A slice that is all -∞ gives zeros
    def softmax_backward(self, dy: Array, y: Array, dim: int) -> Array: ...  # y = softmax(x)
    def log_softmax(self, x: Array, dim: int) -> Array: ...
    def logsumexp(self, x: Array, dim: int) -> Array: ...  # dim stays, with size 1

    # ------------------------------------------------------------------------------------------------------------ norm

    def layer_norm(self, x: Array, weight: Array, bias: Array, eps: float) -> tuple[Array, Array, Array]:
        """x (…, C); weight, bias (C,) or None -> y (…, C), mean (…, 1), rstd (…, 1) = 1 / √(variance + eps)."""

    def layer_norm_backward(
        self, dy: Array, x: Array, weight: Array, mean: Array, rstd: Array, wanted: Wanted
    ) -> Gradients: ...  # dx, dweight, dbias

    def rms_norm(self, x: Array, weight: Array, eps: float) -> tuple[Array, Array]:
        """x (…, C), weight (C,) or None -> y (…, C), rstd (…, 1) = 1 / √(mean x² + eps)."""

    def rms_norm_backward(self, dy: Array, x: Array, weight: Array, rstd: Array, wanted: Wanted) -> Gradients: ...

    # --------------------------------------------------------------------------------------------------- cross-entropy

    def cross_entropy(self, logits: Array, target: Array, ignore_index: int, smoothing: float) -> tuple[Array, Array]:
        """logits (N, V), target (N,) -> loss of each row (N,), and softmax(logits) (N, V) for the backward.

        loss = -Σ q log p with q = (1 - smoothing) onehot(target) + smoothing / V; 0 for a row to be ignored."""

    def cross_entropy_backward(
        self, dloss: Array, p: Array, target: Array, ignore_index: int, smoothing: float
    ) -> Array: ...  # dlogits = (p - q) * dloss, row by row

    # ------------------------------------------------------------------------------------------------------- attention

    def attention(
        self, q: Array, k: Array, v: Array, mask: Array, bias: Array, scale: float, is_causal: bool,
        keep: Array = None, kept: float = 1.0,
    ) -> tuple[Array, Array]:  # fmt: skip
        """softmax(scale q kᵀ + bias) v -> o (B, nh, T, Dv), lse (B, nh, T, 2), without T × S scores at a time.

        q (B, nh, T, D), k (B, nkv, S, D), v (B, nkv, S, Dv), nh a multiple of nkv. mask (bool, True: attend) and bias
        (of q's dtype) are (B, nh, T, S), broadcast by strides of 0, or None. Causal: query i sees keys up to i. A query
        that sees nothing gives zeros. lse is ln Σ exp of each row's scores in two parts, so that no digits are lost:
        the largest score, and the rest, ∞ for a row that sees nothing. o lies in memory as (B, T, nh, Dv), as the
        projection that follows wants it. keep (B, nh, T, S), bool, or None: dropout's, which multiplies the pattern by
        `kept`, or by 0, before it meets v; only for attention_fits(dropout=True)."""

    def attention_backward(
        self, do: Array, q: Array, k: Array, v: Array, mask: Array, bias: Array, o: Array, lse: Array, scale: float,
        is_causal: bool, keep: Array = None, kept: float = 1.0,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """dq, dk, dv. The pattern is computed again from the scores and lse."""

    def attention_fits(self, dtype: DType, D: int, dropout: bool = False) -> bool:
        """Do attention() and its backward support heads of this size, and dropout, which takes a CPU less time with the
        pattern held? Kernels have limits, NumPy has none."""

    def attention_decode_(
        self, q: Array, k: Array, v: Array, keys: Array, values: Array, length: Array, first: Array, slopes: Array,
        scale: float,
    ) -> Array:  # fmt: skip
        """Attention of one new position to itself and to those in a cache, which takes its key and value -> o.

        q (B, nh, 1, D), k (B, nkv, 1, D), v (B, nkv, 1, Dv); keys (B, nkv, D, capacity) and values (B, nkv, capacity,
        Dv) are the cache, of which `length` positions, an int64 array (1,) below capacity, are filled. k and v are
        written behind them. Row b sees the positions from first[b] on, int64 (B,) up to length; None: all. slopes (nh,)
        float64 or None: head h's scores are lowered by slopes[h] · distance. o (B, nh, 1, Dv) lies in memory as
        (B, 1, nh, Dv). The work is in proportion to length, whatever the capacity."""

    def attention_pattern(self, scores: Array, scale: float, mask: Array, is_causal: bool) -> Array:
        """softmax(scale * scores) over the last dim, exactly 0 where the mask is False or where causality forbids.

        scores (…, T, S); mask: bool (True: attend), broadcast to scores, or None. Causal: query i of T sees keys up to
        i, as in PyTorch (aligned at the top left). A row with nothing to see is zeros."""

    def attention_pattern_backward(self, dy: Array, y: Array, scale: float) -> Array: ...

    # ---------------------------------------------------------------------------------------------------------- random

    # `draw` says at which block (four words of 32 bits) of which Philox stream the words begin. Uniform numbers have
    # 53 random bits in float64, 24 in float32 and 11 in float16; normal ones are computed in float64.
    def random_words(self, draw: Draw, n: int) -> Array: ...  # (n,) uint32
    def random_uniform(self, draw: Draw, shape: Shape, dtype: DType) -> Array: ...  # [0, 1)
    def random_normal(self, draw: Draw, shape: Shape, dtype: DType) -> Array: ...

    def dropout(self, x: Array, p: float, draw: Draw) -> tuple[Array, Array]:
        """(x mask, mask): mask holds 1 / (1 - p) with probability 1 - p, else 0, in x's dtype."""

    def dropout_mask(self, shape: Shape, p: float, draw: Draw) -> Array: ...  # bool: where that mask is not 0

    # ----------------------------------------------------------------------------------------------------------- optim

    # For all parameters at once. Their arrays are compact; those of a slot have one dtype.
    # Options that may change from step to step come from a function, which returns rows of numbers; the last entry of a
    # slot is the number of its row.
    def adam_(self, slots: Slots, options: Options, beta1: float, beta2: float, eps: float, decoupled: bool) -> None:
        """One step of Adam or AdamW (decoupled). slots: (p, g, m, v, row). A row is (lr, weight_decay, step), step
        counted from 1."""

    def sgd_(self, slots: Slots, options: Options, momentum: float, nesterov: bool) -> None:
        """One step of SGD. slots: (p, g, buffer, row). A row is (lr, weight_decay). The buffer starts as zeros; it is
        not touched without momentum, and may be None then."""

    def muon_(self, slots: Slots, options: Options, nesterov: bool, steps: Steps, eps: float) -> None:
        """One step of Muon. slots: (p, g, momentum buffer, row, n, scale), where p holds matrices of n rows. A row is
        (lr, weight_decay, momentum). steps and eps: see orthogonal() in optim/muon.py."""

    def global_norm(self, arrays: Arrays) -> Array: ...  # the 2-norm of all their elements: (), float64

    def clip_(self, arrays: Arrays, norm: Array, most: float) -> None:
        """Scale all by most / (norm + 1e-6), unless that is above 1; norm: (), float64. All become NaN if it is."""


def names() -> list[str]:
    """The names of the primitives, in the order above."""
    return [name for name, value in vars(Primitives).items() if callable(value) and not name.startswith("_")]


for _name in names():  # a body of dots is abstract to mypy; now to Python too
    getattr(Primitives, _name).__isabstractmethod__ = True
abc.update_abstractmethods(Primitives)  # type: ignore[type-abstract]
