"""What belongs to MultiheadAttention beside its forms: heads taken and removed, sizes, positions, the cache."""

import itertools
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study

from .heads import FORMS, B, C, S, T, close, data, layer

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
    for bias, form in itertools.product((True, False), FORMS):
        m = layer(bias=bias, impl=form)
        assert m.load_from_heads(W_Q, W_K, W_V, W_O) is m
        close(m(x)[0], expected)
        close(m(x, x.clone(), x)[0], expected)
    assert m.num_heads == nh and m.num_kv_heads == nkv
    m = nn.MultiheadAttention(4, 1, batch_first=True)
    assert m.load_from_heads([np.eye(4)], [np.eye(4)], [np.eye(4)], np.eye(4)).num_heads == 1


def test_pruned_heads_are_gone_and_the_others_stay(attention):
    m, x = layer(8, 4, impl=attention.impl), data(B, T, 8)
    m.head_gates = mg.tensor([1.0, 0.0, 0.5, 0.0], dtype=mg.float64)
    expected = m(x, is_causal=True)[0].detach().numpy()
    before = m.num_parameters()
    assert m.prune_heads({1, 3}) is m and m.num_heads == 2
    assert m.head_gates.tolist() == [1.0, 0.5]
    close(m(x, is_causal=True)[0], expected)
    removed = 2 * (4 * 8 * 2 + 3 * 2)  # of each head: four matrices and three biases
    assert m.num_parameters() == before - removed
    m.head_gates = mg.zeros(2, dtype=mg.float64)
    nothing = m(x)[0].detach().numpy()
    close(m.prune_heads({0, 1})(x)[0], nothing)
    assert m.num_heads == 0


def test_keys_that_no_head_reads_any_more_go_too():
    m, x = layer(8, 4, num_kv_heads=2), data(B, T, 8)
    m.head_gates = mg.tensor([0.0, 0.0, 0.0, 1.0], dtype=mg.float64)
    expected = m(x)[0].detach().numpy()
    m.prune_heads({0, 2})
    assert m.kv_of_head == (0, 1)
    m.prune_heads({0})
    assert m.kv_of_head == (0,) and m.num_kv_heads == 1 and m.in_proj_weight.shape == (6, 8)
    close(m(x)[0], expected)


GROUPED = dict(num_kv_heads=2), dict(num_kv_heads=3), dict(num_kv_heads=1), dict(), dict(num_kv_heads=2, kdim=5, vdim=7)


