"""study.patch: the values of one run put into another, exactly and to first order."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import study
from minigrad.nn.attention import all_take
from minigrad.study.effects import patching
from minigrad.study.effects.importance import returned_loss
from minigrad.study.layers import as_float64

from .models import EncoderDecoder, gpt, tokens

PATHS = "blocks.0.attn", "blocks.1.attn"
POINTS = "q", "k", "v", "qk", "pattern", "z"


def runs():
    """A clean batch, and one with other tokens, and the same targets."""
    (x, y), (other, _) = tokens(2), tokens(3)
    return (x, y), (other, y)


def by_hand(model, clean, corrupt, path, h, point, at=slice(None)):
    """The loss of the corrupt run in which one head has the clean run's value."""
    layer, kept = study.attention_layers(model)[path], []
    handle = layer.register_head_hook(point, lambda layer, x: kept.append(x.detach().numpy().copy()), last=True)
    model(*clean)
    handle.remove()

    def replace(layer, x):
        array = x.detach().numpy().copy()
        array[:, h, at] = kept[0][:, h, at]
        return mg.tensor(array)

    handle = layer.register_head_hook(point, replace)
    loss = model(*corrupt)[1].item()
    handle.remove()
    return loss


@pytest.mark.parametrize("point", POINTS)
def test_an_exact_patch_is_what_it_is_by_hand(point):
    model, (clean, corrupt) = gpt(positions="rotary", n_kv_head=2).eval(), runs()
    before = model(*corrupt)[1].item()
    for positions in (None, [1, -1]):
        found = study.patch(model, clean, corrupt, point=point, positions=positions)
        for path in PATHS:
            at = slice(None) if positions is None else positions
            expected = [by_hand(model, clean, corrupt, path, h, point, at) - before for h in range(4)]
            np.testing.assert_allclose(found[path], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("method", study.effects.patching.METHODS)
@pytest.mark.parametrize("model", [gpt(), gpt(mg.float32, impl="fused")], ids=["batched", "fused, float32"])
def test_a_run_patched_with_itself_is_the_same(point, method, model):
    clean, _ = runs()
    found = study.patch(model, clean, clean, point=point, method=method)
    assert all((x == 0).all() for x in found.values()) and list(found) == list(PATHS)


@pytest.mark.parametrize("point", [p if p in ("q", "z") else pytest.param(p, marks=pytest.mark.slow) for p in POINTS])
def test_gradients_along_the_way_add_up_to_the_exact_effect(point):
    """Of one head at a time, as its value goes from that of one run to that of the other."""
    model, (clean, corrupt) = gpt(), runs()
    exact = study.patch(model, clean, corrupt, point=point)
    layers, loss, (nodes, weights) = study.attention_layers(model), returned_loss, np.polynomial.legendre.leggauss(8)
    with all_take("batched"):
        values = [patching.values_at(model, layers.values(), batch, loss, point)[0] for batch in (clean, corrupt)]
        for path, layer in layers.items():
            for h in range(layer.num_heads):
                own = np.zeros_like(values[0][layer])
                own[:, h] = (values[0][layer] - values[1][layer])[:, h]
                total = 0.0
                for t, weight in zip((nodes + 1) / 2, weights / 2):
                    g = patching.gradients_at(model, [layer], corrupt, loss, point, {layer: t * own})[layer]
                    total += weight * float((as_float64(g) * own).sum())
                assert total == pytest.approx(exact[path][h], rel=1e-5, abs=1e-9)


def test_to_first_order_it_is_the_slope_of_the_exact_effect():
    """Of a change that is a thousandth as large: from the corrupt run towards the clean one, by an input in between."""
    model, (clean, corrupt) = gpt(), runs()

    class Mixed(mg.nn.Module):
        """The same model, fed with embeddings: t of one text and 1 - t of the other."""

        def __init__(self):
            self.model = model

        def forward(self, t, targets):
            x = t * model.wte(clean[0]) + (1 - t) * model.wte(corrupt[0]) + model.wpe(mg.arange(6))
            for block in model.blocks:
                x = block(x)
            logits = model.unembed(model.norm(x))
            return mg.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    near, far = ((t, clean[1]) for t in (1e-4, 0.0))
    exact = study.patch(Mixed(), near, far)
    slope = study.patch(Mixed(), near, far, method="first_order")
    for path in exact:
        np.testing.assert_allclose(slope[path], exact[path], rtol=2e-3)


def test_a_metric_of_ones_own_on_an_encoder_and_a_decoder():
    model, (clean, corrupt) = EncoderDecoder().double(), runs()
    found = study.patch(model, clean, corrupt, loss=lambda model, src, tgt: 2 * model(src, tgt))
    halved = study.patch(model, clean, corrupt)
    assert list(found) == list(halved) == list(study.attention_layers(model))
    for path in found:
        np.testing.assert_allclose(found[path], 2 * halved[path], rtol=1e-12)


def test_nothing_is_changed_and_frozen_weights_do_not_matter():
    model, (clean, corrupt) = gpt(dropout=0.3), runs()
    free = study.patch(model, clean, corrupt, method="first_order")
    for p in model.parameters():
        p.requires_grad_(False)
    frozen = study.patch(model, clean, corrupt, method="first_order")
    assert all((free[path] == frozen[path]).all() for path in PATHS)
    assert model.training and all(p.grad is None for p in model.parameters())
    assert all(not m._head_hooks for m in study.attention_layers(model).values())


def test_errors():
    model, (clean, corrupt) = gpt(), runs()
    with pytest.raises(ValueError, match="the streams of the clean run are"):
        study.edge_patch(model, clean, [x[:2] for x in corrupt])
    with pytest.raises(ValueError, match="there is no point 'y'"):
        study.patch(model, clean, corrupt, point="y")
    with pytest.raises(ValueError, match="there is no method 'exakt'; did you mean exact"):
        study.patch(model, clean, corrupt, method="exakt")
    with pytest.raises(ValueError, match=r"there is no position 6 in blocks\.0\.attn: there are 6"):
        study.patch(model, clean, corrupt, positions=[6])
    with pytest.raises(ValueError, match=r"z of blocks.0.attn is \(3, 4, 6, 4\) in the clean run, but \(2, 4, 6, 4\)"):
        study.patch(model, clean, [x[:2] for x in corrupt])
    with pytest.raises(ValueError, match="a layer runs twice"):
        study.patch(model, clean, corrupt, loss=lambda m, x, y: m(x, y)[1] + m(x, y)[1])


@pytest.mark.parametrize("make", [gpt, lambda: gpt(positions="rotary", n_kv_head=2), lambda: EncoderDecoder().double()])
def test_the_edges_of_a_head_add_up_to_its_patch(make):
    model, (clean, corrupt) = make(), runs()
    flow = study.edge_patch(model, clean, corrupt)
    patches = study.patch(model, clean, corrupt, method="first_order")
    for path, of_heads in patches.items():
        for h, expected in enumerate(of_heads):
            assert sum(edge for *_, edge in flow.out_of(path, h)) == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert flow.check().worst < 1e-10
    assert not study.edge_patch(model, clean, clean).all
