"""MultiheadAttention: its three impls against a loop over heads and each other, gradients, and the exact identities."""

import math
import threading

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.gradcheck import gradcheck
from minigrad.nn import functional as F
from minigrad.nn.attention import force_impl

from .heads import HS, IMPLS, NH, PADDING, B, C, S, T, close, data, layer


def pattern_of(m, *args, **options):
    """Return the layer's whole pattern, computed by an impl that holds it."""
    m.impl = "batched" if m.impl == "fused" else m.impl
    return m(*args, need_weights=True, average_attn_weights=False, **options)[1]


def by_hand(m, query, key, value, allowed):
    """Return output and pattern, by a loop over heads and queries. allowed: (B, nh, T, S), True to attend."""
    nh, nkv, hs = m.num_heads, m.num_kv_heads, m.embed_dim // m.num_heads
    W = m.in_proj_weight.detach().numpy().reshape(nh + 2 * nkv, hs, -1)  # q's heads, then k's and v's
    b = m.in_proj_bias.detach().numpy().reshape(nh + 2 * nkv, hs)
    n, steps = query.shape[0], query.shape[1]
    z, pattern = np.zeros((n, steps, m.embed_dim)), np.zeros((n, nh, steps, key.shape[1]))
    for i, h in np.ndindex(n, nh):
        group = h // (nh // nkv)  # heads that stand side by side share keys and values
        heads = (query, h), (key, nh + group), (value, nh + nkv + group)
        q, k, v = (x[i] @ W[j].T + b[j] for x, j in heads)
        for t in range(steps):
            seen = allowed[i, h, t]
            if seen.any():
                e = np.where(seen, np.exp(k @ q[t] / math.sqrt(hs)), 0.0)
                pattern[i, h, t] = e / e.sum()
            z[i, t, h * hs : (h + 1) * hs] = pattern[i, h, t] @ v
    return z @ m.out_proj.weight.detach().numpy().T + m.out_proj.bias.detach().numpy(), pattern


HIDDEN = np.array([[False, True, False, True], [True, True, True, True], [False, False, True, False]])
PER_HEAD = np.random.default_rng(0).random((B * NH, T, S)) < 0.4
ADDED = np.where(HIDDEN, -np.inf, np.arange(12.0).reshape(T, S) / 10)


@pytest.mark.parametrize("nkv", [1, 2, 4])
@pytest.mark.parametrize("impl", IMPLS)
def test_heads_that_share_keys_against_a_loop_over_heads(impl, nkv):
    m, query, key = layer(12, 4, impl=impl, num_kv_heads=nkv), data(B, T, 12), data(B, S, 12)
    expected, expected_pattern = by_hand(m, query.numpy(), *[key.numpy()] * 2, np.ones((B, 4, T, S), bool))
    close(m(query, key)[0], expected)
    close(pattern_of(m, query, key, key), expected_pattern)


def test_float_masks_are_added(attention):
    query, key = data(B, T, C), data(B, S, C)
    pattern = pattern_of(attention, query, key, attn_mask=mg.tensor(ADDED))
    W, b = attention.in_proj_weight.detach().numpy(), attention.in_proj_bias.detach().numpy()
    q = (query.numpy() @ W[:C].T + b[:C]).reshape(B, T, NH, HS)
    k = (key.numpy() @ W[C : 2 * C].T + b[C : 2 * C]).reshape(B, S, NH, HS)
    e = np.exp(np.einsum("bthd,bshd->bhts", q, k) / math.sqrt(HS) + ADDED)
    total = e.sum(-1, keepdims=True)
    close(pattern, e / np.where(total == 0, 1, total))
    both = pattern_of(attention, query, key, attn_mask=mg.tensor(ADDED), key_padding_mask=mg.tensor(PADDING))
    assert (both.detach().numpy()[0, :, :, 2:] == 0).all() and both.isfinite().all()


# --------------------------------------------------------------------------------------------- three impls, one result

SETTINGS = {
    "plain": dict(),
    "causal": dict(is_causal=True),
    "no bias": dict(made=dict(bias=False)),
    "cross": dict(S=5),
    "grouped": dict(made=dict(num_kv_heads=2), is_causal=True),
    "multi-query": dict(S=5, made=dict(num_kv_heads=1)),
    "d_v is not d_k": dict(S=5, d_k=3, d_v=2),
    "padding": dict(S=4, key_padding_mask=PADDING),
    "bool mask": dict(S=4, T=3, attn_mask=HIDDEN),
    "mask for each head": dict(S=4, T=3, attn_mask=np.concatenate([PER_HEAD] * 2)),
    "added mask and padding": dict(S=4, T=3, attn_mask=ADDED, key_padding_mask=PADDING),
    "scale": dict(made=dict(scale=1.0)),
    "rotary": dict(made=dict(positions="rotary"), is_causal=True),
    "gates": dict(gates=True),
}
WIDE, HEADS = 8, 4


