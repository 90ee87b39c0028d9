"""A head whose scores are too large gets no gradient, and learns late; normed queries and keys help."""

import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import study

from .scripts import load


@pytest.fixture(scope="module")
def example():
    return load("saturation")


def columns(printed, title):
    """{name: [number]} of the table that follows a line which begins with a title."""
    lines = printed[printed.index(title) :].splitlines()[2:]
    rows = [re.findall(r".{10}", line) for line in lines[: lines.index("")]]
    return {name.strip(): [float(x.strip() or "nan") for x in each] for name, *each in zip(*rows)}


@pytest.mark.slow
def test_the_script_says_what_it_measures(example, capsys, tmp_path):
    assert example.main(["--steps", "25", "--out", str(tmp_path / "runs")]) == 0
    printed = capsys.readouterr().out
    found = columns(printed, "after 30 steps")
    assert found["scores ×"] == list(example.FACTORS) and 0.5 < found["right"][0] < 0.9
    for name in ("openness", "|dS|", "|dW_Q|", "dS"):
        assert found[name] == sorted(found[name], reverse=True), name
    assert found["openness"][-1] < 0.05 and found["|dW_Q|"][-1] < found["|dW_Q|"][0] / 5
    assert found["|dP|"][-1] > found["|dP|"][0] / 2 and found["dP - D"][-1] > found["dP - D"][0]
    assert found["dS"][-1] < 1e-10 * found["dS"][0]
    at_start = [columns(printed, f"{title}: not 90%") for title in example.TRAININGS]
    assert all(run["step"] == [0, 25] for run in at_start)
    usual, large, normed = ({name: each[0] for name, each in run.items()} for run in at_start)
    assert usual["openness"] > 0.8 < normed["openness"] and large["openness"] < 0.2
    assert large["dP - D"] > usual["dP - D"] / 2 and large["dS"] < usual["dS"] / 1e4
    for name in ("saturation", "learning"):
        assert (tmp_path / "runs" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_large_scores_learn_late_and_normed_ones_do_not(example, seed):
    steps = {}
    for title, run in example.learn(seed, example.STEPS).items():
        steps[title] = next(step for step, right in zip(run["step"], run["right"]) if right >= 0.9)
    usual, large, normed = steps.values()
    assert usual <= normed <= 100 < 2 * normed < 2 * large and large > usual * 2


def test_what_is_asked_for_and_answered(example):
    (keys, values, asked), answer = (
        [x.tolist() for x in each] if isinstance(each, tuple) else each.tolist()
        for each in example.draw(5, mg.Generator(0))
    )
    for k, v, a, right in zip(keys, values, asked, answer):
        assert len(set(k)) == example.S and sorted(a) == sorted(k) and a != k
        assert right == [v[k.index(each)] for each in a]


def test_the_start_differs_by_the_scores_alone(example):
    scores, parameters = [], []
    batch, _ = example.draw(3, mg.Generator(0))
    for options in example.TRAININGS.values():
        mg.manual_seed(1)
        model = example.Lookup(*options)
        with study.trace_heads(model, grads=False) as trace:
            model(*batch)
        scores.append(trace[0].scores)
        parameters.append({name: p.detach().numpy() for name, p in model.named_parameters()})
    usual, large, normed = scores
    np.testing.assert_allclose(large, 16 * usual, rtol=1e-4, atol=1e-4)
    assert abs(normed).max() <= example.C**0.5 < abs(large).max()
    C = example.C
    for name, value in parameters[0].items():
        factor = np.repeat([4, 4, 1], C)[:, None] if name == "attn.in_proj_weight" else 1
        np.testing.assert_array_equal(parameters[1][name], factor * value)
        np.testing.assert_array_equal(parameters[2][name], parameters[1][name])


def test_what_is_looked_at(example):
    mg.manual_seed(2)
    model = example.Lookup()
    found = example.look(model, 0, B=2)
    (keys, values, asked), answer = example.draw(2, mg.Generator(2000))
    logits = model(keys, values, asked)
    loss = example.loss_of(logits, answer)
    loss.backward()
    right = (logits.argmax(-1) == answer).numpy()
    assert found["right"] == right.mean() < 0.5 and found["loss"] == pytest.approx(loss.item())
    dW_Q = model.attn.in_proj_weight.grad.numpy()[: example.C]
    assert found["|dW_Q|"] == pytest.approx(np.sqrt((dW_Q**2).sum()), rel=1e-4)
    with study.trace_heads(model) as trace:
        example.loss_of(model(keys, values, asked), answer).backward()
    P, dP = trace[0].pattern[:, 0], trace[0].pattern_grad[:, 0]
    slopes, weights = [], []
    for b, t in np.argwhere(~right):
        j = keys[b].tolist().index(asked[b, t].item())
        slopes.append(abs(dP[b, t, j] - (P[b, t] * dP[b, t]).sum()))
        weights.append(P[b, t, j])
    assert found["dP - D"] == pytest.approx(np.median(slopes), rel=1e-3)
    assert found["dS"] == pytest.approx(np.median(np.multiply(slopes, weights)), rel=1e-3)
    assert np.isnan(example.median(P, np.zeros(P.shape, bool)))
