"""mg.* and F.* are called in PyTorch's words too, and say what should have been a Tensor.

tests/oracle/words.py compares the words with PyTorch's own."""

import inspect
import pickle

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F

X = mg.tensor([[3.0, 1.0, 2.0], [0.5, 4.0, 6.0]])
INDEX = mg.tensor([[0, 2, 1]])
OFFERED = {
    f"{module.__name__}.{name}": f
    for module in (mg, F)
    for name, f in vars(module).items()
    if inspect.isfunction(f) and hasattr(f, "__wrapped__")
}
BY_NAME = {
    "softmax": (lambda: mg.softmax(input=X, dim=0), lambda: X.softmax(0)),
    "axis": (lambda: mg.softmax(input=X, axis=0), lambda: X.softmax(0)),
    "where": (lambda: mg.where(condition=X > 1, input=X, other=0.0), lambda: X.where(X > 1, 0.0)),
    "matmul": (lambda: mg.matmul(input=X, other=X.T), lambda: X @ X.T),
    "gather": (lambda: mg.gather(input=X, dim=1, index=INDEX, sparse_grad=False), lambda: X[:1].gather(1, INDEX)),
    "max": (lambda: mg.max(X, other=2 - X), lambda: X.maximum(2 - X)),
    "min": (lambda: X.min(other=2 - X), lambda: X.minimum(2 - X)),
    "split": (lambda: mg.split(tensor=X, split_size_or_sections=2, dim=1)[0], lambda: X[:, :2]),
    "split_size": (lambda: X.split(split_size=2, dim=1)[1], lambda: X[:, 2:]),
    "sections": (lambda: mg.tensor_split(X, sections=3, dim=1)[1], lambda: X[:, 1:2]),
    "swapaxes": (lambda: mg.swapaxes(input=X, axis0=0, axis1=1), lambda: X.T),
    "searchsorted": (lambda: mg.searchsorted(mg.arange(4), input=INDEX), lambda: INDEX),
    "reshape": (lambda: mg.reshape(input=X, shape=(3, 2)), lambda: X.reshape(3, 2)),
    "view": (lambda: X.view(size=(3, 2)), lambda: X.reshape(3, 2)),
    "expand": (lambda: X.expand(size=(2, 2, 3)), lambda: X.expand(2, 2, 3)),
    "repeat": (lambda: X.repeat(repeats=(2, 1)), lambda: mg.cat([X, X])),
    "zeros": (lambda: mg.zeros(size=(2, 3)), lambda: mg.zeros(2, 3)),
    "new_ones": (lambda: X.new_ones(size=(2,)), lambda: mg.ones(2)),
    "arange": (lambda: mg.arange(end=3), lambda: mg.arange(3)),
    "zeros_like": (lambda: mg.zeros_like(input=X), lambda: X * 0),
    "relu": (lambda: F.relu(input=X - 2, inplace=True), lambda: (X - 2).relu()),
    "embedding": (lambda: F.embedding(INDEX, X.T, max_norm=None, norm_type=2.0, sparse=False), lambda: X.T[INDEX]),
    "inplace of relu": (lambda: F.relu(X - 2, True), lambda: (X - 2).relu()),
    "inplace of silu": (lambda: F.silu(X, True), lambda: F.silu(X)),
    "inplace of leaky_relu": (lambda: F.leaky_relu(X - 2, 0.1, True), lambda: F.leaky_relu(X - 2, 0.1)),
    "inplace of elu": (lambda: F.elu(X - 2, 1.0, True), lambda: F.elu(X - 2)),
    "inplace of hardtanh": (lambda: F.hardtanh(X - 2, -1, 1, True), lambda: F.hardtanh(X - 2)),
    "inplace of dropout": (lambda: F.dropout(X, 0.5, False, True), lambda: X),
    "mse_loss": (lambda: F.mse_loss(input=X, target=X, size_average=None, reduce=None), lambda: mg.tensor(0.0)),
    "scatter": (lambda: mg.scatter(X, 1, INDEX, value=7.0), lambda: X.scatter(1, INDEX, 7.0)),
    "isin": (lambda: mg.isin(INDEX, 2, invert=True), lambda: INDEX != 2),
    "repeat_interleave": (lambda: mg.repeat_interleave(mg.tensor([1, 0, 2])), lambda: mg.tensor([0, 2, 2])),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_NAME)
