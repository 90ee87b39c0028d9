"""Composition scores, against their definition with whole matrices."""

import itertools

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.nn.gpt.model import Block
from minigrad.study.layers import as_float64, head_weights

from .models import ATTN, EncoderDecoder, T, V, gpt

FIRST = "blocks.0.attn"


def attention_only(C=16, n_head=4, n_layer=2, V=V):
    mg.manual_seed(4)
    return study.AttentionOnly(V, T, n_layer=n_layer, n_head=n_head, n_embd=C).double()


def by_definition(model, kind, early, late):
    """With W_QK and W_OV (C, C) written out, and each norm as the matrix that it is, but for its divisor."""

    def through(block):
        norm = getattr(block, "norm1", None)
        if norm is None:
            return np.eye(16)
        centre = np.eye(16) - 1 / 16 if isinstance(norm, nn.LayerNorm) else np.eye(16)
        return centre * (1.0 if norm.weight is None else as_float64(norm.weight))

    def circuits(block, h):
        W_Q, W_K, W_V, W_O = head_weights(block.attn, h)
        N = through(block)
        return (N @ W_Q) @ (N @ W_K).T, N @ W_V @ W_O

    one, other = model.blocks[early], model.blocks[late]
    scores = np.zeros((one.attn.num_heads, other.attn.num_heads))
    for i, j in np.ndindex(scores.shape):
        (_, W_OV), (W_QK, W_OV_late) = circuits(one, i), circuits(other, j)
        right = {"q": W_QK, "k": W_QK.T, "v": W_OV_late}[kind]
        scores[i, j] = np.linalg.norm(W_OV @ right) / (np.linalg.norm(W_OV) * np.linalg.norm(right))
    return scores


def normed(norm):
    model = gpt()
    for block in model.blocks:
        block.norm1 = norm().double()
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    return model


MODELS = {
    "AttentionOnly": attention_only,
    "GPT": lambda: normed(lambda: nn.LayerNorm(16)),
    "RMSNorm": lambda: normed(lambda: nn.RMSNorm(16)),
    "a norm without weights": lambda: normed(lambda: nn.LayerNorm(16, elementwise_affine=False)),
    "of 3 layers": lambda: gpt(n_layer=3),
    "grouped and pruned": lambda: gpt(n_kv_head=2, pruned={0: [1], 1: [0, 2]}),
    "float32": lambda: gpt(mg.float32),
}


@pytest.mark.parametrize("kind", "qkv")
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_scores_are_what_their_definition_says(make, kind):
    model = make()
    pairs = list(itertools.combinations(range(len(model.blocks)), 2))
    found = study.composition(model, kind)
    assert set(found) == {(f"blocks.{i}.attn", f"blocks.{j}.attn") for i, j in pairs}
    for i, j in pairs:
        scores = found[f"blocks.{i}.attn", f"blocks.{j}.attn"]
        np.testing.assert_allclose(scores, by_definition(model, kind, i, j), rtol=1e-12)
        assert ((scores > 0) & (scores <= 1)).all()


def test_gates_count_as_weights_do():
    model = attention_only()
    before = study.composition(model, "k")[FIRST, ATTN]
    model.blocks[0].attn.head_gates = mg.tensor([0.0, 2.0, -1.0, 1.0], dtype=mg.float64)
    after = study.composition(model, "k")[FIRST, ATTN]
    assert np.isnan(after[0]).all()
    np.testing.assert_allclose(after[1:], before[1:], rtol=1e-12)
    assert str(study.composition(model, "k")).splitlines()[-1].endswith("0.000")  # nan comes last


def test_layers_without_heads_are_left_out():
    model = gpt(n_layer=3, pruned={1: [0, 1, 2, 3]})
    assert list(study.composition(model, "q")) == [(FIRST, "blocks.2.attn")]


@pytest.mark.parametrize("kind", "qkv")
def test_heads_that_have_nothing_to_do_with_each_other(kind):
    scores = study.composition(attention_only(C=256, n_head=8), kind)[FIRST, ATTN]
    assert np.sqrt((scores**2).mean()) == pytest.approx(1 / 16, rel=0.05)


def test_the_designed_induction_head_reads_the_previous_token_head_by_its_keys():
    model, path, head = study.designed_head("induction", 8, 8)
    scores = {kind: study.composition(model, kind)[FIRST, path][0, head] for kind in "qkv"}
    assert scores == {"q": 0, "k": pytest.approx(0.25), "v": 0}  # W_QK has norm 4: half its 16 ones look at position 0


def test_the_table_of_them():
    found = study.composition(attention_only(), "v")
    names, *rows, more = str(found).splitlines()
    assert names.split() == ["writes", "reads", "score"] and len(rows) == 16 - 1 and "head" in more
    i, j = np.unravel_index(found[FIRST, ATTN].argmax(), (4, 4))
    assert rows[0].split("  ") == [
        f"blocks.0.attn head {i}",
        f"blocks.1.attn head {j}",
        f"{found[FIRST, ATTN].max():.3f}",
    ]
    assert str(study.composition(attention_only(n_layer=3), "v")).endswith("… and 28 smaller ones")
    assert study.composition(attention_only(n_layer=1), "v") == {}


def test_rotary_positions_have_values_alone():
    model = gpt(positions="rotary")
    for kind in "qk":
        with pytest.raises(ValueError, match=r"blocks.0.attn has rotary positions"):
            study.composition(model, kind)
    np.testing.assert_allclose(study.composition(model, "v")[FIRST, ATTN], by_definition(model, "v", 0, 1), rtol=1e-12)


def test_what_has_no_composition_is_refused():
    with pytest.raises(ValueError, match="no kind of composition 'o'"):
        study.composition(gpt(), "o")
    with pytest.raises(TypeError, match="MultiheadAttention has no residual stream"):
        study.composition(nn.MultiheadAttention(8, 2, batch_first=True), "v")
    with pytest.raises(ValueError, match="several streams"):
        study.composition(EncoderDecoder(), "v")
    layer = nn.TransformerDecoderLayer(8, 2, 8, norm_first=True, batch_first=True)
    with pytest.raises(ValueError, match="several streams"):
        study.composition(nn.TransformerDecoder(layer, 2), "v")
    with pytest.raises(ValueError, match="norms come after the sums"):
        study.composition(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 2), "v")
    before = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, norm_first=True, batch_first=True), 2)
    assert list(study.composition(before, "v")) == [("layers.0.self_attn", "layers.1.self_attn")]
    model = gpt()
    model.blocks[1].attn = nn.MultiheadAttention(16, 4, kdim=5, vdim=16, batch_first=True)
    with pytest.raises(TypeError, match=r"blocks.1 does not run .* alone: key must be \(B, S, 5\)"):
        study.composition(model, "q")
    assert isinstance(model.blocks[0], Block)
