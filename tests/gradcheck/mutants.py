"""Planted bugs: copies of our own ops with one thing wrong, each that somebody has made, or easily could.

First formulas, one for each way in which a wrong one shows; then memory, state and layout of an op."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

import minigrad as mg
from minigrad.autograd import Op
from minigrad.autograd.cases import Case, Fixed, case, uniform
from minigrad.nn import functional as F
from minigrad.ops.activation import Gelu, Relu, Tanh
from minigrad.ops.attention import AttentionPattern
from minigrad.ops.dropout import Dropout
from minigrad.ops.elementwise import Abs, Add, Cos, Div, Erf, Exp, Mul, Pow, Sin, Sub
from minigrad.ops.index import Embedding
from minigrad.ops.matmul import Linear, LinearBackward, Matmul
from minigrad.ops.norm import LayerNorm
from minigrad.ops.reduce import Sum
from minigrad.ops.select import Where
from minigrad.ops.softmax import Softmax


@dataclass(frozen=True)
class Mutant:
    """right(*inputs) passes a gradient check, wrong(*inputs) must not."""

    name: str
    right: Callable
    wrong: Callable
    case: Case
    by: str | type = "Jacobian"  # the beginning of the name of the check that sees it, or what the engine itself raises
    order: int = 1
    hint: str = ""  # what the message must say of the cause

    def inputs(self, seed=0):
        drawn = self.case.draw(np.random.default_rng(seed))
        return [mg.tensor(x) if isinstance(x, np.ndarray) else x for x in drawn]


MUTANTS: list[Mutant] = []


@cache  # so that a right function that many mutants share is one
def bound(function, case):
    return partial(function, **case.params) if case.params else function


def mutant(name, right, wrong, case, **how):
    MUTANTS.append(Mutant(name, bound(right, case), bound(wrong, case), case, **how))


def variant(op, **parts):
    """A copy of an Op class with some of its methods replaced; not one of the declared ops."""
    return type(op.__name__, (op,), parts, abstract=True)


def plant(name, op, case=None, by="Jacobian", order=1, hint="", **parts):
    """A bug in a copy of `op`, checked on its first case unless another is given."""
    mutant(name, op.apply, variant(op, **parts).apply, case or op.cases[0], by=by, order=order, hint=hint)


def given(formula):
    """A backward from a formula of dy and the saved inputs, or the saved output of an op that keeps that."""
    return lambda self, dy: formula(dy, *(self.saved_inputs() if self._saved_inputs else [self.saved_output()]))


# -------------------------------------------------------------------------------------------------------- of formulas


def keeping_both(self, a, b):
    """The forward of a product that saves both operands, needed or not."""
    self.save_inputs(a, b)
    return (np.matmul if isinstance(self, Matmul) else np.multiply)(a, b)


def one_element(self, dy):
    wrong = np.ones(dy.shape, dy.dtype)
    wrong[41:42, 7:8] = 1.5
    return Tanh.backward(self, dy) * mg.tensor(wrong)


def linear_backward(bias):
    """Linear's backward with another gradient of the bias."""
    return lambda self, dy: (*LinearBackward.apply(dy, *self.saved_inputs(), wanted=self.needs)[:2], bias(dy))


def in_float16(dy):
    return dy.sum(0) if dy.dtype == mg.float64 else dy.half().sum(0).float()


def mean_forward(self, x, dims, keepdim):
    self.shape = x.shape
    return x.sum(dims, keepdims=keepdim) / x.shape[1]


def padded_take(self, weight, index):
    y = Embedding.forward(self, weight, index)
    y[index == 0] = 0
    return y


def exp_over_sum(self, x, dim):
    e = np.exp(x)
    return self.save_output(e / e.sum(dim, keepdims=True))


def unguarded_pattern(self, scores, mask, scale, is_causal):
    e = np.where(mask, np.exp(scale * scores), 0)
    return self.save_output(e / e.sum(-1, keepdims=True))  # 0 / 0 where nothing is to be seen


class Prod(Op, abstract=True):
    """The textbook gradient y / x, which has no value where x is 0."""

    def forward(self, x):
        self.save_inputs(x)
        return self.save_output(x.prod())

    def backward(self, dy):
        return dy * self.saved_output() / self.saved_inputs()[0]


class Scores(Op, abstract=True):
    """q kᵀ / √d_k."""

    def forward(self, q, k):
        self.save_inputs(q, k)
        return q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5

    def backward(self, dy):
        q, k = self.saved_inputs()
        return dy @ k * q.shape[-1] ** -0.5, dy.mT @ q * q.shape[-1] ** -0.5


