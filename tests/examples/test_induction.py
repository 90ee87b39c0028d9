"""Induction heads form where they can, and nowhere else."""

import re

import numpy as np
import pytest

import minigrad as mg
from minigrad.study import METHODS, flow, head_importance, head_scores, ranked, repeated_tokens

from .scripts import load

SEEDS = range(5)


@pytest.fixture(scope="module")
def example():
    return load("induction_heads")


def best(model, kind, *periods):
    return head_scores(model, [kind], periods).best(kind)


@pytest.mark.slow
def test_the_script_runs(example, capsys, tmp_path):
    example.main(["--steps", "50", "--controls", "--out", str(tmp_path / "runs")])
    printed = capsys.readouterr().out
    assert re.search(r"step 50: loss 3\.\d+, previous 0\.\d\d, induction 0\.[01]\d\n", printed)
    assert "Induction has not appeared" in printed
    assert len(re.findall(r"^[01]\.[0-3]( +0\.\d{3}){3}$", printed.partition("How much")[0], re.MULTILINE)) == 8
    assert len(re.findall(r"period (?:9|12|16): induction 0\.\d\d, \d+% right", printed)) == 6
    assert (
        len(re.findall(r"^[01]\.[0-3]( +-?0\.\d{3}){3}$", printed.partition("How much")[2], re.MULTILINE)) == 8
    )  # importance
    assert (tmp_path / "runs" / "induction.html").stat().st_size > 100_000


def test_accuracy_counts_from_the_second_period_on(example):
    class Told(mg.nn.Module):
        """A model that predicts the right tokens from a position on."""

        def __init__(self, period, start):
            self.tokens = repeated_tokens([period] * 256, example.V, example.T + 1, mg.Generator(12345))
            self.start = start

        def forward(self, idx):
            right = mg.nn.functional.one_hot(self.tokens[:, 1:], example.V).float()  # (B, T, V)
            late = (mg.arange(example.T) >= self.start).float().unsqueeze(1)  # (T, 1)
            return right * (2 * late - 1), None

    assert example.accuracy(Told(9, 9), 9) == 1
    assert example.accuracy(Told(16, 24), 16) == 0.5


def test_the_task_repeats_random_tokens(example):
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


@pytest.mark.slow
def test_two_layers_learn_induction(example):
    learned = 0
    for seed in SEEDS:
        model, scores = example.new_model(seed), {}

        def watch(step, loss, model=model, scores=scores):
            if step in (100, 300):
                scores[step] = best(model, "induction", example.UNSEEN)[2]

        example.train(model, seed, watch=watch)
        path, _, score = best(model, "induction", example.UNSEEN)
        assert path == "blocks.1.attn" and best(model, "previous", 9, example.UNSEEN)[0] == "blocks.0.attn"
        assert scores[100] < 0.2 and scores[300] > 0.5  # it appears all at once
        learned += score >= 0.9 and example.accuracy(model, example.UNSEEN) >= 0.9
        the_joint_path_knows_the_head_that_matters_most_and_the_gate_gradient_does_not(model, example.batches(9))
    assert learned >= 4


def the_joint_path_knows_the_head_that_matters_most_and_the_gate_gradient_does_not(model, batches):
    ablate, joint, grad = (head_importance(model, batches, method) for method in METHODS)
    assert ranked(joint)[-1] == ranked(ablate)[-1]
    layer, head = ranked(ablate)[-1]  # the one that matters most is the previous-token head
    assert (layer, head) == best(model, "previous", 9)[:2] and layer == "blocks.0.attn"
    assert ablate[layer][head] > 0.9 and grad[layer][head] < ablate[layer][head] / 20
    times = {}  # how much more it matters than any other head, by each method
    for name, scores in ("ablate", ablate), ("grad", grad):
        others = [scores[p][h] for p, h in ranked(scores) if (p, h) != (layer, head)]
        times[name] = scores[layer][head] / max(others)
    assert times["ablate"] > 2 and times["grad"] < times["ablate"] / 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_it_is_k_that_asks_for_the_previous_token_head(example, seed):
    model, flows = example.new_model(seed), []

    def watch(step, loss):
        if step % 50 == 0:
            flows.append((step, flow(model, *example.batches(9))))

    example.train(model, seed, steps=300, watch=watch)
    head = best(model, "previous", example.UNSEEN)[:2]
    each = example.edges_by_input(flows, head)
    step, by_k = min(zip((step for step, _ in flows), each["k"]), key=lambda pull: pull[1])
    assert head[0] == "blocks.0.attn" and 150 <= step <= 250
    assert by_k < -0.1 and min(min(edges) for p, edges in each.items() if p != "k") > by_k / 3
    assert f"The strongest was at step {step}, by K: {by_k:+.4f}." in example.explanation(flows, head)


