"""Step 2: a number that remembers how it was made.

y = a * b. If a grows by a tiny bit, y grows b times as fast, so the slope of y with respect to a is b. And if something
later grows dy times as fast as y, it grows dy * b times as fast as a: that is the chain rule, all of it.

So a Value keeps three things beside its number: its parents, the Values that it was made of; `back`, which turns the
slope dy that has just arrived into slopes of the parents; and `grad`, the sum of all slopes that have arrived so far.

Predict before you run this file: y = a + a. What is the slope of y with respect to a, and which line makes it so?
"""

import math


class Value:
    def __init__(self, data, parents=(), back=None, op=""):
        self.data, self.grad, self.op = data, 0.0, op
        self.parents, self.back = parents, back

    def __add__(self, other):
        other = self.of(other)
        return type(self)(self.data + other.data, (self, other), lambda dy: (dy, dy), "+")

    def __mul__(self, other):
        other = self.of(other)

        def back(dy):
            # your turn: the slopes of self and of other, as a pair
            return dy * other.data, dy * self.data
            # end

        return type(self)(self.data * other.data, (self, other), back, "*")

    def __pow__(self, n):  # n is a plain number
        def back(dy):
            # your turn: a tuple with one slope, that of self. What is the derivative of x**n?
            return (dy * n * self.data ** (n - 1),)
            # end

        return type(self)(self.data**n, (self,), back, f"**{n}")

    def tanh(self):
        y = math.tanh(self.data)

        def back(dy):
            # your turn: tanh' is 1 - tanh², and y is there already
            return (dy * (1 - y * y),)
            # end

        return type(self)(y, (self,), back, "tanh")

    def backward(self, dy=1.0):
        """Add the slope dy to grad, and pass it on to the parents."""
        # your turn: dy adds to grad; then each parent goes backward with its part of back(dy), if there is a back
        self.grad += dy
        if self.back:
            for parent, dx in zip(self.parents, self.back(dy)):
                parent.backward(dx)
        # end

    def of(self, x):
        """Return x, a number or a Value, as a Value."""
        return x if isinstance(x, Value) else type(self)(x)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + -self.of(other)

    def __truediv__(self, other):
        return self * self.of(other) ** -1


if __name__ == "__main__":
    from pictures import draw, stop_if_unfinished

    stop_if_unfinished()
    a, b = Value(0.5), Value(-2.0)
    y = (a * b + a).tanh()
    y.backward()
    print(f"y = tanh(a b + a) = {y.data:.4f}; slopes: a {a.grad:.4f}, b {b.grad:.4f}")
    draw(y, "value.svg")
    a = Value(3.0)
    (a + a).backward()
    print(f"y = a + a: the slope of a is {a.grad:g}. It is both parents, gets 1 as each, and backward() adds them up.")