def test_pytorchs_names_of_arguments(name):
    got, want = (call() for call in BY_NAME[name])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_signatures_speak_as_pytorch_does():
    assert len(OFFERED) > 230
    words = {word for f in OFFERED.values() for word in inspect.signature(f).parameters}
    assert "input" in words and "x" not in words
    assert str(inspect.signature(F.elu)) == "(input, alpha=1.0, inplace=False)"
    assert mg.absolute is mg.abs and all(pickle.loads(pickle.dumps(f)) is f for f in OFFERED.values())


REFUSED = {
    "twice": (lambda: mg.softmax(X, 0, input=X), "multiple values"),
    "two names": (lambda: mg.split(X, 1, axis=0, dim=0), "give dim or axis, not both"),
    "out": (lambda: mg.sum(X, out=X), "no out=.*copy_"),
    "mistyped": (lambda: mg.sum(X, dimm=0), "unexpected keyword argument 'dimm'"),
    "size_average": (lambda: F.mse_loss(X, X, size_average=True), "mse_loss: .*no size_average=; say reduction='mean'"),
    "max_norm": (lambda: F.embedding(INDEX, X, max_norm=1.0), "no max_norm=; scale the rows"),
    "sizes twice": (lambda: mg.zeros(2, size=(2,)), "zeros: give the sizes as .* or by keyword"),
    "a list": (lambda: mg.sum([1, 2]), r"^sum: input must be a Tensor, got list; minigrad.tensor\(input\) makes one"),
    "an array": (lambda: mg.mean(np.ones(3)), "^mean: input must be a Tensor, got ndarray"),
    "a list by keyword": (lambda: mg.softmax(input=[1.0], dim=0), "^softmax: input must be a Tensor, got list"),
    "further on": (lambda: mg.mm(X, [[1.0]]), "^mm: mat2 must be a Tensor, got list"),
    "in a list": (lambda: mg.hstack([X, 1]), "^hstack: tensors must hold Tensors, got int"),
    "in operands": (lambda: mg.einsum("ij,j", X, [1, 2, 3]), "^einsum: operands must hold Tensors, got list"),
    "no equation": (lambda: mg.einsum(None, X), "^einsum: equation must be a str, got NoneType"),
    "in a row": (lambda: mg.broadcast_tensors([1], X), "^broadcast_tensors: tensors must hold Tensors, got list"),
    "nothing to stack": (lambda: mg.stack([]), "^stack: tensors must hold at least one Tensor, got an empty list"),
    "nothing to hstack": (lambda: mg.hstack(()), "^hstack: tensors must hold at least one Tensor, got an empty tuple"),
    "a method's mask": (lambda: X.masked_fill([True], 0), "^masked_fill: mask must be a Tensor of bools, got list"),
    "a method's weight": (lambda: X.lerp(X, [0.5]), "^lerp: weight must be a number or a Tensor, got list"),
    "no weight": (lambda: F.linear(X, None), "^linear: weight must be a Tensor, got NoneType"),
    "inplace twice": (lambda: F.relu(X, True, inplace=True), "takes 1 positional argument"),
    "a generator's place": (lambda: F.dropout(X, 0.5, True, mg.Generator()), "4 were given"),
    "the sum": (lambda: F.mse_loss(X, X, size_average=False), "mse_loss: .*no size_average=; say reduction='mean'"),
    "no list": (lambda: mg.stack(3), "^stack: tensors must be a list of Tensors, got int"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_says_why(what):
    call, words = REFUSED[what]
    with pytest.raises(TypeError, match=words):
        call()


def test_every_function_says_what_is_no_tensor():
    for name, function in OFFERED.items():
        needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        if name not in ("minigrad.where", "minigrad.broadcast_tensors"):  # where lacks two, the other takes none at all
            with pytest.raises(TypeError, match="Tensor"):
                function(*[{}] * len(needed))


def test_an_error_of_a_tensor_stays_what_it_is():
    with pytest.raises(AttributeError, match="no convolutions"):
        mg.ops.keywords.accepting(conv, "here")(X)
    with pytest.raises(IndexError, match="dim 5 is out of range"):
        mg.softmax(X, 5)


class Broken:
    """Of a user's, with a bug of its own."""

    def __index__(self):
        return (2).lost

    def reserve(self, n):
        return None.lost


def test_an_error_of_an_argument_stays_what_it_is():
    with pytest.raises(AttributeError, match="'int' object has no attribute 'lost'"):
        mg.reshape(X, Broken(), 2)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'lost'"):
        F.dropout(X, 0.5, generator=Broken())
    with pytest.raises(AttributeError, match="has no attribute 'reserve'"):
        F.dropout(X, 0.5, generator=object())


def conv(x):
    return x.conv2d()
