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


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def silu(x):
    return x * sigmoid(x)


def atan2_slope(dy, y, x, scaled):
    if scaled:
        r = np.hypot(x, y)
        return dy * (x / r) / r, -dy * (y / r) / r
    r2 = np.hypot(x, y) ** 2
    return dy * x / r2, -dy * y / r2


def logsumexp(x, where):
    top = np.max(x, axis=-1, where=where, initial=-np.inf)
    return top + np.log(np.sum(np.exp(x - top[..., None]), axis=-1, where=where))


def logsumexp_right(dy, x, where):
    z = logsumexp(x, where)[..., None]
    return dy[..., None] * np.where(where, np.exp(np.where(where, x, z) - z), 0), None


def logsumexp_bad(dy, x, where):
    """exp of what is masked out may be infinite, and 0 times infinity is NaN."""
    z = logsumexp(x, where)[..., None]
    return dy[..., None] * where * np.exp(x - z), None


def soft_margin_bad(dy, x, t):
    e = np.exp(-t * x)
    return -dy * t * e / (1 + e), None


MASKED = np.array([[True, False, True], [True, True, False]])

REPORTS = [
    mistake(
        "sigmoid that has saturated",
        "tenstorrent/tt-metal#55724",
        "s (1 - s) is 0 as soon as s rounds to 1",
        sigmoid,
        lambda dy, x: dy * sigmoid(x) * (1 - sigmoid(x)),
        lambda dy, x: dy * sigmoid(x) * sigmoid(-x),
        case((3, 4)),
        case(Fixed([40.0, 45.0])),
        smooth=False,
    ),
    mistake(
        "expm1 plus 1",
        "tenstorrent/tt-metal#56351",
        "y + 1 for e^x: 0 as soon as expm1 rounds to -1",
        np.expm1,
        lambda dy, x: dy * (np.expm1(x) + 1),
        lambda dy, x: dy * np.exp(x),
        case((3, 4)),
        case(Fixed([-40.0, -50.0])),
        smooth=False,
    ),
    mistake(
        "softplus by exp",
        "tenstorrent/tt-metal#56397",
        "dy e^x times 1 / (1 + e^x): infinity times 0 where e^x overflows",
        softplus,
        lambda dy, x: dy * np.exp(x) * (1 / (1 + np.exp(x))),
        lambda dy, x: dy * sigmoid(x),
        case((3, 4)),
        case(Fixed([800.0, 1.0])),
    ),
    mistake(
        "surrogate sigmoid by exp",
        "jeshraghian/snntorch#433",
        "e^-kx / (1 + e^-kx)² is infinity / infinity",
        lambda x: sigmoid(25 * x),
        lambda dy, x: dy * 25 * np.exp(-25 * x) / (np.exp(-25 * x) + 1) ** 2,
        lambda dy, x: dy * 25 * sigmoid(25 * x) * sigmoid(-25 * x),
        case((3, 4)),
        case(Fixed([-30.0, 0.01])),
    ),
    mistake(
        "sigmoid backward for large negative numbers",
        "tinygrad/tinygrad#1113",
        "the chain through 1 / (1 + e^-x): 0 times infinity",
        sigmoid,
        lambda dy, x: dy * (1 / (1 + np.exp(-x))) ** 2 * np.exp(-x),
        lambda dy, x: dy * sigmoid(x) * sigmoid(-x),
        case((3, 4)),
        case(Fixed([-750.0, 0.5])),
    ),
    mistake(
        "elu of a large number",
        "tinygrad/tinygrad#17852",
        "the branch that was not taken: 0 times an e^x that overflowed",
        elu,
        lambda dy, x: dy * (x > 0) + dy * (x <= 0) * np.exp(x),
        lambda dy, x: dy * np.where(x > 0, 1, np.exp(np.minimum(x, 0))),
        case((3, 4)),
        case(Fixed([800.0, -1.0])),
    ),
    mistake(
        "silu of a large number",
        "trymirai/lalamo#328",
        "x / (1 + e^-x) differentiated as a quotient: infinity / infinity",
        silu,
        lambda dy, x: dy * (1 / (1 + np.exp(-x)) + x * np.exp(-x) / (1 + np.exp(-x)) ** 2),
        lambda dy, x: dy * (sigmoid(x) + x * sigmoid(x) * sigmoid(-x)),
        case((3, 4)),
        case(Fixed([-800.0, 0.5])),
    ),
    mistake(
        "tanh by cosh",
        "jax-ml/jax#764",
        "dy / cosh² x as 4 / (e^x + e^-x)² with numerator and denominator scaled by e^2x: NaN",
        np.tanh,
        lambda dy, x: dy * 4 * np.exp(2 * x) / (np.exp(2 * x) + 1) ** 2,
        lambda dy, x: dy * (1 - np.tanh(x) ** 2),
        case((3, 4)),
        case(Fixed([400.0, 0.5])),
    ),
    mistake(
        "log_softmax by division by softmax",
        "FluxML/NNlib.jl#68",
        "the gradient is that of softmax for dy / softmax(x), which underflows to 0",
        log_softmax,
        lambda dy, x: softmax_slope(dy / softmax(x), softmax(x)),
        lambda dy, x: dy - softmax(x) * dy.sum(-1, keepdims=True),
        case((3, 4)),
        case(Fixed([[-431.0, 279.0, 827.0]])),
    ),
    mistake(
        "atan2 with a hypot that is squared",
        "tenstorrent/tt-metal#53870",
        "x / hypot(x, y)²: the square overflows, which hypot was there to avoid",
        np.arctan2,
        lambda dy, y, x: atan2_slope(dy, y, x, scaled=False),
        lambda dy, y, x: atan2_slope(dy, y, x, scaled=True),
        case((3, 4), (3, 4)),
        case(Fixed([1e200, 2e200]), Fixed([1e200, -1e200])),
        smooth=False,
    ),
    mistake(
        "angle of a tiny number",
        "pytorch/pytorch#98276",
        "x / (x² + y²): the squares underflow",
        np.arctan2,
        lambda dy, y, x: (dy * x / (x * x + y * y), -dy * y / (x * x + y * y)),
        lambda dy, y, x: atan2_slope(dy, y, x, scaled=True),
        case((3, 4), (3, 4)),
        case(Fixed([1e-170]), Fixed([2e-170])),
        smooth=False,
    ),
    mistake(
        "logsumexp over some",
        "jax-ml/jax#23842",
        "the mask is applied after exp, which overflows for what is masked out",
        logsumexp,
        logsumexp_bad,
        logsumexp_right,
        case((2, 3), Fixed(MASKED)),
        case(Fixed([[0.0, 1000.0, 1.0], [0.5, 1.0, 900.0]]), Fixed(MASKED)),
    ),
    mistake(
        "soft margin loss of a confident mistake",
        "tracel-ai/burn#5373",
        "e^-tx / (1 + e^-tx) is infinity / infinity when the prediction is most wrong",
        lambda x, t: softplus(-t * x),
        soft_margin_bad,
        lambda dy, x, t: (-dy * t * sigmoid(-t * x), None),
        case((4,), Fixed(np.array([1, -1, 1, -1]))),
        case(Fixed([-800.0, 1.0]), Fixed(np.array([1, 1]))),
    ),
]
