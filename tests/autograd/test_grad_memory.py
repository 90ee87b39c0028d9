"""Whose memory a gradient lies in (R3), and when what ops saved is freed (R6)."""

import itertools
import weakref

import numpy as np
import pytest

import minigrad as mg
from minigrad.backend import reference


def leaf(*shape):
    return mg.randn(*shape, dtype=mg.float64, requires_grad=True)


def shared(*tensors):
    """Pairs of tensors that lie in the same memory."""
    arrays = [t.array for t in tensors]
    return [(i, j) for (i, a), (j, b) in itertools.combinations(enumerate(arrays), 2) if np.shares_memory(a, b)]


def same(x, expected):
    np.testing.assert_array_equal(x.detach().numpy(), expected)


# ------------------------------------------------------------------------------------ R3: whose memory a gradient is in


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
    before = cotangent.numpy().copy()
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


@pytest.mark.parametrize("cotangent", [None, 3.0])
def test_one_gradient_for_two_leaves(cotangent):
    a, b = leaf(4), leaf(2, 2)
    y = a + b.reshape(4) if cotangent else ((a + b.reshape(4)) * 3).sum()
    y.backward(None if cotangent is None else mg.full((4,), cotangent, dtype=mg.float64))
    with mg.no_grad():
        a.grad.zero_()
    same(b.grad, np.full((2, 2), 3.0))


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("f", [lambda x: x.sum(), lambda x: x.sum() * 1.0, lambda x: (x.T * 1.0).sum()])
def test_a_grad_is_compact_and_writable(f, create_graph):
    x = leaf(2, 3)
    f(x).backward(create_graph=create_graph)
    assert x.grad.is_contiguous()
    with mg.no_grad():
        x.grad.mul_(2)
    same(x.grad, np.full((2, 3), 2.0))


def test_results_of_grad_share_nothing():
    a, b = leaf(3), leaf(3)
    cotangent = mg.ones(3, dtype=mg.float64)
    assert shared(*mg.grad(a + b, [a, b, a], cotangent), cotangent) == []


def test_a_root_that_is_a_leaf_copies_its_cotangent():
    x, c = leaf(3), mg.ones(3, dtype=mg.float64)
    x.backward(c)
    assert shared(x.grad, c) == []


def test_backward_to_chosen_inputs():
    x, w = leaf(3), leaf(3)
    y = (x * w).sum()
    y.backward(inputs=[w], retain_graph=True)
    assert x.grad is None
    y.backward(inputs=[w, w])  # named twice, added once
    same(w.grad, 2 * x.detach().numpy())


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
    held, values = w.grad, w.grad.numpy().copy()
    loss().backward()
    same(w.grad, 2 * values)
    same(held, values)
    assert held is not w.grad and shared(held, w.grad) == []


def test_what_an_op_saw_in_its_backward_does_not_change_later():
    seen = []

    class Spy(mg.Op):
        def forward(self, x):
            return x.copy()

        def backward(self, dy):
            seen.append((dy, dy.numpy().copy()))
            return dy

    x = leaf(3)
    y = Spy.apply(x) + Spy.apply(x) * 2 + Spy.apply(x) * 3 + x + x
    y.backward(mg.ones(3, dtype=mg.float64))
    same(x.grad, np.full(3, 8.0))
    assert len(seen) == 3
    for dy, values in seen:
        same(dy, values)


class Product(mg.Op):
    """y = Σ a b, whose backward is right for dy = 1 only and hands out the arrays that it saved."""

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


def test_a_privately_saved_array_given_to_two_inputs_is_not_shared():
    class Twice(mg.Op):
        def forward(self, a, b):
            self.save(np.ones_like(a))
            return a + b

        def backward(self, dy):
            return self.saved()[0], self.saved()[0]

    a, b = leaf(3), leaf(3)
    Twice.apply(a, b).sum().backward()
    assert shared(a.grad, b.grad) == []


# ------------------------------------------------------------------------------------------- R6: freed as the walk goes


class Keep(mg.Op):
    """y = 2x, holding an array in between."""

    alive: list = []

    def forward(self, x):
        private = x + 0
        self.alive.append(weakref.ref(private))
        self.save(private)
        return x * 2

    def backward(self, dy):
        self.saved()
        return dy * 2.0


def test_saved_arrays_are_freed_during_backward():
    Keep.alive.clear()
    x = leaf(8)
    middle = x
    for _ in range(5):
        middle = Keep.apply(middle)
    y = middle
    for _ in range(5):
        y = Keep.apply(y)
    count = []
    middle.register_hook(lambda g: count.append(sum(ref() is not None for ref in Keep.alive)))
    assert sum(ref() is not None for ref in Keep.alive) == 10
    y.sum().backward()
    assert count == [5]
    assert sum(ref() is not None for ref in Keep.alive) == 0


def test_a_second_backward_says_retain_graph():
    for f in (lambda x: (x * x).sum(), lambda x: x.exp().sum(), lambda x: (x + 1).sum()):
        y = f(leaf(3))
        y.backward()
        with pytest.raises(mg.GraphError, match=r"retain_graph=True") as caught:
            y.backward()
        assert "test_grad_memory.py:" in str(caught.value)


def test_retain_graph_gives_the_same_bits():
    x, w = leaf(4, 5), leaf(5, 5)
    y = ((x @ w).softmax(-1) * x.tanh()).logsumexp(0).sum()
    first = mg.grad(y, [x, w], retain_graph=True)
    second = mg.grad(y, [x, w], retain_graph=True)
    y.backward()
    for a, b, leaf_ in zip(first, second, (x, w)):
        same(a, b.numpy())
        same(a, leaf_.grad.numpy())
    with pytest.raises(mg.GraphError, match="retain_graph"):
        y.backward()


def test_what_a_hook_returns_is_not_taken_for_a_grad():
    x, kept = leaf(3), []

    def double(g):
        kept.append(g * 2)
        return kept[-1]

    x.register_hook(double)
    (x * 3).sum().backward()
    with mg.no_grad():
        x.grad.zero_()
    same(kept[0], np.full(3, 6.0))
