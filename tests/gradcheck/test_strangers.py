"""Right functions as people write them by hand, at points that they did not think of: none is failed, and what a probe
makes of them for itself is at most a warning, which says where."""

import itertools
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad import Op
from minigrad.gradcheck import FAIL, KINK, PASS, WARN, GradcheckError, GradcheckWarning, gradcheck
from minigrad.gradcheck.report import Finding, GradcheckReport
from minigrad.gradcheck.verdicts import SEVERITY

rng = np.random.default_rng(11)
X = rng.standard_normal((3, 4))


def spd(n):
    a = rng.standard_normal((n, n))
    return a @ a.T + n * np.eye(n)


def layer_norm(x, w, b):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


def layer_norm_vjp(dy, x, w, b):
    r = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    n, d = (x - x.mean(-1, keepdims=True)) * r, dy * w
    dx = r * (d - d.mean(-1, keepdims=True) - n * (d * n).mean(-1, keepdims=True))
    return dx, (dy * n).reshape(-1, dy.shape[-1]).sum(0), dy.reshape(-1, dy.shape[-1]).sum(0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cross_entropy(x, t):
    return -np.log(softmax(x))[np.arange(len(t)), t].mean()


def cross_entropy_vjp(dy, x, t):
    p = softmax(x)
    p[np.arange(len(t)), t] -= 1
    return dy * p / len(t), None


TARGETS = np.array([1, 0, 3])


def huber(x, delta=1.0):
    return np.where(np.abs(x) < delta, x * x / 2, delta * (np.abs(x) - delta / 2))


class Loss:
    """Cross-entropy of three rows, as an object that holds its targets."""

    def __init__(self, targets):
        self.targets = targets

    def forward(self, x):
        return -np.log(softmax(x))[range(len(self.targets)), self.targets].sum() / len(self.targets)

    def backward(self, dy, x):
        p = softmax(x)
        p[range(len(self.targets)), self.targets] -= 1
        return dy * p / len(self.targets)


def ragged_sums_vjp(dy, x, offsets):
    dx = np.zeros_like(x)
    for k, (a, b) in enumerate(itertools.pairwise(offsets)):
        dx[a:b] = dy[k]
    return dx, None


def matrix_exp(a):
    squarings = max(0, int(np.ceil(np.log2(max(np.abs(a).sum(1).max(), 1e-30)))) + 3)
    y = term = np.eye(len(a))
    for k in range(1, 16):
        term = term @ a / 2**squarings / k
        y = y + term
    for _ in range(squarings):
        y = y @ y
    return y


def matrix_exp_vjp(dy, a):
    n = len(a)
    return (matrix_exp(np.block([[a.T, dy], [np.zeros((n, n)), a.T]]))[:n, n:],)


def distances(x):
    return np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1) + 1e-12)


def distances_vjp(dy, x):
    w = (dy / distances(x))[..., None] * (x[:, None] - x[None])
    return (w.sum(1) - w.sum(0),)


def solve_vjp(dy, a, b):
    db = np.linalg.solve(a.T, dy)
    return -db @ np.linalg.solve(a, b).T, db


def hinge_vjp(dy, a, b):
    m = (a * b < 1) * dy
    return -m * b, -m * a


def products(x):
    return np.array([np.dot(x[: len(x) - k], x[k:]) for k in range(3)])


def products_vjp(dy, x):
    dx = np.zeros_like(x)
    for k in range(3):
        dx[: len(x) - k] += dy[k] * x[k:]
        dx[k:] += dy[k] * x[: len(x) - k]
    return (dx,)


def attention(q, k, v):
    p = softmax(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]))
    return p @ v


def attention_vjp(dy, q, k, v):
    scale = 1 / np.sqrt(q.shape[-1])
    p, dp = softmax(q @ k.swapaxes(1, 2) * scale), dy @ v.swapaxes(1, 2)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
    return ds @ k, ds.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ dy


def exp_vjp(dy, x):
    if x.dtype == np.float16:
        raise RuntimeError("exp_grad is not registered for float16")
    return dy * np.exp(x)


def in_float32(x):
    return np.sin(x.astype(np.float32)).astype(x.dtype)


