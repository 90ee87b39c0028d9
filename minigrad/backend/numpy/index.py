"""Reading, writing and adding by index. The adjoint of reading adds at the same index."""

import numpy as np

from .precision import sum_dtype


class Index:
    def getitem(self, x, index):
        """x[index]; a view for ints and slices."""
        y = x[index]
        return y if type(y) is np.ndarray else x[(*index, ...)]

    def setitem(self, x, index, value):
        """Write value, an array or a number, broadcast and cast, at index."""
        x[index] = value

    def getitem_add(self, shape, index, dy):
        """Zeros of `shape` with dy added at `index`, where repeated indices add up: the adjoint of getitem."""
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(i, np.ndarray) and i.dtype != bool for i in parts):
            return add_at(shape, index, dy)
        dx = np.zeros(shape, dy.dtype)  # slices, ints and masks name each element once
        dx[index] = dy
        return dx

    def gather(self, x, dim, index):
        """y[i, j] = x[index[i, j], j] for dim 0, and likewise for the others; of index's shape."""
        return np.take_along_axis(x, index, dim)

    def scatter_add(self, shape, dim, index, dy):
        """Zeros of `shape` with dy added at `index` along dim: the adjoint of gather. dy and index have one shape; it
        differs from `shape` along dim only."""
        places = list(np.ogrid[tuple(slice(n) for n in index.shape)])
        places[dim] = index
        return add_at(shape, tuple(places), dy)

    def flatnonzero(self, x):
        """The places where bools, with_includes, are True: int64 (n,). Waits for a GPU."""
        return np.flatnonzero(x)

    def take(self, x, index):
        """Rows of x (V, C) at index (…): (…, C)."""
        return np.take(x, index, axis=0)

    def take_add(self, rows, index, dy):
        """Zeros (rows, C) with dy (N, C) added at index (N,): the adjoint of take. Sums in a fixed order."""
        dx = np.zeros((rows, dy.shape[1]), dy.dtype)
        if index.size:
            order = np.argsort(index, kind="stable")  # equal indices side by side: one sum for each
            sorted_index = index[order]
            starts = np.flatnonzero(np.r_[True, sorted_index[1:] != sorted_index[:-1]])
            dtype = sum_dtype(dy.dtype) if dy.dtype.kind == "f" else dy.dtype
            sums = np.add.reduceat(dy[order], starts, axis=0, dtype=dtype)
            dx[sorted_index[starts]] = sums
        return dx


def add_at(shape, index, dy):
    """Zeros of `shape` with dy added at `index`; floats are summed in float64."""
    dtype = sum_dtype(dy.dtype) if dy.dtype.kind == "f" else dy.dtype
    dx = np.zeros(shape, dtype)
    np.add.at(dx, index, dy.astype(dtype, copy=False))
    return dx.astype(dy.dtype, copy=False)
