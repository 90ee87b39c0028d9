"""Step 5: arrays instead of numbers.

A thousand Values that are all multiplied in the same way may as well be one array. The walk of step 3 stays as it is;
only data and grad become NumPy arrays, and each `back` works on whole arrays. A `back` must not change dy in place:
other nodes still need it.

Two things are new. NumPy *broadcasts*: in (3, 4) + (4,) each number on the right is used three times, so its slope is a
sum of three. `unbroadcast` makes that sum. (Write it first: it stands at the end of the file.) And there are products
of matrices, Y = A B. One element is y_ij = Σ_k a_ik b_kj. Ask which elements of Y a single a_ik takes part in, and you
find dA = dY Bᵀ.

Predict before you run this file: dY is 0 except for one cell, [1, 2]. Which cells of dA and of dB are not 0?
"""

import numpy as np
from step3_order import walk


class Tensor:
    __array_ufunc__ = None  # so that array + Tensor calls Tensor.__radd__, not NumPy once for each number

    def __init__(self, data, parents=(), back=None, op=""):
        self.data, self.op = np.asarray(data, float), op
        self.grad = np.zeros_like(self.data)
        self.parents, self.back = parents, back

    @property
    def shape(self):
        return self.data.shape

    def backward(self, dy=1.0):
        walk(self, np.broadcast_to(dy, self.shape))

    def __add__(self, other):
        other = of(other)
        return Tensor(
            self.data + other.data,
            (self, other),
            lambda dy: (unbroadcast(dy, self.shape), unbroadcast(dy, other.shape)),
            "+",
        )

    def __mul__(self, other):
        other = of(other)

        def back(dy):
            # your turn: as for Values, and then each slope back to the shape of what it belongs to
            return unbroadcast(dy * other.data, self.shape), unbroadcast(dy * self.data, other.shape)
            # end

        return Tensor(self.data * other.data, (self, other), back, "*")

    def __matmul__(self, other):  # (…, n, k) @ (…, k, m) -> (…, n, m)
        def back(dy):
            # your turn: dA = dY Bᵀ and dB = Aᵀ dY. `.swapaxes(-1, -2)` transposes. One of them may have been broadcast
            dA, dB = dy @ other.data.swapaxes(-1, -2), self.data.swapaxes(-1, -2) @ dy
            return unbroadcast(dA, self.shape), unbroadcast(dB, other.shape)
            # end

        return Tensor(self.data @ other.data, (self, other), back, "@")

    def __pow__(self, n):
        return Tensor(self.data**n, (self,), lambda dy: (dy * n * self.data ** (n - 1),), f"**{n}")

    def tanh(self):
        y = np.tanh(self.data)
        return Tensor(y, (self,), lambda dy: (dy * (1 - y * y),), "tanh")

    def sum(self, axis=None):
        """Return the sum over one axis, which stays with size 1, or over all (None)."""

        def back(dy):
            # your turn: every number that was added up has the slope of the sum (np.broadcast_to)
            return (np.broadcast_to(dy, self.shape),)
            # end

        return Tensor(self.data.sum(axis, keepdims=axis is not None), (self,), back, "sum")

    def reshape(self, *shape):
        return Tensor(self.data.reshape(shape), (self,), lambda dy: (dy.reshape(self.shape),), "reshape")

    def permute(self, *axes):
        """Reorder the axes: axis i of the result is axis axes[i] of this Tensor."""

        def back(dy):
            # your turn: put the axes back where they were. np.argsort(axes) says where that is
            return (dy.transpose(np.argsort(axes)),)
            # end

        return Tensor(self.data.transpose(axes), (self,), back, "permute")

    def rows(self, i):
        """Return row i, or for an array of ints rows i[0], i[1], … The same row may come twice."""

        def back(dy):
            dx = np.zeros_like(self.data)
            # your turn: add dy's rows to dx at i (np.add.at). A row that came twice adds up: dx[i] += dy would lose one
            np.add.at(dx, i, dy)
            # end
            return (dx,)

        return Tensor(self.data[i], (self,), back, "rows")

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return self * -1.0

    def __sub__(self, other):
        return self + -of(other)


def of(x):
    """Return x, a Tensor, an array or a number, as a Tensor."""
    return x if isinstance(x, Tensor) else Tensor(x)


def unbroadcast(dy, shape):
    """Sum dy over the axes along which NumPy repeated an array of this shape. The result has the shape."""
    # your turn: sum over the axes on the left that `shape` lacks, then over those where it has a 1 and dy has more
    dy = dy.sum(axis=tuple(range(dy.ndim - len(shape))))
    return dy.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1 != dy.shape[i]), keepdims=True)
    # end


if __name__ == "__main__":
    from pictures import maps, stop_if_unfinished

    stop_if_unfinished()
    rng = np.random.default_rng(0)
    a, b = Tensor(rng.normal(size=(3, 5))), Tensor(rng.normal(size=(5, 4)))
    y = a @ b
    dY = np.zeros((3, 4))
    dY[1, 2] = 1
    y.backward(dY)
    maps({"dY": dY, "dA = dY Bᵀ": a.grad, "dB = Aᵀ dY": b.grad}, "tensor.png")
    print("One cell of dY reaches one row of dA, which is a column of B, and one column of dB, which is a row of A.")
