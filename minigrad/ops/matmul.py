"""Matrix products: matmul with batching and broadcasting, linear, einsum."""

import math
import string

from ..autograd import FormulaOp, Op, Value, composite
from ..autograd.arguments import check_arguments
from ..autograd.cases import case
from ..typing import Array, T
from .args import promote, refuse_bools, require_float, require_tensor
from .movement import (
    alias,
    diagonal,
    expand_if_needed,
    permute,
    permute_if_needed,
    reshape,
    reshape_if_needed,
    unsqueeze,
)

__all__ = ["bmm", "dot", "einsum", "matmul", "mm", "mv", "outer"]


class Matmul(Op):
    """y = a b, (…, n, k) (…, k, m) -> (…, n, m);   da = dy bᵀ, db = aᵀ dy"""

    cases = [case((3, 4), (4, 5)), case((2, 3, 4), (2, 4, 5)), case((2, 1, 3, 4), (5, 4, 2)), case((2, 0, 4), (4, 3))]
    broadcasts = True

    def forward(self, a, b):
        refuse_bools("matmul", a.dtype)
        self.save_inputs(a if self.needs[1] else None, b if self.needs[0] else None)
        return self.backend.matmul(a, b)

    def backward(self, dy: Value):
        a, b = self.saved_inputs()
        da = Matmul.apply(dy, b.mT) if self.needs[0] else None
        db = Matmul.apply(a.mT, dy) if self.needs[1] else None
        return da, db


def matmul(input: T, other: T | Array) -> T:
    """Return the matrix product x @ other, as in NumPy and PyTorch: (…, n, k) @ (…, k, m) -> (…, n, m).

    Leading dims are batches and broadcast. A 1-d x is a row, a 1-d other a column; the dim of size 1 that this adds is
    dropped again. Floats or ints, promoted. Raises ValueError for sizes that do not fit and for operands without dims,
    and TypeError for bools."""
    a, b = promote("matmul", input, other)
    for x in (a, b):
        if not isinstance(x, Value) or x.ndim == 0:
            raise ValueError("matmul needs two Tensors of at least one dim; to scale, use *")
    if a.shape[-1] != b.shape[-2:][0]:
        raise ValueError(f"matmul: inner sizes of {a.shape} and {b.shape} differ, {a.shape[-1]} and {b.shape[-2:][0]}")
    if a.ndim == 1:
        y = matmul(unsqueeze(a, 0), b)  # (…, 1, m), or (1,) for two vectors
        return reshape(y, y.shape[:-1] if b.ndim == 1 else y.shape[:-2] + y.shape[-1:])
    if b.ndim == 1:
        y = matmul(a, unsqueeze(b, 1))
        return reshape(y, y.shape[:-1])
    if b.ndim == 2 and a.ndim > 2:  # one large product instead of many small ones, backward too
        return reshape(Matmul.apply(reshape(a, math.prod(a.shape[:-1]), a.shape[-1]), b), *a.shape[:-1], b.shape[-1])
    try:
        return Matmul.apply(a, b)
    except ValueError as error:
        raise ValueError(f"matmul: batch dims of {a.shape} and {b.shape} do not broadcast") from error


@composite(case((3, 4), (4, 5)))
def mm(input: T, mat2: T) -> T:
    """Return (n, k) @ (k, m): (n, m), promoted. Raises ValueError for other numbers of dims: matmul takes them."""
    if not input.ndim == mat2.ndim == 2:
        raise ValueError(f"mm is of two matrices, got shapes {input.shape} and {mat2.shape}; use matmul")
    return matmul(input, mat2)


@composite(case((3, 4), (4,)))
def mv(input: T, vec: T) -> T:
    """Return (n, k) @ (k,): (n,), promoted. Raises ValueError for other numbers of dims: matmul takes them."""
    if not (input.ndim == 2 and vec.ndim == 1):
        raise ValueError(f"mv is of a matrix and a vector, got shapes {input.shape} and {vec.shape}; use matmul")
    return matmul(input, vec)


@composite(case((4,), (4,)))
def dot(input: T, tensor: T) -> T:
    """Return Σ x_i tensor_i of two vectors: (), promoted. Raises ValueError for other numbers of dims."""
    if not input.ndim == tensor.ndim == 1:
        raise ValueError(f"dot is of two vectors, got shapes {input.shape} and {tensor.shape}; use matmul")
    return matmul(input, tensor)


