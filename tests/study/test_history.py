"""study.history: its numbers are those of head_scores, flow and lesson for each model."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim, study

from .models import gpt, tokens


def wide():
    """Attention only, with a block in which random tokens can repeat."""
    mg.manual_seed(3)
    return study.AttentionOnly(vocab_size=12, block_size=20, n_layer=2, n_head=3, n_embd=12).double()


def test_the_numbers_of_each_model():
    batch = mg.randint(0, 12, (3, 20)), mg.randint(0, 12, (3, 20))
    found = study.history(((step, seeded(step)) for step in (0, 5, 7)), batch, periods=[4, 9, 11])
    assert found.steps == [0, 5, 7]
    for i, step in enumerate(found.steps):
        model = seeded(step)
        flow, scores = study.flow(model, batch), study.head_scores(model, periods=[4, 9])  # 11 does not fit twice
        assert found.losses[i] == flow.loss
        for head in ("0.0", "0.2", "1.1"):
            of_head, sums, bands = found[head], flow.by_input(head), study.lesson(model, batch, head).bands()
            for kind in ("previous", "duplicate", "induction"):
                assert of_head["scores"][kind][i] == scores[kind][head]
            for name, numbers in of_head["gate_grad"].items():
                assert numbers[i] == pytest.approx(sums.get(name, 0), rel=1e-12, abs=1e-18)
            for name, numbers in of_head["lesson"].items():
                assert numbers[i] == pytest.approx(bands.get(name, 0), rel=1e-9, abs=1e-15)
            assert of_head["gate_grad"]["total"].shape == (3,)


def seeded(step):
    """Another model for each step."""
    model = wide()
    for p in model.parameters():
        nn.init.normal_(p, std=0.1 + 0.05 * step, generator=mg.Generator(step + 1))
    return model


def test_the_table():
    model, batch = wide(), (mg.randint(0, 12, (2, 20)), mg.randint(0, 12, (2, 20)))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def models():
        for step in range(3):
            yield 100 * step, model
            optimizer.zero_grad()
            model(*batch)[1].backward()
            optimizer.step()

    found = study.history(models(), batch)
    lines = found.table("1.2").splitlines()
    assert [line for line in lines if line.endswith("of head 1.2")] == [
        "scores of head 1.2", "gate_grad of head 1.2", "lesson of head 1.2",
    ]  # fmt: skip
    assert lines[1].split() == ["step", "loss", "previous", "duplicate", "induction"]
    assert [line.split()[0] for line in lines[2:5]] == ["0", "100", "200"]
    assert found.losses[2] < found.losses[0]


def test_scores_are_unknown_in_a_short_block():
    found = study.history([(0, gpt())], tokens())  # of 6 tokens: the periods do not fit
    assert np.isnan(found["0.1"]["scores"]["previous"]).all() and np.isfinite(found["0.1"]["lesson"]["all"]).all()
    assert np.isfinite(found["1.3"]["gate_grad"]["mlp"]).all()


def test_a_text_of_two_tokens_has_no_band():
    found = study.lesson(gpt(), tuple(x[:, :2] for x in tokens()), "0.1")
    assert np.isnan(found.band()) and np.isnan(found.bands()["all"])


def test_a_page_refuses_the_history_of_another_model(tmp_path):
    model = gpt()
    with study.trace_heads(model) as trace:
        model(*tokens())[1].backward()
    with pytest.raises(ValueError, match="the history is of a model with other layers or heads"):
        trace.to_html(tmp_path / "a.html", history=study.history([(0, gpt(n_head=2)), (1, gpt(n_head=2))], tokens()))


def test_errors():
    with pytest.raises(ValueError, match="at least one model"):
        study.history([], tokens())
    with pytest.raises(ValueError, match="the same attention layers and heads"):
        study.history([(0, gpt()), (1, gpt(n_head=2))], tokens())
    with pytest.raises(KeyError, match=r"no head '2\.0'"):
        study.history([(0, gpt())], tokens())["2.0"]


@pytest.mark.parametrize("heads", [None, ["1.2", "0.1"]])
def test_lessons_are_those_of_each_head(heads):
    model = gpt()
    found = study.lessons(model, tokens(), heads=heads)
    assert [each.head for each in found] == (
        sorted(heads) if heads else [f"{layer}.{h}" for layer in range(2) for h in range(4)]
    )
    for each in found:
        one = study.lesson(model, tokens(), each.head)
        np.testing.assert_array_equal(each.positions, one.positions)
        np.testing.assert_array_equal(each.tokens, one.tokens)
        bands = each.bands()
        assert bands["all"] == pytest.approx(each.band()) == pytest.approx(sum(bands.values()) - bands["all"])
    with pytest.raises(KeyError, match=r"no head '0\.9'"):
        study.lessons(model, tokens(), heads=["0.9"])
