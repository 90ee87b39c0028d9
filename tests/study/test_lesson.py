"""study.lesson: against what a small step of SGD does to the scores, and against gradients that are cut."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim, study
from minigrad.nn.positions import rotary

from .models import V, gpt, tokens

MODELS = {
    "attention only": lambda: study.AttentionOnly(V, 6, n_layer=2, n_head=4, n_embd=16).double(),
    "learned positions": gpt,
    "rotary, shared keys": lambda: gpt(n_kv_head=2, positions="rotary"),
    "no biases, one key for all": lambda: gpt(n_kv_head=1, bias=False),
}


def scores_of(layer, head, rows, positions):
    """s q kᵀ of a head for rows (n, C), which stand at positions 0, 1, … or, without positions, at the same one."""
    h, group = layer.head(head), layer.kv_of_head[head]
    b_q, b_k = (0.0 if b is None else b.detach().numpy().reshape(-1, layer.d_k)[n]
                for b, n in zip(layer.biases(), (head, group)))  # fmt: skip
    q, k = rows @ h.W_Q.detach().numpy() + b_q, rows @ h.W_K.detach().numpy() + b_k
    if positions and layer.positions == "rotary":
        q, k = rotary(mg.tensor(q)).numpy(), rotary(mg.tensor(k)).numpy()
    return layer.score_scale * q @ k.T


def centred(x, visible):
    mean = np.where(visible, x, 0).sum(-1, keepdims=True) / visible.sum(-1, keepdims=True)
    return np.where(visible, x - mean, 0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layer", [0, 1])
def test_it_is_what_a_small_step_does_to_the_scores(name, layer):
    model, (x, y), lr = MODELS[name](), tokens(), 1e-7
    found = study.lesson(model, (x, y), f"{layer}.2")
    attn = model.blocks[layer].attn
    with study.trace_heads(model, grads=False) as trace:
        model(x, y)
    if name == "attention only" and layer == 0:
        at, ids = model.wpe.weight.detach().numpy().copy(), found.token_ids
        of_tokens = model.wte.weight.detach().numpy()[ids]
    else:
        inputs, numbers = trace[layer].x_q, x.numpy()
        at, ids = inputs.mean(0), np.unique(numbers)
        of_tokens = np.stack([inputs[numbers == token].mean(0) for token in ids])
    np.testing.assert_array_equal(ids, np.unique(x.numpy()))
    rows = {"positions": at, "tokens": of_tokens}
    before = {kind: scores_of(attn, 2, of, kind == "positions") for kind, of in rows.items()}
    optimizer = optim.SGD(model.parameters(), lr=lr)
    model(x, y)[1].backward()
    optimizer.step()
    for kind, of in rows.items():
        change = (scores_of(attn, 2, of, kind == "positions") - before[kind]) / lr
        visible = np.tri(len(of), dtype=bool) if kind == "positions" else np.ones(change.shape, bool)
        expected = centred(change, visible)
        np.testing.assert_allclose(getattr(found, kind), expected, rtol=0, atol=1e-5 * abs(expected).max())


def test_the_parts_are_those_that_a_cut_leaves():
    """What is missing from the gradients while a later layer's K is cut is the part by K."""
    model, batch = MODELS["attention only"](), tokens()
    found = study.lesson(model, batch, "0.1")
    layer, C, rows = model.blocks[0].attn, 16, slice(4, 8)

    def lesson_of_gradients():
        model.zero_grad()
        model(*batch)[1].backward()
        W, dW = (w.numpy() for w in (layer.in_proj_weight.detach(), layer.in_proj_weight.grad))
        W_q, W_k, dW_q, dW_k = W[:C][rows], W[C : 2 * C][rows], dW[:C][rows], dW[C : 2 * C][rows]
        E = model.wpe.weight.detach().numpy()
        change = -layer.score_scale * (E @ dW_q.T @ W_k @ E.T + E @ W_q.T @ dW_k @ E.T)
        return centred(change, np.tri(6, dtype=bool))

    whole = lesson_of_gradients()
    np.testing.assert_allclose(found.positions, whole, atol=1e-12)
    np.testing.assert_allclose(sum(found.by.values()), found.positions, atol=1e-15)
    assert list(found.by) == ["q", "k", "v", "logits"]
    for p in "qkv":
        with study.cut_gradient(model, "blocks.0.attn", "blocks.1.attn", p):
            np.testing.assert_allclose(found.by[p], whole - lesson_of_gradients(), atol=1e-12)
    with study.cut_gradient(model, "blocks.0.attn", "logits"):
        np.testing.assert_allclose(found.by["logits"], whole - lesson_of_gradients(), atol=1e-12)


def test_the_band_and_the_table():
    found = study.lesson(gpt(), tokens(), "0.3")
    D = found.positions
    assert found.band() == pytest.approx(np.mean([D[i, i - 1] for i in range(2, 6)]) / np.abs(D[D != 0]).mean())
    lines = str(found).splitlines()
    assert lines[0] == "the lesson of a step for head 0.3"
    assert [line.split()[0] for line in lines[1:]] == ["through", "q", "k", "v", "mlp", "logits", "all"]
    assert lines[-1].split()[1] == f"{found.band():+.2f}"
    assert list(study.lesson(gpt(), tokens(), "1.0").by) == ["mlp", "logits"]
    assert found.head == "0.3" and study.lesson(gpt(), tokens(), ("blocks.0.attn", 3)).head == "0.3"


def test_the_lesson_of_a_loss_without_the_layer():
    model, seen = gpt(), []
    model.blocks[0].register_forward_hook(lambda module, args, y: seen.append(y))
    with pytest.raises(ValueError, match=r"the loss does not depend on blocks.1.attn"):
        study.lesson(model, tokens(), "1.0", lambda model, x, y: (model(x, y), seen[-1].sum())[1])
    with pytest.raises(KeyError, match=r"no head '0.4'; the heads are"):
        study.lesson(model, tokens(), "0.4")
