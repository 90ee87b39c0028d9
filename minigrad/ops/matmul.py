"""Matrix products: matmul with batching and broadcasting, linear, einsum."""

import math

from ..autograd import FormulaOp, Op, Value, composite
from ..autograd.cases import case
from ..typing import Array, T
from .args import promoted, require_float
from .movement import alias, expanded, permute, reshape, shaped, unsqueeze

__all__ = ["einsum", "matmul"]


class Matmul(Op):
    """y = a b, (…, n, k) (…, k, m) -> (…, n, m);   da = dy bᵀ, db = aᵀ dy"""

    cases = [case((3, 4), (4, 5)), case((2, 3, 4), (2, 4, 5)), case((2, 1, 3, 4), (5, 4, 2)), case((2, 0, 4), (4, 3))]
    broadcasts = True

    def forward(self, a, b):
        self.save_inputs(a if self.needs[1] else None, b if self.needs[0] else None)
        return self.backend.matmul(a, b)

    def backward(self, dy):
        a, b = self.saved_inputs()
        da = Matmul.apply(dy, b.mT) if self.needs[0] else None
        db = Matmul.apply(a.mT, dy) if self.needs[1] else None
        return da, db


def matmul(input: T, other: T | Array) -> T:
    """The matrix product x @ other, as in NumPy and PyTorch: (…, n, k) @ (…, k, m) -> (…, n, m).

    Leading dims are batches and broadcast; a 1-d x is a row, a 1-d other a column, and the dim of size 1 that they
    bring is dropped again. Floats, ints or bools, promoted. Raises ValueError for sizes that do not fit, and for
    numbers."""
    a, b = promoted("matmul", input, other)
    if not (isinstance(a, Value) and isinstance(b, Value)) or a.ndim == 0 or b.ndim == 0:
        raise ValueError("matmul needs two tensors of at least one dim; use * to scale")
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

    def backward(self, dy):
        x, weight = self.saved_inputs()
        return LinearBackward.apply(dy, x, weight, wanted=self.needs)


class LinearBackward(FormulaOp):
    """dx = dy W, dW = dyᵀ x, db = Σ dy. Outputs that are not wanted are None."""

    cases = [
        case((2, 3, 5), (2, 3, 4), (5, 4), wanted=(True, True, True)),
        case((3, 5), (3, 4), None, wanted=(False, True, False)),
        case((3, 5), None, (5, 4), wanted=(True, False, True)),
    ]

    def forward(self, dy, x, weight, wanted):
        self.save_inputs(dy, x, weight)
        return self.backend.linear_backward(dy, x, weight, wanted)

    @staticmethod
    def formula(dy, x, weight, wanted):
        rows = shaped(dy, (math.prod(dy.shape[:-1]), dy.shape[-1]))
        dx = matmul(dy, weight) if wanted[0] else None
        dweight = matmul(rows.mT, shaped(x, (rows.shape[0], x.shape[-1]))) if wanted[1] else None
        return dx, dweight, rows.sum(0) if wanted[2] else None


