"""Wrong nearly everywhere: signs, factors, the wrong function, a cotangent that is not used."""

import numpy as np

from minigrad import case
from minigrad.autograd.cases import positive

from .report import Report, mistake


def log_softmax(x):
    shifted = x - x.max(-1, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def log_softmax_right(dy, x):
    return dy - np.exp(log_softmax(x)) * dy.sum(-1, keepdims=True)


def correlate(x, w):
    n = max(len(x) - len(w) + 1, 0)
    return np.array([(x[i : i + len(w)] * w).sum() for i in range(n)])


def correlate_backward(dy, x, w, mean=False):
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for i in range(len(dy)):
        dx[i : i + len(w)] += dy[i] * w
        dw += dy[i] * x[i : i + len(w)]
    return dx, dw / (max(len(dy), 1) if mean else 1)


def volume_backward(dy, x, w, wrong):
    """y[k] = sum_cd w[k, c, d] x[c, d]: dx[c, d] = sum_k w[k, c, d] dy[k]."""
    dx = np.einsum("kcd,k->cd", w, dy)
    if wrong:  # written to index m of the output, not to d of the filter
        dx = np.zeros_like(dx)
        dx[:, : dx.shape[1] // 2] = np.einsum("kcd,k->cd", w, dy)[:, : dx.shape[1] // 2]
    return dx, np.einsum("cd,k->kcd", x, dy)


def pointwise_backward(dy, x, w, wrong):
    """y = x w.T, x (N, C), w (K, C)."""
    dw = dy.T @ x
    if wrong and (w.shape[0] % 2 == 0 or w.shape[1] % 2 == 0):  # a vector load of two crosses the end of a row
        dw = np.roll(dw, 1, axis=1)
    return dy @ w, dw


def squared_hinge(x):
    return np.maximum(1 - x, 0) ** 2


def shared(x):
    y = x * 3
    return y * 2 + y.detach() * 5


def branched(x):
    """b = a, then b = a² or a³: b's gradient is cleared together with that of its alias."""
    return x.detach() ** 2 + 0 * x


def evaluated(x):
    """The graph ends where the array was read in between."""
    y = x + 1.0
    return y.detach() ** 2 + 0 * x


def power_of_size(dy, x, p):
    size = np.where(x == 0, 1, np.abs(x))
    dx = np.where(x == 0, 0, dy * p * size ** (p - 1) * np.sign(x))
    return dx, dy * np.abs(x) ** p * np.log(size)


REPORTS = [
    mistake(
        "ldexp with exp",
        "tenstorrent/tt-metal#6533",
        "e^y for 2^y, ln 2 in the wrong one, and dy not used",
        lambda x, y: x * 2**y,
        lambda dy, x, y: (np.exp(y) * np.log(2), x * np.exp(y) * np.log(2) ** 2),
        lambda dy, x, y: (dy * 2**y, dy * x * 2**y * np.log(2)),
        case((3, 4), (3, 4)),
        case((3, 4), (3, 4)),
    ),
    mistake(
        "power of the other operand",
        "tenstorrent/tt-metal#55289",
        "the gradient of x^b instead of b^x",
        lambda x: 3.0**x,
        lambda dy, x: dy * 3 * x**2,
        lambda dy, x: dy * np.log(3.0) * 3.0**x,
        case((3, 4)),
        case((3, 4)),
    ),
    mistake(
        "negative base",
        "tenstorrent/tt-metal#54440",
        "n e^((n-1) ln x), infinite for every negative x",
        lambda x: x**3,
        lambda dy, x: dy * np.where(x <= 0, np.inf, 3 * np.exp(2 * np.log(np.abs(x)))),
        lambda dy, x: dy * 3 * x**2,
        case((3, 4)),
        case((3, 4)),
    ),
    mistake(
        "tanh without its parentheses",
        "apache/tvm#7340",
        "dy 1 - y² for dy (1 - y²)",
        np.tanh,
        lambda dy, x: dy - np.tanh(x) ** 2,
        lambda dy, x: dy * (1 - np.tanh(x) ** 2),
        case((3, 4)),
        case((3, 4)),
    ),
    mistake(
        "subtraction without its sign",
        "KhawajaAbaid/micrograd_c#1",
        "the gradient of the second operand is dy",
        np.subtract,
        lambda dy, x, y: (dy, dy),
        lambda dy, x, y: (dy, -dy),
        case((3, 4), (3, 4)),
        case((3, 4), (3, 4)),
    ),
    mistake(
        "scores whose gradient ignores that of the total",
        "k2-fsa/k2#341",
        "dy is not used: right for a loss that is the sum, up to its sign",
        lambda x: np.log(np.exp(x).sum(-1)),
        lambda dy, x: np.exp(log_softmax(x)),
        lambda dy, x: dy[..., None] * np.exp(log_softmax(x)),
        case((3, 4)),
        case((3, 4)),
    ),
    mistake(
        "logsoftmax with the output for the gradient",
        "uxlfoundation/oneDNN#616",
        "dy - dy · y",
        log_softmax,
        lambda dy, x: dy - (dy * log_softmax(x)).sum(-1, keepdims=True),
        log_softmax_right,
        case((3, 4)),
        case((3, 4)),
    ),
    mistake(
        "logsoftmax that adds dy",
        "mlpack/mlpack#2360",
        "dy + softmax, where the Kronecker delta should be",
        log_softmax,
        lambda dy, x: dy + np.exp(log_softmax(x)),
        log_softmax_right,
        case((3, 4)),
        case((3, 4)),
    ),
    mistake(
        "weights of a convolution, averaged",
        "sebgao/cTensor#3",
        "the sum over positions is divided by their number",
        correlate,
        lambda dy, x, w: correlate_backward(dy, x, w, mean=True),
        correlate_backward,
        case((6,), (3,)),
        case((6,), (3,)),
    ),
    mistake(
        "convolution written to another index",
        "NervanaSystems/neon#111",
        "the gradient of the input is written by the index of the output's depth",
        lambda x, w: np.einsum("kcd,cd->k", w, x),
        lambda dy, x, w: volume_backward(dy, x, w, wrong=True),
        lambda dy, x, w: volume_backward(dy, x, w, wrong=False),
        case((2, 4), (3, 2, 4)),
        case((2, 4), (3, 2, 4)),
    ),
    mistake(
        "convolution of width 1 with even channels",
        "ROCm/composable_kernel#2478",
        "the weights' gradient is wrong where the number of channels, in or out, is even",
        lambda x, w: x @ w.T,
        lambda dy, x, w: pointwise_backward(dy, x, w, wrong=True),
        lambda dy, x, w: pointwise_backward(dy, x, w, wrong=False),
        case((2, 4), (3, 4)),
        case((2, 4), (3, 4)),
    ),
    mistake(
        "squared hinge, not averaged",
        "chainer/chainer#2577",
        "the gradient of the sum for the value of the mean",
        lambda x: squared_hinge(x).sum() / max(x.size, 1),
        lambda dy, x: -2 * dy * np.maximum(1 - x, 0),
        lambda dy, x: -2 * dy * np.maximum(1 - x, 0) / max(x.size, 1),
        case((3, 4)),
        case((3, 4)),
    ),
    Report(
        "node shared by two ops",
        "TrenTorch/TrenTorch#182",
        "only the first of its users sends a gradient back",
        shared,
        lambda x: x * 6 + x * 15,
        case((3, 4)),
        case((3, 4)),
    ),
    Report(
        "variable that is another name",
        "NVIDIA/warp#202",
        "clearing the gradient of the alias clears that of the variable",
        branched,
        lambda x: x * x,
        case((3, 4)),
        case((3, 4)),
    ),
    Report(
        "array read in between",
        "ml-explore/mlx#610",
        "evaluating a comparison of the array detaches it: the gradient is 0",
        evaluated,
        lambda x: (x + 1.0) ** 2,
        case((3, 4)),
        case((3, 4)),
    ),
    Report(
        "constant that passes the gradient on",
        "pytorch/pytorch#80839",
        "filling in place leaves the identity as the gradient of a constant",
        lambda x: x - x.detach(),
        lambda x: x * 0.0,
        case((3, 4)),
        case((3, 4)),
    ),
    mistake(
        "power by a logarithm",
        "tensorflow/tfjs#346",
        "ln of a base that is negative: NaN for the exponent, although the value is defined",
        lambda x, p: np.abs(x) ** p,
        lambda dy, x, p: (dy * p * np.abs(x) ** (p - 1) * np.sign(x), dy * np.abs(x) ** p * np.log(x)),
        lambda dy, x, p: power_of_size(dy, x, p),
        case(positive((3, 4)), positive((3, 4))),
        case((3, 4), positive((3, 4))),
    ),
]
