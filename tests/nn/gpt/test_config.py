"""A GPT's config and weights as a file may have them: what does not fit is refused."""

import dataclasses
import json

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn

SIZES = dict(vocab_size=5, block_size=4, n_layer=2, n_head=2, n_embd=8)
NO_SIZES = "4", "", None, [], [4], {}, True, 2.0, 0.5, float("nan"), 0, -1, "x" * 10_000


@pytest.mark.parametrize("name", ["vocab_size", "block_size", "n_layer", "n_head", "n_embd", "n_kv_head"])
def test_sizes_are_ints_of_at_least_one(name):
    for value in NO_SIZES:
        if (name, value) != ("n_kv_head", None):
            with pytest.raises(ValueError, match=f"{name} must be an int, at least 1, got ") as error:
                nn.GPTConfig(**SIZES | {name: value})
            assert len(str(error.value)) < 100
    config = nn.GPTConfig(**SIZES | {name: np.int64(2)})
    assert type(getattr(config, name)) is int and json.dumps(dataclasses.asdict(config))


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"dropout": float("nan")}, r"must lie in \[0, 1\], got nan"),
        ({"dropout": -0.1}, r"must lie in \[0, 1\], got -0.1"),
        ({"positions": []}, r"positions must be learned, rotary, none, got \[\]"),
        ({"impl": "fast"}, "impl must be one of per_head, batched, fused, got 'fast'"),
        ({"n_head": 3}, "n_embd 8 is not divisible by n_head 3"),
        ({"n_head": 4, "n_kv_head": 3}, "num_heads 4 is not divisible by num_kv_heads 3"),
        ({"n_head": 8, "positions": "rotary"}, "even head size, got 1"),
    ],
)
def test_impossible_sizes_raise(changes, words):
    with pytest.raises(ValueError, match=words):
        nn.GPT(nn.GPTConfig(**SIZES | changes))


def weights(**changes):
    config = nn.GPTConfig(**SIZES | changes)
    model = nn.GPT(config)
    return {name: x.numpy() for name, x in model.state_dict().items()}, config


KINDS = [{}, {"bias": True, "tied": False}, {"positions": "rotary", "n_kv_head": 1}]


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_weights_come_back(changes):
    state, config = weights(**changes)
    before = mg.default_generator.state
    model = nn.GPT.with_weights(config, state)
    assert mg.default_generator.state == before and model.config == config
    assert all((x.numpy() == state[name]).all() for name, x in model.state_dict().items())
    double = nn.GPT.with_weights(config, {name: x.astype("f8") for name, x in state.items()})
    assert {p.dtype for p in double.parameters()} == {mg.float64}


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda s: s.pop("wte.weight"), r"missing \['wte.weight'\]"),
        (lambda s: s.pop("norm.weight"), r"missing \['norm.weight'\]"),
        (lambda s: s.update({"wte.weight": s["wte.weight"].T}), r"wte.weight has shape \(5, 8\) here but \(8, 5\)"),
        (lambda s: s.update({"norm.weight": np.ones(8, "i8")}), "norm.weight has dtype float32 here but int64"),
        (lambda s: s.update({"norm.weight": np.ones(8, bool)}), "norm.weight has dtype float32 here but bool"),
        (lambda s: s.update({"norm.weight": np.ones(8, "c8")}), "norm.weight has dtype float32 here but complex64"),
    ],
)
def test_weights_that_do_not_fit(spoil, words):
    state, config = weights()
    spoil(state)
    with pytest.raises(ValueError, match=words):
        nn.GPT.with_weights(config, state)


@pytest.mark.parametrize("size", ["n_layer", "block_size", "vocab_size"])
def test_a_config_that_asks_for_far_more_builds_nothing(size):
    state, config = weights()
    huge = dataclasses.replace(config, **{size: 10**12})
    with pytest.raises(ValueError, match=r"parameters or more, but the weights hold [\d,]+ numbers"):
        nn.GPT.with_weights(huge, state)


def test_an_error_names_a_few_of_many():
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(100)))
    with pytest.raises(ValueError, match=r"missing .* and 195 more; unexpected \['x'\]") as error:
        model.load_state_dict({"x": mg.ones(1)})
    assert len(str(error.value)) < 300
    with pytest.raises(ValueError, match=r"0.weight has shape .*; and 195 more"):
        model.load_state_dict({name: mg.ones(5) for name in model.state_dict()})
    with pytest.raises(ValueError, match=r"0.weight is no Tensor or array in the state, but a list"):
        model.load_state_dict({"0.weight": [[1.0, 2.0], [3.0, 4.0]]}, strict=False)


@pytest.mark.parametrize("name, words", [
    ("h.1000000000.attn.c_attn.weight", "unexpected"), ("h.999999999.attn.c_attn.weight", "unexpected"),
    ("h.x.attn.c_attn.weight", "unexpected"), ("h", "unexpected"), ("blocks.0.norm1.weight", "two tensors are"),
])  # fmt: skip
def test_gpt_2s_names_that_cannot_be(name, words):
    C = 6
    state = {"wte.weight": (5, C), "wpe.weight": (4, C), "ln_f.weight": (C,), "ln_f.bias": (C,)}
    sizes = {"attn.c_attn": (C, 18), "attn.c_proj": (C, C), "mlp.c_fc": (C, 24), "mlp.c_proj": (24, C)}
    for part, (n, m) in sizes.items():
        state |= {f"h.0.{part}.weight": (n, m), f"h.0.{part}.bias": (m,)}
    state |= {f"h.0.ln_{i}.{part}": (C,) for i in (1, 2) for part in ("weight", "bias")}
    state = {key: np.ones(shape, "f4") for key, shape in state.items()}
    assert nn.GPT.from_state_dict(state, n_head=2).config.n_layer == 1
    with pytest.raises(ValueError, match=words):
        nn.GPT.from_state_dict(state | {name: np.ones((C, 18), "f4")}, n_head=2)
