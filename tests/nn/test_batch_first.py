"""batch_first=False: what batch_first=True gives, with inputs, output and their gradients transposed."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study

from .heads import FORMS, NH, PADDING, B, C, S, T, close, data

KINDS = "MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"


def both(kind, *sizes, **options):
    """The same layer twice: batch first, and not."""
    first, second = (kind(*sizes, dtype=mg.float64, batch_first=each, **options) for each in (True, False))
    with mg.no_grad():
        for p in first.parameters():
            p.copy_(data(*p.shape))
    second.load_state_dict(first.state_dict())
    return first, second


def assert_same(layers, call, *shapes):
    """call(layer, *inputs) is a tuple, of which the first is an output: both layers give the same, and have the same
    gradients of inputs and parameters, where all is transposed for the second. shapes: of inputs, batch first."""
    inputs = [data(*shape).requires_grad_() for shape in shapes]
    others = [x.detach().transpose(0, 1).contiguous().requires_grad_() for x in inputs]
    (y, *rest), (other, *other_rest) = call(layers[0], *inputs), call(layers[1], *others)
    assert other.is_contiguous()
    close(other, y.detach().transpose(0, 1).numpy())
    for a, b in zip(other_rest, rest, strict=True):
        close(a, b.detach().numpy())
    dy = data(*y.shape)
    sum([(y * dy).sum(), *((x * x).sum() for x in rest)]).backward()
    sum([(other * dy.transpose(0, 1)).sum(), *((x * x).sum() for x in other_rest)]).backward()
    for x, o in zip(inputs, others):
        close(o.grad, x.grad.transpose(0, 1).numpy())
    for p, o in zip(*(layer.parameters() for layer in layers)):
        assert p.grad is o.grad is None or np.allclose(o.grad.numpy(), p.grad.numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_it_has_to_be_said(kind):
    for options in {}, {"batch_first": None}:
        with pytest.raises(
            TypeError, match=r"batch_first=True for inputs \(B, T, C\), or batch_first=False, PyTorch's"
        ):
            getattr(nn, kind)(C, NH, **options)


MASKS = {
    "none": {},
    "causal": dict(is_causal=True),
    "padding": dict(key_padding_mask=mg.tensor(PADDING)),
    "of all": dict(attn_mask=mg.tensor([[False, True, False, False]] * T)),
    "of each head": dict(attn_mask=mg.tensor(np.arange(B * NH * T * S).reshape(B * NH, T, S) % 3 == 1)),
    "a pattern": dict(need_weights=True, key_padding_mask=mg.tensor(PADDING)),
    "patterns of heads": dict(need_weights=True, average_attn_weights=False),
}


@pytest.mark.filterwarnings("ignore:the fused form never holds the pattern")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("sizes", [{}, dict(kdim=5, vdim=3), dict(num_kv_heads=1, positions="alibi")], ids=str)
def test_attention_to_another_sequence(form, masks, sizes):
    def call(layer, *qkv):
        y, pattern = layer(*qkv, **MASKS[masks])
        return (y,) if pattern is None else (y, pattern)

    layers = both(nn.MultiheadAttention, C, NH, impl=form, **sizes)
    assert_same(layers, call, (B, T, C), (B, S, layers[0].kdim), (B, S, layers[0].vdim))


@pytest.mark.parametrize("form", FORMS)
def test_attention_within_a_sequence(form):
    layers = both(nn.MultiheadAttention, 8, NH, impl=form, positions="rotary")
    assert_same(layers, lambda layer, x: layer(x, is_causal=True)[:1], (B, T, 8))


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformers(norm_first):
    hidden = mg.tensor(PADDING)

    def call(m, src, tgt):
        masks = dict(src_key_padding_mask=hidden, memory_key_padding_mask=hidden, tgt_key_padding_mask=hidden[:, :T])
        return (m(src, tgt, memory_mask=mg.zeros(T, S).bool(), tgt_is_causal=True, **masks),)

    layers = both(nn.Transformer, C, NH, 2, 2, 8, dropout=0.0, norm_first=norm_first)
    assert_same(layers, call, (B, S, C), (B, T, C))
    encoders = both(nn.TransformerEncoderLayer, C, NH, 8, dropout=0.0, norm_first=norm_first)
    assert_same(encoders, lambda m, x: (m(x, src_key_padding_mask=hidden),), (B, S, C))


@pytest.mark.parametrize("form", ["batched", "fused"])
def test_with_a_cache(form):
    (first, second), x = both(nn.MultiheadAttention, C, NH, impl=form), data(B, T, C)
    cache, expected = second.new_cache(B, T), first(x, is_causal=True)[0].detach().numpy()
    with mg.no_grad():
        for at in (0, 1, 2):
            y, _ = second(x[:, at : at + 1].transpose(0, 1), cache=cache)
            assert y.shape == (1, B, C)
            close(y[0], expected[:, at])


def test_wrong_shapes_are_named_in_the_order_that_is_meant():
    layer = nn.MultiheadAttention(C, NH, batch_first=False)
    with pytest.raises(ValueError, match=r"query must be \(T, B, 6\), got shape \(3, 6\)"):
        layer(mg.ones(T, C))
    with pytest.raises(ValueError, match=r"key must be \(S, B, 6\)"):
        layer(mg.ones(T, B, C), mg.ones(S, B, C + 1))
    with pytest.raises(ValueError, match=r"query \(3, 2, 6\), key \(4, 3, 6\) and value .* do not fit"):
        layer(mg.ones(T, B, C), mg.ones(S, B + 1, C))


class Model(nn.Module):
    def __init__(self, batch_first):
        self.wte = nn.Embedding(5, C)
        layer = nn.TransformerEncoderLayer(C, NH, 8, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, idx):
        return self.encoder(self.wte(idx))


def test_head_hooks_and_traces_see_what_they_see_in_a_layer_that_is_batch_first():
    first, second = Model(True), Model(False)
    second.load_state_dict(first.state_dict())
    idx = mg.tensor([[0, 1, 2], [3, 4, 0]])
    with study.trace_heads(first) as expected, study.trace_heads(second) as found:
        first(idx).square().sum().backward()
        second(idx.T).square().sum().backward()
    for name in "x_q", "pattern", "z_grad", "y", "y_grad":
        a, b = (getattr(trace[1], name) for trace in (found, expected))
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert found.check() and not found[0].crossed
    assert expected.tokens.shape == (2, 3) and found.tokens is None  # (B, T) or (T, B)? nobody has said


def test_a_residual_stream_has_to_be_batch_first():
    with pytest.raises(ValueError, match=r"make the model with batch_first=True, and load into it the state_dict\(\)"):
        study.flow(Model(False), (mg.tensor([[0, 1, 2]]),), lambda m, idx: m(idx).sum())
