"""What is assigned, sliced, grown and shared is neither lost nor saved under another name."""

import pytest

import minigrad as mg
from minigrad import nn


def kinds(row):
    return [type(module).__name__ for module in row]


def test_a_slice_of_a_list_counts_from_0():
    layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(4)])
    part = layers[2:]
    part.extend([nn.ReLU(), nn.Tanh(), nn.Sigmoid()])
    assert kinds(part) == ["Linear", "Linear", "ReLU", "Tanh", "Sigmoid"]
    assert list(part.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert part[0] is layers[2] and len(layers) == 4


def test_a_slice_of_a_row_counts_from_0():
    row = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    part = row[1:]
    part.append(nn.Sigmoid())
    assert kinds(part) == ["ReLU", "Linear", "Sigmoid"] and list(part.state_dict()) == ["1.weight", "1.bias"]
    assert part[1] is row[2] and row[2]._name == "2"


def test_what_is_trained_is_not_replaced_by_what_is_not():
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


def test_dicts_are_dicts_in_their_order():
    parts = nn.ModuleDict({"b": nn.ReLU(), "a": nn.Tanh()})
    assert "b" in parts and "forward" not in parts and "training" not in parts
    parts.clear()
    assert len(parts) == 0 and list(parts.items()) == []
    parts.update({"b": nn.ReLU(), "a": nn.Tanh()})
    del parts["a"]
    assert list(parts) == list(parts.keys()) == ["b"]


def test_what_a_list_in_a_list_holds_knows_its_path():
    model = nn.Module()
    model.blocks = nn.ModuleList([nn.ModuleDict({"a": nn.Linear(1, 1)})])
    assert model.blocks[0]["a"]._name == "blocks.0.a"
