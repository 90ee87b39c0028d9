"""What `pack` took, `unpack` puts back: all of it, or nothing."""

import json

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.training import checkpoint


def same(a, b):
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and (a[k] == b[k]).all() for k in a)


def small(seed=0):
    """A model, an optimizer that has stepped, and a generator."""
    mg.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    optimizer = optim.Adam(model.parameters(), lr=0.1 + seed)
    model(mg.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer, mg.Generator(seed)


def everything(model, optimizer, generator):
    tensors, meta = checkpoint.pack(model, optimizer, {"g": generator})
    return {name: x.copy() for name, x in tensors.items()}, json.dumps(meta)


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda t, m: t.pop("model.1.bias"), r"missing \['1.bias'\]"),
        (lambda t, m: t.update({"model.2.bias": np.ones(1, "f4")}), r"unexpected \['2.bias'\]"),
        (lambda t, m: t.update({"model.1.bias": np.ones(2, "f4")}), "1.bias has shape"),
        (lambda t, m: t.update({"model.1.bias": np.ones(1, "i4")}), "1.bias has dtype float32 here but int32"),
        (lambda t, m: m.pop("optimizer"), "it holds no optimizer state"),
        (lambda t, m: m.update(optimizer=[1]), "the state does not fit: list indices"),
        (lambda t, m: t.pop("optimizer.state.3.v"), "it holds no tensor 'optimizer.state.3.v'"),
        (lambda t, m: m["optimizer"]["state"]["3"].update(step=-5), "state 3 has step -5"),
        (lambda t, m: m.pop("generators"), "it holds no random state 'g'"),
        (lambda t, m: m.update(generators=7), "it holds no random state 'g'"),
        (lambda t, m: m["generators"]["g"].update(offset=-1), "a random state is two integers"),
    ],
)
def test_what_does_not_fit_changes_nothing(spoil, words):
    tensors, text = everything(*small(1))
    meta = json.loads(text)
    spoil(tensors, meta)
    model, optimizer, generator = small()
    before = everything(model, optimizer, generator)
    with pytest.raises(checkpoint.CheckpointError, match=f"the checkpoint does not fit: .*{words}"):
        checkpoint.unpack(tensors, meta, model, optimizer, {"g": generator})
    after = everything(model, optimizer, generator)
    assert same(before[0], after[0]) and before[1] == after[1]


def test_unpack_undoes_pack():
    given, other = small(1), small()
    tensors, text = everything(*given)
    checkpoint.unpack(tensors, json.loads(text), *other[:2], {"g": other[2]})
    again = everything(*other)
    assert same(tensors, again[0]) and text == again[1]


def test_lift_and_lower_are_inverse():
    state = {"state": {0: {"step": 3, "m": np.ones(2)}, 11: {}}, "groups": [{"lr": 0.1, "betas": (0.9, 0.99)}, {}]}
    tensors = {}
    lifted = json.loads(json.dumps(checkpoint._lift(state, "o", tensors)))
    assert list(tensors) == ["o.state.0.m"]
    again = checkpoint._lower(lifted, tensors)
    assert again["state"]["0"]["m"] is tensors["o.state.0.m"] and again["state"]["0"]["step"] == 3
    assert again["state"].keys() == {"0", "11"} and again["groups"] == [{"lr": 0.1, "betas": [0.9, 0.99]}, {}]
