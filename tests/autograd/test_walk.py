"""The backward walk: shapes of gradients, self.needs, grad(), misuse, and ops of users."""

import itertools

import numpy as np
import pytest

import minigrad as mg
from minigrad.autograd import registry


def leaf(*shape):
    return mg.randn(*shape, dtype=mg.float64, requires_grad=True)


def same(x, expected):
    np.testing.assert_array_equal(x.detach().numpy(), expected)


def close(x, expected):
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-12, atol=1e-13)


# --------------------------------------------- gradients have their input's shape and dtype; no others are computed


class Wrong(mg.Op):
    """An op whose backward returns answer(dy)."""

    def forward(self, x, answer):
        return x * 1

    def backward(self, dy):
        return self.answer(dy)


class WrongBroadcast(Wrong):
    broadcasts = True


@pytest.mark.parametrize("op", [Wrong, WrongBroadcast])
@pytest.mark.parametrize(
    "answer, error, words",
    [
        (lambda dy: dy.sum(), RuntimeError, r"shape \(\).*shape \(2, 3\)"),
        (lambda dy: dy.T, RuntimeError, r"shape \(3, 2\).*shape \(2, 3\)"),
        (lambda dy: dy.float(), RuntimeError, "float32.*float64"),
        (lambda dy: (dy, dy), RuntimeError, "2 gradients for 1 inputs"),
        (lambda dy: dy.numpy(), TypeError, "ndarray"),
        (lambda dy: 0.0, TypeError, "float"),
    ],
)
def test_a_wrong_gradient_raises_and_names_the_op(op, answer, error, words):
    with pytest.raises(error, match=words) as caught:
        op.apply(leaf(2, 3), answer=answer).sum().backward()
    assert op.name in str(caught.value) and "test_walk.py:" in str(caught.value)


def test_broadcasting_is_undone_by_the_engine():
    for shapes in [((3, 4), (4,)), ((2, 1, 3), (4, 1)), ((), (2, 0)), ((1, 1), (5,)), ((0, 3), (1, 3))]:
        a, b = leaf(*shapes[0]), leaf(*shapes[1])
        (a + b).sum().backward()
        total = np.broadcast_shapes(*shapes)
        for x in (a, b):
            assert x.grad.shape == x.shape and x.grad.dtype == x.dtype
            same(x.grad, np.full(x.shape, np.prod(total) / max(x.numel(), 1)))


class Spy(mg.Op):
    """y = a + b + c. Its backward notes self.needs."""

    asked: list = []

    def forward(self, a, b, c):
        return a + b + c

    def backward(self, dy):
        self.asked.append(self.needs)
        return tuple(dy if need else None for need in self.needs)


@pytest.mark.parametrize("required", list(itertools.product([False, True], repeat=3))[1:])
def test_an_op_learns_what_is_needed(required):
    xs = [mg.ones(2, requires_grad=r) for r in required]
    Spy.asked.clear()
    y = Spy.apply(*xs)
    y.sum().backward(retain_graph=True)
    assert Spy.asked == [required]
    first = required.index(True)
    mg.grad(y.sum(), [xs[first]], retain_graph=True)
    y.sum().backward()
    assert Spy.asked[1:] == [tuple(i == first for i in range(3)), required]


def _several_floats(case):
    return sum(isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in case.draw(np.random.default_rng(0))) > 1


_CASES = [(d, i) for d in registry.values() if d.builtin for i, case in enumerate(d.cases) if _several_floats(case)]


# ------------------------------------------------------------------------------------------------ grad() and backward()


def test_grad_touches_no_grad_attribute():
    x, y = leaf(3), leaf(3)
    found = mg.grad((x * y).sum(), [y, x])
    assert isinstance(found, tuple) and x.grad is None and y.grad is None
    same(found[0], x.detach().numpy())
    same(found[1], y.detach().numpy())
    assert not found[0].requires_grad


def test_unused_inputs():
    x, unused = leaf(2), leaf(2)
    y = (x * 2).sum()
    with pytest.raises(mg.GraphError, match=r"do not depend on input 1.*allow_unused"):
        mg.grad(y, [x, unused], retain_graph=True)
    assert mg.grad(y, [x, unused], allow_unused=True)[1] is None


