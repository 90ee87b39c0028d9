"""Initial values that are passed over: as if they had been drawn, but not computed."""

import contextlib

import pytest

import minigrad as mg
from minigrad import nn


@pytest.mark.parametrize("dtype", [mg.float32, mg.float64], ids=str)
def test_numbers_passed_over_leave_the_generator_where_drawing_them_would(dtype):
    init = nn.init
    fills = [init.normal_, init.uniform_, init.xavier_uniform_, lambda x: init.normal_(x, generator=None)]
    for fill in fills:
        x, state = mg.full((3, 7), 5.0, dtype=dtype), mg.default_generator.state
        with init.passed_over():
            assert fill(x) is x and (x == 5).all()
        after, mg.default_generator.state = mg.default_generator.state, state
        fill(x)
        assert mg.default_generator.state == after != state and not (x == 5).any()
    for outer, inner in [(init.skipped, init.passed_over), (init.passed_over, init.skipped)]:  # to skip wins
        before = mg.default_generator.state
        with outer(), inner():
            init.normal_(x)
        assert mg.default_generator.state == before


def test_a_gpt_draws_what_it_would_without_passing_over_its_layers(monkeypatch):
    configs = [nn.GPTConfig(5, 4, 2, 2, 8, **changes) for changes in ({}, dict(tied=False, bias=True, n_kv_head=1))]

    def drawn():
        mg.manual_seed(0)
        models = [nn.GPT(config) for config in configs]
        return [p.tolist() for model in models for p in model.parameters()], mg.default_generator.state

    expected = drawn()
    monkeypatch.setattr(nn.init, "passed_over", contextlib.nullcontext)
    assert drawn() == expected
