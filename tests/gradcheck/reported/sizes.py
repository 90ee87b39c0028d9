"""Wrong from a certain size on, or below one: launches that end early, tails of blocks that are dropped."""

import numpy as np

from minigrad import case
from minigrad.autograd.cases import normal

from .report import mistake


def attend(q, k):
    """Scores of the last query of each sequence: (B, D), (B, T, D) -> (B, T)."""
    return np.einsum("bd,btd->bt", q, k)


def attend_backward(dy, q, k, wrong=False):
    dq, dk = np.einsum("bt,btd->bd", dy, k), np.einsum("bt,bd->btd", dy, q)
    if wrong and len(q) > 1 and q.shape[-1] == 256:  # the accumulator of one sequence goes on into the next
        dq = np.cumsum(dq, 0)
    return dq, dk


def first_two(dy, x):
    dx = np.zeros_like(x)
    dx[:, 0] = dx[:, 1] = dy
    return dx


def first_blocks(dx, most=65535):
    """What a launch of at most `most` blocks along the first axis has written of zeros."""
    out = np.zeros_like(dx)
    out[:most] = dx[:most]
    return out


def layer_norm(x, weight, bias):
    return normalised(x) * weight + bias


def normalised(x):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)


def layer_norm_dx(dy, x, weight):
    d = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    g = dy * weight
    return r * (g - g.mean(-1, keepdims=True) - d * r * (g * d * r).mean(-1, keepdims=True))


def layer_norm_backward(dy, x, weight, bias, rows=lambda n: n):
    n = rows(len(x))
    return layer_norm_dx(dy, x, weight), (dy * normalised(x))[:n].sum(0), dy[:n].sum(0)


def block_rows(n, block=16):
    """Rows that whole blocks cover, where small batches are not divided."""
    return n if n < 1024 else n // block * block


def rms_norm(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def rms_norm_backward(dy, x, wrong):
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    s = (dy * x * r).mean(-1)
    several_rows_to_a_block = len(x) >= 1024 and x.shape[-1] < 64
    if wrong and several_rows_to_a_block and len(x) % x.shape[-1] == 0:
        blocks = s.reshape(-1, 1, x.shape[-1])  # broadcast along the columns: no [:, None]
        term = np.broadcast_to(blocks, (len(blocks), x.shape[-1], x.shape[-1])).reshape(x.shape)
    else:
        term = s[:, None]
    return r * dy - x * r * r * term


def causal_conv(x, w):
    """y_t = sum_j w_j x_{t - W + 1 + j}, and the last W - 1 inputs as the state for the next chunk."""
    W = len(w)
    padded = np.concatenate([np.zeros(W - 1), x])
    y = np.array([(padded[t : t + W] * w).sum() for t in range(len(x))])
    return np.concatenate([y, padded[len(x) :]])


def causal_conv_backward(dy, x, w, wrong):
    T, W = len(x), len(w)
    dpadded, dw = np.zeros(T + W - 1), np.zeros(W)
    padded = np.concatenate([np.zeros(W - 1), x])
    for t in range(T):
        dpadded[t : t + W] += dy[t] * w
        dw += dy[t] * padded[t : t + W]
    dstate, start = dy[T:], T - (W - 1)
    if wrong:
        for t in range(max(0, start), T):  # the slot is counted from the clamped start
            dpadded[W - 1 + t] += dstate[t - max(0, start)]
    else:
        dpadded[T:] += dstate
    return dpadded[W - 1 :], dw


REPORTS = [
    mistake("index gradient of a batch beyond 65535", "pytorch/pytorch#22843",
            "the launch has at most 65535 blocks, and what lies beyond stays 0", lambda x: x[:, 0] + x[:, 1],
            lambda dy, x: first_blocks(first_two(dy, x)), lambda dy, x: first_two(dy, x), case((3, 2))),
    mistake("layer norm's weights, the last block of rows", "BobMcDear/attorch#18",
            "the buffer of partial sums has batch // block rows: those of the last, partial block are lost",
            layer_norm, lambda dy, x, w, b: layer_norm_backward(dy, x, w, b, block_rows), layer_norm_backward,
            case((3, 4), (4,), (4,))),
    mistake("RMS norm, several rows to a block", "BobMcDear/attorch#17",
            "the correction of each row is broadcast along the columns", rms_norm,
            lambda dy, x: rms_norm_backward(dy, x, wrong=True), lambda dy, x: rms_norm_backward(dy, x, wrong=False),
            case((3, 4))),
    mistake("causal convolution of a short chunk", "fla-org/flash-linear-attention#1140",
            "the slot of the final state is counted from max(0, T - W + 1)", causal_conv,
            lambda dy, x, w: causal_conv_backward(dy, x, w, wrong=True),
            lambda dy, x, w: causal_conv_backward(dy, x, w, wrong=False), case((6,), (4,))),
    mistake("naive convolution whose grid is truncated", "ROCm/rocm-libraries#10198",
            "the number of work groups is taken modulo a limit: only part of the rows is covered",
            lambda x: np.sin(x), lambda dy, x: first_blocks(dy * np.cos(x), len(x) % 4096 or len(x)),
            lambda dy, x: dy * np.cos(x), case(normal((2, 3)))),
    mistake("attention of several sequences with heads of 256", "NVIDIA/TransformerEngine#3216",
            "right for one sequence or smaller heads; dq runs over from one sequence to the next", attend,
            lambda dy, q, k: attend_backward(dy, q, k, wrong=True), attend_backward, case((2, 4), (2, 3, 4))),
]  # fmt: skip
