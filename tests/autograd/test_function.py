"""autograd.Function: both styles, what is kept, derivatives of any order, and what is refused."""

import gc
import weakref

import numpy as np
import pytest

import minigrad as mg
from minigrad.autograd import Function, GraphError, once_differentiable
from minigrad.gradcheck import gradcheck


class Exp(Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y


class Scaled(Function):
    """Two outputs, one without a gradient; inputs that are broadcast; arguments that are no Tensors."""

    @staticmethod
    def forward(ctx, x, w, factor, name="y"):
        ctx.save_for_backward(x, None, w)
        ctx.factor = factor
        positive = x > 0
        ctx.mark_non_differentiable(positive)
        return x * w * factor, positive

    @staticmethod
    def backward(ctx, dy, _):
        x, nothing, w = ctx.saved_tensors
        assert nothing is None
        dx = dy * w * ctx.factor if ctx.needs_input_grad[0] else None
        dw = dy * x * ctx.factor if ctx.needs_input_grad[1] else None  # of y's shape: it is summed to w's
        return dx, dw, None, None


class Power(Function):
    """The newer style."""

    @staticmethod
    def forward(x, p):
        return x**p

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.p = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * ctx.p * x ** (ctx.p - 1), None


class InNumPy(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return mg.tensor(np.sin(x.numpy()))

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return mg.tensor(dy.numpy() * np.cos(x.numpy()))


def test_gradients(thorough):
    x, w, probes = mg.randn(3, 4), mg.randn(4), "all" if thorough else ("modes",)
    for order in (1, 2):
        gradcheck(Exp.apply, x, order=order, probes=probes)
        gradcheck(lambda x, w: Scaled.apply(x, w, 3.0, "z")[0], x, w, order=order, probes=probes)
        gradcheck(lambda x: Power.apply(x, 3), x, order=order, probes=probes)
    gradcheck(InNumPy.apply, x, probes=probes)


def test_a_wrong_one_is_found():
    class Wrong(Exp):
        @staticmethod
        def backward(ctx, dy):
            return Exp.backward(ctx, dy) * 1.01

    with pytest.raises(Exception, match="FAIL"):
        gradcheck(Wrong.apply, mg.randn(3))


def test_what_needs_a_gradient():
    x, w = mg.randn(3, requires_grad=True), mg.randn(3)
    y, positive = Scaled.apply(x, w, 2.0)
    assert y.requires_grad and not positive.requires_grad and y.op.name == "scaled"
    assert mg.grad(y.sum(), x)[0].shape == (3,)
    with mg.no_grad():
        assert not Exp.apply(x).requires_grad
    assert not Exp.apply(w).requires_grad


def test_what_needs_a_gradient_is_known_in_forward():
    seen, w = [], mg.ones(2, requires_grad=True)

    def forward(ctx, x, y):
        seen.append((ctx.needs_input_grad, x.requires_grad, (x * w).requires_grad))
        return x * y

    function(forward).apply(mg.ones(2, requires_grad=True), mg.ones(2))
    assert seen == [((True, False), False, False)]


def test_changes_and_second_walks_are_noticed():
    x = mg.randn(3, requires_grad=True)
    y = Exp.apply(x)
    with mg.no_grad():
        y.mul_(2)
    with pytest.raises(GraphError, match="in-place change"):
        y.sum().backward()
    z = mg.randn(3).mul_(1)
    w = mg.randn(3, requires_grad=True)
    y, _ = Scaled.apply(w, z, 1.0)
    z.add_(1)
    with pytest.raises(GraphError, match="in-place change"):
        y.sum().backward()
    y = Exp.apply(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * y.detach().numpy(), rtol=1e-6)
    with pytest.raises(GraphError, match="freed"):
        y.sum().backward()


def test_the_graph_goes_with_its_last_tensor():
    x = mg.randn(3, requires_grad=True)
    gc.disable()
    try:
        y = Exp.apply(x)
        (dx,) = mg.grad((y * y).sum(), x, create_graph=True)
        (ddx,) = mg.grad(dx.sum(), x)
        np.testing.assert_allclose(ddx.numpy(), 4 * np.exp(2 * x.detach().numpy()), rtol=1e-5)
        op = weakref.ref(y.op)
        del y, dx, ddx
        assert op() is None
    finally:
        gc.enable()


def test_an_output_that_is_gone():
    """backward needs exp's output, of which the program keeps only the sum."""
    x = mg.randn(3, requires_grad=True, dtype=mg.float64)
    total = Exp.apply(x).sum()
    (dx,) = mg.grad(total, x, create_graph=True)
    np.testing.assert_allclose(mg.grad(dx.sum(), x)[0].numpy(), np.exp(x.detach().numpy()), rtol=1e-14)


def test_once_differentiable():
    x = mg.randn(3, requires_grad=True)
    (dx,) = mg.grad(InNumPy.apply(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(dx.detach().numpy(), np.cos(x.detach().numpy()), rtol=1e-6)
    with pytest.raises(GraphError, match="InNumPy is once_differentiable"):
        mg.grad(dx.sum(), x, allow_unused=True)


def test_once_differentiable_of_several_inputs():
    class Product(Function):
        @staticmethod
        def forward(ctx, x, y, factor):
            ctx.save_for_backward(x, y)
            return x * y * factor

        @staticmethod
        @once_differentiable
        def backward(ctx, dz):
            """Its own."""
            x, y = ctx.saved_tensors
            return dz * y, dz * x, None

    x, y = leaf(2.0), leaf(3.0)
    for create_graph in (False, True):
        dx, dy = mg.grad(Product.apply(x, y, 1.0), [x, y], create_graph=create_graph)
        assert (dx.item(), dy.item()) == (3, 2)
    assert Product.backward.__doc__ == "Its own."


def leaf(value):
    return mg.tensor(value, requires_grad=True)


def test_an_output_may_be_constant():
    def forward(ctx, x):
        y = x * 2
        ctx.mark_non_differentiable(y)
        return x * 3, y

    a, b = function(forward, lambda ctx, da, db: da * 3).apply(leaf(1.0))
    assert a.requires_grad and not b.requires_grad and b.is_leaf


def function(forward, backward=lambda ctx, dy: dy):
    return type("Mine", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def test_dtypes_and_identity():
    x = mg.randn(2, 3, requires_grad=True)
    reversal = function(lambda ctx, x: x, lambda ctx, dy: -dy.double())  # the gradient is cast, as in PyTorch
    reversal.apply(x).sum().backward()
    assert x.grad.dtype == mg.float32 and (x.grad == -1).all()
    extra = function(lambda ctx, x: x * 1, lambda ctx, dy: (dy, None, None))
    assert (mg.grad(extra.apply(x).sum(), x)[0] == 1).all()
    assert function(lambda ctx, x: x.sum()).apply(x).shape == ()
    assert mg.autograd.grad is mg.grad


X = mg.ones(2, requires_grad=True)
WRONG = {
    "an instance": (lambda: Exp(), TypeError, r"call Exp.apply"),
    "no Tensor": (lambda: Exp.apply(3.0), TypeError, "needs at least one Tensor"),
    "an array": (lambda: function(lambda ctx, x: np.ones(2)).apply(X), TypeError, "must return Tensors, got ndarray"),
    "nothing": (lambda: function(lambda ctx, x: None).apply(X), TypeError, "must return Tensors, got NoneType"),
    "none": (lambda: function(lambda ctx, x: ()).apply(X), TypeError, r"must return a Tensor or several, got \(\)"),
    "saved": (lambda: function(lambda ctx, x: ctx.save_for_backward(3)).apply(X), TypeError, "takes Tensors"),
    "dirty": (lambda: function(lambda ctx, x: ctx.mark_dirty(x)).apply(X), GraphError, "in place"),
    "too few": (
        lambda: function(lambda ctx, x, y: x * y, lambda ctx, dy: dy).apply(X, X).sum().backward(),
        RuntimeError, "returned 1 gradients for 2 inputs",
    ),
    "too many": (
        lambda: function(lambda ctx, x: x * 1, lambda ctx, dy: (dy, dy)).apply(X).sum().backward(),
        RuntimeError, "returned 2 gradients for 1 inputs",
    ),
    "no backward": (
        lambda: type("Half", (Function,), {"forward": staticmethod(lambda ctx, x: x * 1)}).apply(X).sum().backward(),
        TypeError, "must define backward",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()
