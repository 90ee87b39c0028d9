"""The composites against NumPy, at their edges, and what they refuse. Their gradients: test_every_op.py."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F

A = np.random.default_rng(0).standard_normal((3, 4))
B = np.random.default_rng(1).standard_normal((2, 3, 4))
POSITIVE, UNIT, V = abs(A) + 0.1, np.tanh(A), A[0]
SPECIAL = np.array([0.0, -0.0, 1e-300, -1e-10, 1e-3, -0.3, 5.0, -20.0, 700.0, -710.2, math.inf, -math.inf, math.nan])
HALVES = np.array([-2.5, -1.5, -0.5, -0.2, 0.5, 1.5, 2.5, 2.4999, 1e17, 0.49999999999999994, math.inf, math.nan])
a, b, v, one = mg.tensor(A), mg.tensor(B), mg.tensor(V), mg.tensor(np.array(2.5))
ints = mg.tensor([[3, -1, 4], [1, -5, 9]])
INTS = ints.numpy()

UNARY = {  # name: (NumPy's function, arrays)
    "expm1": (np.expm1, [A, SPECIAL]), "log1p": (np.log1p, [POSITIVE, SPECIAL[:7]]), "atan": (np.arctan, [A, SPECIAL]),
    "tan": (np.tan, [A, SPECIAL[:9]]), "sinh": (np.sinh, [A, SPECIAL]), "cosh": (np.cosh, [A, SPECIAL]),
    "asin": (np.arcsin, [UNIT, np.array([-1.0, 0, 1, 2])]), "acos": (np.arccos, [UNIT, np.array([-1.0, 0, 1, 2])]),
    "exp2": (np.exp2, [A, SPECIAL[:8]]), "log2": (np.log2, [POSITIVE, 2.0 ** np.arange(-1074, 1024)]),
    "log10": (np.log10, [POSITIVE, 10.0 ** np.arange(-300, 300)]), "square": (np.square, [A, SPECIAL]),
    "reciprocal": (np.reciprocal, [A, SPECIAL]), "ceil": (np.ceil, [A, HALVES]), "trunc": (np.trunc, [A, HALVES]),
    "round": (np.round, [A, HALVES]),
    "nan_to_num": (np.nan_to_num, [SPECIAL]), "logit": (lambda x: np.log(x / (1 - x)), [np.array([0.1, 0.5, 0.9])]),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(name):
    function, arrays = UNARY[name]
    with np.errstate(all="ignore"):
        for x in arrays:
            for dtype in (np.float64, np.float32):
                wide = x.astype(dtype).astype(np.float64)
                want = function(wide).astype(dtype) if name != "nan_to_num" else function(x.astype(dtype))
                y = getattr(mg.tensor(x.astype(dtype)), name)()
                assert y.dtype == dtype
                np.testing.assert_allclose(y.numpy(), want, 4 * np.finfo(dtype).eps, np.finfo(dtype).tiny * 4)
        half = getattr(mg.tensor(np.float16([0.25, 0.5])), name)()
        np.testing.assert_allclose(half.numpy(), function(np.array([0.25, 0.5])), 5e-3, 1e-3)
    if name not in ("nan_to_num", "logit"):
        kept = name in ("square", "ceil", "trunc", "round")
        assert getattr(mg.ones(2).long(), name)().dtype == (mg.int64 if kept else mg.float32)


@pytest.mark.parametrize("base, name", [(2.0, "log2"), (10.0, "log10")])
def test_logarithms_of_powers_are_whole(base, name):
    for exponents, dtype in ((np.arange(-20, 23), np.float64), (np.arange(0, 11), np.float32)):
        y = getattr(mg.tensor((base**exponents).astype(dtype)), name)().numpy()
        np.testing.assert_array_equal(y[exponents >= 0], exponents[exponents >= 0])


def softplus(x):
    return np.logaddexp(x, 0)


STEPS = np.array([-800.0, -30, -1, -0.0, 0.5, 19, 25, 800])
VALUES = {
    "softplus": (lambda: F.softplus(mg.tensor(STEPS)), np.where(STEPS > 20, STEPS, softplus(STEPS))),
    "softplus, sharper": (lambda: F.softplus(a, 2.0), softplus(2 * A) / 2),
    "logsigmoid": (lambda: F.logsigmoid(mg.tensor(STEPS)), -softplus(-STEPS)),
    "elu": (lambda: F.elu(mg.tensor(STEPS), 0.5), np.where(STEPS > 0, STEPS, 0.5 * np.expm1(np.minimum(STEPS, 0)))),
    "leaky_relu": (lambda: F.leaky_relu(a, 0.2), np.where(A > 0, A, 0.2 * A)),
    "glu": (lambda: F.glu(a), A[:, :2] / (1 + np.exp(-A[:, 2:]))),
    "softplus, a line beyond": (lambda: F.softplus(a, 2.0, 1.0), np.where(2 * A > 1, A, softplus(2 * A) / 2)),
    "leaky_relu, by default": (lambda: F.leaky_relu(a), np.where(A > 0, A, 0.01 * A)),
    "prelu": (lambda: F.prelu(b, mg.tensor([0.1, 0.2, 0.3], dtype=mg.float64)),
              np.where(B > 0, B, B * np.array([[0.1], [0.2], [0.3]]))),
    "glu of the last dim": (lambda: F.glu(b), B[..., :2] / (1 + np.exp(-B[..., 2:]))),
    "normalize along dim 1": (lambda: F.normalize(b), B / np.linalg.norm(B, axis=1, keepdims=True)),
    "cosine_similarity along dim 1": (lambda: F.cosine_similarity(b, b * a),
                                      (B * B * A).sum(1) / np.linalg.norm(B, axis=1) / np.linalg.norm(B * A, axis=1)),
    "normalize": (lambda: F.normalize(a), A / np.linalg.norm(A, axis=1, keepdims=True)),
    "normalize nothing": (lambda: F.normalize(mg.zeros(2, 3)), np.zeros((2, 3), np.float32)),
    "cosine_similarity": (lambda: F.cosine_similarity(a, v), A @ V / np.linalg.norm(A, axis=1) / np.linalg.norm(V)),
    "norm": (lambda: a.norm(), np.linalg.norm(A)),
    "norm along": (lambda: b.norm(dim=(0, 2), keepdim=True), np.sqrt((B**2).sum((0, 2), keepdims=True))),
    "norm 1": (lambda: a.norm(1, 0), abs(A).sum(0)),
    "norm 3": (lambda: a.norm(3, 1), (abs(A) ** 3).sum(1) ** (1 / 3)),
    "norm 1/2": (lambda: a.norm(0.5, 1), np.sqrt(abs(A)).sum(1) ** 2),
    "norm 0": (lambda: mg.tensor([0.0, 2, 3]).norm(0), np.float32(2)),
    "norm inf": (lambda: a.norm(math.inf, -1), abs(A).max(1)),
    "norm -inf": (lambda: a.norm(-math.inf), abs(A).min()),
    "norm of nothing": (lambda: a[:0].norm(), 0.0),
    "norm of halves": (lambda: mg.full((4,), 300.0).half().norm(), np.float16(600)),
    "cumprod": (lambda: b.cumprod(1), B.cumprod(1)),
    "cumprod of ints": (lambda: ints.cumprod(1), INTS.cumprod(1)),
    "cumprod of a number": (lambda: one.cumprod(0), 2.5),
    "cumprod of nothing": (lambda: a[:0].cumprod(0), A[:0]),
    "logaddexp": (lambda: mg.logaddexp(a * 900, v), np.logaddexp(A * 900, V)),
    "logaddexp of halves": (lambda: mg.logaddexp(a.half() + 9, v.half()), np.logaddexp(A + 9, V).astype(np.float16)),
    "count_nonzero": (lambda: mg.tensor([[0, 2], [3, 0]]).count_nonzero(1), [1, 1]),
    "median": (lambda: a.median(), np.sort(A.ravel())[5]),
    "median along": (lambda: a.median(0).values, np.median(A, 0)),
    "median with NaN": (lambda: mg.tensor([1.0, math.nan, 0]).median(), np.float32(math.nan)),
    "norm in float64": (lambda: mg.full((3,), 0.1).norm(dtype=mg.float64), 3**0.5 * np.float64(np.float32(0.1))),
    "norm None": (lambda: a.norm(None), np.linalg.norm(A)),
    "prod in float64": (lambda: mg.full((3,), 0.1).prod(dtype=mg.float64), np.float64(np.float32(0.1)) ** 3),
    "cumprod in float64": (lambda: mg.tensor([3, 2]).cumprod(0, dtype=mg.float64), [3.0, 6.0]),
    "median along with NaN": (lambda: mg.tensor([[1.0, math.nan, 0]]).median(1).values, np.float32([math.nan])),
    "unique NaNs": (lambda: mg.tensor([math.nan, math.nan]).unique(), np.float32([math.nan, math.nan])),
    "unique's counts": (lambda: mg.tensor([3, 1, 3]).unique(return_inverse=True, return_counts=True)[2], [1, 2]),
    "unique": (lambda: mg.tensor([3, 1, 3, 2]).unique(), [1, 2, 3]),
    "unique's inverse": (lambda: mg.tensor([[3, 1], [3, 2]]).unique(return_inverse=True)[1], [[2, 0], [2, 1]]),
    "unique rows": (lambda: mg.tensor([[1, 2], [1, 2], [0, 5]]).unique(dim=0), [[0, 5], [1, 2]]),
    "bincount": (lambda: mg.tensor([0, 2, 2]).bincount(minlength=5), [1, 0, 2, 0, 0]),
    "bincount with weights": (lambda: mg.tensor([0, 1]).bincount(v[:2]), V[:2]),
    "bincount with float32": (lambda: mg.tensor([0, 2]).bincount(mg.ones(2), 4), np.float32([1, 0, 1, 0])),
    "searchsorted": (lambda: mg.searchsorted(mg.tensor([1, 3, 5]), mg.tensor([3, 6])), [1, 3]),
    "searchsorted, right": (lambda: mg.searchsorted(mg.tensor([1, 3, 5]), 3, right=True), 2),
    "searchsorted by rows": (lambda: mg.searchsorted(mg.tensor([[1, 3], [5, 7]]), mg.tensor([[3], [5]]), side="right"),
                             [[2], [1]]),
    "searchsorted, sorter": (lambda: mg.searchsorted(mg.tensor([5, 1]), mg.tensor([3]), sorter=mg.tensor([1, 0])), [1]),
    "searchsorted, int32": (lambda: mg.searchsorted(mg.tensor([1]), mg.tensor([3]), out_int32=True), np.int32([1])),
    # shapes
    "t": (lambda: a.t(), A.T),
    "t of a vector": (lambda: v.t(), V),
    "movedim": (lambda: b.movedim((0, 1), (-1, 0)), np.moveaxis(B, (0, 1), (-1, 0))),
    "narrow": (lambda: a.narrow(1, -3, 2), A[:, 1:3]),
    "select": (lambda: b.select(-1, 2), B[..., 2]),
    "roll": (lambda: b.roll((1, -5), (0, 2)), np.roll(B, (1, -5), (0, 2))),
    "roll all": (lambda: a.roll(5), np.roll(A, 5)),
    "roll nothing": (lambda: a[:0].roll(1, 0), A[:0]),
    "diag": (lambda: v.diag(-1), np.diag(V, -1)),
    "diag of a matrix": (lambda: a.diag(2), np.diag(A, 2)),
    "diagonal": (lambda: b.diagonal(-1, 1, 2), B.diagonal(-1, 1, 2)),
    "diagonal beyond": (lambda: a.diagonal(7), np.empty(0)),
    "trace": (lambda: a.trace(), np.trace(A)),
    "tile": (lambda: a.tile(2), np.tile(A, 2)),
    "unflatten": (lambda: a.unflatten(-1, (2, -1)), A.reshape(3, 2, 2)),
    "meshgrid": (lambda: mg.meshgrid(v, v[:2])[1], np.meshgrid(V, V[:2], indexing="ij")[1]),
    "meshgrid xy": (lambda: mg.meshgrid([v, v[:2]], indexing="xy")[0], np.meshgrid(V, V[:2])[0]),
    "repeat_interleave all": (lambda: ints.repeat_interleave(2), INTS.repeat(2)),
    "repeat_interleave each": (lambda: a.repeat_interleave(mg.tensor([0, 2, 1]), 0), A.repeat([0, 2, 1], 0)),
    "pad reflect": (lambda: F.pad(b, (3, 1, 0, 2), "reflect"), np.pad(B, ((0, 0), (0, 2), (3, 1)), "reflect")),
    "pad replicate": (lambda: F.pad(a, (7, 0), mode="replicate"), np.pad(A, ((0, 0), (7, 0)), "edge")),
    "pad circular": (lambda: F.pad(a, (4, 1), "circular"), np.pad(A, ((0, 0), (4, 1)), "wrap")),
    "cat to nothing": (lambda: mg.cat([mg.zeros(0), a.float()]), A.astype(np.float32)),
    "select from the end": (lambda: b.select(1, -1), B[:, -1]),
    "diag_embed": (lambda: a.diag_embed(1), np.stack([np.diag(row, 1) for row in A])),
    "diag_embed the other way": (lambda: v.diag_embed(1, -1, 0), np.diag(V, 1).T),
    "fliplr": (lambda: b.fliplr(), B[:, ::-1]),
    "flipud": (lambda: b.flipud(), B[::-1]),
    "tile fewer dims": (lambda: b.tile(2, 3), np.tile(B, (2, 3))),
    "meshgrid xy of three": (lambda: mg.meshgrid(v, v[:2], v[:3], indexing="xy")[2], np.meshgrid(V, V[:2], V[:3])[2]),
    "repeat_interleave by one": (lambda: a.repeat_interleave(mg.tensor([2]), 1), A.repeat(2, 1)),
    "repeat_interleave of places": (lambda: mg.repeat_interleave(mg.tensor([2, 0, 1])), [0, 0, 2]),
    # places
    "nonzero": (lambda: (a > 0).nonzero(), np.argwhere(A > 0)),
    "nonzero of a number": (lambda: one.nonzero(), np.empty((1, 0), int)),
    "nonzero as an index": (lambda: a[(a > 0).nonzero(as_tuple=True)], A[A > 0]),
    "masked_select": (lambda: b.masked_select(a > 0), B[:, A > 0].ravel()),
    "take": (lambda: a.take(mg.tensor([[0, -1]])), [[A[0, 0], A[2, 3]]]),
    "take_along_dim": (lambda: a.take_along_dim(a.argsort(1), 1), np.sort(A)),
    "gather of fewer": (lambda: a.gather(1, mg.tensor([[3, 0]])), A[:1, [3, 0]]),
    "scatter": (lambda: mg.zeros(2, 3).scatter(1, mg.tensor([[2], [0]]), 1.0), np.float32([[0, 0, 1], [1, 0, 0]])),
    "scatter, the last stays": (lambda: v.scatter(0, mg.tensor([1, 1]), v[2:]), [V[0], V[3], V[2], V[3]]),
    "scatter_add": (lambda: mg.zeros(2).scatter_add(0, mg.tensor([1, 1]), mg.tensor([5.0, 7])), np.float32([0, 12])),
    "index_add": (lambda: a.index_add(0, mg.tensor([2, 2]), a[:2], alpha=-1), [A[0], A[1], A[2] - A[0] - A[1]]),
    "index_copy": (lambda: a.index_copy(0, mg.tensor([2, 0]), a[:2]), A[[1, 1, 0]]),
    "index_fill": (lambda: ints.index_fill(1, mg.tensor([0, 2]), 7), [[7, -1, 7], [7, -5, 7]]),
    "isin": (lambda: mg.isin(ints, mg.tensor([1, 4])), np.isin(INTS, [1, 4])),
    "isclose": (lambda: mg.isclose(mg.tensor([1.0, math.inf, math.nan]), mg.tensor([1 + 1e-6, math.inf, math.nan])),
                [True, True, False]),
    "nonzero of a number as an index": (lambda: one.nonzero(as_tuple=True)[0], [0]),
    "take_along_dim of all": (lambda: a.take_along_dim(mg.tensor([[5, 0]])), A.ravel()[[5, 0]]),
    "index_add twice": (lambda: a.index_add(0, mg.tensor([1]), a[:1], alpha=2), [A[0], A[1] + 2 * A[0], A[2]]),
    "isin, inverted": (lambda: mg.isin(ints, 4, invert=True), INTS != 4),
    "isclose to what is larger": (lambda: mg.isclose(mg.tensor([100.0, 1e-7]), mg.tensor([101.0, 0.0]), 0.00995),
                                  [True, False]),
    "isclose to what is smaller": (lambda: mg.isclose(mg.tensor(101.0), 100.0, 0.00995), False),
    "isclose to infinity": (lambda: mg.isclose(mg.tensor([1.0, -math.inf]), math.inf), [False, False]),
    # products
    "outer": (lambda: mg.outer(v, v), np.outer(V, V)),
    "tensordot": (lambda: mg.tensordot(b, a, ([1, 2], [0, 1])), np.tensordot(B, A, 2)),
    "addmm": (lambda: mg.addmm(v, a[:, :3], a, beta=2, alpha=0.5), 2 * V + A[:, :3] @ A / 2),
    "addmm of NaN": (lambda: mg.addmm(v * math.nan, a[:, :3], a, beta=0), A[:, :3] @ A),
    "bmm": (lambda: b.bmm(b.mT), B @ B.swapaxes(1, 2)),
    "mv": (lambda: a.mv(v), A @ V),
    "dot": (lambda: v.dot(v), V @ V),
    "lerp": (lambda: mg.lerp(a, a * 2, 0.25), A * 1.25),
    "addcmul": (lambda: mg.addcmul(a, a, a, value=2), A + 2 * A * A),
    "atan2": (lambda: mg.atan2(mg.tensor([1.0, 1, -1, -1, 0, 0]), mg.tensor([1.0, -1, -1, 0, -1, 0])),
              np.arctan2(np.float32([1, 1, -1, -1, 0, 0]), np.float32([1, -1, -1, 0, -1, 0]))),
    "tensordot of two dims": (lambda: mg.tensordot(b, a), np.tensordot(B, A)),
    "lerp to its end": (lambda: mg.lerp(mg.tensor([1e8]), mg.tensor([1.0]), 1.0), np.float32([1])),
    "lerp by tensors": (lambda: mg.lerp(a, b, mg.tensor([[0.25], [0.5], [1.0]], dtype=mg.float64)),
                        A + np.array([[0.25], [0.5], [1]]) * (B - A)),
    "addcdiv": (lambda: mg.addcdiv(a, a, v, value=2), A + 2 * A / V),
    "nan_to_num's numbers": (lambda: mg.tensor([math.nan, math.inf, -math.inf]).nan_to_num(1.0, 2.0, -3.0),
                             np.float32([1, 2, -3])),
    "atan2 of infinities and zeros": (
        lambda: mg.atan2(mg.tensor([math.inf, -math.inf, -0.0, 0.0]), mg.tensor([math.inf, -math.inf, -0.0, 0.0])),
        np.float32([math.pi / 4, -3 * math.pi / 4, -math.pi, 0]),
    ),
    "fmod of a number": (lambda: mg.fmod(7.0, v), np.fmod(7.0, V)),
    "round to tens": (lambda: (a * 100).round(decimals=-1), (A * 100).round(-1)),
    "round to tenths": (lambda: a.round(decimals=1), A.round(1)),
}  # fmt: skip


@pytest.mark.parametrize("call, expected", VALUES.values(), ids=VALUES)
def test_values(call, expected):
    y, expected = call(), np.asarray(expected)
    assert y.shape == expected.shape and y.dtype == expected.dtype
    rtol = {mg.float16: 1e-3, mg.float32: 1e-6}.get(y.dtype, 1e-12)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol, 1e-15)


GRADIENTS = {  # at places that no case has: (function, x, gradient of the sum)
    "softplus at 0": (F.softplus, [0.0, -800.0, 800.0], [0.5, 0, 1]),
    "logsigmoid at 0": (F.logsigmoid, [0.0, -800.0, 800.0], [0.5, 1, 0]),
    "elu far below": (F.elu, [-800.0, 800.0], [0, 1]),
    "norm of 0": (lambda x: x.norm(), [0.0, 0.0], [0, 0]),
    "norm 3 of 0": (lambda x: x.norm(3), [0.0, 2.0], [0, 1]),
    "norm 1/2 of 0": (lambda x: x.norm(0.5), [0.0, 4.0], [0, 1]),
    "log2 of a power": (mg.log2, [8.0], [1 / (8 * math.log(2))]),
    "fmod of 0": (lambda x: mg.fmod(x, 3.0), [0.0, -4.0], [1, 1]),
    "cumprod of 0": (lambda x: x.cumprod(0), [0.0, 2.0, 3.0], [9, 0, 0]),
    "sinh beyond exp": (mg.sinh, [710.2], [math.cosh(710.2)]),
    "clamp on a bound": (lambda x: x.clamp(mg.zeros_like(x)), [0.0, -1.0], [1, 0]),
    "logit beyond": (mg.logit, [0.5, 1.5], [4, math.nan]),
    "logaddexp of nothing": (lambda x: mg.logaddexp(x, mg.full_like(x, -math.inf)), [-math.inf, 1.0], [0, 1]),
    "a value that fills": (lambda x: mg.zeros(3, 2).double().index_fill(0, mg.tensor([0, 2]), x), 1.5, 4),
}


@pytest.mark.parametrize("function, at, gradient", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients(function, at, gradient):
    x = mg.tensor(at, dtype=mg.float64, requires_grad=True)
    function(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), gradient, 1e-12)


REFUSED = {
    "t": (lambda: b.t(), r"at most two dims.*\.mT"),
    "mm": (lambda: mg.mm(b, a), "mm is of 2 and 2 dims.*use matmul"),
    "bmm": (lambda: mg.bmm(b, b[:1].mT), "batches .* differ; use matmul"),
    "dot": (lambda: a.dot(a), "dot is of 1 and 1 dims"),
    "addmm": (lambda: mg.addmm(b, a[:, :3], a), "addmm: shape .* does not broadcast"),
    "pad": (lambda: F.pad(a, (4, 0), "reflect"), "more than 'reflect' has for dim 1"),
    "pad's mode": (lambda: F.pad(a, (1, 0), "mirror"), "'reflect', 'replicate', 'circular', got 'mirror'"),
    "pad's value": (lambda: F.pad(a, (1, 0), "reflect", 2.0), "takes no value"),
    "div": (lambda: mg.div(a, 2, rounding_mode="up"), "None, 'floor' or 'trunc', got 'up'"),
    "norm": (lambda: a.norm("nuc"), "no singular values"),
    "narrow": (lambda: a.narrow(0, 2, 2), "are not within dim 0"),
    "scatter": (lambda: a.scatter(0, mg.tensor([[3]]), 1.0), "index 3 is out of range for size 3"),
    "scatter's dtype": (lambda: a.scatter(0, mg.tensor([[0]]), a.float()), "x is float64 but src float32"),
    "scatter_add's size": (lambda: a.scatter_add(0, mg.tensor([[0] * 5]), a), "larger than x"),
    "index_add": (lambda: a.index_add(0, mg.tensor([0]), a), r"source must have shape \(1, 4\)"),
    "bincount": (lambda: mg.tensor([-1]).bincount(), "-1 is negative"),
    "meshgrid": (lambda: mg.meshgrid(a), "takes vectors"),
    "meshgrid's indexing": (lambda: mg.meshgrid(v, indexing="yx"), "'ij' or 'xy', got 'yx'"),
    "roll": (lambda: a.roll((1, 2), (0,)), "2 shifts for 1 dims"),
    "movedim": (lambda: a.movedim((0, 1), (1,)), "each named once"),
    "unflatten": (lambda: a.unflatten(1, (3, 2)), "do not make up dim 1"),
    "glu": (lambda: F.glu(a, 0), "cannot be halved"),
    "softplus": (lambda: F.softplus(ints), "floating-point input, got int64"),
    "where": (lambda: mg.where(a > 0), r"nonzero\(as_tuple=True\)"),
    "masked_select": (lambda: a.masked_select(ints), "mask must be bool"),
    "masked_select by bytes": (lambda: a.masked_select((a > 0).byte()), "mask must be bool, got uint8"),
    "searchsorted": (lambda: mg.searchsorted(v, v, side="left", right=True), "agree with right, got 'left' and True"),
    "round": (lambda: ints.round(decimals=1), "round: decimals is for floats, got int64"),
    "equal": (lambda: mg.equal(a, 1.0), "two Tensors, got float"),
    "prelu": (lambda: F.prelu(a, mg.ones(1, 1).double()), r"prelu: weight of shape \(1, 1\) must be \(1,\) or \(4,\)"),
    "isclose": (lambda: mg.isclose(a, a, rtol=-1.0), "isclose: rtol must not be negative, got -1.0"),
    "allclose": (lambda: mg.allclose(a, a, atol=math.nan), "atol must not be negative, got nan"),
    "scatter's source": (lambda: a.scatter(0, mg.tensor([[0, 1]]), a[:, :1]), "larger than src"),
    "scatter of both": (lambda: a.scatter(0, mg.tensor([[0]]), a, value=1.0), "takes src or value"),
    "index_fill": (lambda: a.index_fill(0, mg.tensor([0]), v[:1]), "a number or have no dims"),
    "take_along_dim": (lambda: b.take_along_dim(mg.tensor([[0]]), 0), "differ in their number of dims"),
    "outer": (lambda: mg.outer(a, v), "outer is of two vectors"),
    "tensordot": (
        lambda: mg.tensordot(a, a, 1),
        r"tensordot: dims \[1\] of \(3, 4\) do not fit dims \[0\] of \(3, 4\)",
    ),
    "narrow before": (lambda: a.narrow(0, -4, 1), "narrow: 1 from -4 on"),
    "pad's value, 0": (lambda: F.pad(a, (1, 0), "reflect", 0.0), "takes no value"),
    "pad's sizes": (lambda: F.pad(a, (-1, 0), "circular"), "not pairs of sizes"),
    "pad of nothing": (lambda: F.pad(a[:, :0], (1, 0), "replicate"), "more than 'replicate' has"),
    "fliplr": (lambda: v.fliplr(), "fliplr: dim 1"),
    "unflatten to less": (lambda: a.unflatten(1, (3, -1)), "do not make up dim 1"),
    "median": (lambda: a[:0].median(), "median of nothing"),
}


@pytest.mark.parametrize("call, words", REFUSED.values(), ids=REFUSED)
def test_refused(call, words):
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        call()


def test_views_are_views():
    x = mg.tensor(A)
    for y in (
        x.t(),
        x.movedim(0, 1),
        x.narrow(0, 1, 2),
        x.select(0, 1),
        x.view_as(x.reshape(4, 3)),
        x.unflatten(1, (2, 2)),
    ):
        assert y.storage is x.storage
    for y in (x.roll(0), x.tile(1), F.pad(x, (0, 0), "reflect"), x.nan_to_num(), x.clamp(x)):
        assert y.storage is not x.storage
    assert x.scatter(0, mg.zeros(0, 4).long(), 1.0).storage is not x.storage
    assert ints.nan_to_num().storage is not ints.storage
    assert x.expand_as(b).shape == x.broadcast_to((2, 3, 4)).shape == B.shape and x.reshape_as(x.t()).shape == (4, 3)


def test_what_rounds_to_0_keeps_its_sign():
    for name in ("round", "trunc", "ceil"):
        assert np.signbit(getattr(mg.tensor([-0.2, -0.0]), name)().numpy()).all()


def test_numbers_that_a_dtype_does_not_hold_are_not_written():
    with pytest.raises(OverflowError, match="scatter: uint8 holds 0 to 255, not 300"):
        mg.zeros(2, dtype=mg.uint8).scatter(0, mg.tensor([0]), 300)


def test_allclose_takes_what_isclose_takes():
    x = mg.tensor([100.0, math.nan])
    assert mg.allclose(x, x + 5, 0.1, 0.0, True) and not mg.allclose(x, x)
