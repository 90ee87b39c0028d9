"""head_importance, and ablate_heads."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study

V, T, B = 11, 6, 4
PATHS = "blocks.0.attn", "blocks.1.attn"


def gpt(**changes):
    mg.manual_seed(1)
    config = nn.GPTConfig(V, T, **dict(n_layer=2, n_head=4, n_embd=16, init_std=0.3) | changes)
    return nn.GPT(config).double()


def batch(seed=2, B=B):
    generator = mg.Generator(seed)
    return mg.randint(0, V, (B, T), generator=generator), mg.randint(0, V, (B, T), generator=generator)


def loss_without(model, batches, path, head):
    """The loss after setting what out_proj takes from a head to zero."""
    layer = dict(model.named_modules())[path]
    weight = layer.out_proj.weight.detach()
    before = weight.clone()
    weight[:, head * layer.d_v : (head + 1) * layer.d_v] = 0
    loss = study.mean_loss(model, batches)
    weight.copy_(before)
    return loss


@pytest.mark.parametrize("changes", [{}, dict(n_kv_head=2, positions="rotary", dropout=0.2), dict(impl="per_head")])
def test_ablation_is_the_rise_of_the_loss_without_a_head(changes):
    model, batches = gpt(**changes), [batch(2), batch(3)]
    importance = study.head_importance(model, batches)
    assert list(importance) == list(PATHS) and model.training
    model.eval()
    whole = study.mean_loss(model, batches)
    for path in PATHS:
        for h in range(4):
            assert importance[path][h] == pytest.approx(loss_without(model, batches, path, h) - whole, abs=1e-12)


def test_all_shares_add_up_while_all_gates_close_together():
    model, batches = gpt(), [batch(2), batch(3)]
    with study.ablate_heads(model, dict.fromkeys(PATHS, range(4))):
        nothing = study.mean_loss(model.eval(), batches)
    whole, errors = study.mean_loss(model, batches), []
    for steps in (5, 10, 20):
        shares = study.head_importance(model, batches, "joint_path", steps=steps)
        errors.append(abs(sum(x.sum() for x in shares.values()) - (nothing - whole)))
    assert errors[2] < 1e-3 and errors[0] / errors[1] > 3 and errors[1] / errors[2] > 3  # midpoints: order 2


def test_abs_gate_grad_is_the_mean_over_sequences_of_the_gates_gradients():
    model, (x, y) = gpt(), batch()
    found = study.head_importance(model, [(x, y)], "abs_gate_grad")
    expected = {path: np.zeros(4) for path in PATHS}
    for b in range(B):
        gates = [mg.ones(4, dtype=mg.float64, requires_grad=True) for _ in PATHS]
        for block, g in zip(model.blocks, gates):
            block.attn.head_gates = g
        _, loss = model(x[b : b + 1], y[b : b + 1])
        for path, g in zip(PATHS, mg.grad(loss, gates)):
            expected[path] += np.abs(g.numpy()) / B
    for path in PATHS:
        np.testing.assert_allclose(found[path], expected[path], rtol=1e-10)


@pytest.mark.parametrize("method", study.METHODS)
def test_importance_leaves_the_model_as_it_was(method):
    model = gpt(dropout=0.1)
    gates = model.blocks[0].attn.head_gates = mg.tensor([1.0, 2.0, 0.5, 1.0], dtype=mg.float64)
    model.blocks[1].eval()
    state = mg.default_generator.state
    study.head_importance(model, [batch()], method, steps=2)
    assert model.blocks[0].attn.head_gates is gates and model.blocks[1].attn.head_gates is None
    assert model.training and not model.blocks[1].training and mg.default_generator.state == state
    assert all(p.grad is None for p in model.parameters())
    assert not any(block.attn._head_hooks for block in model.blocks)


def test_importance_of_any_loss():
    layer = nn.MultiheadAttention(8, 2, dtype=mg.float64, batch_first=True)
    x = mg.randn(3, 5, 8, dtype=mg.float64)

    def square(layer, x):
        return (layer(x)[0] ** 2).mean()

    exact = study.head_importance(layer, [(x,)], loss=square)
    assert exact[""].shape == (2,)
    shares = study.head_importance(layer, [(x,)], "joint_path", steps=1, loss=square)
    with study.ablate_heads(layer, {"": [0, 1]}):
        nothing = square(layer, x).item()
    assert shares[""].sum() == pytest.approx(nothing - square(layer, x).item())  # a parabola: midpoints are exact


def test_importance_refuses():
    model = gpt()
    with pytest.raises(ValueError, match="no method 'ablat'; did you mean ablate"):
        study.head_importance(model, [batch()], "ablat")
    with pytest.raises(ValueError, match="list of tuples of arguments: there are none"):
        study.head_importance(model, [])
    with pytest.raises(ValueError, match="GPT returns no loss for these 1 arguments: pass loss="):
        study.head_importance(model, [batch()[:1]])
    with pytest.raises(ValueError, match="list of tuples of arguments: got one of Tensor"):
        study.head_importance(model, batch())
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        study.head_importance(model, [batch()], "joint_path", steps=0)


# ------------------------------------------------------------------------------------------------------------- ablation


def test_ablating_heads():
    model, (x, y) = gpt(), batch()
    whole = model(x, y)[1].item()
    with study.ablate_heads(model, {1: [0, 2]}):
        zero = model(x, y)[1].item()
    layer = model.blocks[1].attn
    layer.head_gates = mg.tensor([0.0, 1.0, 0.0, 1.0], dtype=mg.float64)
    assert zero == pytest.approx(model(x, y)[1].item(), rel=1e-12) and zero != pytest.approx(whole)
    layer.head_gates = None
    with study.ablate_heads(model, {PATHS[1]: [1]}, mode="mean"), study.trace_heads(model, grads=False) as trace:
        model(x, y)
    with study.trace_heads(model, grads=False) as before:
        assert model(x, y)[1].item() == pytest.approx(whole, rel=1e-12)  # the ablation is over
    z = trace[1].z
    np.testing.assert_allclose(z[:, 1], np.broadcast_to(before[1].z[:, 1].mean((0, 1)), z[:, 1].shape), rtol=1e-12)
    np.testing.assert_array_equal(z[:, 0], before[1].z[:, 0])
    for names in {1: [0], PATHS[1]: 2}, ["1.0", "1.2"], ["blocks.1.attn.2", (1, 0)]:
        with study.ablate_heads(model, names):
            assert model(x, y)[1].item() == zero
    with pytest.raises(KeyError, match="no attention layer 2"), study.ablate_heads(model, {2: [0]}):
        pass
    with (
        pytest.raises(KeyError, match=r"no head '1.7'; the heads are 0.0 to 0.3, 1.0 to 1.3"),
        study.ablate_heads(model, {0: [1], 1: [7]}),
    ):
        pass
    with pytest.raises(ValueError, match="no mode 'men'"), study.ablate_heads(model, {0: [1]}, mode="men"):
        pass
    assert not any(block.attn._head_hooks for block in model.blocks)


def test_losses_without_the_first_of_an_order_of_heads():
    model, batches, order = gpt(), [batch(2), batch(3)], [(PATHS[0], 1), (PATHS[1], 0), (PATHS[0], 3)]
    losses = study.losses_without(model, batches, order)
    assert losses[0] == study.mean_loss(model, batches) and len(losses) == 4
    with study.ablate_heads(model, {PATHS[0]: [3, 1], PATHS[1]: [0]}):
        assert losses[3] == study.mean_loss(model, batches)
    assert losses[1] == pytest.approx(loss_without(model, batches, *order[0]), rel=1e-12)


def test_a_table_of_importance_has_means_and_standard_errors():
    model, batches = gpt(), [batch(seed) for seed in (2, 3, 4)]
    table = study.importance_table(model, batches, ["ablate", "joint_path"], steps=2)
    assert table.stats == ("ablate", "± ablate", "joint_path", "± joint_path")
    each = [study.head_importance(model, [one])["1.2"] for one in batches]
    assert table["ablate"]["1.2"] == pytest.approx(np.mean(each))
    assert table["± ablate"]["1.2"] == pytest.approx(np.std(each, ddof=1) / np.sqrt(3))
    assert study.importance_table(model, iter(batches[:1])).stats == study.METHODS


class OfUser(nn.GPT):
    """A GPT whose class says that it may do something else."""


@pytest.mark.parametrize("kind", ["blocks are skipped", "a hook in a block", "a class of the user's"])
def test_blocks_before_a_head_run_once(kind):
    """Skipping them changes no number. Where a block has a hook, or in a class that is not known, all blocks run."""
    model, batches = gpt(n_layer=3), [batch(2), batch(3)]
    expected, calls = study.head_importance(model, batches), []
    if kind == "a class of the user's":
        model.__class__ = OfUser
    if kind == "a hook in a block":
        model.blocks[0].mlp.register_forward_hook(lambda *args: calls.append(0))
    norm, forward = model.blocks[0].norm1, model.blocks[0].norm1.forward
    vars(norm)["forward"] = lambda x: calls.append(0) or forward(x)
    found = study.head_importance(model, batches)
    for path in expected:
        np.testing.assert_array_equal(found[path], expected[path])
    whole = 2 * (1 + 12)  # forwards, of two batches
    assert len(calls) == {"blocks are skipped": 2 * (1 + 4), "a hook in a block": 2 * whole}.get(kind, whole)
    assert not any("forward" in vars(block) for block in model.blocks)


def test_a_forward_assigned_to_a_block_stays():
    """It is called in every forward, and it is still there afterwards."""
    model, calls = gpt(n_layer=3), []
    expected = study.head_importance(model, [batch(2)])
    block, forward = model.blocks[0], model.blocks[0].forward
    block.forward = assigned = lambda *args: calls.append(0) or forward(*args)
    found = study.head_importance(model, [batch(2)])
    for path in expected:
        np.testing.assert_array_equal(found[path], expected[path])
    assert block.forward is assigned
    assert len(calls) == 1 + 12


def test_a_stopped_ablation_has_what_was_measured(caplog):
    model, batches, calls = gpt(), [batch(2), batch(3)], []

    def loss(model, *batch):
        calls.append(1)
        if len(calls) == stop:
            raise KeyboardInterrupt
        return model(*batch)[1]

    stop, whole = 2 + 2 * 3 + 1, study.head_importance(model, batches)
    found = study.head_importance(model, batches, loss=loss)
    assert found.stopped and not whole.stopped and "stopped after ablating 3 of 8 heads" in caplog.text
    np.testing.assert_array_equal(found[PATHS[0]][:3], whole[PATHS[0]][:3])
    assert np.isnan(found[PATHS[0]][3]) and np.isnan(found[PATHS[1]]).all()
    assert model.blocks[0].attn.head_gates is None and not any("forward" in vars(block) for block in model.blocks)
    stop = len(calls) + 1
    with pytest.raises(KeyboardInterrupt):  # nothing has been measured yet
        study.head_importance(model, batches, loss=loss)
    # A table of two batches: the second is not finished, and left out.
    stop = len(calls) + (1 + 8) + (1 + 3) + 1
    table = study.importance_table(model, batches, loss=loss)
    assert table.stopped and table.stats == ("ablate",)
    np.testing.assert_array_equal(table["ablate"][PATHS[0]], study.head_importance(model, batches[:1])[PATHS[0]])


def test_cut_edges_are_those_of_whole_forwards(monkeypatch):
    model, given = gpt(n_layer=3), batch()
    options = dict(method="cut", errors=True, between=["0.1", "1.2", "blocks.1.mlp", "2.3", "logits"])
    found = study.flow(model, given, **options)
    monkeypatch.setattr("minigrad.study.rerun.Rerun.block_with", lambda self, module: 0)
    whole = study.flow(model, given, **options)
    np.testing.assert_array_equal(found.edges, whole.edges)
    np.testing.assert_array_equal(found.errors, whole.errors)