@composite(case((2, 3, 4), (2, 4, 5)))
def bmm(input: T, mat2: T) -> T:
    """Return (B, n, k) @ (B, k, m): (B, n, m), promoted. Raises ValueError for other shapes."""
    if not input.ndim == mat2.ndim == 3 or input.shape[0] != mat2.shape[0]:
        raise ValueError(f"bmm is of (B, n, k) and (B, k, m), got {input.shape} and {mat2.shape}; matmul broadcasts")
    return matmul(input, mat2)


@composite(case((3,), (4,)))
def outer(input: T, vec2: T) -> T:
    """Return y_ij = x_i vec2_j: (n, m) of (n,) and (m,), promoted. Raises ValueError for other numbers of dims."""
    if not input.ndim == vec2.ndim == 1:
        raise ValueError(f"outer is of two vectors, got shapes {input.shape} and {vec2.shape}")
    return unsqueeze(input, 1) * vec2


class Linear(Op):
    """y = x Wᵀ + b, (…, k) (m, k) (m,) -> (…, m);   dx = dy W, dW = dyᵀ x, db = Σ dy"""

    cases = [
        case((3, 4), (5, 4), (5,)),
        case((2, 3, 4), (5, 4), None),
        case((0, 4), (5, 4), (5,)),
        case((4,), (5, 4), (5,)),
    ]

    def forward(self, x, weight, bias):
        self.save_inputs(x if self.needs[1] else None, weight if self.needs[0] else None)
        return self.backend.linear(x, weight, bias)

    def backward(self, dy: Value):
        x, weight = self.saved_inputs()
        return LinearBackward.apply(dy, x, weight, wanted=self.needs)


class LinearBackward(FormulaOp):
    """dx = dy W, dW = dyᵀ x, db = Σ dy. Outputs that are not wanted are None."""

    cases = [
        case((2, 3, 5), (2, 3, 4), (5, 4), wanted=(True, True, True)),
        case((3, 5), (3, 4), None, wanted=(False, True, False)),
        case((3, 5), None, (5, 4), wanted=(True, False, True)),
    ]

    @staticmethod
    def formula(dy, x, weight, wanted):
        rows = reshape_if_needed(dy, (math.prod(dy.shape[:-1]), dy.shape[-1]))
        dx = matmul(dy, weight) if wanted[0] else None
        dweight = matmul(rows.mT, reshape_if_needed(x, (rows.shape[0], x.shape[-1]))) if wanted[1] else None
        return dx, dweight, rows.sum(0) if wanted[2] else None


@check_arguments
def linear(input: T, weight: T, bias: T | None = None) -> T:
    """Return input (…, k) @ weight (m, k)ᵀ + bias (m,): (…, m). Raises ValueError for other sizes, and TypeError unless
    all are floats of one dtype."""
    require_float("linear", input, weight, bias)
    shape = weight.shape
    if len(shape) != 2 or input.shape[-1:] != shape[1:]:
        raise ValueError(f"linear: input of shape {input.shape} does not fit weight of shape {shape} (out, in)")
    if bias is not None and bias.shape != shape[:1]:
        raise ValueError(f"linear: bias of shape {bias.shape} does not fit weight of shape {shape}")
    if weight.dtype != input.dtype or (bias is not None and bias.dtype != input.dtype):
        raise TypeError(
            f"linear: input is {input.dtype}, but weight {weight.dtype}"
            f"{'' if bias is None else f' and bias {bias.dtype}'}; convert with .to()"
        )
    return Linear.apply(input, weight, bias)


# --------------------------------------------------------------------------------------------------------------- einsum


