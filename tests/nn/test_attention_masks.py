"""The masks of MultiheadAttention, in all combinations, against NumPy."""

import itertools
import math

import numpy as np
import pytest

import minigrad as mg

from .heads import HS, IMPLS, NH, PADDING, B, C, S, close, data, layer

COMBINATIONS = list(itertools.product(("none", "bool", "float"), ("T S", "B·nh T S"), (False, True), (False, True)))


def expected_pattern(m, x, allowed, added):
    """Return the pattern (B, NH, S, S) of self-attention. allowed: True to attend. added: to the scores."""
    W = m.in_proj_weight.detach().numpy()
    b = m.in_proj_bias.detach().numpy()
    q, k = ((x.numpy() @ W[i : i + C].T + b[i : i + C]).reshape(B, S, NH, HS).swapaxes(1, 2) for i in (0, C))
    e = np.where(allowed, np.exp(q @ k.swapaxes(2, 3) / math.sqrt(HS) + added), 0.0)
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


@pytest.mark.parametrize("kind, shape, padded, causal", COMBINATIONS)
def test_masks_given_together_all_hold(kind, shape, padded, causal):
    m, x, rng, options = layer(), data(B, S, C), np.random.default_rng(0), {}
    allowed, added = np.ones((B, NH, S, S), bool), np.zeros((B, NH, S, S))
    if kind != "none":
        hidden = rng.random({"T S": (S, S), "B·nh T S": (B * NH, S, S)}[shape]) < 0.3
        bias = np.where(hidden, -np.inf, rng.standard_normal(hidden.shape))
        given = hidden if kind == "bool" else bias
        options["attn_mask"] = mg.tensor(given)
        allowed &= ~hidden.reshape(-1 if hidden.ndim == 2 else B, NH if hidden.ndim == 3 else 1, *hidden.shape[-2:])
        if kind == "float":
            added += np.where(hidden, 0.0, bias).reshape(
                1 if hidden.ndim == 2 else B, NH if hidden.ndim == 3 else 1, *hidden.shape[-2:]
            )
    if padded:
        options["key_padding_mask"] = mg.tensor(PADDING)
        allowed &= ~PADDING[:, None, None, :]
    if causal:
        allowed &= np.tri(S, dtype=bool)
    expected = expected_pattern(m, x, allowed, added)
    outputs = []
    for m.impl in IMPLS:
        outputs.append(m(x, is_causal=causal, **options)[0].detach().numpy())
        np.testing.assert_allclose(outputs[-1], outputs[0], rtol=1e-11, atol=1e-13)
    m.impl = "batched"
    close(m(x, is_causal=causal, need_weights=True, average_attn_weights=False, **options)[1], expected)