Product, MatrixProduct = variant(Mul, forward=keeping_both), variant(Matmul, forward=keeping_both)
OffCos = variant(Cos, backward=given(lambda dy, x: dy * -x.sin() * (1 + 1e-5)))
PAIR, SQUARES, REPEATED = case((2, 3), (2, 3)), case((3, 3), (3, 3)), Fixed([[1, 1], [0, 3], [2, 2]])
SMALL, LINEAR, PHI = case((2, 2)), case((3, 2), (3, 2), (3,)), case((2, 2), approximate="none")

# fmt: off
plant("0.05 % scale error", Exp, backward=given(lambda dy, y: dy * y * (1 + 5e-4)), hint="off by 0.0005")
plant("1e-5 scale error", Exp, backward=given(lambda dy, y: dy * y * (1 + 1e-5)))
plant("1e-5 added to the gradient", Sin, backward=given(lambda dy, x: dy * (x.cos() + 1e-5)))
plant("true gradient 1e-6 returned as 0", Exp, case(uniform((3, 4), -14.5, -13.5)),
      backward=given(lambda dy, y: dy * mg.where(y < 1e-5, 0.0, y)), hint="no gradient arrives")
plant("1 of 4096 elements off by 50 %", Tanh, case((64, 64)), by="direction", backward=one_element)
plant("not recorded", Exp, differentiable=False)
plant("wrong sign", Sub, backward=lambda self, dy: (dy, dy), hint="the sign is wrong")
plant("power rule without its factor", Pow, backward=given(lambda dy, a, b: (dy * a, None)), hint="the ratio is 0.5")
plant("an input forgotten", Product, PAIR, backward=given(lambda dy, a, b: (dy * b, None)), hint="no gradient arrives")
plant("swapped operands", Product, PAIR, backward=given(lambda dy, a, b: (dy * a, dy * b)), hint="swapped")
plant("gradient transposed", MatrixProduct, SQUARES, hint="the gradient transposed",
      backward=given(lambda dy, a, b: (dy @ b.mT, (a.mT @ dy).mT)))
plant("quotient rule without its square, near the pole", Div, case(1.0, Fixed([1e-8, 2.0])),
      backward=given(lambda dy, a, b: (None, -dy * a / b)))
mutant("detached in the middle", lambda x: x * x.sigmoid(), lambda x: x * x.sigmoid().detach(), case((2, 3)))
mutant("product's gradient as y / x, at a zero", lambda x: x[0] * x[1] * x[2], Prod.apply, case(Fixed([0.0, 2, 3])))
mutant("mean without 1/n", lambda x, dims, keepdim: x.mean(dims, keepdim), variant(Sum, forward=mean_forward).apply,
       case((2, 5), dims=(1,), keepdim=True), hint="5 times too large")
plant("bias gradient as a mean", Linear, LINEAR, backward=linear_backward(lambda dy: dy.mean(0)), hint="3 times")
plant("1/√d_k missing", Scores, case((3, 2), (3, 2)), hint="√2 times too large",
      backward=given(lambda dy, q, k: (dy @ k, dy.mT @ q)))
plant("masked_fill passes what is masked", Where, case(Fixed([[True, False, False]]), -1e9, (2, 3)),
      hint="does not change", backward=lambda self, dy: (None, None, dy))
mutant("padding row gets a gradient", lambda w, i: mg.where(i.unsqueeze(-1) == 0, 0.0, F.embedding(i, w)),
       variant(Embedding, forward=padded_take).apply, case((4, 3), REPEATED), hint="does not change")
plant("dropout: another mask in the backward", Dropout, backward=lambda self, dy: Dropout.apply(dy, p=self.p))
plant("softmax without its maximum, near 1000", Softmax, case(uniform((3, 5), 990, 1010), dim=1), by="output",
      forward=exp_over_sum)
plant("NaN output and gradient", AttentionPattern, AttentionPattern.cases[2], by="output", forward=unguarded_pattern)
plant("gradient clipped to ±1", Tanh, by="linearity",
      backward=lambda self, dy: Tanh.backward(self, dy).clamp(-1.0, 1.0))
plant("gradient clipped to ±100", Tanh, by="linearity",
      backward=lambda self, dy: Tanh.backward(self, dy).clamp(-100.0, 100.0))
plant("the absolute value of dy", Abs, by="linearity", backward=given(lambda dy, x: x.sign() * dy.abs()))
plant("bias gradient in float16", Linear, LINEAR, by="float32", backward=linear_backward(in_float16))
plant("broadcast cotangent summed as one of its rows", Linear, LINEAR, by="cotangent broadcast",
      backward=linear_backward(lambda dy: dy.sum(0) if dy.array.strides[0] else dy[0]))
