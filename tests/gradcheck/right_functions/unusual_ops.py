"""Ops that people write: right ones with unusual manners. Forwards are NumPy, backwards Tensors."""

import numpy as np

import minigrad as mg


class ContiguousSquare(mg.Op):
    """y = x²; asks for row-major memory, as a binding to C does"""

    def forward(self, x):
        if not x.flags.c_contiguous:
            raise ValueError("x must be contiguous")
        self.save_inputs(x)
        return x * x

    def backward(self, dy):
        return 2 * self.saved_inputs()[0] * dy


class MadeContiguous(mg.Op):
    """y = tanh x, computed on a flat copy"""

    def forward(self, x):
        flat = np.ascontiguousarray(x).reshape(-1)
        return self.save_output(np.tanh(flat).reshape(x.shape))

    def backward(self, dy):
        y = self.saved_output()
        return dy * (1 - y * y)


class Float64Only(mg.Op):
    """y = e^x; refuses every other dtype"""

    def forward(self, x):
        if x.dtype.itemsize < 8:
            raise TypeError(f"float64 only, got {x.dtype}")
        return self.save_output(np.exp(x))

    def backward(self, dy):
        return dy * self.saved_output()


class MatrixOnly(mg.Op):
    """y = xᵀ x; refuses any rank but 2"""

    def forward(self, x):
        if x.ndim != 2:
            raise ValueError(f"needs a matrix, got shape {x.shape}")
        self.save_inputs(x)
        return x.T @ x

    def backward(self, dy):
        return self.saved_inputs()[0] @ (dy + dy.mT)


class SquareOnly(mg.Op):
    """y = the trace; refuses what is not square, and nothing at all"""

    def forward(self, x):
        if x.ndim != 2 or x.shape[0] != x.shape[1] or not x.size:
            raise ValueError(f"needs a square matrix, got shape {x.shape}")
        self.n = x.shape[0]
        return np.trace(x)

    def backward(self, dy):
        return dy * mg.eye(self.n, dtype=dy.dtype)


class FixedSize(mg.Op):
    """y = W x with a W of its own, for x of 3 numbers and no others"""

    weight = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])

    def forward(self, x):
        if x.shape != (3,):
            raise ValueError(f"needs 3 numbers, got {x.shape}")
        return self.weight.astype(x.dtype) @ x

    def backward(self, dy):
        return mg.tensor(self.weight.T).to(dy.dtype) @ dy


class TotalByExpand(mg.Op):
    """y = Σ x; dx is a broadcast view of dy"""

    def forward(self, x):
        self.shape = x.shape
        return np.sum(x)

    def backward(self, dy):
        return dy.expand(*self.shape) if self.shape else dy


class Reversed(mg.Op):
    """y = x backwards, a view; dx is a view of dy"""

    def forward(self, x):
        return x[::-1]

    def backward(self, dy):
        return dy.flip(0)


class Transposed(mg.Op):
    """y = xᵀ, a view"""

    def forward(self, x):
        return x.T

    def backward(self, dy):
        return dy.T


class Passed(mg.Op):
    """y = x; dx is dy itself"""

    def forward(self, x):
        return x.copy()

    def backward(self, dy):
        return dy


class Doubled(mg.Op):
    """y = a + b; both get the very same dy"""

    def forward(self, a, b):
        return a + b

    def backward(self, dy):
        return dy, dy


class Gate(mg.Op):
    """y = x where mask > 0.5; None for the mask"""

    def forward(self, x, mask):
        self.save(mask > 0.5)
        return np.where(mask > 0.5, x, 0)

    def backward(self, dy):
        (mask,) = self.saved()
        return mg.where(mask, dy, 0.0), None


class OnlyNeeded(mg.Op):
    """y = a b c; computes what is needed, None for the rest"""

    def forward(self, a, b, c):
        self.save_inputs(a, b, c)
        return a * b * c

    def backward(self, dy):
        a, b, c = self.saved_inputs()
        return tuple(d if need else None for d, need in zip((dy * b * c, dy * a * c, dy * a * b), self.needs))


