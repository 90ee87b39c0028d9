"""gradcheck on tensors of somebody's own engine: numbers, as in micrograd, and arrays."""

import math

import numpy as np
import pytest

from minigrad.gradcheck import gradcheck

X = np.random.default_rng(0).standard_normal((3, 4))


class Node:
    """backward() in the order of a topological sort, which starts with 1."""

    def __init__(self, data, parents=(), back=None):
        self.data, self.parents, self.back, self.grad = data, parents, back, 0.0

    def __add__(self, other):
        return type(self)(self.data + other.data, (self, other), lambda dy: (dy, dy))

    def __mul__(self, other):
        return type(self)(self.data * other.data, (self, other), lambda dy: (dy * other.data, dy * self.data))

    def order(self):  # parents first
        found = {}

        def visit(node):
            if id(node) not in found:
                for parent in node.parents:
                    visit(parent)
                found[id(node)] = node

        visit(self)
        return list(found.values())

    def backward(self):
        self.grad = self.grad * 0 + 1.0
        for node in reversed(self.order()):
            for parent, dx in zip(node.parents, node.back(node.grad) if node.back else ()):
                parent.grad = parent.grad + dx


class Number(Node):
    def tanh(self, factor=1.0):
        y = math.tanh(self.data)
        return Number(y, (self,), lambda dy: (factor * dy * (1 - y * y),))

    def relu(self):
        return Number(max(0.0, self.data), (self,), lambda dy: (dy * (self.data > 0),))

    def tanh_by_cosh(self):  # OverflowError from 711 on
        return Number(math.tanh(self.data), (self,), lambda dy: (dy / math.cosh(self.data) ** 2,))


class Array(Node):
    def exp(self):
        y = np.exp(self.data)
        return type(self)(y, (self,), lambda dy: (dy * y,))

    def softmax(self):
        return self.softmax_of(1)

    def softmax_of(self, share):
        p = np.exp(self.data - self.data.max(-1, keepdims=True))
        p = p / p.sum(-1, keepdims=True)
        return type(self)(p, (self,), lambda dy: (p * (dy - share * (dy * p).sum(-1, keepdims=True)),))

    def rows(self, i):
        def back(dy):
            dx = np.zeros_like(self.data)
            np.add.at(dx, i, dy)
            return (dx,)

        return type(self)(self.data[i], (self,), back)


class Summed(Array):
    def __init__(self, *how):
        super().__init__(*how)
        self.grad = np.zeros_like(self.data)

    def sum(self):
        return Summed(self.data.sum(), (self,), lambda dy: (dy * np.ones_like(self.data),))


class Seeded(Array):
    """Whose backward takes a gradient, and works with float32 inside."""

    def __init__(self, data, *how):
        super().__init__(np.asarray(data, np.float32), *how)
        self.grad = None

    def backward(self, gradient=None):
        gradient = np.ones_like(self.data) if gradient is None else gradient
        self.grad = gradient if self.grad is None else self.grad + gradient
        for parent, dx in zip(self.parents, self.back(gradient) if self.back else ()):
            parent.backward(dx)


class Once(Number):
    """Which forgets to accumulate."""

    def backward(self):
        self.grad = 1.0
        for node in reversed(self.order()):
            for parent, dx in zip(node.parents, node.back(node.grad) if node.back else ()):
                parent.grad = dx


def test_an_engine_of_numbers():
    a, b = Number(0.3), Number(-1.2)
    assert gradcheck(lambda a, b: (a * b + a).tanh() * a, a, b).verdict == "PASS"
    assert gradcheck(lambda both: (both[0] * both[1], both[0] * both[0]), [a, b]).verdict == "PASS"
    assert gradcheck(Number.tanh_by_cosh, a).verdict == "PASS"
    two = Number(-2.0)  # both relus have their kink at 0, which a probe rounds a to
    assert gradcheck(lambda a: a.relu() + (a * two).relu() * two, a).verdict == "PASS"
    assert (a.data, a.grad, b.grad) == (0.3, 0.0, 0.0)  # the user's own are not touched


@pytest.mark.parametrize("kind", [Summed, pytest.param(Seeded, marks=pytest.mark.slow)])
def test_an_engine_of_arrays(kind):
    assert gradcheck(lambda x, y: x.exp() * y, kind(X[0, :2]), kind(X[1, :2])).verdict == "PASS"


def test_ops_with_what_they_hold():
    assert gradcheck(Summed.softmax, Summed(X)).verdict == "PASS"
    assert gradcheck(lambda x, y: x.exp().sum() * y.exp().sum(), Summed(X), Summed(X[0])).verdict == "PASS"
    assert gradcheck(Summed.rows, Summed(X), np.array([0, 2, 2])).verdict == "PASS"  # indices vary with the sizes


@pytest.mark.parametrize("f, inputs, found", [
    (lambda a: a.tanh(factor=0.5), [Number(0.3)], "ratio     0.5"),
    (lambda a: a + a, [Once(0.3)], "one of two uses or contributions is missing"),
    (lambda x: x.softmax_of(0), [Summed(X)], "48 of 144 elements"),
    (lambda x: Seeded(np.sin(x.data), (x,), lambda dy: (dy * x.data,)), [Seeded(X)], "float32 inside"),
])  # fmt: skip
def test_wrong_ones_fail(f, inputs, found):
    report = gradcheck(f, *inputs, raise_on_fail=False)
    assert report.verdict == "FAIL" and found in report.message()


def test_what_cannot_be_checked_says_so():
    with pytest.raises(TypeError, match=r"Array.backward\(\) must start with a gradient of shape \(3, 4\)"):
        gradcheck(lambda x: x.exp(), Array(X))
    with pytest.raises(TypeError, match="only PyTorch's functions and ours are checked at order 2"):
        gradcheck(lambda x: x.exp(), Summed(X), order=2)
    with pytest.raises(TypeError, match="returned no tensor of your engine of floats, but ndarray"):
        gradcheck(lambda x: x.exp().data, Summed(X))
    with pytest.raises(TypeError, match="vjp is for functions of NumPy arrays"):
        gradcheck(lambda x: x.exp(), Summed(X), vjp=lambda dy, x: dy)
    with pytest.raises(RuntimeError, match=r"returned a gradient of shape \(3, 4\).* for input 1, which has shape"):
        gradcheck(lambda x, b: (x + b) * x, Summed(X), Summed(X[0]))  # which does not sum over what was broadcast
