"""Wrong for large numbers, where something overflows, saturates or cancels."""

import numpy as np

from minigrad import case
from minigrad.autograd.cases import Fixed

from .report import mistake


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def log_softmax(x):
    shifted = x - x.max(-1, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def softmax(x):
    return np.exp(log_softmax(x))


def softmax_slope(dy, y):
    return y * (dy - (dy * y).sum(-1, keepdims=True))


def soft_margin_bad(dy, x, t):
    e = np.exp(-t * x)
    return -dy * t * e / (1 + e), None


REPORTS = [
    mistake("softplus by exp", "tenstorrent/tt-metal#56397",
            "dy e^x times 1 / (1 + e^x): infinity times 0 where e^x overflows", softplus,
            lambda dy, x: dy * np.exp(x) * (1 / (1 + np.exp(x))), lambda dy, x: dy * sigmoid(x), case((3, 4))),
    mistake("sigmoid backward for large negative numbers", "tinygrad/tinygrad#1113",
            "the chain through 1 / (1 + e^-x): 0 times infinity", sigmoid,
            lambda dy, x: dy * (1 / (1 + np.exp(-x))) ** 2 * np.exp(-x), lambda dy, x: dy * sigmoid(x) * sigmoid(-x),
            case((3, 4))),
    mistake("log_softmax by division by softmax", "FluxML/NNlib.jl#68",
            "the gradient is that of softmax for dy / softmax(x), which underflows to 0", log_softmax,
            lambda dy, x: softmax_slope(dy / softmax(x), softmax(x)),
            lambda dy, x: dy - softmax(x) * dy.sum(-1, keepdims=True), case((3, 4))),
    mistake("soft margin loss of a confident mistake", "tracel-ai/burn#5373",
            "e^-tx / (1 + e^-tx) is infinity / infinity when the prediction is most wrong",
            lambda x, t: softplus(-t * x), soft_margin_bad, lambda dy, x, t: (-dy * t * sigmoid(-t * x), None),
            case((4,), Fixed(np.array([1, -1, 1, -1])))),
]  # fmt: skip
