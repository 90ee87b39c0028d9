"""No two gradients share memory, and what an op saved is freed as soon as its backward has run."""

import itertools
import weakref

import numpy as np
import pytest

import minigrad as mg
from minigrad.backend import reference


def leaf(*shape):
    return mg.randn(*shape, dtype=mg.float64, requires_grad=True)


def shared(*tensors):
    """Return the pairs of tensors that share memory."""
    arrays = [t.array for t in tensors]
    return [(i, j) for (i, a), (j, b) in itertools.combinations(enumerate(arrays), 2) if np.shares_memory(a, b)]


def same(x, expected):
    np.testing.assert_array_equal(x.detach().numpy(), expected)


# ----------------------------------------------------------------------------------- every .grad has memory of its own


@pytest.mark.parametrize("uses", range(1, 7))
def test_contributions_borrow_then_allocate_then_add_in_place(uses, monkeypatch):
    in_place = []

    def add(a, b, **kwargs):
        in_place.extend(kwargs)
        return np.add(a, b, **kwargs)

    monkeypatch.setattr(mg.backend, "cpu", lambda: reference)
    x = leaf(3)
    y = mg.stack([x.alias() for _ in range(uses)])
    monkeypatch.setattr(reference, "add", add)
    y.backward(mg.ones(uses, 3, dtype=mg.float64))
    same(x.grad, np.full(3, uses))
    assert len(in_place) == max(uses - 2, 0)


@pytest.mark.parametrize("create_graph", [False, True])
def test_nobody_shares_memory_with_a_grad(create_graph):
    a, b, c = leaf(4), leaf(4), leaf(2, 2)
    cotangent = mg.randn(4, dtype=mg.float64)
    before = cotangent.numpy()
    y = (a + b) + c.reshape(4) + a + b.alias() + a
    y.retain_grad()
    (y * 2).backward(cotangent, create_graph=create_graph)
    assert shared(a.grad, b.grad, c.grad, y.grad, cotangent, a, b, c) == []
    with mg.no_grad():
        for x in (a, b, c, y):
            assert x.grad.is_contiguous()
            x.grad.mul_(7)  # and all may be changed in place, as clipping does
    same(cotangent, before)
    for x, n in ((a, 3), (b, 2), (y, 1)):
        np.testing.assert_allclose(x.grad.detach().numpy(), 14 * n * before, rtol=1e-14)


def test_results_of_grad_share_nothing():
    a, b = leaf(3), leaf(3)
    cotangent = mg.ones(3, dtype=mg.float64)
    assert shared(*mg.grad(a + b, [a, b, a], cotangent), cotangent) == []


def test_inputs_named_twice_are_added_once_whatever_else_is_named():
    x, w = leaf(3), leaf(3)
    for inputs in ([x, x], [x, w, x], x):
        x.grad = w.grad = None
        (x * w).sum().backward(inputs=inputs)
        same(x.grad, w.detach().numpy())


def test_accumulation_is_exactly_twice_and_leaves_the_old_grad_alone():
    w, x = leaf(4, 3), mg.randn(5, 4, dtype=mg.float64)

    def loss():
        return ((x @ w).tanh() ** 2).sum()

    loss().backward()
    held, values = w.grad, w.grad.numpy()
    loss().backward()
    same(w.grad, 2 * values)
    same(held, values)
    assert held is not w.grad and shared(held, w.grad) == []


class Product(mg.Op):
    """y = Σ a b. Its backward returns the arrays that it saved, which is right for dy = 1 only."""

    private = False

    def forward(self, a, b):
        if self.private:
            self.save(a, b)
        else:
            self.save_inputs(a, b)
        return (a * b).sum()

    def backward(self, dy):
        a, b = self.saved() if self.private else self.saved_inputs()
        return b, a


class PrivateProduct(Product):
    private = True


@pytest.mark.parametrize("op", [Product, PrivateProduct])
def test_an_op_may_return_what_it_saved(op):
    a, b = leaf(3), leaf(3)
    y = op.apply(a, b)
    y.backward(retain_graph=True)
    assert shared(a.grad, b.grad, a, b) == []
    with mg.no_grad():
        a.grad.zero_()
        b.grad.zero_()
    a.grad = b.grad = None
    y.backward()
    same(a.grad, b.detach().numpy())
    same(b.grad, a.detach().numpy())


# ----------------------------------------------------------------------------- saved arrays are freed as the walk goes


class Keep(mg.Op):
    """y = 2x, which saves an array."""

    alive: list = []

    def forward(self, x):
        private = x + 0
        self.alive.append(weakref.ref(private))
        self.save(private)
        return x * 2

    def backward(self, dy):
        self.saved()
        return dy * 2.0


SAVE_NOTHING = {
    "cast": lambda x: x.to(mg.float64),
    "view": lambda x: x.view(3, 1),
    "slice": lambda x: x[1:],
    "sum": lambda x: x.sum(),
    "x + 1": lambda x: x + 1.0,
    "cat": lambda x: mg.cat([x, x]),
    "diagonal": lambda x: x.expand(3, 3).diagonal(),
}


@pytest.mark.parametrize("function", SAVE_NOTHING.values(), ids=SAVE_NOTHING)
@pytest.mark.parametrize("how", ["plain", "captured"])
def test_an_op_that_saved_nothing_can_be_walked_again(function, how):
    x = leaf(3)

    def step():
        x.grad = None
        y = function(x)
        (y * y).sum().backward()
        first = x.grad.clone()
        (y * y).sum().backward()  # a new graph on y
        return x.grad - first, first

    step = mg.capture(step) if how == "captured" else step
    for _ in range(2):
        second, first = step()
        assert second.tolist() == first.tolist()


def test_a_second_backward_says_retain_graph():
    for f in (lambda x: (x * x).sum(), lambda x: x.exp().sum(), lambda x: (x * 2.0).sum()):
        y = f(leaf(3))
        y.backward()
        with pytest.raises(mg.GraphError, match=r"retain_graph=True") as caught:
            y.backward()
        assert "test_grad_memory.py:" in str(caught.value)