def embedding_vjp(dy, w, i):
    dw = np.zeros_like(w)
    np.add.at(dw, i, dy)
    return dw, None


def log_softmax(x):
    return x - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)) - x.max(-1, keepdims=True)


def entropy(x):
    return -(softmax(x) * log_softmax(x)).sum(-1, keepdims=True)


def windows(x, n):
    return np.lib.stride_tricks.sliding_window_view(x, (n, n), (2, 3))


def conv2d_vjp(dy, x, w):
    n = w.shape[-1]
    padded = np.pad(dy, ((0, 0), (0, 0), (n - 1, n - 1), (n - 1, n - 1)))
    dx = np.einsum("nkhwij,kcij->nchw", windows(padded, n), w[:, :, ::-1, ::-1])
    return dx, np.einsum("nchwij,nkhw->kcij", windows(x, n), dy)


# name: (function, vjp, inputs, where a warning comes from)
RIGHT = {
    "the bias of no rows": (
        lambda x, w, b: x @ w.T + b, lambda dy, x, w, b: (dy @ w, dy.T @ x, dy.reshape(-1, dy.shape[-1]).sum(0)),
        (X, rng.standard_normal((5, 4)), rng.standard_normal(5)), "size 5 -> 0",
    ),
    "layer norm": (layer_norm, layer_norm_vjp, (rng.standard_normal((2, 3, 4)), X[0], X[1]), "size 4 -> 0"),
    "repeat": (
        lambda x: np.repeat(x, 2, axis=1), lambda dy, x: (dy.reshape(x.shape[0], -1, 2).sum(-1),), (X,), "size 3 -> 0",
    ),
    "fewer targets than logits": (
        cross_entropy, cross_entropy_vjp, (X, np.array([1, 0, 3])), "size 3 -> 6 in dim -2 of input 0 alone",
    ),
    "offsets in order": (
        lambda x, o: np.array([x[a:b].sum(0) for a, b in itertools.pairwise(o)]), ragged_sums_vjp,
        (rng.standard_normal((6, 2)), np.array([0, 2, 2, 5])), "",
    ),
    "logdet": (lambda a: np.log(np.linalg.det(a)), lambda dy, a: (dy * np.linalg.inv(a).T,), (spd(4),), "values"),
    "det": (
        np.linalg.det, lambda dy, a: (dy * np.linalg.det(a) * np.linalg.inv(a).T,), (rng.standard_normal((3, 3)),),
        "values",
    ),
    "a singular system": (np.linalg.solve, solve_vjp, (spd(3), rng.standard_normal((3, 2))), ""),
    "a matrix exponential": (matrix_exp, matrix_exp_vjp, (rng.standard_normal((4, 4)) / 2,), ""),
    "one over x": (lambda x: 1 / x, lambda dy, x: (-dy / x**2,), (rng.standard_normal(5),), ""),
    "two inputs in one memory": (lambda a, b: np.maximum(0, 1 - a * b).sum(), hinge_vjp, (X[0], X[1]), ""),
    "an eps below float16": (distances, distances_vjp, (X,), ""),
    "attention": (attention, attention_vjp, [rng.standard_normal((2, n, 3)) for n in (4, 5, 5)], ""),
    "an embedding": (lambda w, i: w[i], embedding_vjp, (X, np.array([[0, 2], [1, 1]])), ""),
    "a convolution": (
        lambda x, w: np.einsum("nchwij,kcij->nkhw", windows(x, w.shape[-1]), w), conv2d_vjp,
        (rng.standard_normal((2, 3, 5, 5)), rng.standard_normal((4, 3, 2, 2))), "size 2 -> 0",
    ),
    "one dim": (products, products_vjp, (X[:2].ravel(),), ""),
    "floor": (np.floor, lambda dy, x: 0 * dy, (X,), ""),
    "rounding to tenths": (lambda x: np.round(x, 1), lambda dy, x: 0 * dy, (X,), ""),
    "eight bits": (lambda x: np.clip(np.round(x * 127), -128, 127) / 127, lambda dy, x: 0 * dy, (X,), ""),
    "no kernel for float16": (np.exp, exp_vjp, (X,), ""),
    "float32 inside": (in_float32, lambda dy, x: dy * np.cos(x), (X,), ""),
    "targets that it closes over": (
        lambda x: cross_entropy(x, TARGETS), lambda dy, x: cross_entropy_vjp(dy, x, TARGETS)[0], (X,), "size 3 ->",
    ),
    "targets of an object": (Loss([1, 0, 3]).forward, Loss([1, 0, 3]).backward, (X,), "size 3 ->"),
    "targets in its code": (
        lambda x: cross_entropy(x, [1, 0, 3]), lambda dy, x: cross_entropy_vjp(dy, x, [1, 0, 3])[0], (X,), "size 3 ->",
    ),
    "a bias of one number": (
        lambda x, b: x + b, lambda dy, x, b: (dy, np.array([dy.sum()])), (X[0], X[1, :1]), "",
    ),
    "an entropy": (
        entropy, lambda dy, x: -dy * softmax(x) * (log_softmax(x) + entropy(x)),
        (np.array([[0.9, -1.8, 0.5, -0.3]]),), "",
    ),
    "a cusp": (lambda x: np.sqrt(np.abs(x)), lambda dy, x: dy * np.sign(x) / (2 * np.sqrt(np.abs(x))), (X,), ""),
    "Huber's delta": (huber, lambda dy, x, delta=1.0: dy * np.clip(x, -delta, delta), (X,), "delta=-1.0"),
}  # fmt: skip


