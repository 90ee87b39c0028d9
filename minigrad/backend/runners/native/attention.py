"""Launches of attention on the CPU: see attention.cpp."""

from pathlib import Path

from ...kernels import constant
from ...launch.attention import Attention

SOURCE = Path(__file__).parent / "attention.cpp"
BLOCK = constant(SOURCE, "BLOCK")  # queries of a block of the grid
LARGEST = constant(SOURCE, "LARGEST")  # the largest head size


class CpuAttention(Attention):
    """The part of Native that launches attention."""

    def _largest_head(self, dtype):
        return LARGEST

    def _launch_attention(self, o, lse, q, *rest):
        B, nh, T = q.shape[:3]
        grid = -(-T // BLOCK), B * nh
        self.launch("attention", "attention_forward", q.dtype, grid, 1, o, lse, q, *_without_dropout(*rest))

    def _launch_attention_backward(self, dq, dk, *rest):
        B, nkv = dk.shape[:2]
        self.launch("attention", "attention_backward", dk.dtype, B * nkv, 1, dq, dk, *_without_dropout(*rest))


def _without_dropout(*args):
    *before, keep, sizes, scale, is_causal, _ = args
    if keep is not None:
        raise ValueError("attention on the CPU takes no dropout: attention_fits(dropout=True) says so")
    return *before, sizes, scale, is_causal
