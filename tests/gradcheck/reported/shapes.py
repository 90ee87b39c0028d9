"""Functions that are wrong for certain shapes: square, not square, or not a multiple of a block."""

import numpy as np

from minigrad import case

from .report import mistake


def trace_bad(dy, x):
    dx = np.zeros(x.size)
    dx[:: x.shape[1] + 1] = dy  # runs on past the diagonal of a tall matrix, and wraps
    return dx.reshape(x.shape)


def trace_right(dy, x):
    return dy * np.eye(*x.shape)


def conv1d(x, w, stride=2):
    n = (len(x) - len(w)) // stride + 1
    return np.array([(x[i * stride : i * stride + len(w)] * w).sum() for i in range(max(n, 0))])


def conv1d_backward(dy, x, w, stride=2, wrong=False):
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    shift = (len(x) - len(w)) % stride if wrong else 0  # taken for a multiple of the stride, aligned at the end
    for i in range(len(dy)):
        dx[i * stride + shift : i * stride + shift + len(w)] += dy[i] * w
        dw += dy[i] * x[i * stride : i * stride + len(w)]
    return dx, dw


def reflect_index(n, pad=1):
    i = np.arange(-pad, n + pad)
    i = np.abs(i)
    return np.where(i >= n, 2 * (n - 1) - i, i)


def reflect(x):
    return x[..., reflect_index(x.shape[-1])] if x.shape[-1] > 1 else np.repeat(x, 3, -1)


def reflect_backward(dy, x, wrong):
    n = x.shape[-1]
    dx = np.zeros_like(x)
    for j in range(n):
        dx[..., j] += dy[..., j + 1]
        left, right = j == 1, j == n - 2
        if left:
            dx[..., j] += dy[..., 0]
        if right and not (wrong and left):  # `else if`: a column that is reflected on both sides counts once
            dx[..., j] += dy[..., n + 1]
    if n == 1:
        dx[..., 0] += dy[..., 0] + dy[..., 2]
    return dx


def matvec_backward(dy, a, b, wrong):
    """a.T @ b.T style code: for a vector b, b.T is b."""
    db = a.T @ dy
    if wrong and a.shape[0] == a.shape[1]:
        return np.broadcast_to(dy @ b.T, a.shape), db
    return np.outer(dy, b), db


def heads(q, k):
    return np.einsum("hk,gk->h", q, k[:1]) if len(k) == 1 else (q * np.repeat(k, len(q) // len(k), 0)).sum(-1)


def heads_backward(dy, q, k, wrong):
    """Grouped queries: several query heads share a key head."""
    G = len(q) // len(k)
    dq = dy[:, None] * np.repeat(k, G, 0)
    if not wrong:
        return dq, (dy[:, None] * q).reshape(len(k), G, -1).sum(1)
    dk = np.zeros_like(k)
    for h in range(len(k)):  # written by the index of the query head, which overruns the key heads
        dk[h] = dy[h] * q[h]
    return dq, dk


REPORTS = [
    mistake("trace of a tall matrix", "pytorch/pytorch#171704",
            "the indices of the diagonal run on past its end and wrap into the next row", lambda x: np.trace(x),
            trace_bad, trace_right, case((3, 4))),
    mistake("strided convolution with a remainder", "f-dangel/backpack#30",
            "the gradient is aligned as if the size less the kernel were a multiple of the stride", conv1d,
            lambda dy, x, w: conv1d_backward(dy, x, w, wrong=True), conv1d_backward, case((7,), (3,))),
    mistake("reflection pad of three columns", "intel/torch-xpu-ops#2901",
            "`if left … else if right`: a column reflected on both sides gets one contribution", reflect,
            lambda dy, x: reflect_backward(dy, x, wrong=True), lambda dy, x: reflect_backward(dy, x, wrong=False),
            case((2, 5))),
    mistake("square matrix times vector", "harvard-edge/cs249r_book#1781",
            "dy @ b.T for a vector b is a number, which a square matrix lets pass", lambda a, b: a @ b,
            lambda dy, a, b: matvec_backward(dy, a, b, wrong=True),
            lambda dy, a, b: matvec_backward(dy, a, b, wrong=False), case((3, 4), (4,))),
    mistake("keys shared by query heads", "fla-org/flash-linear-attention#384",
            "dk is indexed by the query head: with more query heads than key heads, heads are lost", heads,
            lambda dy, q, k: heads_backward(dy, q, k, wrong=True),
            lambda dy, q, k: heads_backward(dy, q, k, wrong=False), case((2, 4), (2, 4))),
]  # fmt: skip