def test_an_unused_output_of_an_op_has_gradient_zero():
    x = leaf(6)
    parts = x.split(2)
    (parts[1] * 3).sum().backward()
    same(x.grad, [0, 0, 3, 3, 0, 0])
    x = leaf(2, 3)
    values, indices = x.topk(2)
    assert values.requires_grad and not indices.requires_grad
    values[:, 0].sum().backward()
    same(x.grad, (x.detach() == x.detach().amax(1, keepdim=True)).double().numpy())


def test_a_diamond_in_which_depth_first_order_would_be_wrong():
    x = mg.tensor(3.0, requires_grad=True)
    y = x * x
    z = y * y + y.exp() * 0 + y  # y is used thrice, at different depths
    z.backward()
    assert x.grad.item() == 2 * 9 * 6 + 6


@pytest.mark.parametrize(
    "misuse, error, words",
    [
        (lambda x: mg.ones(2).sum().backward(), mg.GraphError, "requires no gradient"),
        (lambda x: (x * 2).backward(), mg.GraphError, r"shape \(2, 3\) needs a `gradient`"),
        (lambda x: x.sum().backward(mg.ones(3)), ValueError, r"shape \(\).*\(3,\)"),
        (lambda x: (x * 2).backward(mg.ones(2, 3)), ValueError, "float64.*float32"),
        (lambda x: (x * 2).backward(np.ones((2, 3))), TypeError, "Tensor"),
        (lambda x: mg.grad(x.sum(), mg.ones(2)), mg.GraphError, "input 0 requires no gradient"),
        (lambda x: (x * 2).requires_grad_(False), mg.GraphError, "leaf"),
        (lambda x: mg.ones(2).register_hook(print), mg.GraphError, "register_hook"),
        (lambda x: mg.ones(2).retain_grad(), mg.GraphError, "retain_grad"),
        (lambda x: setattr(mg.ones(2), "grad", mg.ones(2)), mg.GraphError, "requires no gradient"),
        (lambda x: setattr(x, "grad", mg.ones(2)), ValueError, r"shape \(2, 3\)"),
        (lambda x: setattr(x, "data", mg.ones(2)), ValueError, r"shape \(2, 3\)"),
    ],
)
def test_misuse(misuse, error, words):
    with pytest.raises(error, match=words):
        misuse(leaf(2, 3))


# ----------------------------------------------------------------------------------------------------- ops of one's own


class Cube(mg.Op):
    """y = k x³;   dx = 3 k x² dy"""

    cases = [mg.case((3, 2), k=2.0)]

    def forward(self, x, k=2.0):
        self.save_inputs(x)
        return k * self.backend.pow(x, 3)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return dy * (3 * self.k * x * x)


def test_an_op_of_ones_own_has_all_derivatives():
    x = leaf(3)
    y = Cube.apply(x)
    values = x.detach().numpy()
    close(y, 2 * values**3)
    expected = [6 * values**2, 12 * values, np.full(3, 12.0)]
    for derivative in expected:
        (y,) = mg.grad(y.sum(), x, create_graph=True)
        close(y, derivative)
    assert registry["cube"].source is Cube and not registry["cube"].builtin


def test_a_forward_without_return_says_so():
    class Returnless(mg.Op):
        def forward(self, x):
            x * 1

    with pytest.raises(TypeError, match="returnless: forward returned None; its return statement is missing"):
        Returnless.apply(leaf(2))


def test_an_op_that_saves_nothing_says_so():
    class Forgetful(mg.Op):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            return dy * self.saved_inputs()[0]

    with pytest.raises(RuntimeError, match=r"forgetful.*save_inputs"):
        Forgetful.apply(leaf(2)).sum().backward()


def test_ops_need_a_tensor_and_a_backward():
    class NoBackward(mg.Op):
        def forward(self, x):
            return x * 1

    with pytest.raises(TypeError, match="no_backward needs at least one Tensor"):
        NoBackward.apply(np.ones(2))
    with pytest.raises(TypeError, match="no_backward has no gradient"):
        NoBackward.apply(leaf(2)).sum().backward()
