"""Planted bugs that are wrong formulas: of values, of first and of second derivatives."""

from functools import partial

import numpy as np

import minigrad as mg
from minigrad.autograd.cases import Fixed, apart, case, uniform
from minigrad.nn import functional as F
from minigrad.ops.activation import Gelu, GeluBackward, Relu, Tanh
from minigrad.ops.attention import AttentionPattern, attention_pattern
from minigrad.ops.dropout import Dropout
from minigrad.ops.elementwise import Abs, Add, Cos, Div, Exp, Mul, Pow, Sin, Sub
from minigrad.ops.index import Embedding, EmbeddingBackward, Gather, Getitem, GetitemAdd, ScatterAdd, Triangle
from minigrad.ops.loss import CrossEntropy, CrossEntropyBackward
from minigrad.ops.matmul import Linear, LinearBackward, Matmul
from minigrad.ops.movement import Cat, Permute
from minigrad.ops.norm import LayerNorm, LayerNormBackward
from minigrad.ops.reduce import Amax, Cumsum, Sum
from minigrad.ops.select import Clamp, Maximum, Where
from minigrad.ops.softmax import LogSoftmax, Softmax, SoftmaxBackward

from .planting import given, mutant, plant, tamper, variant


def keeping_both(self, a, b):
    """The forward of a product that saves both operands, needed or not."""
    self.save_inputs(a, b)
    return (np.matmul if isinstance(self, Matmul) else np.multiply)(a, b)


Product, MatrixProduct = variant(Mul, forward=keeping_both), variant(Matmul, forward=keeping_both)
X, SMALL, PAIR, SQUARES = case((2, 3)), case((2, 2)), case((2, 3), (2, 3)), case((3, 3), (3, 3))
PHI = case((2, 2), approximate="none")


# ------------------------------------------------------------------------------ elementwise: from gross errors to tiny


def one_element(self, dy):
    wrong = np.ones(dy.shape, dy.dtype)
    wrong[41:42, 7:8] = 1.5
    return Tanh.backward(self, dy) * mg.tensor(wrong)


# fmt: off
plant("0.05 % scale error", Exp, backward=given(lambda dy, y: dy * y * (1 + 5e-4)), hint="off by 0.0005")
plant("1e-5 scale error", Exp, backward=given(lambda dy, y: dy * y * (1 + 1e-5)))
plant("1e-5 added to the gradient", Sin, backward=given(lambda dy, x: dy * (x.cos() + 1e-5)))
plant("true gradient 1e-6 returned as 0", Exp, case(uniform((3, 4), -14.5, -13.5)),
      backward=given(lambda dy, y: dy * mg.where(y < 1e-5, 0.0, y)), hint="no gradient arrives")
plant("1 of 4096 elements off by 50 %", Tanh, case((64, 64)), by="direction", backward=one_element)
plant("not recorded", Exp, differentiable=False)
plant("wrong sign", Sub, backward=lambda self, dy: (dy, dy), hint="the sign is wrong")
plant("power rule without its factor", Pow, backward=given(lambda dy, a, b: (dy * a, None)), hint="half")
plant("an input forgotten", Product, PAIR, backward=given(lambda dy, a, b: (dy * b, None)), hint="no gradient arrives")
plant("swapped operands", Product, PAIR, backward=given(lambda dy, a, b: (dy * a, dy * b)), hint="swapped")
plant("quotient rule without its square, near the pole", Div, case(1.0, Fixed([1e-8, 2.0])),
      backward=given(lambda dy, a, b: (None, -dy * a / b)))
plant("tanh' = 1 - y", Tanh, backward=given(lambda dy, y: dy * (1 - y)))
plant("gelu' without its second term", Gelu, PHI, backward=given(lambda dy, x: dy * F.gelu(x) / x))
plant("tanh's derivative in erf's gelu", Gelu, PHI,
      backward=given(lambda dy, x: GeluBackward.apply(dy, x, None, approximate="tanh")))