def linear(input: T, weight: T, bias: T | None = None) -> T:
    """input (…, k) @ weight (m, k)ᵀ + bias (m,) -> (…, m). Raises ValueError for other sizes, and TypeError unless all
    are floats of one dtype."""
    require_float("linear", input)
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
    order. Operands, Tensors or arrays, are promoted, and contracted from left to right; each pair becomes one batched
    matmul. Raises ValueError for an equation that cannot be read, or does not fit the shapes."""
    if not isinstance(equation, str):
        raise TypeError(f"einsum: equation must be a str, got {type(equation).__name__}")
    xs = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else list(operands)
    terms, output = _parse(equation, [x.shape for x in xs])
    xs = promoted("einsum", *xs)
    sizes = _sizes(equation, terms, xs)
    terms, xs = map(list, zip(*(_diagonal(term, x) for term, x in zip(terms, xs))))
    while len(xs) > 1:
        later = set(output).union(*terms[2:])
        term = [c for c in dict.fromkeys(terms[0] + terms[1]) if c in later]
        xs[:2] = [_contract(terms[0], xs[0], terms[1], xs[1], term, sizes)]
        terms[:2] = [term]
    summed = tuple(i for i, c in enumerate(terms[0]) if c not in output)
    x = xs[0].sum(summed) if summed else xs[0]
    left = [c for c in terms[0] if c in output]
    y = permute(x, tuple(left.index(c) for c in output if c in left)) if left else alias(x)
    return expanded(y, tuple(sizes[c] for c in output)) if output else y


def _parse(equation, shapes):
    """Lists of labels for each operand and for the output; '...' becomes labels 0, 1, … counted from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(shapes):
        raise ValueError(f"einsum {equation!r} names {len(inputs)} operands, got {len(shapes)}")
    terms, dots = [], 0
    for text, shape in zip(inputs, shapes):
        letters = text.replace("...", "")
        if not all(c.isalpha() for c in letters) or text.count("...") > 1:
            raise ValueError(f"einsum {equation!r}: cannot read {text!r}")
        extra = len(shape) - len(letters)
        if extra < 0 or (extra and "..." not in text):
            raise ValueError(f"einsum {equation!r}: {text!r} does not fit shape {shape}")
        terms.append(_expand_dots(text, extra))
        dots = max(dots, extra)
    if arrow:
        output = _expand_dots(right, dots)
    else:
        flat = [c for term in terms for c in term if isinstance(c, str)]
        output = _expand_dots("...", dots) + sorted(c for c in set(flat) if flat.count(c) == 1)
    unknown = [c for c in output if all(c not in term for term in terms)]
    if unknown or len(set(output)) != len(output):
        raise ValueError(f"einsum {equation!r}: the output must name labels of the inputs, each once")
    return terms, output


def _expand_dots(text, n):
    before, dots, after = text.partition("...")
    return list(before) + (list(range(n - 1, -1, -1)) if dots else []) + list(after)


def _sizes(equation, terms, xs):
    sizes = {}
    for term, x in zip(terms, xs):
        for c, n in zip(term, x.shape):
            if sizes.get(c, 1) == 1:
                sizes[c] = n
            elif n != 1 and n != sizes[c]:
                raise ValueError(f"einsum {equation!r}: label {c!r} has sizes {sizes[c]} and {n}")
    return sizes


def _diagonal(term, x):
    """Repeated labels within one operand: keep the diagonal."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i, j = [k for k, other in enumerate(term) if other == c][:2]
            rest = [k for k in range(x.ndim) if k not in (i, j)]
            n = x.shape[i]
            if x.shape[j] != n:
                raise ValueError(f"einsum: repeated label {c!r} has sizes {n} and {x.shape[j]}")
            steps = x.constant(range(n))
            x = permute(x, (i, j, *rest))[steps, steps]
            term = [c] + [term[k] for k in rest]
    return term, x


def _contract(ta, a, tb, b, out, sizes):
    """One pair as a batched matmul: labels kept by both are batches, kept by one rows or columns, by neither summed."""
    a, ta = _presum(ta, a, tb, out)
    b, tb = _presum(tb, b, ta, out)
    batch = [c for c in ta if c in tb and c in out]
    inner = [c for c in ta if c in tb and c not in out]
    rows, columns = [c for c in ta if c not in tb], [c for c in tb if c not in ta]
    left = _arranged(a, ta, batch, rows, inner, sizes)
    right = _arranged(b, tb, batch, inner, columns, sizes)
    y = Matmul.apply(left, right)
    labels = batch + rows + columns
    y = shaped(y, tuple(sizes[c] for c in labels))
    return permute(y, tuple(labels.index(c) for c in out)) if out else y


def _presum(term, x, other, out):
    """Sum out the labels that only this operand has."""
    alone = tuple(i for i, c in enumerate(term) if c not in other and c not in out)
    return (x.sum(alone), [c for c in term if c in other or c in out]) if alone else (x, term)


def _arranged(x, term, batch, first, second, sizes):
    """x as (batch…, first, second), sizes of 1 broadcast to the label's."""
    x = expanded(x, tuple(sizes[c] for c in term)) if term else x
    x = permute(x, tuple(term.index(c) for c in batch + first + second)) if term else x
    return shaped(x, tuple(math.prod(sizes[c] for c in labels) for labels in (batch, first, second)))
