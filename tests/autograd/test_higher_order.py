"""Derivatives of derivatives: create_graph to third order, Hessians, Hessian-vector products, gradient penalties."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.nn import functional as F


def leaf(*shape):
    return mg.randn(*shape, dtype=mg.float64, requires_grad=True)


def close(x, expected):
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-10, atol=1e-12)


def hessian(f, x):
    """Return the matrix of second derivatives of the scalar f(x), for x (n,)."""
    (g,) = mg.grad(f(x), x, create_graph=True)
    return np.stack([mg.grad(g[i], x, retain_graph=True)[0].numpy() for i in range(x.shape[0])])


@pytest.mark.parametrize(
    "f, derivatives",
    [
        (lambda x: x**5, [lambda v: 5 * v**4, lambda v: 20 * v**3, lambda v: 60 * v**2]),
        (lambda x: x.sin(), [np.cos, lambda v: -np.sin(v), lambda v: -np.cos(v)]),
        (lambda x: (2 * x).exp(), [lambda v, k=k: 2**k * np.exp(2 * v) for k in (1, 2, 3)]),
        (lambda x: (x * x + 1).log(), [
            lambda v: 2 * v / (v * v + 1),
            lambda v: (2 - 2 * v * v) / (v * v + 1) ** 2,
            lambda v: 4 * v * (v * v - 3) / (v * v + 1) ** 3,
        ]),
        (lambda x: x.tanh(), [
            lambda v: 1 - np.tanh(v) ** 2,
            lambda v: -2 * np.tanh(v) * (1 - np.tanh(v) ** 2),
            lambda v: (1 - np.tanh(v) ** 2) * (6 * np.tanh(v) ** 2 - 2),
        ]),
        (lambda x: 1 / (x * x + 2), [
            lambda v: -2 * v / (v * v + 2) ** 2,
            lambda v: (6 * v * v - 4) / (v * v + 2) ** 3,
            lambda v: 24 * v * (2 - v * v) / (v * v + 2) ** 4,
        ]),
    ],
    ids=["pow", "sin", "exp", "log", "tanh", "div"],
)  # fmt: skip
def test_three_derivatives(f, derivatives):
    x = leaf(5)
    y = f(x)
    for derivative in derivatives:
        (y,) = mg.grad(y.sum(), x, create_graph=True)
        close(y, derivative(x.detach().numpy()))


def test_hessian_vector_product():
    x, v = leaf(4), mg.randn(4, dtype=mg.float64)
    A = mg.randn(4, 4, dtype=mg.float64)
    f = (x**3).sum() + (x @ A @ x) * 0.5
    (g,) = mg.grad(f, x, create_graph=True)
    (product,) = mg.grad((g * v).sum(), x)
    close(product, 6 * x.detach().numpy() * v.numpy() + 0.5 * (A + A.T).numpy() @ v.numpy())


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x.softmax(0) ** 2).sum(),
        lambda x: (F.layer_norm(x.reshape(1, 6), 6) ** 3).sum(),
        lambda x: (F.rms_norm(x.reshape(2, 3), 3) ** 3).sum(),
        lambda x: (F.gelu(x) * x.flip(0)).sum(),
        lambda x: (F.scaled_dot_product_attention(*x.reshape(1, 6, 1).split(2, 1)) ** 2).sum(),
        lambda x: mg.einsum("ij,jk->", x.reshape(2, 3), x.reshape(3, 2).tanh()),
        lambda x: (x[[0, 1, 0]] * x[[2, 2, 3]]).sum(),
        lambda x: (x.cumsum(0) ** 3).var() + x.std(),
    ],
)
def test_a_hessian_is_symmetric_and_agrees_with_differences(f):
    x = leaf(6)
    H = hessian(f, x)
    np.testing.assert_allclose(H, H.T, rtol=1e-9, atol=1e-11)
    h = 1e-5

    def gradient(values):
        t = mg.tensor(values, requires_grad=True)
        return mg.grad(f(t), t)[0].numpy()

    for i in range(6):
        step = np.eye(6)[i] * h
        numeric = (gradient(x.detach().numpy() + step) - gradient(x.detach().numpy() - step)) / (2 * h)
        np.testing.assert_allclose(H[i], numeric, rtol=1e-5, atol=1e-7)


def test_the_first_graph_survives_create_graph_and_not_its_absence():
    x = leaf(3)
    y = (x**3).sum()
    mg.grad(y, x, create_graph=True)
    mg.grad(y, x)
    with pytest.raises(mg.GraphError, match="retain_graph"):
        mg.grad(y, x)


def test_mixed_derivatives_through_a_saved_output():
    x = leaf(3)
    y = x.exp()  # saved by its own op, used again below, and dropped in between
    (g,) = mg.grad((y * y).sum(), [x], create_graph=True)
    (h,) = mg.grad((g * y).sum(), [x])
    close(h, 6 * np.exp(3 * x.detach().numpy()))
    x = leaf(3)
    (g,) = mg.grad(x.exp().exp().sum(), x, create_graph=True)  # nobody holds the inner outputs
    e = np.exp(x.detach().numpy())
    close(mg.grad(g.sum(), x)[0], np.exp(e) * (e + e * e))
