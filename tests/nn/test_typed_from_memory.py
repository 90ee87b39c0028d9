"""Names that a user of PyTorch types from memory: containers, methods, arguments, initial values, helpers."""

import re
from collections import OrderedDict

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.base.missing import replacements
from minigrad.nn import functional as F


def test_rows():
    named = nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU(inplace=True)))
    assert named.a is named[0] and list(dict(named.named_parameters())) == ["a.weight", "a.bias"]
    named.append(nn.Linear(3, 1)).extend([nn.Tanh()])
    assert len(named) == 4 and named(mg.ones(5, 2)).shape == (5, 1)
    assert isinstance(named[1:], nn.Sequential) and len(named[1:]) == 3 and named[0]._name == "a"
    named += [nn.ReLU()]
    assert len(named) == 5
    rows = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)])
    first = rows[0]
    assert isinstance(rows[:2], nn.ModuleList) and rows[:2][0] is first and first._name == "0"
    rows[0] = nn.Identity()
    assert [type(m).__name__ for m in rows] == ["Identity", "Linear", "Linear"]


def test_dicts():
    parts = nn.ModuleDict({"a": nn.Linear(1, 1)})
    parts.update({"b": nn.Tanh()})
    assert list(parts.items())[1][0] == "b" and isinstance(parts.pop("b"), nn.Tanh) and list(parts) == ["a"]
    for name in ("keys", "a.b", ""):
        with pytest.raises(ValueError, match="name"):
            parts[name] = nn.Tanh()
    with pytest.raises(TypeError, match="must be a Module, got int"):
        parts["c"] = 3


def test_methods():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1)))
    assert model.get_submodule("1.0") is model[1][0] and model.get_submodule("") is model
    with pytest.raises(AttributeError, match=r"no Module at '1.2'"):
        model.get_submodule("1.2")
    assert model.to("cpu", non_blocking=True) is model
    with pytest.raises(TypeError, match="must be a Tensor, got ndarray"):
        model.register_buffer("x", np.ones(2))
    keys = model.load_state_dict({"0.bias": mg.zeros(3), "y": mg.ones(1)}, strict=False)
    assert "1.0.weight" in keys.missing_keys and keys.unexpected_keys == ["y"]
    model(mg.ones(1, 2)).sum().backward()
    model.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in model.parameters())
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_arguments_that_change_nothing():
    for layer in (
        nn.Linear(2, 2, device="cpu", dtype=None), nn.LayerNorm(2, device=None), nn.Dropout(0.0, inplace=True),
        nn.Identity(54, unused=1), nn.SiLU(inplace=True),
    ):  # fmt: skip
        x = mg.randn(3, 2)
        before = x.clone()
        assert layer(x).shape == (3, 2) and (x == before).all()
    x = mg.tensor([-1.0, 1.0])
    assert nn.ReLU(inplace=True)(x).numpy().tolist() == [0, 1] and x[0].item() == -1
    weights = [mg.ones(2, requires_grad=True)]
    optim.AdamW(weights, fused=True)
    for options in ({"amsgrad": True}, {"maximize": True}):
        with pytest.raises(TypeError, match=f"AdamW: {next(iter(options))}=True is not offered"):
            optim.AdamW(weights, **options)
    with pytest.raises(TypeError, match="positional"):
        optim.SGD(weights, 0.1, 0.9, 0.5)  # PyTorch's dampening


def test_closures_and_groups():
    a, b = mg.ones(2, requires_grad=True), mg.ones(3, requires_grad=True)
    optimizer = optim.SGD([a], lr=0.1)
    optimizer.add_param_group({"params": b, "lr": 1.0})

    def closure():
        optimizer.zero_grad()
        loss = a.sum() + b.sum()
        loss.backward()
        return loss

    with mg.no_grad():
        assert optimizer.step(closure).item() == 5
    assert a.detach().numpy() == pytest.approx(0.9) and not b.any()
    for wrong in ({"params": a}, {"params": mg.ones(1)}):
        with pytest.raises(ValueError, match="SGD"):
            optimizer.add_param_group(wrong)
    assert len(optimizer.param_groups) == 2


def test_errors_for_missing_names_say_what_to_write_instead():
    """Each name of base/missing.txt is missing, and each name that it recommends exists."""
    places = mg, nn, F, nn.init, nn.utils, optim, mg.utils.data, mg.ones(1)
    assert len(replacements()) > 150
    for name, here in replacements().items():
        lacking = [place for place in places if not hasattr(place, name)]
        assert len(lacking) >= len(places) - 1, name  # one_hot, half and a few are in another place than PyTorch's
        for place in lacking:
            with pytest.raises(AttributeError, match=rf" has no attribute '{name}'; instead: {re.escape(here)}$"):
                getattr(place, name)
        for module, given in re.findall(r"\b(mg|F|nn|optim)\.(\w+)", here):
            assert hasattr({"mg": mg, "F": F, "nn": nn, "optim": optim}[module], given), here
        for given in re.findall(r"\b[xyd]\.(\w+)", here):
            assert hasattr(mg.Tensor, given), here
    with pytest.raises(AttributeError, match=r"^module 'minigrad' has no attribute 'nonsense'$"):
        mg.nonsense  # noqa: B018
    assert "exp" in dir(mg.ones(1)) and "squeeze_" not in dir(mg.ones(1))


def test_the_dicts_of_a_module_can_be_read():
    layer = nn.Linear(2, 3)
    model = nn.Sequential(layer, nn.Tanh())
    model.register_buffer("seen", mg.zeros(2))
    assert [*model._modules] == ["0", "1"] and model._modules["0"] is layer
    assert [*layer._parameters] == ["weight", "bias"] and model._buffers["seen"] is model.seen
    with pytest.raises(TypeError, match="item assignment"):
        model._modules["0"] = nn.Tanh()
