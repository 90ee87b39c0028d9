"""Assigning, slicing, growing and sharing modules loses none and changes no name in the state."""

import pytest

import minigrad as mg
from minigrad import nn


def kinds(row):
    return [type(module).__name__ for module in row]


def test_a_parameter_cannot_be_replaced_by_a_tensor():
    layer = nn.Linear(2, 2)
    with pytest.raises(
        TypeError, match=r"Linear.weight is a Parameter, and a Tensor would take its place: assign nn.Par"
    ):
        layer.weight = layer.weight.detach() * 0.5
    layer.weight = nn.Parameter(mg.ones(2, 2))
    layer.bias = None
    assert list(layer.state_dict()) == ["weight"]
    row = nn.Sequential(layer)
    with pytest.raises(TypeError, match=r"Sequential.0 is a Module, and cannot become a int"):
        row[0] = 3
    row.register_buffer("seen", mg.zeros(1))
    row.seen = mg.ones(1)
    with pytest.raises(TypeError, match=r"Sequential.seen is a buffer, and cannot become a float"):
        row.seen = 1.0


def test_a_module_under_two_names_has_two_paths_in_a_state():
    layer = nn.Linear(2, 2)
    row = nn.Sequential(layer, layer)
    row.register_buffer("seen", mg.zeros(1))
    assert list(row.state_dict()) == ["seen", "0.weight", "0.bias", "1.weight", "1.bias"]
    assert len(list(row.parameters())) == 2 and len(list(row.named_modules())) == 2
    other = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    other[1] = other[0]
    other.register_buffer("seen", mg.ones(1))
    row.load_state_dict(other.state_dict())
    assert (layer.weight == other[0].weight).all().item() and row.seen.item() == 1


def test_a_module_that_knows_its_parent():
    parent, child = nn.Sequential(), nn.Linear(2, 2)
    child.parent = parent
    parent.append(child)
    assert list(parent.state_dict()) == ["0.weight", "0.bias"]
