"""Wrong for some options only: negative axes, strides, groups, modes. Tests usually begin with the defaults."""

import numpy as np

from minigrad import case

from .losses import softmax, wrongly
from .report import mistake


def softmax_backward(dy, x, dim=0, wrong=False):
    y = softmax(x, dim)
    s = (dy * y).sum(dim)
    if wrong and dim < 0:  # only dims >= 0 are unsqueezed again; what broadcasts, broadcasts along the rows
        return y * (dy - s) if np.broadcast_shapes(s.shape, dy.shape) == dy.shape else y * dy
    return y * (dy - np.expand_dims(s, dim))


def join(x, y, axis=0):
    return np.concatenate([x, y], axis)


def join_backward(dy, x, y, axis=0, wrong=False):
    cut = x.shape[axis]
    if wrong and axis < 0:  # sizes are those of the axis that follows from counting with -1 as an offset
        flat = dy.reshape(-1)
        return flat[: x.size].reshape(x.shape), flat[x.size :].reshape(y.shape)
    return np.split(dy, [cut], axis)[0], np.split(dy, [cut], axis)[1]


def mean(x, axes=None):
    return x.mean(axes)


def mean_backward(dy, x, axes=None, wrong=False):
    if axes is None:
        return np.full(x.shape, dy / max(x.size, 1))
    if wrong:  # tiled with the shape of the input, as if dy were a number
        return np.resize(dy, x.shape) / x.size
    return np.broadcast_to(np.expand_dims(dy, axes), x.shape) / np.prod([x.shape[a] for a in axes])


def batch_norm(x, training=True):
    m, v = (x.mean(0), x.var(0)) if training else (np.full(x.shape[1:], 0.1), np.full(x.shape[1:], 2.0))
    return (x - m) / np.sqrt(v + 1e-5)


def batch_norm_backward(dy, x, training=True, wrong=False):
    if not training and not wrong:
        return dy / np.sqrt(2.0 + 1e-5)
    m, v = (x.mean(0), x.var(0)) if training else (0.1, 2.0)
    r = 1 / np.sqrt(v + 1e-5)
    z = (x - m) * r
    return r * (dy - dy.mean(0) - z * (dy * z).mean(0))


def max_pool(x, stride=2):
    n = (x.shape[-1] - 2) // stride + 1
    return np.stack([x[..., i * stride : i * stride + 2].max(-1) for i in range(n)], -1) if n > 0 else x[..., :0]


def max_pool_backward(dy, x, stride=2, wrong=False):
    dx = np.zeros_like(x)
    rows = dx.reshape(x.size // max(x.shape[-1], 1), x.shape[-1])
    for r, row in enumerate(x.reshape(rows.shape)):
        for i in range(dy.shape[-1]):
            d = dy.reshape(len(rows), dy.shape[-1])[r, i]
            j = i * stride + int(np.argmax(row[i * stride : i * stride + 2]))
            rows[r, j] = d if wrong else rows[r, j] + d
    return dx


def correlate(x, w, stride=1, dilation=1):
    reach = (len(w) - 1) * dilation
    n = max((len(x) - reach - 1) // stride + 1, 0)
    return np.array([(x[i * stride : i * stride + reach + 1 : dilation] * w).sum() for i in range(n)])


def correlate_backward(dy, x, w, stride=1, dilation=1, wrong=False):
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for i in range(len(dy)):
        for j in range(len(w)):
            dx[i * stride + j * dilation] += dy[i] * w[j]
            a, b = (dilation, stride) if wrong else (stride, dilation)  # swapped in the constructor
            if i * a + j * b < len(x):
                dw[j] += dy[i] * x[i * a + j * b]
    return dx, dw


REPORTS = [
    mistake("softmax of a negative axis", "SKaiNET-developers/SKaiNET#863",
            "the reduced axis is only put back if it is given as a number from 0 on", softmax,
            wrongly(softmax_backward), softmax_backward, case((3, 4))),
    mistake("concatenation along axis -1", "tensorflow/tfjs-core#1267",
            "the axis is not normalised before the gradient is sliced", join, wrongly(join_backward), join_backward,
            case((3, 4), (3, 4))),
    mistake("mean over some axes", "facebookresearch/shumai#74",
            "dy is tiled to the shape of the input, as if it were a number", mean, wrongly(mean_backward),
            mean_backward, case((2, 3))),
    mistake("batch norm in evaluation", "pytorch/xla#913",
            "the gradient is that of training, through the mean and variance of the batch", batch_norm,
            wrongly(batch_norm_backward), batch_norm_backward, case((4, 3))),
    mistake("max pooling with windows that overlap", "FluxML/NNlib.jl#205",
            "an element that is the largest of two windows gets one of their gradients", max_pool,
            wrongly(max_pool_backward), max_pool_backward, case((2, 6))),
    mistake("stride and dilation swapped", "iree-org/iree-turbine#1223",
            "the gradient of the weights takes one for the other", correlate, wrongly(correlate_backward),
            correlate_backward, case((8,), (3,))),
]  # fmt: skip
