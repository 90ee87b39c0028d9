"""MultiheadAttention beside its forms: single heads, sizes, positions, the cache."""

import itertools
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn

from .heads import IMPLS, B, C, S, T, close, data, layer

# ---------------------------------------------------------------------------------------------------- heads, one by one


@pytest.mark.parametrize("nkv", [4, 2])
def test_load_from_heads_is_the_definition(nkv):
    nh, d_k, d_v = 4, 3, 5
    W_Q, W_K, W_V = (
        [data(C, d_k) for _ in range(nh)],
        [data(C, d_k) for _ in range(nkv)],
        [data(C, d_v) for _ in range(nkv)],
    )
    W_O, x = data(nh * d_v, C), data(B, T, C)
    heads = []
    for i in range(nh):
        q, k, v = x @ W_Q[i], x @ W_K[i * nkv // nh], x @ W_V[i * nkv // nh]
        heads.append((q @ k.mT / math.sqrt(d_k)).softmax(-1) @ v)
    expected = (mg.cat(heads, -1) @ W_O).numpy()
    for bias, impl in itertools.product((True, False), IMPLS):
        m = layer(bias=bias, impl=impl)
        assert m.load_from_heads(W_Q, W_K, W_V, W_O) is m
        close(m(x)[0], expected)
        close(m(x, x.clone(), x)[0], expected)
    assert m.num_heads == nh and m.num_kv_heads == nkv
    m = nn.MultiheadAttention(4, 1, batch_first=True)
    assert m.load_from_heads([np.eye(4)], [np.eye(4)], [np.eye(4)], np.eye(4)).num_heads == 1


@pytest.mark.parametrize("made", [dict(bias=True), dict(num_kv_heads=2, scale=0.3)], ids=str)
def test_a_head_is_views_of_the_layers_parameters(made):
    m = layer(12, 6, **made)
    m.head_gates = mg.tensor(np.arange(1.0, 7.0))
    if m.in_proj_bias is not None:
        m.in_proj_bias.detach().copy_(data(*m.in_proj_bias.shape))
    x, k, v = data(B, T, 12), data(B, S, 12), data(B, S, 12)
    y = 0.0 if m.out_proj.bias is None else m.out_proj.bias.detach()
    for i in range(6):
        head, inputs = m.head(i), {"W_Q": x, "W_K": k, "W_V": v}
        for name, given in inputs.items():
            bias = [p.detach()[index] for p, index in head.parts[name][1:]]
            inputs[name] = given @ getattr(head, name) + (bias[0] if bias else 0.0)
        q, k_, v_ = inputs.values()
        y = y + head.gate * ((head.scale * q @ k_.mT).softmax(-1) @ v_ @ head.W_O)
    close(m(x, k, v)[0], y)
    m.head(2).W_O.copy_(m.head(2).W_O * 0)  # the layer's own memory
    assert not m.out_proj.weight.detach().numpy()[:, 4:6].any() and m.out_proj.weight.detach().numpy()[:, 6:].all()
    with pytest.raises(ValueError, match="there is no head 6: this layer has 6, from 0 on"):
        m.head(6)


def test_head_matrices_that_do_not_fit_are_refused():
    m, eye = layer(4, 2), np.eye(4)
    with pytest.raises(ValueError, match=r"W_O must be \(8, 4\), got \(4, 4\)"):
        m.load_from_heads([eye] * 2, [eye] * 2, [eye] * 2, eye)
    with pytest.raises(ValueError, match=r"0 W_Q, 0 W_K and 0 W_V"):
        m.load_from_heads([], [], [], eye)
    with pytest.raises(ValueError, match=r"3 W_Q, 2 W_K and 2 W_V"):
        m.load_from_heads([eye] * 3, [eye] * 2, [eye] * 2, eye)
    with pytest.raises(ValueError, match=r"W_K must be \(4, 4\), got \(3, 4\)"):
        m.load_from_heads([eye], [eye[:3]], [eye], eye)


def test_sizes_of_parameters():
    d = 12
    for bias in (True, False):
        m = nn.MultiheadAttention(d, 3, bias=bias, batch_first=True)
        assert m.num_parameters() == 4 * d * d + 4 * d * bias
        m = nn.MultiheadAttention(d, 6, num_kv_heads=2, bias=bias, batch_first=True)
        assert m.num_parameters() == 2 * d * d + 2 * d * 2 * 2 + bias * (2 * d + 2 * 2 * 2)


# ------------------------------------------------------------------------------------------------------------ positions


def test_rotary_turns_by_the_position_and_products_depend_on_distance_alone():
    x = data(2, 5, 8)
    y = nn.positions.rotary(x, start=3).numpy()
    for t, i in itertools.product(range(5), range(4)):
        angle = (3 + t) * 10000 ** (-2 * i / 8)
        a, b = x.numpy()[:, t, i], x.numpy()[:, t, i + 4]
        np.testing.assert_allclose(y[:, t, i], a * math.cos(angle) - b * math.sin(angle))
        np.testing.assert_allclose(y[:, t, i + 4], a * math.sin(angle) + b * math.cos(angle))
    q, k = data(4, 8), data(4, 8)
    near, far = ((nn.positions.rotary(q, s) @ nn.positions.rotary(k, s).T).numpy() for s in (0, 1000))
    np.testing.assert_allclose(near, far, atol=1e-11)
    with pytest.raises(ValueError, match="even head size, got 3"):
        nn.positions.rotary(data(4, 3))


# ------------------------------------------------------------------------------------------------------------ the cache


@pytest.mark.parametrize("impl", ["batched", "fused"])
@pytest.mark.parametrize("made", [{}, dict(num_kv_heads=2), dict(positions="rotary")], ids=str)
def test_a_cache_in_parts_is_the_whole(impl, made):
    m, x = layer(8, 4, impl=impl, **made), data(B, 7, 8)
    with mg.no_grad():
        whole, _ = m(x, is_causal=True)
        cache, parts = m.new_cache(B, 7), []
        for start, end in ((0, 3), (3, 5), (5, 6), (6, 7)):  # prefill, several at a time, one at a time
            parts.append(m(x[:, start:end], is_causal=True, cache=cache)[0])
            assert cache.length == end
    close(mg.cat(parts, 1), whole.numpy())
    with pytest.raises(ValueError, match="KVCache of 7 positions holds 7 and cannot take 1 more"), mg.no_grad():
        m(x[:, :1], cache=cache)
    with mg.no_grad():
        cache.k.fill_(np.nan), cache.v.fill_(np.inf), cache.clear()
        close(m(x[:, :1], is_causal=True, cache=cache)[0], whole[:, :1].numpy())


def test_a_cache_refuses():
    m, x = layer(impl="per_head"), data(B, T, C)
    with pytest.raises(ValueError, match="cache needs impl 'batched' or 'fused'"), mg.no_grad():
        m(x, cache=m.new_cache(B, 4))
    m.impl = "fused"
    with pytest.raises(RuntimeError, match=r"KVCache.*use no_grad\(\)"):
        m(x, cache=m.new_cache(B, 4))
    with pytest.raises(ValueError, match=r"a KVCache of \(3, 2,"), mg.no_grad():
        m(x, cache=m.new_cache(3, 4))


def test_several_keys_for_one_query_with_a_cache_stay_causal():
    m, x = layer(), data(1, 5, C)
    with mg.no_grad():
        whole = m(x, is_causal=True)[0]
        cache = m.new_cache(1, 5)
        m(x[:, :3], is_causal=True, cache=cache)
        close(m(x[:, 3:4], x[:, 3:], is_causal=True, cache=cache)[0], whole[:, 3:4].numpy())


def test_heads_of_a_group_stand_side_by_side():
    for heads, groups, expected in ((4, 2, (0, 0, 1, 1)), (6, 3, (0, 0, 1, 1, 2, 2)), (4, 1, (0, 0, 0, 0))):
        assert nn.MultiheadAttention(12, heads, num_kv_heads=groups, batch_first=True).kv_of_head == expected
