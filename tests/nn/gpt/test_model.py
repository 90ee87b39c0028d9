"""GPT: shapes, causality, sizes, positions, weights from elsewhere; writing with and without a cache."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn


def data(*shape):
    return mg.randn(*shape, dtype=mg.float64)


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


# ------------------------------------------------------------------------------------------------------------- sampling


def test_generate_depends_on_the_generator_alone():
    m = gpt()
    idx = tokens(2, 3)
    first = m.generate(idx, 8, generator=mg.Generator(1)).tolist()
    mg.manual_seed(99)
    assert m.generate(idx, 8, generator=mg.Generator(1)).tolist() == first
    assert m.generate(idx, 8, generator=mg.Generator(2)).tolist() != first
    assert m.generate(idx, 8, top_k=1).tolist() == m.generate(idx, 8, temperature=0).tolist()


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
    for options in ({"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}):
        with pytest.raises(ValueError, match="temperature ≥ 0, top_k ≥ 1 and 0 < top_p ≤ 1"):
            gpt().generate(tokens(1, 1), 1, **options)
    with pytest.raises((ValueError, IndexError)):
        gpt().generate(mg.zeros(1, 0, dtype=mg.int64), 1)


# ------------------------------------------------------------------------------------------------------------ the cache

KINDS = {
    "learned": {}, "rotary": dict(positions="rotary"), "none": dict(positions="none"), "grouped": dict(n_kv_head=1),
    "untied": dict(tied=False),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_one_token_at_a_time_equals_the_whole(kind):
    m = gpt(**KINDS[kind]).double().eval()
    idx = tokens(3, BLOCK)
    with mg.no_grad():
        whole = m(idx)[0].numpy()
        cache = m.new_cache(3)
        parts = [m(idx[:, :2], cache=cache)[0], *(m(idx[:, t : t + 1], cache=cache)[0] for t in range(2, BLOCK))]
    np.testing.assert_allclose(mg.cat(parts, 1).numpy(), whole, rtol=1e-12, atol=1e-13)
    with pytest.raises(ValueError, match="6 tokens is longer than block_size 5"), mg.no_grad():
        m(idx[:, :1], cache=cache)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_changes_no_token(kind):
    m = gpt(**KINDS[kind]).double()
    for T in (1, 3, BLOCK, 9):  # and beyond the block
        idx = tokens(2, T)
        for options in ({"temperature": 0}, {"temperature": 1.5, "top_p": 0.9}):
            with_it, without = (
                m.generate(idx, 3 * BLOCK, generator=mg.Generator(3), use_cache=use, **options) for use in (True, False)
            )
            assert with_it.tolist() == without.tolist()


def test_beyond_the_block_the_older_half_is_dropped():
    """The model sees up to block_size tokens, then the newer half of them, until there are block_size again."""
    m, seen = gpt(), []
    m.blocks[0].register_forward_pre_hook(lambda block, args: seen.append(args[0].shape[1]))
    m.generate(tokens(1, 1), 10, use_cache=False)
    assert seen == [1, 2, 3, 4, 5, 3, 4, 5, 3, 4]
    seen.clear()
    m.generate(tokens(1, 1), 10)
    assert seen == [1, 1, 1, 1, 1, 3, 1, 1, 3, 1]
    seen.clear()
    m.generate(tokens(1, 9), 2)
    assert seen == [5, 3]


@pytest.mark.parametrize("prompts", [[], [[]], [[[1]]], [1], [[0.5]]])
def test_wrong_prompts_raise(prompts):
    with pytest.raises(ValueError, match=r"generate needs prompts \(B, T\) of ints, not empty"):
        gpt().generate(prompts, 1)


# ---------------------------------------------------------------------------------------------------- sizes and presets


def test_presets_are_the_published_sizes():
    published = {"": (12, 12, 768), "-medium": (24, 16, 1024), "-large": (36, 20, 1280), "-xl": (48, 25, 1600)}
    for name, sizes in published.items():
        config = nn.GPTConfig.preset(f"gpt2{name}")
        assert (config.n_layer, config.n_head, config.n_embd) == sizes and config.vocab_size == 50257
    small = nn.GPTConfig.preset("nanogpt-cpu", vocab_size=100)
    assert (small.n_layer, small.n_head, small.n_embd, small.block_size, small.vocab_size) == (4, 4, 128, 64, 100)
    assert nn.GPTConfig.preset("nanogpt-gpu").n_embd == 384
    with pytest.raises(ValueError, match="no preset 'gpt3'; there are nanogpt-cpu, "):
        nn.GPTConfig.preset("gpt3")
    with pytest.raises(ValueError, match="positions must be learned"):
        gpt(positions="rope")


def test_initial_weights_are_gpt_2s():
    m = nn.GPT(nn.GPTConfig(100, 8, n_layer=2, n_head=2, n_embd=64, init_std=0.02, tied=False))
    for name, std in (("wte", 0.02), ("lm_head", 0.02), ("blocks.1.attn.out_proj", 0.01), ("blocks.0.mlp.proj", 0.01)):
        assert m.state_dict()[f"{name}.weight"].numpy().std() == pytest.approx(std, rel=0.06)


def as_hugging_face_names_them(m):
    """Return GPT-2's weights {name: array} with biases, matrices as (in, out)."""
    names = {"blocks.": "h.", "norm1": "ln_1", "norm2": "ln_2", "norm.": "ln_f.", "in_proj_": "c_attn.",
             "out_proj": "c_proj", "mlp.fc": "mlp.c_fc", "mlp.proj": "mlp.c_proj"}  # fmt: skip
    state = {"transformer.h.0.attn.bias": np.ones((1, 1, BLOCK, BLOCK))}  # a causal mask, in older files
    for name, x in m.state_dict().items():
        conv = name.startswith("blocks") and x.ndim == 2
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        state[name if name.startswith("lm_head") else f"transformer.{name}"] = x.numpy().T if conv else x.numpy()
    return state


@pytest.mark.parametrize("tied", [True, False])
def test_gpt_2_weights(tied):
    m, idx = gpt(bias=True, tied=tied), tokens(2, BLOCK)
    for p in m.parameters():
        nn.init.normal_(p)
    state, before = as_hugging_face_names_them(m), mg.default_generator.state
    again = nn.GPT.from_state_dict(state, n_head=m.config.n_head, dropout=0.5).eval()
    assert mg.default_generator.state == before  # nothing is drawn that is overwritten at once
    assert again.config.dropout == 0.5 and again.config.tied == tied and again.config.block_size == BLOCK
    np.testing.assert_array_equal(again(idx)[0].detach().numpy(), m(idx)[0].detach().numpy())
    del state["transformer.ln_f.weight"]
    with pytest.raises((KeyError, ValueError), match=r"norm\.weight"):
        nn.GPT.from_state_dict(state, n_head=m.config.n_head)
    with pytest.raises(ValueError, match="not GPT-2's weights: weight, bias"):
        nn.GPT.from_state_dict(nn.Linear(2, 3).state_dict())


# --------------------------------------------------------------------------------------------------- what is refused


def test_sizes_that_cannot_be_are_refused():
    for changes, message in (
        (dict(block_size=0), "block_size must be an int, at least 1, got 0"),
        (dict(n_layer=0), "n_layer must be an int, at least 1"),
        (dict(positions="rope"), "positions must be learned"),
    ):
        with pytest.raises(ValueError, match=message):
            nn.GPTConfig.preset("nanogpt-cpu", **changes)
