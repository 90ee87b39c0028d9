"""Tensors as Python objects: making them, indexing, Python's protocols, and what the error messages say."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F


def leaf(*shape):
    return mg.randn(*shape, dtype=mg.float64, requires_grad=True)


def same(x, expected):
    expected = np.asarray(expected)
    assert x.shape == expected.shape and x.dtype == expected.dtype, (x.dtype, expected.dtype)
    np.testing.assert_array_equal(x.detach().numpy(), expected)


# -------------------------------------------------------------------------------------------------------------- making


def test_creation():
    f32 = np.float32
    same(mg.tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]])
    same(mg.tensor(2.5), f32(2.5))
    same(mg.tensor([mg.tensor(1.0), mg.tensor(2.0)]), f32([1, 2]))
    same(mg.zeros(2, 3), np.zeros((2, 3), f32))
    same(mg.zeros((2, 3)), np.zeros((2, 3), f32))
    same(mg.ones(()), f32(1))
    same(mg.ones(0, 3), np.ones((0, 3), f32))
    same(mg.full((2,), 7), [7, 7])
    same(mg.full((1,), np.uint8(3)), [3])
    same(mg.multinomial(mg.tensor([0.0, 1.0, 0.0]), 3, replacement=True), [1, 1, 1])
    assert mg.multinomial(mg.zeros(0, 3), 1).shape == (0, 1) and mg.multinomial(mg.zeros(0, 3), 2).shape == (0, 2)
    same(mg.full(2, True), [True, True])
    same(mg.arange(4), np.arange(4))
    same(mg.arange(1, 2, 0.25), np.arange(1, 2, 0.25, f32))
    same(mg.arange(5, 0, -2), [5, 3, 1])
    same(mg.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype=f32))
    same(mg.eye(2, 3), np.eye(2, 3, dtype=f32))
    same(mg.zeros_like(mg.arange(3)), [0, 0, 0])
    same(mg.ones_like(mg.zeros(2), dtype=mg.float64), [1.0, 1.0])
    same(mg.full_like(mg.zeros(2), 3), f32([3, 3]))
    same(F.one_hot(mg.tensor([2, 0]), 3), [[0, 0, 1], [1, 0, 0]])
    assert mg.empty(2, 3).shape == mg.randn_like(mg.zeros(2, 3)).shape == (2, 3)
    assert mg.ones(2, requires_grad=True).requires_grad and not mg.ones(2).requires_grad


def test_as_tensor_keeps_a_tensor_and_tensor_copies_it():
    source = leaf(3)
    assert mg.as_tensor(source) is source and mg.as_tensor(np.ones(3), dtype=mg.float32).dtype == mg.float32
    with mg.no_grad():
        assert mg.tensor([mg.tensor(1.0, requires_grad=True), 2.0]).tolist() == [1, 2]
    assert not mg.tensor(source).requires_grad and not np.shares_memory(mg.tensor(source).numpy(), source.array)
    shared = mg.tensor([[1, 2], [3, 4]])
    shared.data = shared.data.T  # of the same memory
    assert shared.tolist() == [[1, 3], [2, 4]]


# ------------------------------------------------------------------------------------------------------------ indexing

TABLE = np.arange(24.0).reshape(2, 3, 4)
INDICES = {
    "int": 1, "negative": -1, "ints": (1, 2, 3), "slice": slice(None, None, 2), "stop": slice(0, 1),
    "reversed": (slice(None), slice(None, None, -1)), "ellipsis": (..., 0), "none": (None, ..., None, slice(1, 3)),
    "empty slice": slice(2, 2), "list": [1, 0, 1], "array": np.array([[0, 1], [1, 1]]), "negative list": [-1, 0],
    "two lists": ([0, 1, 1], [2, 0, 2]), "broadcast": (np.array([[0], [1]]), [0, 2]),
    "apart": ([0, 1], slice(None), [3, 3]), "mask": TABLE > 7, "mask of rows": np.array([True, False]),
    "mask and int": (np.array([True, True]), 1),
    "mask and list": (slice(None), np.array([True, False, True]), [1, 0]), "empty list": [], "no match": TABLE > 99,
    "nothing": (), "numpy int": np.int64(1), "true": True, "0-d array": np.array(1), "range": range(2),
}  # fmt: skip


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_indexing_as_in_numpy(index):
    x = mg.tensor(TABLE, requires_grad=True)
    expected = TABLE[index]
    y = x[index]
    same(y, expected)
    weight = mg.tensor(np.random.default_rng(0).standard_normal(expected.shape))
    (y * weight).sum().backward()
    gradient = np.zeros_like(TABLE)
    np.add.at(gradient, index if not isinstance(index, range) else list(index), weight.numpy())
    np.testing.assert_allclose(x.grad.numpy(), gradient)


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_assignment_as_in_numpy(index):
    x, expected = mg.tensor(TABLE), TABLE.copy()
    value = -1 - np.arange(TABLE[index].size, dtype=float).reshape(TABLE[index].shape)
    x[index] = mg.tensor(value)
    expected[index if not isinstance(index, range) else list(index)] = value
    same(x, expected)
    x[index] = 0.5
    expected[index if not isinstance(index, range) else list(index)] = 0.5
    same(x, expected)


def test_indexing_with_tensors():
    x = mg.tensor(TABLE)
    i = mg.tensor([1, 0])
    same(x[i], TABLE[[1, 0]])
    same(x[:, i, mg.tensor(2)], TABLE[:, [1, 0], 2])
    same(x[x > 7], TABLE[TABLE > 7])
    same(x[mg.tensor(1) :], TABLE[1:])
    same(x[mg.tensor(1)], TABLE[1])
    same(x[[mg.tensor(1), mg.tensor(0)]], TABLE[[1, 0]])


@pytest.mark.parametrize(
    "index, error",
    [(5, IndexError), ((0, 0, 0, 0), IndexError), (1.0, TypeError), ("a", TypeError), (mg.tensor(1.0), TypeError),
     ([0.5], TypeError), (np.ones((3, 3), bool), IndexError), (([0, 1], [0, 1, 2]), IndexError), ([7], IndexError)],
)  # fmt: skip
def test_bad_indices(index, error):
    with pytest.raises(error) as caught:
        mg.tensor(TABLE)[index]
    assert error is TypeError or "(2, 3, 4)" in str(caught.value)


def test_assignment_refuses_what_does_not_fit():
    x = mg.zeros(2, 3)
    with pytest.raises(ValueError, match=r"\(4,\)"):
        x[0] = mg.ones(4)
    with pytest.raises((IndexError, ValueError)):
        x[7] = 1.0
    assert x.sum().item() == 0


# -------------------------------------------------------------------------------------------------- Python's protocols


def test_python_numbers_and_truth():
    assert float(mg.tensor(2.5)) == 2.5 and int(mg.tensor([3])) == 3 and bool(mg.tensor([[True]]))
    assert mg.tensor(2.5).item() == 2.5 and isinstance(mg.tensor(2).item(), int)
    assert [10, 20, 30][mg.tensor(1)] == 20 and list(range(mg.tensor(2))) == [0, 1]
    assert float(leaf()) and not mg.tensor(0.0)
    with pytest.raises(ValueError, match=r"shape \(2,\).*any\(\) or \.all\(\)"):
        bool(mg.ones(2))
    with pytest.raises(ValueError, match=r"shape \(0,\)"):
        bool(mg.ones(0))
    with pytest.raises(ValueError, match=r"one element.*\(2,\)"):
        mg.ones(2).item()
    with pytest.raises(TypeError, match="float32"):
        [1, 2][mg.tensor(1.0)]


def test_iteration_length_and_membership():
    x = leaf(3, 2)
    rows = list(x)
    assert len(x) == len(rows) == 3
    (rows[1] * 5).sum().backward()
    assert x.grad.tolist() == [[0, 0], [5, 5], [0, 0]]
    a, b = mg.tensor([1, 2])
    assert (a.item(), b.item()) == (1, 2)
    assert 2 in mg.arange(3) and 7 not in mg.arange(3)
    assert list(mg.zeros(0, 2)) == []
    for f in (len, iter):
        with pytest.raises(TypeError, match="0-d"):
            f(mg.tensor(1.0))


def test_equality_is_elementwise_and_identity_hashes():
    x, y = mg.tensor([1, 2]), mg.tensor([1, 3])
    assert (x == y).tolist() == [True, False] and (x != y).tolist() == [False, True]
    assert len({x, y, x}) == 2 and {x: 1}[x] == 1
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert (x == "a") is False and x not in [None, "a"]
    with pytest.raises(TypeError, match="str"):
        x + "a"


def test_repr():
    assert repr(mg.tensor([1.0, 2.5])) == "tensor([1. , 2.5])"
    assert repr(mg.tensor(3)) == "tensor(3)"
    assert repr(mg.tensor([True])) == "tensor([ True])"
    assert (
        repr(mg.ones(2, dtype=mg.float64, requires_grad=True)) == "tensor([1., 1.], dtype=float64, requires_grad=True)"
    )
    assert repr(mg.ones(2, requires_grad=True) * 2) == "tensor([2., 2.], op=mul)"
    assert repr(mg.zeros(0, 2)).startswith("tensor([]")
    assert repr(mg.tensor([[1], [2]])).splitlines()[1].startswith(" " * len("tensor([") + "[2]")
    assert len(repr(mg.zeros(1000, 1000))) < 2000


def test_operators_of_python():
    x = mg.tensor([4.0, -2.0])
    same(1 - x, np.float32([-3, 3]))
    same(2 / x, np.float32([0.5, -1]))
    same(2**x, np.float32([16, 0.25]))
    same(abs(x) + -x, np.float32([0, 4]))
    same(x @ x, np.float32(20))
    same(np.array([1.0, 2.0]) @ x.double(), np.float64(0))
    a, b = mg.tensor([True, False]), mg.tensor([True, True])
    same(a & b, [True, False])
    same(a | b, [True, True])
    same(~a, [False, True])
    same(x > 0, [True, False])
    same(x < 3, [False, True])


# ---------------------------------------------------------------------------------------------------- error messages

X = mg.zeros(2, 3)
MESSAGES = [
    (lambda: X + mg.zeros(4), ValueError, r"add: shapes \(2, 3\) and \(4,\)"),
    (lambda: mg.where(X > 0, X, mg.zeros(4)), ValueError, r"where.*\(2, 3\).*\(4,\)"),
    (lambda: X @ X, ValueError, r"matmul.*\(2, 3\) and \(2, 3\).*3 and 2"),
    (lambda: mg.zeros(2, 2, 3) @ mg.zeros(3, 3, 2), ValueError, r"matmul.*\(2, 2, 3\).*\(3, 3, 2\)"),
    (lambda: X @ mg.tensor(1.0), ValueError, "matmul"),
    (lambda: X.reshape(4), ValueError, r"reshape.*\(2, 3\).*\(4,\)"),
    (lambda: X.reshape(-1, -1), ValueError, r"reshape.*\(-1, -1\).*\(2, 3\)"),
    (lambda: X.T.view(6), RuntimeError, r"view.*\(3, 2\).*\(6,\).*reshape"),
    (lambda: X.expand(4, 3), ValueError, r"expand.*\(2, 3\).*\(4, 3\)"),
    (lambda: X.permute(0, 0), ValueError, r"permute.*\(0, 0\).*\(2, 3\)"),
    (lambda: X.transpose(0, 2), IndexError, r"transpose: dim 2.*\(2, 3\)"),
    (lambda: X.sum(2), IndexError, r"sum: dim 2.*\(2, 3\)"),
    (lambda: X.sum((0, -2)), ValueError, r"sum.*twice.*\(2, 3\)"),
    (lambda: X.sum(0.5), TypeError, "sum: dim must be an int"),
    (lambda: X.sum(dim=0, axis=0), TypeError, "dim or axis"),
    (lambda: mg.cat([X, mg.zeros(2, 4)]), ValueError, r"cat.*\(2, 3\).*\(2, 4\)"),
    (lambda: mg.stack([X, mg.zeros(3)]), ValueError, r"stack.*\(2, 3\).*\(3,\)"),
    (lambda: X.split([1, 1], 1), ValueError, r"split.*\(1, 1\).*3.*\(2, 3\)"),
    (lambda: X.pad((1,)), ValueError, r"pad.*\(1,\).*\(2, 3\)"),
    (lambda: X.unsqueeze(4), IndexError, r"unsqueeze: dim 4.*\(2, 3\)"),
    (lambda: X.gather(1, mg.zeros(2, 1)), TypeError, "gather.*float32"),
    (lambda: X.gather(1, mg.full((2, 1), 3)), IndexError, "gather: index 3.*size 3"),
    (lambda: X.gather(1, mg.full((3, 1), 0)), ValueError, r"gather.*\(3, 1\).*\(2, 3\)"),
    (lambda: mg.tensor(1.0).gather(0, mg.tensor([0, 1])), (IndexError, ValueError), "gather"),
    (lambda: F.embedding(mg.tensor([-1]), X), IndexError, "embedding: index -1.*size 2"),
    (lambda: F.embedding(mg.tensor([1.0]), X), TypeError, "embedding.*float32"),
    (lambda: F.linear(X, mg.zeros(2, 2)), ValueError, r"linear.*\(2, 3\).*\(2, 2\)"),
    (lambda: F.linear(X, mg.zeros(2, 3).double()), TypeError, "linear.*float32.*float64"),
    (lambda: F.softmax(mg.arange(3)), TypeError, "softmax.*int64"),
    (lambda: F.layer_norm(X, 4), ValueError, r"layer_norm.*\(2, 3\).*\(4,\)"),
    (lambda: F.cross_entropy(X, mg.tensor([0])), ValueError, r"cross_entropy.*\(2, 3\).*\(2,\).*\(1,\)"),
    (lambda: F.cross_entropy(X, mg.tensor([0, 3])), IndexError, "cross_entropy: index 3.*size 3"),
    (lambda: F.cross_entropy(X, X[:, 0]), TypeError, "cross_entropy.*float32"),
    (lambda: F.scaled_dot_product_attention(X, X, X.T), ValueError, r"attention.*\(2, 3\).*\(3, 2\)"),
    (lambda: mg.einsum("ij,jk", X, X), ValueError, r"einsum 'ij,jk'.*'j'.*3 and 2|einsum.*2 and 3"),
    (lambda: mg.einsum("ijk->i", X), ValueError, r"einsum.*'ijk'.*\(2, 3\)"),
    (lambda: X.masked_fill(mg.ones(4, 2) > 0, 0.0), ValueError, r"masked_fill: shapes \(2, 3\) and \(4, 2\)"),
    (lambda: X.gather(1, np.zeros((2, 1), int)), TypeError, r"got a NumPy array of int64: write mg.tensor\(index\)$"),
    (lambda: mg.where(np.ones(3, bool), X, X), TypeError, r"got a NumPy array of bool: write mg.tensor\(condition\)$"),
    (lambda: F.embedding([0, 1], X), TypeError, r"input must be an int Tensor, got a list: write mg.tensor\(input\)$"),
    (lambda: mg.exp([1.0]), TypeError, r"^exp: input must be a Tensor, got a list: write mg.tensor\(input\)$"),
    (lambda: F.linear(X, np.ones((2, 3))), TypeError, "^linear needs Tensors of floats, got a NumPy array of float64"),
    (lambda: mg.add(X, [1.0]), TypeError, r"got a list: write mg.tensor\(\[1.0\]\)"),
    (lambda: np.exp(X), TypeError, r"np.exp of a Tensor would lose the graph: write mg.exp\(x\)"),
    (lambda: np.add.reduce(X), TypeError, r"write x.detach\(\).numpy\(\)"),
    (lambda: mg.ones(3, requires_grad=True).backward(), mg.GraphError, r"loss.sum\(\) or loss.mean\(\)"),
    (
        lambda: mg.ones(3, requires_grad=True).add_(1),
        mg.GraphError,
        r"^add_ .* write y = x.add\(…\), or .* no_grad\(\)",
    ),
    (lambda: mg.ones(3, requires_grad=True).__setitem__(0, 1), mg.GraphError, r"write y = mg.where\(mask, value, x\)"),
    (lambda: X.topk(4), ValueError, "topk: k = 4 of 3"),
    (lambda: mg.zeros(0).amax(), ValueError, r"amax.*\(0,\)"),
    (lambda: X.clamp(), ValueError, "clamp"),
    (lambda: X.where(X, X), TypeError, "where.*bool.*float32"),
    (lambda: mg.nn.Parameter(np.ones(3)), TypeError, "Parameter.*Tensor"),
]


@pytest.mark.parametrize("call, error, words", MESSAGES)
def test_messages_carry_names_shapes_and_dtypes(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    "make", [mg.zeros, mg.ones, mg.empty, mg.rand, mg.randn, lambda *n: mg.full(n, 1.0), lambda *n: mg.randint(0, 5, n)]
)
def test_no_size_is_negative(make):
    for shape in ((-1,), (2, -3), (0, -1)):
        with pytest.raises(ValueError, match=rf"sizes must not be negative, got \({shape[0]},"):
            make(*shape)
