"""Wrong by their precision: constants cut short, accumulators of half precision, counts that overflow."""

import numpy as np

from minigrad import case
from minigrad.autograd.cases import Fixed, integers

from .report import mistake, with_cotangent


def narrow_sum(dy, dtype):
    """Σ dy along the first axis, one after the other in `dtype`."""
    total = np.zeros(dy.shape[1:], dtype)
    for row in dy.astype(dtype):
        total = (total + row).astype(dtype)
    return total


def embed_backward(dy, weight, index, narrow):
    dw = np.zeros(weight.shape, weight.dtype if narrow else np.float64)
    for row, g in zip(index, dy):
        dw[row] += g
    return dw, None


def max_backward(dy, x, narrow):
    mask = (x == x.max()) if x.size else np.zeros(x.shape)
    count = mask.astype(x.dtype).sum(dtype=x.dtype) if narrow else mask.sum()
    return dy * mask * (1 / np.asarray(count, x.dtype if narrow else np.float64))


def hardswish(x):
    return x * np.clip(x + 3, 0, 6) / 6


def hardswish_backward(dy, x, third):
    return dy * np.where(x < -3, 0, np.where(x <= 3, x * third + 0.5, 1))


HALVES = np.full((4096, 2), 0.1, np.float16)

REPORTS = [
    mistake(
        "hardswish with 0.3333",
        "tenstorrent/tt-metal#55291",
        "1/3 is written with four digits",
        hardswish,
        lambda dy, x: hardswish_backward(dy, x, 0.3333),
        lambda dy, x: hardswish_backward(dy, x, 1 / 3),
        case((3, 4)),
        case((3, 4)),
    ),
    mistake(
        "embedding's gradient added up in half precision",
        "apache/mxnet#17703",
        "the accumulator is float16: it saturates where a token is frequent",
        lambda w, i: w[i],
        lambda dy, w, i: embed_backward(dy, w, i, narrow=True),
        lambda dy, w, i: embed_backward(dy, w, i, narrow=False),
        case((5, 3), integers((4,), 5)),
        case(np.ones((2, 2), np.float16), Fixed(np.zeros(9000, int))),
        look=with_cotangent(np.ones_like),
        smooth=False,
    ),
    mistake(
        "count of the largest in half precision",
        "tinygrad/tinygrad#12296",
        "the number of largest elements is counted in float16, where it overflows",
        lambda x: x.max(initial=-np.inf) if x.size else np.zeros((), x.dtype),
        lambda dy, x: max_backward(dy, x, narrow=True),
        lambda dy, x: max_backward(dy, x, narrow=False),
        case((3, 4)),
        case(np.ones(70000, np.float16)),
        look=with_cotangent(np.ones_like),
        smooth=False,
    ),
    mistake(
        "bias gradient summed in half precision",
        "ml-explore/mlx#3909",
        "the sum over the batch saturates in float16",
        lambda x, b: x + b,
        lambda dy, x, b: (dy, narrow_sum(dy, b.dtype)),
        lambda dy, x, b: (dy, dy.sum(0, dtype=np.float64)),
        case((3, 4), (4,)),
        case(HALVES, np.zeros(2, np.float16)),
        look=with_cotangent(np.ones_like),
        smooth=False,
    ),
]
