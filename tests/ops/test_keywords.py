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


OTHERS = {
    "alpha": (lambda: X.add(X, alpha=2), lambda: X * 3),
    "alpha of sub": (lambda: mg.sub(X, 1.0, alpha=3), lambda: X - 3),
    "alpha of arrays": (lambda: mg.add(X, np.ones((2, 3), np.float32), alpha=2), lambda: X + 2),
    "size": (lambda: mg.zeros(size=(2, 3)), lambda: mg.zeros(2, 3)),
    "size of ones": (lambda: mg.ones(size=(2,), dtype=mg.int64), lambda: mg.ones(2, dtype=mg.int64)),
    "size of rand": (lambda: mg.rand(size=(4,)) * 0, lambda: mg.zeros(4)),
    "size of randint": (lambda: mg.randint(1, size=(2, 2)), lambda: mg.zeros(2, 2, dtype=mg.int64)),
    "high and size": (lambda: mg.randint(high=8, low=7, size=(2,)), lambda: mg.tensor([7, 7])),
    "end": (lambda: mg.arange(end=3), lambda: mg.arange(3)),
    "start and end": (lambda: mg.arange(end=5, start=2), lambda: mg.tensor([2, 3, 4])),
    "dtype of sum": (lambda: X.sum(1, dtype=mg.float64), lambda: X.double().sum(1)),
    "dtype of mean": (lambda: INDEX.mean(dtype=mg.float32), lambda: mg.tensor(1.0)),
    "dtype of cumsum": (lambda: X.cumsum(0, dtype=mg.int64), lambda: X.long().cumsum(0)),
    "floor": (lambda: mg.div(-X, 2, rounding_mode="floor"), lambda: -X // 2),
    "trunc": (lambda: mg.div(-X, 2, rounding_mode="trunc"), lambda: -(X // 2)),
    "trunc of ints": (
        lambda: mg.tensor([-7, 7, -6]).div(mg.tensor([2, -2, 3]), rounding_mode="trunc"),
        lambda: mg.tensor([-3, -3, -2]),
    ),
    "no rounding": (lambda: X.div(X, rounding_mode=None), lambda: mg.ones(2, 3)),
    "value": (lambda: X.scatter(1, INDEX[:, :1], value=9.0)[0, :1], lambda: mg.tensor([9.0])),
    "split_size": (lambda: X.split(split_size=2, dim=1)[1], lambda: X[:, 2:]),
    "inplace": (lambda: F.relu(F.silu(X - 2, inplace=False), inplace=False), lambda: F.silu(X - 2).relu()),
    "inplace of dropout": (lambda: F.dropout(X, 0.0, True, inplace=False), lambda: X),
    "memory_format": (
        lambda: mg.zeros_like(X, memory_format=mg.preserve_format) + X.clone(memory_format=mg.contiguous_format),
        lambda: X,
    ),
    "memory_format of to": (lambda: X.to(mg.float32, memory_format=mg.preserve_format), lambda: X),
}


@pytest.mark.parametrize("name", OTHERS)
def test_keywords_of_pytorch(name):
    got, want = (call() for call in OTHERS[name])
    assert got.dtype == want.dtype and got.tolist() == want.tolist()


def test_a_copy_on_request():
    x = mg.ones(2, requires_grad=True)
    assert x.to(mg.float32) is x and x.to("cpu", copy=False) is x
    y = x.to(mg.float32, copy=True)
    y.sum().backward()
    assert y.storage is not x.storage and x.grad.tolist() == [1, 1]


def test_keywords_of_optimizers_and_others():
    p = mg.ones(2, requires_grad=True)
    for make in (mg.optim.Adam, mg.optim.AdamW):
        make([p], amsgrad=False, foreach=None, maximize=False, capturable=False, differentiable=False, fused=True)
    optimizer = mg.optim.SGD([p], lr=0.1, dampening=0, maximize=False, foreach=True)
    assert optimizer.param_groups[0].keys() == {"params", "lr", "momentum", "weight_decay", "nesterov"}
    p.grad = mg.ones(2)
    assert mg.nn.utils.clip_grad_norm_([p], 9.0, norm_type=2.0).item() == pytest.approx(2**0.5)
    mg.nn.Identity().register_forward_pre_hook(print, with_kwargs=False)
    for words, call in {
        "Adam: amsgrad=True is not offered": lambda: mg.optim.Adam([p], amsgrad=True),
        "SGD: dampening=0.5 is not offered": lambda: mg.optim.SGD([p], dampening=0.5),
        "clip_grad_norm_: norm_type=inf is not": lambda: mg.nn.utils.clip_grad_norm_([p], 9.0, norm_type=np.inf),
        "relu: inplace=True is not offered; leave inplace out": lambda: F.relu(p, inplace=True),
        "clone: memory_format='channels_last' is not": lambda: p.clone(memory_format="channels_last"),
        "clone: memory_format=tensor": lambda: p.clone(memory_format=p),
        "AdamW.*unexpected keyword argument 'decay'": lambda: mg.optim.AdamW([p], decay=0.1),
    }.items():
        with pytest.raises(TypeError, match=words):
            call()


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
    "another rounding": (lambda: X.div(X, rounding_mode="up"), "^div: rounding_mode must be None, 'floor' or 'trunc'"),
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
    with pytest.raises((TypeError, AttributeError, ValueError), match=words):
        call()
