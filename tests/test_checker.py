"""The gradient checker fails on wrong gradients: each fault below is planted in a copy of an op of ours that passes."""

import math

import numpy as np
import pytest
from checker import check, derivative

import minigrad as mg
from minigrad.nn import functional as F

N = (3, 4)


def op(forward, backward, *, broadcasts=False, differentiable=True):
    """A fresh op from forward(self, *arrays) and backward(self, dy)."""
    parts = {"forward": forward, "backward": backward, "broadcasts": broadcasts, "differentiable": differentiable}
    return type("Planted", (mg.Op,), parts).apply


def keeping(formula):
    """forward: save all inputs, return formula(*arrays)."""

    def forward(self, *xs):
        self.save_inputs(*xs)
        return formula(*xs)

    return forward


def softmax_forward(self, x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return self.save_output(e / e.sum(-1, keepdims=True))


def normalized(x):
    centred = x - x.mean(-1, keepdim=True)
    rstd = ((centred * centred).mean(-1, keepdim=True) + 1e-5).rsqrt()
    return centred * rstd, rstd


def norm_forward(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def norm_backward(one, two):
    def backward(self, dy):
        xhat, rstd = normalized(self.saved_inputs()[0])
        return (dy - one * dy.mean(-1, keepdim=True) - two * xhat * (dy * xhat).mean(-1, keepdim=True)) * rstd

    return backward


def only(y):
    """backward from a function of (dy, *saved inputs)."""
    return lambda self, dy: y(dy, *self.saved_inputs())


INDEX = np.array([2, 0, 2])


def index_backward(assign):
    class Backward(mg.Op):
        def forward(self, dy):
            dx = np.zeros(N)
            if assign:
                dx[INDEX] = dy
            else:
                np.add.at(dx, INDEX, dy)
            return dx

        def backward(self, ddx):
            return ddx[INDEX]

    return lambda self, dy: Backward.apply(dy)


def constant(self, dy, factor=lambda x: 3 * x * x):
    """Right in value, but to the graph the factor is a constant: only the second derivative is wrong."""
    return dy * factor(self.saved_inputs()[0].detach())


class Workspace:
    """exp with its output kept in one buffer for all calls: the second call spoils the first."""

    def __init__(self, stale):
        self.stale, self.buffer = stale, np.zeros(N)

    def forward(self, op, x):
        y = np.exp(x)
        op.save(self.buffer if self.stale else y.copy())
        self.buffer[...] = y
        return y

    def __call__(self, x):
        exp = op(lambda op, x: self.forward(op, x), lambda op, dy: dy * op.saved()[0])
        return exp(x) + exp(x * 2.0)


def as_if_contiguous(x):
    """What a kernel reads that ignores strides."""
    return np.lib.stride_tricks.as_strided(x, x.shape, np.zeros(x.shape).strides).copy()


def ignoring_strides(wrong):
    def forward(self, x):
        self.save(as_if_contiguous(x) if wrong else x.copy())
        return np.sin(x)

    return op(forward, lambda self, dy: dy * self.saved()[0].cos())


MASK = np.tril(np.ones((3, 3), bool))


def masked(keep):
    return lambda self, dy: mg.where(mg.tensor(keep), dy, 0.0)


def scaled_mask(scale):
    mask = (np.arange(12).reshape(N) % 3 > 0) / 0.75

    return op(lambda self, x: x * mask, lambda self, dy: dy * mg.tensor(mask * scale))


def cross_entropy(keep_ignored):
    target = np.array([1, -100, 3])
    kept = target >= 0

    def forward(self, x):
        self.save_inputs(x)
        logp = x - np.log(np.exp(x).sum(1, keepdims=True))
        return np.where(kept, -logp[np.arange(3), np.where(kept, target, 0)], 0.0)

    def backward(self, dy):
        dx = self.saved_inputs()[0].softmax(1) - mg.tensor(np.eye(4)[np.where(kept, target, 0)])
        rows = mg.tensor((kept | keep_ignored).astype(float)).reshape(3, 1)
        return dx * rows * dy.reshape(3, 1)

    return op(forward, backward)


def attention(scale):
    def backward(self, dy):
        y = self.saved_output()
        return (dy - (dy * y).sum(-1, keepdim=True)) * y * scale

    return op(lambda self, x: self.save_output(F.softmax(mg.tensor(x * 0.5), -1).numpy()), backward)


def corner(error):
    bump = np.ones(N)
    bump[2, 3] += error
    return op(keeping(np.tanh), only(lambda dy, x: dy * (1 - x.tanh() ** 2) * mg.tensor(bump)))


def matmul(da, db):
    return op(keeping(np.matmul), lambda self, dy: (da(dy, *self.saved_inputs()), db(dy, *self.saved_inputs())))


def right_da(dy, a, b):
    return dy @ b.mT


def right_db(dy, a, b):
    return a.mT @ dy


def erf_gelu(tanh_form):
    def backward(self, dy):
        (x,) = self.saved_inputs()
        density = (-0.5 * x * x).exp() / math.sqrt(2 * math.pi)
        cdf = 0.5 * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).tanh()) if tanh_form else 0.5 * (
            1 + (x * math.sqrt(0.5)).erf()
        )  # fmt: skip
        return dy * (cdf + x * density)

    return op(keeping(lambda x: F.gelu(mg.tensor(x)).numpy()), backward)


