"""Attention layers of a size that a loop over heads can check, and their inputs."""

import numpy as np

import minigrad as mg
from minigrad import nn

IMPLS = "per_head", "batched", "fused"
B, T, S, C, NH = 2, 3, 4, 6, 2
HS = C // NH
PADDING = np.array([[False, False, True, True], [False, True, False, False]])  # True: not to attend, as in torch


def data(*shape):
    return mg.randn(*shape, dtype=mg.float64)


def layer(embed_dim=C, num_heads=NH, dtype=mg.float64, **options):
    """Return an attention layer with biases that are not 0."""
    m = nn.MultiheadAttention(embed_dim, num_heads, dtype=dtype, batch_first=True, **options)
    with mg.no_grad():
        for name, p in m.named_parameters():
            if name.endswith("bias"):
                p.copy_(data(*p.shape))
    return m


def close(x, expected):
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-11, atol=1e-13)
