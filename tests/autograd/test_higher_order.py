"""Derivatives of derivatives: create_graph to third order, Hessians, Hessian-vector products, gradient penalties."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F


def leaf(*shape):
    return mg.randn(*shape, dtype=mg.float64, requires_grad=True)


def close(x, expected):
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-10, atol=1e-12)


def hessian(f, x):
    """The matrix of second derivatives of the scalar f(x), x of one dim."""
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


def test_hessian_of_logsumexp_and_cross_entropy():
    x = leaf(5)
    p = x.detach().softmax(-1).numpy()
    expected = np.diag(p) - np.outer(p, p)
    np.testing.assert_allclose(hessian(lambda x: x.logsumexp(0), x), expected, atol=1e-14)
    np.testing.assert_allclose(hessian(lambda x: F.cross_entropy(x, mg.tensor(2)), x), expected, atol=1e-14)
    np.testing.assert_allclose(hessian(lambda x: -x.log_softmax(0)[2], x), expected, atol=1e-14)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x.softmax(0) ** 2).sum(),
        lambda x: (F.layer_norm(x.reshape(1, 6), 6) ** 3).sum(),
        lambda x: (F.rms_norm(x.reshape(2, 3), 3) ** 3).sum(),
        lambda x: (F.gelu(x) * x.flip(0)).sum(),
        lambda x: (F.scaled_dot_product_attention(*x.reshape(1, 6, 1).split(2, 1)) ** 2).sum(),
        lambda x: mg.einsum("ij,jk->", x.reshape(2, 3), x.reshape(3, 2).tanh()),
        lambda x: x.prod() + (x[[0, 1, 0]] * x[[2, 2, 3]]).sum(),
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


def test_a_gradient_penalty_trains_parameters():
    w, x = leaf(3, 2), leaf(5, 3)
    y = (x @ w).tanh().sum()
    (g,) = mg.grad(y, x, create_graph=True)
    penalty = ((g * g).sum(1).sqrt() - 1) ** 2
    penalty.sum().backward()

    def value(weights):
        t = 1 - np.tanh(x.detach().numpy() @ weights) ** 2
        return ((np.linalg.norm(t @ weights.T, axis=1) - 1) ** 2).sum()

    base, h = w.detach().numpy(), 1e-6
    for i in np.ndindex(3, 2):
        step = np.zeros((3, 2))
        step[i] = h
        assert w.grad[i].item() == pytest.approx(
            (value(base + step) - value(base - step)) / (2 * h), rel=1e-6, abs=1e-8
        )


def test_backward_with_create_graph_then_clipping():
    a, b = leaf(3), leaf(3)
    ((a + b) ** 2).sum().backward(create_graph=True)
    assert a.grad.requires_grad
    before = np.sqrt((a.grad.detach().numpy() ** 2).sum() * 2)
    assert nn.utils.clip_grad_norm_([a, b], 0.5).item() == pytest.approx(before)
    after = np.sqrt(sum((p.grad.detach().numpy() ** 2).sum() for p in (a, b)))
    assert after == pytest.approx(0.5, rel=1e-5)


def test_grad_accumulates_its_graph():
    x = leaf(3)
    for _ in range(2):
        (x**3).sum().backward(create_graph=True)
    close(mg.grad(x.grad.sum(), x)[0], 12 * x.detach().numpy())


def test_a_graph_made_without_create_graph_ends_there():
    x = leaf(3)
    (g,) = mg.grad((x**3).sum(), x)
    assert not g.requires_grad
    with pytest.raises(mg.GraphError, match="requires no gradient"):
        g.sum().backward()


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


def test_a_saved_output_asked_for_twice_is_one_value():
    class Exp(mg.Op):
        def forward(self, x):
            return self.save_output(np.exp(x))

        def backward(self, dy):
            return dy * (self.saved_output() * 0.25 + self.saved_output() * 0.75)

    x = leaf(3)
    (g,) = mg.grad(Exp.apply(x).sum(), x, create_graph=True)
    close(mg.grad(g.sum(), x)[0], np.exp(x.detach().numpy()))


def test_implicit_inner_step_like_maml():
    w, x = leaf(3), mg.randn(3, dtype=mg.float64)
    inner = (w * x).sum() ** 2
    (g,) = mg.grad(inner, w, create_graph=True)
    adapted = w - 0.1 * g
    (adapted**2).sum().backward()
    jacobian = np.eye(3) - 0.2 * np.outer(x.numpy(), x.numpy())
    close(w.grad, 2 * jacobian @ adapted.detach().numpy())
