"""nn.init: functions that fill a tensor."""

import pytest

import minigrad as mg
from minigrad import nn


def test_fans():
    w = mg.empty(400, 100, 2)
    assert abs(nn.init.xavier_uniform_(w).abs().max().item() - (6 / 1000) ** 0.5) < 1e-3
    for options, variance in (({}, 2 / 200), ({"mode": "fan_out"}, 2 / 800), ({"a": 2.0}, 2 / 200 / 5),
                              ({"a": 2.0, "nonlinearity": "relu"}, 2 / 200)):  # fmt: skip
        assert nn.init.kaiming_normal_(w, **options).var().item() == pytest.approx(variance, rel=0.03)
    for wrong in ({"mode": "in"}, {"nonlinearity": "tanh"}):
        with pytest.raises(ValueError, match="mode is 'fan_in' or 'fan_out'"):
            nn.init.kaiming_normal_(w, **wrong)
    with pytest.raises(ValueError, match=r"two dims.*\(3,\)"):
        nn.init.xavier_uniform_(mg.zeros(3))


@pytest.mark.parametrize("name", ["uniform_", "normal_", "xavier_uniform_", "kaiming_normal_"])
def test_numbers_are_those_of_the_generator(name):
    fill, state = getattr(nn.init, name), mg.default_generator.state
    x, y = (fill(mg.zeros(6, 4), generator=mg.Generator(7)) for _ in range(2))
    assert mg.equal(x, y) and x.any() and mg.default_generator.state == state
