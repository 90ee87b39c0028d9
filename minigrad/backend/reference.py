"""The CPU reference: every primitive in plain NumPy. It defines what is right.

Arrays are np.ndarray. A primitive takes arrays (Python numbers where NumPy does) and returns a new array, except the
movement primitives, which return views where NumPy can, and those named with a trailing underscore, which change their
first argument. Shapes and arguments were checked by the public functions; here only the arithmetic remains.

Where a formula is written with `out=`, that is speed: each temporary would be another trip through memory.
"""

import builtins
import ctypes
import math

import numpy as np

from . import philox

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

# ------------------------------------------------------------------------------------------- arrays: making and moving

asarray = np.asarray
empty = np.empty
zeros = np.zeros
full = np.full
arange = np.arange
overlap = np.may_share_memory
random_words = philox.words


def to_numpy(x):
    return x


def from_numpy(x):
    return x


def is_compact(x):
    """Dense, row-major and writeable: an array that in-place arithmetic may use as its own."""
    return x.flags.c_contiguous and x.flags.writeable


def copy(x):
    return x.copy(order="C")


def cast(x, dtype):
    return x.astype(dtype)


reshape = np.reshape
permute = np.transpose
expand = np.broadcast_to
flip = np.flip
cat = np.concatenate


def pad(x, widths, value):
    return np.pad(x, widths, constant_values=value)


def getitem(x, index):
    return x[index]


def getitem_add(shape, index, dy):
    """Zeros of `shape` with dy added at `index`, repeated indices adding up: the adjoint of getitem."""
    dx = np.zeros(shape, dy.dtype)
    parts = index if isinstance(index, tuple) else (index,)
    if builtins.any(isinstance(i, np.ndarray) and i.dtype != bool for i in parts):
        np.add.at(dx, index, dy)
    else:  # slices, numbers and masks name each element once
        dx[index] += dy
    return dx


def gather(x, dim, index):
    return np.take_along_axis(x, index, dim)


def scatter_add(shape, dim, index, dy):
    """Zeros of `shape` with dy added at `index` along dim: the adjoint of gather. dy and index have one shape."""
    dx = np.zeros(shape, dy.dtype)
    places = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    places[dim] = index
    np.add.at(dx, tuple(places), dy)
    return dx


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
        dx[sorted_index[starts]] = np.add.reduceat(dy[order], starts, axis=0)
    return dx


# ---------------------------------------------------------------------------------------------------------- elementwise

add = np.add
sub = np.subtract
mul = np.multiply
div = np.true_divide
neg = np.negative
abs = np.abs
exp = np.exp
log = np.log
sqrt = np.sqrt
sin = np.sin
cos = np.cos
tanh = np.tanh
sign = np.sign
floor = np.floor
maximum = np.maximum
minimum = np.minimum
where = np.where
clamp = np.clip
eq, ne, lt, le, gt, ge = np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal
logical_and, logical_or, logical_xor, logical_not = np.logical_and, np.logical_or, np.logical_xor, np.logical_not
isnan, isinf, isfinite = np.isnan, np.isinf, np.isfinite


_POWERS = {
    0: np.ones_like,
    1: np.positive,
    2: np.square,
    3: lambda x: x * x * x,
    0.5: np.sqrt,
    -0.5: lambda x: 1 / np.sqrt(x),
    -1: lambda x: 1 / x,
}


def pow(x, y):
    if isinstance(y, (int, float)) and x.dtype.kind == "f":
        if y in _POWERS:  # NumPy's pow is 60 times slower than two products
            return _POWERS[y](x)
    return np.power(x, y)


def rsqrt(x):
    return 1 / np.sqrt(x)


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    y = np.multiply(x, 0.5)  # 1 / (1 + e^-x) = (1 + tanh(x/2)) / 2, which cannot overflow
    np.tanh(y, out=y)
    y += 1
    y *= 0.5
    return y


def silu(x):
    return x * sigmoid(x)


# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969), 631-637.
_ERF_SMALL = (
    (1.85777706184603153e-1, 3.16112374387056560e00, 1.13864154151050156e02, 3.77485237685302021e02, 3.20937758913846947e03),
    (1.0, 2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03),
)
_ERF_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01, 2.98635138197400131e02,
     8.81952221241769090e02, 1.71204761263407058e03, 2.05107837782607147e03, 1.23033935479799725e03),
    (1.0, 1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02, 1.62138957456669019e03,
     3.29079923573345963e03, 4.36261909014324716e03, 3.43936767414372164e03, 1.23033935480374942e03),
)  # fmt: skip
_ERF_LARGE = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1, 1.60837851487422766e-2,
     6.58749161529837803e-4),
    (1.0, 2.56852019228982242e00, 1.87295284992346725e00, 5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3),
)  # fmt: skip
# In float32 one odd rational function, fitted on |x| < 4, is exact to 2 ulp of 1 (the coefficients used by Eigen).
_ERF_SINGLE = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
     -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02),
)  # fmt: skip