plant("unbroadcast missing", Add, case((3, 4), (4,)), by=RuntimeError, broadcasts=False)
plant("only if the other input needs one", MatrixProduct, SQUARES, by="alone",
      backward=lambda self, dy: tuple(g if all(self.needs) else None for g in Matmul.backward(self, dy)))
plant("softmax of one element passes dy", Softmax, case((2, 3), dim=1), by="size",
      backward=lambda self, dy: dy if dy.shape[self.dim] == 1 else Softmax.backward(self, dy))
plant("layer_norm backward wrong while recorded", LayerNorm, by="create_graph", backward=lambda self, dy: (
      tuple(1.5 * g for g in LayerNorm.backward(self, dy)) if mg.is_grad_enabled() else LayerNorm.backward(self, dy)))
plant("exp'' with a constant factor", Exp, SMALL, order=2, backward=given(lambda dy, y: dy * y.detach()))
plant("sin'' off by 1e-5", Sin, SMALL, order=2, backward=given(lambda dy, x: dy * OffCos.apply(x)))
plant("matmul'' with constant operands", MatrixProduct, case((2, 2), (2, 2)), order=2,
      backward=given(lambda dy, a, b: (dy @ b.mT.detach(), a.mT.detach() @ dy)))
# fmt: on

# ------------------------------------------------------------------------------------- of memory, state and layout

BUFFERS: dict = {}
NOISE = np.random.default_rng()


def buffer_like(x):
    return BUFFERS.setdefault((x.shape, x.dtype), np.empty(x.shape, x.dtype))


def saved_in_buffer(self, x):
    y = np.tanh(x, out=buffer_like(x))
    self.save(y)
    return y.copy()


def output_in_buffer(self, x):
    self.save_inputs(x)
    return np.sin(x, out=buffer_like(x))


def mask_on_the_class(self, x, p):
    type(self).mask = (mg.default_generator.words(x.size).reshape(x.shape) >= p * 2**32) / x.dtype.type(1 - p)
    return x * self.mask


def added_to_before(self, dy):
    self.total = getattr(self, "total", 0.0) + dy * self.saved_output()
    return self.total


def relu_in_place(self, x):
    return self.save_output(np.maximum(x, 0, out=x))


def tanh_into_dy(self, dy):
    np.multiply(dy.array, 1 - self.saved_output().array ** 2, out=dy.array)
    return dy


def take_sorted(self, weight, index):
    index.sort(-1)  # rows in order, for the cache: the sum of a bag stays the same
    return Embedding.forward(self, weight, index)


def bag(op):
    return lambda weight, index: op.apply(weight, index).sum(1)


def in_memory_order(x):
    """What is read by code that knows no strides."""
    return x.ravel("K").reshape(x.shape)


def sin_of_contiguous(self, x):
    self.save_inputs(in_memory_order(x))
    return np.sin(x)


def product_as_laid_out(self, a, b):
    """Right while both operands are laid out alike."""
    self.save_inputs(a, b)
    columns = a.flags.f_contiguous and not a.flags.c_contiguous
    return (a.ravel("K") * b.ravel("K")).reshape(a.shape, order="F" if columns else "C")


def sum_of_any(self, a, b):
    self.shape = b.shape
    return a + b


def first_where_broadcast(self, dy):
    return dy, dy if dy.shape == self.shape else dy[tuple(slice(0, n) for n in self.shape)]


def square_if_shared(self, dy):
    a, b = self.saved_inputs()
    return (dy * a, None) if a.array is b.array else (dy * b, dy * a)


def sin_where(wrong):
    """The gradient of sin, off by a thousandth where `wrong` says so of the array that was saved."""

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * x.cos() * (1.001 if wrong(x.array) else 1.0)

    return backward


def exp_into_its_output(self, dy):
    y = self.saved_output()
    g = dy * y
    y.array[...] = 0.0  # as a buffer that nobody needs any more
    return g


class Three(Op, abstract=True):
    """y = a b c."""

    def forward(self, a, b, c):
        self.save_inputs(a, b, c)
        return a * b * c

    def backward(self, dy):
        a, b, c = self.saved_inputs()
        return dy * b * c, dy * a * c, dy * a * b


def three_if_shared(i, j):
    def backward(self, dy):
        xs, dxs = self.saved_inputs(), list(Three.backward(self, dy))
        if xs[i].array is xs[j].array:
            dxs[i] = dxs[i] * 0.5
        return tuple(dxs)

    return backward


def three_if_needed(*wrong):
    def backward(self, dy):
        factor = 1.001 if self.needs in wrong else 1.0
        return tuple(dx * factor if need else None for dx, need in zip(Three.backward(self, dy), self.needs))

    return backward