mutant("detached in the middle", lambda x: x * x.sigmoid(), lambda x: x * x.sigmoid().detach(), X)
plant("gradient clipped to ±1", Tanh, by="linearity",
      backward=lambda self, dy: Tanh.backward(self, dy).clamp(-1.0, 1.0))
plant("the absolute value of dy", Abs, by="linearity", backward=given(lambda dy, x: x.sign() * dy.abs()))

# -------------------------------------------------------------------------------------------- selections and dropout

ONE_HIDDEN = Fixed([[True, False, False]])
plant("relu passes what is negative", Relu, backward=lambda self, dy: dy)
plant("clamp passes what it cut off", Clamp, backward=lambda self, dy: dy)
plant("maximum gives dy to both", Maximum, backward=lambda self, dy: (dy, dy))
plant("wrong side of where", Where, case(ONE_HIDDEN, (2, 3), (2, 3)),
      backward=given(lambda dy, c: (None, mg.where(c, 0.0, dy), mg.where(c, dy, 0.0))))
plant("masked_fill passes what is masked", Where, case(ONE_HIDDEN, -1e9, (2, 3)), hint="does not change",
      backward=lambda self, dy: (None, None, dy))
plant("triangle off by one", Triangle, case((3, 3), k=0, lower=True),
      backward=lambda self, dy: Triangle.apply(dy, k=self.k - 1, lower=self.lower))
plant("dropout: another mask in the backward", Dropout, backward=lambda self, dy: Dropout.apply(dy, p=self.p))
plant("dropout: not scaled in the backward", Dropout,
      backward=lambda self, dy: dy * (self.saved()[0] != 0).to(dy.dtype))
# fmt: on


# ----------------------------------------------------------------------------------------- broadcasting and reductions


def linear_backward(bias):
    """Linear's backward with another gradient of the bias."""
    return lambda self, dy: (*LinearBackward.apply(dy, *self.saved_inputs(), wanted=self.needs)[:2], bias(dy))


def in_float16(dy):
    return dy.sum(0) if dy.dtype == mg.float64 else dy.half().sum(0).float()


def mean_forward(self, x, dims, keepdim):
    self.shape = x.shape
    return x.sum(dims, keepdims=keepdim) / x.shape[1]


def var_forward(self, x, dims, keepdim):
    self.save_inputs(x)
    return ((x - x.sum(1, keepdims=True) / x.shape[1]) ** 2).sum(1, keepdims=True) / (x.shape[1] - 1)


class Prod(mg.Op, abstract=True):
    """The textbook gradient y / x, which has no value where x is 0."""

    def forward(self, x):
        self.save_inputs(x)
        return self.save_output(x.prod())

    def backward(self, dy):
        return dy * self.saved_output() / self.saved_inputs()[0]


# fmt: off
LINEAR, ROWS = case((3, 2), (3, 2), (3,)), case((2, 5), dims=(1,), keepdim=True)
for how, db in {"reduced over the wrong axis of a square": lambda dy: dy.sum(1), "forgotten": lambda dy: None,
                "of the first row": lambda dy: dy[0], "as a mean": lambda dy: dy.mean(0)}.items():
    plant(f"bias gradient {how}", Linear, LINEAR, backward=linear_backward(db), hint="3 times" if "mean" in how else "")
plant("bias gradient in float16", Linear, LINEAR, by="float32", backward=linear_backward(in_float16))
plant("broadcast cotangent summed as one of its rows", Linear, LINEAR, by="cotangent broadcast",
      backward=linear_backward(lambda dy: dy.sum(0) if dy.array.strides[0] else dy[0]))
plant("unbroadcast missing", Add, case((3, 4), (4,)), by=RuntimeError, broadcasts=False)
plant("sum repeated along the wrong axis of a square", Sum, case((4, 4), dims=(1,), keepdim=False),
      backward=lambda self, dy: dy.expand(self.shape))
mutant("mean without 1/n", lambda x, dims, keepdim: x.mean(dims, keepdim), variant(Sum, forward=mean_forward).apply,
       ROWS, hint="5 times too large")
