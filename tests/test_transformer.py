"""Encoder, decoder and the two together: masks, norms before and after, weights of their own, gradients."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.gradcheck import gradcheck

B, T, S, C, NH = 2, 3, 4, 8, 2


def data(*shape):
    return mg.randn(*shape, dtype=mg.float64)


def made(kind, **options):
    options = dict(dim_feedforward=12, dropout=0.0, dtype=mg.float64) | options
    if kind is nn.Transformer:
        return kind(C, NH, 2, 2, **options)
    return kind(C, NH, **options)


def norm(x, eps=1e-5):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + eps).sqrt()


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_is_attention_and_a_network_beside_residuals(norm_first):
    m, x = made(nn.TransformerEncoderLayer, norm_first=norm_first), data(B, T, C)

    def attend(x):
        return m.self_attn(x)[0]

    def network(x):
        return m.linear2(m.linear1(x).relu())

    if norm_first:
        expected = x + attend(norm(x))
        expected = expected + network(norm(expected))
    else:
        expected = norm(x + attend(x))
        expected = norm(expected + network(expected))
    np.testing.assert_allclose(m(x).detach().numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-13)


def test_padding_of_the_source_is_not_read():
    m, src, tgt = made(nn.Transformer, norm_first=True), data(B, S, C), data(B, T, C)
    padding = mg.tensor([[False] * S, [False, False, True, True]])
    options = dict(src_key_padding_mask=padding, memory_key_padding_mask=padding, tgt_is_causal=True)
    y = m(src, tgt, **options).detach().numpy()
    src[1, 2:] = data(2, C)
    np.testing.assert_array_equal(m(src, tgt, **options).detach().numpy(), y)
    np.testing.assert_allclose(
        m(src[1:, :2], tgt[1:], tgt_is_causal=True).detach().numpy(), y[1:], rtol=1e-12, atol=1e-13
    )


def test_a_causal_decoder_does_not_look_ahead():
    m, src, tgt = made(nn.Transformer), data(B, S, C), data(B, T, C)
    y = m(src, tgt, tgt_is_causal=True).detach().numpy()
    tgt[:, 2] = data(B, C)
    changed = (m(src, tgt, tgt_is_causal=True).detach().numpy() != y).any((0, 2))
    assert changed.tolist() == [False, False, True]
    future = mg.tensor(~np.tri(T, dtype=bool))
    np.testing.assert_allclose(
        m(src, tgt, tgt_mask=future).detach().numpy(), m(src, tgt, tgt_is_causal=True).detach().numpy(), rtol=1e-12
    )


def test_layers_begin_with_weights_of_their_own():
    layer = nn.TransformerEncoderLayer(C, NH, dim_feedforward=12)
    encoder = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(C))
    assert encoder.layers[0] is layer and len(encoder.layers) == 3
    for name in ("self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.bias"):
        values = [dict(each.named_parameters())[name] for each in encoder.layers]
        assert not (values[0] == values[1]).all() and not (values[1] == values[2]).all()
    biases = [each.self_attn.out_proj.bias for each in encoder.layers]
    assert all((bias == 0).all() for bias in biases)  # as MultiheadAttention draws it, not as Linear does
    assert [name for name, _ in encoder.named_modules()][1:3] == ["layers", "layers.0"]
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        nn.TransformerDecoder(nn.TransformerDecoderLayer(C, NH), 0)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("attention", [{}, dict(impl="per_head", num_kv_heads=1, positions="rotary")], ids=str)
def test_gradients(norm_first, attention):
    options = dict(norm_first=norm_first, attention=attention, activation="gelu")
    src, tgt = data(B, S, C).requires_grad_(), data(B, T, C).requires_grad_()
    hidden = mg.tensor([[False] * S, [False, True, False, False]])
    m = nn.Transformer(C, NH, 1, 1, dim_feedforward=12, dropout=0.0, dtype=mg.float64, **options)
    gradcheck(lambda m, src, tgt: m(src, tgt, tgt_is_causal=True, memory_key_padding_mask=hidden), m, src, tgt,
              mode="directional")  # fmt: skip


def test_dropout_in_training_only_and_activations():
    m, x = nn.TransformerEncoderLayer(C, NH, dropout=0.5), mg.randn(B, T, C)
    assert not (m(x) == m(x)).all()
    m.eval()
    assert (m(x) == m(x)).all()
    assert made(nn.TransformerEncoderLayer, activation=mg.tanh).activation is mg.tanh
    with pytest.raises(ValueError, match="activation must be a function or one of relu, gelu, silu, got 'elu'"):
        made(nn.TransformerEncoderLayer, activation="elu")
