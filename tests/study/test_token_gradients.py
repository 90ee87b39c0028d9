"""The gradient of a head's weights, token by token, and what it says in tokens."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.study.layers import WEIGHTS

from .models import ATTN, B, T, gpt, tokens, traced

RTOL = {mg.float64: 1e-13, mg.float32: 5e-6}


def near(x, expected, rtol=1e-12):
    np.testing.assert_allclose(x, expected, rtol=0, atol=rtol * abs(np.asarray(expected)).max())


def grads(layer, weight):
    """{group of heads: their part of .grad, as in head_weights}, and the numbers of each group's heads."""
    owner = layer.kv_of_head if weight in ("W_K", "W_V") else tuple(range(layer.num_heads))
    found = {}
    for h, group in enumerate(owner):
        p, index = layer.head(h).parts[weight][0]
        found[group] = p.grad.numpy()[index].T
    return found, owner


def check_rebuilt(calls, layer, rtol):
    for weight in WEIGHTS:
        found, owner = grads(layer, weight)
        for group, expected in found.items():
            heads = [h for h, of in enumerate(owner) if of == group]
            near(sum(study.token_gradients(call, h, weight).total for call in calls for h in heads), expected, rtol)


@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("changes", [
    dict(), dict(n_kv_head=2, positions="rotary"), dict(n_kv_head=1), dict(bias=False), dict(dropout=0.4),
    dict(positions="alibi"),
], ids=str)  # fmt: skip
def test_the_tokens_parts_add_up_to_the_gradient(changes, dtype):
    model = gpt(dtype, **changes)
    trace = traced(model)
    for path in trace:
        check_rebuilt([trace[path]], trace.layers[path], RTOL[dtype])


def test_what_is_frozen_has_parts_all_the_same():
    """They need the gradient of q, not that of the weight."""
    model, frozen = gpt(), gpt()
    for p in frozen.blocks[1].attn.parameters():
        p.requires_grad_(False)
    one, other = (study.token_gradients(traced(m)[ATTN], 2, "W_Q") for m in (model, frozen))
    np.testing.assert_array_equal(one.total, other.total)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_parts_norms_and_shares(weight):
    found = study.token_gradients(traced(gpt())[ATTN], 2, weight)
    parts = np.array([[found.of(b, t) for t in range(T)] for b in range(B)])  # (B, T, m, d)
    near(parts.sum((0, 1)), found.total)
    near(found.norms, np.sqrt((parts**2).sum((2, 3))))
    near(found.share, (parts * found.total).sum((2, 3)) / (found.total**2).sum())
    assert found.share.sum() == pytest.approx(1, rel=1e-12)
    with pytest.raises(IndexError):
        found.of(0, T)


def test_a_head_without_a_gradient():
    model = gpt()
    model.blocks[1].attn.head_gates = mg.tensor([1.0, 1.0, 0.0, 1.0], dtype=mg.float64)
    seen = traced(model)[ATTN]
    for weight in WEIGHTS:
        found = study.token_gradients(seen, 2, weight)
        assert not found.total.any() and np.isnan(found.share).all() and not found.norms.any()
        assert "‖dW‖ = 0" in str(found)


def test_tokens_are_ranked():
    x = tokens()[0]
    seen = traced(gpt())[ATTN]
    found = study.token_gradients(seen, 2, "W_Q", labels=x)
    title, names, *rows = str(found).splitlines()
    assert title.startswith("blocks.1.attn head 2, W_Q: dW = Σ x ⊗ dy, ‖dW‖ = ")
    assert names.split() == ["share", "size", "‖x‖", "‖dy‖", "sequence", "position", "token"] and len(rows) == B * T
    b, t = np.unravel_index(abs(found.share).argmax(), (B, T))
    share, size, _, _, sequence, position, token = rows[0].split()
    assert (int(sequence), int(position), int(token)) == (b, t, x[int(b), int(t)].item())
    assert share == f"{found.share[b, t]:+.1%}" and size == f"{found.norms[b, t]:.3g}"
    pulls = study.TokenGradients(
        "", np.ones((1, 3, 1)), np.array([[[2.0], [0.1], [-1.5]]]), [["for", "a bit", "against"]]
    )
    assert [line.split("  ")[-1].strip() for line in str(pulls).splitlines()[2:]] == ["for", "against", "a bit"]
    assert "-250.0%" in str(pulls) and pulls.label(0, 2) == "against"
    many = study.TokenGradients("", np.ones((2, 20, 3)), np.ones((2, 20, 3)))
    assert str(many).endswith("… and 20 with smaller shares")


@pytest.mark.parametrize("labels, got", [("abc", "[3]"), ([["a"], ["b"]], "[1, 1]"), ([], "[]"), ([["a", "b"]], "[2]")])
def test_labels_that_do_not_fit(labels, got):
    with pytest.raises(ValueError, match=r"labels must be 2 lists of 2, got lists of") as error:
        study.token_gradients(seen_of(2, 2), 0, "W_Q", labels)
    assert got in str(error.value)


def seen_of(n, length):
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    with study.trace_heads(layer) as trace:
        layer(mg.randn(n, length, 4))[0].sum().backward()
    return trace[0]


def test_what_is_not_there_is_named():
    seen = traced(gpt(), heads=[1, 3])[ATTN]
    with pytest.raises(ValueError, match=r"head 2 was not traced in blocks.1.attn: there are \[1, 3\]"):
        study.token_gradients(seen, 2, "W_Q")
    with pytest.raises(ValueError, match="head '1' was not traced"):
        study.token_gradients(seen, "1", "W_Q")
    with pytest.raises(TypeError, match=r"a LayerTrace is needed, such as trace\[0\], not a HeadTrace"):
        study.token_gradients(traced(gpt()), 1, "W_Q")
    with pytest.raises(ValueError, match="no matrix 'W_q'; did you mean"):
        study.token_gradients(seen, 1, "W_q")
    with pytest.raises(RuntimeError, match="no grad yet of q"):
        study.token_gradients(traced(gpt(), grads=False)[ATTN], 1, "W_Q")
    near(study.token_gradients(seen, 3, "W_K").total, study.token_gradients(traced(gpt())[ATTN], 3, "W_K").total)


# -------------------------------------------------------------------------------------------------------- backward lens