mutant("variance over n - 1, its gradient over n", lambda x, dims, keepdim: x.var(dims, keepdim), variant(Sum,
       forward=var_forward, backward=given(lambda dy, x: dy * (x - x.mean(1, True)) * (2 / x.shape[1]))).apply,
       ROWS)
plant("cumsum not reversed", Cumsum, backward=lambda self, dy: Cumsum.apply(dy, dim=self.dim, reverse=self.reverse))
plant("amax of rows against the maximum of all", Amax, case(apart((3, 4)), dims=(1,), keepdim=True),
      backward=given(lambda dy, x: dy * (x == x.amax()).to(dy.dtype)))
mutant("product's gradient as y / x, at a zero", lambda x: x[0] * x[1] * x[2], Prod.apply, case(Fixed([0.0, 2, 3])))
# fmt: on


# ----------------------------------------------------------------------------------- matrix products, moves and indices


def assign(self, dy, index, shape, dim):
    dx = np.zeros(shape, dy.dtype)
    np.put_along_axis(dx, index, dy, dim)
    return dx


def assign_rows(self, dy, index, rows):
    dx = np.zeros((rows, dy.shape[-1]), dy.dtype)
    dx[index] = dy
    return dx


def through(op, *params):
    """The backward of an op that reads at an index, by an op that writes there."""
    return lambda self, dy: (op.apply(dy, self.saved_inputs()[1], **{p: getattr(self, p) for p in params}), None)


def padded_take(self, weight, index):
    y = Embedding.forward(self, weight, index)
    y[index == 0] = 0
    return y


# fmt: off
REPEATED = Fixed([[1, 1], [0, 3], [2, 2]])
plant("transposed operand", MatrixProduct, SQUARES, backward=given(lambda dy, a, b: (dy @ b, a.mT @ dy)))
plant("gradient transposed", MatrixProduct, SQUARES, hint="the gradient transposed",
      backward=given(lambda dy, a, b: (dy @ b.mT, (a.mT @ dy).mT)))
plant("first of a batch instead of its sum", MatrixProduct, case((2, 3, 2), (2, 3)),
      backward=given(lambda dy, a, b: (dy @ b.mT, a[0].mT @ dy[0])))
plant("only if the other input needs one", MatrixProduct, SQUARES, by="alone",
      backward=lambda self, dy: tuple(g if all(self.needs) else None for g in Matmul.backward(self, dy)))
plant("cat split one too early", Cat, case((3, 2), (3, 2), dim=0),
      backward=lambda self, dy: (dy[: self.sizes[0]], dy[self.sizes[0] - 1 : -1]))
plant("permuted by the same order again", Permute, case((3, 3, 3), dims=(2, 0, 1)),
      backward=lambda self, dy: Permute.apply(dy, dims=self.dims))
plant("reversed slice added forwards", Getitem, case((4, 3), index=(slice(None, None, -1),)),
      backward=lambda self, dy: GetitemAdd.apply(dy, shape=self.shape, index=(slice(None),)))
plant("repeated gather index assigned, not added", Gather, case((3, 4), REPEATED, dim=1),
      backward=through(variant(ScatterAdd, forward=assign), "shape", "dim"))
plant("repeated embedding row assigned, not added", Embedding, case((4, 3), REPEATED),
      backward=through(variant(EmbeddingBackward, forward=assign_rows), "rows"))
mutant("padding row gets a gradient", lambda w, i: mg.where(i.unsqueeze(-1) == 0, 0.0, F.embedding(i, w)),
       variant(Embedding, forward=padded_take).apply, case((4, 3), REPEATED), hint="does not change")
# fmt: on


# --------------------------------------------------------------------------------------------------- softmax and losses


def exp_over_sum(self, x, dim):
    e = np.exp(x)
    return self.save_output(e / e.sum(dim, keepdims=True))


def cross_entropy_backward(**changed):
    def backward(self, dloss):
        inputs = dloss, *self.saved_inputs(), None
        return CrossEntropyBackward.formula(*inputs, **{**self.params, **changed}), None

    return backward


