"""Encoder, decoder and the two together: masks, norms before and after, weights of their own, gradients."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.gradcheck import gradcheck

B, T, S, C, NH = 2, 3, 4, 8, 2
OTHER_ATTENTION = dict(impl="per_head", num_kv_heads=1, positions="rotary")


def data(*shape):
    return mg.randn(*shape, dtype=mg.float64)


def made(kind, **options):
    options = dict(dim_feedforward=12, dropout=0.0, dtype=mg.float64, batch_first=True) | options
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
    layer = nn.TransformerEncoderLayer(C, NH, dim_feedforward=12, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(C))
    assert encoder.layers[0] is layer and len(encoder.layers) == 3
    for name in ("self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.bias"):
        values = [dict(each.named_parameters())[name] for each in encoder.layers]
        assert not (values[0] == values[1]).all() and not (values[1] == values[2]).all()
    biases = [each.self_attn.out_proj.bias for each in encoder.layers]
    assert all((bias == 0).all() for bias in biases)  # as MultiheadAttention draws it, not as Linear does
    assert [name for name, _ in encoder.named_modules()][1:3] == ["layers", "layers.0"]
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        nn.TransformerDecoder(nn.TransformerDecoderLayer(C, NH, batch_first=True), 0)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("attention", [{}, pytest.param(OTHER_ATTENTION, marks=pytest.mark.slow)], ids=str)
def test_gradients(norm_first, attention, how):
    options = dict(norm_first=norm_first, attention=attention, activation="gelu")
    src, tgt = data(B, S, C).requires_grad_(), data(B, T, C).requires_grad_()
    hidden = mg.tensor([[False] * S, [False, True, False, False]])
    m = nn.Transformer(C, NH, 1, 1, dim_feedforward=12, dropout=0.0, dtype=mg.float64, batch_first=True, **options)
    gradcheck(lambda m, src, tgt: m(src, tgt, tgt_is_causal=True, memory_key_padding_mask=hidden), m, src, tgt,
              **how)  # fmt: skip


def test_dropout_in_training_only_and_activations():
    m, x = nn.TransformerEncoderLayer(C, NH, dropout=0.5, batch_first=True), mg.randn(B, T, C)
    assert not (m(x) == m(x)).all()
    m.eval()
    assert (m(x) == m(x)).all()
    assert made(nn.TransformerEncoderLayer, activation=mg.tanh).activation is mg.tanh
    with pytest.raises(ValueError, match="activation must be a function or one of relu, gelu, silu, got 'elu'"):
        made(nn.TransformerEncoderLayer, activation="elu")


MASKS = {  # every mask of Transformer.forward: what it hides, and which output it must change, alone
    "src_mask": [[False, True, False, False]] * S,
    "tgt_mask": [[False, True, False]] * T,
    "memory_mask": [[False, True, False, False]] * T,
    "src_key_padding_mask": [[False, False, False, True]] * B,
    "tgt_key_padding_mask": [[False, False, True]] * B,
    "memory_key_padding_mask": [[False, False, False, True]] * B,
    "src_is_causal": True,
    "tgt_is_causal": True,
    "memory_is_causal": True,
}


@pytest.mark.parametrize("name", MASKS)
def test_each_mask_goes_to_its_own_attention(name):
    """Given to the whole, a mask does what it does in the layers that it is named after, and nothing else."""
    m, src, tgt = made(nn.Transformer), data(B, S, C), data(B, T, C)
    mask = MASKS[name] if MASKS[name] is True else mg.tensor(MASKS[name])
    kind = name.removeprefix(name.split("_")[0] + "_")  # mask, key_padding_mask or is_causal
    option = "attn_mask" if kind == "mask" else kind

    def attend(attention, x, memory, masked):
        return attention(x, memory, **({option: mask} if masked else {}))[0]

    memory = src
    for layer in m.encoder.layers:
        memory = layer.norm1(memory + attend(layer.self_attn, memory, memory, name.startswith("src")))
        memory = layer.norm2(memory + layer.linear2(layer.linear1(memory).relu()))
    memory = m.encoder.norm(memory)
    x = tgt
    for layer in m.decoder.layers:
        x = layer.norm1(x + attend(layer.self_attn, x, x, name.startswith("tgt")))
        x = layer.norm2(x + attend(layer.multihead_attn, x, memory, name.startswith("memory")))
        x = layer.norm3(x + layer.linear2(layer.linear1(x).relu()))
    expected = m.decoder.norm(x).detach().numpy()
    y = m(src, tgt, **{name: mask}).detach().numpy()
    np.testing.assert_allclose(y, expected, rtol=1e-10, atol=1e-12)
    assert abs(y - m(src, tgt).detach().numpy()).max() > 1e-6


def test_sizes_and_options_are_handed_on():
    """Defaults are PyTorch's; every option of the layers and of the whole reaches the parts that it is for."""
    m = nn.Transformer(C, NH, 1, 2, 12, batch_first=True)
    assert [len(m.encoder.layers), len(m.decoder.layers)] == [1, 2] and m.encoder.norm.eps == m.decoder.norm.eps == 1e-5
    layers = [*m.encoder.layers, *m.decoder.layers]
    assert [layer.dropout.p for layer in layers] == [layer.self_attn.dropout for layer in layers] == [0.1] * 3
    assert not any(layer.norm_first for layer in layers) and all(p.dtype == mg.float32 for p in m.parameters())
    other = dict(dropout=0.25, activation="silu", layer_norm_eps=1e-3, norm_first=True, bias=False, dtype=mg.float64)
    m = nn.Transformer(C, NH, 1, 1, 12, **other, attention=dict(impl="per_head", positions="rotary"), batch_first=True)
    assert not any("bias" in name for name, _ in m.named_parameters())
    assert all(p.dtype == mg.float64 for p in m.parameters())
    encoder, decoder = m.encoder.layers[0], m.decoder.layers[0]
    for layer in encoder, decoder:
        assert layer.norm_first and layer.activation is nn.functional.silu and layer.linear1.weight.shape == (12, C)
        assert layer.self_attn.impl == "per_head" and layer.self_attn.positions == "rotary"
        dropouts = [x.p for x in layer.modules() if isinstance(x, nn.Dropout)]
        assert dropouts == [0.25] * (3 + (layer is decoder)) and layer.self_attn.dropout == 0.25
    assert decoder.multihead_attn.positions is None and decoder.multihead_attn.impl == "per_head"  # two sequences
    assert {x.eps for x in m.modules() if isinstance(x, nn.LayerNorm)} == {1e-3}
    with nn.init.skipped():
        m = nn.Transformer(num_encoder_layers=1, num_decoder_layers=1, batch_first=True)
        many = nn.Transformer(8, 8, dim_feedforward=2, batch_first=True)
        assert len(many.encoder.layers) == len(many.decoder.layers) == 6
    attention = m.decoder.layers[0].multihead_attn
    assert attention.embed_dim == 512 and attention.num_heads == 8 and m.encoder.layers[0].linear1.out_features == 2048
    for kind in nn.TransformerEncoderLayer, nn.TransformerDecoderLayer:
        layer = kind(C, NH, batch_first=True)
        assert layer.linear1.out_features == 2048 and layer.dropout1.p == 0.1 and layer.norm1.eps == 1e-5
        assert layer.linear1.bias is not None and not layer.norm_first and layer.activation is nn.functional.relu


def test_the_whole_begins_with_xaviers_matrices():
    m = nn.Transformer(32, 4, 1, 1, 128, bias=True, batch_first=True)
    for name, p in m.named_parameters():
        if p.ndim > 1:
            bound = (6 / sum(p.shape)) ** 0.5
            assert 0.9 * bound < abs(p.detach().numpy()).max() <= bound, name
            assert p.detach().numpy().std() == pytest.approx(bound / 3**0.5, rel=0.1), name


def test_parameters_come_in_pytorchs_order():
    """Programs copy them as one vector."""
    layer = nn.TransformerDecoderLayer(4, 2, 8, batch_first=True)
    names = [name.rpartition(".")[0] for name, _ in layer.named_parameters()]
    assert [name.partition(".")[0] for name in dict.fromkeys(names)] == [
        "self_attn", "self_attn", "multihead_attn", "multihead_attn", "linear1", "linear2", "norm1", "norm2", "norm3",
    ]  # fmt: skip
