"""The functions of the examples: data, models and measures, each by hand."""

import types

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.training import text

from .scripts import load


def test_words_are_of_all_lengths_and_letters():
    reverse = load("reverse_sequence")
    src, tgt, answer = (x.numpy() for x in reverse.words(3000, mg.Generator(1)))
    assert src.shape == tgt.shape == answer.shape == (3000, reverse.LONGEST + 1)
    lengths = (src < 26).sum(1)
    assert set(lengths) == set(range(3, reverse.LONGEST + 1)) and set(src[:, 0]) == set(range(26))
    for s, t, a, n in zip(src, tgt, answer, lengths):
        assert s[n] == a[n] == reverse.END and set(s[n + 1 :]) | set(a[n + 1 :]) <= {reverse.PAD}
        assert a[:n].tolist() == s[:n][::-1].tolist() and t[0] == reverse.BEGIN and t[1:].tolist() == a[:-1].tolist()


def test_the_reverser_reads_no_padding_and_looks_not_ahead():
    reverse = load("reverse_sequence")
    m = reverse.Reverser(C=8, nh=2, layers=1).double()
    src, tgt, _ = reverse.words(4, mg.Generator(0))
    y = m(src, tgt).detach().numpy()
    assert y.shape == (4, reverse.LONGEST + 1, reverse.V)
    short = int((src[0] == reverse.PAD).numpy().argmax())
    assert 0 < short < src.shape[1]  # it ends before the others
    alone = m(src[:1, :short], tgt[:1]).detach().numpy()
    np.testing.assert_allclose(alone, y[:1], rtol=1e-9, atol=1e-12)
    other = tgt.clone()
    other[:, 5] = 3
    changed = abs(m(src, other).detach().numpy() - y).max((0, 2)) > 1e-12
    assert not changed[:5].any() and changed[5:].all()
    swapped = src.clone()
    swapped[:, :2] = src[:, [1, 0]]
    assert abs(m(swapped, tgt).detach().numpy() - y).max() > 1e-6  # it knows where letters stand


def test_answers_are_greedy_and_end_at_the_end(monkeypatch):
    reverse = load("reverse_sequence")
    src, _, answer = reverse.words(6, mg.Generator(0))

    def decode(tgt, memory, given):
        """Says the right answer, and nonsense after its END, or where it was not asked."""
        assert (tgt[:, 0] == reverse.BEGIN).all() and memory is not None and given is src
        wanted = answer[:, tgt.shape[1] - 1].numpy()
        scores = np.zeros((*tgt.shape, reverse.V))
        scores[:, :-1, 2] = 9.0
        scores[np.arange(len(wanted)), -1, np.where(wanted == reverse.PAD, 7, wanted)] = 1.0
        return mg.tensor(scores)

    model = types.SimpleNamespace(encode=lambda x: x, decode=decode)
    assert (reverse.reverse(model, src) == answer).all()
    right = reverse.words(8, mg.Generator(12345))[2].numpy().copy()
    wrong = right.copy()
    wrong[:2, 0] = (wrong[:2, 0] + 1) % 26
    monkeypatch.setattr(reverse, "reverse", lambda model, src: mg.tensor(wrong))
    assert reverse.exact(None, n=8) == 0.75
    monkeypatch.setattr(reverse, "reverse", lambda model, src: mg.tensor(right))
    assert reverse.exact(None, n=8) == 1.0


def test_a_validation_loss_before_training_is_the_untrained_models():
    count = load("head_count")
    ids = np.arange(400) % 7
    batches = text.fixed_batches(ids, count.T, 2)
    mg.manual_seed(3)
    model = nn.GPT(nn.GPTConfig(7, count.T, n_layer=2, n_head=4, n_embd=64))
    expected = np.mean([model(mg.tensor(x), mg.tensor(y))[1].item() for x, y in batches])
    assert count.validation_loss(4, ids, batches, 7, 0, 3) == pytest.approx(expected, rel=1e-6)
    again = [count.validation_loss(2, ids, batches, 7, steps, 3, n_embd=8, n_layer=1) for steps in (3, 3, 12)]
    assert again[0] == again[1] and again[2] < again[0] < 2.2


def test_saturation_is_the_median_norm_of_ds():
    scale = load("scale")
    scores = scale.random_scores(16, queries=5, keys=4, seed=2)
    assert scores.shape == (5, 1, 4)
    norm, top = scale.saturation(scores, seed=3)
    s = scores.numpy()
    P = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
    dP = mg.randn(5, 1, 4, generator=mg.Generator(3)).numpy()
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    assert norm == pytest.approx(np.median(np.sqrt((dS**2).sum(-1))), rel=1e-4)
    assert top == pytest.approx(np.median(P.max(-1)), rel=1e-5)
    large = scale.random_scores(256).numpy()
    assert large.shape == (500, 1, 32) and large.std() == pytest.approx(16, rel=0.05)


def test_the_best_rate_of_several_runs(monkeypatch):
    cache = load("kv_cache")
    now, took, calls = [0.0], iter([4.0, 2.0, 8.0]), []

    def generate(prompts, tokens, temperature, use_cache):
        calls.append((tokens, temperature, use_cache))
        now[0] += next(took)

    monkeypatch.setattr(cache.time, "perf_counter", lambda: now[0])
    model = types.SimpleNamespace(generate=generate)
    assert cache.tokens_per_second(model, mg.zeros(3, 5), 10, False) == 3 * 10 / 2
    assert calls == [(10, 0, False)] * 3


def test_what_induction_heads_are_trained_and_measured_on():
    example = load("induction_heads")
    ((x, y),) = example.batches(5, n=3)
    assert x.shape == y.shape == (3, example.T) and (y[:, :4] == -100).all() and (y[:, 4:-1] == x[:, 5:]).all()
    assert (x[:, 5:] == x[:, :-5]).all() and (y[:, -1] == x[:, -5]).all()  # one period later, the same again
    assert [len(set(row[:5])) for row in x.tolist()] == [5] * 3
    seen, periods = [], []
    model = example.new_model(0, n_layer=1)
    model.register_forward_pre_hook(lambda m, args: periods.extend(map(period, args[0].tolist())))
    first = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert example.train(model, 0, (3, 6), steps=6, watch=lambda *each: seen.append(each), B=40) is model
    assert [step for step, _ in seen] == [1, 2, 3, 4, 5, 6] and seen[-1][1] < seen[0][1]
    assert set(periods) == {3, 4, 5, 6} and len(periods) == 6 * 40
    assert all((p != first[name]).any() for name, p in model.named_parameters())


def period(row):
    return next(p for p in range(1, len(row)) if row[p:] == row[:-p])