class MeanOfKept(mg.Op, abstract=True):
    def forward(self, loss, target):
        self.shape = loss.shape
        return loss.sum() / int((target >= 0).sum())

    def backward(self, dy):
        return dy.expand(self.shape) / self.shape[0], None


# fmt: off
IGNORED = CrossEntropy.cases[1]  # with an ignored target and label smoothing
ROW, SQUARE = case((2, 3), dim=1), case((3, 3), dim=1)
plant("softmax without its maximum, near 1000", Softmax, case(uniform((3, 5), 990, 1010), dim=1), by="output",
      forward=exp_over_sum)
plant("softmax backward without the row sum", Softmax, ROW, backward=given(lambda dy, y: y * dy))
plant("softmax backward of zeros", Softmax, ROW, backward=given(lambda dy, y: 0.0 * dy))
plant("softmax backward over the wrong dim of a square", Softmax, SQUARE,
      backward=given(lambda dy, y: SoftmaxBackward.apply(dy, y, dim=0)))
plant("softmax backward without keepdim, of a square", Softmax, SQUARE,
      backward=given(lambda dy, y: y * (dy - (dy * y).sum(1))))
plant("softmax of one element passes dy", Softmax, ROW, by="size",
      backward=lambda self, dy: dy if dy.shape[self.dim] == 1 else Softmax.backward(self, dy))
plant("log_softmax with the mean of dy", LogSoftmax, ROW,
      backward=given(lambda dy, y: dy - y.exp() * dy.mean(1, keepdim=True)))
plant("ignored targets get a gradient", CrossEntropy, IGNORED,
      backward=cross_entropy_backward(ignore_index=-1))
plant("label smoothing forgotten in the backward", CrossEntropy, IGNORED,
      backward=cross_entropy_backward(label_smoothing=0.0))
mutant("mean over the kept, its gradient over all", lambda loss, target: loss.sum() / int((target >= 0).sum()),
       MeanOfKept.apply, case((4,), Fixed([2, -100, 0, 4])))
# fmt: on


# -------------------------------------------------------------------------------------------------- norms and attention


def norm_backward(mean=1.0, along=1.0, eps=None, correction=0):
    """layer_norm's backward as a formula, its terms to be left out."""

    def backward(self, dy):
        x, weight = self.saved_inputs()
        rstd = (x.var(-1, keepdim=True, correction=correction) + (self.eps if eps is None else eps)).rsqrt()
        xhat, dxhat = (x - x.mean(-1, keepdim=True)) * rstd, dy * weight
        along_xhat = xhat * (dxhat * xhat).mean(-1, keepdim=True)
        dx = (dxhat - mean * dxhat.mean(-1, keepdim=True) - along * along_xhat) * rstd
        return dx, (dy * xhat).sum(0), dy.sum(0)

    return backward


causal = partial(attention_pattern, is_causal=True)


def unguarded_pattern(self, scores, mask, scale, is_causal):
    e = np.where(mask, np.exp(scale * scores), 0)
    return self.save_output(e / e.sum(-1, keepdims=True))  # 0 / 0 where nothing is to be seen


class Attention(mg.Op, abstract=True):
    """softmax(q kᵀ / √d_k) v, causal, as one op."""

    def forward(self, q, k, v):
        self.save_inputs(q, k, v)
        return self.backend.attention_pattern(q @ k.swapaxes(-1, -2), q.shape[-1] ** -0.5, None, True) @ v

    def backward(self, dy, scale=lambda q: q.shape[-1] ** -0.5, pattern=causal):
        q, k, v = self.saved_inputs()
        p = pattern(q @ k.mT, scale=q.shape[-1] ** -0.5)
        dp = dy @ v.mT
        dscores = p * (dp - (dp * p).sum(-1, keepdim=True)) * scale(q)
        return dscores @ k, dscores.mT @ q, p.mT @ dy


def attention_backward(**how):
    return lambda self, dy: Attention.backward(self, dy, **how)