def _horner(coefficients, x):
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y *= x
        y += c
    return y


def erf(x):
    x = np.asarray(x)
    if x.dtype == np.float64:
        return _erf_double(x)
    z = np.clip(x.astype(np.float32), -4, 4)
    square = z * z
    y = _horner(_ERF_SINGLE[0], square)
    y *= z
    y /= _horner(_ERF_SINGLE[1], square)
    return y.astype(x.dtype)


def _erf_double(x):
    a = np.abs(np.ravel(x))
    y = np.ones_like(a)  # beyond 6, erf is 1 to the last bit
    small, large = a <= 0.46875, (a > 4) & (a < 6)
    middle = (a > 0.46875) & (a <= 4)
    s = a[small]
    y[small] = s * _horner(_ERF_SMALL[0], s * s) / _horner(_ERF_SMALL[1], s * s)
    m = a[middle]
    y[middle] = 1 - np.exp(-m * m) * _horner(_ERF_MIDDLE[0], m) / _horner(_ERF_MIDDLE[1], m)
    b = a[large]
    w = 1 / (b * b)
    tail = (1 / math.sqrt(math.pi) - w * _horner(_ERF_LARGE[0], w) / _horner(_ERF_LARGE[1], w)) / b
    y[large] = 1 - np.exp(-b * b) * tail
    y[np.isnan(a)] = np.nan
    return np.copysign(y, np.ravel(x)).reshape(np.shape(x))


_GELU_A, _GELU_B = math.sqrt(2 / math.pi), 0.044715


def _gelu_tanh(x):
    """tanh(A (x + B x³)), the inside of the tanh form."""
    t = x * x
    t *= _GELU_A * _GELU_B
    t += _GELU_A
    t *= x
    return np.tanh(t, out=t)


def gelu(x, approximate):
    x = np.asarray(x)
    y = _gelu_tanh(x) if approximate == "tanh" else erf(x * math.sqrt(0.5))
    y += 1
    y *= x
    y *= 0.5
    return y


def gelu_backward(dy, x, approximate):
    dx = x * x
    if approximate == "tanh":
        # y = x (1 + t) / 2 with t = tanh(A (x + B x³)), so dy/dx = (1 + t)/2 + x (1 - t²) A (1 + 3 B x²) / 2
        t = _gelu_tanh(x)
        dx *= 1.5 * _GELU_A * _GELU_B
        dx += 0.5 * _GELU_A
        dx *= x
        dx *= 1 - t * t
    else:
        # y = x Φ(x), so dy/dx = Φ(x) + x φ(x)
        t = erf(x * math.sqrt(0.5))
        dx *= -0.5
        np.exp(dx, out=dx)
        dx *= x
        dx *= 1 / math.sqrt(2 * math.pi)
    t += 1
    t *= 0.5
    dx += t
    dx *= dy
    return dx


# ----------------------------------------------------------------------------------------------------------- reductions


def sum(x, dims, keepdim):
    dtype = np.int64 if x.dtype.kind in "bi" else np.float32 if x.dtype == np.float16 else None
    y = np.sum(x, axis=dims, keepdims=keepdim, dtype=dtype)
    return y.astype(x.dtype) if x.dtype == np.float16 else y


def max(x, dims, keepdim):
    return np.max(x, axis=dims, keepdims=keepdim)


def min(x, dims, keepdim):
    return np.min(x, axis=dims, keepdims=keepdim)


def argmax(x, dim, keepdim):
    return np.argmax(x, axis=dim, keepdims=keepdim)


def argmin(x, dim, keepdim):
    return np.argmin(x, axis=dim, keepdims=keepdim)


