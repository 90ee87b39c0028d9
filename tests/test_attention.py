"""MultiheadAttention against a loop over heads, the transformer's shapes and causality, sampling from a GPT."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn

B, T, S, C, NH = 2, 3, 4, 6, 2
HS = C // NH


def data(*shape):
    return mg.randn(*shape, dtype=mg.float64)


@pytest.fixture
def attention():
    m = nn.MultiheadAttention(C, NH, dtype=mg.float64)
    with mg.no_grad():
        m.in_proj_bias.copy_(data(3 * C))
        m.out_proj.bias.copy_(data(C))
    return m


def by_hand(m, query, key, value, allowed):
    """A head and a query at a time. allowed: (B, NH, T, S), True to attend. Returns output and pattern."""
    W = m.in_proj_weight.detach().numpy().reshape(3, NH, HS, C)  # q, k, v; head
    b = m.in_proj_bias.detach().numpy().reshape(3, NH, HS)
    n, steps = query.shape[0], query.shape[1]
    z, pattern = np.zeros((n, steps, C)), np.zeros((n, NH, steps, key.shape[1]))
    for i, h in np.ndindex(n, NH):
        q, k, v = (x[i] @ W[j, h].T + b[j, h] for j, x in enumerate((query, key, value)))
        for t in range(steps):
            seen = allowed[i, h, t]
            if seen.any():
                e = np.where(seen, np.exp(k @ q[t] / math.sqrt(HS)), 0.0)
                pattern[i, h, t] = e / e.sum()
            z[i, t, h * HS : (h + 1) * HS] = pattern[i, h, t] @ v
    return z @ m.out_proj.weight.detach().numpy().T + m.out_proj.bias.detach().numpy(), pattern


def close(x, expected):
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-11, atol=1e-13)


PADDING = np.array([[False, False, True, True], [False, True, False, False]])  # True: not to attend, as in torch
HIDDEN = np.array([[False, True, False, True], [True, True, True, True], [False, False, True, False]])
PER_HEAD = np.random.default_rng(0).random((B * NH, T, S)) < 0.4
ADDED = np.where(HIDDEN, -np.inf, np.arange(12.0).reshape(T, S) / 10)


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("mask", [None, HIDDEN, PER_HEAD], ids=["none", "shared", "per head"])
def test_cross_attention_against_a_loop_over_heads(attention, mask, padding):
    query, key, value = data(B, T, C), data(B, S, C), data(B, S, C)
    allowed = np.ones((B, NH, T, S), bool)
    options = {}
    if mask is not None:
        allowed &= ~(mask.reshape(B, NH, T, S) if mask.ndim == 3 else mask)
        options["attn_mask"] = mg.tensor(mask)
    if padding:
        allowed &= ~PADDING[:, None, None, :]
        options["key_padding_mask"] = mg.tensor(PADDING)
    y, pattern = attention(query, key, value, need_weights=True, average_attn_weights=False, **options)
    expected, expected_pattern = by_hand(attention, query.numpy(), key.numpy(), value.numpy(), allowed)
    close(y, expected)
    close(pattern, expected_pattern)
    assert (pattern.detach().numpy()[~allowed] == 0).all()
    close(attention(query, key, value, need_weights=True, **options)[1], expected_pattern.mean(1))


def test_self_attention_is_the_same_however_it_is_asked_for(attention):
    x = data(B, T, C)
    allowed = np.broadcast_to(np.tri(T, dtype=bool), (B, NH, T, T))
    expected, _ = by_hand(attention, *[x.numpy()] * 3, allowed)
    future = mg.tensor(~np.tri(T, dtype=bool))
    for y, weights in (
        attention(x, is_causal=True),
        attention(x, x, x, is_causal=True),
        attention(x, x.clone(), is_causal=True),
        attention(x, attn_mask=future),
        attention(x, attn_mask=mg.zeros(T, T, dtype=mg.float64).masked_fill(future, -np.inf)),
    ):
        assert weights is None
        close(y, expected)


def test_float_masks_are_added(attention):
    query, key = data(B, T, C), data(B, S, C)
    _, pattern = attention(query, key, attn_mask=mg.tensor(ADDED), need_weights=True, average_attn_weights=False)
    W, b = attention.in_proj_weight.detach().numpy(), attention.in_proj_bias.detach().numpy()
    q = (query.numpy() @ W[:C].T + b[:C]).reshape(B, T, NH, HS)
    k = (key.numpy() @ W[C : 2 * C].T + b[C : 2 * C]).reshape(B, S, NH, HS)
    e = np.exp(np.einsum("bthd,bshd->bhts", q, k) / math.sqrt(HS) + ADDED)
    total = e.sum(-1, keepdims=True)
    close(pattern, e / np.where(total == 0, 1, total))
    both = attention(query, key, attn_mask=mg.tensor(ADDED), key_padding_mask=mg.tensor(PADDING), need_weights=True)[1]
    assert (both.detach().numpy()[0, :, 2:] == 0).all() and both.isfinite().all()


def test_gradients_of_all_inputs_and_parameters(attention):
    xs = [data(B, n, C).requires_grad_() for n in (T, S, S)]
    weight, h = data(B, T, C), 1e-6
    hidden = mg.tensor(HIDDEN)

    def loss():
        return (attention(*xs, attn_mask=hidden)[0] * weight).sum()

    loss().backward()
    with mg.no_grad():
        for x in (*xs, *attention.parameters()):
            u = data(*x.shape)
            x.add_(u, alpha=h)
            up = loss().item()
            x.sub_(u, alpha=2 * h)
            down = loss().item()
            x.add_(u, alpha=h)
            assert (x.grad * u).sum().item() == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-7)


def test_attention_refuses_what_does_not_fit(attention):
    with pytest.raises(ValueError, match="embed_dim 5 is not divisible by num_heads 2"):
        nn.MultiheadAttention(5, 2)
    with pytest.raises(ValueError, match=r"query must be \(B, T, 6\), got shape \(3, 6\)"):
        attention(data(T, C))
    with pytest.raises(ValueError, match=r"key_padding_mask must be \(2, 4\), got shape \(2, 3\)"):
        attention(data(B, T, C), data(B, S, C), key_padding_mask=mg.zeros(2, 3, dtype=mg.bool_))
    with pytest.raises(ValueError, match=r"mask of shape \(5, 4\).*\(2, 2, 3, 4\)"):
        attention(data(B, T, C), data(B, S, C), attn_mask=mg.zeros(5, 4, dtype=mg.bool_))


def test_attention_dropout_only_in_training():
    m = nn.MultiheadAttention(C, NH, dropout=0.5)
    x = mg.randn(B, T, C)
    assert not (m(x)[0] == m(x)[0]).all()
    m.eval()
    assert (m(x)[0] == m(x)[0]).all()


# ------------------------------------------------------------------------------------------------------------------ GPT

V, BLOCK = 7, 5


def gpt(**options):
    return nn.GPT(nn.GPTConfig(V, BLOCK, n_layer=2, n_head=2, n_embd=8, **options))


def tokens(*shape):
    return mg.randint(0, V, shape)


def test_gpt_shapes_and_loss():
    m = gpt()
    idx, targets = tokens(3, BLOCK), tokens(3, BLOCK)
    logits, none = m(idx)
    assert logits.shape == (3, BLOCK, V) and none is None
    again, loss = m(idx, targets)
    expected = mg.nn.functional.cross_entropy(logits.reshape(-1, V), targets.reshape(-1))
    assert loss.shape == () and loss.item() == pytest.approx(expected.item()) and (again == logits).all()
    assert loss.item() == pytest.approx(math.log(V), abs=0.4)  # knows nothing yet: logits of std 0.55, as GPT-2's
    assert m(tokens(1, 1))[0].shape == (1, 1, V)
    with pytest.raises(ValueError, match="6 tokens is longer than block_size 5"):
        m(tokens(1, BLOCK + 1))
    with pytest.raises(IndexError, match=f"index {V}.*size {V}"):
        m(mg.full((1, 2), V))


def test_gpt_size_and_initialisation():
    m = gpt()
    C = 8
    assert m.num_parameters() == V * C + BLOCK * C + 2 * (2 * C + 4 * C * C + 8 * C * C) + C
    assert all("bias" not in name for name, _ in m.named_parameters())
    large = nn.GPT(nn.GPTConfig(100, 64, n_layer=2, n_head=2, n_embd=64, bias=True))
    state = large.state_dict()
    std = 0.02 * math.sqrt(768 / 64)
    assert state["blocks.0.mlp.fc.weight"].numpy().std() == pytest.approx(std, rel=0.05)
    for name in ("blocks.1.mlp.proj.weight", "blocks.0.attn.out_proj.weight"):
        assert state[name].numpy().std() == pytest.approx(std / 2, rel=0.05)
    assert all((p == 0).all() for name, p in state.items() if name.endswith("bias"))
    decayed, rest = large.parameter_groups(0.1)
    assert all(p.ndim == 2 for p in decayed["params"]) and all(p.ndim == 1 for p in rest["params"])
    assert decayed["weight_decay"] == 0.1 and rest["weight_decay"] == 0.0
    assert len(decayed["params"]) + len(rest["params"]) == len(list(large.parameters()))


def test_gpt_is_causal_and_does_not_mix_sequences():
    m = gpt().double()
    idx = tokens(2, BLOCK)
    with mg.no_grad():
        m.wte.weight.copy_(data(V, 8))
    logits = m(idx)[0].detach().numpy()
    for t in range(BLOCK):
        other = idx.clone()
        other[0, t] = (other[0, t].item() + 1) % V
        changed = (m(other)[0].detach().numpy() != logits).any(-1)
        assert not changed[0, :t].any() and changed[0, t:].all() and not changed[1].any()


def test_every_parameter_of_a_gpt_gets_a_gradient():
    m = gpt(bias=True)
    m(tokens(3, BLOCK), tokens(3, BLOCK))[1].backward()
    for name, p in m.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all(), name
        assert (p.grad != 0).any(), name


def test_a_gpt_learns_a_sequence():
    m = gpt()
    optimizer = mg.optim.AdamW(m.parameters(), lr=0.02)
    idx = mg.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    for _ in range(60):
        loss = m(idx, (idx + 1))[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    assert m.generate(mg.tensor([[0]]), 5, temperature=0).tolist() == [[0, 1, 2, 3, 4, 5]]


# ------------------------------------------------------------------------------------------------------------- sampling


def test_generate_appends_and_crops_to_the_block():
    m = gpt()
    idx = tokens(2, 3)
    y = m.generate(idx, 10)
    assert y.shape == (2, 13) and (y[:, :3] == idx).all() and ((y >= 0) & (y < V)).all()
    long = tokens(1, 9)
    greedy = m.generate(long, 1, temperature=0)
    assert greedy[0, -1].item() == m(long[:, -BLOCK:])[0][0, -1].argmax().item()
    assert m.generate(idx, 0) is idx or (m.generate(idx, 0) == idx).all()


def test_generate_depends_on_the_generator_alone():
    m = gpt()
    idx = tokens(2, 3)
    first = m.generate(idx, 8, generator=mg.Generator(1)).tolist()
    mg.manual_seed(99)
    assert m.generate(idx, 8, generator=mg.Generator(1)).tolist() == first
    assert m.generate(idx, 8, generator=mg.Generator(2)).tolist() != first
    assert m.generate(idx, 8, top_k=1).tolist() == m.generate(idx, 8, temperature=0).tolist()


def test_generate_samples_from_the_softmax():
    m = gpt().double()
    with mg.no_grad():
        m.wte.weight.copy_(data(V, 8))
    idx, n = tokens(1, 2).expand(4000, 2), 4000
    logits = m(idx[:1])[0].detach().numpy()[0, -1]
    for options, kept in (({}, V), ({"temperature": 2.0}, V), ({"top_k": 3}, 3), ({"top_k": 100}, V)):
        allowed = logits >= np.sort(logits)[-kept]
        p = np.where(allowed, np.exp(logits / options.get("temperature", 1.0)), 0)
        p /= p.sum()
        counts = np.bincount(m.generate(idx, 1, **options).numpy()[:, -1], minlength=V) / n
        assert (counts[~allowed] == 0).all()
        assert (abs(counts - p) < 5 * np.sqrt(p * (1 - p) / n) + 1e-9).all()


def test_generate_records_nothing_and_restores_every_mode():
    m = gpt(dropout=0.5)
    m.train()
    m.blocks[0].eval()
    modes = {name: x.training for name, x in m.named_modules()}
    y = m.generate(tokens(1, 2), 3)
    assert {name: x.training for name, x in m.named_modules()} == modes and not y.requires_grad and mg.is_grad_enabled()
    with pytest.raises(IndexError):
        m.generate(mg.full((1, 1), V), 1)
    assert {name: x.training for name, x in m.named_modules()} == modes
    m.eval()
    idx, state = tokens(1, 2), mg.default_generator.state
    m.generate(idx, 3, temperature=0)
    assert mg.default_generator.state == state  # nothing is drawn to take the likeliest


def test_generate_refuses():
    for options in ({"temperature": -1.0}, {"top_k": 0}):
        with pytest.raises(ValueError, match="temperature ≥ 0 and top_k ≥ 1"):
            gpt().generate(tokens(1, 1), 1, **options)
    with pytest.raises((ValueError, IndexError)):
        gpt().generate(mg.zeros(1, 0, dtype=mg.int64), 1)