def seeing(visible):
    """A pattern under another mask than the causal np.tri(T, S)."""
    return lambda scores, scale: attention_pattern(scores, mg.tensor(visible(*scores.shape[-2:])), scale=scale)


# fmt: off
NORM, QKV = case((2, 3), (3,), (3,), eps=1e-5), case((3, 2), (3, 2), (3, 2))
for what, how in {"without mean(dy)": {"mean": 0.0}, "without mean(dy x̂)": {"along": 0.0}, "without eps": {"eps": 0.0},
                  "with the unbiased variance": {"correction": 1}}.items():
    plant(f"layer_norm backward {what}", LayerNorm, NORM, backward=norm_backward(**how))
plant("layer_norm backward wrong while recorded", LayerNorm, NORM, by="create_graph", backward=lambda self, dy: (
      norm_backward(along=0.0) if mg.is_grad_enabled() else LayerNorm.backward)(self, dy))
for what, how in {
    "1/√d_k missing": {"scale": lambda q: 1.0},
    "1/√T for 1/√d_k": {"scale": lambda q: max(q.shape[-2], 1) ** -0.5},
    "-inf mask forgotten, gradient leaking": {"pattern": attention_pattern},
    "mask off by one": {"pattern": seeing(lambda T, S: np.tri(T, S, -1, dtype=bool))},
    "wrong side of the mask": {"pattern": seeing(lambda T, S: ~np.tri(T, S, -1, dtype=bool))},
}.items():
    plant(f"attention backward: {what}", Attention, QKV, backward=attention_backward(**how),
          hint="√2 times too large" if "missing" in what else "")
plant("attention backward: dK and dV swapped", Attention, QKV, hint="swapped",
      backward=lambda self, dy: tuple(Attention.backward(self, dy)[i] for i in (0, 2, 1)))
plant("NaN output and gradient", AttentionPattern, AttentionPattern.cases[2], by="output", forward=unguarded_pattern)
# fmt: on


# --------------------------------------------------------------------------------------------------- second derivatives

COMPOSED, GELU = CrossEntropyBackward.formula, GeluBackward.formula
OffCos = variant(Cos, backward=given(lambda dy, x: dy * -x.sin() * (1 + 1e-5)))


def norm_of_saved(dy, x, weight, mean, rstd, eps, wanted):
    xhat = (x - mean) * rstd  # as the forward left them: constants
    dxhat = dy * weight
    dx = (dxhat - dxhat.mean(-1, keepdim=True) - xhat * (dxhat * xhat).mean(-1, keepdim=True)) * rstd
    return dx, (dy * xhat).sum(0), dy.sum(0)


# fmt: off
plant("exp'' with a constant factor", Exp, SMALL, order=2, backward=given(lambda dy, y: dy * y.detach()))
plant("sin'' off by 1e-5", Sin, SMALL, order=2, backward=given(lambda dy, x: dy * OffCos.apply(x)))
plant("matmul'' with constant operands", MatrixProduct, case((2, 2), (2, 2)), order=2,
      backward=given(lambda dy, a, b: (dy @ b.mT.detach(), a.mT.detach() @ dy)))
for name, op, example, second, composed in [
    ("softmax'' with a constant row sum", Softmax, ROW, SoftmaxBackward,
     lambda dy, y, dim: y * (dy - (dy * y).sum(dim, keepdim=True).detach())),
    ("layer_norm'' with constant mean and deviation", LayerNorm, case((1, 3), (3,), (3,), eps=1e-5),
     LayerNormBackward, norm_of_saved),
    ("cross_entropy'' with constant p", CrossEntropy, case((2, 3), Fixed([2, 0]), **IGNORED.params),
     CrossEntropyBackward,
     lambda dloss, logits, target, p, **params: COMPOSED(dloss, logits.detach(), target, p, **params)),
    ("gelu'' of tanh's for erf's", Gelu, PHI, GeluBackward,
     lambda dy, x, y, approximate: GELU(dy, x, y, "tanh")),
]:
    tamper(name, op.apply, example, second, "formula", staticmethod(composed), order=2)
# fmt: on
