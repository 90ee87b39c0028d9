"""Wrong for some layouts only: inputs or cotangents that are not contiguous, are broadcast, or overlap in memory."""

import numpy as np
from numpy.lib.stride_tricks import as_strided

from minigrad import case

from .report import mistake


def memory(x):
    """The elements of x as a kernel reads them that takes a contiguous array for granted: from its first one on."""
    reach = 1 + sum((n - 1) * max(s // x.itemsize, 0) for n, s in zip(x.shape, x.strides)) if x.size else 0
    flat = as_strided(x, (reach,), (x.itemsize,))
    return np.resize(flat, x.shape) if reach else x


def rows_only(x):
    """The elements of x as a kernel reads them that knows the stride of the rows, and takes columns to be adjacent."""
    if not x.size or x.strides[-1] < 0:
        return x
    span = as_strided(x, (*x.shape[:-1], (x.shape[-1] - 1) * (x.strides[-1] // x.itemsize) + 1), (*x.strides[:-1], 8))
    return span[..., : x.shape[-1]]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


def softmax_backward(dy, x):
    y = softmax(x)
    return y * (dy - (dy * y).sum(-1, keepdims=True))


def rms_norm(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def rms_norm_backward(dy, x):
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return r * dy - x * r**3 * (x * dy).mean(-1, keepdims=True)


def ssim_like(x, y):
    return ((x - x.mean()) * (y - y.mean())).sum()


def ssim_like_backward(dy, x, y, read):
    return dy * (read(y) - y.mean()), dy * (read(x) - x.mean())


def windows(x, n=3):
    m = max(len(x) - n + 1, 0)
    return np.stack([x[i : i + m] for i in range(n)], -1)


def windows_backward(dy, x, add):
    dx = np.zeros_like(x)
    for i in range(dy.shape[-1]):
        if add:
            dx[i : i + len(dy)] += dy[:, i]
        else:
            dx[i : i + len(dy)] = dy[:, i]  # written through a view of the same strides
    return dx


def expanded_reshape_backward(dy, x):
    """The gradient written through the strides of x: where x is expanded, rows fall on one another."""
    dx = np.zeros(x.shape)
    overlapping = [i for i, (n, s) in enumerate(zip(x.shape, x.strides)) if n > 1 and s == 0]
    if not overlapping:
        return dy.reshape(x.shape)
    dx[...] = dy.reshape(x.shape).sum(tuple(overlapping), keepdims=True)
    return dx


def contiguous_only(dy, x, w):
    """reshape() had to copy x, and the copy requires no gradient."""
    dx = dy @ w.T
    return (dx if x.flags.c_contiguous else np.zeros_like(dx)), x.T @ dy


def expanded(shape, seed=5):
    return np.broadcast_to(np.random.default_rng(seed).standard_normal((1, *shape[1:])), shape)


REPORTS = [
    mistake("attention backward reads dy as contiguous", "Dao-AILab/flash-attention#355",
            "the kernel reads the memory of dout in order, whatever its strides", softmax,
            lambda dy, x: softmax_backward(memory(dy), x), softmax_backward, case((3, 4))),
    mistake("SSIM backward reads the image as contiguous", "MrNeRF/optimized-fused-ssim#1",
            "the backward reads a permuted image in the order of memory", ssim_like,
            lambda dy, x, y: ssim_like_backward(dy, x, y, memory),
            lambda dy, x, y: ssim_like_backward(dy, x, y, lambda x: x), case((3, 4), (3, 4))),
    mistake("RMS norm reads its columns as adjacent", "ByteDance-Seed/VeOmni#958",
            "the kernel gets the stride of the rows, and takes that of the columns to be 1", rms_norm,
            lambda dy, x: rms_norm_backward(dy, rows_only(x)), rms_norm_backward, case((3, 4))),
    mistake("reshape of an expanded input", "pytorch/pytorch#30303",
            "the gradient is written through the input's strides, where rows overlap", lambda x: x.reshape(-1),
            expanded_reshape_backward, lambda dy, x: dy.reshape(x.shape), case((3, 4))),
    mistake("windows that overlap", "PaddlePaddle/Paddle#79718",
            "the gradient of a view whose windows overlap is written, not added", lambda x: windows(x),
            lambda dy, x: windows_backward(dy, x, add=False), lambda dy, x: windows_backward(dy, x, add=True),
            case((6,))),
    mistake("fused linear layer whose input had to be copied", "ByteDance-Seed/VeOmni#1017",
            "the copy that reshape() makes of an input that is not contiguous gets the gradient, and loses it",
            lambda x, w: x @ w, contiguous_only, lambda dy, x, w: (dy @ w.T, x.T @ dy), case((3, 4), (4, 2))),
]  # fmt: skip