@composite(
    case("ij,jk->ik", (2, 3), (3, 4)),
    case("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    case("ii->i", (3, 3)),
    case("...i,...i", (2, 3), (3,)),
    case("i,j,ij->", (2,), (3,), (2, 3)),
    case("ij->ji", (2, 3)),
)
def einsum(equation: str, *operands: T | Array) -> T:
    """Einstein summation as in NumPy and PyTorch: letters, '...', ',' and '->', repeated letters for diagonals.

    "ij,jk->ik" of (n, k) and (k, m) is (n, m); without '->' the result has the letters that occur once, in alphabetical
    order. Operands are Tensors or arrays. They are promoted, and contracted from left to right: each pair becomes one
    batched matmul. Raises ValueError for an equation that cannot be read or does not fit the shapes."""
    if not isinstance(equation, str):
        raise TypeError(f"einsum: equation must be a str, got {type(equation).__name__}")
    xs = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else list(operands)
    xs = [require_tensor("einsum", x, "operand") for x in promote("einsum", *xs)]
    terms, output = _letters(equation, [x.shape for x in xs])
    sizes = _sizes(equation, terms, xs)
    pairs = [_diagonals(x, term) for x, term in zip(xs, terms)]
    while len(pairs) > 1:
        kept = output + "".join(term for _, term in pairs[2:])
        (a, a_term), (b, b_term) = pairs[:2]
        pairs[:2] = [_product(a, a_term, b, b_term, kept, sizes)]
    x, term = pairs[0]
    x, term = _sum_out(x, term, output)
    y = permute(x, [term.index(c) for c in output]) if term else alias(x)
    return expand_if_needed(y, tuple(sizes[c] for c in output))


def _letters(equation, shapes):
    """Return ([the letters of each operand's dims], the output's letters). '...' becomes letters that are not used."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(shapes):
        raise ValueError(f"einsum {equation!r} names {len(texts)} operands, got {len(shapes)}")
    hidden = []  # how many dims each '...' stands for
    for text, shape in zip(texts, shapes):
        letters = text.replace("...", "", 1)
        if not all(c.isalpha() for c in letters):
            raise ValueError(f"einsum {equation!r}: cannot read {text!r}")
        hidden.append(len(shape) - len(letters))
        if hidden[-1] < 0 or (hidden[-1] and "..." not in text):
            raise ValueError(f"einsum {equation!r}: {text!r} does not fit shape {shape}")
    dots = [c for c in string.ascii_letters if c not in equation][: max(hidden)]
    terms = [text.replace("...", "".join(dots[len(dots) - n :])) for text, n in zip(texts, hidden)]
    if arrow:
        output = right.replace("...", "".join(dots))
    else:
        output = "".join(dots) + "".join(sorted(c for c in {*left} if c.isalpha() and left.count(c) == 1))
    if not {*output} <= set().union(*terms) or len({*output}) != len(output):
        raise ValueError(f"einsum {equation!r}: the output must name labels of the inputs, each once")
    return terms, output


def _sizes(equation, terms, xs):
    """Return {letter: size}."""
    sizes = {}
    for term, x in zip(terms, xs):
        for c, n in zip(term, x.shape):
            if sizes.get(c, 1) == 1:
                sizes[c] = n
            elif n != 1 and n != sizes[c]:
                raise ValueError(f"einsum {equation!r}: label {c!r} has sizes {sizes[c]} and {n}")
    return sizes


def _diagonals(x, term):
    """Return x and its letters, each once: two dims of one letter become their diagonal."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i, j = term.index(c), term.rindex(c)
            if x.shape[i] != x.shape[j]:
                raise ValueError(f"einsum: repeated label {c!r} has sizes {x.shape[i]} and {x.shape[j]}")
            x, term = diagonal(x, 0, i, j), term[:i] + term[i + 1 : j] + term[j + 1 :] + c
    return x, term


def _sum_out(x, term, kept):
    """Return x summed over the letters that are not in `kept`, and its other letters."""
    dropped = tuple(i for i, c in enumerate(term) if c not in kept)
    return (x.sum(dropped), "".join(c for c in term if c in kept)) if dropped else (x, term)


def _product(a, a_term, b, b_term, kept, sizes):
    """Return the product of two operands, as one batched matmul, and its letters.

    Letters of both that are in `kept` are batches; those of one operand are its rows or columns; the rest is summed."""
    a, a_term = _sum_out(a, a_term, b_term + kept)
    b, b_term = _sum_out(b, b_term, a_term + kept)
    batch = "".join(c for c in a_term if c in b_term and c in kept)
    inner = "".join(c for c in a_term if c in b_term and c not in kept)
    rows = "".join(c for c in a_term if c not in b_term)
    columns = "".join(c for c in b_term if c not in a_term)
    y = Matmul.apply(
        _group_dims(a, a_term, (batch, rows, inner), sizes), _group_dims(b, b_term, (batch, inner, columns), sizes)
    )
    letters = batch + rows + columns
    return reshape_if_needed(y, tuple(sizes[c] for c in letters)), letters


def _group_dims(x, term, groups, sizes):
    """Return x with one dim for each group of letters. Dims of size 1 are broadcast to the letter's size."""
    x = expand_if_needed(x, tuple(sizes[c] for c in term))
    x = permute_if_needed(x, tuple(term.index(c) for group in groups for c in group))
    return reshape_if_needed(x, tuple(math.prod(sizes[c] for c in group) for group in groups))
