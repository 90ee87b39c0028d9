"""Gradients by the prediction that sends them: their sums, and the gradients of one prediction's loss alone."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import study

from .models import T, V, gpt, tokens

MODELS = {
    "gpt": gpt,
    "rotary, shared keys": lambda: gpt(n_kv_head=2, positions="rotary"),
    "attention only": lambda: study.AttentionOnly(V, T, n_layer=2, n_head=4, n_embd=16).double(),
}
EXACT = dict(rtol=1e-9, atol=1e-15)


def losses_of(model):
    return study.prediction_losses(model, *tokens())


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_parts_add_up_to_the_whole(model):
    model = model()
    with study.trace_heads(model) as whole:
        loss = model(*tokens())[1]
        loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    with study.trace_heads(model) as parts:
        losses = losses_of(model)
        parts.backward(losses)
    np.testing.assert_allclose(losses.sum().item(), loss.item(), **EXACT)
    for name, p in model.named_parameters():
        np.testing.assert_allclose(p.grad.numpy(), gradients[name].numpy(), rtol=1e-9, atol=1e-14)
    for path in whole:
        a, b = whole[path], parts[path]
        for name in ("q_grad", "k_grad", "v_grad", "scores_grad", "pattern_grad", "z_grad", "y_grad"):
            np.testing.assert_allclose(getattr(b, name), getattr(a, name), rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(b.scores_grad_by_prediction.sum(0), a.scores_grad, rtol=1e-9, atol=1e-14)
        gates = (a.z * a.z_grad).sum((2, 3))  # (B, n)
        np.testing.assert_allclose(b.gate_grad_by_prediction.sum(0), gates, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(parts.table()["gate_grad"][path], gates.sum(0), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_part_is_the_gradient_of_one_loss(model):
    model, p = model(), 3
    with study.trace_heads(model, heads=["1.2"]) as parts:
        parts.backward(losses_of(model))
    with study.trace_heads(model) as alone:
        losses_of(model)[:, p].sum().backward()
    head, expected = parts["1.2"], alone["1.2"]
    assert head.scores_grad_by_prediction.shape == (T, 3, T, T) and head.gate_grad_by_prediction.shape == (T, 3)
    np.testing.assert_allclose(head.scores_grad_by_prediction[p], expected.scores_grad, **EXACT)
    np.testing.assert_allclose(head.gate_grad_by_prediction[p], (expected.z * expected.z_grad).sum((1, 2)), **EXACT)
    assert not head.scores_grad_by_prediction[p][:, p + 1 :].any()  # later queries have no part in the prediction


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_flow_by_prediction(model):
    model, p = model(), 4
    whole, parts = study.flow(model, tokens()), study.flow(model, tokens(), by_prediction=True)
    alone = study.flow(model, tokens(), lambda model, x, y: study.prediction_losses(model, x, y)[:, p].sum())
    assert len(parts.predictions) == T and [str(v) for v, _ in parts.inputs] == [str(v) for v, _ in whole.inputs]
    np.testing.assert_allclose(parts.edges, whole.edges, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(parts.errors, whole.errors, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(sum(each.edges for each in parts.predictions), whole.edges, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(sum(each.loss for each in parts.predictions), whole.loss, **EXACT)
    one = parts.predictions[p]
    np.testing.assert_allclose(one.edges, alone.edges, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(one.errors, alone.errors, rtol=1e-9, atol=1e-14)
    assert one.by_input("0.1") == pytest.approx(alone.by_input("0.1"), rel=1e-9)
    assert all(p.grad is None for p in model.parameters())


def test_losses_of_targets_that_are_ignored():
    model, (x, y) = gpt(), tokens()
    y = y.where(mg.arange(T) != 2, -100)
    losses = study.prediction_losses(model, x, y)
    assert not losses[:, 2].detach().numpy().any()
    np.testing.assert_allclose(losses.sum().item(), model(x, y)[1].item(), **EXACT)


def test_losses_of_ones_own():
    """Any losses (B, P): here of two halves of the text, for two sequences."""
    model, (x, y) = gpt(), tokens()

    def halves(model, x, y):
        return study.prediction_losses(model, x, y).reshape(3, 2, 3).sum(-1)

    with study.trace_heads(model) as trace:
        trace.backward(halves(model, x, y))
    assert trace["0.1"].scores_grad_by_prediction.shape == (2, 3, T, T)
    assert len(study.flow(model, (x, y), halves, by_prediction=True).predictions) == 2


def test_a_second_forward_and_backward():
    model = gpt()
    with study.trace_heads(model) as trace:
        trace.backward(losses_of(model))
        first = trace["1.0"]
        trace.backward(losses_of(model))
    np.testing.assert_array_equal(first.scores_grad_by_prediction, trace["1.0"].scores_grad_by_prediction)
    np.testing.assert_array_equal(first.scores_grad, trace["1.0"].scores_grad)


def test_errors():
    model, (x, y) = gpt(), tokens()
    with study.trace_heads(model) as trace:
        _, loss = model(x, y)
        with pytest.raises(ValueError, match=r"needs losses \(B, P\), got shape \(\)"):
            trace.backward(loss)
        loss.backward()
    with pytest.raises(RuntimeError, match=r"no scores_grad_by_prediction in blocks.0.attn: call backward\(losses\)"):
        trace["0.1"].scores_grad_by_prediction  # noqa: B018
    with (
        study.trace_heads(model, grads=False) as without,
        pytest.raises(RuntimeError, match="by prediction needs trace_heads"),
    ):
        without.backward(losses_of(model))
    with pytest.raises(ValueError, match=r"returns losses \(B, P\), got \(\)"):
        study.flow(model, (x, y), lambda model, x, y: model(x, y)[1], by_prediction=True)
    with pytest.raises(ValueError, match="by_prediction=True is to first order only"):
        study.flow(model, (x, y), method="cut", by_prediction=True)
    with pytest.raises(ValueError, match=r"logits \(B, T, V\) for targets \(3, 5\), got \(3, 6, 11\)"):
        study.prediction_losses(model, x, y[:, 1:])