# name: (shapes, the right function, the wrong one, how it is checked)
FAULTS = {
    "scaled by 1 + 1e-5": ([N], op(keeping(np.exp), only(lambda dy, x: dy * x.exp())),
                           op(keeping(np.exp), only(lambda dy, x: dy * x.exp() * (1 + 1e-5))), {}),
    "off by 1e-5 in a constant": ([N], op(keeping(np.sin), only(lambda dy, x: dy * x.cos())),
                                  op(keeping(np.sin), only(lambda dy, x: dy * x.cos() + 1e-5)), {}),
    "off by 1e-3 in one corner": ([N], corner(0.0), corner(1e-3), {}),
    "sign": ([N, N], op(lambda self, a, b: a - b, lambda self, dy: (dy, -dy)),
             op(lambda self, a, b: a - b, lambda self, dy: (dy, dy)), {}),
    "transposed operand": ([(3, 3)] * 2, matmul(right_da, right_db), matmul(lambda dy, a, b: dy @ b, right_db), {}),
    "swapped operands": ([(3, 3)] * 2, matmul(right_da, right_db), matmul(right_da, lambda dy, a, b: dy @ a.mT), {}),
    "one row instead of the sum": ([N, (4,)], op(lambda self, a, b: a + b, lambda self, dy: (dy, dy), broadcasts=True),
                                     op(lambda self, a, b: a + b, lambda self, dy: (dy, dy[0])), {}),
    "mean instead of sum": ([N, (4,)], op(lambda self, a, b: a + b, lambda self, dy: (dy, dy.sum(0))),
                            op(lambda self, a, b: a + b, lambda self, dy: (dy, dy.mean(0))), {}),
    "an input forgotten": ([N, N], op(keeping(np.multiply), only(lambda dy, a, b: (dy * b, dy * a))),
                           op(keeping(np.multiply), only(lambda dy, a, b: (dy * b, None))), {}),
    "one of two uses": ([N], op(keeping(np.square), only(lambda dy, x: 2.0 * x * dy)),
                        op(keeping(np.square), only(lambda dy, x: x * dy)), {}),
    "softmax without the row sum": ([N], op(softmax_forward, lambda self, dy: self.saved_output() * (
                                        dy - (dy * self.saved_output()).sum(-1, keepdim=True))),
                                    op(softmax_forward, lambda self, dy: self.saved_output() * dy), {}),
    "softmax with zeros": ([N], op(softmax_forward, lambda self, dy: self.saved_output() * (
                               dy - (dy * self.saved_output()).sum(-1, keepdim=True))),
                           op(softmax_forward, lambda self, dy: dy * 0.0), {}),
    "attention without its scale": ([N], attention(0.5), attention(1.0), {}),
    "layer norm without mean dy": ([N], op(keeping(norm_forward), norm_backward(1.0, 1.0)),
                                   op(keeping(norm_forward), norm_backward(0.0, 1.0)), {}),
    "layer norm without mean dy x̂": ([N], op(keeping(norm_forward), norm_backward(1.0, 1.0)),
                                     op(keeping(norm_forward), norm_backward(1.0, 0.0)), {}),
    "the other side of the mask": ([(3, 3)], op(lambda self, x: np.where(MASK, x, 0), masked(MASK)),
                                   op(lambda self, x: np.where(MASK, x, 0), masked(MASK.T)), {}),
    "a mask off by one": ([(3, 3)], op(lambda self, x: np.where(MASK, x, 0), masked(MASK)),
                          op(lambda self, x: np.where(MASK, x, 0), masked(np.tril(MASK, -1))), {}),
    "relu passes below 0": ([N], op(keeping(lambda x: np.maximum(x, 0)), only(lambda dy, x: mg.where(x > 0, dy, 0.0))),
                            op(keeping(lambda x: np.maximum(x, 0)), only(lambda dy, x: dy * 1.0)), {}),
    "repeated index assigned": ([N], op(lambda self, x: x[INDEX], index_backward(False)),
                                op(lambda self, x: x[INDEX], index_backward(True)), {}),
    "cumsum not reversed": ([N], op(lambda self, x: x.cumsum(1), lambda self, dy: dy.flip(1).cumsum(1).flip(1)),
                            op(lambda self, x: x.cumsum(1), lambda self, dy: dy.cumsum(1)), {}),
    "ignored targets get a gradient": ([N], cross_entropy(False), cross_entropy(True), {}),
    "dropout without its scale": ([N], scaled_mask(1.0), scaled_mask(0.75), {}),
    "tanh's derivative for erf's gelu": ([N], erf_gelu(False), erf_gelu(True), {}),
    "wrong when strided": ([N], ignoring_strides(False), ignoring_strides(True), {"layout": "strided"}),
    "wrong when transposed": ([N], ignoring_strides(False), ignoring_strides(True), {"layout": "fortran"}),
    "wrong second derivative": ([N], op(keeping(lambda x: x**3), only(lambda dy, x: dy * (3.0 * x * x))),
                                op(keeping(lambda x: x**3), constant), {"order": 2}),
    "second derivative scaled": ([N], op(keeping(np.exp), only(lambda dy, x: dy * x.exp())),
                                 op(keeping(np.exp), only(lambda dy, x: dy * (x.exp().detach() * (x * (1 + 1e-5)).exp()
                                                                              / (x * (1 + 1e-5)).exp().detach()))),
                                 {"order": 2}),
    "stale buffer": ([N], Workspace(False), Workspace(True), {}),
    "NaN": ([N], op(keeping(np.exp), only(lambda dy, x: dy * x.exp())),
            op(keeping(np.exp), only(lambda dy, x: dy * float("nan"))), {}),
    "not recorded": ([N], op(keeping(np.exp), only(lambda dy, x: dy * x.exp())),
                     op(keeping(np.exp), only(lambda dy, x: dy * x.exp()), differentiable=False), {}),
    "no gradient at all": ([N], op(keeping(np.exp), only(lambda dy, x: dy * x.exp())),
                           op(keeping(np.exp), lambda self, dy: None), {}),
}  # fmt: skip