def argsort(x, dim, descending):
    """Stable order along dim; NaN counts as the largest number."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), axis=dim, kind="stable"), dim)


def any(x, dims, keepdim):
    return np.any(x, axis=dims, keepdims=keepdim)


def all(x, dims, keepdim):
    return np.all(x, axis=dims, keepdims=keepdim)


def cumsum(x, dim, reverse):
    if reverse:
        return np.flip(np.cumsum(np.flip(x, dim), axis=dim, dtype=None if x.dtype.kind != "b" else np.int64), dim)
    return np.cumsum(x, axis=dim, dtype=None if x.dtype.kind != "b" else np.int64)


def dot(x, y):
    """Sum of x * y over everything, as a Python float."""
    return float(np.vdot(x, y))


# --------------------------------------------------------------------------------------------------------------- matmul


def matmul(a, b):
    """(…, n, k) @ (…, k, m) -> (…, n, m), batch dimensions broadcast."""
    if a.dtype == np.float16:  # NumPy has no BLAS for it
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    return np.matmul(a, b)


def linear(x, weight, bias):
    """x (N, k), weight (m, k), bias (m,) or None -> (N, m)."""
    y = matmul(x, weight.T)
    if bias is not None:
        y += bias
    return y


# --------------------------------------------------------------------------------- softmax, losses, norms: over rows

_ones_cache: dict = {}


def _ones(n, dtype):
    """A shared vector of ones. Row sums as x @ ones go through BLAS, 3 times as fast as NumPy's over short rows."""
    if (n, dtype) not in _ones_cache:
        _ones_cache[n, dtype] = np.ones(n, dtype)
        _ones_cache[n, dtype].flags.writeable = False
    return _ones_cache[n, dtype]


def _row_sums(x):
    """(…, n) -> (…, 1)."""
    if x.dtype == np.float16 or not x.flags.c_contiguous or x.size == 0:
        return sum(x, (-1,), True)
    n = x.shape[-1]
    return (x.reshape(-1, n) @ _ones(n, x.dtype)).reshape(x.shape[:-1] + (1,))


def _row_dots(x, y):
    """Sums of x * y over the last dimension, (…, n) -> (…, 1)."""
    return np.einsum("...i,...i->...", x, y)[..., None]


def _softmax_(x):
    """Softmax over the last dimension, in place. A row that is all -inf becomes zeros, not NaN."""
    if x.shape[-1] == 0:
        return x
    top = x.max(-1, keepdims=True)
    top[top == -np.inf] = 0
    x -= top
    np.exp(x, out=x)
    total = _row_sums(x)
    total[total == 0] = 1
    x /= total
    return x


def _rows_last(x, dim):
    """A fresh contiguous copy with `dim` last, and how to move it back."""
    return np.moveaxis(x, dim, -1).copy(order="C"), lambda y: np.moveaxis(y, -1, dim)


def softmax(x, dim):
    y, back = _rows_last(x, dim)
    return back(_softmax_(y))


def softmax_backward(dy, y, dim):
    dy, y = np.moveaxis(dy, dim, -1), np.moveaxis(y, dim, -1)
    dx = dy - _row_dots(dy, y)
    dx *= y
    return np.moveaxis(dx, -1, dim)


def log_softmax(x, dim):
    y, back = _rows_last(x, dim)
    return back(y - _logsumexp_rows(y))


def _logsumexp_rows(x):
    top = x.max(-1, keepdims=True, initial=-np.inf)
    safe = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):  # log 0 = -inf is the right answer for a row of -inf
        return np.where(top == np.inf, np.inf, np.log(_row_sums(np.exp(x - safe))) + safe).astype(x.dtype)


def logsumexp(x, dim):
    """Over one dimension, kept with size 1."""
    y, back = _rows_last(x, dim)
    return back(_logsumexp_rows(y))


def attention_pattern(scores, scale, mask, is_causal):
    """softmax(scale * scores) over the last dimension, exactly 0 where the mask is False or where causality forbids.

    mask: bool (True = attend) or None; broadcast to scores. Causal: query i of T sees keys up to i, as in PyTorch
    (aligned at the top left). A row with nothing to see is zeros."""
    x = np.multiply(scores, scale, dtype=scores.dtype)
    if mask is not None:
        np.copyto(x, -np.inf, where=~mask)
    if is_causal:
        np.copyto(x, -np.inf, where=_hidden(*x.shape[-2:]))
    return _softmax_(x)


_hidden_cache: dict = {}


def _hidden(T, S):
    """(T, S) bool, True above the diagonal."""
    if (T, S) not in _hidden_cache:
        _hidden_cache.clear()  # one shape at a time: a mask of 8192² is 64 MB
        _hidden_cache[T, S] = ~np.tri(T, S, dtype=bool)
    return _hidden_cache[T, S]


def attention_pattern_backward(dy, y, scale):
    dx = dy - _row_dots(dy, y)
    dx *= y
    dx *= scale
    return dx


def layer_norm(x, weight, bias, eps):
    """x (N, C); weight, bias (C,) or None -> y (N, C), mean (N, 1), rstd (N, 1)."""
    C = x.shape[1]
    mean = _row_sums(x) / C
    y = x - mean
    rstd = 1 / np.sqrt(_row_dots(y, y) / C + x.dtype.type(eps))
    y *= rstd
    if weight is not None:
        y *= weight
    if bias is not None:
        y += bias
    return y, mean, rstd