class SinCos(mg.Op):
    """y = sin x, cos x: two outputs"""

    def forward(self, x):
        self.save_inputs(x)
        return np.sin(x), np.cos(x)

    def backward(self, dsin, dcos):
        (x,) = self.saved_inputs()
        parts = [] if dsin is None else [dsin * x.cos()]
        parts += [] if dcos is None else [dcos * -x.sin()]
        return sum(parts)


class MomentsAndShape(mg.Op):
    """y = Σ x, Σ x², both 0-d, and x scaled: three outputs of different shapes"""

    def forward(self, x):
        self.save_inputs(x)
        return np.sum(x), np.sum(x * x), 3 * x

    def backward(self, ds, dq, dx):
        (x,) = self.saved_inputs()
        parts = [] if ds is None else [ds.expand(*x.shape)]
        parts += [] if dq is None else [2 * dq * x]
        parts += [] if dx is None else [3 * dx]
        return sum(parts)


class ValueAndIndex(mg.Op):
    """y = max x, and where it is: an integer output"""

    def forward(self, x):
        self.save(x == x.max())
        return np.max(x), np.array(np.argmax(x))

    def backward(self, dy, _):
        (mask,) = self.saved()
        return mg.where(mask, dy, 0.0)


class InNumPy(mg.Op):
    """y = x³; a backward in NumPy, which cannot be differentiated again"""

    def forward(self, x):
        self.save_inputs(x)
        return x**3

    def backward(self, dy):
        (x,) = self.saved_inputs()
        return mg.tensor(3 * x.detach().numpy() ** 2 * dy.numpy())


class Cumulated(mg.Op):
    """y = the running product, from inputs without zeros"""

    def forward(self, x):
        if not x.all():
            raise ValueError("cumulated divides by x: it must have no zeros")
        self.save_inputs(x)
        return self.save_output(np.cumprod(x))

    def backward(self, dy):
        (x,), y = self.saved_inputs(), self.saved_output()
        return (dy * y).flip(0).cumsum(0).flip(0) / x


class Log1p(mg.Op):
    """y = ln(1 + x), accurate for small x"""

    def forward(self, x):
        self.save_inputs(x)
        return np.log1p(x)

    def backward(self, dy):
        return dy / (1 + self.saved_inputs()[0])


class Expm1(mg.Op):
    """y = e^x - 1, accurate for small x"""

    def forward(self, x):
        self.save_inputs(x)
        return np.expm1(x)

    def backward(self, dy):
        return dy * self.saved_inputs()[0].exp()


class Arctan2(mg.Op):
    """angle of (x, y)"""

    def forward(self, y, x):
        self.save_inputs(y, x)
        return np.arctan2(y, x)

    def backward(self, dz):
        y, x = self.saved_inputs()
        r = x * x + y * y
        return dz * x / r, -dz * y / r


class Inverse(mg.Op):
    """y = x⁻¹ by LAPACK, in float64 whatever comes"""

    def forward(self, x):
        return self.save_output(np.linalg.inv(x.astype(np.float64)).astype(x.dtype))

    def backward(self, dy):
        y = self.saved_output()
        return -(y.mT @ dy @ y.mT)


class Scaled(mg.Op):
    """y = c x, with c a parameter"""

    def forward(self, x, c):
        return c * x

    def backward(self, dy):
        return self.c * dy


class ImplicitRoot(mg.Op):
    """y with y³ + y = x, by bisection to the last bit; dx = dy / (3 y² + 1)"""

    def forward(self, x):
        y = np.cbrt(x) * 0.5
        for _ in range(60):
            y = y - (y**3 + y - x) / (3 * y * y + 1)
        return self.save_output(y)

    def backward(self, dy):
        y = self.saved_output()
        return dy / (3 * y * y + 1)