@pytest.mark.parametrize("positions", [None, "alibi", "rotary"])
@pytest.mark.parametrize("made", GROUPED, ids=str)
@pytest.mark.parametrize(
    "first, then", [({0, 1}, {0}), ({1, 2}, {3}), ({0, 2, 5}, {1}), ({5}, {0, 2}), ({2, 4, 5}, {0})], ids=str
)
def test_the_heads_that_stay_keep_their_keys_and_slopes_however_unevenly_others_go(first, then, made, positions):
    """Pruned twice, from 6 heads: as with gates of 0 for those that went, in each form, and for head_weights."""
    m = layer(12, 6, positions=positions, **made)
    x, k, v = data(B, T, 12), data(B, S, m.kdim), data(B, S, m.vdim)
    weights = [study.layers.head_weights(m, h) for h in range(6)]
    kept = [h for h in range(6) if h not in first]
    for heads in first, then:
        gone = {kept[h] for h in heads} if heads is then else first
        gates = np.array([h not in first | gone for h in range(6)], float)
        m.head_gates = mg.tensor(gates[kept] if heads is then else gates)
        expected = m(x, k, v, is_causal=True)[0].detach().numpy()
        m.prune_heads(heads).head_gates = None
        for m.impl in FORMS:
            close(m(x, k, v, is_causal=True)[0], expected)
        m.impl = "fused"
    kept = [h for i, h in enumerate(kept) if i not in then]
    for h, old in enumerate(kept):
        for ours, before in zip(study.layers.head_weights(m, h), weights[old], strict=True):
            np.testing.assert_array_equal(ours, before)
    assert m.num_kv_heads == len({old * made.get("num_kv_heads", 6) // 6 for old in kept})


@pytest.mark.parametrize("made", [dict(bias=True), dict(num_kv_heads=2, scale=0.3), dict(kdim=5, vdim=7)], ids=str)
def test_a_head_is_views_of_the_layers_parameters(made):
    m = layer(12, 6, **made).prune_heads({1})
    m.head_gates = mg.tensor(np.arange(1.0, 6.0))
    if m.in_proj_bias is not None:
        m.in_proj_bias.detach().copy_(data(*m.in_proj_bias.shape))
    x, k, v = data(B, T, 12), data(B, S, m.kdim), data(B, S, m.vdim)
    y = 0.0 if m.out_proj.bias is None else m.out_proj.bias.detach()
    for i in range(5):
        head, inputs = m.head(i), {"W_Q": x, "W_K": k, "W_V": v}
        for name, given in inputs.items():
            bias = [p.detach()[index] for p, index in head.parts[name][1:]]
            inputs[name] = given @ getattr(head, name) + (bias[0] if bias else 0.0)
        q, k_, v_ = inputs.values()
        y = y + head.gate * ((head.scale * q @ k_.mT).softmax(-1) @ v_ @ head.W_O)
    close(m(x, k, v)[0], y)
    m.head(2).W_O.copy_(m.head(2).W_O * 0)  # the layer's own memory
    assert not m.out_proj.weight.detach().numpy()[:, 4:6].any() and m.out_proj.weight.detach().numpy()[:, 6:].all()
    with pytest.raises(ValueError, match="there is no head 5: this layer has 5, from 0 on"):
        m.head(5)


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
    with pytest.raises(ValueError, match=r"there is no head 2, 5: this layer has 2"):
        m.prune_heads({0, 5, 2})


def test_sizes_of_parameters():
    d = 12
    for bias in (True, False):
        m = nn.MultiheadAttention(d, 3, bias=bias, batch_first=True)
        assert m.num_parameters() == 4 * d * d + 4 * d * bias
        m = nn.MultiheadAttention(d, 6, num_kv_heads=2, bias=bias, batch_first=True)
        assert m.num_parameters() == 2 * d * d + 2 * d * 2 * 2 + bias * (2 * d + 2 * 2 * 2)
        m = nn.MultiheadAttention(d, 3, kdim=5, vdim=7, bias=bias, batch_first=True)
        assert m.num_parameters() == d * (2 * d + 5 + 7) + 4 * d * bias
    assert nn.MultiheadAttention(16, 4, num_kv_heads=2, batch_first=True).half().new_cache(3, 10).nbytes == 3 * 10 * 32


# ------------------------------------------------------------------------------------------------------------ positions


def test_sinusoidal_positions_are_the_papers():
    x = nn.positions.sinusoidal(mg.tensor([[0, 1, 7]]), 6, mg.float64).numpy()[0]
    for row, position in zip(x, (0, 1, 7)):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            assert row[2 * i] == pytest.approx(math.sin(angle)) and row[2 * i + 1] == pytest.approx(math.cos(angle))


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


def test_alibi_is_the_papers():
    assert nn.positions.alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert nn.positions.alibi_slopes(3) == [2**-4, 2**-8, 2**-2]
    assert nn.positions.alibi_slopes(6) == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    bias = nn.positions.alibi([0.5, 0.25], 2, 4, start=2, dtype=mg.float64).numpy()
    np.testing.assert_array_equal(bias[0], [[-1, -0.5, 0, -0.5], [-1.5, -1, -0.5, 0]])
    np.testing.assert_array_equal(bias[1], bias[0] / 2)


# ------------------------------------------------------------------------------------------------------------ the cache


@pytest.mark.parametrize("form", ["batched", "fused"])
@pytest.mark.parametrize("made", [{}, dict(num_kv_heads=2), dict(positions="rotary"), dict(positions="alibi")], ids=str)
def test_a_cache_in_parts_is_the_whole(form, made):
    m, x = layer(8, 4, impl=form, **made), data(B, 7, 8)
    with mg.no_grad():
        whole, _ = m(x, is_causal=True)
        cache, parts = m.new_cache(B, 7), []
        for start, end in ((0, 3), (3, 5), (5, 6), (6, 7)):  # prefill, several at a time, one at a time
            parts.append(m(x[:, start:end], is_causal=True, cache=cache)[0])
            assert cache.length == end
    close(mg.cat(parts, 1), whole.numpy())
    with pytest.raises(ValueError, match="KVCache of 7 positions holds 7 and cannot take 1 more"), mg.no_grad():
        m(x[:, :1], cache=cache)


def test_a_cache_refuses():
    m, x = layer(impl="per_head"), data(B, T, C)
    with pytest.raises(ValueError, match="cache needs impl 'batched' or 'fused'"), mg.no_grad():
        m(x, cache=m.new_cache(B, 4))
    m.impl = "fused"
    with pytest.raises(RuntimeError, match=r"KVCache.*use no_grad\(\) or inference_mode\(\)"):
        m(x, cache=m.new_cache(B, 4))
    with pytest.raises(ValueError, match=r"this KVCache is for .*\(3, 2,"), mg.no_grad():
        m(x, cache=m.new_cache(3, 4))


def test_several_keys_for_one_query_with_a_cache_stay_causal():
    m, x = layer(), data(1, 5, C)
    with mg.no_grad():
        whole = m(x, is_causal=True)[0]
        cache = m.new_cache(1, 5)
        m(x[:, :3], is_causal=True, cache=cache)
        close(m(x[:, 3:4], x[:, 3:], is_causal=True, cache=cache)[0], whole[:, 3:4].numpy())


def test_what_was_frozen_or_a_parameter_stays_so():
    m = layer(8, 4).requires_grad_(False)
    m.head_gates = mg.ones(4, dtype=mg.float64, requires_grad=True)
    m.prune_heads([1])
    assert not any(p.requires_grad for p in m.parameters()) and m.head_gates.requires_grad
    m.head_gates = nn.Parameter(m.head_gates.detach())
    m.prune_heads([0])
    assert isinstance(m.head_gates, nn.Parameter) and m.head_gates.shape == (2,)


def test_a_layer_without_heads_is_its_bias():
    m, x = layer(impl="batched").prune_heads({0, 1}), data(B, T, C)
    y, pattern = m(x, need_weights=True)
    close(y, np.broadcast_to(m.out_proj.bias.detach().numpy(), (B, T, C)))
    assert pattern.shape == (B, T, T) and (pattern == 0).all()
    cache = m.new_cache(B, 4)
    with mg.no_grad():
        m(x, cache=cache)
        assert cache.length == T
        with pytest.raises(ValueError, match="holds 3 and cannot take 3 more"):
            m(x, cache=cache)


def test_heads_of_a_group_stand_side_by_side():
    for heads, groups, expected in ((4, 2, (0, 0, 1, 1)), (6, 3, (0, 0, 1, 1, 2, 2)), (4, 1, (0, 0, 0, 0))):
        assert nn.MultiheadAttention(12, heads, num_kv_heads=groups, batch_first=True).kv_of_head == expected
