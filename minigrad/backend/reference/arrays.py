"""Arrays: making them, moving their elements, reading and adding by index."""

import ctypes
import functools

import numpy as np

from .half import wide

device = "cpu"
Array = np.ndarray


def _keep_freed_memory():
    """Let malloc keep what NumPy frees. Arrays over 128 KiB otherwise come fresh from mmap each time, and the page
    faults took 10 of the 60 ms of a training step. glibc only; the memory is reused, not returned to the system."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
    mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


_keep_freed_memory()


asarray = np.asarray
zeros = np.zeros
full = np.full
overlap = np.may_share_memory
quietly = functools.partial(np.errstate, all="ignore")  # NaN and Inf come without warnings; see detect_anomaly


def to_numpy(x):
    return x


def from_numpy(x):
    return x


def is_compact(x):
    """Dense, row-major and writeable: an array that in-place arithmetic may use as its own."""
    return x.flags.c_contiguous and x.flags.writeable


def is_writeable(x):
    """False for the result of expand, where places share memory."""
    return x.flags.writeable


def copy(x):
    return x.copy(order="C")


def cast(x, dtype):
    return x.astype(dtype)


def reshape(x, shape):
    return x.reshape(shape)


def permute(x, dims):
    return x.transpose(dims)


expand = np.broadcast_to
flip = np.flip
cat = np.concatenate
stack = np.stack


def pad(x, widths, value):
    return np.pad(x, widths, constant_values=value) if widths else x.copy()


def getitem(x, index):
    """x[index], index a tuple; a view for a basic one, even of a single element."""
    y = x[index]
    return y if type(y) is np.ndarray else x[(*index, ...)]


def setitem(x, index, value):
    """x[index] = value, index a tuple: in place, value broadcast and cast."""
    x[index] = value


def getitem_add(shape, index, dy):
    """Zeros of `shape` with dy added at `index`, repeated indices adding up: the adjoint of getitem."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(i, np.ndarray) and i.dtype != bool for i in parts):
        return _added(shape, index, dy)
    dx = np.zeros(shape, dy.dtype)  # slices, numbers and masks name each element once
    dx[index] += dy
    return dx


def _added(shape, index, dy):
    """Zeros of `shape` with dy added at `index`, in a type that many can be added in."""
    dtype = wide(dy.dtype) if dy.dtype.kind in "fc" else dy.dtype
    dx = np.zeros(shape, dtype)
    np.add.at(dx, index, dy.astype(dtype, copy=False))  # many times as slow where the dtypes differ
    return dx.astype(dy.dtype, copy=False)


def gather(x, dim, index):
    return np.take_along_axis(x, index, dim)


def scatter_add(shape, dim, index, dy):
    """Zeros of `shape` with dy added at `index` along dim: the adjoint of gather. dy and index have one shape."""
    places = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    places[dim] = index
    return _added(shape, tuple(places), dy)


def take(x, index):
    """Rows of x, (V, C) and (…) -> (…, C)."""
    return np.take(x, index, axis=0)


def take_add(rows, index, dy):
    """Zeros (rows, C) with dy (N, C) added at index (N,): the adjoint of take. Sums in a fixed order."""
    dx = np.zeros((rows, dy.shape[1]), dy.dtype)
    if index.size:
        order = np.argsort(index, kind="stable")  # equal indices side by side: one sum for each
        sorted_index = index[order]
        starts = np.flatnonzero(np.r_[True, sorted_index[1:] != sorted_index[:-1]])
        sums = np.add.reduceat(dy[order], starts, axis=0, dtype=wide(dy.dtype) if dy.dtype.kind in "fc" else dy.dtype)
        dx[sorted_index[starts]] = sums
    return dx
