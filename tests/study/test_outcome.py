"""What a model says of each token: its loss and its predictions, as the report shows them."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.nn import functional as F
from minigrad.study.report import outcome_of

from .models import EncoderDecoder, gpt, page_data, tokens


def test_losses_and_predictions_are_those_of_the_softmax():
    rng = np.random.default_rng(0)
    logits, targets = rng.normal(size=(2, 3, 9)) * 5, rng.integers(0, 9, (2, 3))
    targets[1, 2] = -100
    found = outcome_of(logits, targets)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    right = np.take_along_axis(p, np.maximum(targets, 0)[..., None], -1)[..., 0]
    np.testing.assert_allclose(found.loss, np.where(targets < 0, np.nan, -np.log(right)))
    np.testing.assert_array_equal(found.ids, np.argsort(-logits, -1)[..., :5])
    np.testing.assert_allclose(found.probabilities, np.take_along_axis(p, found.ids, -1))
    huge = outcome_of(np.array([[[1e4, 0.0], [-1e4, 0.0]]]))
    assert huge.loss is None and huge.probabilities.tolist() == [[[1, 0], [1, 0]]]  # and fewer logits than predictions


def test_the_mean_of_the_losses_is_the_models_loss():
    model, (x, y) = gpt(), tokens()
    y = y[:, :6].clone()
    y[0, :2] = -100
    with study.trace_heads(model, grads=False) as trace:
        _, loss = model(x, y)
    assert np.nanmean(trace.outcome.loss) == pytest.approx(loss.item(), rel=1e-6)
    assert np.isnan(trace.outcome.loss[0, :2]).all() and trace.outcome.ids.shape[:2] == x.shape
    model(x[:1])  # outside of the trace
    assert len(trace.outcome.ids) == len(x)


def test_no_outcome_where_there_are_no_logits():
    (src, tgt), layer = tokens(), nn.MultiheadAttention(8, 2, batch_first=True)
    with study.trace_heads(model := EncoderDecoder(), grads=False) as trace:
        model(src, tgt[:, :5])
    assert trace.outcome is None  # it is not clear which of its ints are the tokens
    with study.trace_heads(layer, grads=False) as trace:
        layer(mg.randn(2, 5, 8))
    assert trace.outcome is None

    class Sum(nn.Module):
        def __init__(self):
            self.inner = gpt()

        def forward(self, x, y):
            return F.cross_entropy(self.inner(x)[0].reshape(-1, 11), y.reshape(-1))

    with study.trace_heads(model := Sum(), grads=False) as trace:
        model(src, tgt[:, :6])
    assert trace.outcome is None


def test_a_vocabulary_gives_the_text(tmp_path):
    model, (x, y) = gpt(), tokens()
    with study.trace_heads(model, grads=False) as trace:
        model(x, y[:, :6])
    letters = [chr(97 + i) for i in range(11)]
    for vocab in (letters, dict(enumerate(letters)), lambda i: letters[i]):
        header = page_data(trace.to_html(tmp_path / "a.html", vocab=vocab))
        assert header["tokens"][0] == [[letters[t] for t in row] for row in x.numpy()]
        found = header["outcomes"][0]
        assert found["right"] == [[letters[t] for t in row] for row in y.numpy()[:, :6]]
        assert found["top"][0][0] == [letters[i] for i in trace.outcome.ids[0, 0]]