def drawn(shapes, seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes], rng


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("shapes, right, wrong, how", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found(shapes, right, wrong, how, seed):
    arrays, rng = drawn(shapes, seed)
    check(right, arrays, rng, **how)
    arrays, rng = drawn(shapes, seed)
    with pytest.raises(AssertionError, match="analytic"):
        check(wrong, arrays, rng, **how)


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault[3]])
def test_such_a_fault_is_seen_only_where_one_looks(name):
    shapes, _, wrong, _ = FAULTS[name]
    check(wrong, *drawn(shapes, 0))


def test_enough_faults():
    assert len(FAULTS) >= 25


def test_the_message_says_where():
    shapes, _, wrong, _ = FAULTS["an input forgotten"]
    with pytest.raises(AssertionError, match=r"order 1, input 1 of shape \(3, 4\) \(strided\): analytic 0.0, numeric"):
        check(wrong, *drawn(shapes, 0), layout="strided")


@pytest.mark.parametrize(
    "phi, exact",
    [
        (math.exp, 1.0),
        (math.sin, 1.0),
        (lambda t: math.cos(3 + t), -math.sin(3)),
        (lambda t: (2 + t) ** 3, 12.0),
        (lambda t: 1 / (0.7 + t), -1 / 0.49),
        (lambda t: 1e6 + math.tanh(t), 1.0),
        (lambda t: 5.0, 0.0),
        (lambda t: math.exp(20 * t), 20.0),
    ],
)
def test_the_bar_covers_the_error_and_is_small(phi, exact):
    value, bar = derivative(phi)
    assert abs(value - exact) <= 3 * bar
    assert bar <= 1e-6 * max(abs(exact), abs(phi(0.0)) * 1e-3)
