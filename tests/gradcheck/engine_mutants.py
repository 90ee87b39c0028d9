"""Planted bugs that are no formulas: memory, state and layout of an op."""

import itertools
import math

import numpy as np

import minigrad as mg
from minigrad.autograd import Op
from minigrad.autograd.cases import Fixed, case
from minigrad.ops.activation import Gelu, Relu, Tanh
from minigrad.ops.dropout import Dropout
from minigrad.ops.elementwise import Add, Erf, Exp, Sin
from minigrad.ops.index import Embedding

from .formula_mutants import PAIR, PHI, Product
from .planting import MUTANTS, given, mutant, plant, variant

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

assert len({m.name for m in MUTANTS}) == len(MUTANTS) >= 50
