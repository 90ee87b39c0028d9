"""Step 4: a neuron, and how it learns.

A neuron weighs its inputs, adds a bias, and squashes the sum: tanh(w₁x₁ + w₂x₂ + b). Two layers of neurons can bend a
line around a shape. They learn it in steps. The loss says how wrong they are, backward() says in which direction each
weight makes it worse, and a step in the other direction makes it a little better. All training is these three lines,
many times. (Here one place has no dots: it has code with a mistake in it.)

Predict before you run this file: what happens if nobody sets the grads back to 0.0 between two steps?
"""

import math
import random
from itertools import pairwise

from step3_order import Value


class Neuron:
    def __init__(self, n, rng):
        self.w = [Value(rng.uniform(-1, 1)) for _ in range(n)]
        self.b = Value(0.0)

    def __call__(self, xs):
        # your turn: the weighted sum of xs, plus the bias, through tanh
        return sum((w * x for w, x in zip(self.w, xs)), self.b).tanh()
        # end


class MLP:
    """Layers of neurons: MLP([2, 6, 6, 1]) takes two numbers, has two layers of six, and returns one number."""

    def __init__(self, sizes, rng):
        self.layers = [[Neuron(n, rng) for _ in range(m)] for n, m in pairwise(sizes)]

    def __call__(self, xs):
        for layer in self.layers:
            xs = [neuron(xs) for neuron in layer]
        return xs[0]

    def parameters(self):
        return [p for layer in self.layers for neuron in layer for p in (*neuron.w, neuron.b)]


def moons(n, rng):
    """Return n points of two half moons that reach into each other, [(x, y)], and the label of each, 1 or -1."""
    points, labels = [], []
    for i in range(n):
        t, sign = math.pi * rng.random(), 1 if i % 2 else -1
        points.append((sign * (math.cos(t) - 0.5), sign * (math.sin(t) - 0.25)))
        labels.append(sign)
    return points, labels


def loss_of(model, points, labels):
    """Return the mean of (output - label)²."""
    return sum(((model(p) - label) ** 2 for p, label in zip(points, labels)), Value(0.0)) * (1 / len(points))


def step(model, points, labels, lr=0.5):
    """Make one step of training. Return the loss before it."""
    loss = loss_of(model, points, labels)
    # your turn: a line is missing here. Run the file, watch the loss, and find out which
    # ~loss.backward()
    # ~for p in model.parameters():
    # ~    p.data -= lr * p.grad
    for p in model.parameters():
        p.grad = 0.0
    loss.backward()
    for p in model.parameters():
        p.data -= lr * p.grad
    # end
    return loss.data


if __name__ == "__main__":
    from pictures import boundary, stop_if_unfinished

    stop_if_unfinished()
    rng = random.Random(1)
    model, (points, labels) = MLP([2, 6, 6, 1], rng), moons(24, rng)
    seen = {}
    for i in range(101):
        loss = step(model, points, labels)
        if i % 10 == 0:
            print(f"step {i}: loss {loss:.3f}")
        if i in (0, 20, 100):
            seen[f"step {i}"] = [[model((x / 10, y / 10)).data for x in range(-20, 21)] for y in range(-20, 21)]
    boundary(seen, points, labels, 2.0, "neuron.png")
    print("Without zeroing, a step takes the sum of all slopes so far. Steps grow until the neurons give only 1 or -1,")
    print("and the loss stops at 0.5.")