def layer_norm_backward(dy, x, weight, mean, rstd, needs):
    """needs: (dx, dweight, dbias) wanted? -> the three, None where not."""
    C = x.shape[1]
    xhat = x - mean
    xhat *= rstd
    dbias = dy.sum(0) if needs[2] else None
    dweight = np.einsum("ij,ij->j", dy, xhat) if needs[1] else None
    if not needs[0]:
        return None, dweight, dbias
    # y = xhat w + b, and xhat has mean 0 and variance 1: dx is dxhat less its parts along 1 and along xhat
    dx = dy * weight if weight is not None else dy.copy()
    along_one, along_xhat = _row_sums(dx) / C, _row_dots(dx, xhat) / C
    xhat *= along_xhat
    dx -= along_one
    dx -= xhat
    dx *= rstd
    return dx, dweight, dbias


def rms_norm(x, weight, eps):
    """x (N, C), weight (C,) or None -> y (N, C), rstd (N, 1)."""
    rstd = 1 / np.sqrt(_row_dots(x, x) / x.shape[1] + x.dtype.type(eps))
    y = x * rstd
    if weight is not None:
        y *= weight
    return y, rstd


def rms_norm_backward(dy, x, weight, rstd, needs):
    xhat = x * rstd
    dweight = np.einsum("ij,ij->j", dy, xhat) if needs[1] else None
    if not needs[0]:
        return None, dweight
    dx = dy * weight if weight is not None else dy.copy()
    xhat *= _row_dots(dx, xhat) / x.shape[1]
    dx -= xhat
    dx *= rstd
    return dx, dweight


def cross_entropy(logits, target, ignore_index, smoothing):
    """logits (N, V), target (N,) -> loss of each row (N,), and softmax(logits) (N, V) for the backward.

    loss = -Σ q log p with q = (1 - smoothing) onehot(target) + smoothing / V; 0 for a row to be ignored."""
    p = logits - logits.max(-1, keepdims=True)
    rows = np.arange(len(target))
    kept = target != ignore_index
    safe = np.where(kept, target, 0)
    loss = -(1 - smoothing) * p[rows, safe]
    if smoothing:
        loss -= smoothing * p.mean(-1)
    np.exp(p, out=p)
    total = _row_sums(p)
    p /= total
    loss += np.log(total[:, 0])  # Σ q = 1, so the normaliser enters once
    loss[~kept] = 0
    return loss.astype(logits.dtype), p


def cross_entropy_backward(dloss, p, target, ignore_index, smoothing):
    """dlogits = (p - q) * dloss, row by row."""
    kept = target != ignore_index
    dlogits = p - p.dtype.type(smoothing / p.shape[1]) if smoothing else p.copy()
    dlogits[np.arange(len(target)), np.where(kept, target, 0)] -= p.dtype.type(1 - smoothing)
    dlogits *= dloss[:, None]
    dlogits[~kept] = 0
    return dlogits


# -------------------------------------------------------------------------------------------------------------- updates

_CHUNK = 1 << 14  # elements that an update touches at a time: five such arrays fit in a core's second-level cache


def adam_(p, g, m, v, lr, beta1, beta2, eps, weight_decay, decoupled, step):
    """One step of Adam or AdamW (decoupled) on compact arrays, in place. `step` counts from 1."""
    p, g, m, v = p.reshape(-1), g.reshape(-1), m.reshape(-1), v.reshape(-1)
    rate = lr / (1 - beta1**step)
    root = 1 / math.sqrt(1 - beta2**step)
    scratch = np.empty((2, builtins.min(_CHUNK, p.size)), p.dtype)
    for start in range(0, p.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        pi, gi, mi, vi = p[part], g[part], m[part], v[part]
        a, b = scratch[:, : pi.size]
        if weight_decay and decoupled:
            pi *= 1 - lr * weight_decay
        elif weight_decay:
            gi = np.multiply(pi, weight_decay) + gi
        mi *= beta1
        mi += np.multiply(gi, 1 - beta1, out=a)
        vi *= beta2
        np.multiply(gi, gi, out=a)
        a *= 1 - beta2
        vi += a
        np.sqrt(vi, out=a)
        a *= root
        a += eps
        np.multiply(mi, rate, out=b)
        b /= a
        pi -= b



def sgd_(p, g, buffer, lr, momentum, weight_decay, nesterov):
    """One step of SGD on compact arrays, in place. The buffer starts as zeros and is not touched without momentum."""
    if weight_decay:
        g = g + p * weight_decay
    if momentum:
        buffer *= momentum
        buffer += g
        g = g + buffer * momentum if nesterov else buffer
    p -= g * lr