@pytest.mark.slow
def test_one_layer_does_not(example):
    model = example.train(example.new_model(0, n_layer=1), 0)
    assert best(model, "induction", 9, 16)[2] < 0.3
    assert example.accuracy(model, 16) < 0.2


@pytest.mark.slow
def test_one_period_is_learned_as_a_distance(example):
    model = example.train(example.new_model(0), 0, periods=(12, 12))
    assert best(model, "induction", 12)[2] > 0.7 and example.accuracy(model, 12) > 0.9
    assert best(model, "induction", 16)[2] < 0.2 and example.accuracy(model, 16) < 0.1


# ---------------------------------------------------------------------------------- which gradient teaches a head


@pytest.fixture
def teaches():
    return load("which_gradient_teaches")


def gradients(model, tokens):
    _, loss = model(tokens[:, :-1], tokens[:, 1:])
    return loss.item(), [g.numpy() for g in mg.grad(loss, list(model.parameters()))]


def test_controls_change_what_they_say(teaches, example):
    """disturb() changes no value, and only gradients of the first layer and of what it reads."""
    tokens = repeated_tokens([9, 12], example.V, example.T + 1, mg.Generator(0))
    model = example.new_model(0)
    loss, plain = gradients(model, tokens)
    teaches.disturb(model)
    same, disturbed = gradients(model, tokens)
    assert same == pytest.approx(loss, 1e-6)
    changed = [not np.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in zip(plain, disturbed)]
    names = [name for name, _ in model.named_parameters()]
    assert {name for name, other in zip(names, changed) if other} == {n for n in names if n[:3] in ("wte", "wpe")} | {
        n for n in names if n.startswith("blocks.0")
    }
    given = example.new_model(0)
    teaches.give_head(given)
    assert teaches.previous(given) == 1 and teaches.previous(example.new_model(0)) < 0.2


@pytest.mark.slow
def test_a_head_is_taught_through_its_keys(teaches, example, capsys, tmp_path):
    for cut, formed in (("", True), ("q", True), ("k", False)):
        model, scores = teaches.Training(cut).run(0, 600)
        assert (scores[-1] > teaches.FORMED) == formed == (example.accuracy(model, example.UNSEEN) > 0.8)
    teaches.main(["--seeds", "2", "--steps", "100", "--out", str(tmp_path / "a.png")])
    printed = capsys.readouterr().out
    rows = re.findall(r"^.{22} +\d\.\d\d ± \d\.\d\d +\d of 2 +\d\.\d\d ± ", printed, re.MULTILINE)
    assert len(rows) == len(teaches.TRAININGS)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


# ----------------------------------------------------------------------------------- what one step teaches a head


def test_bands_add_up():
    example = load("what_one_step_teaches")
    model, given = example.task.new_model(0), tuple(x[:8] for x in example.batch())
    lesson = example.study.lesson(model, given, "0.1")
    found = example.bands(lesson)
    assert found["all"] == pytest.approx(lesson.band()) == pytest.approx(found["k"] + found["others"])
    assert found["others"] == pytest.approx(found["q"] + found["v"] + found["logits"])


@pytest.mark.slow
def test_keys_teach_and_the_others_take_back(capsys, tmp_path):
    example = load("what_one_step_teaches")
    example.main(["--seeds", "1", "--steps", "400", "--out", str(tmp_path / "a.png")])
    printed = capsys.readouterr().out
    rows = re.findall(r"^ +0 +0\.\d +(\d+) +(\d\.\d\d) +" + r"([+-]\d+\.\d\d) *" * 6 + "$", printed, re.MULTILINE)
    assert [row[0] for row in rows] == ["100", "200", "300", "400"]
    for _, score, k, q, v, logits, others, whole in rows:
        assert 0 <= float(score) <= 1 and float(k) > 0 > float(others)
        assert float(others) == pytest.approx(float(q) + float(v) + float(logits), abs=0.02)
        assert float(whole) == pytest.approx(float(k) + float(others), abs=0.02)
    assert "in 4 of 4 measurements.\nAll others together take it back in 4." in printed
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
