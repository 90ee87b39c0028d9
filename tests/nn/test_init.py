"""Ways to fill a tensor."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn


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