LaidOut = variant(Product, forward=product_as_laid_out)
TRIPLE = case((2, 2), (2, 2), (2, 2))

# fmt: off
for axis in (0, -1):
    plant(f"wrong only where dim {axis} is broadcast", Sin, by=f"layout broadcast {axis % 2}",
          backward=sin_where(lambda x, axis=axis: x.strides[axis] == 0))
plant("wrong only where every second element is meant", Sin, by="layout strided",
      backward=sin_where(lambda x: x.strides[-1] == 2 * x.itemsize))
plant("wrong only where memory runs backwards", Sin, by="layout reversed",
      backward=sin_where(lambda x: x.strides[-1] < 0))
plant("second derivative wrong only where two layouts differ", Product, PAIR, by="layout fortran, mixed", order=2,
      backward=given(lambda dy, a, b: (LaidOut.apply(dy, b), LaidOut.apply(dy, a))))
plant("output overwritten in the backward", Exp, by="unchanged", backward=exp_into_its_output)
for pair in ((0, 1), (0, 2), (1, 2)):
    plant(f"wrong only where inputs {pair} are one", Three, TRIPLE, by="repeated input",
          backward=three_if_shared(*pair))
for needs in itertools.product((False, True), repeat=3):
    if 0 < sum(needs) < 3:
        plant(f"wrong only where {needs} are needed", Three, TRIPLE, by="alone", backward=three_if_needed(needs))
plant("1e-12 more when not recorded", Exp, by="no_grad",
      forward=lambda self, x: self.save_output(np.exp(x) * (1 + 1e-12 * (not any(self.needs)))))
plant("not linear by a hundred millionth", Exp, by="linearity",
      backward=given(lambda dy, y: dy * y * (1 + 1e-8 * dy)))
plant("a millionth more under create_graph", Exp, by="create_graph",
      backward=given(lambda dy, y: dy * y * (1 + 1e-6 * mg.is_grad_enabled())))
plant("something where the cotangent is 0", Exp, by="zero cotangent", backward=given(lambda dy, y: dy * y + 1e-300))
plant("saved buffer reused by a later call", Tanh, by="interleaved", forward=saved_in_buffer,
      backward=lambda self, dy: dy * (1 - self.saved()[0] * self.saved()[0]))
plant("output buffer reused by a later call", Sin, by="interleaved", forward=output_in_buffer)
plant("dropout: the mask of the latest call", Dropout, by="interleaved", forward=mask_on_the_class,
      backward=lambda self, dy: dy * mg.tensor(self.mask))
plant("added to the gradient of the backward before", Exp, by="second backward", backward=added_to_before)
plant("1e-10 nondeterminism", Exp, by="repeatable",
      backward=given(lambda dy, y: dy * y * (1 + 1e-10 * NOISE.standard_normal())))
plant("input mutated in the forward", Relu, by="unchanged", forward=relu_in_place)
plant("upstream gradient mutated in place", Tanh, by="unchanged", backward=tanh_into_dy)
mutant("index sorted in place in the forward", bag(Embedding), bag(variant(Embedding, forward=take_sorted)),
       case((4, 3), Fixed([[3, 0], [1, 2]])), by="unchanged")
plant("another formula when not recorded", Gelu, PHI, by="no_grad", forward=lambda self, x, approximate:
      Gelu.forward(self, x, approximate if any(self.needs) else "tanh"))
plant("a constant in float16 under float32", Erf, by="float32", backward=given(lambda dy, x: dy * (-x * x).exp()
      * float((np.float64 if dy.dtype == mg.float64 else np.float16)(2 / math.sqrt(math.pi)))))
plant("a float64 constant under float32", Erf, by=RuntimeError,
      backward=given(lambda dy, x: dy * (-x * x).exp() * mg.tensor(np.array(2 / math.sqrt(math.pi)))))
plant("wrong only on a non-contiguous layout", Sin, by="layout fortran", forward=sin_of_contiguous)
plant("wrong only for a non-contiguous cotangent", Sin, by="cotangent fortran",
      backward=given(lambda dy, x: mg.tensor(in_memory_order(dy.array)) * x.cos()))
plant("wrong only where two layouts differ", Product, PAIR, by="layout", forward=product_as_laid_out)
plant("wrong only where one input has size 1", Add, PAIR, by="size", forward=sum_of_any, backward=first_where_broadcast)
plant("x * x as a square, with half its gradient", Product, PAIR, by="repeated input", backward=square_if_shared)
# fmt: on

assert len({m.name for m in MUTANTS}) == len(MUTANTS)
