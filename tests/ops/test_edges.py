"""Public functions at their limits: defaults, dims, sizes of 0 and 1. A bound is accepted, and a value beyond it
raises."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F

A = np.random.default_rng(0).standard_normal((3, 4))
B = np.random.default_rng(1).standard_normal((2, 3, 4))
TIES = np.array([[2.0, 1, 2, 1, 2], [0, 0, 0, 0, 0]])
INTS = np.array([[3, -1, 4], [1, -5, 9]])
a, b, ties, ints, one = mg.tensor(A), mg.tensor(B), mg.tensor(TIES), mg.tensor(INTS), mg.tensor(np.array(2.5))


def norm(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def entropy(x, t):
    return -(x - np.log(np.exp(x).sum(0)))[t]


VALUES = {
    # statistics
    "var": (lambda: a.var(), A.var(ddof=1)),
    "var of as few as correction": (lambda: mg.tensor([1.0, 2.0]).var(correction=2), np.float32(np.inf)),
    "var of fewer": (lambda: mg.tensor([1.0, 2.0]).std(correction=3), np.float32(np.inf)),
    "var of equals, as few": (lambda: mg.tensor([1.0, 1.0]).var(correction=2), np.float32(np.nan)),
    "var False": (lambda: a.var(False), A.var()),
    "var, another correction": (lambda: a.var(1, correction=2), A.var(1, ddof=2)),
    "var of two": (lambda: a[:2].var(0), A[:2].var(0, ddof=1)),
    "var of one": (lambda: a[:1].var(0), np.full(4, np.nan)),
    "var of one, uncorrected": (lambda: a[:1].var(0, correction=0), np.zeros(4)),
    "std": (lambda: a.std(0), A.std(0, ddof=1)),
    "std, another correction": (lambda: a.std(0, keepdim=True, correction=0), A.std(0, keepdims=True)),
    "std of one": (lambda: a[:1].std(0), np.full(4, np.nan)),
    "mean of one": (lambda: a[:1].mean(0), A[0]),
    "sum over no dims is over all": (lambda: a.sum(()), A.sum()),
    "sum of a number": (lambda: one.sum(0), 2.5),
    "sum of a number from behind": (lambda: one.sum(-1), 2.5),
    "logsumexp of a number": (lambda: one.logsumexp(0), 2.5),
    "cumsum of a number": (lambda: one.cumsum(0), 2.5),
    "cumsum of bools": (lambda: (ints > 0).cumsum(1), (INTS > 0).cumsum(1)),
    # the largest, and orders
    "argmax": (lambda: a.argmax(), A.argmax()),
    "argmax kept": (lambda: a.argmax(keepdim=True), A.argmax(keepdims=True)),
    "argmin along": (lambda: b.argmin(-2, keepdim=True), B.argmin(1, keepdims=True)),
    "argmax of a number": (lambda: one.argmax(0), 0),
    "argmax of ties": (lambda: ties.argmax(1), [0, 0]),
    "argmin of ties": (lambda: ties.argmin(1), [1, 0]),
    "max kept": (lambda: a.max(keepdim=True), A.max(keepdims=True)),
    "max's indices": (lambda: b.max(1).indices, B.argmax(1)),
    "max's indices kept": (lambda: b.max(-3, True).indices, B.argmax(0, keepdims=True)),
    "min of a number": (lambda: one.min(0).values, 2.5),
    "sort of ties": (lambda: ties.sort().indices, [[1, 3, 0, 2, 4], range(5)]),
    "sort of ties downwards": (lambda: ties.sort(descending=True).indices, [[0, 2, 4, 1, 3], range(5)]),
    "sort of a number": (lambda: one.sort().indices, 0),
    "topk's smallest": (lambda: b.topk(1, dim=0, largest=False).indices, B.argsort(0)[:1]),
    "topk of a number": (lambda: one.topk(1).values, 2.5),
    # shapes
    "flatten": (lambda: b.flatten(), B.reshape(24)),
    "flatten from": (lambda: b.flatten(1), B.reshape(2, 12)),
    "flatten to": (lambda: b.flatten(0, 1), B.reshape(6, 4)),
    "flatten a number": (lambda: one.flatten(), [2.5]),
    "flatten nothing": (lambda: b[:0].flatten(1), np.empty((0, 12))),
    "squeeze": (lambda: b[:1, :, :1].squeeze(), B[0, :, 0]),
    "squeeze a dim": (lambda: b[:1, :, :1].squeeze(-1), B[:1, :, 0]),
    "squeeze dims": (lambda: b[:1, :, :1].squeeze((0, 1)), B[0, :, :1]),
    "squeeze no dims": (lambda: b[:1].squeeze(()), B[:1]),
    "unsqueeze first": (lambda: a.unsqueeze(-3), A[None]),
    "reshape": (lambda: b.reshape(-1, 6), B.reshape(4, 6)),
    "reshape a number": (lambda: one.reshape(1, -1), [[2.5]]),
    "transpose": (lambda: b.transpose(0, -1), B.transpose(2, 1, 0)),
    "t": (lambda: a.t(), A.T),
    "t of a vector": (lambda: a[0].t(), A[0]),
    "transpose a number": (lambda: one.transpose(0, 0), 2.5),
    "expand": (lambda: a[:, :1].expand(2, -1, 4), np.broadcast_to(A[:, :1], (2, 3, 4))),
    "expand to nothing": (lambda: a[:1].expand(0, 4), np.empty((0, 4))),
    "flip": (lambda: b.flip(0, -1), B[::-1, :, ::-1]),
    "flip nothing": (lambda: b.flip(), B),
    "split into more than there is": (lambda: a.split(9)[0], A),
    "split into sizes": (lambda: a.split([0, 3, 1], -1)[1], A[:, :3]),
    "chunk": (lambda: a.chunk(3, 1)[1], A[:, 2:]),
    "cat": (lambda: mg.cat([a, a[:0], a[:1]]), np.concatenate([A, A[:1]])),
    "pad of bools": (lambda: (a > 0).pad((0, 1), value=True), np.pad(A > 0, ((0, 0), (0, 1)), constant_values=True)),
    "split into a range": (lambda: a.split(range(1, 4, 2), 1)[1], A[:, 1:]),
    "pad nothing": (lambda: a.pad(()), A),
    "repeat": (lambda: a.repeat(2, 1, 3), np.tile(A, (2, 1, 3))),
    "repeat none": (lambda: a.repeat(0, 1), A[:0]),
    "repeat_interleave of all": (lambda: a.repeat_interleave(2), A.repeat(2)),
    "repeat_interleave of a number": (lambda: mg.tensor(3.0).repeat_interleave(2, 0), np.float32([3, 3])),
    "cat that collects": (lambda: mg.cat([mg.zeros(0), a, mg.zeros(0), a], 1), np.concatenate([A, A], 1)),
    "cat of nothing": (lambda: mg.cat([mg.zeros(0), mg.zeros(0)]), np.zeros(0, np.float32)),
    "roll": (lambda: a.roll(2, 1), np.roll(A, 2, 1)),
    "roll back, by more": (lambda: b.roll((-5, 7), (0, -1)), np.roll(B, (-5, 7), (0, -1))),
    "roll of all": (lambda: a.roll(5), np.roll(A, 5)),
    "roll of nothing": (lambda: a[:0].roll(1, 0), A[:0]),
    "roll by 0": (lambda: a.roll(0, 0).fill_(7) * 0 + a, A),  # a copy
    "narrow": (lambda: a.narrow(1, 1, 2), A[:, 1:3]),
    "narrow to nothing": (lambda: a.narrow(0, 3, 0), A[:0]),
    "index_select": (lambda: b.index_select(-2, mg.tensor([2, 0, 2])), B[:, [2, 0, 2]]),
    "bmm": (lambda: b.bmm(b.mT), B @ B.swapaxes(1, 2)),
    "outer": (lambda: a[0].outer(a[:, 1]), np.outer(A[0], A[:, 1])),
    "reciprocal of ints": (lambda: mg.tensor([2, 4]).reciprocal(), np.float32([0.5, 0.25])),
    "elu near 0": (lambda: F.elu(mg.tensor([-1e-6, -80.0, 2.0])), np.float32([-1e-6, -1, 2])),
    "softplus": (lambda: F.softplus(mg.tensor([-100.0, 0.0, 800.0])), np.float32([np.exp(-100.0), np.log(2), 800])),
    "softplus, beta": (lambda: F.softplus(a, beta=2.0), np.log1p(np.exp(2 * A)) / 2),
    "leaky_relu": (lambda: F.leaky_relu(a, 0.2), np.where(A > 0, A, 0.2 * A)),
    "repeat_interleave none": (lambda: a.repeat_interleave(0, 1), A[:, :0]),
    # reading
    "tril above": (lambda: a.tril(1), np.tril(A, 1)),
    "tril below": (lambda: a.T.tril(-1), np.tril(A.T, -1)),
    "triu above": (lambda: a.triu(1), np.triu(A, 1)),
    "triu below": (lambda: a.T.triu(-1), np.triu(A.T, -1)),
    "gather": (lambda: a.gather(-1, mg.tensor([[3], [0], [3]])), A[[0, 1, 2], [3, 0, 3]][:, None]),
    "gather more": (lambda: a.gather(0, mg.tensor([[2] * 4] * 5)), np.tile(A[2], (5, 1))),
    "gather of fewer": (lambda: a.gather(1, mg.tensor([[3, 0]])), A[:1, [3, 0]]),
    "scatter": (lambda: mg.zeros(2, 3).scatter(1, mg.tensor([[2], [0]]), 1.0), np.float32([[0, 0, 1], [1, 0, 0]])),
    "scatter, the last stays": (lambda: a[0].scatter(0, mg.tensor([1, 1]), a[0, 2:]), A[0][[0, 3, 2, 3]]),
    "scatter of nothing": (lambda: a.scatter(0, mg.zeros(0, 4).long(), 1.0), A),
    "scatter_add": (lambda: mg.zeros(2).scatter_add(0, mg.tensor([1, 1]), mg.tensor([5.0, 7])), np.float32([0, 12])),
    "scatter_add of fewer": (lambda: ints.scatter_add(1, mg.tensor([[2]]), mg.tensor([[1, 2]])),
                             [[3, -1, 5], [1, -5, 9]]),
    "diagonal": (lambda: b.diagonal(-1, 1, 2), B.diagonal(-1, 1, 2)),
    "diagonal of other dims": (lambda: b.diagonal(1, -1, 0), B.diagonal(1, -1, 0)),
    "diagonal beyond": (lambda: a.diagonal(7), np.empty(0)),
    "nonzero": (lambda: (a > 0).nonzero(), np.argwhere(A > 0)),
    "nonzero of a number": (lambda: one.nonzero(), np.empty((1, 0), int)),
    "nonzero as an index": (lambda: a[(a > 0).nonzero(as_tuple=True)], A[A > 0]),
    "embedding": (lambda: F.embedding(mg.tensor([[2, 0]], dtype=mg.uint8), a), A[[[2, 0]]]),
    "embedding of a number": (lambda: F.embedding(mg.tensor(2), a), A[2]),
    "masked_fill": (lambda: ints.masked_fill(ints > 3, 0), np.where(INTS > 3, 0, INTS)),
    "where": (lambda: mg.where(ints > 0, ints, 7), np.where(INTS > 0, INTS, 7)),
    "where of rows": (lambda: mg.where(mg.tensor([[True], [False]]), 1.0, b[0, :2]), np.stack([np.ones(4), B[0, 1]])),
    "one_hot": (lambda: F.one_hot(mg.tensor([[2, 1], [0, 0]]), 3), np.eye(3, dtype=int)[[[2, 1], [0, 0]]]),
    "one_hot of nothing": (lambda: F.one_hot(mg.zeros(0, dtype=mg.int64), 3), np.empty((0, 3), int)),
    # arithmetic
    "clamp": (lambda: ints.clamp(-1, 3), INTS.clip(-1, 3)),
    "clamp below": (lambda: ints.clamp(2), INTS.clip(2)),
    "clamp above": (lambda: ints.clamp(max=2), INTS.clip(max=2)),
    "clamp of ints below a float": (lambda: ints.clamp(max=0.5), INTS.clip(max=0.5).astype(np.float32)),
    "clamp of ints between two kinds": (lambda: ints.clamp(0, 2.5), INTS.clip(0, 2.5).astype(np.float32)),
    "clamp ints by a float": (lambda: ints.clamp(0.5), INTS.clip(0.5).astype(np.float32)),
    "clamp crossed": (lambda: a.clamp(1, -1), np.full((3, 4), -1.0)),
    "pow of ints": (lambda: ints**2, INTS**2),
    "pow of ints to 0": (lambda: ints**0, np.ones((2, 3), int)),
    "pow of ints, negative": (lambda: ints**-1, (1 / INTS).astype(np.float32)),
    "pow with a number below": (lambda: 2 ** mg.tensor([0, 1, 5]), [1, 2, 32]),
    "div of ints": (lambda: ints / 2, (INTS / 2).astype(np.float32)),
    "abs of ints": (lambda: abs(ints), abs(INTS)),
    "sign": (lambda: mg.tensor([-2.0, -0.0, 0.0, 5.0, math.nan]).sign(), np.float32([-1, 0, 0, 1, math.nan])),
    "floor of ints": (lambda: ints.floor(), INTS),
    "floor": (lambda: mg.tensor([-1.5, -1.0, 0.5]).floor(), np.float32([-2, -1, 0])),
    "relu of ints": (lambda: ints.relu(), INTS.clip(0)),
    "relu": (lambda: mg.tensor([-1.0, 0.0, 1.0, math.inf, -math.inf]).relu(), np.float32([0, 0, 1, math.inf, 0])),
    "logical_not": (lambda: mg.tensor([0.0, -0.5, math.nan]).logical_not(), [True, False, False]),
    "logical_and": (lambda: ints.logical_and(mg.tensor([1, 0, 2])), [[True, False, True]] * 2),
    "log1p": (lambda: mg.tensor([1e-10, 2.0, -1.0]).log1p(), np.float32([1e-10, np.log(3), -np.inf])),
    "square of ints": (lambda: ints.square(), INTS**2),
    "norm": (lambda: a.norm(), np.linalg.norm(A)),
    "norm along": (lambda: b.norm(dim=(0, 2), keepdim=True), np.sqrt((B**2).sum((0, 2), keepdims=True))),
    "norm 1": (lambda: a.norm(1, 0), abs(A).sum(0)),
    "norm 3": (lambda: a.norm(3, 1), (abs(A) ** 3).sum(1) ** (1 / 3)),
    "norm inf": (lambda: a.norm(math.inf, -1), abs(A).max(1)),
    "norm None": (lambda: a.norm(None), np.linalg.norm(A)),
    "norm fro": (lambda: b.norm("fro", 1), np.sqrt((B**2).sum(1))),
    "norm of nothing": (lambda: a[:0].norm(), 0.0),
    "norm of halves": (lambda: mg.full((4,), 300.0).half().norm(), np.float16(600)),
    "isinf": (lambda: mg.tensor([math.inf, -math.inf, math.nan, 1.0]).isinf(), [True, True, False, False]),
    "isfinite": (lambda: mg.tensor([math.inf, -math.inf, math.nan, 1.0]).isfinite(), [False, False, False, True]),
    # products and norms
    "row and matrix": (lambda: a[:, 0] @ a, A[:, 0] @ A),
    "matrix and column": (lambda: b @ a[0], B @ A[0]),
    "column of a batch": (lambda: a[0] @ b.mT, A[0] @ B.swapaxes(1, 2)),
    "two vectors": (lambda: a[0] @ a[1], A[0] @ A[1]),
    "ints": (lambda: ints @ ints.T, INTS @ INTS.T),
    "over nothing": (lambda: a[:, :0] @ a.T[:0], np.zeros((3, 3))),
    "linear": (lambda: F.linear(b, a, a[:, 0]), B @ A.T + A[:, 0]),
    "linear of a vector": (lambda: F.linear(a[0], a), A @ A[0]),
    "layer_norm of two dims": (lambda: F.layer_norm(b, (3, 4), a, -a, 0.1), norm(B, (1, 2), 0.1) * A - A),
    "layer_norm of the weight alone": (lambda: F.layer_norm(b, (4,), a[0]), norm(B, -1) * A[0]),
    "rms_norm": (lambda: F.rms_norm(b, 4, a[0]), B / np.sqrt((B**2).mean(-1, keepdims=True) + 2**-52) * A[0]),
    "rms_norm of two dims": (lambda: F.rms_norm(b, (3, 4), eps=0.5),
                             B / np.sqrt((B**2).mean((1, 2), keepdims=True) + 0.5)),
    "rms_norm of float32": (lambda: F.rms_norm(mg.tensor([1e-4]), 1), np.float32([1e-4 / (1e-8 + 2**-23) ** 0.5])),
    "softmax of a number": (lambda: one.softmax(0), 1.0),
    "log_softmax of a number": (lambda: one.log_softmax(0), 0.0),
    "attention_pattern": (lambda: F.attention_pattern(a, mg.tensor(A), scale=0.5),
                          np.exp(1.5 * A) / np.exp(1.5 * A).sum(-1, keepdims=True)),
    "cross_entropy of one": (lambda: F.cross_entropy(a[0], mg.tensor(2)), entropy(A[0], 2)),
    "cross_entropy of places": (lambda: F.cross_entropy(b, mg.tensor([[0, 1, 2, 0], [2, 2, 2, 1]]), reduction="none"),
                                [[entropy(B[i, :, j], t) for j, t in enumerate(row)]
                                 for i, row in enumerate([[0, 1, 2, 0], [2, 2, 2, 1]])]),
    "cross_entropy, ignoring": (lambda: F.cross_entropy(a, mg.tensor([1, 0, 1]), ignore_index=1), entropy(A[1], 0)),
    "cross_entropy": (lambda: F.cross_entropy(a, mg.tensor([1, -100, 3])), (entropy(A[0], 1) + entropy(A[2], 3)) / 2),
    # making
    "arange of float64": (lambda: mg.arange(0, 1, 0.5, dtype=mg.float64), [0.0, 0.5]),
    "full like, of another dtype": (lambda: mg.full_like(ints, 2.5, dtype=mg.float64), np.full((2, 3), 2.5)),
    "randint of one": (lambda: mg.randint(4, 5, (2,)), [4, 4]),
    "randperm of none": (lambda: mg.randperm(0), np.empty(0, int)),
    "tensor of nothing": (lambda: mg.tensor([[], []], dtype=mg.float64), np.empty((2, 0))),
    "tensor of tensors": (lambda: mg.tensor([[a[0], a[1]], [a[2], a[0]]]), np.stack([A[:2], A[[2, 0]]])),
}  # fmt: skip


@pytest.mark.parametrize("call, expected", VALUES.values(), ids=VALUES)
def test_values(call, expected):
    with np.errstate(all="ignore"):
        y = call()
    expected = np.asarray(expected)
    assert y.shape == expected.shape and y.dtype == expected.dtype
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6 if y.dtype == mg.float32 else 1e-12, atol=1e-15)


X = np.arange(120.0).reshape(2, 3, 4, 5)
MASK, TWO = np.array([True, False, True, True, False]), np.array([2, 0])
INDICES = {  # beside ints first, then the rest, in NumPy's words
    "an int, then an array": ((0, slice(None), TWO), X[0][:, TWO]),
    "an int and a mask at the ends": ((-1, ..., MASK), X[-1][..., MASK]),
    "an array, then an int": ((slice(None), TWO, slice(1, 3), 4), X[..., 4][:, TWO, 1:3]),
    "a number as a Tensor": ((mg.tensor(1), slice(None), TWO), X[1][:, TWO]),
    "None between": ((1, None, TWO), X[1][None, TWO]),
    "two arrays": ((slice(None), [[0], [1]], 2, TWO), X[:, :, 2][:, [[0], [1]], TWO]),
    "True": ((1, slice(1, 3), True), X[1][1:3, True]),
    "… for no dims": ((slice(None), TWO, ..., [1, 3], slice(2)), X[:, TWO, [1, 3], :2]),
}


@pytest.mark.parametrize("name", INDICES)
def test_ints_select_first_as_in_pytorch(device, name):
    index, expected = INDICES[name]
    index = tuple(mg.tensor(part) if isinstance(part, np.ndarray) else part for part in index)
    x = mg.tensor(X, requires_grad=True)
    y = x[index]
    assert y.shape == expected.shape and (y.detach().numpy() == expected).all()
    places, written = (y.detach() * 2).numpy(), mg.tensor(X)
    written[index] = mg.tensor(places)
    assert (written[index].numpy() == places).all() and (written != mg.tensor(X)).sum() == (places != expected).sum()
    (y * mg.tensor(places)).sum().backward()
    assert (x.grad[index].numpy() == places).all() and x.grad.sum() == places.sum()


def test_split_and_chunk_give_parts_of_the_right_sizes():
    for n, size, expected in ((7, 3, [3, 3, 1]), (6, 3, [3, 3]), (3, 3, [3]), (2, 3, [2]), (0, 3, [0])):
        assert [p.shape[0] for p in mg.zeros(n).split(size)] == expected
    for n, chunks, expected in ((7, 3, [3, 3, 1]), (6, 3, [2, 2, 2]), (2, 5, [1, 1]), (0, 2, [0, 0])):
        assert [p.shape[0] for p in mg.zeros(n).chunk(chunks)] == expected
    assert [p.shape[0] for p in mg.zeros(5).chunk(4)] == [2, 2, 1]
    assert [y.shape for y in mg.zeros(0, 3).chunk(2)] == [(0, 3)] * 2
    assert mg.zeros(0, 2).unbind() == () and len(mg.zeros(2, 0).unbind()) == 2


REFUSED = {
    "split by 0": (lambda: a.split(0), ValueError, "size must be positive, got 0"),
    "split into too little": (lambda: a.split([1, 1]), ValueError, r"\(1, 1\) do not add up to 3"),
    "split into less than nothing": (lambda: a.split([4, -1]), ValueError, "do not add up"),
    "split a number": (lambda: one.split(1), ValueError, "split of a 0-d"),
    "chunk into none": (lambda: a.chunk(0), ValueError, "chunks must be positive"),
    "unbind a number": (lambda: one.unbind(), ValueError, "unbind of a 0-d"),
    "stack beyond": (lambda: mg.stack([a, a], 3), IndexError, "stack: dim 3"),
    "stack before": (lambda: mg.stack([a, a], -4), IndexError, "stack: dim -4"),
    "unsqueeze before": (lambda: a.unsqueeze(-4), IndexError, "unsqueeze: dim -4"),
    "cat of numbers": (lambda: mg.cat([one, one]), ValueError, "0-d tensors .* use stack"),
    "cat of other ndim": (lambda: mg.cat([a, b]), ValueError, r"must match except along dim 0, got \(3, 4\), \(2"),
    "sum beyond": (lambda: a.sum(-3), IndexError, "sum: dim -3"),
    "sum of a number beyond": (lambda: one.sum(1), IndexError, "sum: dim 1"),
    "sum over a bool": (lambda: a.sum(True), TypeError, "dim must be an int, got True"),
    "flatten backwards": (lambda: b.flatten(2, 1), ValueError, "start_dim 2 comes after end_dim 1"),
    "reshape to less": (lambda: a.reshape(-2, -6), ValueError, "do not fit"),
    "reshape by floats": (lambda: a.reshape(3.0, 4), TypeError, "reshape: sizes and dims are ints"),
    "reshape nothing to what is left": (lambda: a[:0].reshape(0, -1), ValueError, "cannot be inferred"),
    "reshape to what is left over": (lambda: a.reshape(5, -1), ValueError, "cannot be inferred"),
    "permute too few": (lambda: b.permute(0, 1), ValueError, "does not name each dim"),
    "expand fewer dims": (lambda: a.expand(4), ValueError, "expand"),
    "expand a new dim by -1": (lambda: a.expand(-1, 3, 4), ValueError, "expand"),
    "pad by less than nothing": (lambda: a.pad((-1, 0)), ValueError, "not pairs of sizes ≥ 0"),
    "pad too many dims": (lambda: a.pad((1,) * 6), ValueError, "at most 2 dims"),
    "pad in another mode": (lambda: F.pad(a, (1, 0), "reflect"), ValueError, "'constant', got 'reflect'"),
    "t of three dims": (lambda: b.t(), ValueError, r"at most two dims.*\.mT"),
    "diagonal of a row": (lambda: a[0].diagonal(), IndexError, "diagonal: dim 1"),
    "scatter beyond": (lambda: a.scatter(0, mg.tensor([[3]]), 1.0), IndexError, "index 3 is out of range for size 3"),
    "scatter's dtype": (lambda: a.scatter(0, mg.tensor([[0]]), a.float()), TypeError, "x is float64 but src float32"),
    "scatter's number": (lambda: ints.scatter(0, mg.tensor([[0]]), 2**63), OverflowError, "scatter: int64 holds"),
    "scatter_add's size": (lambda: a.scatter_add(0, mg.tensor([[0] * 5]), a), ValueError, "larger than x"),
    "scatter_add's source": (lambda: a.scatter_add(0, mg.tensor([[0, 1]]), a[:, :1]), ValueError, "larger than src"),
    "norm 1/2": (lambda: a.norm(0.5), ValueError, "at least 1, got 0.5"),
    "bmm of matrices": (lambda: a.bmm(a.T), ValueError, "matmul broadcasts"),
    "bmm of other batches": (lambda: b.bmm(b[:1].mT), ValueError, "matmul broadcasts"),
    "outer of matrices": (lambda: a.outer(a), ValueError, "outer is of two vectors"),
    "index_select of floats": (
        lambda: a.index_select(0, a[0]),
        TypeError,
        "index must be an int Tensor, got a Tensor of float64; index.long",
    ),
    "index_select beyond": (lambda: a.index_select(0, mg.tensor([-1])), IndexError, "index -1 is out of range"),
    "index_select by a number": (lambda: a.index_select(0, mg.tensor(1)), ValueError, "needs dims, and index"),
    "narrow beyond": (lambda: a.narrow(1, 2, 3), IndexError, "3 from 2 on are not within dim 1"),
    "roll": (lambda: a.roll((1, 2), 0), ValueError, "2 shifts for 1 dims"),
    "roll by a float": (lambda: a.roll(1.5, 0), TypeError, "roll: sizes and dims are ints"),
    "repeat_interleave by counts": (
        lambda: a.repeat_interleave(ints[0], 0),
        TypeError,
        "repeats must be an int, got tensor",
    ),
    "repeat_interleave by -1": (lambda: a.repeat_interleave(-1), ValueError, "must not be negative, got -1"),
    "where of a condition": (lambda: mg.where(a > 0), TypeError, "nonzero.condition, as_tuple=True. gives the places"),
    "norm of ints": (lambda: ints.norm(), TypeError, "norm needs floating-point"),
    "equal to a number": (lambda: mg.equal(a, 1.0), TypeError, "two Tensors, got a float"),
    "divide ints by 0": (lambda: ints // 0, ZeroDivisionError, "integers divided by zero"),
    "repeat too few": (lambda: a.repeat(2), ValueError, "repeat"),
    "repeat less than nothing": (lambda: a.repeat(-1, 1), ValueError, "repeat"),
    "topk less than nothing": (lambda: a.topk(-1), ValueError, "k = -1 of 4"),
    "topk of a number": (lambda: one.topk(2), ValueError, "k = 2 of 1"),
    "argmax of nothing": (lambda: a[:, :0].argmax(1), ValueError, "argmax of no elements"),
    "argmin of nothing at all": (lambda: a[:0].argmin(), ValueError, "argmin of no elements"),
    "amin of nothing": (lambda: a[:0].amin(0), ValueError, "amin of no elements"),
    "max of nothing": (lambda: a[:0].max(0), ValueError, "argmax of no elements"),
    "tril of a row": (lambda: a[0].tril(), ValueError, "at least two dims"),
    "gather of other dims": (lambda: a.gather(0, mg.tensor([0])), ValueError, "does not fit"),
    "gather before": (lambda: a.gather(0, mg.tensor([[-1, 0, 0, 0]])), IndexError, "index -1 is out of range"),
    "embedding beyond": (lambda: F.embedding(mg.tensor([3]), a), IndexError, "index 3 is out of range for size 3"),
    "embedding in a row": (lambda: F.embedding(mg.tensor([0]), a[0]), ValueError, r"weight must be \(V, C\)"),
    "an index of floats": (lambda: a[mg.tensor([0.0])], TypeError, "not float32"),
    "where of ints": (lambda: mg.where(ints, a, a), TypeError, "bool Tensor, got a Tensor of int64; condition.bool"),
    "clamp by a tensor": (lambda: a.clamp(a), TypeError, "clamp: min must be a number, got tensor"),
    "clamp by a list": (lambda: a.clamp([1.0]), TypeError, "clamp: min must be a number, got .1.0."),
    "triu by a half": (lambda: a.triu(0.5), TypeError, "triu: diagonal must be an int, got 0.5"),
    "triu by tensors": (lambda: a.triu(a), TypeError, "triu: diagonal must be an int, got tensor"),
    "topk of True": (lambda: a.topk(True), TypeError, "topk: k must be an int, got True"),
    "keepdim of sizes": (lambda: a.argmax(1, keepdim=(2, 2)), TypeError, "argmax: keepdim must be True or False, got"),
    "keepdims of a word": (lambda: a.sum(1, keepdims="no"), TypeError, "sum: keepdim must be True or False, got 'no'"),
    "a gradient of 1": (lambda: mg.ones(2, requires_grad=1), TypeError, "requires_grad must be True or False, got 1"),
    "elu of a word": (lambda: F.elu(a, "1"), TypeError, "elu: alpha must be a number, got '1'"),
    "relu of bools": (lambda: (a > 0).relu(), TypeError, "relu is not defined for bools"),
    "matmul of bools": (lambda: (a > 0) @ (a > 0).T, TypeError, "matmul is not defined for bools"),
    "minus a bool": (lambda: -(a > 0), TypeError, "neg of a bool"),
    "and of floats": (lambda: a & 1, TypeError, "bitwise_and is for bools and integers, got float64.*compare with 0"),
    "or with a float": (lambda: ints | 1.5, TypeError, "bitwise_or is for bools and integers, got float32"),
    "not of floats": (lambda: ~a, TypeError, "bitwise_not is for bools and integers, got float64"),
    "gelu of another form": (lambda: F.gelu(a, "erf"), ValueError, "'none' or 'tanh', got 'erf'"),
    "dropout below": (lambda: F.dropout(a, -0.1), ValueError, r"p must lie in \[0, 1\]"),
    "dropout above": (lambda: F.dropout(a, 1.1), ValueError, r"p must lie in \[0, 1\]"),
    "dropout of ints": (lambda: F.dropout(ints), TypeError, "dropout needs floating-point"),
    "another reduction": (lambda: F.cross_entropy(a, mg.tensor([0, 1, 2]), reduction="max"), ValueError, "got 'max'"),
    "a class before": (lambda: F.cross_entropy(a, mg.tensor([0, -1, 2])), IndexError, "index -1"),
    "an array of classes": (
        lambda: F.cross_entropy(a, np.zeros(3, int)),
        TypeError,
        "got a NumPy array of int64: write mg.tensor.target",
    ),
    "linear's bias": (lambda: F.linear(a, a, a[0]), ValueError, r"bias of shape \(4,\)"),
    "linear's bias's dtype": (lambda: F.linear(a, a, a[:, 0].float()), TypeError, "bias float32"),
    "linear of a number": (lambda: F.linear(one, a), ValueError, "linear"),
    "layer_norm's weight": (lambda: F.layer_norm(a, 4, a[:, 0]), ValueError, r"weight of shape \(3,\)"),
    "layer_norm's bias's dtype": (lambda: F.layer_norm(a, 4, a[0], a[0].float()), TypeError, "bias is float32"),
    "layer_norm of no dims": (lambda: F.layer_norm(a, ()), ValueError, "does not end in"),
    "matmul by a number": (lambda: one @ a, ValueError, "to scale, use"),
    "einsum of too many": (lambda: mg.einsum("ij", a, a), ValueError, "names 1 operands, got 2"),
    "einsum of other letters": (lambda: mg.einsum("ij->k", a), ValueError, "must name labels of the inputs"),
    "einsum twice": (lambda: mg.einsum("ij->ii", a), ValueError, "each once"),
    "einsum of digits": (lambda: mg.einsum("i1->i", a), ValueError, "cannot read 'i1'"),
    "einsum of too few letters": (lambda: mg.einsum("i->i", a), ValueError, "does not fit shape"),
    "einsum of a diagonal": (lambda: mg.einsum("ii->i", a), ValueError, "sizes 3 and 4"),
    "one_hot beyond": (lambda: F.one_hot(mg.tensor([0, 3]), 3), IndexError, "class 3 is not below 3"),
    "one_hot before": (lambda: F.one_hot(mg.tensor([-1])), IndexError, "class -1 is negative"),
    "rand of ints": (lambda: mg.rand(2, dtype=mg.int64), TypeError, "rand makes floats"),
    "randint of none": (lambda: mg.randint(3, 2, (1,)), ValueError, "no integers"),
    "a mask of ints": (lambda: F.attention_pattern(a, mg.tensor(A).long()), TypeError, "mask must be bool or float64"),
    "a mask of other shape": (lambda: F.attention_pattern(a, a[:2] > 0), ValueError, "does not broadcast to scores"),
    "scores of one dim": (lambda: F.attention_pattern(a[0]), ValueError, r"qk must be \(…, T, S\), got shape"),
    "from_numpy of a list": (lambda: mg.from_numpy([1.0]), TypeError, "needs a NumPy array, got a list"),
    "grad of ints": (lambda: mg.tensor([1], requires_grad=True), TypeError, "floating-point"),
    "weights of too few outputs": (lambda: mg.grad([a, a], a, a), (ValueError, mg.GraphError), "grad"),
}


@pytest.mark.parametrize("call, error, words", REFUSED.values(), ids=REFUSED)
def test_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_calls_that_change_nothing_return_the_tensor_itself():
    for call in (
        lambda x: F.dropout(x, 0), lambda x: F.dropout(x, 0.5, training=False), lambda x: x.contiguous(),
        lambda x: x.to(mg.float64), lambda x: x.to("cpu"), lambda x: x.to(x), lambda x: x.double(),
        lambda x: x.requires_grad_(False),
    ):  # fmt: skip
        x = mg.tensor(A)
        assert call(x) is x


def test_conversions():
    x = mg.tensor([1.5, -2.5, 0.0])
    for name, dtype in (("double", mg.float64), ("float", mg.float32), ("half", mg.float16), ("long", mg.int64),
                        ("int", mg.int32), ("bool", mg.bool_)):  # fmt: skip
        assert getattr(x, name)().dtype == dtype
    assert x.bool().tolist() == [True, True, False] and x.long().tolist() == [1, -2, 0]
    assert x.to("cpu", mg.float16).dtype == x.to(dtype="float16").dtype == x.to(mg.zeros(1).half()).dtype == mg.float16
    assert x.is_floating_point() and not x.long().is_floating_point()


def test_results_that_are_copies():
    for copied in (lambda x: x.flip(0), lambda x: x.flip(()),
                   lambda x: x.repeat(1, 1), lambda x: x.repeat_interleave(1, 0), lambda x: x.max(1)[0]):  # fmt: skip
        x = mg.tensor([[2.0], [3.0]])
        copied(x).zero_()
        assert x.tolist() == [[2], [3]]


GRADIENTS = {  # at places that no case has: (function, x, gradient of the sum)
    "norm of 0": (lambda x: x.norm(), [0.0, 0.0], [0, 0]),
    "norm 3 of 0": (lambda x: x.norm(3), [0.0, 2.0], [0, 1]),
    "remainder": (lambda x: x % 2.0, [7.5, -7.5], [1, 1]),
    "divisor of a remainder": (lambda x: mg.tensor([7.5, -7.5]) % x, [2.0, 2.0], [-3, 4]),
    "square": (mg.square, [3.0, 0.0], [6, 0]),
}


@pytest.mark.parametrize("function, at, gradient", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients(function, at, gradient):
    x = mg.tensor(at, dtype=mg.float64, requires_grad=True)
    function(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), gradient, 1e-12)


def test_equal_and_close():
    x = mg.tensor([100.0, math.nan])
    assert mg.equal(a, a.clone()) and not mg.equal(a, a[:1]) and not mg.equal(x, x)
    assert mg.allclose(a, a + 1e-12) and not mg.allclose(a, a + 1) and not mg.allclose(x, x)
    assert mg.allclose(x, x + 5, 0.1, 0.0, True) and mg.allclose(mg.tensor([math.inf, 1.0]), [math.inf, 1.0])
