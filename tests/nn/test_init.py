"""Initial values that are passed over: as if they had been drawn, but not computed."""

import contextlib

import numpy as np
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


def test_gains_and_fans():
    gain = nn.init.calculate_gain
    assert (gain("selu"), gain("sigmoid"), gain("relu")) == (0.75, 1.0, 2**0.5) and gain("tanh") == 5 / 3
    assert gain("leaky_relu", 0) == 2**0.5 and gain("leaky_relu") == (2 / 1.0001) ** 0.5
    w = mg.empty(400, 100, 2)
    assert abs(nn.init.kaiming_uniform_(w, mode="fan_out").abs().max().item() - (6 / 800) ** 0.5) < 1e-3
    assert abs(nn.init.xavier_uniform_(w).abs().max().item() - (6 / 1000) ** 0.5) < 1e-3
    with pytest.raises(ValueError, match="mode must be 'fan_in' or 'fan_out', got 'in'"):
        nn.init.kaiming_normal_(w, mode="in")


FILLS = ["xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "trunc_normal_", "orthogonal_"]


@pytest.mark.parametrize("name", FILLS)
def test_numbers_are_those_of_the_generator(name):
    fill, state = getattr(nn.init, name), mg.default_generator.state
    options = dict(a=-0.5, b=0.5) if name == "trunc_normal_" else {}  # many are drawn again
    x, y = (fill(mg.zeros(6, 4), **options, generator=mg.Generator(7)) for _ in range(2))
    assert mg.equal(x, y) and x.any() and mg.default_generator.state == state


def test_orthogonal_matrices_are_drawn_from_all_of_them():
    """LAPACK's of two rows are reflections; half of all are rotations."""
    kinds = {round(float(np.linalg.det(nn.init.orthogonal_(mg.empty(2, 2)).numpy()))) for _ in range(20)}
    assert kinds == {-1, 1}
