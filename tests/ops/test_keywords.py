"""Functions take their arguments by PyTorch's names."""

import inspect
import pickle

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F

X = mg.tensor([[3.0, 1.0, 2.0], [0.5, 4.0, 6.0]])
INDEX = mg.tensor([[0, 2, 1]])
BY_NAME = {
    "softmax": (lambda: mg.softmax(input=X, dim=0), lambda: X.softmax(0)),
    "axis": (lambda: mg.softmax(input=X, axis=0), lambda: X.softmax(0)),
    "where": (lambda: mg.where(condition=X > 1, input=X, other=0.0), lambda: X.where(X > 1, 0.0)),
    "flip": (lambda: mg.flip(X, dims=[0, 1]), lambda: X.flip(0, 1)),
    "permute": (lambda: mg.permute(X, dims=(1, 0)), lambda: X.permute(1, 0)),
    "matmul": (lambda: mg.matmul(input=X, other=X.T), lambda: X @ X.T),
    "gather": (lambda: mg.gather(input=X, dim=1, index=INDEX), lambda: X[:1].gather(1, INDEX)),
    "split": (lambda: mg.split(tensor=X, split_size_or_sections=2, dim=1)[0], lambda: X[:, :2]),
    "zeros_like": (lambda: mg.zeros_like(input=X), lambda: X * 0),
    "relu": (lambda: F.relu(input=X - 2), lambda: (X - 2).relu()),
    "embedding": (lambda: F.embedding(INDEX, X.T), lambda: X.T[INDEX]),
    "mse_loss": (lambda: F.mse_loss(input=X, target=X), lambda: mg.tensor(0.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_NAME)
def test_pytorchs_names_of_arguments(name):
    got, want = (call() for call in BY_NAME[name])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_signatures_speak_as_pytorch_does():
    offered = [f for home in (mg, F) for name, f in vars(home).items() if inspect.isfunction(f) and name[0] != "_"]
    words = {word for f in offered for word in inspect.signature(f).parameters}
    assert len(offered) > 130 and "input" in words and "x" not in words
    assert str(inspect.signature(mg.tril)) == "(input: ~T, diagonal: int = 0) -> ~T"
    assert mg.abs is mg.ops.abs and all(pickle.loads(pickle.dumps(f)) is f for f in offered)


REFUSED = {
    "an array": (lambda: mg.softmax(np.ones(3), 0), "^softmax: input must be a Tensor, got a NumPy array of float64"),
    "nothing to stack": (lambda: mg.stack([]), "^stack needs at least one Tensor, got none"),
    "a list": (lambda: mg.mean([1, 2]), "^mean needs Tensors of floats, got a list; minigrad.tensor"),
    "twice": (lambda: mg.softmax(X, 0, input=X), "multiple values"),
    "two names": (lambda: mg.split(X, 1, axis=0, dim=0), "give dim or axis, not both"),
    "out": (lambda: mg.sum(X, out=X), "unexpected keyword argument 'out'"),
    "mistyped": (lambda: mg.sum(X, dimm=0), "unexpected keyword argument 'dimm'"),
    "no equation": (lambda: mg.einsum(None, X), "^einsum: equation must be a str, got NoneType"),
    "a method's mask": (
        lambda: X.masked_fill([True], 0),
        "^masked_fill: mask must be a bool Tensor, got a list: write mg.tensor.mask",
    ),
    "floats as a mask": (
        lambda: X.masked_fill(X, 0),
        "^masked_fill: mask must be a bool Tensor, got a Tensor of float32; mask.bool.. casts",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_wrong_keywords_raise_errors_that_say_why(what):
    call, words = REFUSED[what]
    with pytest.raises((TypeError, AttributeError), match=words):
        call()
