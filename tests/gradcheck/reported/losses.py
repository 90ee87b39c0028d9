"""Wrong for some options of losses and of layers: reductions, scales, thresholds."""

import numpy as np

from minigrad import case

from .report import mistake


def scaled_loss(x, scale=1.0):
    return (x * x).sum(-1)


def scaled_loss_backward(dy, x, scale=1.0, wrong=False):
    """The forward has scaled the gradient, and the backward takes the scale out again."""
    if wrong:
        return dy[..., None] * (2 * x * scale) / np.float64(scale)
    return 2 * dy[..., None] * x


def softmax(x, dim=0):
    e = np.exp(x - x.max(dim, keepdims=True, initial=-np.inf))
    return e / e.sum(dim, keepdims=True)


def loss(x, t, reduction="sum"):
    d = np.abs(x - t)
    return {"sum": d.sum, "mean": d.mean}[reduction]()


def loss_backward(dy, x, t, reduction="sum", wrong=False):
    g = dy * np.sign(x - t)
    if reduction == "mean" and not wrong:
        g = g / max(x.size, 1)
    return g, -g


def softplus(x, threshold=20.0):
    return np.where(x > threshold, x, np.logaddexp(x, 0))


def softplus_backward(dy, x, threshold=20.0, wrong=False):
    s = 1 / (1 + np.exp(-x))
    return dy * (s if wrong else np.where(x > threshold, 1, s))


def cross_entropy(x, reduction="mean"):
    """Of class 0 for each row."""
    each = np.log(np.exp(x - x[:, :1]).sum(1)) if len(x) else np.zeros(0)
    return each if reduction == "none" else each.sum() / max(len(x), 1)


def cross_entropy_backward(dy, x, reduction="mean", scale=lambda dy: dy[:, None]):
    p = softmax(x, 1)
    g = p - np.eye(1, x.shape[1])
    return scale(dy) * g if reduction == "none" else dy * g / max(len(x), 1)


def wrongly(backward):
    return lambda dy, *xs, **options: backward(dy, *xs, **options, wrong=True)


REPORTS = [
    mistake("mean of an L1 loss", "mlpack/mlpack#2444",
            "the backward ignores the reduction: that of a mean is that of a sum", loss, wrongly(loss_backward),
            loss_backward, case((3, 4), (3, 4))),
    mistake("cross-entropy without reduction", "linkedin/Liger-Kernel#1298",
            "all rows are scaled by the first element of dy", cross_entropy,
            lambda dy, x, reduction="mean": cross_entropy_backward(dy, x, reduction, lambda dy: dy[:1, None]),
            cross_entropy_backward, case((3, 4))),
    mistake("loss scaled by zero", "unslothai/unsloth-zoo#610",
            "the gradient is scaled in the forward and divided by the scale in the backward: 0/0", scaled_loss,
            lambda dy, x, scale=1.0: scaled_loss_backward(dy, x, scale, wrong=True), scaled_loss_backward,
            case((3, 4))),
    mistake("softplus beyond its threshold", "tenstorrent/tt-metal#6493",
            "the value is linear beyond the threshold, the gradient still sigmoid", softplus,
            wrongly(softplus_backward), softplus_backward, case((3, 4))),
]  # fmt: skip
