"""Losses against NumPy; class weights and probabilities; wrong arguments."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

rng = np.random.default_rng(0)
X, Y = rng.standard_normal((2, 6, 4))
Q = rng.uniform(0.05, 0.95, (6, 4))
T, W = np.array([3, 0, 1, -100, 2, 3]), np.array([0.5, 1.0, 2.0, 0.3])
LOG_P = X - np.log(np.exp(X).sum(1, keepdims=True))
KEPT = T != -100
SIGMOID = 1 / (1 + np.exp(-X))


def bce(p, t):
    return -(t * np.log(p) + (1 - t) * np.log(1 - p))


LOSSES = {  # the layer, its input and target, the losses one by one
    "MSE": (nn.MSELoss, {}, X, Y, (X - Y) ** 2),
    "BCE, logits": (nn.BCEWithLogitsLoss, {}, X, Q, bce(SIGMOID, Q)),
    "BCE, pos_weight": (
        nn.BCEWithLogitsLoss, {"pos_weight": W}, X, Q,
        -(W * Q * np.log(SIGMOID) + (1 - Q) * np.log(1 - SIGMOID)),
    ),
    "BCE, both weights": (
        nn.BCEWithLogitsLoss, {"weight": W, "pos_weight": 3 * W}, X, Q,
        -(3 * W * Q * np.log(SIGMOID) + (1 - Q) * np.log(1 - SIGMOID)) * W,
    ),
    "probabilities": (nn.CrossEntropyLoss, {}, X, Q, -(Q * LOG_P).sum(1)),
    "probabilities, weighted": (nn.CrossEntropyLoss, {"weight": W}, X, Q, -(Q * LOG_P * W).sum(1)),
    "probabilities, smoothed": (
        nn.CrossEntropyLoss, {"label_smoothing": 0.2}, X, Q, -((0.8 * Q + 0.05) * LOG_P).sum(1),
    ),
}  # fmt: skip


DEFAULTS = {  # of the functions, which layers pass over
    "nll_loss": (lambda: F.nll_loss(mg.tensor(LOG_P), mg.tensor(T)), -LOG_P[np.arange(6), T * KEPT][KEPT].mean()),
    "nll_loss of float32 weights": (
        lambda: F.nll_loss(mg.tensor(LOG_P), mg.tensor(T), mg.tensor(W, dtype=mg.float32), reduction="sum"),
        -(np.float32(W)[T * KEPT] * LOG_P[np.arange(6), T * KEPT])[KEPT].sum(),
    ),
    "NLLLoss's ignore_index": (
        lambda: nn.NLLLoss(ignore_index=3, reduction="sum")(mg.tensor(LOG_P), mg.tensor(T % 4)),
        -LOG_P[[1, 2, 3, 4], [0, 1, 0, 2]].sum(),
    ),
    "ignoring -1": (lambda: F.nll_loss(mg.tensor(LOG_P), mg.tensor([1] + [-1] * 5), ignore_index=-1), -LOG_P[0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_and_options(name):
    call, expected = DEFAULTS[name]
    np.testing.assert_allclose(call().numpy(), expected, rtol=1e-12)


def test_weights_belong_to_the_state():
    loss = nn.BCEWithLogitsLoss(mg.ones(2), pos_weight=mg.full((2,), 3.0))
    assert {name: w.tolist() for name, w in loss.state_dict().items()} == {"weight": [1, 1], "pos_weight": [3, 3]}
    assert loss.double().pos_weight.dtype == mg.float64
    for factor in ({"weight": mg.ones(2, 1)}, {"pos_weight": mg.ones(2, 1)}):  # would give 4 losses
        with pytest.raises(ValueError, match=r"must broadcast to input's shape \(2,\), not to \(2, 2\)"):
            nn.BCEWithLogitsLoss(**factor)(mg.ones(2), mg.ones(2))
    assert repr(nn.MSELoss(reduction="sum")) == "MSELoss(reduction='sum')"


def as_tensors(options):
    return {name: mg.tensor(value) if isinstance(value, np.ndarray) else value for name, value in options.items()}


@pytest.mark.parametrize("name", LOSSES)
def test_values(name):
    layer, options, x, target, expected = LOSSES[name]
    for reduction, whole in (("none", expected), ("sum", expected.sum()), ("mean", expected.mean())):
        y = layer(**as_tensors(options), reduction=reduction)(mg.tensor(x), mg.tensor(target))
        np.testing.assert_allclose(y.numpy(), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weight", [None, W])
@pytest.mark.parametrize("smoothing", [None, 0.0, 0.2])  # None: nll_loss
def test_classes(smoothing, weight):
    w = np.ones(4) if weight is None else weight
    one_by_one = np.where(KEPT, -w[T * KEPT] * LOG_P[np.arange(6), T * KEPT], 0.0)
    if smoothing:
        one_by_one = 0.8 * one_by_one + np.where(KEPT, 0.05 * -(w * LOG_P).sum(1), 0.0)
    layer, options = (nn.NLLLoss, {}) if smoothing is None else (nn.CrossEntropyLoss, {"label_smoothing": smoothing})
    x = mg.tensor(LOG_P if smoothing is None else X)
    whole = {"none": one_by_one, "sum": one_by_one.sum(), "mean": one_by_one.sum() / w[T[KEPT]].sum()}
    for reduction, expected in whole.items():
        loss = layer(None if weight is None else mg.tensor(weight), **options, reduction=reduction)
        np.testing.assert_allclose(loss(x, mg.tensor(T)).numpy(), expected, rtol=1e-12)


def test_classes_of_places():
    """Inputs (N, V, d1, d2) and a single (V,) are accepted."""
    x, t, w = mg.randn(2, 4, 3, 5), mg.randint(0, 4, (2, 3, 5)), mg.tensor(W)
    flat = x.permute(0, 2, 3, 1).reshape(-1, 4)
    q = mg.rand(2, 4, 3, 5).softmax(1)
    for options in ({"weight": w}, {"weight": w, "label_smoothing": 0.1}, {}):
        a, b = F.cross_entropy(x, t, **options), F.cross_entropy(flat, t.reshape(-1), **options)
        np.testing.assert_allclose(a.item(), b.item(), rtol=1e-6)
        a = F.cross_entropy(x, q, **options, reduction="none")
        b = F.cross_entropy(flat, q.permute(0, 2, 3, 1).reshape(-1, 4), **options, reduction="none")
        np.testing.assert_allclose(a.numpy().ravel(), b.numpy(), rtol=1e-5)
    one = F.cross_entropy(x[0, :, 0, 0], t[0, 0, 0], weight=w)
    assert one.shape == () and F.nll_loss(x, t, reduction="none").shape == (2, 3, 5)
    np.testing.assert_allclose(one.item(), F.cross_entropy(x[0, :, 0, 0], t[0, 0, 0]).item(), rtol=1e-6)


def test_extremes():
    x = mg.tensor([1e4, -1e4, -40.0], dtype=mg.float64, requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(x, mg.tensor([0.0, 1.0, 0.0], dtype=mg.float64), reduction="none")
    np.testing.assert_allclose(loss.detach().numpy(), [1e4, 1e4, np.exp(-40.0)], rtol=1e-12)
    assert np.isnan(F.nll_loss(mg.zeros(2, 3), mg.tensor([-100, -100])).item())
    assert F.nll_loss(mg.zeros(0, 4), mg.zeros(0).long(), reduction="sum").item() == 0
    assert F.mse_loss(mg.zeros(0, 3), mg.zeros(0, 3), reduction="sum").item() == 0
    assert F.mse_loss(mg.ones(2, dtype=mg.float16), mg.zeros(2, dtype=mg.float16)).dtype == mg.float16


def test_padding_idx():
    layer = nn.Embedding(5, 3, padding_idx=-4)
    assert layer.padding_idx == 1 and not layer.weight[1].any() and "padding_idx=1" in repr(layer)
    y = layer(mg.tensor([[1, 2], [1, 0]]))
    y.sum().backward()
    assert layer.weight.grad.sum(1).numpy().tolist() == [3, 0, 3, 0, 0]


WRONG = {
    "broadcasting": (lambda: F.mse_loss(mg.ones(3, 1), mg.ones(3)), ValueError, r"target of shape \(3, 1\)"),
    "ints": (lambda: F.mse_loss(mg.arange(3), mg.arange(3)), TypeError, "floating-point"),
    "a number": (lambda: F.mse_loss(mg.ones(3), 1.0), TypeError, "must be a Tensor, got a float"),
    "reduction": (lambda: F.mse_loss(mg.ones(3), mg.ones(3), reduction="max"), ValueError, "got 'max'"),
    "a number of classes": (lambda: F.cross_entropy(mg.tensor(1.0), mg.tensor(1.0)), ValueError, "must have classes"),
    "weights": (
        lambda: F.cross_entropy(mg.ones(2, 3), mg.ones(2, 3), mg.ones(1)),
        ValueError,
        "one factor for each of 3 classes",
    ),
    "weight": (lambda: F.cross_entropy(mg.ones(2, 3), mg.tensor([0, 1]), mg.ones(2)), ValueError, "each of 3 classes"),
    "class": (lambda: F.nll_loss(mg.ones(2, 3), mg.tensor([0, 3])), IndexError, "index 3"),
    "float labels": (lambda: F.cross_entropy(mg.ones(2, 3), mg.ones(2)), TypeError, "class indices"),
    "an old way": (lambda: nn.CrossEntropyLoss(None, None), TypeError, "positional"),
    "padding": (lambda: nn.Embedding(3, 2, padding_idx=3), ValueError, "out of range"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()