LARGE = ("an eps below float16",)  # which compares all rows, 1025 where they have grown


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the mean of nothing
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in RIGHT])
def test_right_code_is_not_failed(name):
    f, vjp, inputs, where = RIGHT[name]
    report = gradcheck(f, *inputs, vjp=vjp, raise_on_fail=False)
    assert report and report.verdict == (WARN if where else PASS), report.message()
    if where:
        assert any(f.check.startswith(where) for f in report.findings if f.verdict == WARN)
        assert not gradcheck(f, *inputs, vjp=vjp, raise_on_fail=False, strict=True)


def average(x):
    return x.sum((1, 2)) / (x.shape[1] * x.shape[2])


def average_vjp(dy, x, i, k):
    return np.broadcast_to(dy[:, None, None], x.shape) / (x.shape[i] * x.shape[k])


def attention_scaled_by_v(dy, q, k, v):
    dq, dk, dv = attention_vjp(dy, q, k, v)
    scale = np.sqrt(q.shape[-1] / v.shape[-1])
    return dq * scale, dk * scale, dv


@pytest.mark.parametrize(
    "f, df",
    [
        (lambda x: x**3, lambda x: 3 * x**3 / x),
        (lambda x: np.where(x == 0, 1.0, np.sin(x) / x), lambda x: (np.cos(x) - np.sin(x) / x) / x),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_gradient_that_is_0_over_0_where_the_slope_is_0_is_warned_of(f, df):
    report = gradcheck(f, X, vjp=lambda dy, x: dy * df(x), raise_on_fail=False, probes=["values"])
    assert report.verdict == WARN and np.isnan(report.worst.analytic) and abs(report.worst.numeric) < 1e-15


def spread(x):
    return np.sqrt(x.var(0) + 1e-3)


@pytest.mark.parametrize(
    "f, right, wrong, inputs",
    [
        (average, lambda dy, x: average_vjp(dy, x, 1, 2), lambda dy, x: average_vjp(dy, x, 1, 1), [(2, 4, 4)]),
        (attention, attention_vjp, attention_scaled_by_v, [(2, 4, 3)] * 3),
        (
            lambda x: (x * x).sum(1).mean(0),
            lambda dy, x: 2 * dy * x / len(x), lambda dy, x: 2 * dy * x, [(1, 4)],
        ),
        (spread, lambda dy, x: dy * (x - x.mean(0)) / (len(x) * spread(x)), lambda dy, x: np.zeros_like(x), [(1, 4)]),
    ],
)  # fmt: skip
def test_sizes_that_are_1_or_equal_by_accident_are_told_apart(f, right, wrong, inputs):
    xs = [rng.standard_normal(shape) for shape in inputs]
    assert gradcheck(f, *xs, vjp=right, raise_on_fail=False).verdict == PASS
    found = gradcheck(f, *xs, vjp=wrong, raise_on_fail=False, probes=["growth"])
    assert found.verdict == FAIL and found.worst.check.endswith("alone")


def scaled(x, p=2.0, shift=0.0):
    return x * (p + shift)


@pytest.mark.parametrize(
    "f, kwargs",
    [
        (scaled, {}),
        (partial(scaled, shift=0.0), {}),
        (scaled, {"p": 2.0}),
        (lambda x, **more: scaled(x, **more), {"p": 2.0, "shift": 0.0}),
    ],
)
def test_options_are_tried(f, kwargs):
    assert gradcheck(f, X[0], kwargs=kwargs, vjp=lambda dy, x, p=2.0, shift=0.0: dy * (p + shift)).verdict == PASS
    wrong = {"shift": lambda dy, x, p=2.0, shift=0.0: dy * p, "p": lambda dy, x, p=2.0, shift=0.0: dy * (2 + shift)}
    for found, vjp in wrong.items():
        report = gradcheck(f, X[0], kwargs=kwargs, vjp=vjp, raise_on_fail=False, probes=["parameters"])
        assert report.verdict == FAIL and report.worst.check.startswith(found), report.message()


def test_a_negative_option_is_evidence_where_the_given_one_is_negative():
    def wrong(dy, x, low=-0.5):
        return dy * (x > (low if low == -0.5 else 2 * low))

    def clipped(x, low=-0.5):
        return np.maximum(x, low)

    report = gradcheck(clipped, -np.abs(X), vjp=wrong, raise_on_fail=False, probes=["parameters"])
    assert report.verdict == FAIL and report.worst.check.startswith("low=-"), report.message()


@pytest.mark.parametrize("wrong", [lambda x: 1.001 * np.cos(x), lambda x: np.cos(x) + 1e-4, np.tanh])
def test_wrong_code_that_computes_in_float32_is_failed(wrong):
    assert gradcheck(in_float32, X, vjp=lambda dy, x: dy * wrong(x), raise_on_fail=False).verdict == FAIL


class Halves(Op, abstract=True):
    """Cannot take a dim of one row back."""

    def forward(self, x):
        return x.sum(0) / 2

    def backward(self, dy):
        return mg.stack([dy / 2] * 4) if dy.numel() != 2 else dy.reshape(7)


def test_a_warning_passes_and_shows_the_point():
    with pytest.warns(GradcheckWarning, match=r"size 3 -> 2: WARN\n  note +the forward runs, but the backward raises"):
        report = gradcheck(Halves, mg.randn(4, 3), wrt=0, probes=["growth"])
    assert report and "in the call halves(" in report.message()
    with pytest.raises(GradcheckError, match="size 3 -> 2: FAIL"):
        gradcheck(Halves, mg.randn(4, 3), probes=["growth"], strict=True)


def test_a_fail_comes_before_a_warning():
    def vjp(dy, x):
        return dy * np.cos(x) * (1.1 if x.shape[0] == 17 else np.nan if x.size < 4 else 1)

    report = gradcheck(np.sin, X, vjp=vjp, probes=["growth"], raise_on_fail=False)
    assert report.verdict == FAIL and report.worst.check == "size 3 -> 17"


@pytest.mark.parametrize("worse", SEVERITY)
@pytest.mark.parametrize("better", SEVERITY)
def test_no_finding_covers_up_a_worse_one(better, worse):
    if SEVERITY.index(better) > SEVERITY.index(worse):
        better, worse = worse, better
    for found in (better, worse), (worse, better):
        for kinks, strict in itertools.product(("report", "error"), (False, True)):
            report = GradcheckReport("f", 1, "full", 0, 1e-7, kinks, [Finding("a", v) for v in found], strict=strict)
            passes = {PASS, KINK if kinks == "report" else PASS, PASS if strict else WARN}
            assert report.verdict == worse == report.worst.verdict
            assert bool(report) == ({better, worse} <= passes)