def built(name, dtype, on="cpu"):
    """Return (layer, query, key, value, options of the call) of a setting, on a device: the same at each call."""
    mg.manual_seed(0)
    setting = {"T": 3, "made": {}} | SETTINGS[name]
    m = layer(WIDE, HEADS, **setting["made"])
    T, S = setting["T"], setting.get("S")
    if "d_k" in setting:
        d_k, d_v = setting["d_k"], setting["d_v"]
        W_Q, W_K = (data(HEADS, WIDE, d_k).unbind(0) for _ in range(2))
        m.load_from_heads(W_Q, W_K, data(HEADS, WIDE, d_v).unbind(0), data(HEADS * d_v, WIDE))
    query = data(B, T, WIDE)
    key, value = (query, query) if S is None else (data(B, S, WIDE), data(B, S, WIDE))
    m.head_gates = data(m.num_heads) if "gates" in setting else None
    m.to(dtype, device=on)
    tensors = {id(x): x.to(dtype).to(on).requires_grad_() for x in (query, key, value)}
    masks = {k: setting[k] for k in ("attn_mask", "key_padding_mask") if k in setting}
    masks = {k: mg.tensor(x if x.dtype == bool else x.astype(np.dtype(dtype)), device=on) for k, x in masks.items()}
    if m.head_gates is not None:
        m.head_gates = m.head_gates.detach().requires_grad_()
    options = masks | {"is_causal": setting.get("is_causal", False)}
    return m, [tensors[id(x)] for x in (query, key, value)], options


