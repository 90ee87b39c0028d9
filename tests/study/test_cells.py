"""study.attention_attribution and study.what_if: cells of a pattern against forwards."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study

from .models import EncoderDecoder, along_gate, gpt, tokens


@pytest.mark.parametrize("changes", [{}, {"positions": "rotary", "n_kv_head": 2}])
def test_the_cells_of_a_head_add_up_to_what_it_adds(changes):
    model, batch = gpt(**changes), tokens()
    removed = study.head_importance(model, [batch])  # L(without) - L
    for path, head in ("blocks.0.attn", 1), ("blocks.1.attn", 3):
        errors = []
        for steps in (5, 10, 20):
            cells = study.attention_attribution(model, batch, path, head, steps)
            assert cells.shape == (3, 6, 6) and (np.triu(cells, 1) == 0).all()  # nothing where the mask hides
            errors.append(abs(cells.sum() + removed[path][head]))
        assert errors[2] < 1e-4 and errors[0] / errors[1] > 3 and errors[1] / errors[2] > 3  # midpoints: order 2


def test_cells_of_cross_attention():
    model, batch = EncoderDecoder().double(), tokens()
    path = "transformer.decoder.layers.1.multihead_attn"
    cells = study.attention_attribution(model, batch, path, 0, 20)
    assert cells.sum() == pytest.approx(-along_gate(model, batch, path, 0), rel=1e-10)  # a gate scales the pattern
    assert (cells[0, :, 4:] == 0).all()  # padding


def test_the_slope_is_the_derivative_of_the_change():
    model, batch = gpt(), tokens()
    for query, sequence in (4, 1), (0, 0):
        found = study.what_if(model, batch, 1, 2, query, sequence, amount=1e-6)
        np.testing.assert_allclose(found.change[: query + 1] / 1e-6, found.slope[: query + 1], rtol=1e-4, atol=1e-9)
        assert np.isnan(found.slope[query + 1 :]).all() and np.isnan(found.change[query + 1 :]).all()
        np.testing.assert_allclose((found.weights * np.nan_to_num(found.slope)).sum(), 0, atol=1e-12)


def test_a_query_that_looks_at_one_key_has_its_value():
    model, batch = gpt().eval(), tokens()
    found = study.what_if(model, batch, "blocks.0.attn", 1, 3, sequence=2)
    layer = model.blocks[0].attn
    for j in range(4):
        values = []

        def look(layer, z, values=values, j=j):
            array = z.detach().numpy().copy()
            array[2, 1, 3] = values[0][2, 1, j]
            return mg.tensor(array)

        handles = [
            layer.register_head_hook("v", lambda _, v, values=values: values.append(v.detach().numpy()), last=True),
            layer.register_head_hook("z", look),
        ]
        assert model(*batch)[1].item() - found.loss == pytest.approx(found.change[j], abs=1e-12)
        for handle in handles:
            handle.remove()
    assert "slope" in str(found) and len(str(found).splitlines()) == 5


def test_errors():
    model, batch = gpt(), tokens()
    with pytest.raises(ValueError, match="there is no head 4"):
        study.attention_attribution(model, batch, 0, 4)
    with pytest.raises(KeyError, match="there is no attention layer"):
        study.what_if(model, batch, "blocks.9.attn", 0, 0)
    with pytest.raises(ValueError, match="there is no query 6: there are 6"):
        study.what_if(model, batch, 0, 0, 6)
    with pytest.raises(ValueError, match="there is no sequence 3: there are 3"):
        study.what_if(model, batch, 0, 0, 0, sequence=3)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        study.attention_attribution(model, batch, 0, 0, steps=0)
    assert all(not m._head_hooks for m in study.attention_layers(model).values()) and model.training


def test_a_key_is_seen_even_if_its_weight_is_rounded_to_nothing():
    model, batch = gpt(dtype=mg.float32), tokens()
    model.blocks[1].attn.scale = 3000.0
    found = study.what_if(model, batch, 1, 0, 5)
    assert (found.weights == 0).any() and not np.isnan(found.change).any()
    causal = study.what_if(model, batch, 1, 0, 2)
    assert np.isnan(causal.change[3:]).all() and not np.isnan(causal.change[:3]).any()


@pytest.mark.parametrize("dtype", [mg.float16, mg.float32])
@pytest.mark.slow
def test_keys_that_alibi_hides_in_rounding_are_seen(dtype):
    mg.manual_seed(0)
    model = nn.GPT(nn.GPTConfig(11, 256, n_layer=1, n_head=8, n_embd=16, positions="alibi")).to(dtype=dtype)
    batch = mg.randint(0, 11, (1, 256)), mg.randint(0, 11, (1, 256))
    found = study.what_if(model, batch, 0, 0, query=254, amount=0.5)
    assert (found.weights[:20] == 0).all()  # far away: rounded to 0
    assert np.isfinite(found.change[:255]).all() and np.isnan(found.change[255:]).all()