def results(name, impl, dtype, on="cpu"):
    """Return the output and the gradients of inputs, gates and parameters, as float64 arrays."""
    m, inputs, options = built(name, dtype, on)
    m.impl = impl
    y, _ = m(*inputs, **options)
    weight = np.random.default_rng(0).standard_normal(y.shape)
    y.backward(mg.tensor(weight.astype(np.dtype(dtype)), device=on))
    leaves = [*inputs, *m.parameters(), *([] if m.head_gates is None else [m.head_gates])]
    return [x.cpu().numpy().astype(np.float64) for x in (y.detach(), *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dtype, slack", [(mg.float64, 1e-12), (mg.float32, 2e-5)])
def test_the_three_forms_are_one(name, dtype, slack, device):
    first, *others = (results(name, impl, dtype, device.device) for impl in IMPLS)
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_allclose(a, b, 0, slack * max(1, np.abs(a).max()))


OTHERS = [pytest.param(impl, 1, marks=pytest.mark.slow) for impl in IMPLS[:2]]  # with the same gradients: see above


@pytest.mark.parametrize("impl, order", [("fused", 1), ("fused", 2), *OTHERS])
@pytest.mark.parametrize("name", SETTINGS)
def test_gradients(name, impl, order, how):
    m, inputs, options = built(name, mg.float64)
    m.impl = impl
    leaves = list({id(x): x for x in inputs}.values())

    def call(m, *xs):
        found = dict(zip(map(id, leaves), xs))
        return m(*(found[id(x)] for x in inputs), **options)[0]

    gradcheck(call, m, *leaves, order=order, **how)


def test_a_query_that_sees_nothing_gives_zero_and_no_gradient(attention):
    attention.out_proj.bias = None
    query, key = data(B, T, C).requires_grad_(), data(B, S, C).requires_grad_()
    hidden = mg.ones(T, S, dtype=mg.bool_)
    y, _ = attention(query, key, attn_mask=hidden)
    assert (y == 0).all()
    y.sum().backward()
    for x in (query, key, attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight):
        assert (x.grad == 0).all()
    hidden = mg.tensor(HIDDEN)  # query 1 sees nothing
    y, _ = attention(query, key, attn_mask=hidden)
    assert (y[:, 1] == 0).all() and y.isfinite().all()
    (y * data(*y.shape)).sum().backward()
    assert (query.grad[:, 1] == 0).all() and all(p.grad.isfinite().all() for p in attention.parameters())


def test_the_fused_form_says_so_when_it_is_asked_for_its_pattern():
    m = layer()
    with pytest.warns(UserWarning, match="never holds the pattern: need_weights takes 'batched'"):
        _, pattern = m(data(B, T, C), need_weights=True)
    assert pattern.shape == (B, T, T)
    np.testing.assert_allclose(pattern.sum(-1).detach().numpy(), 1)


# ----------------------------------------------------------------------------------------------------------- identities


def inner(x, y):
    return (x * y).sum().item()


def test_all_layers_take_one_form_in_a_block_of_one_thread():
    marks = {"per_head": "cat", "batched": "attention_pattern", "fused": "attention"}
    layers = {impl: nn.MultiheadAttention(8, 2, impl=impl, batch_first=True) for impl in IMPLS}
    x, found = mg.randn(1, 3, 8), []

    def check_impls(wanted):
        for impl, attention in layers.items():
            seen = []
            with mg.autograd.watch(lambda op, given, made, seen=seen: seen.append(op.name)):
                attention(x)
            assert marks[wanted or impl] in seen and attention.impl == impl

    for impl in IMPLS:
        with force_impl(impl):
            check_impls(impl)
            with force_impl(None):
                check_impls(None)
            check_impls(impl)
            other = threading.Thread(target=lambda: found.append(check_impls(None)))
            other.start()
            other.join()
    check_impls(None)
    assert len(found) == len(IMPLS)
    with pytest.raises(RuntimeError, match="stop"), force_impl("batched"):
        raise RuntimeError("stop")
    check_impls(None)
    handle = layers["fused"].register_head_hook("z", lambda layer, z: found.append(z))
    with force_impl("fused"):
        layers["fused"](x)
    handle.remove()
    assert len(found) == len(IMPLS) + 1
    for wrong in "flash", "":
        with pytest.raises(ValueError, match="impl must be one of per_head, batched, fused"), force_impl(wrong):
            pass


def test_attention_refuses_what_does_not_fit(attention):
    with pytest.raises(ValueError, match="embed_dim 5 is not divisible by num_heads 2"):
        nn.MultiheadAttention(5, 2, batch_first=True)
    with pytest.raises(ValueError, match="num_heads 4 is not divisible by num_kv_heads 3"):
        nn.MultiheadAttention(8, 4, num_kv_heads=3, batch_first=True)
    with pytest.raises(ValueError, match="positions must be None or 'rotary', got 'rope'"):
        nn.MultiheadAttention(8, 4, positions="rope", batch_first=True)
    with pytest.raises(ValueError, match=r"query must be \(B, T, 6\), got shape \(3, 6\)"):
        attention(data(T, C))
    with pytest.raises(ValueError, match=r"query \(2, 3, 6\), key \(3, 4, 6\) and value \(3, 4, 6\) do not fit"):
        attention(data(B, T, C), data(3, S, C))
    with pytest.raises(ValueError, match=r"key_padding_mask must be \(2, 4\), got shape \(2, 3\)"):
        attention(data(B, T, C), data(B, S, C), key_padding_mask=mg.zeros(2, 3, dtype=mg.bool_))
    with pytest.raises(ValueError, match=r"attn_mask must be \(3, 4\) or \(4, 3, 4\), got shape \(5, 4\)"):
        attention(data(B, T, C), data(B, S, C), attn_mask=mg.zeros(5, 4, dtype=mg.bool_))
    attention.head_gates = mg.ones(3, dtype=mg.float64)
    with pytest.raises(ValueError, match=r"head_gates must be \(2,\) of float64, got \(3,\)"):
        attention(data(B, T, C))
    attention.head_gates = mg.ones(2)
    with pytest.raises(ValueError, match=r"head_gates must be .* got .* of float32"):
        attention(data(B, T, C))
    attention.head_gates = None
    for wrong in (mg.ones(T, S), mg.ones(T, S, dtype=mg.int64)):  # beside another mask as well
        with pytest.raises(TypeError, match="masks must be bool or float64 like the query"):
            attention(data(B, T, C), data(B, S, C), attn_mask=wrong, key_padding_mask=mg.tensor(PADDING))
    for options in (dict(impl="flash"), dict(dropout=2.0), dict(positions="rotary")):
        with pytest.raises(ValueError, match=r"impl must be|dropout must be|even head size, got 3"):
            nn.MultiheadAttention(6, 2, batch_first=True, **options)
    attention.impl = "flash"
    with pytest.raises(ValueError, match="impl must be one of per_head, batched, fused, got 'flash'"):
        attention(data(B, T, C))


@pytest.mark.parametrize("impl", IMPLS)
def test_attention_dropout_only_in_training(impl):
    m = nn.MultiheadAttention(C, NH, dropout=0.5, impl=impl, batch_first=True)
    x = mg.randn(B, T, C)
    assert not (m(x)[0] == m(x)[0]).all()
    m.eval()
    assert (m(x)[0] == m(x)[0]).all()


@pytest.mark.parametrize("n", [3, 80])  # on NumPy and, natively, on a kernel
def test_keys_and_values_of_another_dtype_are_refused(n):
    q, k = mg.randn(1, 2, n, 32), data(1, 2, n, 32)
    for args in ((q, k, k), (q.double(), k, k.float()), (q, q, k)):
        with pytest.raises(TypeError, match=r"attention: query is float.., key float.., value float..; use .to\(\)"):
            F.scaled_dot_product_attention(*args)
    with pytest.raises(TypeError, match="scaled_dot_product_attention needs floating-point input, got int64"):
        F.scaled_dot_product_attention(*[k.long()] * 3)


@pytest.mark.parametrize("dropout_p", [0.0, 0.1])
@pytest.mark.parametrize("nkv", [0, 3])
def test_heads_that_keys_do_not_divide_are_refused(nkv, dropout_p):
    k = data(1, nkv, 5, 2)
    with pytest.raises(ValueError, match=f"attention: {nkv} heads of keys do not divide 4 heads of queries"):
        F.scaled_dot_product_attention(data(1, 4, 3, 2), k, k, dropout_p=dropout_p, enable_gqa=True)


def test_batch_first_has_to_be_said():
    for options in ({}, dict(batch_first=None), dict(batch_first=False)):
        with pytest.raises(TypeError, match=r"inputs \(B, T, C\): say batch_first=True"):
            nn.MultiheadAttention(8, 2, **options)
